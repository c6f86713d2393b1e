"""The registry of metrics by name, and the parser of metrics given as strings."""

import inspect
import re
from collections.abc import Collection
from typing import Any, NamedTuple

from keras_rank.arguments import argument_error, suggestion
from keras_rank.gains import by_label
from keras_rank.metrics import (
    binary,
    diversity,
    exposure,
    graded,
    pairwise,
    subtopics,
)
from keras_rank.metrics.base import ExposureMetric, RankingMetric

# The types of metrics that a group can hold.
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
# The arguments that some names imply.
_IMPLIED = {name: {"normalizer": "clipped"} for name in ("recall_cap", "R_cap")}
# The names of metrics by their lowercase form. Strings are read in any case.
_BY_LOWER_CASE = {name.lower(): name for name in BY_NAME}

# The names in trec_eval (lowercase, `P`, `Rprec`), ndeval and ir_measures, with `k` for
# a cutoff, as docs/tables.md lists them. `P.5` is also accepted for `P_5`. The names of
# ir_measures also accept arguments, as in `AP(rel=2)@100`.
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
# The names of other tools without their cutoffs. A name that needs a cutoff there is
# invalid without one, even if a metric of this package has the same name in lowercase.
NAMES_IN_OTHER_TOOLS = {
    re.sub("[_@]k$", "", x) for x in " ".join(_SPELLINGS.values()).split()
}
NAMES_IN_OTHER_TOOLS -= BY_NAME.keys()
_NAME_BY_SPELLING = {
    spelling: name
    for name, spellings in _SPELLINGS.items()
    for spelling in spellings.split()
}

# The syntax of a string, in ASCII: name(argument=value, ...)@k. `_PAIR` matches
# `argument=value`, as `_ARGUMENT` does, but without groups. A value is a number, a
# word, or a table of labels and gains: `gains='0:0,1:3'` or `gains={0: 0, 1: 3}`.
_TABLE = r"[\d.+eE:, -]+"
_QUOTED = rf"""'[\w.+-]+'|"[\w.+-]+"|'{_TABLE}'|"{_TABLE}"|\{{{_TABLE}\}}"""
_ARGUMENT = rf" *(\w+) *= *({_QUOTED}|[\w.+-]+) *"
_PAIR = _ARGUMENT.replace("(", "(?:")
_STRING = re.compile(
    rf"(?P<stem>(?P<name>[\w-]+?)(?:\((?P<arguments>{_PAIR}(?:,{_PAIR})*)\))?)"
    r"(?:(?P<sign>@|_at_|_|\.)(?P<k>[0-9]{1,18}))?",
    re.ASCII,
)
# A string with any arguments, and a comma between arguments, outside of brackets.
_CALL = re.compile(r"[\w-]+\((?P<arguments>.*)\)(?:(?:@|_at_|_|\.)[0-9]+)?", re.DOTALL)
_COMMA = re.compile(r",(?![^\[({]*[\])}])")
_NUMBER = re.compile(
    r"[+-]?((?P<whole>[0-9]{1,18})|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)",
    re.IGNORECASE,
)
_GAINS_FORM = "the gain of each label once, as in \"ndcg(gains='0:0,1:1,2:3')@10\""
_WORDS = {"true": True, "false": False, "none": None}


class ParsedMetric(NamedTuple):
    """The parts of a metric string such as `"rbp(persistence=0.9)@10"`.

    Attributes:
        name: the name of the metric.
        arguments: the arguments of the metric, by name.
        k: the cutoff, or `None` without one.
        sign: the separator before the cutoff: `"@"`, `"_at_"`, `"_"` or `"."`.
        stem: the string before the separator.
    """

    name: str
    arguments: dict[str, Any]
    k: int | None
    sign: str
    stem: str


def parse_metric(string: str) -> ParsedMetric | None:
    """Returns the parts of a metric string, or `None` if its syntax is invalid."""
    match = _STRING.fullmatch(string)
    if match is None:
        return None
    name, sign, k, stem, argument_text = match.group(
        "name", "sign", "k", "stem", "arguments"
    )
    arguments: dict[str, Any] = {}
    for argument, text in re.findall(_ARGUMENT, argument_text or ""):
        if argument in arguments:
            raise ValueError(f"`{argument}` should be given once. Received: {string!r}")
        arguments[argument] = _parse_value(text)
    return ParsedMetric(
        name, arguments, None if k is None else int(k), sign or "", stem
    )


def _parse_value(text: str) -> Any:
    """Returns the value of an argument: a boolean, `None`, a number or a word."""
    if text[0] in "'\"":
        return text[1:-1]
    number = _NUMBER.fullmatch(text)
    if number:
        return int(text) if number["whole"] else float(text)
    return _WORDS.get(text.lower(), text)


def normalize_name(name: str) -> str:
    """Returns a metric name in its registered case. Unknown names stay unchanged."""
    return name if name in BY_NAME else _BY_LOWER_CASE.get(name.lower(), name)


def create_metric(
    string: str, parts: ParsedMetric | None, name: str | None = None
) -> Member:
    """Creates the metric that a string specifies.

    Args:
        string: the string, for error messages.
        parts: the parts of the string, with a name and arguments of this package.
        name: the name of the metric. Defaults to the string, converted to an identifier
            for Keras's logs.
    """
    if parts is not None:
        stem = normalize_name(parts.name) + parts.stem.removeprefix(parts.name)
        parts = parts._replace(name=normalize_name(parts.name), stem=stem)
    if parts is None or parts.sign in ("_", ".") or parts.name not in BY_NAME:
        raise _unknown_metric_error(string)
    check_arguments(string, parts, _find_arguments(parts.name))
    if name is None:
        name = re.sub(r"[\W_]+", "_", parts.stem).strip("_")
        name += "" if parts.k is None else f"_at_{parts.k}"
    arguments = {**_IMPLIED.get(parts.name, {}), **parts.arguments}
    if "gains" in arguments:
        if "gain_fn" in arguments:
            expected = "without `gain_fn`, as it sets the gains of all labels"
            raise argument_error("gains", expected, arguments["gains"])
        arguments["gain_fn"] = by_label(_parse_gains(arguments.pop("gains")))
    return BY_NAME[parts.name]._create_member(k=parts.k, name=name, **arguments)


def _parse_gains(text: Any) -> dict[float, float]:
    """Returns the gains by label of a table such as `"0:0,1:3"` or `"{0: 0, 1: 3}"`."""
    try:
        pairs = [pair.split(":") for pair in str(text).strip("{}").split(",")]
        labels, gains = (
            [float(x) for x in column] for column in zip(*pairs, strict=True)
        )
        if len(set(labels)) < len(labels):
            raise ValueError
    except ValueError as error:
        raise argument_error("gains", _GAINS_FORM, text) from error
    return dict(zip(labels, gains, strict=True))


def _unknown_metric_error(string: str) -> ValueError:
    """Returns the error for a string that does not specify a metric."""
    call = _CALL.fullmatch(string)
    for argument in _COMMA.split(call["arguments"]) if call else ():
        name = argument.partition("=")[0].strip()
        is_named = "=" in argument and re.fullmatch(r"\w+", name, re.ASCII)
        if is_named and name == "gains":
            return argument_error("gains", _GAINS_FORM, argument.partition("=")[2])
        if is_named and not re.fullmatch(_ARGUMENT, argument, re.ASCII):
            return ValueError(
                f"`{name}` should be a number or a word in a string, as in "
                '"rbp(persistence=0.9)@10"; metrics such as '
                "`keras_rank.metrics.NDCG(k=10)` take other values. "
                f"Received: {string!r}"
            )
    parts, end = parse_metric(string), ""
    if parts is not None and translate_name(parts) is not None:
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


def _find_arguments(name: str) -> list[str]:
    """Returns the names of the arguments that a string may set in parentheses."""
    excluded = {"k", "name", *_IMPLIED.get(name, ())}
    parameters = inspect.signature(BY_NAME[name]).parameters
    gains = ["gains"] if "gain_fn" in parameters else []
    return [*(x for x in parameters if x not in excluded), *gains]


def check_arguments(
    string: str, parts: ParsedMetric, accepted: Collection[str]
) -> None:
    """Raises `ValueError` if the string sets an argument that the metric lacks."""
    for unknown in parts.arguments:
        if unknown not in accepted:
            raise ValueError(
                f"`{unknown}` should be an argument of `{parts.name}`, whose cutoff "
                f"follows @. Received: {string!r}{suggestion(unknown, accepted)}"
            )


def translate_name(parts: ParsedMetric) -> str | None:
    """Returns the registered name for a name in trec_eval, ndeval or ir_measures.

    Returns `None` if no such tool has the name.
    """
    key = parts.name + ("" if parts.k is None else parts.sign.replace(".", "_") + "k")
    # Only the names of ir_measures take arguments.
    if parts.arguments and (parts.name.islower() or parts.sign in ("_", ".")):
        return None
    return _NAME_BY_SPELLING.get(key)
