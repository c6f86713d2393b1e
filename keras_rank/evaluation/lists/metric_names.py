"""Metrics by the names of this package and of other tools.

The result of a string has that string as its name.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras

from keras_rank import metrics as public
from keras_rank.arguments import (
    check_choice,
    check_fraction,
    check_positive,
    check_share,
)
from keras_rank.evaluation.lists import trec_eval_measures
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.binary import PrecisionAtK
from keras_rank.metrics.group import RankingMetrics, as_group, as_list, split_by_type
from keras_rank.metrics.registry import (
    NAMES_IN_OTHER_TOOLS,
    Member,
    ParsedMetric,
    check_arguments,
    create_metric,
    normalize_name,
    parse_metric,
    translate_name,
)

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

# As here and in ir_measures.
_JUDGED = ("judged", "Judged")

# The defaults of trec_eval and ndeval, by our names.
_LINEAR, _SLOTS, _MAXIMUM = (
    {"gain_fn": "linear"},
    {"denominator": "k"},
    {"normalizer": "maximum"},
)
_OF_TREC_EVAL = {
    "ndcg": _LINEAR,
    "dcg": _LINEAR,
    "precision": _SLOTS,
    "p": _SLOTS,
    "f1": _SLOTS,
    "f_beta": _SLOTS,
    "precision_ia": _SLOTS,
    "alpha_dcg": _MAXIMUM,
    "err_ia": _MAXIMUM,
}


def _gain_of(argument: str, value: Any) -> str:
    gains = {"log2": "linear", "exp-log2": "exponential"}
    return gains[check_choice(argument, value, [*gains])]


# What the arguments of ir_measures stand for: ours, and which values there are.
_Takes: TypeAlias = dict[str, tuple[str, Callable[[str, Any], Any]]]
_REL: _Takes = {"rel": ("relevance_threshold", check_positive)}
_ALPHA: _Takes = {**_REL, "alpha": ("alpha", check_share)}
_OF_IR_MEASURES: dict[str, _Takes] = {
    "ndcg": {"dcg": ("gain_fn", _gain_of), "gains": ("gains", lambda _, x: x)},
    "err": {},
    "rbp": {**_REL, "p": ("persistence", check_fraction)},
    "alpha_ndcg": _ALPHA,
    "alpha_dcg": _ALPHA,
}


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
        given = trec_eval_measures.expanded(as_list(metrics))
        metrics = [by_rules(x, rules) if isinstance(x, str) else x for x in given]
    group = as_group(metrics)
    of_lists, of_exposure = split_by_type(group.members)
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
    return [x._copy_with_seed(0) if x._seed_is_default else x for x in of_lists]


def by_rules(string: str, rules: str) -> Member:
    """Returns the metric of a string, with the string as its name."""
    of_trec_eval = trec_eval_measures.metric_of(string, rules)
    if of_trec_eval is not None:
        return of_trec_eval
    parts = parse_metric(string)
    if parts is not None and parts.name in _JUDGED:
        check_arguments(string, parts, ())
        return Judged(parts.k, denominator="retrieved", name=string)
    own = None if parts is None else translate_name(parts)
    if parts is not None and own is not None:
        parts = _in_own_terms(string, parts, own)
    elif parts is not None:
        is_other = parts.name in NAMES_IN_OTHER_TOOLS
        parts = None if is_other else parts._replace(name=normalize_name(parts.name))
    if parts is not None and (own is not None or rules != "keras"):
        defaults = _OF_TREC_EVAL.get(parts.name, {})
        if "denominator" in defaults and parts.k is None:
            defaults = {"denominator": "retrieved"}
        if "gains" in parts.arguments:
            # The gains by label replace the gain function.
            defaults = {}
        parts = parts._replace(arguments=defaults | parts.arguments)
    return create_metric(string, parts, string)


def _in_own_terms(string: str, parts: ParsedMetric, own: str) -> ParsedMetric:
    """The parts of a string as spelled in trec_eval or ir_measures, in our terms."""
    takes = _OF_IR_MEASURES.get(own, _REL)
    check_arguments(string, parts, takes)
    if own == "rbp" and "rel" not in parts.arguments:
        raise ValueError(
            "`RBP` should be given the lowest relevant label, as in "
            '"RBP(rel=1,p=0.8)@10": without, ir_measures has the labels for gains, and '
            f"values above 1. Received: {string!r}"
        )
    arguments = {}
    for name, value in parts.arguments.items():
        own_argument, check = takes[name]
        arguments[own_argument] = check(name, value)
    return parts._replace(name=own, arguments=arguments, sign="@")


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
        of_name = by_rules(name, (rules or "keras").partition(",")[0])
    except ValueError:
        return None
    if not isinstance(of_name, RankingMetric):
        return None
    definition = measured_of(of_name).definition
    return next((each for each in metrics if each.definition == definition), None)
