"""Metrics by the names of this package and of other tools.

The result of a string has that string as its name.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

from keras_rank import metrics as public
from keras_rank.arguments import check_choice
from keras_rank.evaluation.lists import trec_eval
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.binary import PrecisionAtK
from keras_rank.metrics.group import RankingMetrics, as_group, by_kind, listed
from keras_rank.metrics.names import spelled_elsewhere

# Whose definitions and tie order this package's own names have: those of trec_eval 10,
# of its predecessors and pytrec_eval, or its own.
RULES = ("trec_eval", "trec_eval-9", "keras")

# The lowest values of metrics whose highest is not 1, or whose lowest is not 0.
_LOWEST = {
    **dict.fromkeys(("DCG", "AlphaDCG", "AverageRelevancePosition")),
    **dict.fromkeys(("KendallTau", "SpearmanCorrelation"), -1.0),
}
# Metrics from 0 to 1 that only tables have.
_OF_TABLES = ("Judged", "IPrec", "GeometricMeanAveragePrecision")
# The arguments that don't change what a metric computes.
_NO_DEFINITION = {"name", "dtype", "seed", "shuffle_ties"}


# As here and in ir_measures, and as pyserini prints it.
_JUDGED = re.compile(r"[Jj]udged(?:(?:@|_|_at_)(\d+))?")


@keras.saving.register_keras_serializable(package="keras_rank")
class Judged(PrecisionAtK):
    """The share of the top k items that have a judgment, which it reads as labels."""

    base_name = "judged"
    _reads = "judged"

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {k: v for k, v in config.items() if k != "relevance_threshold"}


class Measured(NamedTuple):
    """What reports need to know of a metric."""

    name: str
    k: int | None
    empty_value: float | None
    direction: str
    definition: dict[str, Any] | None = None

    @property
    def lowest(self) -> float | None:
        """The lowest value, if the highest is 1 by its definition."""
        is_own = self.class_name in (*_OF_TABLES, *public.__all__)
        return _LOWEST.get(self.class_name, 0.0) if is_own else None

    @property
    def class_name(self) -> str:
        """The name of its class, empty if that is not known."""
        return str((self.definition or {}).get("class_name", ""))

    @property
    def reduction(self) -> str:
        """How lists become one number: "mean", "sum" or "geometric mean"."""
        return str((self.definition or {}).get("reduction", "mean"))


def members_of(
    metrics: RankingMetrics | RankingMetric | Sequence[RankingMetric | str],
    rules: str = "keras",
) -> list[RankingMetric]:
    """Returns metrics that order the lists of a table reproducibly.

    Args:
        metrics: as for `evaluate`.
        rules: one of `RULES`, for strings that are names of this package.
    """
    check_choice("rules", rules, RULES)
    if not isinstance(metrics, RankingMetrics):
        given = trec_eval.expanded(listed(metrics))
        metrics = [metric_of(x, rules) if isinstance(x, str) else x for x in given]
    group = as_group(metrics)
    of_lists, of_exposure = by_kind(group.members)
    if of_exposure:
        raise ValueError(
            "`metrics` should have a value for each list. "
            f"Received: {of_exposure[0].name!r}, of a whole catalogue"
        )
    for member in of_lists:
        if member.sparse_labels:
            raise ValueError(
                "`metrics` should have `sparse_labels=False`, as a table has a label "
                f"for each item. Received: {member.name!r} with sparse_labels=True"
            )
    return [x._with_seed(0) if x._seed_is_default else x for x in of_lists]


def metric_of(string: str, rules: str) -> RankingMetric:
    """Returns the metric of a string, with the string as its name."""
    judged = _JUDGED.fullmatch(string)
    if judged:
        k = None if judged[1] is None else int(judged[1])
        return Judged(k, denominator="retrieved", name=string, seed=0)
    of_trec_eval = trec_eval.metric_of(string, rules)
    if of_trec_eval is not None:
        return of_trec_eval
    spelled = spelled_elsewhere(string)
    (metric,) = as_group([string if spelled is None else spelled.own]).members
    config = {**metric.get_config(), "name": string, "seed": 0}
    if spelled is not None or rules != "keras":
        if config.get("gain_fn") is not None:
            config["gain_fn"] = "linear"
        if "denominator" in config:
            config["denominator"] = "retrieved" if metric.k is None else "k"
        if metric.takes_subtopics and "normalizer" in config:
            config["normalizer"] = "maximum"
    level = None if spelled is None else spelled.relevance
    if level is not None and "relevance_threshold" in config:
        config["relevance_threshold"] = float(level)
    named: RankingMetric = type(metric).from_config(config)
    return named


def truncates(rules: str | None) -> bool:
    """Whether labels are read as integers, as trec_eval reads them."""
    return rules is not None and rules.startswith("trec_eval")


def measured_of(metric: RankingMetric) -> Measured:
    """Describes a metric for reports, with its definition."""
    try:
        config = json.loads(json.dumps(metric.get_config()))
        definition = {k: v for k, v in config.items() if k not in _NO_DEFINITION}
        definition["class_name"] = type(metric).__name__
        if hasattr(metric, "_reduction"):
            definition["reduction"] = metric._reduction
    except (TypeError, ValueError):
        # Such as with a function that can't be saved.
        definition = None
    known = metric.name, metric.k, metric.empty_value, metric._direction
    return Measured(*known, definition)


def find(name: str, metrics: Sequence[Measured], rules: str | None) -> Measured | None:
    """Returns the metric of a name, in any spelling, if there is one.

    Spellings are `ndcg@10`, `ndcg_at_10`, and those of other tools (`ndcg_cut_10`) for
    the same metric.

    Args:
        name: the name.
        metrics: the metrics to choose from.
        rules: the rules by which they were computed, `None` for a table.
    """
    by_name = {metric.name: metric for metric in metrics}
    with_one_sign = {key.replace("@", "_at_"): x for key, x in by_name.items()}
    found = by_name.get(name) or with_one_sign.get(name.replace("@", "_at_"))
    if found is not None:
        return found
    try:
        # Other options of a run follow, as in `trec_eval, ties=metric`.
        of_name = metric_of(name, (rules or "keras").partition(",")[0])
    except ValueError:
        return None
    definition = measured_of(of_name).definition
    return next((each for each in metrics if each.definition == definition), None)
