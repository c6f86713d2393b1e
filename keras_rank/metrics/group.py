"""Many metrics as one, which orders each batch once for all of them."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_rank.arguments import check_flag, names_arguments
from keras_rank.arrays.backends import Tensor
from keras_rank.metrics import base, exposure
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.binary import (
    BPref,
    F1AtK,
    FallOut,
    HitRate,
    MeanAveragePrecision,
    MeanReciprocalRank,
    PrecisionAtK,
    RankBiasedPrecision,
    RecallAtK,
    RPrecision,
)
from keras_rank.metrics.exposure import Coverage, ExposureMetric, Gini
from keras_rank.metrics.graded import DCG, NDCG, ExpectedReciprocalRank
from keras_rank.metrics.ordered import assign
from keras_rank.metrics.pairwise import AverageRelevancePosition, PairwiseAccuracy

# What a group is made of.
Member = RankingMetric | ExposureMetric

# What a string such as "ndcg@10" or "ndcg_at_10" stands for.
_STRING = re.compile(r"(?P<name>\w+?)((@|_at_)(?P<k>[0-9]+))?")
_BY_NAME: dict[str | None, Callable[..., Member]] = {
    metric.base_name: metric
    for metric in (
        NDCG,
        DCG,
        MeanAveragePrecision,
        MeanReciprocalRank,
        PrecisionAtK,
        RecallAtK,
        HitRate,
        F1AtK,
        RPrecision,
        ExpectedReciprocalRank,
        RankBiasedPrecision,
        BPref,
        FallOut,
        AverageRelevancePosition,
        PairwiseAccuracy,
        Coverage,
        Gini,
    )
}


# What the standard error of a result is called.
_ERROR = "{}_stderr"


@keras.saving.register_keras_serializable(package="keras_rank")
class RankingMetrics(keras.metrics.Metric):
    """Computes many metrics at little more than the cost of one.

    Each batch is checked once and ordered once for all members that order ties alike,
    up to their largest cutoff; what several formulas need is computed once. Each
    member has the value that it has alone.

    The results are a dict, and appear in the logs of `fit` and `evaluate` under the
    names of the members: `ndcg_at_10`, `val_ndcg_at_10`. `EarlyStopping`,
    `ModelCheckpoint` and `ReduceLROnPlateau` know in their automatic mode which way is
    better for the first member, whose name and direction the group has; to monitor
    another one, give them `mode="max"` (`"min"` for `arp` and `fall_out`).

    Members whose `seed` was not given share one, so that they share the order too.

    Args:
        metrics: list of ranking metrics: instances, configs of such, or strings of
            the name and the cutoff, such as `"ndcg@10"`, `"map_at_5"` or `"mrr"`.
            Their names must differ. Those of exposure, such as
            `keras_rank.metrics.Coverage`, may be among them.
        prefix: str. Put before the names of the results. Keras merges the dicts of
            all outputs of a model, so that of two outputs with the same metrics only
            the last would be seen: give each group a prefix then. Defaults to `""`.
        standard_errors: bool. Whether the results hold the standard error of each
            member too, right after its value: `ndcg_at_10_stderr`. Not for metrics of
            exposure, of which none is known. Defaults to `False`.
        name: str. Defaults to the name of the first result.

    Raises:
        ValueError: if there are no metrics, one is no ranking metric, or two of them
            have the same name.

    Example:

    >>> metrics = keras_rank.metrics.RankingMetrics(["ndcg@2", "mrr"])
    >>> metrics.update_state([[0, 2, 0, 1]], [[0.3, 0.9, 0.4, 0.1]])
    >>> {name: f"{float(value):.4f}" for name, value in metrics.result().items()}
    {'ndcg_at_2': '0.8262', 'mrr': '1.0000'}
    """

    @names_arguments
    def __init__(
        self,
        metrics: Sequence[Member | str | dict[str, Any]],
        *,
        prefix: str = "",
        standard_errors: bool = False,
        name: str | None = None,
    ) -> None:
        members = [_member(metric) for metric in _members(metrics)]
        if not isinstance(prefix, str):
            raise ValueError(
                f"`prefix` should be a string. Received: prefix={prefix!r}"
            )
        has_errors = check_flag("standard_errors", standard_errors)
        _require_names_of_their_own(members, has_errors)
        _, of_exposure = by_kind(members)
        if has_errors and of_exposure:
            raise ValueError(
                "`standard_errors` should be False with metrics of exposure, of which "
                "none is known. Received: standard_errors=True with "
                f"{of_exposure[0].name!r}"
            )
        super().__init__(name=name or prefix + members[0].name)
        self.prefix = prefix
        self.standard_errors = has_errors
        self.members = members
        _share_drawn_seed(members)

    @property
    def _direction(self) -> str:
        """What Keras's callbacks read in their automatic mode: that of the first."""
        return self.members[0]._direction

    @names_arguments
    def update_state(
        self, y_true: Any, y_pred: Any = None, sample_weight: Any = None
    ) -> None:
        """Adds a batch of lists to all members.

        Args:
            y_true: labels of shape `(list_size,)` or `(batch, list_size)`, lists of
                uneven length, or a dict `{"labels": ..., "mask": ...}`. A position
                whose label is below 0 or NaN, or whose mask is False, is padding. Ids
                of relevant items for members with `sparse_labels=True`. Or ranked
                lists, from `keras_rank.functional.rank` or `keras_rank.catalogue.rank`
                with the same `shuffle_ties`, which replace all arguments.
            y_pred: scores of the same shape, or `(batch, list_size, 1)`. An item
                scored `-inf` or NaN is judged, but not retrieved: it has no rank.
            sample_weight: `None`, a number, or weights of shape `(batch,)`,
                `(batch, 1)` or `(batch, list_size)`; `(list_size,)` for a single
                list. An item whose weight is not above 0 is padding.

        Raises:
            ValueError: if the shapes or dtypes don't fit. The state is left as it
                was.
        """
        given = y_true, y_pred, sample_weight
        of_lists, of_exposure = by_kind(self.members)
        updates = base.updates_of(of_lists, *given) if of_lists else []
        assign([*updates, *exposure.updates_of(of_exposure, *given)])

    def result(self) -> dict[str, Tensor]:
        """Returns the result of each member by its name, in their order."""
        results = {}
        for member in self.members:
            name = self.prefix + member.name
            results[name] = member.result()
            if self.standard_errors:
                results[_ERROR.format(name)] = member.standard_error()
        return results

    def standard_error(self) -> dict[str, Tensor]:
        """Returns the standard error of each result by the name of the result.

        Each is that of the sample of lists: NaN for fewer than two lists that count,
        and where squares are beyond float32.
        """
        return {
            self.prefix + member.name: member.standard_error()
            for member in self.members
        }

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
    metrics: RankingMetrics | Sequence[Member | str | dict[str, Any]],
    *,
    as_written: bool = True,
) -> RankingMetrics:
    """Returns metrics as a group, or the group that they are.

    The metrics keep their seeds: the members, which share one, have their variables.

    Args:
        metrics: the metrics.
        as_written: whether a string names its result, for people to read, and not as
            what goes into the logs of Keras.
    """
    if isinstance(metrics, RankingMetrics):
        return metrics
    members = [_member(metric, as_written) for metric in _members(metrics)]
    return RankingMetrics([member._with_seed(member.seed) for member in members])


def by_kind(
    members: Sequence[Member],
) -> tuple[list[RankingMetric], list[ExposureMetric]]:
    """Returns the metrics of lists, and those of exposure."""
    return (
        [member for member in members if isinstance(member, RankingMetric)],
        [member for member in members if isinstance(member, ExposureMetric)],
    )


def _members(metrics: Any) -> list[Any]:
    if isinstance(metrics, Sequence) and not isinstance(metrics, str) and metrics:
        return list(metrics)
    raise ValueError(
        "`metrics` should be a list of one or more ranking metrics. "
        f"Received: metrics={metrics!r}"
    )


def _member(metric: Any, as_written: bool = False) -> Member:
    """Returns the metric that an instance, a config or a string stands for."""
    member = metric
    if isinstance(metric, str):
        member = _from_string(metric, name=metric if as_written else None)
    if isinstance(metric, dict):
        member = keras.saving.deserialize_keras_object(metric)
    if isinstance(member, Member):
        return member
    raise ValueError(
        "`metrics` should hold ranking metrics: instances of "
        "`keras_rank.metrics.RankingMetric`, their configs, or strings such as "
        f'"ndcg@10". Received: {metric!r}'
    )


def _from_string(string: str, name: str | None) -> Member:
    parts = _STRING.fullmatch(string)
    if parts and parts["name"] in _BY_NAME:
        k = None if parts["k"] is None else int(parts["k"])
        return _BY_NAME[parts["name"]](k=k, name=name)
    raise ValueError(
        "`metrics` given as strings should be a name and an optional cutoff, such as "
        f'"ndcg@10". The names are {sorted(map(str, _BY_NAME))}. '
        f"Received: {string!r}"
    )


def _require_names_of_their_own(members: Sequence[Member], has_errors: bool) -> None:
    by_name: dict[str, Member] = {}
    for member in members:
        if member.name in by_name:
            raise ValueError(
                "`metrics` should have distinct names, which identify their results: "
                "give one of them another `name`. Received twice: "
                f"{member.name!r}, of {_described(by_name[member.name])} and "
                f"{_described(member)}"
            )
        by_name[member.name] = member
    for name in by_name if has_errors else ():
        if _ERROR.format(name) in by_name:
            raise ValueError(
                "`metrics` should have names that are not those of standard errors, "
                "with `standard_errors=True`: give one of them another `name`. "
                f"Received: {_ERROR.format(name)!r} beside {name!r}"
            )


def _described(metric: Member) -> str:
    names = ("k", "shuffle_ties", "seed", "empty_value", "relevance_threshold")
    config = metric.get_config()
    arguments = ", ".join(
        f"{name}={config[name]!r}" for name in names if name in config
    )
    return f"{type(metric).__name__}({arguments})"


def _share_drawn_seed(members: Sequence[Member]) -> None:
    """Lets members whose seed was not given see the same shuffle."""
    drawn = [member for member in members if member._seed_is_drawn]
    for member in drawn:
        member.seed = drawn[0].seed
