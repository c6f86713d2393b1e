"""Many metrics as one that orders each batch once, and their sums by segment."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank import state
from keras_rank.arguments import check_flag
from keras_rank.backends import Array, Tensor, backend
from keras_rank.metrics import recommended_items, update
from keras_rank.metrics.base import ExposureMetric, RankingMetric
from keras_rank.metrics.diversity import IntraListDiversity
from keras_rank.metrics.registry import Member, metric_of, parts_of
from keras_rank.metrics.update import with_columns
from keras_rank.metrics.variables import (
    State,
    SumVariable,
    assign,
    list_sums,
    name_with_path,
    set_paths,
    state_of,
    zero_state,
)

# The name of the standard error of a result.
_ERROR = "{}_stderr"
# The sums of each metric of exposure.
ExposureSums = Mapping[str, Sequence[Tensor]]


@keras.saving.register_keras_serializable(package="keras_rank")
class RankingMetrics(keras.metrics.Metric):
    """Computes many metrics at little more than the cost of one.

    Each batch is checked once, and ordered once for all members with the same tie rule,
    up to their largest cutoff. Common parts of formulas are computed once. Each member
    has the value that it would have alone.

    The results are a dict, and appear in the logs of `fit` and `evaluate` under the
    names of the members: `ndcg_at_10`, `val_ndcg_at_10`. That of a string is the string
    as an identifier: `rbp_persistence_0_9_at_10`. The group has the name and the
    direction of its first member, so `EarlyStopping`, `ModelCheckpoint` and
    `ReduceLROnPlateau` can monitor that one in their automatic mode. For any other, set
    their `mode="max"` (`"min"` for `arp` and `fall_out`).

    Members without a `seed` share one, so that they share the order too. The group has
    the sums of all members: `metrics` that are instances are copied without theirs.

    Args:
        metrics: list of ranking metrics: instances, their configs, or strings of a
            name and a cutoff, such as `"ndcg@10"`, `"map_at_5"` or `"mrr"`, with
            arguments between them, if any: `"rbp(persistence=0.9)@10"`. Or a single
            one. Metrics of exposure, such as `keras_rank.metrics.Coverage`, may be
            among them. Names must be distinct.
        prefix: str. A prefix for the names of the results. Keras merges the dicts of
            all outputs of a model, so if two outputs have the same metrics, give each
            group its own prefix. Defaults to `""`.
        standard_errors: bool. Whether the results include the standard error of each
            member, right after its value: `ndcg_at_10_stderr`. Metrics of exposure have
            none, but for `IntraListDiversity`. Defaults to `False`.
        name: str. Defaults to the name of the first result.

    Raises:
        ValueError: if there are no metrics, one is not a ranking metric, or two have
            the same name.

    Example:

    >>> metrics = keras_rank.metrics.RankingMetrics(["ndcg@2", "mrr"])
    >>> metrics.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> {name: f"{float(value):.4f}" for name, value in metrics.result().items()}
    {'ndcg_at_2': '0.8262', 'mrr': '1.0000'}
    """

    name = name_with_path

    def __init__(
        self,
        metrics: Member | Sequence[Member | str | dict[str, Any]],
        *,
        prefix: str = "",
        standard_errors: bool = False,
        name: str | None = None,
    ) -> None:
        given = listed(metrics)
        members = [_member(metric) for metric in given]
        if not isinstance(prefix, str):
            raise ValueError(
                f"`prefix` should be a string. Received: prefix={prefix!r}"
            )
        has_errors = check_flag("standard_errors", standard_errors)
        _require_names_of_their_own(members, has_errors)
        if has_errors and not any(map(_has_error, members)):
            raise ValueError(
                "`standard_errors` should be False where all metrics are those of "
                "exposure, which have none. Received: standard_errors=True with "
                f"{members[0].name!r}"
            )
        super().__init__(name=name or prefix + members[0].name)
        self.prefix = prefix
        self.standard_errors = has_errors
        self.members = members
        of_lists, of_exposure = by_kind(members)
        self._list_sums = list_sums(self, len(of_lists)) if of_lists else []
        self._exposure_sums = {x.name: x._new_sums() for x in of_exposure}
        set_paths(self, {})
        _share_default_seed(members)
        for metric in given:
            if isinstance(metric, Member):
                metric._was_given = True

    def __repr__(self) -> str:
        members = ", ".join(member._as_call() for member in self.members)
        return f"<{type(self).__name__}([{members}]) name={self.name}>"

    @property
    def _direction(self) -> str:
        """What Keras's callbacks read in their automatic mode: that of the first."""
        return self.members[0]._direction

    @backend.without_autograph
    def update_state(
        self, y_true: Any, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Adds a batch of lists to all members.

        Args:
            **arguments: as for `keras_rank.metrics.RankingMetric.update_state`: y_true,
                y_pred, sample_weight.

        Raises:
            ValueError: if shapes or dtypes don't match. The state is then unchanged.
        """
        given = y_true, y_pred, sample_weight
        of_lists, of_exposure = by_kind(self.members)
        updates = []
        if of_lists:
            updates += update.updates_of(of_lists, self._list_sums, *given)
        if of_exposure:
            # Metrics of lists have warned about the same batch.
            sums = [self._exposure_sums[member.name] for member in of_exposure]
            updates += recommended_items.updates_of(
                of_exposure, sums, given, warns=not of_lists
            )
        assign(updates)

    def result(self) -> dict[str, Tensor]:
        """Returns a dict from the names of the members to their results, in order."""
        return self._results_of(*self._values())

    def standard_error(self) -> dict[str, Tensor]:
        """Returns a dict from the names of the members to their standard errors.

        See `keras_rank.metrics.RankingMetric.standard_error` for what they mean.
        Metrics of exposure have none, but for `IntraListDiversity`.
        """
        return self._errors_of(*self._values())

    def _values(self) -> tuple[State | None, ExposureSums]:
        """Returns the sums of metrics of lists, and those of metrics of exposure."""
        of_lists = state_of(self._list_sums) if self._list_sums else None
        of_exposure = {
            name: [variable.value for variable in sums[:-1]]
            for name, sums in self._exposure_sums.items()
        }
        return of_lists, of_exposure

    def _results_of(
        self, of_lists: State | None, of_exposure: ExposureSums
    ) -> dict[str, Tensor]:
        """Returns the results, given the sums of all lists."""
        values = self._list_statistics(state.mean, of_lists)
        for member in by_kind(self.members)[1]:
            value = member._result_of(of_exposure[member.name])
            values[self.prefix + member.name] = value
        if self.standard_errors:
            errors = self._errors_of(of_lists, of_exposure)
            values |= {_ERROR.format(name): error for name, error in errors.items()}
        return {name: values[name] for name in self._result_names()}

    def _errors_of(
        self, of_lists: State | None, of_exposure: ExposureSums
    ) -> dict[str, Tensor]:
        """Returns the standard errors, given the sums of all lists."""
        errors = self._list_statistics(state.standard_error, of_lists)
        for member in by_kind(self.members)[1]:
            if isinstance(member, IntraListDiversity):
                error = member._error_of(of_exposure[member.name])
                errors[self.prefix + member.name] = error
        members = filter(_has_error, self.members)
        return {name: errors[name] for name in (self.prefix + x.name for x in members)}

    def _result_names(self) -> list[str]:
        """The names of the results in order, those of standard errors among them."""
        names = []
        for member in self.members:
            names.append(self.prefix + member.name)
            if self.standard_errors and _has_error(member):
                names.append(_ERROR.format(names[-1]))
        return names

    def _list_statistics(
        self, statistic: Callable[..., Tensor], sums: State | None
    ) -> dict[str, Tensor]:
        """Returns the mean of each metric of lists, or its standard error."""
        if sums is None:
            return {}
        members, _ = by_kind(self.members)
        names = (self.prefix + member.name for member in members)
        return dict(zip(names, update.results(statistic, members, sums), strict=True))

    @property
    def _members_with_paths(self) -> list[tuple[ExposureMetric, str]]:
        """The metrics of exposure and their names: these have paths of their own."""
        return [(x, self.prefix + x.name) for x in by_kind(self.members)[1]]

    def _sums_of(self, member: Member) -> list[tuple[SumVariable, Any]]:
        """Returns the variables with the sums of a member, and its indices in them."""
        of_lists, _ = by_kind(self.members)
        if isinstance(member, ExposureMetric):
            return [(x, ...) for x in self._exposure_sums[member.name]]
        return [(x, (..., of_lists.index(member))) for x in self._list_sums]

    def get_config(self) -> dict[str, Any]:
        return {
            "metrics": [
                keras.saving.serialize_keras_object(member) for member in self.members
            ],
            "prefix": self.prefix,
            "standard_errors": self.standard_errors,
            "name": self.name,
        }


def as_group(
    metrics: RankingMetrics | Member | Sequence[Member | str | dict[str, Any]],
    *,
    as_written: bool = True,
) -> RankingMetrics:
    """Returns metrics as a group.

    Members are copies, which keep the seeds of the metrics. The result of a string has
    that string as its name if `as_written`, as people read it, rather than the default
    name, as it goes into Keras's logs.
    """
    if isinstance(metrics, RankingMetrics):
        return metrics
    return RankingMetrics([_member(metric, as_written) for metric in listed(metrics)])


def by_kind(
    members: Sequence[Member],
) -> tuple[list[RankingMetric], list[ExposureMetric]]:
    """Returns the metrics of lists, and those of exposure."""
    return (
        [member for member in members if isinstance(member, RankingMetric)],
        [member for member in members if isinstance(member, ExposureMetric)],
    )


def listed(metrics: Any) -> list[Any]:
    """Returns metrics as a list, also one that is not in a list."""
    if isinstance(metrics, str | Member):
        return [metrics]
    if isinstance(metrics, Sequence) and metrics:
        return list(metrics)
    raise ValueError(
        "`metrics` should be a list of one or more ranking metrics. "
        f"Received: metrics={metrics!r}"
    )


def _member(metric: Any, as_written: bool = False) -> Member:
    """Returns the metric that an instance, a config or a string stands for."""
    if isinstance(metric, str):
        name = metric if as_written else None
        return metric_of(metric, parts_of(metric), name)
    member = metric
    if isinstance(metric, dict):
        member = keras.saving.deserialize_keras_object(metric)
    if isinstance(member, Member):
        return member._without_state()
    raise ValueError(
        "`metrics` should hold ranking metrics: instances of "
        "`keras_rank.metrics.RankingMetric`, their configs, or strings such as "
        f'"ndcg@10". Received: {metric!r}'
    )


def _require_names_of_their_own(members: Sequence[Member], has_errors: bool) -> None:
    by_name: dict[str, Member] = {}
    for member in members:
        if member.name in by_name:
            raise ValueError(
                "`metrics` should have distinct names, as these identify the results: "
                "give one of them another `name`. Received twice: "
                f"{member.name!r}, of {by_name[member.name]._as_call()} and "
                f"{member._as_call()}"
            )
        by_name[member.name] = member
    for name in (each.name for each in members if has_errors and _has_error(each)):
        if _ERROR.format(name) in by_name:
            raise ValueError(
                "With `standard_errors=True`, `metrics` should not have the name of "
                "another one's standard error: give one of them another `name`. "
                f"Received: {_ERROR.format(name)!r} beside {name!r}"
            )


def _has_error(metric: Member) -> bool:
    """Returns whether a metric has a standard error."""
    return isinstance(metric, RankingMetric | IntraListDiversity)


def _share_default_seed(members: Sequence[Member]) -> None:
    """Gives members without a seed the same shuffle."""
    drawn = [
        member
        for member in members
        if member._seed_is_default and member.shuffle_ties is True
    ]
    for member in drawn:
        member.seed = drawn[0].seed


class SegmentedSums:
    """What metrics add up over all lists, and over those of each segment.

    A list is computed once, and added to the sums of all and to those of its segment.
    """

    def __init__(
        self,
        group: RankingMetrics,
        names: Mapping[Any, str] | None = None,
        segment_of: Array | Sequence[int] = (),
    ) -> None:
        """Starts from no lists.

        Args:
            group: the metrics.
            names: the names of the segments, by their labels, if there are segments.
            segment_of: the number of the segment of each list.
        """
        self._group, self._segment_of = group, np.asarray(segment_of, int)
        names = names or {}
        self._suffixes = ["", *(f"_{name}" for name in names.values())]
        results = group._result_names() if names else []
        keys = [key + suffix for key in results for suffix in self._suffixes]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            give_it = [
                label
                for label, suffix in zip(names, self._suffixes[1:], strict=True)
                if twice[0] in (key + suffix for key in results)
            ]
            raise ValueError(
                "`by` should be labels that give each result a name of its own, in "
                "which all but ASCII letters, digits and underscores are underscores. "
                f"Received: labels that give {twice[0]!r} twice: {give_it}"
            )
        members = len(by_kind(group.members)[0])
        self._states = [zero_state(members) for _ in self._suffixes]
        self._of_exposure: list[dict[str, list[Tensor]]] = [{} for _ in self._suffixes]

    @property
    def whole(self) -> State:
        """The sums of all lists."""
        return self._states[0]

    def add(self, indices: Sequence[int], columns: Tensor, first: int = 0) -> None:
        """Adds the columns of lists for some metrics, from the list `first` on."""
        for number, of_segment in self._in_segments(columns, 0.0, first):
            state = self._states[number]
            new = backend.enter(with_columns, of_segment, state.of(indices))
            self._states[number] = state.replaced(indices, new)

    def add_shown(self, metric: ExposureMetric, shown: Tensor, items: int) -> None:
        """Adds the ids that all lists show, in a catalogue of `items` items."""
        for number, ids in self._in_segments(ops.transpose(shown), -1):
            sums = metric.of_shown(ops.transpose(ids), items)
            self._of_exposure[number][metric.name] = sums

    def results(self) -> dict[str, float]:
        """Returns the results of all lists, and those of each segment, by their names.

        The name of a segment follows that of a result.
        """
        named = {}
        for number, suffix in enumerate(self._suffixes):
            given = self._states[number], self._of_exposure[number]
            for key, value in self._group._results_of(*given).items():
                named[key + suffix] = float(value)
        return named

    def _in_segments(
        self, values: Tensor, fill: float, first: int = 0
    ) -> Iterator[tuple[int, Tensor]]:
        """Values of lists, of all and of each segment that has any of them."""
        yield 0, values
        segments = self._segment_of[first : first + int(values.shape[-1])]
        for segment in np.unique(segments).tolist():
            is_in = ops.convert_to_tensor(segments == segment)
            yield 1 + segment, backend.where(is_in, values, fill)
