"""Evaluation of judgments and runs in files: forms, rules, and trec_eval's values."""

import copy
import gzip
import json
import pickle
import re
import shutil
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from commands import run_command
from tables import IN_MEMORY, health_checks, make_rows, raises, write, write_texts
from unpublished_data import find_data_file

from keras_rank.evaluation import Evaluation, Table, evaluate, evaluate_run
from keras_rank.evaluation.lists.metric_names import create_metric_by_rules
from keras_rank.metrics import DCG, NDCG, PrecisionAtK, PrecisionIA
from keras_rank.reading.text import LinesPart
from keras_rank.utils import targets_from_qrels


def mrr(qrels, run, **arguments):
    return evaluate_run(qrels, run, ["mrr"], **arguments)["mrr"]


def get_values(evaluation):
    """Returns the value of each metric, by query."""
    return {
        row[evaluation.query]: {name: row[name] for name in evaluation.metric_names}
        for row in evaluation.per_list.to_pylist()
    }


def evaluate_by_pytrec_eval(qrels, run, measures=("ndcg_cut.10",), **arguments):
    """Returns the values of pytrec_eval, by query."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    judged = pytrec_eval.RelevanceEvaluator(qrels, {*measures}, **arguments)
    return judged.evaluate(run)


def assert_equal(evaluation, expected):
    """Asserts that the values of all queries equal those of pytrec_eval."""
    found = get_values(evaluation)
    assert set(found) == set(expected)
    for query, by_measure in found.items():
        expected_values = {
            name: expected[query][SAME.get(name, name)] for name in by_measure
        }
        assert by_measure == pytest.approx(expected_values, abs=1e-6), query


CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
CUT = ("P", "recall", "map_cut", "ndcg_cut")
MEASURES = [
    "map",
    "Rprec",
    "bpref",
    "recip_rank",
    "ndcg",
    "set_P",
    "set_recall",
    "set_F",
]
MEASURES += [f"{name}_{k}" for name in CUT for k in CUTOFFS]
MEASURES += [f"success_{k}" for k in (1, 5, 10)]


# Values of trec_eval.


def test_the_files_of_trec_eval():
    """The values of all shared measures equal those in trec_eval's own test files."""
    names = ("qrels.test", "results.test", "out.test.aq")
    *files, printed = (find_data_file(f"trec_eval/{name}") for name in names)
    found = evaluate_run(*files, MEASURES)
    by_query = {**get_values(found), "all": found.to_dict()}
    rows = [line.split(maxsplit=2) for line in printed.read_text().splitlines()]
    compared = [row for row in rows if row[0] in MEASURES]
    assert len(compared) == len(MEASURES) * len(by_query) == len(MEASURES) * 4
    for measure, query, value in compared:
        assert f"{by_query[query][measure]:.4f}" == value


def make_graded_run(seed, queries=40):
    """Returns judgments from -1 to 4 and a run with ties, with numbers as item ids."""
    rng = np.random.default_rng(seed)
    qrels, run = {}, {}
    for query in range(queries):
        items = [str(item) for item in rng.permutation(120)]
        judged = rng.integers(1, 60)
        shares = [0.1, 0.5, 0.2, 0.1, 0.05, 0.05]
        labels = rng.choice([-1, 0, 1, 2, 3, 4], judged, p=shares)
        qrels[f"q{query}"] = dict(zip(items, labels.tolist(), strict=False))
        retrieved = items[rng.integers(0, 40) :]
        scores = np.round(rng.normal(size=len(retrieved)), rng.integers(0, 3))
        run[f"q{query}"] = dict(zip(retrieved, scores.tolist(), strict=True))
    return qrels, run


# The measures of trec_eval, each followed by its other names.
NAMES = [
    *("ndcg_cut_10 ndcg@10 nDCG@10 NDCG@10 ndcg_cut.10", "ndcg nDCG", "map AP"),
    *("map_cut_5 map@5 MAP@5", "map_cut_100 AP@100", "recip_rank RR mrr"),
    *("P_5 P@5 P.5 precision@5", "recall_20 R@20 Recall@20 recall@20", "set_F SetF"),
    *("success_5 Success@5 hit_rate@5", "Rprec r_precision RPrec", "bpref Bpref"),
    *("set_P precision SetP", "set_recall SetR"),
]
SAME = {ours: names[0] for names in map(str.split, NAMES) for ours in names[1:]}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rules_or_judged", ["trec_eval", "trec_eval-9", "judged"])
def test_graded_runs_with_ties_equal_trec_eval(seed, rules_or_judged):
    """Values equal those of trec_eval, even if all judgments of a query are below 0."""
    qrels, run = make_graded_run(seed, queries=60)
    qrels["q60"], run["q60"] = {"1": -1, "2": -1}, {"2": 0.5, "3": 0.4}
    arguments = (
        {"unjudged": "drop"}
        if rules_or_judged == "judged"
        else {"rules": rules_or_judged}
    )
    if rules_or_judged == "trec_eval-9":
        # The scores tie in float32 only, which version 10 does not use.
        run = {q: {d: 25_000 + s * 1e-4 for d, s in x.items()} for q, x in run.items()}
    measures = {re.sub(r"_(\d+)$", r".\1", name) for name in MEASURES}
    expected = evaluate_by_pytrec_eval(
        qrels, run, measures, judged_docs_only_flag=rules_or_judged == "judged"
    )
    found = evaluate_run(qrels, run, [*MEASURES, *SAME], **arguments)
    assert_equal(found, expected)


def test_scores_beyond_float32(tmp_path):
    """Scores beyond the range of float32 are infinite by the rules of version 9."""
    qrels, low = {"1": {"b": 1}}, {"1": {"b": -1.797e308, "a": 0.5}}
    (high,) = write_texts(tmp_path, run="1 Q0 b 1 1e39 t\n1 Q0 a 2 inf t\n")
    for rules, expected in (("trec_eval", 0.5), ("trec_eval-9", 1.0)):
        assert mrr(qrels, high, rules=rules) == expected
        assert mrr(qrels, low, rules=rules) == 0.5
    of_pytrec_eval = evaluate_by_pytrec_eval(
        qrels, {"1": {"b": 1e39, "a": np.inf}}, ["recip_rank"]
    )
    assert of_pytrec_eval["1"]["recip_rank"] == 1.0


def test_rules_change_values_and_are_noted():
    qrels, run = make_graded_run(1)
    names, notes = ["ndcg@10", "precision@5"], {}
    notes["trec_eval"] = "Rules: trec_eval (version 10)"
    notes["trec_eval-9"] = "Rules: trec_eval-9 (version 9, pytrec_eval)"
    notes["keras"] = "Rules: keras"
    found = {rules: evaluate_run(qrels, run, names, rules=rules) for rules in notes}
    for rules, note in notes.items():
        gains = "exponential, 2**label - 1" if rules == "keras" else "linear, the label"
        assert found[rules].summary().notes == [note, f"Gains: {gains}."]
    assert abs(found["trec_eval"]["ndcg@10"] - found["keras"]["ndcg@10"]) > 1e-3
    own = evaluate_run(qrels, run, [NDCG(k=10), PrecisionAtK(k=5)], ties="metric")
    expected = list(found["keras"].to_dict().values())
    assert list(own.to_dict().values()) == pytest.approx(expected)
    assert str(own).splitlines()[3] == "Rules: trec_eval (version 10), ties=metric"


def test_trec_eval_reads_labels_as_integers():
    qrels = {"1": {"a": 2.5, "b": 0.5, "c": 1.9}, "2": {"a": -0.5, "b": 1}}
    run = {"1": {"b": 0.9, "a": 0.8, "c": 0.7}, "2": {"a": 0.9, "b": 0.8}}
    whole = {"1": {"a": 2, "b": 0, "c": 1}, "2": {"a": 0, "b": 1}}
    measures = ["ndcg", "map", "bpref", NDCG(name="gains of this package")]
    for unjudged in ("irrelevant", "drop"):
        found = evaluate_run(qrels, run, measures, unjudged=unjudged)
        same = evaluate_run(whole, run, measures, unjudged=unjudged)
        assert found.to_dict() == same.to_dict()
    rules, gains, truncated, few = found.summary().notes
    assert gains == (
        "Gains: linear, the label (ndcg); "
        "exponential, 2**label - 1 (gains of this package)."
    )
    assert truncated == "Labels that are fractions were truncated, as in trec_eval."
    (warning,) = found.warnings
    assert "2 of 2 lists have labels that are fractions, which trec_eval" in warning
    assert rules == "Rules: trec_eval (version 10), unjudged=drop"
    assert same.summary().notes == [rules, gains, few]
    ours = evaluate_run(qrels, run, [DCG()], rules="keras")
    dcg = (2**0.5 - 1) + (2**2.5 - 1) / np.log2(3) + (2**1.9 - 1) / 2
    assert ours.per_list["dcg"][0].as_py() == pytest.approx(dcg)
    gains = "Gains: exponential, 2**label - 1."
    assert ours.summary().notes == ["Rules: keras", gains, few]
    assert ours.warnings == same.warnings == []


def test_a_spelling_has_one_definition_by_all_rules_and_in_tables():
    """`ndcg_cut_10` has linear gains by all rules and in tables."""
    for rules in ("trec_eval", "keras"):
        assert (
            create_metric_by_rules("ndcg_cut_10", rules).get_config()["gain_fn"]
            == "linear"
        )
    assert (
        create_metric_by_rules("ndcg@10", "keras").get_config()["gain_fn"]
        == "exponential"
    )
    same = NDCG(k=5, gain_fn="linear", name="same")
    found = evaluate(make_rows(), ["nDCG@5", same, "P_5", "ndcg@10"])
    assert found["nDCG@5"] == found["same"]
    assert found["P@5"] == found["P_5"]
    for each in (found, evaluate_run(*make_graded_run(0), ["ndcg@10"], rules="keras")):
        assert each["ndcg_at_10"] == each["ndcg@10"]
        with pytest.raises(KeyError, match="should be the name of a metric"):
            each["ndcg_cut_10"]


# Measures of gdeval, a Perl program that prints some values with five digits.
OF_GDEVAL = ["nDCG(dcg='exp-log2')@10", 'nDCG(dcg="exp-log2")@3', "ERR@5"]


@pytest.mark.parametrize("rules", ["trec_eval", "keras"])
def test_arguments_of_ir_measures(rules):
    pytest.importorskip("pytrec_eval")
    ir_measures = pytest.importorskip("ir_measures")
    qrels, run = make_graded_run(0)
    qrels, run = ({q[1:]: x for q, x in side.items()} for side in (qrels, run))
    names = ["nDCG(dcg='log2')@10", "AP(rel=2)@100", "AP(rel=3)", "Bpref(rel=2)"]
    names += ["RR( rel = 2 )", "P(rel=2)@5", "R(rel=4)@20", "Success(rel=3)@5"]
    names += ["Rprec(rel=2)", "SetP(rel=2)", "SetR(rel=2)", "SetF(rel=2)"]
    names += OF_GDEVAL if shutil.which("perl") else []
    measures = {ir_measures.parse_measure(name): name for name in names}
    by_query = get_values(
        evaluate_run(qrels, run, names, rules=rules, ties="trec_eval")
    )
    for each in ir_measures.iter_calc([*measures], qrels, run):
        name = measures[each.measure]
        precision = 1e-5 if name in OF_GDEVAL else 1e-6
        value = by_query[each.query_id][name]
        assert value == pytest.approx(each.value, abs=precision), each


def test_rbp_of_ir_measures_has_a_relevance_level():
    """RBP with `rel` has binary gains, as in cwl_eval, and graded gains without it.

    The values of cwl_eval differ from these by 1e-7.
    """
    qrels, run = {"1": {"a": 2, "b": 1, "c": 3}}, {"1": ["a", "b", "x", "c"]}
    expected = {
        "RBP(rel=1,p=0.9)": 0.1 * (1 + 0.9 + 0.9**3),
        "RBP(rel=2)": 0.2 * (1 + 0.8**3),
        "RBP(p=0.5, rel=1)@3": 0.5 * (1 + 0.5),
        "rbp(persistence=0.5)@3": 0.5 * (1 + 0.5),
    }
    found = evaluate_run(qrels, run, [*expected])
    assert found.to_dict() == pytest.approx(expected)
    assert found["rbp(persistence=.9)"] == found["RBP(rel=1,p=0.9)"]


def test_arguments_of_a_string_override_rules():
    qrels, run = make_graded_run(1)
    gains, slots = "ndcg(gain_fn=exponential)@10", "precision(denominator=available)@50"
    of_rules = [evaluate_run(qrels, run, [gains, slots, "ndcg@10"], rules="trec_eval")]
    of_rules += [evaluate_run(qrels, run, [gains, slots], rules="keras", ties="metric")]
    for found in of_rules:
        definitions = {x.name: x.definition for x in found._values.metrics}
        assert definitions[gains]["gain_fn"] == "exponential"
        assert definitions[slots]["denominator"] == "available"
    assert of_rules[0][gains] == of_rules[0]["nDCG(dcg=exp-log2)@10"]
    assert of_rules[0][gains] != of_rules[0]["ndcg@10"] == of_rules[0]["nDCG@10"]


OF_ARGUMENTS = {
    "RBP(p=0.8)@10": 'the lowest relevant label, as in "RBP(rel=1,p=0.8)@10": without',
    "RBP": "the labels for gains, and values above 1. Received: 'RBP'",
    "RBP(rel=1,p=2)": "`p` should be a number between 0 and 1, both excluded. Received",
    "RBP(rel=1,P=0.8)": "`P` should be an argument of `RBP`, whose cutoff follows @",
    "AP(rel=0)": "`rel` should be a positive integer. Received: rel=0",
    "AP(rel=1.5)": "`rel` should be a positive integer. Received: rel=1.5",
    "AP(rel=none)": "`rel` should be a positive integer. Received: rel=None",
    "AP(rel=2,rel=3)": "`rel` should be given once. Received: 'AP(rel=2,rel=3)'",
    "AP(judged_only=True)": "'AP(judged_only=True)'. Known names are ['rel']",
    "nDCG(rel=2)@10": "'nDCG(rel=2)@10'. Known names are ['dcg', 'gains']",
    "nDCG(dcg=exp)@5": "`dcg` should be one of ['log2', 'exp-log2']. Received: dcg='ex",
    "ERR(rel=2)@5": "`rel` should be an argument of `ERR`, whose cutoff follows @.",
    "ERR_IA(alpha=0.2)@5": "'ERR_IA(alpha=0.2)@5'. Known names are ['rel']",
    "SetF(beta=2.0)": "'SetF(beta=2.0)'. Known names are ['rel']",
    "judged(rel=2)@3": "`rel` should be an argument of `judged`",
    "P(rel=2)_5": "Received: 'P(rel=2)_5'. Did you mean \"p(rel=2)@5\"?",
    "nDCG(gains={2:1})@10": "each label. Received: gains={2.0: 1.0} and a label with",
    "nDCG(gains={1:a})@10": "`gains` should be the gain of each label once, as in",
    "map(rel=2)": "'map(rel=2)'. Known names are ['normalizer', ",
    "coverage(items=3)@2": "should have a value for each list. Received: 'coverage(",
}


@pytest.mark.parametrize("string", OF_ARGUMENTS)
def test_arguments_that_a_spelling_does_not_have(string):
    with raises(OF_ARGUMENTS[string]):
        evaluate_run({"q": {"a": 1}}, {"q": {"a": 1}}, [string])


UNKNOWN = dict.fromkeys(["P", "ndcg_cut", "gm_bpref", "ERR_20", "R@"], "")
UNKNOWN["precison_5"] = '. Did you mean "precision@5"'


@pytest.mark.parametrize("string", UNKNOWN)
def test_unknown_measures(string):
    with raises(f"Received: {string!r}{UNKNOWN[string]}"):
        evaluate_run({"q": {"a": 1}}, {"q": {"a": 1}}, [string])


def test_names_have_the_definitions_of_other_tools_in_any_case():
    strings = {"hr@10": "HitRate(k=10)", "HR@10": "HitRate(k=10)"}
    strings |= dict.fromkeys(
        ["Ndcg@9", "nDCG@9", "ndcg@9"], "NDCG(k=9, gain_fn=linear)"
    )
    for name in ("p@5", "P@5", "Precision@5", "PRECISION@5"):
        strings[name] = "PrecisionAtK(k=5, denominator='k')"
    for string, call in strings.items():
        assert create_metric_by_rules(string, "trec_eval")._format_call() == call
    calls = {
        x: create_metric_by_rules(x, "keras")._format_call()
        for x in ("p@5", "P@5", "Ndcg@9")
    }
    assert calls["p@5"] == "PrecisionAtK(k=5)"
    assert calls["P@5"] == "PrecisionAtK(k=5, denominator='k')"
    assert calls["Ndcg@9"] == "NDCG(k=9)"


def test_evaluations_with_different_definitions_or_rules_are_not_mixed(tmp_path):
    qrels, run = make_graded_run(0)
    halves = [{q: x for q, x in qrels.items() if int(q[1:]) % 2 == i} for i in (0, 1)]
    names = ["ndcg@10", "mrr"]
    one, same, whole = (evaluate_run(x, run, names) for x in (*halves, qrels))
    both = Evaluation(pa.concat_tables([one.table, same.table]))
    assert both.to_dict() == pytest.approx(whole.to_dict())
    chosen = [each._values.select_metrics(["mrr"]).table for each in (one, same)]
    assert Evaluation(pa.concat_tables(chosen))["mrr"] == both["mrr"]
    whole.write(tmp_path / "lists.parquet")
    again = Evaluation.read(tmp_path / "lists.parquet")
    rules, gains = "Rules: trec_eval (version 10)", "Gains: linear, the label."
    assert again.summary().notes == [rules, gains]
    gains = "Received: 'ndcg@10' with {'gain_fn': 'exponential'} and {'gain_fn': 'l"
    of_models = "`baseline` should be evaluated by the rules of the models"
    keras = evaluate_run(qrels, run, names, rules="keras")
    ties = evaluate_run(qrels, run, names, ties="metric")
    for other, message in ((keras, gains), (ties, of_models)):
        for each in (whole, again):
            with raises(message):
                each.compare(other)
    with raises("`baseline` should have metrics that are computed as those of the mo"):
        whole.worst("ndcg@10", baseline=keras)
    for other in (keras, ties):
        with raises("`table` should be of evaluations with the same definitions"):
            Evaluation(pa.concat_tables([one.table, other.table]))


# Forms of files.

QRELS = {"1": {"a": 2, "b": 0, "d": 1}, "2": {"a": 1}}
RUN = {"1": {"x": 0.9, "a": 0.8, "b": 0.1}, "2": {"a": 0.5}}
OF_1 = pytest.approx((2 / np.log2(3)) / (2 + 1 / np.log2(3)))
EXPECTED = {"1": {"ndcg@10": OF_1}, "2": {"ndcg@10": 1.0}}


def to_columns(rows, names):
    return dict(zip(names.split(), map(list, zip(*rows, strict=True)), strict=True))


def list_rows(items_by_query):
    return [(q, d, x) for q, items in items_by_query.items() for d, x in items.items()]


def format_lines(items_by_query, line):
    return "".join(line.format(*row) for row in list_rows(items_by_query))


def table(items_by_query, names):
    return pa.table(to_columns(list_rows(items_by_query), names))


def to_csv(items_by_query, names, sep=","):
    return table(items_by_query, names).to_pandas().to_csv(index=False, sep=sep)


def to_json_lines(items_by_query, names):
    return (
        table(items_by_query, names).to_pandas().to_json(orient="records", lines=True)
    )


def to_parquet(items_by_query, names):
    return table(items_by_query, names).to_pandas().to_parquet()


BEIR = "query-id corpus-id score"
# Names of columns in files, whose case is ignored.
TABLES = [
    *(BEIR, "QUERY_ID Item_ID LABEL", "query_id DOC_ID Relevance", "q_id doc_id Score"),
    *("QID DocNo label", "Query docid rel", "user_id item_id Rating"),
]
FORMS = {
    "trec": (
        format_lines(QRELS, "{} 0 {} {}\n"),
        format_lines(RUN, "{} Q0 {} 0 {} t\n"),
    ),
    "tabs": (
        format_lines(QRELS, "{}\t0\t{}\t{}\n"),
        format_lines(RUN, "{}\tQ0\t{}\t0\t{}\n"),
    ),
    "three fields": (
        format_lines(QRELS, "{} {} {}\n"),
        format_lines(RUN, "{}\t{}\t{}\n"),
    ),
    "beir": (to_csv(QRELS, BEIR, sep="\t"), json.dumps(RUN)),
    "nested": (json.dumps(QRELS), json.dumps(RUN, indent=2)),
    "json lines": (
        to_json_lines(QRELS, "qid docno label"),
        to_json_lines(RUN, "qid docno score"),
    ),
    "parquet": (to_parquet(QRELS, BEIR), to_parquet(RUN, "q_id doc_id score")),
}
for names in TABLES:
    query, item, _ = names.split()
    # The words of names may be separated by spaces.
    run = to_csv(RUN, f"{query} {item} Score", sep="\t").replace("_", " ")
    FORMS[names] = to_csv(QRELS, names), run
SUFFIXES = {"trec": ("", ".txt", ".tsv", ".gz", ".GZ"), "parquet": ("", ".parquet")}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_files(tmp_path, capsys, form):
    """The form of a file is detected from its contents, whatever its suffix is."""
    for suffix in SUFFIXES.get(form, (".csv", "")):
        files = [tmp_path / f"{name}{suffix}" for name in ("qrels", "run")]
        pack = gzip.compress if suffix.lower() == ".gz" else bytes
        for file, content in zip(files, FORMS[form], strict=True):
            content = content.encode() if isinstance(content, str) else content
            file.write_bytes(pack(content))
        found = evaluate_run(*files, ["ndcg@10"])
        assert {str(q): x for q, x in get_values(found).items()} == EXPECTED
        line = ["evaluate", *map(str, files), "-m", "ndcg@10", "-o", "tsv"]
        assert run_command(line) == 0
        printed = capsys.readouterr().out.splitlines()[1].split("\t")
        assert float(printed[1]) == pytest.approx(found["ndcg@10"])


# Rows without column names, separated by commas here. An iteration is `0` or `Q0`.
NAMELESS = dict.fromkeys(
    ["1,0,7,1 1,0,8,0", "q,Q0,7,1 q,0,8,0", "q,7,1 q,8,0"], "qrels"
)
RUNS = ["1,Q0,8,1,.9,t 1,Q0,7,2,.8,t", "1,0,8,1,.9 1,0,7,2,.8", "1,8,.9 1,7,.8"]
NAMELESS |= dict.fromkeys(RUNS, "run")
UNCLEAR = ["196,242,3,881250949 186,302,3,891717742", "1,7,1,0 1,8,0,0", "1,it,7,1"]
UNCLEAR += ["q,4.5,7b,1 q,1,8b,0"]
UNCLEAR = {**dict.fromkeys(UNCLEAR, "qrels"), "1,7,1,.9 1,8,2,.8": "run"}
PLACES = {3: (0, 1, 2), 4: (0, 2, 3), 5: (0, 2, 4), 6: (0, 2, 4)}


def write_rows_without_names(tmp_path, name, text, delimiter):
    rows = text.replace(",", delimiter).replace(" ", "\n")
    (tmp_path / name).write_text(rows + "\n")
    return tmp_path / name


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
@pytest.mark.parametrize("text", NAMELESS)
def test_rows_without_names(tmp_path, text, delimiter):
    """Rows without names are read by column numbers, or as TREC lines with tabs.

    The item 7 is the relevant item, and the last item of runs.
    """
    name, fields = NAMELESS[text], text.split()[0].split(",")
    sides = {"qrels": {text[0]: {"7": 1}}, "run": {text[0]: {"8": 0.9, "7": 0.8}}}
    numbers = {"qrels": "label", "run": "score"}
    named = dict(
        zip(("query", "item", numbers[name]), PLACES[len(fields)], strict=True)
    )
    named = {role: f"column{place}" for role, place in named.items()}
    for suffix in ("", ".csv", ".txt"):
        sides[name] = write_rows_without_names(tmp_path, name + suffix, text, delimiter)
        assert mrr(**sides, **named) == 0.5
        if delimiter == "\t":
            assert mrr(**sides) == 0.5
            continue
        with raises(f"{sides[name]}. Known names are {fields}: without na") as error:
            mrr(**sides)
        assert 'they are "column0", "column1" and so on' in str(error.value)


@pytest.mark.parametrize("text", UNCLEAR)
def test_ambiguous_lines_are_errors(tmp_path, text):
    name, number = UNCLEAR[text], "score" if UNCLEAR[text] == "run" else "label"
    sides = {"qrels": {"1": {"7": 1}}, "run": {"1": {"7": 0.9}}}
    sides[name] = write_rows_without_names(tmp_path, name, text, "\t")
    first = text.split()[0].replace(",", "\t")
    with raises(f"{sides[name]}, whose first line is {first!r}: say which ") as error:
        mrr(**sides)
    assert f"the `{number}` (--query, --item, --{number})" in str(error.value)


TEXTS = [
    # Comments, blank lines, missing tags and tags with spaces are accepted.
    (
        "# judged by 2\n1 0 a 1\n#\n\n2 0 b 1\n",
        "# made by\n1 Q0 a 1 0.9 my tag\n2 Q0 c 1 0.9\n#x\n2 Q0 b 2 0.8 t 1\n",
        {"1": 1.0, "2": 0.5},
    ),
    # Tabs in comments do not separate columns.
    ("#by\tme\n1 it 7 1\n2 at 8 1\n", "1 7 .5\n", {"1": 1.0, "2": 0.0}),
]
# Comments, iterations, items and tags that contain delimiters.
for start, it, item, tag in (
    ("", "0", "doc|12|3", "t"),
    ("", "it", "a,5,b", "t"),
    ("", "Q0", "GX;1;2", "mono|5|x"),
    ("", "0", "5,5", "bm25,k1=1,0.4"),
    ("# bm25, 0.9, 0.4\n", "it", "a", "t"),
    ("#,1\n# a\tb,2\r\n", "Q0", "a", "a;1"),
):
    found = f"{start}{item} {it} x 1 0.9 {tag}\n{item} {it} {item} 2 0.8 {tag}\n"
    TEXTS.append((f"{start}{item} {it} {item} 1\n", found, {item: 0.5}))


@pytest.mark.parametrize(("qrels", "run", "expected"), TEXTS)
def test_lines_of_text(tmp_path, qrels, run, expected):
    files = write_texts(tmp_path, qrels=qrels, run=run)
    found = get_values(evaluate_run(*files, ["mrr"]))
    assert found == {query: {"mrr": value} for query, value in expected.items()}


SPACED = ["1, Q0, 7, 1, .9, t", "1, 0, 7, 1, .9 , t", "1, 7, .9", "1; 0; 7; 1; .9"]


@pytest.mark.parametrize("line", SPACED)
def test_columns_between_delimiters_and_spaces(tmp_path, line):
    qrels, run = write_texts(tmp_path, qrels="1, 0, 7, 1\n", run=line)
    for given in (({"1": {" 7": 1}}, run), (qrels, {"1": [" 7"]})):
        with raises("Received: "):
            mrr(*given)


# Columns that only one side has.

GOLD = "query_id,gold,label\n1,a,1\n"
RETRIEVED = '{"query_id": "1", "retrieved": "x", "score": 0.9}\n'
RETRIEVED += '{"query_id": "1", "retrieved": "a", "score": 0.8}\n'
TOPICS = RETRIEVED.replace("query_id", "topic").replace("retrieved", "doc_id")


@pytest.mark.parametrize("role", ["query", "item"])
def test_a_named_column_of_one_side(tmp_path, capsys, role):
    """A named column may be on one side only if the other side has a known name."""
    found, name = (RETRIEVED, "retrieved") if role == "item" else (TOPICS, "topic")
    qrels, run = write_texts(tmp_path, qrels=GOLD.replace("gold", "doc_id"), run=found)
    named = {role: name}
    assert mrr(qrels, run, **named) == 0.5
    table = pd.read_json(run, lines=True).astype({"score": float})
    assert mrr(pd.read_csv(qrels), table, **named) == 0.5
    assert mrr({"1": ["a"]}, run, **named) == 0.5
    files = [str(qrels), str(run)]
    options = ["-m", "mrr", "-o", "tsv", f"--{role}", name]
    assert run_command(["evaluate", *files, *options]) == 0
    assert "mrr\t0.5\t" in capsys.readouterr().out


def test_a_named_column_of_the_judgments(tmp_path):
    run = RETRIEVED.replace("retrieved", "docno")
    files = write_texts(tmp_path, qrels=GOLD, run=run)
    assert mrr(*files, item="gold") == 0.5
    qrels = pd.DataFrame({"query_id": ["1"], "gold": [["a"]]})
    assert mrr(qrels, pd.read_json(files[1], lines=True), item="gold") == 0.5


def test_a_named_column_of_neither_side(tmp_path):
    qrels, run = write_texts(tmp_path, qrels=GOLD, run=RETRIEVED)
    with raises("`item` should name a column. Received: item='got', wh") as error:
        mrr(qrels, run, item="got")
    names = ["query_id", "gold", "label", "retrieved", "score"]
    end = f"which is not in {qrels} or {run}. Known names are {names}"
    assert str(error.value).endswith(end)
    # A side without the named column needs a known name.
    for item, file in (("gold", run), ("retrieved", qrels)):
        with raises(f"item={item!r}, which is not in {file}"):
            mrr(qrels, run, item=item)
    # Dicts have no columns, so the run needs the column.
    with raises(f"item='got', which is not in {run}"):
        mrr({"1": ["a"]}, run, item="got")


# Cells with several ids.

MERGED = "item ids that may be several ids ({}), such as {!r} in {}: a cell is read"
FOUND = {"1": ["a3", "b3", "x"], "2": ["c", "a"]}
SEVERAL = [
    "a3 b3",
    "['a3', 'b3']",
    '["a3","b3"]',
    "a3,b3",
    "a3|b3",
    "a3; b3",
    "{a3,b3}",
]
SEVERAL += ["('a3', 'b3')", "['a3']", "a3\tb3", "a3\nb3", "a3\u00a0b3"]
SINGLE = ["a3-b3", "a3/b3", "US|123", "z;1", "{3F2504E0}", "10.1016/S0140(05)67"]


def find_id_warnings(evaluation):
    return [x for x in evaluation.warnings if "several ids" in x]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("id_", [*SEVERAL, *SINGLE])
def test_cells_with_several_ids(tmp_path, id_, suffix):
    """Cells that may be several ids give a warning, in files and in memory."""
    rows = {"query_id": ["1", "2"], "item_id": [id_, "a"], "label": [1, 1]}
    file = tmp_path / f"qrels.{suffix}"
    write(pa.table(rows), file)
    is_several = id_ in SEVERAL or (suffix == "csv" and id_ == "{3F2504E0}")
    warning = f"Warning: `qrels` has {MERGED.format(1, id_, file)}"
    found = evaluate_run(file, FOUND, ["recall"])
    assert [x.startswith(warning) for x in find_id_warnings(found)] == [
        True
    ] * is_several
    assert found["recall"] == 0.5
    scored = {**rows, "score": [0.5, 0.4]}
    write(pa.table(scored), file)
    found = find_id_warnings(
        evaluate_run({x: set(y) for x, y in FOUND.items()}, file, ["mrr"])
    )
    assert ["`run` has" in x for x in found] == [True] * is_several
    is_several = id_ in SEVERAL
    for qrels in (pd.DataFrame(rows), {"1": [id_], "2": {"a"}}):
        found = evaluate_run(qrels, FOUND, ["mrr"])
        assert len(find_id_warnings(found)) == is_several


def test_ids_with_spaces():
    """Titles with spaces give no warning, even if they contain other titles."""
    films = {"Alien": ["Alien 3", "Alien"], "Heat": ["In the Heat of the Night"]}
    assert not find_id_warnings(evaluate_run(films, films, ["mrr"]))


@pytest.mark.parametrize(
    "id_", ["Paris, Texas", "Paris,_Texas", "doc1|0", "(1,2)", "Toy Story (1995)"]
)
def test_an_id_on_both_sides_is_a_single_id(tmp_path, id_):
    items = [id_, "Paris", "Texas", "doc1", "0", "1", "2", "Toy"]
    columns = {"query_id": ["1"] * 8, "item_id": items}
    write(pa.table({**columns, "label": [1] * 8}), tmp_path / "qrels.csv")
    write(pa.table({**columns, "score": [1.0] * 8}), tmp_path / "run.csv")
    for qrels in (tmp_path / "qrels.csv", {"1": items}):
        for run in (tmp_path / "run.csv", {"1": items}):
            assert not find_id_warnings(evaluate_run(qrels, run, ["mrr"]))


def test_ids_of_csv_with_outer_white_space(tmp_path):
    (file,) = write_texts(tmp_path, **{"run.csv": "query_id,item_id,score\n1, a3,1\n"})
    found = evaluate_run({"1": ["a3"]}, file, ["mrr"])
    warning = "`run` has item ids that start or end with white space (1), such as ' a3'"
    assert not find_id_warnings(found)
    assert [warning in x for x in found.warnings].count(True) == 1


def test_many_ids_with_spaces(tmp_path):
    rows = "".join(f"1,Title {i},1,.5\n" for i in range(2_500))
    (file,) = write_texts(
        tmp_path, **{"rows.csv": f"query_id,item_id,label,score\n{rows}"}
    )
    (warning,) = find_id_warnings(evaluate(file, ["mrr"], item="item_id"))
    assert "several ids (at least 2000), such as 'Title " in warning


def test_rows_with_several_ids_in_a_cell(tmp_path):
    text = "query_id,item_id,label,score\n1,a b,1,.5\n1,c d,1,.4\n1,c,0,.3\n"
    (file,) = write_texts(tmp_path, **{"rows.csv": text})
    found = evaluate(file, ["mrr"], item="item_id")
    warning = f"`rows` has {MERGED.format(2, 'a b', file)}"
    assert warning in str(found)
    found.write(tmp_path / "lists.parquet")
    assert find_id_warnings(
        Evaluation.read(tmp_path / "lists.parquet")
    ) == find_id_warnings(found)
    assert not find_id_warnings(evaluate(file, ["mrr"]))


# Comments that may be lines whose id starts with `#`.

COMMENTED = [
    (
        "qrels",
        "#covid 0 d1 1\n# a comment of more\n#query iteration item label\n#\n",
        1,
    ),
    ("qrels", "#covid\t0\td1\t1\r\n#flu 0 d1 0\r\n", 2),
    ("qrels", "# 1 0 d1 1\n# d1 1\n", 0),
    ("run", "#covid Q0 d1 1 0.9 t\n#flu Q0 d1 1 0.9\n# 1 Q0 d1 1 0.9 t\n#a b c\n", 2),
]


@pytest.mark.parametrize(("name", "comments", "number"), COMMENTED)
def test_comments_with_all_fields(tmp_path, capsys, name, comments, number):
    sides = {"qrels": "1 0 d1 1\n", "run": "1 Q0 d1 1 0.9 #t\n"}
    sides[name] = comments + sides[name]
    qrels, run = write_texts(tmp_path, **sides)
    found = evaluate_run(qrels, run, ["mrr"])
    assert found["mrr"] == 1.0
    assert found.per_list["query_id"].to_pylist() == ["1"]
    warnings = [x for x in found.warnings if "start with #" in x]
    (first, *_) = comments.splitlines()
    warning = f"Warning: `{name}` has lines that start with # but have all fields "
    warning += f"({number}), such as {first!r} in {tmp_path / name}: they are comments"
    assert [x.startswith(warning) for x in warnings] == [True] * (number > 0)
    assert run_command(["evaluate", str(qrels), str(run), "-m", "mrr"]) == 0
    assert ("lines that start with #" in "".join(capsys.readouterr())) == (number > 0)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_comments_after_other_lines(tmp_path, end, monkeypatch):
    (qrels,) = write_texts(tmp_path, qrels=f"1 0 d1 1{end}#covid 0 d1 1{end}")
    # The result does not depend on the ends of blocks.
    for size in (1, 9, 10, 2**24):
        with monkeypatch.context() as patched:
            part = LinesPart(None, "qrels", str(qrels), ())
            patched.setattr("keras_rank.reading.text._BLOCK", size)
            assert part._contains(b"\n#", b"\r#")
            assert not part._contains(b"\n0", b"\r0")


def test_comments_in_files_of_fewer_fields(tmp_path):
    for line, number in (("1 d1 1", 1), ("1 d1", 1)):
        comment = line.replace("1", "#covid", 1)
        write_texts(tmp_path, qrels=f"# by\n{comment}\n{line}\n")
        found = evaluate_run(tmp_path / "qrels", {"1": ["d1"]}, ["mrr"])
        assert sum(f"({number}), such as {comment!r}" in x for x in found.warnings) == 1


def test_a_run_of_comments_has_no_results(tmp_path):
    (run,) = write_texts(tmp_path, run="# bm25, k1=0.9\n#a,b\n")
    assert mrr({"1": ["a"]}, run) == 0.0


def test_comments_and_merged_ids_of_targets(tmp_path):
    (qrels,) = write_texts(tmp_path, qrels="#covid 0 d1 1\n1 0 d1 1\n")
    with pytest.warns(
        UserWarning, match="start with # but have all fields .1."
    ) as seen:
        targets_from_qrels(qrels, ["1"], ["d1"])
    assert seen[0].filename == __file__
    rows = {"query_id": ["1"] * 2, "item_id": ["a b", "a"], "label": [1, 1]}
    write(pa.table(rows), tmp_path / "qrels.csv")
    with pytest.warns(UserWarning, match="may be several ids .1., such as 'a b'"):
        targets_from_qrels(tmp_path / "qrels.csv", ["1"], ["a b", "a"])


def test_files_with_different_columns_are_errors(tmp_path):
    files = write_texts(
        tmp_path, one="qid,docno,label\n1,7,1\n", other="qid,item,label\n2,8,1"
    )
    with raises("`qrels` should be files with columns in one order") as error:
        mrr(files, {"1": {"7": 0.9}})
    assert all(str(file) in str(error.value) for file in files)


def test_columns_of_a_run_without_names_are_named_by_index(tmp_path, capsys):
    """Four columns (query, item, rank and score, as in ColBERT) are named by index."""
    files = write_texts(tmp_path, qrels="1 0 7 1\n", run="1\t8\t1\t.9\n1\t7\t2\t.8\n")
    named = {"query": "column0", "item": "column1", "score": "column3"}
    assert mrr(*files, **named) == 0.5
    line = [f"--{option}={name}" for option, name in named.items()]
    assert run_command(["evaluate", *map(str, files), "-m", "mrr", *line]) == 0
    assert "0.5000" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["rank", "Rank", "position"])
def test_ranks_are_not_scores(name):
    run = table(RUN, f"query_id item_id {name}")
    rows = run.append_column("label", run[name])
    for arguments in ({}, {"score": name}):
        with raises(f"{name!r}, whose numbers ascend from the best item on"):
            mrr(QRELS, run, **arguments)
        with raises("add a column with these numbers times -1"):
            evaluate(rows, ["mrr"], **arguments)
    # A column of ranks is accepted next to a column of scores.
    mrr(QRELS, run.append_column("score", run[name]))


def test_named_columns_next_to_known_columns():
    qrels, run = table(QRELS, "topic docno label"), table(RUN, "topic docno score")
    found = evaluate_run(qrels, run, ["ndcg@10"], query="topic")
    assert found.per_list.column_names[0] == "topic"
    assert get_values(found) == EXPECTED


@pytest.mark.parametrize("rules", ["trec_eval", "keras"])
def test_ids_without_numbers(rules):
    # The items of a run are not tied: trec_eval would rank b before a.
    run = {"1": ["a", "b", "c"], "2": ("x", "b"), "3": [], "4": {}}
    qrels = {"1": {"b"}, "2": ["b", "z"], "3": frozenset("a"), "4": ("a",)}
    found = evaluate_run(qrels, run, ["mrr", "recall@10"], rules=rules)
    assert found.per_list["mrr"].to_pylist() == [1 / 2, 1 / 2, 0, 0]
    assert found.per_list["recall@10"].to_pylist() == [1, 1 / 2, 0, 0]
    numbers = evaluate_run({1: [3, 4]}, {1: np.array([9, 3, 4])}, ["map"], rules=rules)
    assert numbers["map"] == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_ids_without_numbers_in_json(tmp_path):
    of_queries = '{"1": ["b"], "2": []}', '{"2": [], "1": ["a", "b"]}'
    qrels, run = write_texts(tmp_path, qrels=of_queries[0], run=of_queries[1])
    assert mrr(qrels, run) == 0.5
    long = {str(i): ["a"] * (i == 1) for i in range(40_000)}
    for found in ({"query_id": ["1"], "item_id": ["b"], "score": [1]}, long):
        run.write_text(json.dumps(found))
        mrr({"1": {"b": 1}}, run)
    one = '{"query_id": ["1"], "item_id": ["b"], "label": [1]}'
    other = '{"query_id": ["2"], "item_id": ["b"]}'
    with raises("Received: ['1'], for the query 'query_id'"):
        mrr(write_texts(tmp_path, one=one, other=other), RUN)


LISTS = {"1": ["x", "a", "b"], "2": ["a"], "3": []}
RELEVANT = {"1": ["a", "d"], "2": ["a"], "3": ["c"]}
# The means of the reciprocal ranks 1 / 2, 1 and 0, and of the recalls 1 / 2, 1 and 0.
MEANS = {"mrr": (1 / 2 + 1 + 0) / 3, "recall@5": (1 / 2 + 1 + 0) / 3}


def evaluate_lists(qrels, run):
    return evaluate_run(qrels, run, list(MEANS)).to_dict()


def to_list_columns(lists):
    return {"query_id": list(lists), "item_id": list(lists.values())}


@pytest.mark.parametrize("form", [*IN_MEMORY, "columns"])
def test_columns_of_lists(form):
    tables = [to_list_columns(x) for x in (RELEVANT, LISTS)]
    if form != "columns":
        tables = [IN_MEMORY[form](pa.table(x)) for x in tables]
    assert evaluate_lists(*tables) == pytest.approx(MEANS)


def test_columns_of_lists_of_two_are_not_pairs():
    columns = {"query_id": [1, 2], "item_id": [[5, 6], [7, 8]]}
    assert mrr({1: [6], 2: [7]}, columns) == (1 / 2 + 1) / 2
    scored = {**columns, "score": [[1, 2], [3, 4]]}
    assert mrr({1: [6], 2: [7]}, scored) == (1 + 1 / 2) / 2


def test_columns_of_lists_in_files(tmp_path, capsys):
    for name, lists in (("qrels", RELEVANT), ("run", LISTS)):
        rows = [{"query_id": q, "item_id": x, "notes": ["n"]} for q, x in lists.items()]
        write(pa.table(to_list_columns(lists)), tmp_path / f"{name}.parquet")
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for suffix in ("parquet", "jsonl"):
        files = [tmp_path / f"{name}.{suffix}" for name in ("qrels", "run")]
        assert evaluate_lists(*files) == pytest.approx(MEANS)
        assert run_command(["evaluate", *map(str, files), "-m", "mrr"]) == 0
        assert "0.5000" in capsys.readouterr().out


def test_columns_of_lists_with_numbers():
    """Lists of scores need not be sorted, and lists of labels grade the items."""
    items = [["b", "d", "a"], ["a"]]
    qrels = {"qid": ["1", "2"], "docno": items, "label": [[0, 1, 2], [1]]}
    run = {"qid": ["1", "2"], "docno": [["b", "x", "a"], ["a"]]}
    run["pred"] = [[0.1, 0.9, 0.8], [0.5]]
    assert get_values(evaluate_run(qrels, run, ["ndcg@10"], score="pred")) == EXPECTED


@pytest.mark.parametrize("dtype", ["int64", "uint8", object])
def test_ids_in_the_order_of_the_queries(dtype):
    """Arrays of ids are read in the order of queries, with -1 as padding.

    `catalogue.top_k` returns such arrays.
    """
    retrieved = np.array([[9, 1, 2], [1, -1, -1], [-1, -1, -1]])
    relevant = [[1, 4], [1], [3]]
    if dtype == "uint8":
        retrieved[retrieved < 0] = [255, 254, 255, 254, 253]
    assert evaluate_lists(relevant, retrieved.astype(dtype)) == pytest.approx(MEANS)
    assert evaluate_lists(relevant, [*retrieved.astype(dtype)]) == pytest.approx(MEANS)
    padded = np.array([[-1, 1, 4], [1, -1, -1], [-1, -1, 3]])
    assert evaluate_lists(padded, retrieved.astype(dtype)) == pytest.approx(MEANS)
    evaluation = evaluate_run(relevant, retrieved.astype(dtype).tolist(), ["mrr"])
    assert evaluation.per_list["query_id"].to_pylist() == [0, 1, 2]


def test_keys_of_dicts_are_not_padding():
    run = {1: {-1: 0.9, 7: 0.8, 8: 0.7}}
    assert mrr({1: {7: 1, 9: 1}}, run) == 1 / 2
    assert mrr({1: {-1: 1}}, run) == 1.0
    columns = {"query_id": [1], "item_id": [[7, -1, -1]], "score": [[0.9, 0.1, 0.1]]}
    assert evaluate_run({1: [7]}, columns, ["precision"])["precision"] == 1.0


def test_one_relevant_id_for_each_query():
    for relevant in ([4, 5], np.array([4, 5]), np.array([[4], [5]]), [{4}, [5]]):
        assert mrr(relevant, [[3, 4], [5, 1]]) == 3 / 4
    assert mrr(np.array(["d", "e"]), np.array([["c", "d"], ["e", "a"]])) == 3 / 4


ONE = {"1": {"a": 1}}
WRONG = [
    ({}, ONE, "`qrels` should have rows. Received: none"),
    ({"1": {}}, RUN, "`qrels` should have rows"),
    (ONE, {"1": {"a": None, "b": 1.0}}, "a score in each row. Received: 1 without"),
    ({"qid": [1.0], "docno": [np.nan], "label": [1]}, ONE, "an item in each row"),
    (ONE, {"qid": [None], "docno": ["a"], "score": [1]}, "a query in each row"),
    ({"1": {"a": 1, 2: 1}}, ONE, "`qrels` should have ids of one type"),
    ({2**63: {"a": 1}}, {2**63: {"a": 1.0}}, "integers below 2..63 or text"),
    (ONE, {"2": None}, "list, which counts as 0. Received: None, for the query '2'"),
    (ONE, {"2": {"a"}}, "the best item first, .* Received: {'a'}, for the query '2'"),
    (ONE, {"2": [0.5]}, "Received: .0.5., for the query '2'"),
    (ONE, {"2": ["a"], "1": {"a": 0.5}}, "Received: .'a'., for the query '2'"),
    (ONE, {"2": ["a", "a"]}, "item 'a' of the query '2', .*first.* or .max. counts"),
    ({"2": None}, ONE, "Leave out queries .* None, for the query '2'"),
    ({"docid": ["a"], "q": ["1"], "n": [1]}, ONE, "`query` should name a column"),
    ([[1], [2]], [[1]], "same order. Received: ids of 2 queries and of 1 queries"),
    (
        [[1]],
        {0: [1]},
        "`qrels` should be .* on both sides, lists of the ids of .* ..1..\\.",
    ),
    ([[1]], [1], "`run` .* Received: 1, for the query 0"),
    ([[1]], np.array([[True]]), "Received: .True., for the query 0"),
    ([[1]], np.ma.masked_array([[1, 2]], [[0, 1]]), "Received: .* and ..1, None.."),
    ([[1]], np.ma.masked_array([[1, 2]], [[1, 1]]), "Received: .None, None., for"),
    ([[1]], [[2, -1, 1]], "-1 only as padding at its end.* .2, -1, 1., for"),
    ([[1, 1, 2]], [[2, 1]], "`qrels` .* twice: the item 1 of the query 0, in a dict; "),
    ([[1]], [["1", 1]], "ids of each query, of one type"),
    ([[1], [2]], [["1"], [1]], "`run` should have ids of one type"),
    (RELEVANT, to_list_columns({"1": ["a"], "2": None}), "None, for the query '2'"),
    (RELEVANT, to_list_columns({"1": ["a", None]}), "Received: .'a', None., for"),
    (RELEVANT, to_list_columns({"1": [["a"]]}), "lists of the type VARCHAR.."),
    (RELEVANT, {"query_id": ["1"] * 2, "item_id": [["a"], ["b"]]}, "several for"),
    (RELEVANT, {**to_list_columns({"1": ["a"]}), "s": [[0.5]]}, "or leave out 's'"),
    (RELEVANT, {**to_list_columns({"1": ["a"]}), "score": [0.5]}, "leave out 'score'"),
    (RELEVANT, {**to_list_columns({"1": ["a"]}), "score": [[1, 2]]}, "as many scores"),
    ({**to_list_columns({"1": ["a"]}), "grade": [[2]]}, LISTS, "`label` should name"),
    (pd.Series([["a"]]), ONE, "a Series, which its method `to_list` makes lists"),
]


@pytest.mark.parametrize(("qrels", "run", "message"), WRONG)
def test_wrong_judgments_and_runs(qrels, run, message):
    with pytest.raises(ValueError, match=message):
        mrr(qrels, run)


# Rules for items and queries.


def test_the_first_or_the_best_of_duplicates():
    """Duplicate items, such as chunks of documents, count by the first or best row."""
    qrels, run = make_graded_run(4)
    chunks = pd.DataFrame(list_rows(run) * 3, columns=["query_id", "item_id", "score"])
    chunks = chunks.sample(frac=0.7, random_state=0)
    chunks["score"] = np.random.default_rng(0).normal(size=len(chunks)).round(1)
    with raises("`run` should have each item of a query once. Received twice"):
        evaluate_run(qrels, chunks, ["ndcg@10"])
    for duplicates in ("first", "max"):
        scores = chunks.groupby(["query_id", "item_id"])["score"].agg(duplicates)
        counted = {q: x.droplevel(0).to_dict() for q, x in scores.groupby(level=0)}
        found = evaluate_run(qrels, chunks, ["ndcg@10"], duplicates=duplicates)
        assert_equal(found, evaluate_by_pytrec_eval(qrels, counted))
        lists = {"1": ["x", "x", "b", "a", "b"]}
        assert mrr({"1": ["a"]}, lists, duplicates=duplicates) == pytest.approx(1 / 3)


def test_duplicates_without_a_score():
    """NaN is below all other scores of a duplicate item."""
    run = {"query_id": [1, 1, 1], "item_id": [7, 7, 8], "score": [np.nan, 0.5, 0.1]}
    for duplicates, expected in (("first", 0.0), ("max", 1.0)):
        assert mrr({1: [7]}, run, duplicates=duplicates) == expected
        assert mrr({1: [7, 7]}, run, duplicates=duplicates) == expected
    with raises("`qrels` should have each item of a query once"):
        mrr({1: [7, 7]}, {1: [7]})


def test_missing_queries_may_be_skipped():
    """`missing="skip"` skips queries that the run lacks, but not empty lists."""
    qrels = {query: {"a": 1} for query in "123"}
    for run in ({"1": ["a"], "2": []}, {"1": {"a": 0.5}, "2": {}}):
        found = evaluate_run(qrels, run, ["mrr"], missing="skip")
        assert found.per_list["mrr"].to_pylist() == [1.0, 0.0]
        assert mrr(qrels, run) == pytest.approx(1 / 3)
    assert found.summary().notes[0] == "Rules: trec_eval (version 10), missing=skip"
    with raises("evaluated by the rules of the models"):
        found.compare(evaluate_run(qrels, run, ["mrr"]))
    assert mrr([5, 6], np.array([[5], [-1]]), missing="skip") == 1 / 2


def test_items_with_the_id_of_their_query():
    """`ignore_identical_ids` changes the run, as in BEIR, but not the judgments."""
    own = {"ignore_identical_ids": True}
    found = evaluate_run({1: [1, 2]}, {1: ["1", "2"]}, ["mrr", "recall"], **own)
    assert found.to_dict() == {"mrr": 1.0, "recall": 1 / 2}
    rules = "Rules: trec_eval (version 10), ignore_identical_ids"
    assert found.summary().notes[0] == rules
    # The run still has the query, although no item is left.
    alone = evaluate_run({1: [2], 3: [4]}, {1: ["1"]}, ["mrr"], missing="skip", **own)
    assert alone.per_list["mrr"].to_pylist() == [0.0]
    with raises("`ignore_identical_ids` should be False for lists in the order of the"):
        mrr([[2]], [[1]], **own)


def test_choices():
    wrong = {"duplicates": "count", "missing": "drop", "ignore_identical_ids": 1}
    for argument, value in wrong.items():
        with raises(f"Received: {argument}={value!r}"):
            mrr(QRELS, RUN, **{argument: value})


@pytest.mark.parametrize("arguments", [{}, {"rules": "keras"}, {"unjudged": "drop"}])
def test_the_share_of_judged_items(arguments):
    qrels = {"1": {"a": 2, "b": 0, "c": -2}, "2": {"a": 0}, "3": {"a": 1}}
    run = {"1": ["x", "a", "y", "c"], "2": ["x", "y", "a"]}
    names = ["Judged@10", "judged_10", "judged_at_10", "judged"]
    found = evaluate_run(qrels, run, ["judged@2", *names], **arguments).per_list
    assert found["judged@2"].to_pylist() == pytest.approx([1 / 2, 0, 0])
    for name in names:
        assert found[name].to_pylist() == pytest.approx([2 / 4, 1 / 3, 0])


def test_ties_and_levels_of_judged_items(tmp_path, capsys):
    """`judged` counts judged items in any order of ties and at any threshold."""
    run = "1 Q0 x 1 .5 t\n1 Q0 a 1 .5 t\n1 Q0 b 1 .5 t\n"
    files = write_texts(tmp_path, qrels="1 0 a 1\n1 0 b 0\n", run=run)
    row = health_checks(evaluate_run(*files, ["judged@2"]))["ties of judged@2"]
    assert (row["worst"], row["best"]) == (1 / 2, 1.0)
    assert row["average"] == pytest.approx(2 / 3)
    line = "-m judged@2 map --relevance-threshold 2"
    assert run_command(["evaluate", *map(str, files), *line.split()]) == 0
    assert "judged@2  0.5000" in capsys.readouterr().out


@pytest.mark.slow
def test_lines_of_json_start_with_any_value(tmp_path):
    path = tmp_path / "q.jsonl"
    line = '{{"x": {}, "query_id": "1", "item_id": "{}", "label": {}, "score": {}}}\n'
    for value in ("{}", "[1]", "null", '{"a": [1]}'):
        path.write_text(line.format(value, "a", 1, 1) + line.format(value, "b", 0, 0))
        assert mrr(path, {"1": ["b", "a"]}) == 0.5
        assert evaluate(path, ["mrr"])["mrr"] == 1.0
    path.write_text('{"1": {"a": 1}}')
    for judgments in (path, {"1": {"a": 1}, "2": {}}):
        with raises("with the items of each query, which `evaluate_run` takes"):
            evaluate(judgments, ["mrr"])


# Warnings about few judgments.


def make_sparse_judgments(share_found):
    """Returns one judgment for each of 100 queries, and a run that finds some."""
    run = {str(q): {f"x{i}": -i for i in range(20)} for q in range(100)}
    for q in range(int(100 * share_found)):
        run[str(q)]["a"] = 5.0
    return {q: {"a": 1} for q in run}, run


def test_few_judgments_give_no_warnings():
    found = evaluate_run(*make_sparse_judgments(0.3), ["ndcg@10"])
    assert found.warnings == []
    assert health_checks(found)["judged@10"]["share"] == pytest.approx(0.03)
    assert health_checks(found)["nothing judged"]["share"] == pytest.approx(0.7)
    # A run without any judged item gives a warning, as its ids may be wrong.
    judged, run = make_sparse_judgments(0.0)
    nothing_judged = "Warning: 100 of 100 lists have no judged items with a score: "
    question = "do the judgments and the run have the same item ids?"
    found = evaluate_run(judged, run, ["ndcg@10"])
    assert found.warnings == [nothing_judged + question]
    # Queries without retrieved items do not change the warning.
    nothing = {q: {} for q in list(run)[:30]}
    warnings = evaluate_run(judged, run | nothing, ["ndcg@10"]).warnings
    assert any("70 of 100 lists have no judged items" in x for x in warnings)


def test_queries_without_retrieved_items_have_no_share_of_judged_items():
    qrels, run = {"1": {"a": 1}, "2": {"a": 1}}, {"1": {"a": 0.9, "b": 0.5}}
    found = evaluate_run(qrels, run, ["ndcg@2"])
    assert health_checks(found)["judged@2"]["share"] == 1 / 2
    assert "1 of 2 lists have no items with a score" in found.warnings[0]
    assert "their top 2, 50% on average" in found.warnings[1]


def test_missing_judgments_in_the_top_give_a_warning():
    qrels = {str(q): {f"d{i}": i % 2 for i in range(30)} for q in range(10)}
    run = {q: {f"d{i}": -i for i in range(25, 45)} for q in qrels}
    (warning,) = evaluate_run(qrels, run, ["ndcg@10"]).warnings
    assert "have items without a judgment in their top 10, 50% on average" in warning
    run |= {q: {f"x{i}": -i for i in range(20)} for q in list(qrels)[:7]}
    warnings = evaluate_run(qrels, run, ["ndcg@10"]).warnings
    assert any("7 of 10 lists have no judged items with a score" in w for w in warnings)


# The mapping interface and spellings of names.


def test_an_evaluation_is_a_mapping_from_metrics_to_values():
    found = evaluate_run(*make_graded_run(0), ["ndcg@10", "mrr"])
    summary = found.summary()
    values = dict(zip(summary["metric"], summary["value"], strict=True))
    assert isinstance(found, Mapping)
    assert dict(found) == found.to_dict() == {**found} == values
    assert list(found.items()) == list(values.items())
    assert [*found.values()] == summary["value"]
    assert list(found) == list(found.keys()) == ["ndcg@10", "mrr"]
    assert (len(found), found.lists) == (2, summary["lists"][0])
    assert "mrr" in found
    assert "ndcg_cut_10" in found
    assert found.get("ndcg_cut_10") == found["ndcg@10"]
    assert not any(x in found for x in ("map", 0, None))
    assert found.get("map") is found.get(["mrr"]) is None
    assert json.loads(json.dumps(dict(found))) == values
    assert pd.Series(found).to_dict() == values
    assert pd.DataFrame([found, found]).to_dict("list") == {
        name: [value, value] for name, value in values.items()
    }


def test_evaluations_are_equal_only_to_themselves():
    found, other = (evaluate_run(*make_graded_run(0), ["mrr"]) for _ in range(2))
    assert dict(found) == dict(other)
    assert found != other
    assert len({found, other, found}) == 2
    # An evaluation without lists is true as well.
    assert Evaluation(found.table.slice(0, 0))
    for again in (pickle.loads(pickle.dumps(found)), copy.copy(found)):
        assert (dict(again), again.lists) == (dict(found), found.lists)


@pytest.mark.parametrize(
    ("args", "kwargs"), [(["1"], {}), ([None], {}), ([], {"query": "1"})]
)
def test_items_of_an_evaluation_take_no_query(args, kwargs):
    found = evaluate_run(*make_graded_run(0), ["mrr"], keep_items=3)
    with pytest.raises(TypeError, match=r"`ranking\(query\)` returns the items of a"):
        found.items(*args, **kwargs)


def test_unknown_metrics_and_columns_are_key_errors():
    found = evaluate_run(*make_graded_run(0), ["ndcg@10", "mrr"])
    summary = found.summary()
    listed = ". Known names are ['ndcg@10', 'mrr']"
    close = '. Did you mean "mrr"?'
    for name, end in (("map", listed), (0, listed), (None, listed), ("mr", close)):
        with pytest.raises(KeyError) as error:
            found[name]
        assert str(error.value) == (
            f"The key should be the name of a metric. Received: {name!r}{end}"
        )
    for key, message in {
        "ndcg@10": "its value `evaluation['ndcg@10']`",
        "values": "Received: 'values'. Did you mean \"value\"?",
        1.5: "Received: 1.5",
    }.items():
        with pytest.raises(KeyError, match=re.escape(message)):
            summary[key]
    many = Table({f"column {i}": [i] for i in range(12)})
    with pytest.raises(KeyError, match=r"Received: 'x'.*'column 9'\] and others$"):
        many["x"]


SPELLINGS = ["ndcg_at_10", "ndcg_cut_10", "ndcg_cut.10", "nDCG@10"]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_metric_is_named_by_any_of_its_spellings(tmp_path, monkeypatch, name):
    """All spellings of a metric select it, in options of the command and in Python."""
    monkeypatch.chdir(tmp_path)
    found = evaluate_run(QRELS, RUN, ["mrr", "ndcg@10"])
    found.write("lists.parquet")
    for words, code in (
        (f"evaluate lists.parquet --fail-below {name}=0.7", 0),
        (f"evaluate lists.parquet --fail-below {name}=0.99", 1),
        (f"evaluate lists.parquet -m {name} --per-list chosen.parquet", 0),
        (f"compare lists.parquet lists.parquet -m {name}", 0),
    ):
        assert run_command(words.split()) == code
    assert Evaluation.read("chosen.parquet").metric_names == ["ndcg@10"]
    assert found[name] == found["ndcg@10"]
    assert found.worst(name, 1)["ndcg@10"] == found.worst("ndcg@10", 1)["ndcg@10"]
    other = evaluate_run(QRELS, RUN, [name])
    assert found.compare(other)["metric"] == ["ndcg@10"]
    worst = other.worst("ndcg@10", 1, baseline=found)
    assert worst[name] == worst["baseline"]


# Subtopics.

SUBTOPIC_CASES = [
    *("alpha_nDCG@20", "alpha_nDCG@5", "alpha_DCG@10", "ERR_IA@20", "ERR_IA@2"),
    *("P_IA@20", "P_IA@3", "StRecall@20", "StRecall@1"),
]
DIVERSITY = [
    *(("1", "a", "d1", 1), ("1", "a", "d2", 1), ("1", "b", "d1", 0)),
    *(("1", "b", "d3", 2), ("2", "x", "d4", -2), ("2", "y", "d1", 0)),
]
OF_DIVERSITY = {"1": {"d2": 0.9, "d1": 0.8, "d3": 0.7, "d9": 0.6}, "2": {"d4": 1.0}}


ROW = "query_id subtopic_id item_id label"


def nest(rows):
    """Returns judgments as `{query: {subtopic: {item: label}}}`."""
    found = {}
    for query, subtopic, item, label in rows:
        found.setdefault(query, {}).setdefault(subtopic, {})[item] = label
    return found


def make_subtopic_run(seed, queries=60):
    """Returns judgments and a run with ties, unjudged items and empty subtopics."""
    rng = np.random.default_rng(seed)
    qrels, run = [], {}
    for query in range(queries):
        share = rng.choice([0.0, 0.1, 0.3, 0.6])
        for subtopic in rng.permutation(12)[: rng.integers(1, 6)]:
            is_dead = rng.random() < 0.2
            for item in np.flatnonzero(rng.random(40) < 0.5):
                is_relevant = rng.random() < share and not is_dead
                label = rng.integers(1, 4) if is_relevant else -rng.integers(0, 3)
                qrels.append((f"q{query}", f"t{subtopic}", f"d{item}", int(label)))
        if rng.random() < 0.9:
            found = rng.permutation(60)[: rng.integers(1, 50)]
            run[f"q{query}"] = {f"d{x}": rng.integers(0, 8) / 7 for x in found}
    run["unknown"] = {"d1": 1.0}
    return [qrels[i] for i in rng.permutation(len(qrels))], run


@pytest.mark.parametrize("kind", ["", "(rel=2)", "(alpha=0.3,rel=2)", "judged"])
@pytest.mark.parametrize("seed", range(2))
def test_values_equal_those_of_ndeval_in_ir_measures(seed, kind):
    pytest.importorskip("pyndeval")
    import ir_measures

    qrels, run = make_subtopic_run(seed)
    level, unjudged = ("", "drop") if kind == "judged" else (kind, "irrelevant")
    some = [name for name in SUBTOPIC_CASES if "alpha" in name or "alpha" not in level]
    names = [name.replace("@", f"{level}@") for name in some]
    judged = {(query, item) for query, _, item, label in qrels if label >= 0}
    given = [ir_measures.Qrel(q, i, y, t) for q, t, i, y in qrels]
    scored = [
        ir_measures.ScoredDoc(*row)
        for row in list_rows(run)
        if unjudged == "irrelevant" or row[:2] in judged
    ]
    measures = {ir_measures.parse_measure(name): name for name in names}
    expected = ir_measures.calc(measures, given, scored)
    by_query = get_values(evaluate_run(nest(qrels), run, names, unjudged=unjudged))
    assert len(by_query) * len(names) == len(expected.per_query)
    for each in expected.per_query:
        value = by_query[each.query_id][measures[each.measure]]
        assert value == pytest.approx(each.value, abs=1e-6), each


def test_names_and_rules_of_subtopics():
    """All names have ndeval's definitions, except with the rules of this package."""
    qrels = nest(DIVERSITY)
    own = "alpha_ndcg@2 alpha_dcg@2 err_ia@2 precision_ia@4 subtopic_recall@2"
    # The first two items are relevant to the first of two subtopics.
    second = 1 / np.log2(3)
    gains, most = 1 + second / 2, 2 * (1 + second / 2)
    expected = [gains / (1 + second), gains / most, (1 + 1 / 4) / 2 / (1 + 1 / 4)]
    expected += [(2 / 4 + 1 / 4) / 2, 1 / 2]
    ours = [gains / (1 + second), gains, (1 + 1 / 4) / 4, *expected[3:]]
    for names, rules, values in (
        (own, "trec_eval", expected),
        ("alpha_nDCG@2 alpha_DCG@2 ERR_IA@2 P_IA@4 StRecall@2", "trec_eval", expected),
        ("alpha-nDCG@2 alpha-DCG@2 ERR-IA@2 P-IA@4 strec@2", "trec_eval-9", expected),
        (own, "keras", ours),
    ):
        found = get_values(
            evaluate_run(qrels, OF_DIVERSITY, names.split(), rules=rules)
        )
        assert [*found["1"].values()] == pytest.approx(values)
        assert {*found["2"].values()} == {0.0}


@pytest.mark.slow
def test_forms_of_judgments_with_subtopics(tmp_path):
    lines = "\n".join(" ".join(map(str, row)) for row in DIVERSITY)
    commas = lines.replace(" ", ",")
    csv, dicts = f"qid,subtopic,docno,label\n{commas}", json.dumps(nest(DIVERSITY))
    *files, bare = write_texts(tmp_path, lines=lines, csv=csv, dicts=dicts, bare=commas)
    expected = evaluate_run(nest(DIVERSITY), OF_DIVERSITY, SUBTOPIC_CASES).to_dict()
    assert 0 < expected["alpha_nDCG@5"] < 0.5
    names = {"query": "column0", "item": "column2", "label": "column3"}
    for qrels, arguments in (
        (pa.table(to_columns(DIVERSITY, ROW)), {}),
        (pa.table(to_columns(DIVERSITY, "query_id iteration doc_id relevance")), {}),
        *((file, {}) for file in files),
        (bare, {**names, "subtopic": "column1"}),
    ):
        found = evaluate_run(qrels, OF_DIVERSITY, SUBTOPIC_CASES, **arguments)
        assert found.to_dict() == expected
    relevant = {"1": {"a": ["d1", "d2"], "b": {"d3"}}}
    found = evaluate_run(relevant, OF_DIVERSITY, SUBTOPIC_CASES).to_dict()
    assert found == pytest.approx({name: 2 * x for name, x in expected.items()})


NO_SUBTOPICS = [
    ({"1": {"d1": 1}}, "Received: {'d1': 1}, for the query '1'"),
    ({"1": ["d1"]}, "Received: ['d1'], for the query '1'"),
    ("1 d1 1\n", "with the columns ['column0', 'column1', 'column2']"),
    ("1 0 d1 1\n2 0 d1 1\n", "Received: '0' as the only one, in "),
    ("1 Q0 d1 1\n", "Received: 'Q0' as the only one, in "),
    ({"qid": ["1"], "item": ["d1"], "label": [1]}, "columns ['qid', 'item', 'label']"),
]


@pytest.mark.parametrize(("qrels", "message"), NO_SUBTOPICS)
def test_judgments_without_subtopics_are_an_error(tmp_path, qrels, message):
    if isinstance(qrels, str):
        (qrels,) = write_texts(tmp_path, qrels=qrels)
    with raises(message) as error:
        evaluate_run(qrels, OF_DIVERSITY, ["ndcg@5", "alpha_nDCG@5"])
    assert "`qrels` should have subtopics" in str(error.value)
    assert "{query: {subtopic: {item: label}}}" in str(error.value)


def test_invalid_subtopics_are_errors():
    twice = "Received twice: the item 'd1' of the query '1' and the subtopic 'a', in"
    for qrels, message in (
        ([*DIVERSITY, ("1", "a", "d1", 0)], twice),
        ([*DIVERSITY, ("1", None, "d1", 0)], "should have a subtopic in each row"),
        ([("1", "a", ["d1"], [1])], "with subtopics should have a row for each item"),
    ):
        with raises(message):
            evaluate_run(to_columns(qrels, ROW), OF_DIVERSITY, ["alpha_nDCG@5"])
    alpha, weighted = ["alpha_ndcg@5", "map"], [PrecisionIA(subtopic_weights=[1, 2])]
    with raises("`evaluate_run` takes subtopics. Received: alpha_ndcg@5"):
        evaluate({"query_id": [1], "label": [1], "score": [1]}, alpha)
    with raises("`subtopic_weights=None`, as each query has subtopics of its own"):
        evaluate_run(nest(DIVERSITY), OF_DIVERSITY, weighted)


def test_metrics_with_and_without_subtopics():
    """An item has its highest label. Without subtopics, duplicate rows are an error."""
    single = {"1": {"d1": 1, "d2": 1, "d3": 2}, "2": {"d4": -2, "d1": 0}}
    names = ["ndcg@5", "map", "bpref", "judged@2", "P(rel=2)@5"]
    rows = to_columns(DIVERSITY, ROW)
    mixed = evaluate_run(rows, OF_DIVERSITY, [*names, "StRecall@2"])
    assert get_values(mixed)["1"].pop("StRecall@2") == 1 / 2
    expected = evaluate_run(single, OF_DIVERSITY, names).to_dict()
    assert {name: mixed[name] for name in names} == expected
    with raises("Received twice: the item 'd1' of the query '1'"):
        evaluate_run(rows, OF_DIVERSITY, names)


def test_tied_items_of_metrics_with_and_without_subtopics():
    """Ties are broken as in pyndeval with subtopics, and as in trec_eval without."""
    qrels, run = {"1": {"a": ["d1"], "b": ["d3"]}}, {"1": {"d1": 1.0, "d2": 1.0}}
    found = evaluate_run(qrels, run, ["StRecall@1", "P@1"])
    assert found.to_dict() == {"StRecall@1": 1 / 2, "P@1": 0.0}
    for name, best in (("StRecall@1", 1 / 2), ("P@1", 1.0)):
        row = health_checks(found)[f"ties of {name}"]
        assert (row["worst"], row["average"], row["best"]) == (0.0, best / 2, best)
    # Scores that differ in float64 are not tied.
    run["1"]["d2"] = 1.0 + 1e-12
    assert evaluate_run(qrels, run, ["StRecall@1"]).to_dict() == {"StRecall@1": 0.0}


def test_the_command_reads_subtopics(tmp_path, capsys):
    rows = "1 a d1 1\n1 b d2 1\n"
    named = f"qid topic docno label\n{rows}".replace(" ", ",")
    qrels, csv, run = write_texts(
        tmp_path, qrels=rows, csv=named, run="1 d1 .9\n1 d3 .8\n"
    )
    for line, code, words in (
        (f"{qrels} {run} -m StRecall@5 P_IA@5", 0, r"StRecall@5\t0\.5.*P_IA@5\t0\.1"),
        (f"{csv} {run} -m StRecall@5 P_IA@5 --subtopic topic", 0, r"P_IA@5\t0\.1"),
        (f"{qrels} {run} -m map --subtopic topic", 0, r"map\t0\.5"),
    ):
        assert run_command(f"evaluate {line} -o tsv".split()) == code
        assert re.search(words, "".join(capsys.readouterr()), re.DOTALL)
