"""All metrics by name, here and in other tools, and what an unknown one may mean."""

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.binary import (
    BPref,
    F1AtK,
    FallOut,
    FBetaAtK,
    HitRate,
    MeanAveragePrecision,
    MeanAveragePrecisionAtR,
    MeanReciprocalRank,
    PrecisionAtK,
    RankBiasedPrecision,
    RecallAtK,
    RPrecision,
)
from keras_rank.metrics.diversity import Personalization
from keras_rank.metrics.exposure import Coverage, ExposureMetric, Gini
from keras_rank.metrics.graded import DCG, NDCG, ExpectedReciprocalRank
from keras_rank.metrics.pairwise import (
    AverageRelevancePosition,
    KendallTau,
    PairwiseAccuracy,
    SpearmanCorrelation,
)
from keras_rank.metrics.subtopics import (
    AlphaDCG,
    AlphaNDCG,
    ExpectedReciprocalRankIA,
    PrecisionIA,
    SubtopicRecall,
)
from keras_rank.spelling import closest, compact, meanings

# The metrics that a group can hold.
Member = RankingMetric | ExposureMetric

_METRICS: tuple[Callable[..., Member], ...] = (
    NDCG,
    DCG,
    MeanAveragePrecision,
    MeanReciprocalRank,
    PrecisionAtK,
    RecallAtK,
    HitRate,
    F1AtK,
    FBetaAtK,
    RPrecision,
    MeanAveragePrecisionAtR,
    ExpectedReciprocalRank,
    RankBiasedPrecision,
    BPref,
    FallOut,
    AverageRelevancePosition,
    PairwiseAccuracy,
    KendallTau,
    SpearmanCorrelation,
    AlphaNDCG,
    AlphaDCG,
    ExpectedReciprocalRankIA,
    PrecisionIA,
    SubtopicRecall,
    Coverage,
    Gini,
    Personalization,
)
_CAPPED = functools.partial(RecallAtK, normalizer="clipped")
BY_NAME = {str(getattr(metric, "base_name", None)): metric for metric in _METRICS} | {
    "recall_cap": _CAPPED,
    "R_cap": _CAPPED,
    "tau": KendallTau,
    "rho": SpearmanCorrelation,
    "spearman": SpearmanCorrelation,
}

# Those that no string can stand for, as they need numbers of items.
_OF_NUMBERS = {
    "novelty": ("Novelty", "popularity"),
    "average_popularity": ("AveragePopularity", "popularity"),
    "intra_list_diversity": ("IntraListDiversity", "item_vectors"),
}

# The names of trec_eval (lower case, `P`, `Rprec`), ndeval and ir_measures, with `k`
# for a cutoff, as docs/tables.md lists them. They also accept `P.5` for `P_5`, and
# `AP(rel=2)@100`.
_SPELLINGS = {
    "map": "map_cut_k AP AP@k MAP MAP@k",
    "mrr": "recip_rank RR RR@k MRR MRR@k",
    "ndcg": "ndcg_cut_k nDCG nDCG@k NDCG NDCG@k",
    "precision": "P_k P@k Precision@k set_P SetP",
    "recall": "recall_k R@k Recall@k set_recall SetR",
    "f1": "set_F SetF",
    "hit_rate": "success_k Success@k",
    "r_precision": "Rprec Rprec@k RPrec RPrec@k",
    "err": "ERR ERR@k",
    "bpref": "Bpref Bpref@k BPref BPref@k",
    "alpha_ndcg": "alpha_nDCG@k alpha-nDCG@k",
    "alpha_dcg": "alpha_DCG@k alpha-DCG@k",
    "err_ia": "ERR_IA@k ERR-IA@k",
    "precision_ia": "P_IA@k P-IA@k",
    "subtopic_recall": "StRecall@k strec@k",
}
_OWN = {each: own for own, all_ in _SPELLINGS.items() for each in all_.split()}
_PARTS = re.compile(r"([A-Za-z_-]+?)(?:\(rel=(\d+)\)(?![_.]))?(?:([@_.])(\d+))?")

_F = re.compile(r"(set_?)?f[._]?", re.IGNORECASE)
_NAME_AND_CUTOFF = re.compile(r"(.*?)(?:[\W_]+(?:at|cut))?[\W_]*?([0-9]+)", re.DOTALL)


class Spelled(NamedTuple):
    """A string as spelled in trec_eval or ir_measures: the own one, and its level."""

    own: str
    relevance: str | None


def spelled_elsewhere(string: str) -> Spelled | None:
    """Reads a string as spelled in trec_eval or ir_measures, if it is."""
    parts = _PARTS.fullmatch(string)
    if not parts:
        return None
    name, relevance, sign, k = parts.groups()
    own = _OWN.get(name + ("@k" if sign == "@" else "_k") if k else name)
    if own is None or (relevance and name.islower()):
        return None
    return Spelled(own if k is None else f"{own}@{k}", relevance)


def question_of(string: str) -> str:
    """Returns the end of an error: the metric that an unknown string may stand for.

    It is empty if there is none.
    """
    if "," in string:
        return ". Each should be a string of its own, or a word in the command: -m a b"
    spelled = spelled_elsewhere(string)
    if spelled is not None:
        own = f'Did you mean "{spelled.own}", as defined here? ' * (
            not spelled.relevance
        )
        return f". {own}`keras_rank.evaluation` has trec_eval's and ir_measures' own"
    parts = _NAME_AND_CUTOFF.fullmatch(string.strip())
    name, k = parts.groups() if parts else (string, None)
    if compact(string) in _MEANT:
        # Such as F1, whose digit is no cutoff.
        name, k = string, None
    if k is not None and _F.fullmatch(name):
        # F2 and F.5 are other metrics.
        return ""
    if name in _OF_NUMBERS:
        metric, argument = _OF_NUMBERS[name]
        call = f"keras_rank.metrics.{metric}(k={k or 10}, {argument}=...)"
        return f". It needs the `{argument}`: `{call}`"
    meant = closest(name, _MEANT)
    at_k = "" if k is None else f"@{k}"
    return "" if meant is None else f'. Did you mean "{meant}{at_k}"?'


_MEANT = meanings(BY_NAME) | {
    compact(re.sub("[_@]k$", "", spelled)): name for spelled, name in _OWN.items()
}
