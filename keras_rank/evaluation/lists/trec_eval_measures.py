"""What trec_eval prints, and no other metric here has: totals, gm_map, iprec.

These are metrics of tables alone, where lists become one number in other ways than by
their mean. What they return for a list is what trec_eval prints for a query.
"""

import itertools
import re
from collections.abc import Iterable
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import (
    adds_arguments,
    check_positive,
    check_share,
    check_ties_broken,
)
from keras_rank.arrays.arithmetic import highest
from keras_rank.backends import Tensor, backend
from keras_rank.metrics.base import RankingArguments, RankingMetric
from keras_rank.metrics.binary import MeanAveragePrecision
from keras_rank.metrics.registry import check_arguments, parse_metric
from keras_rank.ranking.base import Ranking
from keras_rank.ranking.judged_lists import JudgedLists

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
        rounding: float. What is added to the number of these items before it is cut
            off: trec_eval 10 rounds it, by 0.5, and version 9 adds 0.9.
    """

    _check_ties = staticmethod(check_ties_broken)

    @adds_arguments(RankingMetric.__init__)
    def __init__(
        self,
        k: int | None = None,
        *,
        recall: float,
        rounding: float = 0.5,
        **arguments: Unpack[RankingArguments],
    ) -> None:
        super().__init__(k, **arguments)
        self.recall, self.rounding = check_share("recall", recall), rounding

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        # In doubles, which not every backend has.
        numbers = np.arange(lists.labels.shape[1] + 1)
        needed = np.floor(numbers * self.recall + self.rounding)
        needed = ops.convert_to_tensor(needed, lists.dtype)
        needed = ops.take(needed, ops.cast(lists.number_relevant, "int32"))
        found = backend.running_total(lists.relevance_by_rank(ranking))
        is_enough = found >= needed[:, None]
        return highest(backend.where(is_enough, found / ranking.ranks, 0.0))

    def get_config(self) -> dict[str, Any]:
        own = {"recall": self.recall, "rounding": self.rounding}
        return {**super().get_config(), **own}


# Their names in trec_eval and ir_measures, with `(rel)` for a level, and `@` where a
# share of the relevant items follows.
_NAMES: dict[type[RankingMetric], str] = {
    NumQ: "num_q NumQ",
    NumRet: "num_ret NumRet",
    NumRel: "num_rel NumRel NumRel(rel)",
    NumRelRet: "num_rel_ret NumRet(rel)",
    GeometricMeanAveragePrecision: "gm_map",
    IPrec: "iprec@ IPrec@ IPrec(rel)@",
}
_CLASSES = {name: kind for kind, all_ in _NAMES.items() for name in all_.split()}
_SHARE = re.compile(r"(.+?)(?:@|_at_recall_)([0-9]*\.?[0-9]+)")


def metric_of(string: str, rules: str) -> RankingMetric | None:
    """Returns the metric of a string, `None` if it is not one of these."""
    of_share = _SHARE.fullmatch(string)
    parts = parse_metric(of_share[1] if of_share else string)
    if parts is None or parts.sign:
        return None
    level = "(rel)" if parts.arguments else ""
    kind = _CLASSES.get(parts.name + level + ("@" if of_share else ""))
    if kind is None:
        return None
    check_arguments(string, parts, ["rel"] if level else [])
    arguments: dict[str, Any] = {"name": string, "seed": 0}
    if level:
        arguments["relevance_threshold"] = check_positive("rel", parts.arguments["rel"])
    if of_share:
        arguments["recall"] = float(of_share[2])
        arguments["rounding"] = 0.9 if rules == "trec_eval-9" else 0.5
    return kind(**arguments)


def expanded(metrics: Iterable[Any]) -> list[Any]:
    """The metrics, with those that "official" stands for in its place."""
    each = (OFFICIAL if metric == "official" else [metric] for metric in metrics)
    return list(itertools.chain.from_iterable(each))
