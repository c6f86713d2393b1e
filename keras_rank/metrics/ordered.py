"""What metrics that order lists by score have in common: a cutoff, ties, a name."""

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Self, TypeVar

import keras

from keras_rank.arguments import Seed, ShuffleTies, check_seed, check_ties
from keras_rank.arrays.backends import Tensor, for_any_use
from keras_rank.arrays.hashing import key_of_seed
from keras_rank.ordering.preference import Ties

# The values of `shuffle_ties`, by what they stand for.
SHUFFLE_TIES: dict[Ties, ShuffleTies] = {
    "shuffle": True,
    "stable": False,
    "average": "average",
}

# A variable, and its new value.
Update = tuple[keras.Variable, Tensor]

M = TypeVar("M", bound="OrderedMetric")
K = TypeVar("K", bound=Hashable)


class OrderedMetric(keras.metrics.Metric):
    """A metric that orders lists by their scores.

    Args:
        k: the number of ranks that count, `None` for all.
        shuffle_ties: how tied items are ordered.
        seed: int, `keras.random.SeedGenerator` or `None`.
        name: str. Defaults to the name of the metric and its cutoff.
        dtype: as for Keras's metrics.
    """

    # For callbacks in their automatic mode.
    higher_is_better = True

    # The start of the default name; `None` makes it from the name of the class.
    base_name: str | None = None

    # Whether `y_true` holds ids.
    sparse_labels = False

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
        self.shuffle_ties = shuffle_ties
        self.seed = check_seed(seed)
        self._seed_is_drawn = seed is None

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "k": self.k,
            "shuffle_ties": self.shuffle_ties,
            "seed": self.seed,
        }

    @property
    def shuffle_ties(self) -> ShuffleTies:
        """How tied items are ordered."""
        # Not as it was given: NumPy's booleans can't be saved.
        return SHUFFLE_TIES[self._ties]

    @shuffle_ties.setter
    def shuffle_ties(self, shuffle_ties: ShuffleTies) -> None:
        self._ties: Ties = self._check_ties(shuffle_ties)

    @property
    def seed(self) -> int:
        """The seed of the shuffle."""
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        # Here, as torch.compile can't trace how the key is made.
        self._seed, self._key = seed, key_of_seed(seed)

    def _with_seed(self, seed: int) -> Self:
        """The metric with another seed, which has its state in common with this one."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.seed = seed
        return other

    @property
    def _direction(self) -> str:
        """What Keras's callbacks read in their automatic mode."""
        return "up" if self.higher_is_better else "down"

    @_direction.setter
    def _direction(self, direction: str) -> None:
        # As Keras's own metrics do in `__init__`.
        self.higher_is_better = direction == "up"

    @property
    def _order(self) -> tuple[Ties, int]:
        """How ties are ordered: metrics with the same one may share an order."""
        return self._ties, self._key if self._ties == "shuffle" else 0

    def _default_name(self) -> str:
        class_name = type(self).__name__
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()
        name = self.base_name or words
        return name if self.k is None else f"{name}_at_{self.k}"


def grouped(metrics: Sequence[M], by: Callable[[M], K]) -> dict[K, list[M]]:
    """Groups metrics by a key."""
    groups: dict[K, list[M]] = {}
    for metric in metrics:
        groups.setdefault(by(metric), []).append(metric)
    return groups


def assign(updates: Sequence[Update]) -> None:
    """Assigns new values to variables."""
    for variable, value in updates:
        variable.assign(value)


def sum_variable(shape: tuple[int, ...], dtype: str, name: str) -> keras.Variable:
    """Creates a variable that is summed over replicas.

    `add_variable` would create it in the precision of a mixed-precision policy, which
    is too low for sums.
    """
    with for_any_use():
        return keras.Variable(
            initializer="zeros",
            shape=shape,
            dtype=dtype,
            trainable=False,
            autocast=False,
            aggregation="sum",
            synchronization="on_read",
            name=name,
        )
