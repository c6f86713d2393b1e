"""The base classes of metrics: `RankingMetric` and `ExposureMetric`."""

import inspect
import re
import reprlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self, TypedDict

import keras
from keras import ops

from keras_rank import state
from keras_rank.arguments import (
    EMPTY_WEIGHTS,
    Seed,
    ShuffleTies,
    check_choice,
    check_dtype,
    check_flag,
    check_k,
    check_left_out,
    check_not_sparse,
    check_number,
    check_positive,
    check_seed,
    check_ties,
    check_ties_broken,
)
from keras_rank.arrays.arithmetic import SMALLEST_LABEL
from keras_rank.arrays.hashing import default_seed, key_of_seed
from keras_rank.backends import Tensor, backend
from keras_rank.lists.item_lists import Lists
from keras_rank.lists.relevance import Relevance, from_threshold
from keras_rank.metrics import recommended_items, update
from keras_rank.metrics.variables import (
    SumVariable,
    assign,
    list_sums,
    name_with_path,
    state_of,
)
from keras_rank.ranking.base import Ranking, Ties
from keras_rank.ranking.judged_lists import JudgedLists

# How many numbers of recommended items are looked up at a time.
MOST_NUMBERS = 2**24


class SharedArguments(TypedDict, total=False):
    """The arguments that are the same for all metrics."""

    shuffle_ties: ShuffleTies
    seed: Seed
    empty_weight: str
    sparse_labels: bool
    name: str | None
    dtype: Any


class RankingArguments(SharedArguments, total=False):
    """Those, and the two that have another default in some metrics."""

    empty_value: float | None
    relevance_threshold: float | None


class ExposureArguments(TypedDict, total=False):
    """The arguments that are the same for all metrics of exposure."""

    shuffle_ties: ShuffleTies
    seed: Seed
    sparse_labels: bool
    name: str | None


class ScoreMetric(keras.metrics.Metric):
    """The part that `RankingMetric` and `ExposureMetric` have in common.

    It holds the arguments that determine the order of a list by its scores.
    """

    # For callbacks in their automatic mode.
    higher_is_better = True

    # The start of the default name; `None` makes it from the name of the class.
    base_name: str | None = None

    # Whether `y_true` holds ids.
    sparse_labels = False

    # Whether the metric has had no batch yet.
    _is_new = True

    # Whether the metric is a member of a group, which has the sums.
    _is_member = False

    # Whether the metric was given to a group, which updates a copy of it, and had no
    # update itself since.
    _was_given = False

    # The variables of the sums, the last of which is the number of lists seen.
    _sums: list[SumVariable]

    # The dtype that lists are computed in.
    _compute_dtype = "float32"

    # The function that checks `shuffle_ties`.
    _check_ties = staticmethod(check_ties)

    name = name_with_path

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
        return update.SHUFFLE_TIES[self._ties]

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

    @classmethod
    def _as_member(cls, **arguments: Any) -> Self:
        """Returns a metric without state, as a member of a group."""
        member = cls.__new__(cls)
        member._is_member = True
        # Not by a call of the class, as `__init__` reads what is set before.
        cls.__init__(member, **arguments)
        return member

    def _without_state(self) -> Self:
        """Returns a copy without sums, as a member of a group."""
        member = object.__new__(type(self))
        keras.metrics.Metric.__init__(member, name=self.name, dtype=self.dtype)
        new = {"_is_member": True, "_is_new": True, "_was_given": False, "_sums": []}
        for name, value in (vars(self) | new).items():
            if isinstance(value, keras.Variable):
                # A variable of a subclass. It may be a constant, so its value is kept.
                form = {"shape": value.shape, "dtype": value.dtype, "name": value.name}
                variable = member.add_variable(initializer="zeros", **form)
                variable.assign(value)
                value = variable
            if name not in vars(member):
                setattr(member, name, value)
        return member

    def _with_seed(self, seed: int | None) -> Self:
        """Returns a copy without state that has another seed."""
        member = self._without_state()
        member.seed = seed
        return member

    def reset_state(self) -> None:
        """Resets the sums to those of no lists."""
        self._check_has_sums("reset_state")
        super().reset_state()

    def _check_has_sums(self, method: str, *, reads: bool = False) -> None:
        """Raises for a member of a group, as the group has the sums.

        Args:
            method: the name of the method that was called.
            reads: whether the method reads sums. It then also raises for a metric that
                was given to a group, which updates a copy of it, and has seen no lists.
        """
        is_unused = reads and self._was_given
        if not self._is_member and not (is_unused and state.is_zero(self._sums[-1])):
            return
        what = "a member of" if self._is_member else "only given to"
        raise ValueError(
            f"`{method}` should be called on the group, which has the sums: "
            f"`group.{method}()`. Received: {self.name!r}, which is {what} a group"
        )

    def _start_updates(self) -> None:
        """Raises for a member of a group, and notes that the metric has updates."""
        self._check_has_sums("update_state")
        self._was_given = False

    @property
    def _direction(self) -> str:
        """The direction that Keras's callbacks read in their automatic mode."""
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


class RankingMetric(ScoreMetric):
    """Base class of ranking metrics: the weighted mean of one value per list.

    The metrics of this module have its arguments, and document only their own.

    To add a metric, write its formula in `compute`, as in the example below. It returns
    one value per list, from the lists and their ranking. This class handles padding,
    ties, weights, empty lists, batching and exact sums. To save the metric in a model,
    decorate it with `@keras.saving.register_keras_serializable()`.

    `lists` holds `labels`, `scores`, `weights`, `mask` and `relevance`, each of
    shape `(batch, list_size)`. `ranking.take(values)` puts any values of that shape
    in the order of the scores, cut at `k`. With `shuffle_ties="average"` it returns
    the mean over tied items, which is exact for a formula that is linear in them.
    `ranking.best(values)` returns the largest values, the ideal order, and
    `ranking.ranks` the ranks: 1, 2, 3, ... Use only `keras.ops`, so that the metric
    compiles.

    `relevance` says what is relevant; a metric of graded relevance overrides it. The
    list weights and the lists that count as empty follow from it.

    With `sparse_labels`, the lists hold only the relevant items, with their ranks in
    `ranking.ranks`. If the formula sums over taken values, and reads their ranks from
    `ranking.ranks`, set the class attribute `takes_sparse_labels = True`; otherwise
    `sparse_labels` must be `False`. Two more class attributes are `higher_is_better`,
    `True` by default, and `base_name`, the start of the default name, made from the
    name of the class by default.

    Args:
        k: positive int. The number of ranks that count. Defaults to `None`: all.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. `"average"`: the exact mean over all
            their orders. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle, which is a
            function of the seed, the number of the list since the last reset, and the
            item. Defaults to `None`: that of the program, from the state of Python's
            generator at construction, which `keras.utils.set_random_seed` sets.
        empty_value: float. The value of a list that has items, but no relevant ones.
            Defaults to 0.0. `None` leaves it out of the mean.
        empty_weight: the weight of such a list in the mean. `"average"`: the average
            weight of the other lists. `"own"`: the mean weight of its own items.
            Defaults to `"average"`.
        relevance_threshold: float. Items with this label or a higher one are relevant.
            Defaults to 1.0. `None`: those with any label above 0.
        sparse_labels: bool. Whether `y_true` holds the ids of the relevant items, of
            shape `(batch,)` or `(batch, targets)` padded with -1, or a dict of
            `"ids"` and `"labels"` of this shape that grades them, and `y_pred` the
            scores of a whole catalogue, of shape `(batch, items)`. An id that is not in
            the catalogue is an error in eager code, and counts as not retrieved in
            compiled code. Defaults to `False`.
        name: str. Defaults to the name of the metric and its cutoff: `ndcg_at_10`.
        dtype: `"float64"` to compute in float64. Defaults to float32, whatever
            Keras's default is.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> class SuccessAtOne(keras_rank.metrics.RankingMetric):
    ...     def compute(self, lists, ranking):
    ...         relevant_by_rank = ranking.take(lists.relevance)  # (batch, k)
    ...         return relevant_by_rank[:, 0]
    >>> metric = SuccessAtOne()
    >>> metric.update_state([[1, 0], [1, 0]], [[0.9, 0.1], [0.2, 0.8]])
    >>> float(metric.result())
    0.5
    """

    # Whether the formula supports `sparse_labels`.
    takes_sparse_labels = False

    # Whether labels may have an axis of subtopics.
    takes_subtopics = False

    # Whether labels are compared with each other, each of which matters then.
    _compares_labels = False

    # Whether different labels of relevant items have different values.
    _is_graded = False

    # Whether lists without relevant items are always left out.
    _leaves_out_empty = False

    def __init__(
        self,
        k: int | None = None,
        *,
        shuffle_ties: ShuffleTies = True,
        seed: Seed = None,
        empty_value: float | None = 0.0,
        empty_weight: str = "average",
        relevance_threshold: float | None = 1.0,
        sparse_labels: bool = False,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        # Without a dtype, Keras would use its default precision.
        super().__init__(
            check_k(k),
            shuffle_ties,
            seed,
            name=name,
            dtype="float32" if dtype is None else dtype,
        )
        self._compute_dtype = check_dtype(self.dtype)
        self.empty_weight = check_choice("empty_weight", empty_weight, EMPTY_WEIGHTS)
        if self._leaves_out_empty:
            check_left_out(empty_value, empty_weight)
        self.empty_value = check_number("empty_value", empty_value)
        self.relevance_threshold = check_number(
            "relevance_threshold", relevance_threshold
        )
        check = check_flag if self.takes_sparse_labels else check_not_sparse
        self.sparse_labels = check("sparse_labels", sparse_labels)
        self._sums = [] if self._is_member else list_sums(self)
        # Here, as torch.compile can't trace `inspect`.
        names = inspect.signature(type(self)).parameters
        self._names_of_arguments = tuple(
            name for name in names if name not in ("shuffle_ties", "seed", "name")
        )

    def relevance(self, lists: Lists) -> Tensor:
        """Returns what finding an item is worth, 0 if it is irrelevant.

        Args:
            lists: the labels, scores, weights and mask of the items.

        Returns:
            A tensor of shape `(batch, list_size)`. By default 1 for labels of at
            least `relevance_threshold`.
        """
        return JudgedLists(lists, self._relevance).relevance

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        """Computes the metric: the only method that a new metric must define.

        Args:
            lists: the labels, scores, weights, mask and relevance of the items.
            ranking: the order of each list by its scores, cut at `k`.

        Returns:
            A tensor of shape `(batch,)`: one value per list. That of a list without
            relevant items is not used.
        """
        raise NotImplementedError(
            f"`{type(self).__name__}` should define `compute(lists, ranking)`."
        )

    @backend.without_autograph
    def update_state(
        self, y_true: Any, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Adds a batch of lists to the mean.

        Args:
            y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
                uneven length, or a dict `{"labels": ..., "mask": ...}`. A position
                whose label is below 0 or NaN, or whose mask is False, is padding. Ids
                of relevant items with `sparse_labels=True`. Or ranked lists, from
                `keras_rank.functional.rank` or `keras_rank.catalogue.rank` with the
                same `shuffle_ties`, in place of all arguments.
            y_pred: scores of the same shape, or `(batch, list_size, 1)`. An item
                scored `-inf` or NaN is judged, but not retrieved: it has no rank. Where
                a mask that layers have passed on to the scores is False, there is
                padding.
            sample_weight: `None`, a number, or weights of shape `(batch,)`,
                `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single
                list. An item whose weight is not above 0 is padding.

        Raises:
            ValueError: if shapes or dtypes don't match, or ranked lists have another
                `shuffle_ties` or a smaller `k`. The state is then unchanged.
        """
        if self._is_member or self._was_given:
            self._start_updates()
        given = y_true, y_pred, sample_weight
        assign(update.updates_of([self], self._sums, *given))

    def result(self) -> Tensor:
        """Returns the mean over all lists since the last reset, 0 if there are none."""
        return self._of_sums("result", state.mean)

    def standard_error(self) -> Tensor:
        """Returns the standard error of the result over samples of lists.

        It uses the delta method for a weighted mean. About 95% of the intervals of 1.96
        standard errors to each side of the result contain the mean over all lists that
        could have been drawn. It does not include the variance of training, and treats
        lists as independent.

        Returns:
            A scalar tensor: NaN for fewer than two lists that count, or if squares of
            weights, or of weights times values, are out of the range of float32.
        """
        return self._of_sums("standard_error", state.standard_error)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dtype": self.dtype,
            "empty_value": self.empty_value,
            "empty_weight": self.empty_weight,
            "relevance_threshold": self.relevance_threshold,
            "sparse_labels": self.sparse_labels,
        }

    def _of_sums(self, method: str, statistic: Callable[..., Tensor]) -> Tensor:
        self._check_has_sums(method, reads=True)
        (value,) = update.results(statistic, [self], state_of(self._sums))
        return value

    @property
    def _weighs_empty_lists(self) -> bool:
        """Whether lists without relevant items count, with their own weights."""
        return self.empty_weight == "own" and self.empty_value is not None

    @property
    def _relevance(self) -> Relevance:
        """What determines the relevance if `relevance` is not overridden."""
        return from_threshold(self.relevance_threshold)

    @property
    def _has_own_relevance(self) -> bool:
        """Whether a subclass overrides `relevance`."""
        return type(self).relevance is not RankingMetric.relevance

    def _relevance_for(self, lists: Lists) -> Relevance | Tensor:
        return self.relevance(lists) if self._has_own_relevance else self._relevance

    def _are_relevant_from(self, label: float) -> bool:
        """Returns whether all labels from this one on are relevant, and equal so."""
        threshold = self.relevance_threshold
        # A user's formula may read labels.
        is_ours = type(self).compute.__module__.startswith("keras_rank.")
        is_binary = self._relevance.is_binary and not self._has_own_relevance
        if self._is_graded or self._compares_labels or not (is_ours and is_binary):
            return False
        return label >= (SMALLEST_LABEL if threshold is None else threshold)

    @property
    def _arguments(self) -> tuple[Any, ...]:
        """The class and its arguments, which determine the values of lists."""
        names = self._names_of_arguments
        return type(self), *[getattr(self, name, None) for name in names]


class ExposureMetric(ScoreMetric):
    """Base class of metrics of what is in the top k of lists, whatever is relevant.

    The metrics of exposure have its arguments, and document only their own. The state
    is sums, such as how often each item is shown, so that the result does not depend on
    batches or devices.

    To add a metric, write its equation in the static method `compute`, as in the
    example below. It returns the result from `counts`, an int32 tensor of shape
    `(items,)`: how many lists have each item in their top k. Use only `keras.ops`.

    Args:
        k: positive int. The number of ranks that are shown.
        items: positive int. The number of items of the catalogue. Defaults to `None`:
            the number of candidates, which only `keras_rank.catalogue` knows.
        shuffle_ties: how tied items are ordered. `True`: at random, from `seed`.
            `False`: the earlier item first. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
            `None`: as for `keras_rank.metrics.RankingMetric`.
        sparse_labels: bool. Whether `y_true` holds ids, as for metrics of relevant
            items, rather than a label for each item. Defaults to `False`.
        name: str. Defaults to the name of the metric and its cutoff: `coverage_at_10`.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> class LargestCount(keras_rank.metrics.ExposureMetric):
    ...     @staticmethod
    ...     def compute(counts):
    ...         return keras.ops.max(counts)
    >>> metric = LargestCount(k=1, items=4)
    >>> metric.update_state([[0], [2], [0]])  # the shown ids
    >>> int(metric.result())
    2
    """

    k: int

    _check_ties = staticmethod(check_ties_broken)

    # The error for a catalogue of another size, without the two numbers.
    _size_error = "`items` should be the number of candidates, {}. Received: items={}"

    # How many numbers of each recommended item are looked up.
    _numbers_per_item = 1

    def __init__(
        self,
        k: int,
        *,
        items: int | None = None,
        shuffle_ties: ShuffleTies = True,
        seed: Seed = None,
        sparse_labels: bool = False,
        name: str | None = None,
    ) -> None:
        k = check_positive("k", k)
        super().__init__(k, shuffle_ties, seed, name=name, dtype="float32")
        self.sparse_labels = check_flag("sparse_labels", sparse_labels)
        if items is not None:
            items = check_positive("items", items, "a positive integer or None")
        self.items = items
        self._sums = [] if self._is_member else self._new_sums()

    # The equation: the result, given the sums and the numbers of the items.
    compute: ClassVar[Callable[..., Tensor]]

    @backend.without_autograph
    def update_state(
        self, y_true: Any, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Adds what a batch of lists shows.

        Args:
            y_true: as for other metrics: labels of shape `(batch, items)`, or ids with
                `sparse_labels=True`. Only labels below 0 or NaN matter: such an item is
                not in the list. Or the ids of the shown items, in place of all
                arguments, as `keras_rank.catalogue.top_k` returns them: of shape
                `(batch, k)` or wider, the best first, padded with -1. An id that is
                given twice in a list counts once.
            y_pred: scores of shape `(batch, items)`. An item scored `-inf` or NaN is
                not shown.
            sample_weight: as for other metrics. A list whose weight is not above 0 is
                left out; all others count the same.

        Raises:
            ValueError: if shapes or dtypes don't match. The state is unchanged then. In
                a graph that does not know sizes, TensorFlow raises its own error.
        """
        if self._is_member or self._was_given:
            self._start_updates()
        given = y_true, y_pred, sample_weight
        assign(recommended_items.updates_of([self], [self._sums], given))

    def result(self) -> Tensor:
        """Returns the result over all lists since the last reset, 0 for no lists."""
        self._check_has_sums("result", reads=True)
        return self._result_of(self._values())

    def of_shown(self, ids: Tensor, items: int) -> list[Tensor]:
        """Returns the sums of lists that show ids, in a catalogue of `items` items."""
        if self.items not in (None, items):
            received = self._size_error.format(items, self.items)
            raise ValueError(f"{received}, of {self.name!r}")
        sums: list[Tensor] = [
            ops.zeros(*x) for x in self._variable_specs(items).values()
        ]
        size = max(1, MOST_NUMBERS // (self.k * self._numbers_per_item))
        for start in range(0, len(ids), size):
            sums = self._add(
                sums, recommended_items.Shown(ids[start : start + size], items)
            )
        return sums

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "items": self.items,
            "sparse_labels": self.sparse_labels,
        }

    def _variable_specs(self, items: int) -> dict[str, tuple[tuple[int, ...], str]]:
        """Returns the shapes and dtypes of the sums, by the names of the variables."""
        # int32 is exact on every device, up to 2**31 lists.
        return {"counts": ((items,), "int32")}

    def _new_sums(self) -> list[SumVariable]:
        """Creates the variables: the sums, and the number of lists."""
        specs = self._variable_specs(self.items or 0) | {"lists_seen": ((), "int32")}
        return [SumVariable(self, *spec, name) for name, spec in specs.items()]

    def _values(self) -> list[Tensor]:
        return [variable.value for variable in self._sums[:-1]]

    def _item_values(self) -> list[Tensor]:
        """Returns what `compute` needs to know about the items beside the sums."""
        return []

    def _add(
        self, sums: Sequence[Tensor], lists: recommended_items.Shown
    ) -> list[Tensor]:
        """Returns the sums with those of more lists added."""
        return [sums[0] + lists.counts(self.k)]

    def _result_of(self, sums: Sequence[Tensor]) -> Tensor:
        """Returns the result, given the sums."""
        numbers = *sums, *self._item_values()
        return backend.enter(_computed, *numbers, compute=type(self).compute)


def _computed(*numbers: Tensor, compute: Callable[..., Tensor]) -> Tensor:
    """Returns what `compute` does. A user's own is seen not to be ours."""
    return compute(*numbers)


def _require_own_config(metric: ScoreMetric) -> None:
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
