"""Results that several formulas share: computed once."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from keras_rank.arrays.backends import is_in_branch, is_traced


class kept(cached_property[Any]):  # noqa: N801, it reads as the property that it is
    """A property that is computed once, or again if its tensors would not last."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        result = self.func(instance)
        if _lasts(result, instance):
            instance.__dict__[self.attrname] = result
        return result


class Shared:
    """Base class of objects that keep the results of functions of themselves."""

    def once(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns `function(self, *arguments)`, computed once, like `kept`.

        Arguments are compared by `key_of`.
        """
        key = (function, *map(key_of, arguments))
        results = vars(self).setdefault("_results", {})
        if key in results:
            return results[key][1]
        result = function(self, *arguments)
        if _lasts(result, self):
            # The arguments are kept too, so that their ids are not reused.
            results[key] = arguments, result
        return result


def _lasts(result: Any, owner: Any) -> bool:
    """Whether a result may be kept as long as its owner.

    A traced tensor ends with its branch, or with the compiled function that uses an
    order from outside of it.
    """
    return not is_in_branch() and (not _has_traced(result) or _has_traced(owner))


def _has_traced(x: Any) -> bool:
    if isinstance(x, (tuple, list)):
        return any(map(_has_traced, x))
    if isinstance(x, Shared):
        return any(_has_traced(part) for part in list(vars(x).values()))
    return is_traced(x)


def key_of(argument: Any) -> Any:
    """The key of an argument in a dictionary.

    Arguments without a hash, such as tensors and some users' functions, are compared by
    identity. So are tensors of torch, whose hash is that.
    """
    try:
        hash(argument)
    except TypeError:
        return id(argument)
    return argument
