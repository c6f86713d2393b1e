"""All metrics by name, here and in other tools, and the strings that are read so."""

import inspect
import re
from collections.abc import Collection
from typing import Any, NamedTuple

from keras_rank.arguments import suggestion
from keras_rank.metrics import (
    binary,
    diversity,
    exposure,
    graded,
    pairwise,
    subtopics,
)
from keras_rank.metrics.base import ExposureMetric, RankingMetric

# The metrics that a group can hold.
Member = RankingMetric | ExposureMetric

_METRICS: tuple[type[Member], ...] = (
    graded.NDCG,
    graded.DCG,
    binary.MeanAveragePrecision,
    binary.MeanReciprocalRank,
    binary.PrecisionAtK,
    binary.RecallAtK,
    binary.HitRate,
    binary.F1AtK,
    binary.FBetaAtK,
    binary.RPrecision,
    binary.MeanAveragePrecisionAtR,
    graded.ExpectedReciprocalRank,
    binary.RankBiasedPrecision,
    binary.BPref,
    binary.FallOut,
    pairwise.AverageRelevancePosition,
    pairwise.PairwiseAccuracy,
    pairwise.KendallTau,
    pairwise.SpearmanCorrelation,
    subtopics.AlphaNDCG,
    subtopics.AlphaDCG,
    subtopics.ExpectedReciprocalRankIA,
    subtopics.PrecisionIA,
    subtopics.SubtopicRecall,
    exposure.Coverage,
    exposure.Gini,
    diversity.Personalization,
)
BY_NAME: dict[str, type[Member]] = {str(x.base_name): x for x in _METRICS} | {
    "recall_cap": binary.RecallAtK,
    "R_cap": binary.RecallAtK,
    "tau": pairwise.KendallTau,
    "rho": pairwise.SpearmanCorrelation,
    "spearman": pairwise.SpearmanCorrelation,
    "hr": binary.HitRate,
    "p": binary.PrecisionAtK,
}
# The arguments that a name stands for.
_IMPLIED = {name: {"normalizer": "clipped"} for name in ("recall_cap", "R_cap")}
# The names of metrics by their lower case, in which strings may have them.
_BY_LOWER_CASE = {name.lower(): name for name in BY_NAME}

# The names of trec_eval (lower case, `P`, `Rprec`), ndeval and ir_measures, with `k`
# for a cutoff, as docs/tables.md lists them. They also accept `P.5` for `P_5`, and
# those of ir_measures arguments, such as `AP(rel=2)@100`.
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
    "rbp": "RBP RBP@k",
    "bpref": "Bpref Bpref@k BPref BPref@k",
    "alpha_ndcg": "alpha_nDCG@k alpha-nDCG@k",
    "alpha_dcg": "alpha_DCG@k alpha-DCG@k",
    "err_ia": "ERR_IA@k ERR-IA@k",
    "precision_ia": "P_IA@k P-IA@k",
    "subtopic_recall": "StRecall@k strec@k",
}
# Without the cutoff, a name of another tool has no meaning if it needs one.
OTHER_NAMES = {re.sub("[_@]k$", "", x) for x in " ".join(_SPELLINGS.values()).split()}
OTHER_NAMES -= BY_NAME.keys()
_OWN = {each: own for own, all_ in _SPELLINGS.items() for each in all_.split()}

# The form of a string, in ASCII: name(argument=value, ...)@k.
_ARGUMENT = r""" *(\w+) *= *('[\w.+-]+'|"[\w.+-]+"|[\w.+-]+) *"""
_EACH = _ARGUMENT.replace("(", "(?:")
_STRING = re.compile(
    rf"(?P<stem>(?P<name>[\w-]+?)(?:\((?P<arguments>{_EACH}(?:,{_EACH})*)\))?)"
    r"(?:(?P<sign>@|_at_|_|\.)(?P<k>[0-9]{1,18}))?",
    re.ASCII,
)
# A string with any arguments, and a comma between these, outside of brackets.
_CALL = re.compile(r"[\w-]+\((?P<arguments>.*)\)(?:(?:@|_at_|_|\.)[0-9]+)?", re.DOTALL)
_COMMA = re.compile(r",(?![^\[({]*[\])}])")
_NUMBER = re.compile(
    r"[+-]?((?P<whole>[0-9]{1,18})|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)",
    re.IGNORECASE,
)
_WORDS = {"true": True, "false": False, "none": None}


class Parts(NamedTuple):
    """The parts of a string such as `"rbp(persistence=0.9)@10"`.

    Attributes:
        name: the name of the metric.
        arguments: its arguments, by name.
        k: the cutoff, `None` without one.
        sign: what is before the cutoff: `"@"`, `"_at_"`, `"_"` or `"."`.
        stem: the string up to there.
    """

    name: str
    arguments: dict[str, Any]
    k: int | None
    sign: str
    stem: str


def parts_of(string: str) -> Parts | None:
    """Returns the parts of a string, `None` if it does not have the form of one."""
    match = _STRING.fullmatch(string)
    if match is None:
        return None
    name, sign, k, stem, given = match.group("name", "sign", "k", "stem", "arguments")
    arguments: dict[str, Any] = {}
    for argument, text in re.findall(_ARGUMENT, given or ""):
        if argument in arguments:
            raise ValueError(f"`{argument}` should be given once. Received: {string!r}")
        arguments[argument] = _value_of(text)
    return Parts(name, arguments, None if k is None else int(k), sign or "", stem)


def _value_of(text: str) -> Any:
    """The value of an argument: a boolean, `None`, a number or a word."""
    if text[0] in "'\"":
        return text[1:-1]
    number = _NUMBER.fullmatch(text)
    if number:
        return int(text) if number["whole"] else float(text)
    return _WORDS.get(text.lower(), text)


def known_name(name: str) -> str:
    """Returns a name of this package in its case, and others unchanged."""
    return name if name in BY_NAME else _BY_LOWER_CASE.get(name.lower(), name)


def metric_of(string: str, parts: Parts | None, name: str | None = None) -> Member:
    """Returns the metric of a string.

    Args:
        string: the string, for errors.
        parts: its parts, with a name and arguments of this package.
        name: the name of the result. Defaults to the string as an identifier, as Keras
            logs it.
    """
    if parts is not None:
        stem = known_name(parts.name) + parts.stem.removeprefix(parts.name)
        parts = parts._replace(name=known_name(parts.name), stem=stem)
    if parts is None or parts.sign in ("_", ".") or parts.name not in BY_NAME:
        raise _unknown(string)
    check_arguments(string, parts, _arguments_of(parts.name))
    if name is None:
        name = re.sub(r"[\W_]+", "_", parts.stem).strip("_")
        name += "" if parts.k is None else f"_at_{parts.k}"
    arguments = {**_IMPLIED.get(parts.name, {}), **parts.arguments}
    return BY_NAME[parts.name]._as_member(k=parts.k, name=name, **arguments)


def _unknown(string: str) -> ValueError:
    """The error for a string that is not read as a metric."""
    call = _CALL.fullmatch(string)
    for argument in _COMMA.split(call["arguments"]) if call else ():
        name = argument.partition("=")[0].strip()
        is_named = "=" in argument and re.fullmatch(r"\w+", name, re.ASCII)
        if is_named and not re.fullmatch(_ARGUMENT, argument, re.ASCII):
            return ValueError(
                f"`{name}` should be a number or a word in a string, as in "
                '"rbp(persistence=0.9)@10"; metrics such as '
                "`keras_rank.metrics.NDCG(k=10)` take other values. "
                f"Received: {string!r}"
            )
    parts, end = parts_of(string), ""
    if parts is not None and own_name_of(parts) is not None:
        end = ", which only `keras_rank.evaluation` knows"
    elif parts is not None:
        k = "" if parts.k is None else f"@{parts.k}"
        form = f'"{{}}{parts.stem.removeprefix(parts.name)}{k}"'
        end = suggestion(parts.name, BY_NAME, form)
    return ValueError(
        "`metrics` given as strings should be a name and an optional cutoff, such as "
        '"ndcg@10", and may have arguments, as in "rbp(persistence=0.9)@10". '
        f"Received: {string!r}{end}"
    )


def _arguments_of(name: str) -> list[str]:
    """The arguments that a metric has in parentheses."""
    others = {"k", "name", *_IMPLIED.get(name, ())}
    return [x for x in inspect.signature(BY_NAME[name]).parameters if x not in others]


def check_arguments(string: str, parts: Parts, takes: Collection[str]) -> None:
    """Raises for an argument that the metric of a string does not take."""
    for unknown in parts.arguments:
        if unknown not in takes:
            raise ValueError(
                f"`{unknown}` should be an argument of `{parts.name}`, whose cutoff "
                f"follows @. Received: {string!r}{suggestion(unknown, takes)}"
            )


def own_name_of(parts: Parts) -> str | None:
    """Returns our name of a metric as spelled in trec_eval or ir_measures, if it is."""
    key = parts.name + ("" if parts.k is None else parts.sign.replace(".", "_") + "k")
    # Only ir_measures has arguments.
    if parts.arguments and (parts.name.islower() or parts.sign in ("_", ".")):
        return None
    return _OWN.get(key)
