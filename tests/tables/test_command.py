"""Output, error messages and exit codes of the command."""

import io
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from commands import run_command
from pyarrow import parquet
from tables import make_rows

import keras_rank
import keras_rank_command
from keras_rank.arguments import GAINS
from keras_rank.evaluation import Evaluation, compare, evaluate
from keras_rank.evaluation import command as command_module
from keras_rank.evaluation.lists import metric_names, settings
from keras_rank.evaluation.report import intervals
from keras_rank.metrics import NDCG, MeanReciprocalRank
from keras_rank.reading import runs

FEW = "Warning: all rows have fewer than 10 lists, too few for reliable intervals."
QRELS = "1 0 a 1\n1 0 b 0\n2 0 a 1\n"
RUN = "1 Q0 b 1 0.9 t\n1 Q0 a 2 0.8 t\n2 Q0 a 1 0.7 t\n"


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qrels").write_text(QRELS)
    (tmp_path / "run").write_text(RUN)
    for name, noise in (("base", 3.0), ("new", 0.5)):
        parquet.write_table(make_rows(noise=noise), f"{name}.parquet")


@pytest.fixture
def command(capsys):
    def call(line, expected=0):
        exit_code = run_command(line.split())
        printed = capsys.readouterr()
        assert exit_code == expected, printed.err
        return printed

    return call


def assert_usage_error(command, line, message):
    printed = command(line, expected=2)
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.err.startswith("keras-rank")


def test_a_run(command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(RUN))
    for line in (
        "evaluate qrels run -m mrr map",
        "evaluate qrels - -m mrr map",
        "evaluate -m mrr map -j qrels run",
        # trec_eval has the files at the end of the line.
        "evaluate -m mrr map -- qrels run",
    ):
        printed = command(line)
        assert printed.err == ""
        assert printed.out.splitlines() == [
            "metric   value  standard_error     low    high  lists",
            "mrr     0.7500          0.2500  0.0000  1.0000      2",
            "map     0.7500          0.2500  0.0000  1.0000      2",
            "Rules: trec_eval (version 10)",
            FEW,
        ]


def test_rules_for_items_and_queries_of_a_run(command, tmp_path):
    chunks = "1 Q0 1 1 .9 t\n1 Q0 b 2 .8 t\n1 Q0 a 3 .7 t\n1 Q0 b 4 .1 t\n"
    (tmp_path / "chunks").write_text(chunks)
    line = "evaluate qrels chunks -m mrr judged@2 -o json"
    assert "Received twice: the item 'b'" in command(line, expected=2).err
    for options, expected in (
        ("--duplicates first", [(1 / 3) / 2, (1 / 2) / 2]),
        ("--duplicates max --missing skip", [1 / 3, 1 / 2]),
        ("--duplicates max --missing skip --ignore-identical-ids", [1 / 2, 1.0]),
    ):
        printed = json.loads(command(f"{line} {options}").out)
        assert [x["value"] for x in printed["summary"]] == pytest.approx(expected)
    line = "compare --qrels qrels run chunks -m mrr --duplicates first"
    assert "-0." in command(line).out


def test_values_of_each_query(command):
    printed = command("evaluate qrels run -m mrr -q -o tsv").out
    assert printed.startswith("query_id\tmrr\tweight\n1\t0.5\t1.0\n2\t1.0\t1.0\n\n")


def test_several_runs_and_json(command, tmp_path):
    (tmp_path / "other").write_text(RUN.replace("2 Q0", "3 Q0"))
    printed = command("evaluate qrels run other -m mrr -q -o json --health")
    found = json.loads(printed.out)
    assert list(found) == ["per_list", "health", "summary", "notes", "warnings"]
    assert found["notes"] == ["Rules: trec_eval (version 10)", FEW]
    summary = [(x["run"], x["value"], x["standard_error"]) for x in found["summary"]]
    assert summary == [("run", 0.75, 0.25), ("other", 0.25, 0.25)]
    assert {row["run"] for row in found["per_list"]} == {"run", "other"}
    assert any("no items with a score" in warning for warning in found["warnings"])
    assert "keras-rank: other: Warning: 1 of 2 lists have no items" in printed.err


def test_notes_of_one_of_several_runs_name_it(command, tmp_path):
    for name, queries in (("all", 12), ("few", 2)):
        run = [f"{query} Q0 a 1 1.0 t\n" for query in range(queries)]
        (tmp_path / name).write_text("".join(run))
    judged = {query: ["a"] for query in range(12)}
    (tmp_path / "judged.json").write_text(json.dumps(judged))
    rules = "Rules: trec_eval (version 10), missing=skip"
    for names in ("all few", "few all"):
        printed = command(f"evaluate judged.json {names} -m mrr --missing skip -o json")
        assert json.loads(printed.out)["notes"] == [rules, f"few: {FEW}"]


def test_a_table_and_its_slices(command):
    line = "evaluate base.parquet new.parquet --by market --cluster user -m ndcg@5"
    printed = command(f"{line} --item item_id --duplicates count -o markdown").out
    *table, _, note = printed.splitlines()
    assert table[0].split()[:6] == ["|", "market", "|", "metric", "|", "value"]
    assert [row.split()[1] for row in table[2:]] == ["de", "fr", "jp"]
    assert note == "Gains: exponential, 2\\*\\*label - 1."


def test_arguments_are_those_of_python(command):
    line = "evaluate base.parquet --weight item_weight --item item_id --gains linear"
    line += " --relevance-threshold 2 -m ndcg@5 mrr --ties trec_eval -o json"
    ndcg = NDCG(k=5, gain_fn="linear", relevance_threshold=2.0, name="ndcg@5")
    metrics = [ndcg, MeanReciprocalRank(relevance_threshold=2.0)]
    arguments = {"weight": "item_weight", "item": "item_id", "ties": "trec_eval"}
    expected = evaluate("base.parquet", metrics, **arguments).summary().rows
    printed = command(f"{line} --memory-limit 1GB").out
    assert json.loads(printed)["summary"] == expected


@pytest.fixture
def stored(command):
    for name, metrics in (("base", "mrr ndcg@5 arp"), ("new", "mrr ndcg@5")):
        command(f"evaluate {name}.parquet -m {metrics} --per-list {name}_lists.parquet")


def test_lists_are_written_and_compared(command, stored):
    of_rows = command("compare base.parquet new.parquet -m ndcg@5 -o json")
    of_lists = command("compare base_lists.parquet new_lists.parquet -o json -m ndcg@5")
    base, new = (evaluate(make_rows(noise=noise), ["ndcg@5"]) for noise in (3.0, 0.5))
    for printed in (of_rows, of_lists):
        assert json.loads(printed.out)["comparison"] == new.compare(base).rows
    line = "compare base.parquet new.parquet base_lists.parquet -m ndcg@5"
    printed = command(f"{line} --correction none").out.splitlines()
    names = ["model", "new.parquet", "base_lists.parquet", "*"]
    assert [row.split()[0] for row in printed] == names


def test_options_of_rows_are_ignored_for_stored_lists(command, stored):
    one = "evaluate base_lists.parquet"
    two = "compare base_lists.parquet new_lists.parquet"
    for line in (one, two):
        expected = command(line).out
        for option in ("--gains linear", "--ties trec_eval", "--query a"):
            assert command(f"{line} {option}").out == expected
        left_out = "Qrels should be left out with files written by --per-list"
        assert left_out in command(f"{line} --qrels run", expected=2).err
    for line, words in (
        (f"{two} --by shop", "--by should name columns that were kept: --keep shop"),
        ("evaluate qrels base_lists.parquet", "Qrels should be left out with files"),
        (f"{two} -m arp", "Received: 'arp'. Known names are ['mrr', 'ndcg@5']"),
        (f"{one} base.parquet", "should be the only file of evaluate"),
        (f"{one} -m mrr --fail-below ndcg@5=1", "higher is better, one of ['mrr']"),
    ):
        assert words in command(line, expected=2).err
    assert len(command(f"{two} -o tsv").out.splitlines()) == 3


def test_stored_lists_are_summarized(command):
    line = "evaluate base.parquet -m ndcg@5 arp mrr --keep market"
    expected = command(f"{line} --per-list lists.parquet --by user --health -q").out
    line = "evaluate lists.parquet"
    assert command(f"{line} --by user --health -q").out == expected
    chosen = json.loads(command(f"{line} -m mrr -q -o json").out)
    assert [row["metric"] for row in chosen["summary"]] == ["mrr"]
    assert [*chosen["per_list"][0]] == ["query_id", "user", "market", "mrr", "weight"]
    command(f"{line} -m mrr --per-list mrr.parquet")
    assert Evaluation.read("mrr.parquet").metric_names == ["mrr"]
    assert command(f"{line} --fail-below ndcg@5=1 --fail-above arp=1", expected=1).err


def test_gates(command):
    # The relevant items are at the ranks 2 and 1.
    line = "evaluate qrels run -m arp mrr --fail-above"
    assert command(f"{line} arp=1.5 --fail-below mrr=0.75").err == ""
    printed = command(f"{line} arp=1.4 --fail-below mrr=0.76", expected=1)
    assert printed.err.splitlines() == [
        "keras-rank: arp is 1.5, above 1.4",
        "keras-rank: mrr is 0.75, below 0.76",
    ]
    assert "mrr     0.7500" in printed.out
    command("compare base.parquet new.parquet -m ndcg@5 --fail-if-worse")
    command("compare base.parquet base.parquet -m ndcg@5 --fail-if-worse")
    line = "compare new.parquet base.parquet -m ndcg@5 arp --fail-if-worse"
    printed = command(line, expected=1)
    assert "ndcg@5 is worse by 0." in printed.err
    assert "arp is worse by " in printed.err


def test_a_gate_fails_if_metrics_of_the_baseline_are_missing(command, stored):
    line = "compare base_lists.parquet new_lists.parquet --fail-if-worse"
    command(f"{line} -m mrr ndcg@5")
    printed = command(line, expected=1).err
    assert "metrics that only the baseline has are left out: arp" in printed
    assert "new_lists.parquet lacks arp of the baseline" in printed
    printed = command("compare new_lists.parquet base_lists.parquet").err
    assert "that only base_lists.parquet has are left out: arp" in printed


def test_a_gate_fails_if_too_few_lists_are_worse(command):
    """A gate fails if the lists are too few for a significance test."""
    pathlib.Path("one").write_text("1 0 a 1\n")
    pathlib.Path("worse").write_text("1 Q0 b 1 0.9 t\n")
    line = "compare --qrels one run worse -m mrr --fail-if-worse"
    assert "worse by 0.5000, p=nan, corrected p=nan" in command(line, expected=1).err
    command(line.replace("run worse", "worse run"))


def test_a_gate_warns_of_metrics_that_are_worse_by_uncorrected_p(command):
    """A metric that is worse only by its uncorrected p is named in a warning.

    Each further metric that is compared weakens the gate, which reads corrected p.
    """
    query, labels = np.repeat(np.arange(40), 2), [1, 0] * 40
    for name, lost in (("good", 0), ("bad", 5)):
        rows = {"query_id": query, "label": labels}
        rows["score"] = np.where(query < lost, [0, 1] * 40, labels)
        parquet.write_table(pa.table(rows), f"{name}.parquet")
    line = "compare good.parquet bad.parquet --fail-if-worse -m mrr"
    p = compare(*(evaluate(f"{x}.parquet", ["mrr"]) for x in ("good", "bad")))["p"][0]
    assert p < 0.05 < 3 * p
    said = f"mrr is worse by {0.5 * 5 / 40:.4f}, p={p:.2g}"
    alone = command(line, expected=1).err
    assert f"keras-rank: {said}, corrected p={p:.2g}\n" in alone
    line += " precision@1 recall@2"
    warning = f"Warning: {said}, corrected p={3 * p:.2g}: the gate reads the corrected"
    assert f"{warning} p" in command(line).err
    uncorrected = command(f"{line} --correction none", expected=1).err
    assert said in uncorrected
    assert "Warning: mrr" not in uncorrected


@pytest.mark.parametrize(("labels", "raised"), [("12", 1.0), ("21", (1 / 2 + 1) / 2)])
def test_the_relevance_threshold_by_the_rules_of_trec_eval(command, labels, raised):
    """The threshold of relevance changes map but not ndcg, like trec_eval's `-l`."""
    pathlib.Path("qrels").write_text("1 0 a {}\n1 0 b {}\n2 0 a 2\n".format(*labels))
    line = "evaluate qrels run -o tsv -m ndcg map"
    (ndcg, ap), (same, of_level) = (
        [row.split("\t")[1] for row in command(x).out.splitlines()[1:3]]
        for x in (line, f"{line} --relevance-threshold 2")
    )
    assert (same, float(ap), float(of_level)) == (ndcg, 1.0, raised)


def test_gates_compare_printed_values(command):
    """Gates compare the printed value: 7 / 10 is 0.69999999 in float32."""
    rows = {"query_id": [1] * 10, "label": [1] * 7 + [0] * 3}
    rows["score"] = [x / 2 for x in range(10)]
    parquet.write_table(pa.table(rows), "ten.parquet")
    line = "evaluate ten.parquet -m precision@10 fall_out --fail-below precision@10="
    assert command(f"{line}0.7").err == ""
    printed = command(f"{line}0.70001", expected=1)
    assert printed.err == "keras-rank: precision@10 is 0.7, below 0.70001\n"


def test_an_output_is_not_an_input(command):
    command("evaluate base.parquet -m mrr map --per-list lists.parquet")
    os.link("new.parquet", "same.parquet")
    parquet.write_table(make_rows(), "qrels.parquet")
    for line in (
        "base.parquet --per-list base.parquet",
        "base.parquet --per-list ./base.parquet",
        "*.parquet --per-list new.parquet",
        "new.parquet --per-list same.parquet",
        "lists.parquet -m mrr --per-list lists.parquet",
        "--qrels qrels.parquet run --per-list qrels.parquet",
    ):
        before = parquet.read_table(line.split()[-1])
        printed = command(f"evaluate {line}", expected=2)
        assert "an input, which it would replace" in printed.err
        assert parquet.read_table(line.split()[-1]).equals(before)
    # A file that exists but is not an input may be replaced.
    command("evaluate base.parquet -m mrr --per-list lists.parquet")


def test_a_gate_fails_if_queries_of_the_baseline_are_missing(command):
    """A gate fails if queries are missing, as the model may be worse for them."""
    rows = parquet.read_table("base.parquet")
    parquet.write_table(rows.filter(pc.less(rows["query_id"], 30)), "half.parquet")
    line = "compare base.parquet half.parquet -m ndcg@5"
    assert "only the baseline has are left out" in command(line).err
    assert "half.parquet lacks" in command(f"{line} --fail-if-worse", expected=1).err
    command("compare half.parquet base.parquet -m ndcg@5 --fail-if-worse")


def test_gates_hold_for_each_slice(command):
    line = "evaluate base.parquet -m ndcg@5 --by market"
    means = json.loads(command(f"{line} -o json").out)["summary"]
    (value, market), (other, _), _ = sorted((x["value"], x["market"]) for x in means)
    bound = (value + other) / 2
    printed = command(f"{line} --fail-below ndcg@5={bound}", expected=1)
    (shut,) = [line for line in printed.err.splitlines() if "Warning" not in line]
    assert shut == f"keras-rank: ndcg@5 of {market} is {value:.6g}, below {bound:g}"
    parquet.write_table(make_rows(noise=0.5), "run.parquet")
    line = "compare new.parquet base.parquet run.parquet -m ndcg@5 --fail-if-worse"
    printed = command(f"{line} --by market --confidence 0.5", expected=1)
    assert "ndcg@5 of base.parquet de is worse by 0." in printed.err


def read_page(file="report.html"):
    return pathlib.Path(file).read_text("utf-8")


@pytest.mark.slow
def test_a_page_is_written(command):
    pytest.importorskip("matplotlib")
    printed = command("report new.parquet --baseline base.parquet -m mrr --by market")
    assert printed.out == ""
    assert "The page is in report.html" in printed.err
    assert "Warning: 14 of 60 lists have no relevant items" in printed.err
    new, base = (evaluate(make_rows(noise=noise), ["mrr"]) for noise in (0.5, 3.0))
    compared = new.compare(base).to_html().partition("<p>")[0]
    before = read_page()
    assert "<h2>By market</h2>" in before
    assert compared in before
    there = "is there already: --output report.html replaces it"
    assert_usage_error(command, "report new.parquet -m mrr", there)
    assert read_page() == before
    # Stored lists give the same page, with the items that were kept, or without items.
    command("evaluate new.parquet -m mrr --per-list lists.parquet")
    for line, words in (
        ("new.parquet -m mrr", "keep_items=10"),
        ("new.parquet --item item_id --duplicates count -m mrr", "Items of "),
        ("new.parquet --title <New> -m mrr", "<h1>&lt;New&gt;</h1>"),
        ("lists.parquet --baseline base.parquet -m mrr", compared),
        ("qrels run", "Items of 1"),
    ):
        command(f"report {line} -o report.htm")
        assert words in read_page("report.htm")


def test_a_page_is_of_one_model(command, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "other").write_text(RUN)
    (tmp_path / "input.html").write_text(RUN)
    for line, message in (
        ("qrels run other", "A page should be of one model"),
        ("qrels", "A page should be of one model"),
        ("qrels input.html -o input.html", "--output should name a file that is not"),
        ("new.parquet -o page.pdf", "--output should name a file that ends in .html"),
        ("new.parquet --baseline nowhere.parquet", "nowhere.parquet"),
        ("new.parquet --keep-items 3", "`item` should name the column of the items"),
    ):
        assert_usage_error(command, f"report {line}", message)
    assert not pathlib.Path("report.html").exists()


def test_tables_in_html_and_versions(command):
    printed = command("evaluate new.parquet -m mrr -o html").out
    found = evaluate(make_rows(noise=0.5), ["mrr"]).summary()
    assert printed.rstrip("\n") == found.to_html()
    assert command("--version").out == f"{keras_rank.__version__}\n"


WRONG = {
    "": "the following arguments are required",
    "foo": "invalid choice: 'foo'",
    "evaluate -m mrr qrels run": "before the options or after `--`, as in `-m map --",
    "evaluate qrels": "Qrels should be followed by runs",
    "evaluate qrels run -m mrr,map": "a name and an optional cutoff",
    "evaluate qrels run --by market": "`by` should name kept columns",
    "evaluate qrels run --fail-below 0.4": "such as ndcg@10=0.40. Received: '0.4'",
    "evaluate qrels run --fail-below mrr=nan": "ndcg@10=0.40. Received: 'mrr=nan'",
    "evaluate qrels ./qrels -m mrr": "Qrels and runs should be different files",
    "compare --qrels qrels run ./qrels -m mrr": "should be different files",
    "evaluate qrels run -m mrr --fail-below map=1": "better, one of ['mrr']. Received",
    "evaluate qrels run -m mrr --fail-above mrr=1": "better, and there is none",
    "evaluate qrels run run": "Each file should be given once. Received twice: run",
    "evaluate qrels run base.parquet --per-list x.parquet": "--per-list takes one run",
    "evaluate base.parquet --by shop": "--by should name a column. Received: --by shop",
    "evaluate base.parquet --cluster shop": "--cluster should name a column. Received:",
    "evaluate base.parquet --by markets": 'Did you mean --by "market"?',
    "evaluate qrels run -m ndcg --relevance-threshold 2": "ndcg has the gains of all",
    "evaluate qrels run -m P(rel=2)@5 --relevance-threshold 2": "their own level",
    "evaluate qrels run -m ndcg(gain_fn=linear) --gains linear": "their own gains",
    "evaluate qrels run -m nDCG(dcg=log2)@5 --gains linear": "their own gains",
    "evaluate base.parquet --conf 0.9": "unrecognized arguments: --conf 0.9",
    "evaluate base.parquet --item item_id --duplicates max": "of ['error', 'count']",
    "evaluate qrels run --missing drop": "invalid choice: 'drop'",
    "evaluate base.parquet -m mrr --gains linear": "without a metric that has gains",
    "compare base.parquet new.parquet --keep market": "unrecognized arguments: --keep",
    "evaluate base.parquet --confidence 95": "`confidence` should be a number between",
    "compare base.parquet": "at least one file to compare with it",
    "compare base.parquet run": "their judgments: --qrels FILE",
}


@pytest.mark.parametrize(("line", "message"), WRONG.items())
def test_errors_take_one_line(command, line, message):
    assert_usage_error(command, line, message)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch, command):
    assert command("evaluate qrels run -m mrr").err == ""
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert run_command(["evaluate", "qrels", "run", "-m", "mrr"]) == 0
    shown = sys.stderr.getvalue()
    assert "\r3 rows read, 2 queries done" in shown
    assert shown.endswith("\r\x1b[K")


CLOSED = {"stdout": "qrels run", "stderr": "qrels none", "stdin": "qrels -"}


@pytest.mark.parametrize(("closed", "files"), CLOSED.items())
def test_closed_streams(monkeypatch, closed, files):
    monkeypatch.setattr(sys, closed, None)
    assert run_command(["evaluate", *files.split()]) == 2


def test_an_internal_error_is_not_a_failed_gate(command, monkeypatch):
    monkeypatch.setattr(
        "keras_rank.evaluation.command._create_tables", lambda *_: 1 / 0
    )
    assert "ZeroDivisionError" in command("evaluate qrels run", expected=2).err


ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run_python(*call, stdout=subprocess.PIPE, **variables):
    """Runs Python in a process whose environment only has a backend in `variables`."""
    environment = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    call = [sys.executable, *map(str, call)]
    streams = {"stdout": stdout, "stderr": subprocess.PIPE, "text": True}
    return subprocess.run(call, env=environment, check=False, **streams)


@pytest.mark.slow
def test_a_gate_fails_even_if_the_output_is_closed():
    """A gate fails even if the output is closed, as in `... | head -1`."""
    read, write = os.pipe()
    os.close(read)
    line = "-m keras_rank evaluate qrels run -m mrr --fail-below mrr=1"
    try:
        done = run_python(*line.split(), stdout=write, KERAS_BACKEND="numpy")
    finally:
        os.close(write)
    assert done.returncode == 1
    assert done.stderr == "keras-rank: mrr is 0.75, below 1\n"


@pytest.mark.slow
def test_an_unknown_backend_is_not_a_failed_gate():
    line = ["evaluate", "qrels", "run"]
    done = run_python("-m", "keras_rank_command", *line, KERAS_BACKEND="nope")
    assert done.returncode == 2
    assert done.stderr.startswith("keras-rank: error: ")
    assert len(done.stderr.splitlines()) == 1


# The start of a program for which packages appear not to be installed.
WITHOUT = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *others: (
    None if name.partition(".")[0] in {} else find(name, *others)
)
"""


@pytest.fixture
def run_script(tmp_path):
    """Returns a function that runs the script `keras-rank` without some packages."""
    module, function = PROJECT["scripts"]["keras-rank"].split(":")
    program = f"""
from {module} import {function}
try:
    {function}()
finally:
    keras = sys.modules.get("keras")
    print(keras and keras.backend.backend())
"""

    def call(line, missing):
        (tmp_path / "keras-rank").write_text(WITHOUT.format(missing) + program)
        return run_python(tmp_path / "keras-rank", *line.split())

    return call


BACKENDS = ["tensorflow", "torch", "jax"]
ALONE = {"numpy": ["tensorflow", "torch"], "torch": ["tensorflow", "jax"]}


@pytest.mark.slow
@pytest.mark.parametrize("alone", ALONE)
def test_the_command_runs_on_the_installed_backend(run_script, alone):
    """The command runs on the only installed backend, as with `[numpy,evaluation]`.

    Keras needs JAX on NumPy.
    """
    done = run_script("evaluate qrels run -m mrr", missing=ALONE[alone])
    assert done.returncode == 0, done.stderr
    assert "mrr     0.7500" in done.stdout
    assert done.stdout.endswith(f"\n{alone}\n")


OF_HELP = ["--help", "evaluate -h", "compare -h", "report -h", "--version", "x"]
# A program that prints which modules with slow imports were imported.
IMPORTED = """
import sys
import keras_rank_command

try:
    keras_rank_command.main()
finally:
    heavy = {"keras", "keras_rank", "numpy", "duckdb", "pyarrow", "scipy"}
    heavy |= {"jinja2", "tabulate"}
    print(sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize("line", OF_HELP)
def test_help_is_answered_without_keras(line):
    done = run_python("-c", IMPORTED, *line.split())
    starts = {"x": "", "--version": keras_rank.__version__}
    assert done.returncode == (2 if line == "x" else 0)
    assert done.stdout.startswith(starts.get(line, "usage: keras-rank"))
    assert done.stdout.endswith("[]\n")


NO_FILE = "should name files that exist. Received: "
ONCE = "Standard input should be given once, as it can be read only once. Received: - "
WRONG_PATHS = {
    "evaluate": "There should be files to read",
    "evaluate none.parquet": f"`files` {NO_FILE}'none.parquet', which matches no file",
    "evaluate bsae.parquet -m mrr": "Did you mean 'base.parquet'?",
    "evaluate qrels run none": f"`files` {NO_FILE}'none'",
    "evaluate qrels -- -run": f"`files` {NO_FILE}'-run'",
    "evaluate no/*.parquet": f"`files` {NO_FILE}'no/*.parquet'",
    "evaluate -j none run": f"`--qrels` {NO_FILE}'none'",
    "evaluate s3://rows.parquet": "should be files of this machine",
    "evaluate folder": "Received: 'folder', which is a folder: give 'folder/*.parquet'",
    "evaluate qrels link": "that can be read. Received: 'link', which is a broken link",
    "evaluate qrels l*k": "that can be read. Received: 'link', which is a broken link",
    "compare base.parquet none": f"`files` {NO_FILE}'none'",
    "report new.parquet --baseline none": f"`--baseline` {NO_FILE}'none'",
    "evaluate - -": f"{ONCE}and -",
    "evaluate qrels - -": f"{ONCE}and -",
    "evaluate -j - -": f"{ONCE}and -",
    "evaluate - /dev/stdin": f"{ONCE}and /dev/stdin",
    "compare - -": f"{ONCE}and -",
    "compare -j - - run": f"{ONCE}and -",
    "report -j qrels - --baseline -": f"{ONCE}and -",
    "evaluate qrels run --per-list x.csv": "should name a file that ends in .parquet",
    "evaluate qrels run --per-list no/x.parquet": "in a folder that exists. Received: ",
    "report new.parquet -o no/page.html": "--output should name a file that ends",
    "report new.parquet -o folder": "a file that ends in .html, in a folder",
}


@pytest.mark.parametrize(("line", "message"), WRONG_PATHS.items())
def test_paths_are_checked_without_keras(line, message):
    os.mkdir("folder")
    os.symlink("nowhere", "link")
    done = run_python("-c", IMPORTED, *line.split())
    assert (done.returncode, done.stdout) == (2, "[]\n")
    assert done.stderr.startswith("keras-rank: error: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_pipe_is_not_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="which is a pipe: give '-' for a run from"):
        evaluate(tmp_path / "pipe", ["mrr"])


def test_a_file_without_permission(command, monkeypatch):
    monkeypatch.setattr(os, "access", lambda file, _: file != "run")
    line = "evaluate qrels run -m mrr"
    assert_usage_error(command, line, "'run', which has no permission to be read")
    with pytest.raises(ValueError, match="`rows` should be files that can be read"):
        evaluate("run", ["mrr"])


def subparsers():
    """Returns the parsers of the subcommands by name."""
    return keras_rank_command.build_parser()._subparsers._group_actions[0].choices


def test_options_accept_what_the_functions_accept():
    """The options have the choices of the functions.

    The parser lists the choices itself, as it does not import the package.
    """
    found = {}
    for command in subparsers().values():
        for action in command._actions:
            if action.choices is not None:
                name = action.option_strings[-1].removeprefix("--")
                found[name] = found.get(name, set()) | set(action.choices)
    known = {**settings.CHOICES, **runs.CHOICES, "rules": metric_names.RULES}
    known |= {"gains": GAINS, "output": [*command_module._FORMATTERS, "json"]}
    known |= {"test": intervals.TESTS, "correction": [*intervals.CORRECTIONS, "none"]}
    both = {*settings.CHOICES["duplicates"], *runs.CHOICES["duplicates"]}
    expected = {name: set(values) for name, values in known.items()}
    assert found == {**expected, "duplicates": both}


@pytest.mark.parametrize("missing", ["duckdb", "pyarrow", "scipy", "tabulate"])
@pytest.mark.parametrize("line", ["evaluate run", "compare qrels run", "report run"])
def test_the_missing_extra_is_named(line, missing, monkeypatch, capsys):
    for name in [*sys.modules]:
        if name.startswith(("keras_rank.evaluation", "keras_rank.reading")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(sys, "argv", ["keras-rank", *line.split()])
    with pytest.raises(SystemExit) as raised:
        keras_rank_command.main()
    printed = capsys.readouterr()
    assert (raised.value.code, printed.out) == (2, "")
    assert len(printed.err.splitlines()) == 1
    start, package, needs, extra, _, install, *_ = printed.err.split("`")
    assert (start, package) == ("keras-rank: error: ", "keras_rank.evaluation")
    assert needs.endswith("which the extra ")
    needed = PROJECT["optional-dependencies"][extra]
    assert shlex.split(install) == ["pip", "install", *needed]


@pytest.mark.slow
@pytest.mark.parametrize("alone", [*ALONE, ""])
def test_the_installed_backend_is_named(tmp_path, alone):
    """If Keras's default backend is not installed, the error names the installed one.

    Without a named backend, Keras imports TensorFlow.
    """
    code = WITHOUT.format(ALONE.get(alone, BACKENDS)) + "import keras_rank.metrics"
    # `KERAS_HOME` hides the user's config file of Keras, which may name a backend.
    said = run_python("-c", code, KERAS_HOME=str(tmp_path)).stderr
    name = {"numpy": "jax"}.get(alone, alone)
    export = f"It is not set: `export KERAS_BACKEND={name}`. Received: No module named"
    install = 'for NumPy by `pip install "jax>=0.6" scipy`. Received: No module named'
    assert f"{export if alone else install} 'tensorflow'" in said
    # A named backend that is not installed is an error, even if others are installed.
    said = run_python("-c", code, KERAS_HOME=str(tmp_path), KERAS_BACKEND="tensorflow")
    assert install in said.stderr


@pytest.mark.slow
def test_without_extras_the_error_names_the_extras(run_script):
    """The error names the extras if none is installed, as after `pip install .`.

    Keras on NumPy imports SciPy and JAX.
    """
    everything = [*BACKENDS, "scipy", "duckdb", "pyarrow"]
    for missing in (BACKENDS, everything):
        done = run_script("evaluate qrels run", missing)
        assert done.returncode == 2
        assert "which the extra `numpy`, `jax`, `tensorflow` or `torch` " in done.stderr
        assert "The extras `numpy` and `evaluation` install what" in done.stderr
    assert run_script("report --help", everything).returncode == 0
