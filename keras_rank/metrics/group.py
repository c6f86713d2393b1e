"""Groups of metrics that share the ranking of each batch, and their sums by segment."""

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
from keras_rank.metrics.registry import Member, create_metric, parse_metric
from keras_rank.metrics.update import add_columns
from keras_rank.metrics.variables import (
    State,
    SumVariable,
    assign,
    create_list_sums,
    name_with_path,
    read_state,
    set_paths,
    zero_state,
)

# The name of the standard error of a result.
_ERROR = "{}_stderr"
# The sums of each exposure metric, by the name of the metric.
ExposureSums = Mapping[str, Sequence[Tensor]]


@keras.saving.register_keras_serializable(package="keras_rank")
class RankingMetrics(keras.metrics.Metric):
    """Computes several metrics at little more than the cost of one metric.

    Each batch is checked once. It is also ranked once for all members with the same tie
    rule, up to their largest cutoff. Parts that several formulas have in common are
    computed once. Each member has the same value as the metric outside a group.

    `result()` returns a dict. The values appear in the logs of `fit` and `evaluate`
    under the names of the members: `ndcg_at_10`, `val_ndcg_at_10`. A metric given as a
    string has that string as its name, converted to an identifier:
    `rbp_persistence_0_9_at_10`. The group has the name and the direction of its first
    member, so `EarlyStopping`, `ModelCheckpoint` and `ReduceLROnPlateau` can monitor
    that member in their automatic mode. To monitor another member, set their
    `mode="max"` (`"min"` for `arp` and `fall_out`).

    Members without a `seed` share one seed, so they also share the order of ties. The
    group holds the sums of all members. It copies `metrics` that are instances, and the
    copies start without sums.

    Args:
        metrics: a ranking metric or a list of ranking metrics. Each metric is an
            instance, its config, or a string. A string consists of a name, optional
            arguments and an optional cutoff, such as `"mrr"`, `"ndcg@10"`, `"map_at_5"`
            or `"rbp(persistence=0.9)@10"`. Exposure metrics, such as
            `keras_rank.metrics.Coverage`, are also supported. Names must be distinct.
        prefix: str. A prefix for the names of the results. Keras merges the dicts of
            all outputs of a model, so if two outputs have the same metrics, give each
            group its own prefix. Defaults to `""`.
        standard_errors: bool. Whether the results include the standard error of each
            member, directly after its value: `ndcg_at_10_stderr`. Of the exposure
            metrics, only `IntraListDiversity` has a standard error. Defaults to
            `False`.
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
        metrics_list = as_list(metrics)
        members = [_create_member(metric) for metric in metrics_list]
        if not isinstance(prefix, str):
            raise ValueError(
                f"`prefix` should be a string. Received: prefix={prefix!r}"
            )
        has_errors = check_flag("standard_errors", standard_errors)
        _require_distinct_names(members, has_errors)
        if has_errors and not any(map(_has_standard_error, members)):
            raise ValueError(
                "`standard_errors` should be False if all metrics are exposure "
                "metrics without standard errors. Received: standard_errors=True with "
                f"{members[0].name!r}"
            )
        super().__init__(name=name or prefix + members[0].name)
        self.prefix = prefix
        self.standard_errors = has_errors
        self.members = members
        list_metrics, exposure_metrics = split_by_type(members)
        self._list_sums = (
            create_list_sums(self, len(list_metrics)) if list_metrics else []
        )
        self._exposure_sums = {x.name: x._create_sums() for x in exposure_metrics}
        set_paths(self, {})
        _share_default_seed(members)
        for metric in metrics_list:
            if isinstance(metric, Member):
                metric._has_group_copy = True

    def __repr__(self) -> str:
        members = ", ".join(member._format_call() for member in self.members)
        return f"<{type(self).__name__}([{members}]) name={self.name}>"

    @property
    def _direction(self) -> str:
        """The direction that Keras's callbacks read: the one of the first member."""
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
        inputs = y_true, y_pred, sample_weight
        list_metrics, exposure_metrics = split_by_type(self.members)
        updates = []
        if list_metrics:
            updates += update.compute_updates(list_metrics, self._list_sums, *inputs)
        if exposure_metrics:
            # The update of list metrics has already warned about this batch.
            sums = [self._exposure_sums[member.name] for member in exposure_metrics]
            updates += recommended_items.compute_updates(
                exposure_metrics, sums, inputs, should_warn=not list_metrics
            )
        assign(updates)

    def result(self) -> dict[str, Tensor]:
        """Returns a dict from the names of the members to their results, in order."""
        return self._compute_results(*self._values())

    def standard_error(self) -> dict[str, Tensor]:
        """Returns a dict from the names of the members to their standard errors.

        See `keras_rank.metrics.RankingMetric.standard_error` for their definition. Of
        the exposure metrics, only `IntraListDiversity` has a standard error.
        """
        return self._compute_errors(*self._values())

    def _values(self) -> tuple[State | None, ExposureSums]:
        """Returns the sums of the list metrics and the sums of the exposure metrics."""
        list_state = read_state(self._list_sums) if self._list_sums else None
        exposure_sums = {
            name: [variable.value for variable in sums[:-1]]
            for name, sums in self._exposure_sums.items()
        }
        return list_state, exposure_sums

    def _compute_results(
        self, list_state: State | None, exposure_sums: ExposureSums
    ) -> dict[str, Tensor]:
        """Computes the results from the sums over lists."""
        values = self._compute_list_statistics(state.mean, list_state)
        for member in split_by_type(self.members)[1]:
            value = member._compute_result(exposure_sums[member.name])
            values[self.prefix + member.name] = value
        if self.standard_errors:
            errors = self._compute_errors(list_state, exposure_sums)
            values |= {_ERROR.format(name): error for name, error in errors.items()}
        return {name: values[name] for name in self._result_names()}

    def _compute_errors(
        self, list_state: State | None, exposure_sums: ExposureSums
    ) -> dict[str, Tensor]:
        """Computes the standard errors from the sums over lists."""
        errors = self._compute_list_statistics(state.standard_error, list_state)
        for member in split_by_type(self.members)[1]:
            if isinstance(member, IntraListDiversity):
                error = member._compute_error(exposure_sums[member.name])
                errors[self.prefix + member.name] = error
        members = filter(_has_standard_error, self.members)
        return {name: errors[name] for name in (self.prefix + x.name for x in members)}

    def _result_names(self) -> list[str]:
        """Returns the names of the results in order, including standard errors."""
        names = []
        for member in self.members:
            names.append(self.prefix + member.name)
            if self.standard_errors and _has_standard_error(member):
                names.append(_ERROR.format(names[-1]))
        return names

    def _compute_list_statistics(
        self, statistic: Callable[..., Tensor], sums: State | None
    ) -> dict[str, Tensor]:
        """Returns the mean or the standard error of each list metric, by its name."""
        if sums is None:
            return {}
        members, _ = split_by_type(self.members)
        names = (self.prefix + member.name for member in members)
        return dict(
            zip(names, update.compute_results(statistic, members, sums), strict=True)
        )

    @property
    def _members_with_paths(self) -> list[tuple[ExposureMetric, str]]:
        """The exposure metrics and their names. Each has variables at its own path."""
        return [(x, self.prefix + x.name) for x in split_by_type(self.members)[1]]

    def _find_sums(self, member: Member) -> list[tuple[SumVariable, Any]]:
        """Returns the variables with the sums of a member, and its index in each."""
        list_metrics, _ = split_by_type(self.members)
        if isinstance(member, ExposureMetric):
            return [(x, ...) for x in self._exposure_sums[member.name]]
        return [(x, (..., list_metrics.index(member))) for x in self._list_sums]

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

    Args:
        metrics: a group, which is returned unchanged, or metrics. Metrics are copied.
            The copies have the seeds of the metrics.
        as_written: whether the result of a string has that string as its name. If
            `False`, it has the default name, which is an identifier for Keras's logs.
    """
    if isinstance(metrics, RankingMetrics):
        return metrics
    return RankingMetrics(
        [_create_member(metric, as_written) for metric in as_list(metrics)]
    )


def split_by_type(
    members: Sequence[Member],
) -> tuple[list[RankingMetric], list[ExposureMetric]]:
    """Returns the list metrics and the exposure metrics."""
    return (
        [member for member in members if isinstance(member, RankingMetric)],
        [member for member in members if isinstance(member, ExposureMetric)],
    )


def as_list(metrics: Any) -> list[Any]:
    """Returns metrics as a list. A single metric becomes a list of one metric."""
    if isinstance(metrics, str | Member):
        return [metrics]
    if isinstance(metrics, Sequence) and metrics:
        return list(metrics)
    raise ValueError(
        "`metrics` should be a list of one or more ranking metrics. "
        f"Received: metrics={metrics!r}"
    )


def _create_member(metric: Any, as_written: bool = False) -> Member:
    """Returns a new member for an instance, a config or a string."""
    if isinstance(metric, str):
        name = metric if as_written else None
        return create_metric(metric, parse_metric(metric), name)
    member = metric
    if isinstance(metric, dict):
        member = keras.saving.deserialize_keras_object(metric)
    if isinstance(member, Member):
        return member._copy_without_state()
    raise ValueError(
        "`metrics` should hold ranking metrics: instances of "
        "`keras_rank.metrics.RankingMetric`, their configs, or strings such as "
        f'"ndcg@10". Received: {metric!r}'
    )


def _require_distinct_names(members: Sequence[Member], has_errors: bool) -> None:
    """Raises `ValueError` if two results have one name."""
    by_name: dict[str, Member] = {}
    for member in members:
        if member.name in by_name:
            raise ValueError(
                "`metrics` should have distinct names, as these identify the results: "
                "give one of them another `name`. Received twice: "
                f"{member.name!r}, of {by_name[member.name]._format_call()} and "
                f"{member._format_call()}"
            )
        by_name[member.name] = member
    for name in (x.name for x in members if has_errors and _has_standard_error(x)):
        if _ERROR.format(name) in by_name:
            raise ValueError(
                "With `standard_errors=True`, `metrics` should not have the name of "
                "another one's standard error: give one of them another `name`. "
                f"Received: {_ERROR.format(name)!r} in addition to {name!r}"
            )


def _has_standard_error(metric: Member) -> bool:
    """Returns whether a metric has a standard error."""
    return isinstance(metric, RankingMetric | IntraListDiversity)


def _share_default_seed(members: Sequence[Member]) -> None:
    """Sets one seed for all members that were created without a seed."""
    seedless = [
        member
        for member in members
        if member._seed_is_default and member.shuffle_ties is True
    ]
    for member in seedless:
        member.seed = seedless[0].seed


class SegmentedSums:
    """The sums of metrics over all lists and over the lists of each segment.

    The values of a list are computed once. They are added to the overall sums and to
    the sums of its segment.
    """

    def __init__(
        self,
        group: RankingMetrics,
        names: Mapping[Any, str] | None = None,
        segments: Array | Sequence[int] = (),
    ) -> None:
        """Creates the sums over no lists.

        Args:
            group: the metrics.
            names: the names of the segments by their labels. Defaults to `None`: there
                are no segments.
            segments: the index of the segment of each list.
        """
        self._group, self._segments = group, np.asarray(segments, int)
        names = names or {}
        self._suffixes = ["", *(f"_{name}" for name in names.values())]
        results = group._result_names() if names else []
        keys = [key + suffix for key in results for suffix in self._suffixes]
        duplicates = [key for key in keys if keys.count(key) > 1]
        if duplicates:
            labels = [
                label
                for label, suffix in zip(names, self._suffixes[1:], strict=True)
                if duplicates[0] in (key + suffix for key in results)
            ]
            raise ValueError(
                "`by` should be labels that give each result a unique name, in "
                "which all but ASCII letters, digits and underscores are underscores. "
                f"Received: labels that give {duplicates[0]!r} twice: {labels}"
            )
        members = len(split_by_type(group.members)[0])
        self._states = [zero_state(members) for _ in self._suffixes]
        self._exposure_sums: list[dict[str, list[Tensor]]] = [
            {} for _ in self._suffixes
        ]

    @property
    def overall_state(self) -> State:
        """The sums over all lists."""
        return self._states[0]

    def add(self, indices: Sequence[int], columns: Tensor, first: int = 0) -> None:
        """Adds the columns of lists to the sums of some metrics.

        Args:
            indices: the indices of the metrics.
            columns: the columns of consecutive lists: see `keras_rank.state`.
            first: the index of the first of these lists.
        """
        for index, part in self._split_by_segment(columns, 0.0, first):
            state = self._states[index]
            new_state = backend.run_program(add_columns, part, state.select(indices))
            self._states[index] = state.replace_metrics(indices, new_state)

    def sum_recommended(self, metric: ExposureMetric, ids: Tensor, items: int) -> None:
        """Computes the sums of an exposure metric from recommended ids.

        Args:
            metric: the metric.
            ids: int32 tensor of shape `(lists, k)`. The recommended ids of all lists.
            items: the number of catalog items.
        """
        for index, part in self._split_by_segment(ops.transpose(ids), -1):
            sums = metric.sum_recommended(ops.transpose(part), items)
            self._exposure_sums[index][metric.name] = sums

    def results(self) -> dict[str, float]:
        """Returns a dict with the results over all lists and over each segment.

        The key of a segment's result ends in the name of the segment.
        """
        results = {}
        for index, suffix in enumerate(self._suffixes):
            sums = self._states[index], self._exposure_sums[index]
            for key, value in self._group._compute_results(*sums).items():
                results[key + suffix] = float(value)
        return results

    def _split_by_segment(
        self, values: Tensor, fill: float, first: int = 0
    ) -> Iterator[tuple[int, Tensor]]:
        """Yields the values of all lists, then those of each segment that occurs.

        Values of lists in other segments are replaced by `fill`. Each part comes with
        its index in the sums: 0 for all lists.
        """
        yield 0, values
        segments = self._segments[first : first + int(values.shape[-1])]
        for segment in np.unique(segments).tolist():
            is_in_segment = ops.convert_to_tensor(segments == segment)
            yield 1 + segment, backend.where(is_in_segment, values, fill)
