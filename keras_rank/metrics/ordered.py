"""What metrics that order lists by score have in common: a cutoff, ties, a name."""

import inspect
import re
import reprlib
from typing import Any, Self

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_seed,
    check_ties,
)
from keras_rank.arrays.hashing import default_seed, key_of_seed
from keras_rank.metrics.variables import PlacedMetric
from keras_rank.ranking.tie_breaking import Ties

# The values of `shuffle_ties`, by what they stand for.
SHUFFLE_TIES: dict[Ties, ShuffleTies] = {
    "shuffle": True,
    "stable": False,
    "average": "average",
}


class OrderedMetric(PlacedMetric):
    """A metric that orders lists by their scores."""

    # For callbacks in their automatic mode.
    higher_is_better = True

    # The start of the default name; `None` makes it from the name of the class.
    base_name: str | None = None

    # Whether `y_true` holds ids.
    sparse_labels = False

    # Whether its result has a standard error.
    _has_error = True

    # Whether the metric has had no batch yet.
    _is_new = True

    # Whether the metric is a member of a group.
    _in_group = False

    # What says which orders of ties it takes.
    _check_ties = staticmethod(check_ties)

    def __init__(
        self,
        k: int | None,
        shuffle_ties: ShuffleTies,
        seed: Seed,
        *,
        name: str | None,
        dtype: Any,
    ) -> None:
        self.k = k
        super().__init__(name=name or self._default_name(), dtype=dtype)
        self._seed, self._seed_is_default = check_seed(seed), seed is None
        self.shuffle_ties = shuffle_ties

    def get_config(self) -> dict[str, Any]:
        _require_own_config(self)
        return {
            "name": self.name,
            "k": self.k,
            "shuffle_ties": self.shuffle_ties,
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        return f"<{self._as_call()} name={self.name}>"

    def _as_call(self) -> str:
        """The call that creates the metric, without arguments that are defaults."""
        own: dict[str, Any] = {"name": self.name, "dtype": "float32"}
        if self._seed_is_default:
            own["seed"] = self.seed
        arguments = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            default = _as_text(own.get(name, parameter.default))
            value = _as_text(getattr(self, name, parameter.default))
            # A function may be the default by its name.
            if value not in (default, parameter.default):
                arguments.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    @property
    def shuffle_ties(self) -> ShuffleTies:
        """How tied items are ordered."""
        # Not as it was given: NumPy's booleans can't be saved.
        return SHUFFLE_TIES[self._ties]

    @shuffle_ties.setter
    def shuffle_ties(self, shuffle_ties: ShuffleTies) -> None:
        self._ties: Ties = self._check_ties(shuffle_ties)
        self.seed = self._seed

    @property
    def seed(self) -> int | None:
        """The seed of the shuffle, `None` if none was given or needed."""
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        if seed is None and self._ties == "shuffle":
            seed = default_seed()
        self._seed = seed
        # Metrics with the same one may share an order. The key is made here, as
        # torch.compile can't trace how.
        is_shuffled = self._ties == "shuffle"
        key = key_of_seed(seed) if is_shuffled and seed is not None else 0
        self._order = self._ties, key

    def _with_seed(self, seed: int | None) -> Self:
        """The metric with another seed, which has its state in common with this one."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.seed = seed
        return other

    def _copy_for_group(self) -> Self:
        """Returns the metric as a member of another group, which has its own sums."""
        other = self._with_seed(self.seed)
        other._is_new = True
        return other

    @property
    def _direction(self) -> str:
        """What Keras's callbacks read in their automatic mode."""
        return "up" if self.higher_is_better else "down"

    @_direction.setter
    def _direction(self, direction: str) -> None:
        # As Keras's own metrics do in `__init__`.
        self.higher_is_better = direction == "up"

    def _default_name(self) -> str:
        class_name = type(self).__name__
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()
        name = self.base_name or words
        return name if self.k is None else f"{name}_at_{self.k}"


def _require_own_config(metric: OrderedMetric) -> None:
    """Raises for a value of a user's argument that the inherited config lacks.

    A copy or a loaded metric would have the default.
    """
    kind = type(metric)
    owner = next(base for base in kind.__mro__ if "get_config" in vars(base))
    if kind is owner or not owner.__module__.startswith("keras_rank."):
        return
    known = inspect.signature(owner).parameters
    for name, parameter in inspect.signature(kind).parameters.items():
        value = getattr(metric, name, parameter.default)
        if name not in known and _as_text(value) != _as_text(parameter.default):
            raise NotImplementedError(
                f"`{kind.__name__}` should have a method `get_config` that returns all "
                f"arguments: `{{**super().get_config(), {name!r}: self.{name}}}`. "
                f"Received: {name}={_as_text(value)}, which would be lost"
            )


def _as_text(value: Any) -> str:
    """An argument: functions by their names, arrays by a few numbers or a shape."""
    if callable(value):
        return getattr(value, "__name__", None) or repr(value)
    if getattr(value, "ndim", 1) > 1:
        return f"array of shape {value.shape}"
    return reprlib.repr(value.tolist() if hasattr(value, "tolist") else value)
