"""Types of the functions that are generated from classes, as checked by mypy."""

import subprocess
import sys

import pytest

# Calls, with the name of the error if they are wrong.
CALLS = {
    "functional.ndcg([[1, 0]], [[0.9, 0.1]], k=3, gain_fn='linear')": None,
    "functional.ndcg([[1, 0]], [[0.9, 0.1]], sample_weight=[1.0], seed=1)": None,
    "functional.kendall_tau([[1, 0]], [[0.9, 0.1]], dtype='float64')": None,
    "functional.ndcg(functional.rank([[1, 0]], [[0.9, 0.1]]), k=1)": None,
    "functional.ndcg([[1, 0]], [[0.9, 0.1]], kk=3)": "call-arg",
    "functional.ndcg([[1, 0]], [[0.9, 0.1]], normalizer='total')": "call-arg",
    "functional.ndcg([[1, 0]], [[0.9, 0.1]], k='3')": "arg-type",
    "functional.average_precision([[1]], [[0.9]], normalizer=3)": "arg-type",
    "functional.precision()": "call-arg",
    "metrics.NDCG(10, 'linear')": "call-arg",
    "metrics.IntraListDiversity(10)": "call-arg",
    "metrics.RankingMetrics(['ndcg@10'], prefix=1)": "arg-type",
}


@pytest.mark.slow
def test_types_of_calls(tmp_path):
    file = tmp_path / "calls.py"
    file.write_text("\n".join(["from keras_rank import functional, metrics", *CALLS]))
    options = ["--strict", "--follow-imports=silent", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, str(file)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    actual = {}
    for line in process.stdout.splitlines():
        location, _, message = line.partition(": error: ")
        if message:
            actual[int(location.rsplit(":", 1)[1])] = message.rsplit("[", 1)[1].rstrip(
                "]"
            )
    expected = {i: name for i, name in enumerate(CALLS.values(), 2) if name}
    assert actual == expected, process.stdout + process.stderr
