"""The measures that trec_eval prints by default, its format, and their reports."""

import json

import numpy as np
import pytest
from commands import run_command
from scipy import stats
from tables import health_checks, make_rows, raises, write, write_texts
from unpublished_data import find_data_file

from keras_rank.evaluation import Evaluation, compare, evaluate, evaluate_run
from keras_rank.evaluation.lists import trec_eval_measures
from keras_rank.evaluation.lists.metric_names import create_metric_by_rules
from keras_rank.metrics import MeanAveragePrecision, RankingMetrics

LEVELS = [tenths / 10 for tenths in range(11)]
CUTOFFS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
COUNTS = ("num_q", "num_ret", "num_rel", "num_rel_ret")


@pytest.fixture
def command(capsys):
    """Returns a function that runs the command and returns the printed lines."""

    def call(*words, exit_code=0, name="evaluate"):
        assert run_command([name, *map(str, words)]) == exit_code
        printed = capsys.readouterr()
        return printed.err if exit_code else printed.out.splitlines()

    return call


@pytest.mark.parametrize("option", [[], ["-q"]])
def test_the_files_of_trec_eval(command, option):
    names = ("qrels.test", "results.test", "out.test.aq" if option else "out.test")
    *files, printed = (find_data_file(f"trec_eval/{name}") for name in names)
    lines = printed.read_text().splitlines()
    expected = [x for x in lines if x.split()[0] in trec_eval_measures.OFFICIAL]
    assert len(expected) == 29 + 27 * 3 * bool(option)
    assert command(*files, "-m", "official", *option) == expected


def test_fit_has_only_means():
    others = "official", "NumRet(rel=2)", "IPrec(rel=2)@0.1", "Judged@10", "judged"
    for name in {*others, *trec_eval_measures.OFFICIAL} - {"map", "bpref"}:
        with raises("`metrics` given as strings should be a name and an optional cut"):
            RankingMetrics([name])


# Query 10 has relevant items at the ranks 1 and 3, and one that was not retrieved.
# Query 9 has one at rank 2. Query 8 has no retrieved, and query 7 no relevant items.
QRELS = "10 0 a 1\n10 0 b 2\n10 0 c 1\n9 0 a 1\n9 0 d 0\n8 0 a 1\n8 0 b 1\n7 0 a 0\n"
RUN = "9 Q0 d 1 .9 t\n9 Q0 a 2 .8 t\n10 Q0 a 1 9 t\n10 Q0 x 2 8 t\n10 Q0 b 3 7 t\n"
RUN += "7 Q0 a 1 1 t\n6 Q0 a 1 1 t\n"
# The number of three relevant items that each recall level requires, by version.
REQUIRED_COUNTS = {
    "trec_eval": [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3],
    # In float64, 0.9 + 0.7 * 3 is less than 3.
    "trec_eval-9": [0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3],
}


def format_lines(query, counts, means, hits):
    """Returns the lines of a query or of all queries, in the order of trec_eval.

    Args:
        query: the query, or `"all"`.
        counts: the counts, without `num_q` for a query.
        means: the values of the metrics.
        hits: the number of relevant items at each cutoff.
    """
    names = list(COUNTS)[4 - len(counts) :]
    found = dict(zip(names, map(str, counts), strict=True))
    found |= {name: f"{value:.4f}" for name, value in means.items()}
    found |= {f"P_{k}": f"{hits / k:.4f}" for k in CUTOFFS}
    return [f"{name:<22}\t{query}\t{value}" for name, value in found.items()]


@pytest.mark.parametrize("rules", REQUIRED_COUNTS)
def test_a_small_example_by_hand(command, tmp_path, rules):
    by_number = {0: 1, 1: 1, 2: 2 / 3, 3: 0}
    of_10 = [by_number[number] for number in REQUIRED_COUNTS[rules]]
    names = [f"iprec_at_recall_{level:.2f}" for level in LEVELS]

    def name_means(query, values, precisions):
        names_of_means = ["map", "gm_map", "Rprec", "bpref", "recip_rank"]
        if query != "all":
            names_of_means.remove("gm_map")
        means = dict(zip(names_of_means, values, strict=True))
        return means | dict(zip(names, precisions, strict=True))

    values = {"10": ((1 + 2 / 3) / 3, 2 / 3, 2 / 3, 1), "9": (1 / 2, 0, 0, 1 / 2)}
    geometric = (5 / 9 * 1 / 2 * 1e-5 * 1e-5) ** (1 / 4)
    means = np.sum([*values.values()], axis=0) / 4
    expected = [
        *format_lines("10", (3, 3, 2), name_means("10", values["10"], of_10), 2),
        *format_lines("7", (1, 0, 0), name_means("7", [0] * 4, [0] * 11), 0),
        *format_lines("8", (0, 2, 0), name_means("8", [0] * 4, [0] * 11), 0),
        *format_lines("9", (2, 1, 1), name_means("9", values["9"], [1 / 2] * 11), 1),
    ]
    of_all = name_means(
        "all", [means[0], geometric, *means[1:]], (np.array(of_10) + 1 / 2) / 4
    )
    of_all = format_lines("all", (4, 6, 6, 3), of_all, 3 / 4)
    files = write_texts(tmp_path, qrels=QRELS, run=RUN)
    line = ["-m", "official", "--rules", rules]
    assert command(*files, *line) == of_all
    assert command(*files, *line, "-q") == [*expected, *of_all]
    # With two queries instead of four, only the counts of the two are summed.
    skipped = command(*files, *line, "--missing", "skip")
    assert [x.split()[2] for x in skipped[:4]] == ["3", "6", "4", "3"]
    table = command(*files, *line, "-o", "tsv")
    assert table[1].split("\t") == ["num_q", "4", "", "", "", "4"]


def random_run(seed):
    """Returns judgments from -1 to 2 and a run with ties and unjudged items."""
    rng = np.random.default_rng(seed)
    qrels, run = {}, {}
    for query in map(str, range(30)):
        items = [f"d{item}" for item in rng.permutation(60)]
        labels = rng.choice([-1, 0, 1, 2], size=rng.integers(2, 40))
        qrels[query] = dict(zip(items, labels.tolist(), strict=False))
        retrieved = items[rng.integers(0, 20) :]
        scores = rng.integers(0, 30, len(retrieved)).astype(float).tolist()
        run[query] = dict(zip(retrieved, scores, strict=True))
    # One query has ties in float32 only, and one has no relevant items.
    run["0"] = {item: 25_000 + score * 1e-4 for item, score in run["0"].items()}
    qrels["30"], run["30"] = {"a": 0}, {"a": 1.0, "b": 0.5}
    return qrels, run


@pytest.mark.parametrize("seed", range(3))
def test_values_of_queries_equal_those_of_pytrec_eval(seed):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    qrels, run = random_run(seed)
    names = [*COUNTS[1:], *(f"iprec_at_recall_{level:.2f}" for level in LEVELS)]
    measures = {*COUNTS[1:], "iprec_at_recall", "gm_map"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    found = evaluate_run(qrels, run, [*names, "gm_map"], rules="trec_eval-9")
    for row in found.per_list.to_pylist():
        expected = theirs[row["query_id"]]
        assert [row[x] for x in names] == pytest.approx([expected[x] for x in names])
        log = np.log(max(row["gm_map"], 1e-5))
        assert log == pytest.approx(expected["gm_map"], abs=1e-5)
    mean = np.mean([values["gm_map"] for values in theirs.values()])
    assert found["gm_map"] == pytest.approx(np.exp(mean))


@pytest.mark.parametrize("seed", range(3))
def test_values_equal_those_of_ir_measures(seed):
    ir_measures = pytest.importorskip("ir_measures")
    qrels, run = random_run(seed)
    names = ["NumQ", "NumRet", "NumRet(rel=1)", "NumRet(rel=2)", "NumRel", "IPrec@0.0"]
    names += ["IPrec@0.25", "IPrec(rel=2)@0.5", "IPrec@1.0"]
    measures = [ir_measures.parse_measure(name) for name in names]
    theirs = ir_measures.calc_aggregate(measures, qrels, run)
    found = evaluate_run(qrels, run, names, rules="trec_eval-9")
    expected = [theirs[measure] for measure in measures]
    assert list(found.to_dict().values()) == pytest.approx(expected)
    assert [isinstance(found[x], int) for x in names] == [x[0] == "N" for x in names]
    # ir_measures parses this measure, but does not compute it.
    found = evaluate_run(qrels, run, ["NumRel(rel=2)"])
    labels = [label for of_query in qrels.values() for label in of_query.values()]
    assert found["NumRel(rel=2)"] == labels.count(2)


def test_other_spellings_and_definitions():
    qrels, run = random_run(0)
    found = evaluate_run(qrels, run, "official")
    assert found.metric_names == list(trec_eval_measures.OFFICIAL)
    for one, other in (
        *(("NumQ", "num_q"), ("NumRet(rel=1)", "num_rel_ret"), ("NumRel", "num_rel")),
        *(("IPrec@.1", "iprec_at_recall_0.10"), ("iprec@1", "iprec_at_recall_1.00")),
        *(("AP", "map"), ("RR", "recip_rank"), ("P@5", "P_5")),
    ):
        assert found[one] == found[other]
    # The names have trec_eval's definitions under any rules, those of version 9 under
    # the rules of version 9.
    own = evaluate_run(qrels, run, "official", rules="keras", ties="trec_eval")
    assert own.to_dict() == found.to_dict()
    of_9 = evaluate_run(qrels, run, "official", rules="trec_eval-9")
    with raises("with {'rounding': 0.5} and {'rounding': 0.9}"):
        of_9.compare(found)


WRONG = {
    **dict.fromkeys(["iprec@1.5", "iprec@10"], "from 0 to 1. Received: recall="),
    "NumRel(rel=0)": "`rel` should be a positive integer. Received: rel=0",
    "IPrec(p=1)@0.1": "`p` should be an argument of `IPrec`, whose cutoff fol",
    **{
        string: f"Received: '{string}'"
        for string in ("iprec@-0.1", "iprec@nan", "iprec", "iprec_0.1", "num_ret@10")
    },
    **dict.fromkeys(["num_rel(rel=2)", "NumQ(rel=2)"], "Received: "),
}


@pytest.mark.parametrize("string", WRONG)
def test_invalid_names_are_errors(string):
    with raises(WRONG[string]):
        evaluate_run({"1": {"a": 1}}, {"1": {"a": 1}}, [string])


def test_each_metric_has_one_name():
    for metrics in (["official", "official"], ["official", "map"]):
        with raises("`metrics` should have distinct names"):
            evaluate_run({"1": {"a": 1}}, {"1": {"a": 1}}, metrics)
    # Other metrics may be added to "official".
    found = evaluate_run({"1": {"a": 1}}, {"1": {"a": 1}}, ["official", "ndcg@10"])
    assert found.metric_names == [*trec_eval_measures.OFFICIAL, "ndcg@10"]


# Reports of sums and geometric means.


def test_summaries(tmp_path):
    """Sums of slices add up, and the interval of gm_map is that of logarithms."""
    arguments = {"item": "item_id", "keep": "market", "weight": "weight"}
    names = ["num_q", "num_ret", "gm_map", "map"]
    found = evaluate(make_rows(), names, **arguments)
    found.write(tmp_path / "lists.parquet")
    again = Evaluation.read(tmp_path / "lists.parquet")
    assert again.summary().columns == found.summary().columns
    rows = {row["metric"]: row for row in found.summary()}
    assert (rows["num_q"]["value"], rows["num_ret"]["value"]) == (60, len(make_rows()))
    for name in ("num_q", "num_ret"):
        assert np.isnan([rows[name][x] for x in ("standard_error", "low")]).all()
        by = [x["value"] for x in found.summary("market") if x["metric"] == name]
        assert (sum(by), len(by)) == (found[name], 3)
        assert found.per_list[name].type == "int64"
    assert json.loads(found.summary().to_json())[0]["low"] is None
    # The expected values are computed without weights, as those of empty lists are
    # unknown.
    found = evaluate(make_rows(), names)
    logs = np.log(np.maximum(found.per_list["map"].to_numpy(), 1e-5))
    of_logs = stats.ttest_1samp(logs, 0.0)
    row = found.summary()[2]
    assert row["value"] == pytest.approx(np.exp(logs.mean()), rel=1e-5)
    error = np.exp(logs.mean()) * logs.std(ddof=1) / np.sqrt(60)
    assert row["standard_error"] == pytest.approx(error, rel=1e-5)
    expected = np.exp(of_logs.confidence_interval(0.95))
    assert [row["low"], row["high"]] == pytest.approx(expected, rel=1e-4)


def test_the_range_of_a_geometric_mean():
    """The interval of gm_map is within 0..1, and perfect lists have no error."""
    rows = {"query_id": [1, 1, 2, 2], "label": [1, 0, 1, 0], "score": [2, 1, 2, 1]}
    for score, value in ((rows["score"], 1.0), ([2, 1, 1, 2], np.sqrt(1 / 2))):
        (row,) = evaluate({**rows, "score": score}, ["gm_map"]).summary()
        assert row["value"] == pytest.approx(value)
        assert 0.0 <= row["low"] <= row["value"] <= row["high"] <= 1.0
    unlabeled = evaluate({**rows, "label": [-1] * 4}, ["gm_map", "num_q"])
    assert np.isnan(unlabeled["gm_map"])
    assert unlabeled["num_q"] == 0


def test_comparisons():
    """Sums have differences but no p, and don't count in the correction of p."""
    models = [
        evaluate(make_rows(noise=x), ["num_rel", "gm_map", "map"]) for x in (3, 1)
    ]
    base, new = models
    for test in ("t", "permutation"):
        found = compare(*models, test=test, correction="holm")
        of_sum, of_gm, of_map = found
        assert (of_sum["value"], of_sum["difference"]) == (new["num_rel"], 0)
        assert np.isnan([of_sum[x] for x in ("low", "p", "corrected_p")]).all()
        assert of_gm["difference"] == pytest.approx(new["gm_map"] - base["gm_map"])
        assert of_gm["low"] < of_gm["difference"] < of_gm["high"]
        assert of_gm["p"] < 1e-3
        least = min(of_gm["p"], of_map["p"])
        assert min(of_gm["corrected_p"], of_map["corrected_p"]) == 2 * least


def test_gates(command, tmp_path):
    """Gates check bounds of sums, but fewer retrieved items are not worse."""
    files = write_texts(
        tmp_path, qrels=QRELS, run=RUN, short=RUN.replace("10 Q0 x", "6 Q0 x")
    )
    line = ["-m", "num_ret", "gm_map", "map"]
    for bound, exit_code in (("num_ret=6", 0), ("num_ret=7", 1), ("gm_map=0.01", 1)):
        how = [*line, "-o", "trec_eval", "--fail-below", bound]
        assert command(*files[:2], *how, exit_code=exit_code)
    gate = ["-j", files[0], *files[1:], *line, "--fail-if-worse"]
    assert command(*gate, name="compare")


def test_health():
    """The health of iprec has no average over ties, as iprec is a maximum."""
    qrels, run = {"1": {"a": 1, "b": 0}}, {"1": {"a": 1.0, "b": 1.0}}
    found = evaluate_run(qrels, run, ["num_ret", "iprec@1", "gm_map"])
    rows = health_checks(found)
    of_iprec, of_map = rows["ties of iprec@1"], rows["ties of gm_map"]
    assert (of_iprec["worst"], of_iprec["best"]) == (1 / 2, 1)
    averages = [of_iprec["average"], of_map["average"]]
    assert averages == pytest.approx([np.nan, 3 / 4], nan_ok=True)
    (warning,) = [x for x in found.warnings if "tied items" in x]
    assert "1.0000 with the best one. Their order also changes gm_map" in warning
    with raises("`shuffle_ties` should be True or False"):
        trec_eval_measures.IPrec(recall=0.1, shuffle_ties="average")
    nothing = evaluate_run({"1": {"a": 0}}, run, ["num_ret", "num_rel", "map"])
    (warning,) = [x for x in nothing.warnings if "no relevant items" in x]
    assert "have no relevant items for map: all" in warning


def test_pages_and_plots(tmp_path):
    """Pages start with the first metric that is not a sum, and plots have no sums."""
    pytest.importorskip("matplotlib")
    found = evaluate(make_rows(), ["num_q", "map", "num_ret", "gm_map"])
    found.report(tmp_path / "page.html", baseline=found)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert ">map is 0." in page
    assert "largest losses of map" in page
    found.report(tmp_path / "page.html")
    assert ">map is 0." in (tmp_path / "page.html").read_text("utf-8")
    for axes in (found.plot(), found.compare(found).plot()):
        labels = [text.get_text() for text in axes.get_yticklabels()]
        assert labels[:2] == ["map", "gm_map"]
    assert found.worst().columns.keys() == {"query_id", "map"}


# The format.


def test_all_metrics_in_the_format_of_trec_eval(command, tmp_path):
    """All metrics of tables and runs are printed, with queries sorted as text."""
    rows = {"query_id": [10, 10, 9, 9], "label": [1, 0, 1, 0], "score": [2, 1, 1, 2]}
    rows = make_rows().schema.empty_table().from_pydict(rows)
    write(rows, tmp_path / "rows.parquet")
    line = ["-m", "num_ret", "mrr", "kendall_tau", "-o", "trec_eval", "-q"]
    assert command(tmp_path / "rows.parquet", *line) == [
        "num_ret               \t10\t2",
        "mrr                   \t10\t1.0000",
        "kendall_tau           \t10\t1.0000",
        "num_ret               \t9\t2",
        "mrr                   \t9\t0.5000",
        "kendall_tau           \t9\t-1.0000",
        "num_ret               \tall\t4",
        "mrr                   \tall\t0.7500",
        "kendall_tau           \tall\t0.0000",
    ]
    of_both = command(tmp_path / "rows.parquet", "-m", "official")
    assert [x.split()[2] for x in of_both[:4]] == ["2", "4", "2", "2"]
    files = write_texts(tmp_path, qrels=QRELS, run=RUN, other=RUN)
    lines = command(*files, "-m", "num_rel", "-o", "trec_eval")
    assert lines[0] == f"runid                 \tall\t{files[1]}"
    assert lines[2] == f"runid                 \tall\t{files[2]}"
    assert lines[1] == lines[3] == "num_rel               \tall\t6"


def test_stored_lists_in_the_format_of_trec_eval(command, tmp_path):
    files = write_texts(tmp_path, qrels=QRELS, run=RUN)
    lists = tmp_path / "lists.parquet"
    printed = command(*files, "-m", "official", "-q", "--per-list", lists)
    assert command(lists, "-m", "official", "-q") == printed
    assert command(lists, "-q", "-o", "trec_eval") == printed


@pytest.mark.parametrize("option", ["--health", "--by market", "--cluster user"])
def test_options_that_the_format_does_not_support(command, tmp_path, option):
    write(make_rows(), tmp_path / "rows.parquet")
    line = [tmp_path / "rows.parquet", "-m", "official", *option.split()]
    error = command(*line, exit_code=2)
    assert "such as --output table: trec_eval has no place for it. R" in error
    assert error.endswith(f"Received: {option.split()[0]}\n")
    assert command(*line, "-o", "table")


def test_values_are_computed_in_float64(command, tmp_path):
    """Values are computed in float64, as float32 would change the printed digits."""
    rng = np.random.default_rng(0)
    labels = {str(i): {str(j): 1 for j in range(7)} for i in range(100)}
    ranks = {i: rng.permutation(40).tolist() for i in labels}
    run = {i: {str(j): -float(x) for j, x in enumerate(ranks[i])} for i in labels}
    paths = tmp_path / "qrels.json", tmp_path / "run.json"
    for path, content in zip(paths, (labels, run), strict=True):
        path.write_text(json.dumps(content))
    lists = tmp_path / "lists.parquet"
    command(*paths, "-m", "map", "-o", "trec_eval", "--per-list", lists)
    found = Evaluation.read(lists).per_list
    for i, value in zip(found["query_id"].to_pylist(), found["map"], strict=True):
        places = np.sort(ranks[i][:7]) + 1.0
        expected = np.mean(np.arange(1, 8) / places)
        assert value.as_py() == pytest.approx(expected, rel=1e-14)
    assert isinstance(create_metric_by_rules("gm_map", "keras"), MeanAveragePrecision)
