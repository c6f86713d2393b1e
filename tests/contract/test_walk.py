"""How many functions of the package a reader follows through one update of NDCG."""

import os
import sys

import keras
import numpy as np
import pytest
from timing import batch_of, tensors

import keras_rank
from keras_rank.metrics import NDCG

PACKAGE = os.path.dirname(keras_rank.__file__)

# Calls, functions and files, of a second update. On JAX, it is a compiled program.
BUDGETS = {
    "numpy": {"plain": (227, 156, 26), "tied": (290, 170, 28)},
    "torch": {"plain": (238, 154, 27), "tied": (300, 171, 29)},
    "tensorflow": {"plain": (309, 150, 27), "tied": (378, 165, 29)},
    "jax": {"plain": (57, 38, 12), "tied": (57, 38, 12)},
}[keras.backend.backend()]
# Calls until the program starts, which takes a good part of the time of a small batch.
BEFORE = {"numpy": 43, "torch": 45, "tensorflow": 45, "jax": 66}[
    keras.backend.backend()
]


def walk_of(call):
    """The files and the functions that a call enters, one after the other.

    Comprehensions and lambdas are among them, as far as Python calls them.
    """
    entered = []

    def watch(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            entered.append((code.co_filename, code.co_name, code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return entered


def walk_of_update(labels, scores):
    """The walk of a second update."""
    batch, metric = tensors(labels, scores), NDCG(k=10)
    metric.update_state(*batch)
    return walk_of(lambda: metric.update_state(*batch))


@pytest.mark.programs
def test_calls_before_the_program_are_within_budget():
    """What is read, checked and grouped, once for each argument."""
    walk = walk_of_update(*batch_of(32, 100))
    before = [name for _, name, _ in walk].index("enter") + 1
    assert before <= BEFORE


@pytest.mark.programs
@pytest.mark.parametrize("scores", BUDGETS)
def test_the_walk_is_within_budget(scores):
    labels, distinct = batch_of(32, 100)
    given = distinct if scores == "plain" else np.round(distinct, 1)
    # Comprehensions and lambdas are read where they stand.
    walk = [step for step in walk_of_update(labels, given) if step[1][0] != "<"]
    files = {file for file, *_ in walk}
    found = len(walk), len(set(walk)), len(files)
    within = [n <= most for n, most in zip(found, BUDGETS[scores], strict=True)]
    assert all(within), f"calls, functions and files: {found}"
