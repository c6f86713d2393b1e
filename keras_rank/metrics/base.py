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
    LIST_WEIGHTS,
    Seed,
    ShuffleTies,
    check_choice,
    check_dtype,
    check_flag,
    check_k,
    check_no_empty_value,
    check_not_sparse,
    check_number,
    check_positive,
    check_seed,
    check_ties,
    check_ties_broken,
)
from keras_rank.arrays.arithmetic import SMALLEST_LABEL
from keras_rank.arrays.hashing import default_seed, fold_seed
from keras_rank.backends import Tensor, backend
from keras_rank.lists.item_lists import Lists
from keras_rank.lists.relevance import Relevance, from_threshold
from keras_rank.metrics import recommended_items, update
from keras_rank.metrics.variables import (
    SumVariable,
    assign,
    create_list_sums,
    name_with_path,
    read_state,
)
from keras_rank.ranking.base import Ranking, Ties
from keras_rank.ranking.judged_lists import JudgedLists

# The largest number of values that are gathered for recommended items at once.
MAX_GATHERED_NUMBERS = 2**24


class SharedArguments(TypedDict, total=False):
    """Keyword arguments with the same default in all ranking metrics."""

    shuffle_ties: ShuffleTies
    seed: Seed
    empty_weight: str
    list_weight: str
    sparse_labels: bool
    name: str | None
    dtype: Any


class RankingArguments(SharedArguments, total=False):
    """The shared arguments, and two arguments whose defaults differ by metric."""

    empty_value: float | None
    relevance_threshold: float | None


class ExposureArguments(TypedDict, total=False):
    """Keyword arguments with the same default in all exposure metrics."""

    shuffle_ties: ShuffleTies
    seed: Seed
    sparse_labels: bool
    name: str | None


class ScoreMetric(keras.metrics.Metric):
    """Base class of `RankingMetric` and `ExposureMetric`.

    It holds the arguments that determine the order of a list by its scores.
    """

    # Keras's callbacks read the direction in their automatic mode.
    higher_is_better = True

    # The prefix of the default name. If `None`, it is made from the name of the class.
    base_name: str | None = None

    # Whether `y_true` holds ids.
    sparse_labels = False

    # Whether the metric has not been updated yet.
    _is_new = True

    # Whether the metric is a member of a group, which holds the sums.
    _is_member = False

    # Whether a group has a copy of the metric, and the metric itself has not been
    # updated since it was copied.
    _has_group_copy = False

    # The variables of the sums. The last variable is the number of lists seen.
    _sums: list[SumVariable]

    # The dtype of computations.
    _compute_dtype = "float32"

    # The function that checks `shuffle_ties`.
    _check_ties: Callable[[Any], Ties] = staticmethod(check_ties)

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
        _require_get_config(self)
        return {
            "name": self.name,
            "k": self.k,
            "shuffle_ties": self.shuffle_ties,
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        return f"<{self._format_call()} name={self.name}>"

    def _format_call(self) -> str:
        """Returns the call that creates the metric, without default arguments."""
        defaults: dict[str, Any] = {"name": self.name, "dtype": "float32"}
        if self._seed_is_default:
            defaults["seed"] = self.seed
        arguments = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            default = _as_text(defaults.get(name, parameter.default))
            value = _as_text(getattr(self, name, parameter.default))
            # A default such as "exponential" is resolved to the function of that name.
            if value not in (default, parameter.default):
                arguments.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    @property
    def shuffle_ties(self) -> ShuffleTies:
        """The rule for the order of tied items: a boolean, `"average"` or a bound."""
        # The value is normalized, as NumPy's booleans can't be saved.
        return update.SHUFFLE_TIES[self._ties]

    @shuffle_ties.setter
    def shuffle_ties(self, shuffle_ties: ShuffleTies) -> None:
        self._ties: Ties = self._check_ties(shuffle_ties)
        self.seed = self._seed

    @property
    def seed(self) -> int | None:
        """The seed of the shuffle, or `None` if no seed was passed or needed."""
        return self._seed

    @seed.setter
    def seed(self, seed: int | None) -> None:
        if seed is None and self._ties == "shuffle":
            seed = default_seed()
        self._seed = seed
        # Metrics with an equal `_order` may share a ranking. The key of the seed is
        # computed here, as torch.compile can't trace the computation.
        is_shuffled = self._ties == "shuffle"
        key = fold_seed(seed) if is_shuffled and seed is not None else 0
        self._order = self._ties, key

    @classmethod
    def _create_member(cls, **arguments: Any) -> Self:
        """Creates a metric without state, as a member of a group."""
        member = cls.__new__(cls)
        member._is_member = True
        # `__init__` reads `_is_member`, so the attribute is set before the call.
        cls.__init__(member, **arguments)
        return member

    def _copy_without_state(self) -> Self:
        """Returns a copy without sums, as a member of a group."""
        member = object.__new__(type(self))
        keras.metrics.Metric.__init__(member, name=self.name, dtype=self.dtype)
        changes = {
            "_is_member": True,
            "_is_new": True,
            "_has_group_copy": False,
            "_sums": [],
        }
        for name, value in (vars(self) | changes).items():
            if isinstance(value, keras.Variable):
                # A variable of a subclass may hold a constant, so its value is copied.
                spec = {"shape": value.shape, "dtype": value.dtype, "name": value.name}
                variable = member.add_variable(initializer="zeros", **spec)
                variable.assign(value)
                value = variable
            if name not in vars(member):
                setattr(member, name, value)
        return member

    def _copy_with_seed(self, seed: int | None) -> Self:
        """Returns a copy without state that has the given seed."""
        member = self._copy_without_state()
        member.seed = seed
        return member

    def reset_state(self) -> None:
        """Resets all sums to 0."""
        self._check_has_sums("reset_state")
        super().reset_state()

    def _check_has_sums(self, method: str, *, reads: bool = False) -> None:
        """Raises `ValueError` if the sums are those of a group, not of the metric.

        Args:
            method: the name of the method that was called.
            reads: whether the method reads sums. If so, it also raises if a group has a
                copy of the metric and the metric itself has seen no lists: the user
                has updated the group instead.
        """
        may_be_unused = reads and self._has_group_copy
        if not self._is_member and not (
            may_be_unused and state.is_zero(self._sums[-1])
        ):
            return
        relation = "a member of" if self._is_member else "only given to"
        raise ValueError(
            f"`{method}` should be called on the group, which has the sums: "
            f"`group.{method}()`. Received: {self.name!r}, which is {relation} a group"
        )

    def _start_updates(self) -> None:
        """Marks the metric as updated. Raises `ValueError` for a member of a group."""
        self._check_has_sums("update_state")
        self._has_group_copy = False

    @property
    def _direction(self) -> str:
        """The direction that Keras's callbacks read in their automatic mode."""
        return "up" if self.higher_is_better else "down"

    @_direction.setter
    def _direction(self, direction: str) -> None:
        # Keras's own metrics set the attribute in `__init__`.
        self.higher_is_better = direction == "up"

    def _default_name(self) -> str:
        class_name = type(self).__name__
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_name).lower()
        name = self.base_name or words
        return name if self.k is None else f"{name}_at_{self.k}"


class RankingMetric(ScoreMetric):
    """Base class of ranking metrics: the weighted mean of one value per list.

    All ranking metrics accept the arguments of this class. Their own documentation
    covers only the arguments that differ.

    To add a metric, implement its formula in `compute`, as in the example below. The
    method returns one value per list, computed from the lists and their ranking. This
    class handles padding, ties, weights, empty lists, batching and exact sums. To save
    the metric in a model, decorate it with
    `@keras.saving.register_keras_serializable()`.

    `lists` has the attributes `labels`, `scores`, `weights`, `mask` and `relevance`,
    each of shape `(batch, list_size)`. `ranking.take(values)` puts values of that shape
    in the order of the scores and cuts them at `k`. With `shuffle_ties="average"`, it
    returns the mean over tied items, which is exact if the formula is linear in the
    values. `ranking.best(values)` returns the largest values in the ideal order.
    `ranking.ranks` holds the ranks: 1, 2, 3, ... Use only `keras.ops`, so that the
    metric can be compiled.

    `relevance` determines which items are relevant. A metric of graded relevance
    overrides it. The weight of a list, and whether the list counts as empty, follow
    from the relevance of its items.

    With `shuffle_ties="worst"` and `"best"`, the results are bounds over all orders of
    tied items, unless items have different weights or gains decrease. Metrics of
    subtopics and rank correlations do not accept bounds.

    With `sparse_labels`, the lists hold only the relevant items, and `ranking.ranks`
    holds their ranks. If the formula sums over taken values and reads their ranks from
    `ranking.ranks`, set the class attribute `takes_sparse_labels = True`. Otherwise,
    `sparse_labels` must be `False`. There are two more class attributes.
    `higher_is_better` defaults to `True`. `base_name` is the prefix of the default name
    and defaults to the name of the class in snake case.

    Args:
        k: positive int. The cutoff: only items at the first `k` ranks count. Defaults
            to `None`: all ranks count.
        shuffle_ties: the order of tied items. `True`: a random order, which depends on
            `seed`. `False`: the order in the list. `"average"`: the exact mean over all
            orders of tied items. `"worst"` and `"best"`: by label, the lowest or the
            highest label first. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. The order is
            a function of the seed, the number of the list since the last reset, and the
            item. Defaults to `None`: the seed is derived from the state of Python's
            generator at construction, which `keras.utils.set_random_seed` sets.
        empty_value: float. The value of a list that has items, but no relevant ones.
            Defaults to 0.0. `None` leaves it out of the mean.
        empty_weight: the weight of a list without relevant items in the mean.
            `"average"`: the average weight of the lists with relevant items. `"own"`:
            the mean weight of the items of the list. Defaults to `"average"`.
        list_weight: the weight of a list in the mean, for weights w and relevance g of
            its items. `"mean"`: `sum(w * g) / sum(g)`. `"sum"`: `sum(w * g)`, which is
            0 for a list without relevant items. `"one"`: 1, or the weight that
            `sample_weight` has for the whole list. `empty_weight` applies only to
            `"mean"`. See docs/clicks.md. Defaults to `"mean"`.
        relevance_threshold: float. Items with this label or a higher one are relevant.
            Defaults to 1.0. `None`: items with any label above 0 are relevant.
        sparse_labels: bool. If `True`, `y_true` holds the ids of the relevant items, of
            shape `(batch,)` or `(batch, targets)` padded with -1, or a dict of `"ids"`
            and their graded `"labels"`, of this shape. `y_pred` then holds the
            scores of a whole catalog, of shape `(batch, items)`. An id that is not in
            the catalog is an error in eager code, and counts as not retrieved in
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

    # Whether labels are compared with each other, so that rounding may create ties.
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
        list_weight: str = "mean",
        relevance_threshold: float | None = 1.0,
        sparse_labels: bool = False,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        # If `dtype` is `None`, Keras would use its default precision.
        super().__init__(
            check_k(k),
            shuffle_ties,
            seed,
            name=name,
            dtype="float32" if dtype is None else dtype,
        )
        self._compute_dtype = check_dtype(self.dtype)
        self.empty_weight = check_choice("empty_weight", empty_weight, EMPTY_WEIGHTS)
        self.list_weight = check_choice("list_weight", list_weight, LIST_WEIGHTS)
        if self._leaves_out_empty:
            check_no_empty_value(empty_value, empty_weight)
        self.empty_value = check_number("empty_value", empty_value)
        self.relevance_threshold = check_number(
            "relevance_threshold", relevance_threshold
        )
        check = check_flag if self.takes_sparse_labels else check_not_sparse
        self.sparse_labels = check("sparse_labels", sparse_labels)
        self._sums = [] if self._is_member else create_list_sums(self)
        # The names are stored here, as torch.compile can't trace `inspect`.
        names = inspect.signature(type(self)).parameters
        self._argument_names = tuple(
            name for name in names if name not in ("shuffle_ties", "seed", "name")
        )

    def relevance(self, lists: Lists) -> Tensor:
        """Returns the relevance of each item, 0 for irrelevant items.

        Args:
            lists: the labels, scores, weights and mask of the items.

        Returns:
            A tensor of shape `(batch, list_size)`. By default, the relevance is 1 for
            labels of at least `relevance_threshold`, else 0.
        """
        return JudgedLists(lists, self._relevance).relevance

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        """Computes the value of each list.

        This is the only method that a new metric must implement.

        Args:
            lists: the labels, scores, weights, mask and relevance of the items.
            ranking: the order of each list by its scores, cut at `k`.

        Returns:
            A tensor of shape `(batch,)`: one value per list. The value of a list
            without relevant items is not used.
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
                whose label is below 0 or NaN, or whose mask is False, is padding. With
                `sparse_labels=True`, `y_true` holds the ids of relevant items. It may
                also be ranked lists, which replace all arguments. They are returned by
                `keras_rank.functional.rank` or `keras_rank.catalogue.rank`, called with
                the same `shuffle_ties`.
            y_pred: scores of the same shape, or `(batch, list_size, 1)`. An item whose
                score is `-inf` or NaN was not retrieved: its label counts, but it has
                no rank. Scores may have a mask that layers have passed on. A position
                where that mask is False is padding.
            sample_weight: `None`, a number, or weights of shape `(batch,)`,
                `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single
                list. An item whose weight is not above 0 is padding.

        Raises:
            ValueError: if shapes or dtypes don't match, or ranked lists have another
                `shuffle_ties` or a smaller `k`. The state is unchanged in this case.
        """
        if self._is_member or self._has_group_copy:
            self._start_updates()
        inputs = y_true, y_pred, sample_weight
        assign(update.compute_updates([self], self._sums, *inputs))

    def result(self) -> Tensor:
        """Returns the mean over all lists since the last reset, 0 if there are none."""
        return self._compute_statistic("result", state.mean)

    def standard_error(self) -> Tensor:
        """Returns the standard error of the result over samples of lists.

        It is computed by the delta method for a weighted mean. About 95% of the
        intervals of 1.96 standard errors on each side of the result contain the mean
        over the population of lists. The standard error treats lists as independent and
        does not include the variance of training.

        Returns:
            A scalar tensor. It is NaN if fewer than two lists count, or if squares of
            weights, or of weights times values, are out of the range of float32.
        """
        return self._compute_statistic("standard_error", state.standard_error)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dtype": self.dtype,
            "empty_value": self.empty_value,
            "empty_weight": self.empty_weight,
            "list_weight": self.list_weight,
            "relevance_threshold": self.relevance_threshold,
            "sparse_labels": self.sparse_labels,
        }

    def _compute_statistic(
        self, method: str, statistic: Callable[..., Tensor]
    ) -> Tensor:
        self._check_has_sums(method, reads=True)
        (value,) = update.compute_results(statistic, [self], read_state(self._sums))
        return value

    @property
    def _weighs_empty_lists(self) -> bool:
        """Whether lists without relevant items count with their own weights."""
        has_own_weight = self.empty_weight == "own" or self.list_weight != "mean"
        return has_own_weight and self.empty_value is not None

    @property
    def _relevance(self) -> Relevance:
        """The function of labels that defines the default `relevance`."""
        return from_threshold(self.relevance_threshold)

    @property
    def _has_custom_relevance(self) -> bool:
        """Whether a subclass overrides `relevance`."""
        return type(self).relevance is not RankingMetric.relevance

    def _get_relevance(self, lists: Lists) -> Relevance | Tensor:
        return self.relevance(lists) if self._has_custom_relevance else self._relevance

    def _has_equal_relevance_from(self, label: float) -> bool:
        """Returns whether every label of at least `label` has the relevance 1."""
        threshold = self.relevance_threshold
        # A user's formula may read the labels themselves.
        module = type(self).compute.__module__ or ""
        is_ours = module.startswith("keras_rank.")
        is_binary = self._relevance.is_binary and not self._has_custom_relevance
        if self._is_graded or self._compares_labels or not (is_ours and is_binary):
            return False
        return label >= (SMALLEST_LABEL if threshold is None else threshold)

    @property
    def _arguments(self) -> tuple[Any, ...]:
        """The class and its arguments, which determine the values of lists."""
        names = self._argument_names
        return type(self), *[getattr(self, name, None) for name in names]


class ExposureMetric(ScoreMetric):
    """Base class of exposure metrics, which depend on the recommended items only.

    The recommended items of a list are its top k, whether they are relevant or not. All
    exposure metrics accept the arguments of this class. Their own documentation covers
    only the arguments that differ. The state consists of sums, such as the number of
    lists that recommend each item, so the result does not depend on batches or devices.

    To add a metric, implement its formula in the static method `compute`, as in the
    example below. The method returns the result. Its argument `counts` is an int32
    tensor of shape `(items,)`: the number of lists that have each item in their top k.
    Use only `keras.ops`.

    Args:
        k: positive int. The number of recommended items of each list.
        items: positive int. The number of catalog items. Defaults to `None`: the number
            of candidates, which only `keras_rank.catalogue` knows.
        shuffle_ties: the order of tied items. `True`: a random order, which depends on
            `seed`. `False`: the order in the list. Defaults to `True`.
        seed: int or `keras.random.SeedGenerator`. The seed of the shuffle. Defaults to
            `None`, which has the same meaning as in `keras_rank.metrics.RankingMetric`.
        sparse_labels: bool. Whether `y_true` holds ids of relevant items rather than a
            label for each item. Defaults to `False`.
        name: str. Defaults to the name of the metric and its cutoff: `coverage_at_10`.

    Raises:
        ValueError: if an argument does not have the documented type or range.

    Example:

    >>> class LargestCount(keras_rank.metrics.ExposureMetric):
    ...     @staticmethod
    ...     def compute(counts):
    ...         return keras.ops.max(counts)
    >>> metric = LargestCount(k=1, items=4)
    >>> metric.update_state([[0], [2], [0]])  # recommended ids
    >>> int(metric.result())
    2
    """

    k: int

    _check_ties = staticmethod(check_ties_broken)

    # The error message for a catalog of another size, with two slots for the sizes.
    _size_error = "`items` should be the number of candidates, {}. Received: items={}"

    # The number of values that are gathered for each recommended item.
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
        self._sums = [] if self._is_member else self._create_sums()

    # The formula. It returns the result from the sums and the values of the items.
    compute: ClassVar[Callable[..., Tensor]]

    @backend.without_autograph
    def update_state(
        self, y_true: Any, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Adds the recommended items of a batch of lists.

        Args:
            y_true: labels of shape `(batch, items)`, or ids of relevant items with
                `sparse_labels=True`, as for other metrics. An item whose label is below
                0 or NaN is not in the list. All other labels have the same effect.
                `y_true` may also hold recommended ids, which replace all arguments, as
                returned by `keras_rank.catalogue.top_k`. Their shape is `(batch, k)` or
                wider, with the best item first and padded with -1. An id that occurs
                twice in a list counts once.
            y_pred: scores of shape `(batch, items)`. An item whose score is `-inf` or
                NaN is not recommended.
            sample_weight: as for other metrics. A list whose weight is not above 0 is
                left out. All other lists have the same weight.

        Raises:
            ValueError: if shapes or dtypes don't match. The state is unchanged in this
                case. In a graph with unknown sizes, TensorFlow raises its own error.
        """
        if self._is_member or self._has_group_copy:
            self._start_updates()
        inputs = y_true, y_pred, sample_weight
        assign(recommended_items.compute_updates([self], [self._sums], inputs))

    def result(self) -> Tensor:
        """Returns the result over all lists since the last reset, or 0 for no lists."""
        self._check_has_sums("result", reads=True)
        return self._compute_result(self._values())

    def sum_recommended(self, ids: Tensor, items: int) -> list[Tensor]:
        """Computes the sums for recommended ids and a catalog of `items` items."""
        if self.items not in (None, items):
            received = self._size_error.format(items, self.items)
            raise ValueError(f"{received}, of {self.name!r}")
        sums: list[Tensor] = [
            ops.zeros(*x) for x in self._variable_specs(items).values()
        ]
        size = max(1, MAX_GATHERED_NUMBERS // (self.k * self._numbers_per_item))
        for start in range(0, len(ids), size):
            sums = self._add(
                sums,
                recommended_items.RecommendedItems(ids[start : start + size], items),
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
        # int32 counts are exact on every device for up to 2**31 lists.
        return {"counts": ((items,), "int32")}

    def _create_sums(self) -> list[SumVariable]:
        """Creates the variables: the sums and the number of lists."""
        specs = self._variable_specs(self.items or 0) | {"lists_seen": ((), "int32")}
        return [SumVariable(self, *spec, name) for name, spec in specs.items()]

    def _values(self) -> list[Tensor]:
        return [variable.value for variable in self._sums[:-1]]

    def _item_values(self) -> list[Tensor]:
        """Returns the values of items that `compute` takes in addition to the sums."""
        return []

    def _add(
        self, sums: Sequence[Tensor], lists: recommended_items.RecommendedItems
    ) -> list[Tensor]:
        """Returns the sums with the recommended items of more lists added."""
        return [sums[0] + lists.counts(self.k)]

    def _compute_result(self, sums: Sequence[Tensor]) -> Tensor:
        """Computes the result from the sums."""
        numbers = *sums, *self._item_values()
        return backend.run_program(_call_compute, *numbers, compute=type(self).compute)


def _call_compute(*numbers: Tensor, compute: Callable[..., Tensor]) -> Tensor:
    """Calls `compute`.

    `compute` is a static argument of the program, so `backend.run_program` recognizes a
    user's function and does not compile it.
    """
    return compute(*numbers)


def _require_get_config(metric: ScoreMetric) -> None:
    """Raises `NotImplementedError` if the inherited config lacks an argument's value.

    Without the value, a copied or loaded metric would have the default of the argument
    that a user's subclass has added.
    """
    metric_class = type(metric)
    owner = next(base for base in metric_class.__mro__ if "get_config" in vars(base))
    if metric_class is owner or not owner.__module__.startswith("keras_rank."):
        return
    saved = inspect.signature(owner).parameters
    for name, parameter in inspect.signature(metric_class).parameters.items():
        value = getattr(metric, name, parameter.default)
        if name not in saved and _as_text(value) != _as_text(parameter.default):
            raise NotImplementedError(
                f"`{metric_class.__name__}` should have a method `get_config` that "
                "returns all arguments: "
                f"`{{**super().get_config(), {name!r}: self.{name}}}`. "
                f"Received: {name}={_as_text(value)}, which would be lost"
            )


def _as_text(value: Any) -> str:
    """Returns an argument as text.

    A function is shown by its name, and an array by a few numbers or its shape.
    """
    if callable(value):
        return getattr(value, "__name__", None) or repr(value)
    if getattr(value, "ndim", 1) > 1:
        return f"array of shape {value.shape}"
    return reprlib.repr(value.tolist() if hasattr(value, "tolist") else value)
