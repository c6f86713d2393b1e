"""Graphs with branches: what is computed in a branch is kept only within it."""

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

# What the branch that is traced has kept, by its caches and keys.
_kept: ContextVar[list[tuple[dict[Any, Any], Any]] | None] = ContextVar(
    "kept", default=None
)


class cached_property(functools.cached_property[Any]):  # noqa: N801
    """A property that is computed once, or in a branch for that branch."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return kept(vars(instance), self.attrname, self.func, instance)


def kept(
    cache: dict[Any, Any], key: Any, function: Callable[..., Any], *arguments: Any
) -> Any:
    if key not in cache:
        cache[key] = function(*arguments)
        by_branch = _kept.get()
        if by_branch is not None:
            by_branch.append((cache, key))
    return cache[key]


def forgetful(way: Callable[[], Any]) -> Callable[[], Any]:
    """The function of a branch, after which nothing is kept that it has computed."""

    def call() -> Any:
        by_branch: list[tuple[dict[Any, Any], Any]] = []
        token = _kept.set(by_branch)
        try:
            return way()
        finally:
            _kept.reset(token)
            for cache, key in by_branch:
                del cache[key]

    return call
