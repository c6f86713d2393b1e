"""What trec_eval prints, and no other metric here has: totals, gm_map, iprec.

These are metrics of tables alone, where lists become one number in other ways than by
their mean. What they return for a list is what trec_eval prints for a query.
"""

import re
from collections.abc import Iterable
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import adds_arguments, check_share, check_ties_broken
from keras_rank.arrays.arithmetic import highest, running_total
from keras_rank.backends import Tensor, backend
from keras_rank.metrics.base import RankingArguments, RankingMetric
from keras_rank.metrics.binary import MeanAveragePrecision
from keras_rank.ranking.judged import JudgedLists
from keras_rank.ranking.ranking import Ranking

# What it prints by default, in its order: the metrics that "official" stands for.
OFFICIAL = (
    *("num_q", "num_ret", "num_rel", "num_rel_ret", "map", "gm_map", "Rprec", "bpref"),
    "recip_rank",
    *(f"iprec_at_recall_{tenths / 10:.2f}" for tenths in range(11)),
    *(f"P_{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000)),
)


@keras.saving.register_keras_serializable(package="keras_rank")
class NumRel(RankingMetric):
    """The number of relevant items, retrieved or not."""

    _reduction = "sum"

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        return lists.number_relevant


@keras.saving.register_keras_serializable(package="keras_rank")
class NumRelRet(NumRel):
    """The number of relevant items that were retrieved."""

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        return lists.hits(ranking)


@keras.saving.register_keras_serializable(package="keras_rank")
class NumRet(NumRelRet):
    """The number of items that were retrieved: all are relevant to it."""

    _reads = "item"

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {k: v for k, v in config.items() if k != "relevance_threshold"}


@keras.saving.register_keras_serializable(package="keras_rank")
class NumQ(NumRet):
    """The number of lists: 1 for each."""

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        return ops.ones_like(lists.number_relevant)


@keras.saving.register_keras_serializable(package="keras_rank")
class GeometricMeanAveragePrecision(MeanAveragePrecision):
    """The average precision, of which the geometric mean is taken."""

    _reduction = "geometric mean"


@keras.saving.register_keras_serializable(package="keras_rank")
class IPrec(RankingMetric):
    """The highest precision at any rank by which a share of relevant items is found.

    Args:
        recall: float from 0 to 1. That share.
        version: the version of trec_eval. 10 rounds the number of these items, and 9
            rounds it up, but for rounding errors.
    """

    _check_ties = staticmethod(check_ties_broken)

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        recall: float,
        version: int = 10,
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, **arguments)
        self.recall, self.version = check_share("recall", recall), version

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        # In doubles, which not every backend has.
        exact = np.arange(lists.labels.shape[1] + 1) * self.recall
        needed = np.floor(exact + (0.5 if self.version == 10 else 0.9))
        needed = ops.convert_to_tensor(needed, lists.dtype)
        needed = ops.take(needed, ops.cast(lists.number_relevant, "int32"))
        found = running_total(lists.relevance_by_rank(ranking))
        is_enough = found >= needed[:, None]
        return highest(backend.where(is_enough, found / ranking.ranks, 0.0))

    def get_config(self) -> dict[str, Any]:
        of_its_own = {"recall": self.recall, "version": self.version}
        return {**super().get_config(), **of_its_own}


# By their names in trec_eval and ir_measures. Only those of the latter take a level.
_CLASSES: dict[str, type[RankingMetric]] = {
    "num_q": NumQ,
    "num_ret": NumRet,
    "num_rel": NumRel,
    "num_rel_ret": NumRelRet,
    "gm_map": GeometricMeanAveragePrecision,
    "iprec": IPrec,
    "NumQ": NumQ,
    "NumRet": NumRet,
    "NumRet(rel)": NumRelRet,
    "NumRel": NumRel,
    "NumRel(rel)": NumRel,
    "IPrec": IPrec,
    "IPrec(rel)": IPrec,
}
_PARTS = re.compile(r"(\w+?)(?:\(rel=(\d+)\))?(?:(?:@|_at_recall_)(.*))?")


def metric_of(string: str, rules: str) -> RankingMetric | None:
    """Returns the metric of a string, `None` if it is not one of these."""
    parts = _PARTS.fullmatch(string)
    name, level, recall = parts.groups() if parts else (string, None, None)
    kind = _CLASSES.get(name if level is None else f"{name}(rel)")
    if kind is None:
        return None
    arguments: dict[str, Any] = {"name": string, "seed": 0}
    if level is not None:
        arguments["relevance_threshold"] = float(level)
    if kind is IPrec:
        arguments["recall"] = _recall_of(string, recall)
        arguments["version"] = 9 if rules == "trec_eval-9" else 10
    elif recall is not None:
        raise ValueError(
            f"`metrics` should have {name!r} without a cutoff, as it is of all items. "
            f"Received: {string!r}"
        )
    return kind(**arguments)


def _recall_of(string: str, text: str | None) -> float:
    try:
        return check_share("recall", float(text or ""))
    except ValueError:
        raise ValueError(
            "`metrics` should have a recall from 0 to 1 in the name of an interpolated "
            f'precision, such as "iprec@0.1". Received: {string!r}'
        ) from None


def expanded(metrics: Iterable[Any]) -> list[Any]:
    """The metrics, with those that "official" stands for in its place."""
    either = (OFFICIAL if each == "official" else [each] for each in metrics)
    return [metric for some in either for metric in some]
