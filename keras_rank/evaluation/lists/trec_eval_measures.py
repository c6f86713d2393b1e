"""Measures of trec_eval that are not public metrics: totals, gm_map and iprec.

Tables alone have these metrics, as some of them are reduced by a sum or a geometric
mean instead of a mean. The value of a list is the value that trec_eval prints for a
query.
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
from keras_rank.arrays.arithmetic import max_over_axis
from keras_rank.backends import Tensor, backend
from keras_rank.metrics.base import RankingArguments, RankingMetric
from keras_rank.metrics.binary import MeanAveragePrecision
from keras_rank.metrics.registry import check_arguments, parse_metric
from keras_rank.ranking.base import Ranking
from keras_rank.ranking.judged_lists import JudgedLists

# The measures that trec_eval prints by default, in its order. "official" stands for
# them.
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
    """The number of retrieved items. All items count as relevant."""

    _reads = "item"

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {k: v for k, v in config.items() if k != "relevance_threshold"}


@keras.saving.register_keras_serializable(package="keras_rank")
class NumQ(NumRet):
    """The number of lists. Each list has the value 1."""

    def compute(self, lists: JudgedLists, ranking: Ranking) -> Tensor:
        return ops.ones_like(lists.number_relevant)


@keras.saving.register_keras_serializable(package="keras_rank")
class GeometricMeanAveragePrecision(MeanAveragePrecision):
    """The average precision, which is reduced by a geometric mean."""

    _reduction = "geometric mean"


@keras.saving.register_keras_serializable(package="keras_rank")
class IPrec(RankingMetric):
    """The highest precision at any rank with at least the given recall.

    Args:
        recall: float from 0 to 1. The share of relevant items that are retrieved.
        rounding: float. A number that is added to the required number of relevant items
            before it is truncated: 0.5 in trec_eval 10, and 0.9 in version 9.
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
        # The required numbers are computed in float64, which not every backend
        # supports.
        numbers = np.arange(lists.labels.shape[1] + 1)
        needed = np.floor(numbers * self.recall + self.rounding)
        needed = ops.convert_to_tensor(needed, lists.dtype)
        needed = ops.take(needed, ops.cast(lists.number_relevant, "int32"))
        num_found = backend.running_total(lists.relevance_by_rank(ranking))
        is_enough = num_found >= needed[:, None]
        return max_over_axis(backend.where(is_enough, num_found / ranking.ranks, 0.0))

    def get_config(self) -> dict[str, Any]:
        config = {"recall": self.recall, "rounding": self.rounding}
        return {**super().get_config(), **config}


# The names of the measures in trec_eval and ir_measures. `(rel)` stands for a relevance
# threshold, and `@` for a recall.
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


def parse_measure(string: str, rules: str) -> RankingMetric | None:
    """Returns the metric of a string, or `None` if it is not one of these measures."""
    share_match = _SHARE.fullmatch(string)
    parts = parse_metric(share_match[1] if share_match else string)
    if parts is None or parts.sign:
        return None
    level = "(rel)" if parts.arguments else ""
    metric_class = _CLASSES.get(parts.name + level + ("@" if share_match else ""))
    if metric_class is None:
        return None
    check_arguments(string, parts, ["rel"] if level else [])
    arguments: dict[str, Any] = {"name": string, "seed": 0}
    if level:
        arguments["relevance_threshold"] = check_positive("rel", parts.arguments["rel"])
    if share_match:
        arguments["recall"] = float(share_match[2])
        arguments["rounding"] = 0.9 if rules == "trec_eval-9" else 0.5
    return metric_class(**arguments)


def expand_official(metrics: Iterable[Any]) -> list[Any]:
    """Returns the metrics, in which "official" is replaced by `OFFICIAL`."""
    expansions = (OFFICIAL if metric == "official" else [metric] for metric in metrics)
    return list(itertools.chain.from_iterable(expansions))
