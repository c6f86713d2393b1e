"""What metrics that order lists by score have in common: a cutoff, ties, a name."""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Self, TypeVar

import keras

from keras_rank.arguments import (
    Seed,
    ShuffleTies,
    check_seed,
    check_ties,
    drawn_seed,
)
from keras_rank.arrays.hashing import key_of_seed
from keras_rank.backends import Tensor, backend
from keras_rank.ranking.tie_breaking import Ties

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


class Place:
    """Where the variables of a metric are in the state tree of a model."""

    path = ""


# The paths of the metrics that Keras is compiling into one model.
_places_in_model: dict[str, Place] = {}


class PlacedMetric(keras.metrics.Metric):
    """A metric with a place of its own in the state tree of a model.

    Its path is its name, as for Keras's metrics. Of equal names in one model, such as
    those of two outputs, the second gets a number, as Keras numbers results.
    """

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        # Keras sets the name again when it compiles a model: that of one metric after
        # the other, before it updates the first.
        is_compiled = "_name" in vars(self)
        self._name = name
        if is_compiled:
            place(self._places(), _places_in_model)

    def _places(self) -> Iterable[tuple[Place, str]]:
        """The places of variables, and what they are named after."""
        raise NotImplementedError


def place(places: Iterable[tuple[Place, str]], taken: dict[str, Place]) -> None:
    """Gives each place a path that no other has taken."""
    for each, name in places:
        # A path is split at this character.
        path = first = name.replace("/", ">")
        number = 0
        while taken.get(path, each) is not each:
            number += 1
            path = f"{first}_{number}"
        taken[path] = each
        each.path = path


def end_compiling() -> None:
    """Notes that Keras has compiled the metrics of a model, or failed to.

    It then updates them, or the user makes new ones.
    """
    if _places_in_model:
        _places_in_model.clear()


class OrderedMetric(PlacedMetric):
    """A metric that orders lists by their scores."""

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
        self._place = Place()
        end_compiling()
        place(self._places(), {})
        self._seed, self._seed_is_drawn = check_seed(seed), seed is None
        self.shuffle_ties = shuffle_ties

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
        self.seed = self._seed

    @property
    def seed(self) -> int | None:
        """The seed of the shuffle, `None` if none was given or needed."""
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        # Here, as torch.compile can't trace how the key is made.
        if seed is None and self._ties == "shuffle":
            seed = drawn_seed()
        self._seed, self._key = seed, 0 if seed is None else key_of_seed(seed)

    def _with_seed(self, seed: int | None) -> Self:
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

    def _places(self) -> list[tuple[Place, str]]:
        return [(self._place, self.name)]

    def _sum_variable(
        self, shape: tuple[int, ...], dtype: str, name: str
    ) -> keras.Variable:
        """Creates a variable that is summed over replicas."""
        with backend.lasting():
            return SumVariable(self._place, shape, dtype, name)

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


class SumVariable(keras.Variable):
    """A variable that is summed over replicas, at the place of its metric.

    `add_variable` would create it in the precision of a mixed-precision policy, which
    is too low for sums, and at a path that does not follow: a group has its members
    when their variables exist. Its name scope also fails in a graph of TensorFlow for
    names such as "ndcg@10".
    """

    def __init__(
        self, place: Place, shape: tuple[int, ...], dtype: str, name: str
    ) -> None:
        self._place = place
        super().__init__(
            initializer="zeros",
            shape=shape,
            dtype=dtype,
            trainable=False,
            autocast=False,
            aggregation="sum",
            synchronization="on_read",
            name=name,
        )

    @property
    def path(self) -> str:
        """The path of the metric, and the name."""
        scope = super().path.removesuffix(self.name)
        return f"{scope}{self._place.path}/{self.name}"
