"""Caches for graphs with branches, whose tensors are valid only within the branch."""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

# The caches and keys of the values that were cached in the branch being traced.
_branch_entries: ContextVar[list[tuple[dict[Any, Any], Any]] | None] = ContextVar(
    "branch_entries", default=None
)


class cached_property(functools.cached_property[Any]):  # noqa: N801
    """A property that is computed once, or once for each branch that uses it."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return compute_once(vars(instance), self.attrname, self.func, instance)


def compute_once(
    cache: dict[Any, Any], key: Any, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Returns a cached value, and records the entry if it was added in a branch."""
    if key not in cache:
        cache[key] = function(*arguments)
        entries = _branch_entries.get()
        if entries is not None:
            entries.append((cache, key))
    return cache[key]


def isolate_cache(function: Callable[[], Any]) -> Callable[[], Any]:
    """Wraps the function of a branch, and removes the values that it caches."""

    def call() -> Any:
        entries: list[tuple[dict[Any, Any], Any]] = []
        token = _branch_entries.set(entries)
        try:
            return function()
        finally:
            _branch_entries.reset(token)
            for cache, key in entries:
                del cache[key]

    return call
