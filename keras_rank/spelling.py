"""What an unknown name of a metric, a function or a class may stand for."""

import difflib
import re
from collections.abc import Iterable, Mapping

# What people write for metrics. Only errors read it, as some of these names have other
# definitions elsewhere.
SYNONYMS = {
    "ndcg": "normalized_dcg ndcg_score",
    "dcg": "dcg_score",
    "map": "ap average_precision mean_average_precision",
    "mrr": "rr reciprocal_rank mean_reciprocal_rank",
    "precision": "prec",
    "recall": "rec",
    "f1": "f f_score f1_score f_measure",
    "hit_rate": "hit hits hr hit_ratio",
    "r_precision": "r_prec precision_at_r",
    "fall_out": "fpr",
    "err": "expected_reciprocal_rank",
    "rbp": "rank_biased_precision",
    "arp": "average_relevance_position",
    "map_at_r": "average_precision_at_r mean_average_precision_at_r",
    "kendall_tau": "kendall tau_b",
    "spearman_correlation": "spearman_r spearman_rho",
    "pairwise_accuracy": "auc auroc gauc roc_auc roc_auc_score",
    "err_ia": "expected_reciprocal_rank_ia",
    "subtopic_recall": "strec s_recall",
}
# What other libraries add to these names.
_AFFIXES = re.compile(r"^retrieval_?|_?at_?k$|_?metric$")
_CUTOFF = re.compile(r"_at_\d+$")
_SIGNS = re.compile(r"[\W_]+")


def compact(name: str) -> str:
    """A name without signs and upper case: how it is compared."""
    return _SIGNS.sub("", _AFFIXES.sub("", name.lower()))


_SAME = [
    [*map(compact, f"{name} {others}".split())] for name, others in SYNONYMS.items()
]


def meanings(names: Iterable[str]) -> dict[str, str]:
    """Maps what people write, compact, to the names of a module that it may mean."""
    meant: dict[str, str] = {}
    for name in names:
        word = compact(name.rpartition(".")[2])
        same = next((row for row in _SAME if word in row), [word])
        for each in (word, *same):
            meant.setdefault(each, name)
    return meant


def closest(name: str, meant: Mapping[str, str]) -> str | None:
    """The name that another one may mean, `None` if there is none.

    A name with one more word, such as `map_ia`, is that of another metric. So is one
    with letters around a short name, such as `gmap` and `mapr`, or another digit.
    """
    word = compact(name)
    if word in meant:
        return meant[word]
    if not meant.keys().isdisjoint(_SIGNS.split(name.lower())):
        return None
    long = [each for each in meant if len(each) > 2]
    close = difflib.get_close_matches(word, long, n=1, cutoff=0.7)
    return None if not close or _is_other(word, close[0]) else meant[close[0]]


def _is_other(word: str, known: str) -> bool:
    short, long = sorted((word, known), key=len)
    digits, of_known = (re.findall(r"\d", each) for each in (word, known))
    is_start = len(short) < 5 and long.startswith(short)
    return is_start or long.endswith(short) or digits != of_known


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """The error for a name that a module does not have."""
    is_private, without_cutoff = name.startswith("_"), _CUTOFF.sub("", name)
    own = None if is_private else closest(without_cutoff, meanings(names))
    question = "" if own is None else f". Did you mean `{own}`?"
    return AttributeError(f"module {module!r} has no attribute {name!r}{question}")
