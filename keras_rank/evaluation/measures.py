"""What the strings of users stand for: names of this package and of other tools.

The result of a string is named as the string is written.
"""

import re
from collections.abc import Iterable, Sequence

from keras_rank.arguments import check_choice
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.group import RankingMetrics, as_group, by_kind

# Whose definitions this package's own names have, and whose order tied items.
RULES = ("trec_eval", "keras")

# The names of trec_eval, which a cutoff follows, or not.
_TREC_EVAL_AT = {
    "map_cut": "map",
    "ndcg_cut": "ndcg",
    "P": "precision",
    "recall": "recall",
    "success": "hit_rate",
}
_TREC_EVAL = {"recip_rank": "mrr", "Rprec": "r_precision"}
# Those of ir_measures, where a cutoff has to follow or may follow.
_IR_MEASURES_AT = {
    "P": "precision",
    "Precision": "precision",
    "R": "recall",
    "Recall": "recall",
    "Success": "hit_rate",
}
_IR_MEASURES = {
    "AP": "map",
    "MAP": "map",
    "RR": "mrr",
    "MRR": "mrr",
    "nDCG": "ndcg",
    "NDCG": "ndcg",
    "Rprec": "r_precision",
    "RPrec": "r_precision",
    "Bpref": "bpref",
    "BPref": "bpref",
}
# As in `ndcg_cut_10`, `P.5` and `AP(rel=2)@100`.
_SPELLINGS = (
    (re.compile(r"(?P<name>\w+?)[_.](?P<k>\d+)"), _TREC_EVAL_AT),
    (re.compile(r"(?P<name>\w+)"), _TREC_EVAL),
    (
        re.compile(r"(?P<name>\w+)(\(rel=(?P<rel>\d+)\))?@(?P<k>\d+)"),
        {**_IR_MEASURES_AT, **_IR_MEASURES},
    ),
    (re.compile(r"(?P<name>\w+)(\(rel=(?P<rel>\d+)\))?"), _IR_MEASURES),
)


def members_of(
    metrics: RankingMetrics | Sequence[RankingMetric | str], rules: str = "keras"
) -> list[RankingMetric]:
    """Returns metrics that order the lists of a table alike each time.

    Args:
        metrics: as for `evaluate`.
        rules: one of `RULES`, for strings that are names of this package.
    """
    check_choice("rules", rules, RULES)
    if isinstance(metrics, Sequence) and not isinstance(metrics, str):
        metrics = [
            metric_of(metric, rules) if isinstance(metric, str) else metric
            for metric in metrics
        ]
    group = as_group(metrics)
    of_lists, of_exposure = by_kind(group.members)
    if of_exposure:
        raise ValueError(
            "`metrics` should have a value for each list, as a table has them. "
            f"Received: {of_exposure[0].name!r}, of a whole catalogue"
        )
    for member in of_lists:
        if member.sparse_labels:
            raise ValueError(
                "`metrics` should have `sparse_labels=False`, as a table has a label "
                f"for each item. Received: {member.name!r} with sparse_labels=True"
            )
    return [
        member._with_seed(0) if member._seed_is_drawn else member for member in of_lists
    ]


def metric_of(string: str, rules: str) -> RankingMetric:
    """Returns the metric that a string stands for, named like the string."""
    for pattern, names in _SPELLINGS:
        found = pattern.fullmatch(string)
        if found and found["name"] in names:
            parts = {"k": None, "rel": None, **found.groupdict()}
            own = names[found["name"]] + (f"@{parts['k']}" if parts["k"] else "")
            return _named(string, own, "trec_eval", parts["rel"])
    return _named(string, string, rules)


def written_alike(name: str, names: Iterable[str]) -> str:
    """Returns the one of the names that is the same metric, or the name itself.

    A cutoff may follow either sign: `ndcg@10`, `ndcg_at_10`.
    """
    names = dict.fromkeys(names)
    if name in names:
        return name
    alike = [each for each in names if _with_one_sign(each) == _with_one_sign(name)]
    return alike[0] if len(alike) == 1 else name


def _named(
    string: str, own: str, rules: str, relevance: str | None = None
) -> RankingMetric:
    (metric,) = as_group([own]).members
    config = {**metric.get_config(), "name": string, "seed": 0}
    if rules == "trec_eval":
        if "gain_fn" in config:
            config["gain_fn"] = "linear"
        if "denominator" in config:
            config["denominator"] = "retrieved" if metric.k is None else "k"
    if relevance is not None and "relevance_threshold" in config:
        config["relevance_threshold"] = float(relevance)
    named: RankingMetric = type(metric).from_config(config)
    return named


def _with_one_sign(name: str) -> str:
    return name.replace("@", "_at_")
