"""Metrics by their names in this package and in other tools.

A metric that is created from a string has the string as its name.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras

from keras_rank import metrics as public_metrics
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

# The tool whose definitions and tie order the names of this package follow: trec_eval
# 10, earlier versions of trec_eval and pytrec_eval, or this package.
RULES = ("trec_eval", "trec_eval-9", "keras")

# The lowest values of metrics whose range is not 0 to 1. `None`: the highest value is
# not 1.
_LOWEST_VALUES = {
    **dict.fromkeys(("DCG", "AlphaDCG", "AverageRelevancePosition")),
    **dict.fromkeys(("KendallTau", "SpearmanCorrelation"), -1.0),
}
# Metrics with values from 0 to 1 that are not public.
_TABLE_METRICS = (
    *("Judged", "IPrec", "GeometricMeanAveragePrecision"),
    *("Overlap", "Jaccard", "RankBiasedOverlap"),
)
# Arguments that don't change the definition of a metric.
_IGNORED_ARGUMENTS = {"name", "dtype", "seed", "shuffle_ties"}

# The names of `Judged` in this package and in ir_measures.
_JUDGED_NAMES = ("judged", "Judged")

# The defaults of trec_eval and ndeval, by the names of this package.
_LINEAR, _SLOTS, _MAXIMUM = (
    {"gain_fn": "linear"},
    {"denominator": "k"},
    {"normalizer": "maximum"},
)
_TREC_EVAL_DEFAULTS = {
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


def _parse_gain(argument: str, value: Any) -> str:
    gains = {"log2": "linear", "exp-log2": "exponential"}
    return gains[check_choice(argument, value, [*gains])]


# The arguments of ir_measures by metric, each with the argument of this package and the
# function that checks and converts the value.
_ArgumentParsers: TypeAlias = dict[str, tuple[str, Callable[[str, Any], Any]]]
_REL: _ArgumentParsers = {"rel": ("relevance_threshold", check_positive)}
_ALPHA: _ArgumentParsers = {**_REL, "alpha": ("alpha", check_share)}
_IR_MEASURES_ARGUMENTS: dict[str, _ArgumentParsers] = {
    "ndcg": {"dcg": ("gain_fn", _parse_gain), "gains": ("gains", lambda _, x: x)},
    "err": {},
    "rbp": {**_REL, "p": ("persistence", check_fraction)},
    "alpha_ndcg": _ALPHA,
    "alpha_dcg": _ALPHA,
}


@keras.saving.register_keras_serializable(package="keras_rank")
class Judged(PrecisionAtK):
    """The share of the top k items that have a judgment. Labels mark the judgments."""

    base_name = "judged"
    _reads = "judged"

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {k: v for k, v in config.items() if k != "relevance_threshold"}


class MetricInfo(NamedTuple):
    """The properties of a metric that reports need.

    Attributes:
        name: the name of the metric.
        k: the cutoff, if any.
        empty_value: the value of a list without relevant items, or `None` if the mean
            leaves out such lists.
        direction: "up" if higher values are better, otherwise "down".
        definition: the class name and the arguments that define the metric, or `None`
            if the metric can't be saved.
    """

    name: str
    k: int | None
    empty_value: float | None
    direction: str
    definition: dict[str, Any] | None = None

    @property
    def lowest(self) -> float | None:
        """The lowest value, or `None` unless the highest value is known to be 1."""
        is_package_metric = self.class_name in (
            *_TABLE_METRICS,
            *public_metrics.__all__,
        )
        return _LOWEST_VALUES.get(self.class_name, 0.0) if is_package_metric else None

    @property
    def class_name(self) -> str:
        """The name of the class of the metric, empty if it is not known."""
        return str((self.definition or {}).get("class_name", ""))

    @property
    def reduction(self) -> str:
        """The reduction over lists: "mean", "sum" or "geometric mean"."""
        return str((self.definition or {}).get("reduction", "mean"))


def resolve_metrics(
    metrics: RankingMetrics | RankingMetric | Sequence[RankingMetric | str],
    rules: str = "keras",
) -> list[RankingMetric]:
    """Returns metrics with fixed seeds, so that results are reproducible.

    Args:
        metrics: as for `evaluate`.
        rules: one of `RULES`, which strings with names of this package follow.
    """
    check_choice("rules", rules, RULES)
    if not isinstance(metrics, RankingMetrics):
        metric_list = trec_eval_measures.expand_official(as_list(metrics))
        metrics = [
            create_metric_by_rules(x, rules) if isinstance(x, str) else x
            for x in metric_list
        ]
    group = as_group(metrics)
    list_metrics, exposure_metrics = split_by_type(group.members)
    if exposure_metrics:
        raise ValueError(
            "`metrics` should have a value for each list. "
            f"Received: {exposure_metrics[0].name!r}, of a whole catalogue"
        )
    for member in list_metrics:
        if member.sparse_labels:
            raise ValueError(
                "`metrics` should have `sparse_labels=False`, as a table has a label "
                f"for each item. Received: {member.name!r} with sparse_labels=True"
            )
    return [x._copy_with_seed(0) if x._seed_is_default else x for x in list_metrics]


def create_metric_by_rules(string: str, rules: str) -> Member:
    """Creates the metric of a string, with the string as its name."""
    measure = trec_eval_measures.parse_measure(string, rules)
    if measure is not None:
        return measure
    parts = parse_metric(string)
    if parts is not None and parts.name in _JUDGED_NAMES:
        check_arguments(string, parts, ())
        return Judged(parts.k, denominator="retrieved", name=string)
    own_name = None if parts is None else translate_name(parts)
    if parts is not None and own_name is not None:
        parts = _translate_arguments(string, parts, own_name)
    elif parts is not None:
        is_foreign = parts.name in NAMES_IN_OTHER_TOOLS
        parts = None if is_foreign else parts._replace(name=normalize_name(parts.name))
    if parts is not None and (own_name is not None or rules != "keras"):
        defaults = _TREC_EVAL_DEFAULTS.get(parts.name, {})
        if "denominator" in defaults and parts.k is None:
            defaults = {"denominator": "retrieved"}
        if "gains" in parts.arguments:
            # The gains by label replace the gain function.
            defaults = {}
        parts = parts._replace(arguments=defaults | parts.arguments)
    return create_metric(string, parts, string)


def _translate_arguments(
    string: str, parts: ParsedMetric, own_name: str
) -> ParsedMetric:
    """Translates a parsed name of trec_eval or ir_measures to names of this package."""
    parsers = _IR_MEASURES_ARGUMENTS.get(own_name, _REL)
    check_arguments(string, parts, parsers)
    if own_name == "rbp" and "rel" not in parts.arguments:
        raise ValueError(
            "`RBP` should be given the lowest relevant label, as in "
            '"RBP(rel=1,p=0.8)@10": without, ir_measures has the labels for gains, and '
            f"values above 1. Received: {string!r}"
        )
    arguments = {}
    for name, value in parts.arguments.items():
        own_argument, check = parsers[name]
        arguments[own_argument] = check(name, value)
    return parts._replace(name=own_name, arguments=arguments, sign="@")


def should_truncate(rules: str | None) -> bool:
    """Returns whether labels are truncated to integers, as in trec_eval."""
    return rules is not None and rules.startswith("trec_eval")


def describe_metric(metric: RankingMetric) -> MetricInfo:
    """Returns the properties of a metric that reports need."""
    try:
        config = json.loads(json.dumps(metric.get_config()))
        definition = {k: v for k, v in config.items() if k not in _IGNORED_ARGUMENTS}
        definition["class_name"] = type(metric).__name__
        if hasattr(metric, "_reduction"):
            definition["reduction"] = metric._reduction
    except (TypeError, ValueError):
        # A metric with a lambda, for example, can't be saved.
        definition = None
    fields = metric.name, metric.k, metric.empty_value, metric._direction
    return MetricInfo(*fields, definition)


def find(
    name: str, metrics: Sequence[MetricInfo], rules: str | None
) -> MetricInfo | None:
    """Returns the metric of a name, in any spelling, or `None`.

    Spellings are `ndcg@10`, `ndcg_at_10`, and the names of other tools for the same
    metric, such as `ndcg_cut_10`.

    Args:
        name: the name.
        metrics: the metrics to choose from.
        rules: the rules by which they were computed, `None` for a table.
    """
    by_name = {metric.name: metric for metric in metrics}
    by_normalized_name = {key.replace("@", "_at_"): x for key, x in by_name.items()}
    match = by_name.get(name) or by_normalized_name.get(name.replace("@", "_at_"))
    if match is not None:
        return match
    try:
        # Other options may follow the rules, as in `trec_eval, ties=metric`.
        parsed = create_metric_by_rules(name, (rules or "keras").partition(",")[0])
    except ValueError:
        return None
    if not isinstance(parsed, RankingMetric):
        return None
    definition = describe_metric(parsed).definition
    return next((each for each in metrics if each.definition == definition), None)
