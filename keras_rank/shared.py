"""What several formulas ask for: computed for the first, kept for the others."""

from collections.abc import Callable
from contextvars import ContextVar
from functools import cached_property
from typing import Any

from keras import ops

_in_branch = ContextVar("in_branch", default=False)


def in_branch(function: Callable[[], Any]) -> Callable[[], Any]:
    """Makes a function keep nothing: a tensor traced in a branch ends with it."""

    def branch() -> Any:
        token = _in_branch.set(True)
        try:
            return function()
        finally:
            _in_branch.reset(token)

    return branch


class kept(cached_property[Any]):  # noqa: N801, it reads as the property that it is
    """A property that is computed once, but anew in a branch of a graph."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is not None and _in_branch.get():
            return self.func(instance)
        return super().__get__(instance, owner)


class Shared:
    """Base class of what keeps the results of functions of itself."""

    def once(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns `function(self, *arguments)`, computed once, as by `kept`.

        Arguments are told apart by `key_of`.
        """
        key = (function, *map(key_of, arguments))
        if key in self._results:
            return self._results[key][1]
        result = function(self, *arguments)
        if not _in_branch.get():
            # The arguments are kept too, so that no other tensor takes an id.
            self._results[key] = arguments, result
        return result

    @cached_property
    def _results(self) -> dict[tuple[Any, ...], tuple[Any, Any]]:
        return {}


def key_of(argument: Any) -> Any:
    """What stands for an argument in a dictionary: tensors are told apart by identity.

    So is what has no hash, as users' functions of some classes.
    """
    if ops.is_tensor(argument):
        return id(argument)
    try:
        hash(argument)
    except TypeError:
        return id(argument)
    return argument
