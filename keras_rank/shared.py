"""What several formulas ask for: computed for the first, kept for the others."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from keras import ops


class Shared:
    """Base class of what keeps the results of functions of itself.

    What is first computed inside a branch of a graph may not be kept: it is not there
    outside of the branch.
    """

    def once(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns `function(self, *arguments)`, computed at the first call only.

        Tensors among the arguments are compared by identity.
        """
        key = (function, *(_key(argument) for argument in arguments))
        if key not in self._results:
            # The arguments are kept too, so that no other tensor takes an id.
            self._results[key] = (arguments, function(self, *arguments))
        return self._results[key][1]

    @cached_property
    def _results(self) -> dict[tuple[Any, ...], tuple[Any, Any]]:
        return {}


def _key(argument: Any) -> Any:
    return id(argument) if ops.is_tensor(argument) else argument
