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
    "numpy": {"plain": (213, 147, 25), "tied": (269, 159, 27)},
    "torch": {"plain": (222, 143, 25), "tied": (273, 157, 27)},
    "tensorflow": {"plain": (275, 151, 23), "tied": (380, 172, 25)},
    "jax": {"plain": (75, 45, 11), "tied": (75, 45, 11)},
}[keras.backend.backend()]


def walk_of(call):
    """The files and the functions that a call enters, one after the other."""
    entered = []

    def watch(frame, event, _):
        code = frame.f_code
        is_ours = code.co_filename.startswith(PACKAGE)
        # Comprehensions and lambdas are read where they stand.
        if event == "call" and is_ours and not code.co_name.startswith("<"):
            entered.append((code.co_filename, code.co_qualname, code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return entered


@pytest.mark.programs
@pytest.mark.parametrize("scores", BUDGETS)
def test_the_walk_is_within_budget(scores):
    labels, distinct = batch_of(32, 100)
    given = distinct if scores == "plain" else np.round(distinct, 1)
    batch = tensors(labels, given)
    metric = NDCG(k=10)
    metric.update_state(*batch)
    walk = walk_of(lambda: metric.update_state(*batch))
    files = {file for file, *_ in walk}
    found = len(walk), len(set(walk)), len(files)
    within = [n <= most for n, most in zip(found, BUDGETS[scores], strict=True)]
    assert all(within), f"calls, functions and files: {found}"
