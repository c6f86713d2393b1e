"""Many metrics as one that orders each batch once."""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_rank import state
from keras_rank.arguments import check_flag, names_arguments
from keras_rank.backends import Tensor
from keras_rank.metrics import exposure, update
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.exposure import ExposureMetric
from keras_rank.metrics.names import Member, metric_of, parts_of
from keras_rank.metrics.variables import (
    Place,
    PlacedMetric,
    State,
    Sums,
    assign,
    for_a_group,
    place,
)

# The name of the standard error of a result.
_ERROR = "{}_stderr"
# The sums of metrics of exposure.
SumsByName = dict[str, list[Tensor]]


@keras.saving.register_keras_serializable(package="keras_rank")
class RankingMetrics(PlacedMetric):
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

    Members without a `seed` share one, so that they share the order too.

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

    @names_arguments
    def __init__(
        self,
        metrics: Member | Sequence[Member | str | dict[str, Any]],
        *,
        prefix: str = "",
        standard_errors: bool = False,
        name: str | None = None,
    ) -> None:
        members = [_member(metric) for metric in listed(metrics)]
        if not isinstance(prefix, str):
            raise ValueError(
                f"`prefix` should be a string. Received: prefix={prefix!r}"
            )
        has_errors = check_flag("standard_errors", standard_errors)
        _require_names_of_their_own(members, has_errors)
        if has_errors and not any(member._has_error for member in members):
            raise ValueError(
                "`standard_errors` should be False where all metrics are those of "
                "exposure, which have none. Received: standard_errors=True with "
                f"{members[0].name!r}"
            )
        super().__init__(name=name or prefix + members[0].name)
        self.prefix = prefix
        self.standard_errors = has_errors
        self.members = members
        place(self._places(), {})
        list_metrics, exposure_metrics = by_kind(members)
        self._sums = _joined(self._place, list_metrics)
        for member in exposure_metrics:
            member._in_group = True
        _share_default_seed(members)

    def __repr__(self) -> str:
        members = ", ".join(member._as_call() for member in self.members)
        return f"<{type(self).__name__}([{members}]) name={self.name}>"

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
            **arguments: as for `keras_rank.metrics.RankingMetric.update_state`: y_true,
                y_pred, sample_weight.

        Raises:
            ValueError: if shapes or dtypes don't match. The state is then unchanged.
        """
        given = y_true, y_pred, sample_weight
        of_lists, of_exposure = by_kind(self.members)
        updates = update.updates_of(of_lists, *given) if of_lists else []
        # Metrics of lists have warned about the same batch.
        warns = not of_lists
        updates += exposure.updates_of(of_exposure, *given, warns=warns)
        assign(updates)

    def result(self) -> dict[str, Tensor]:
        """Returns a dict from the names of the members to their results, in order."""
        _, of_exposure = by_kind(self.members)
        return self._results_of(
            self._sums.state, {member.name: member._sums for member in of_exposure}
        )

    def standard_error(self) -> dict[str, Tensor]:
        """Returns a dict from the names of the members to their standard errors.

        See `keras_rank.metrics.RankingMetric.standard_error` for what they mean.
        Metrics of exposure have none, but for `IntraListDiversity`.
        """
        return {
            self.prefix + member.name: member.standard_error()
            for member in self.members
            if member._has_error
        }

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of the sums, and those of the metrics of exposure."""
        sums = self._sums.variables if by_kind(self.members)[0] else []
        return [*sums, *super().variables]

    def _results_of(self, sums: State, of_exposure: SumsByName) -> dict[str, Tensor]:
        """The results, given the sums, and those of each metric of exposure."""
        others = [(x, of_exposure[x.name]) for x in by_kind(self.members)[1]]
        values = self._of_sums(state.mean, sums)
        values |= {x.name: x._of(its) for x, its in others}
        found = {self.prefix + name: value for name, value in values.items()}
        if self.standard_errors:
            errors = self._of_sums(state.standard_error, sums)
            errors |= {x.name: x._error_of(its) for x, its in others if x._has_error}
            for name, error in errors.items():
                found[_ERROR.format(self.prefix + name)] = error
        return {name: found[name] for name in self._result_names()}

    def _result_names(self) -> list[str]:
        """The names of the results in order, those of standard errors among them."""
        names = []
        for member in self.members:
            names.append(self.prefix + member.name)
            if self.standard_errors and member._has_error:
                names.append(_ERROR.format(names[-1]))
        return names

    def _of_sums(
        self, statistic: Callable[..., Tensor], sums: State
    ) -> dict[str, Tensor]:
        """The mean of each member, or its standard error."""
        members, _ = by_kind(self.members)
        names = (member.name for member in members)
        return dict(zip(names, update.results(statistic, members, sums), strict=True))

    def _places(self) -> list[tuple[Place, str]]:
        of_exposure = by_kind(self.members)[1]
        others = [(each._place, self.prefix + each.name) for each in of_exposure]
        return [*super()._places(), *others]

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
    members = [_member(metric, as_written) for metric in listed(metrics)]
    return RankingMetrics([member._copy_for_group() for member in members])


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
    member = metric
    with for_a_group():
        if isinstance(metric, str):
            name = metric if as_written else None
            member = metric_of(metric, parts_of(metric), name)
        if isinstance(metric, dict):
            member = keras.saving.deserialize_keras_object(metric)
    if isinstance(member, Member):
        # A metric is a member of one group: another group gets a copy.
        return member._copy_for_group() if member._in_group else member
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
    for name in (each.name for each in members if has_errors and each._has_error):
        if _ERROR.format(name) in by_name:
            raise ValueError(
                "With `standard_errors=True`, `metrics` should not have the name of "
                "another one's standard error: give one of them another `name`. "
                f"Received: {_ERROR.format(name)!r} beside {name!r}"
            )


def _joined(place: Place, members: Sequence[RankingMetric]) -> Sums:
    """The sums of members, which these have in common from now on."""
    sums = Sums(
        place,
        [
            member._sums.state.one(member._slot) if member._sums.exist else None
            for member in members
        ],
    )
    for slot, member in enumerate(members):
        member._sums, member._in_group, member._slot = sums, True, slot
    return sums


def _share_default_seed(members: Sequence[Member]) -> None:
    """Gives members without a seed the same shuffle."""
    drawn = [
        member
        for member in members
        if member._seed_is_default and member.shuffle_ties is True
    ]
    for member in drawn:
        member.seed = drawn[0].seed
