"""Budgets of Python calls: functions of the package that an update of NDCG calls."""

import os
import sys

import keras
import numpy as np
import pytest
from timing import make_batch, tensors

import keras_rank
from keras_rank.metrics import NDCG

PACKAGE = os.path.dirname(keras_rank.__file__)

# Calls, functions and files of a second update, which on JAX is a compiled program.
BUDGETS = {
    "numpy": {"plain": (227, 156, 26), "tied": (290, 170, 28)},
    "torch": {"plain": (238, 154, 27), "tied": (300, 171, 29)},
    "tensorflow": {"plain": (309, 150, 27), "tied": (378, 165, 29)},
    "jax": {"plain": (57, 38, 12), "tied": (57, 38, 12)},
}[keras.backend.backend()]
# Calls before the program starts, which take a large part of the time of a small batch.
CALLS_BEFORE_PROGRAM = {"numpy": 43, "torch": 45, "tensorflow": 45, "jax": 66}[
    keras.backend.backend()
]


def record_calls(function):
    """Returns the file and the function of each call of the package, in order.

    This includes comprehensions and lambdas, if Python calls them.
    """
    entered = []

    def watch(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            entered.append((code.co_filename, code.co_name, code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(before)
    return entered


def record_second_update(labels, scores):
    """Returns the calls of a second update."""
    batch, metric = tensors(labels, scores), NDCG(k=10)
    metric.update_state(*batch)
    return record_calls(lambda: metric.update_state(*batch))


@pytest.mark.programs
def test_calls_before_the_program_are_within_budget():
    """Each argument is read, checked and grouped once."""
    calls = record_second_update(*make_batch(32, 100))
    before = [name for _, name, _ in calls].index("run_program") + 1
    assert before <= CALLS_BEFORE_PROGRAM


@pytest.mark.programs
@pytest.mark.parametrize("scores", BUDGETS)
def test_calls_of_an_update_are_within_budget(scores):
    labels, distinct = make_batch(32, 100)
    y_pred = distinct if scores == "plain" else np.round(distinct, 1)
    # Comprehensions and lambdas are not counted, as they are part of their function.
    calls = [x for x in record_second_update(labels, y_pred) if x[1][0] != "<"]
    files = {file for file, *_ in calls}
    counts = len(calls), len(set(calls)), len(files)
    within = [n <= most for n, most in zip(counts, BUDGETS[scores], strict=True)]
    assert all(within), f"calls, functions and files: {counts}"
