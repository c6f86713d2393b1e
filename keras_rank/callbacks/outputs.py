"""The output of a model that holds the scores."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_rank.backends import Array

# What to do where predictions are not scores alone.
WHICH = (
    "For one of several outputs, pass its name as `output`; for one of several "
    "columns, pass a `model` that returns it."
)


def output_names(model: Any) -> list[str] | None:
    """Returns the names of the outputs of a model, in order, `None` if unknown."""
    names = getattr(model, "output_names", None)
    return None if names is None else list(names)


def scores_of(predicted: Any, output: str | None, names: list[str] | None) -> Array:
    """Returns the scores in what `predict` returns.

    Args:
        predicted: an array, or a dict, list or tuple of one for each output.
        output: the name of the output that holds the scores, `None` if there is one.
        names: the names of the outputs in their order, `None` if unknown.
    """
    if output is not None and not isinstance(predicted, Mapping | list | tuple):
        predicted = [predicted]
    scores = _of_output(predicted, output, names)
    if not hasattr(scores, "shape"):
        raise ValueError(
            "`output` should be the name of an output that is one array. Received: "
            f"output={output!r}, which is of type {type(scores).__name__}"
        )
    # A model may return the same memory again.
    scores = np.array(scores)
    # NumPy has no bfloat16 of its own.
    return scores if scores.dtype.kind in "biuf" else scores.astype("float32")


def _of_output(predicted: Any, output: str | None, names: list[str] | None) -> Any:
    """Returns the predictions of one output."""
    by_name = predicted
    if isinstance(predicted, list | tuple):
        are_named = names is not None and len(names) == len(predicted)
        by_name = dict(zip(names or [], predicted, strict=True)) if are_named else {}
    if not isinstance(by_name, Mapping):
        return predicted
    if output is None and len(predicted) == 1:
        (only,) = predicted.values() if isinstance(predicted, Mapping) else predicted
        return only
    if output in by_name:
        return by_name[output]
    known = f"are {sorted(map(str, by_name))}" if by_name else "are unknown"
    raise ValueError(
        "`output` should be the name of the output whose scores are evaluated. "
        f"Received: output={output!r}, where the names {known}"
    )


def of_rows(scores: Array, rows: int) -> Array:
    """Returns scores as one column. Raises unless there is one for each row."""
    if scores.shape[:1] != (rows,) or set(scores.shape[1:]) - {1}:
        raise ValueError(
            "The model should return one score for each row, of shape (rows,) or "
            f"(rows, 1), and each row should have one id in `group_ids`. {WHICH} "
            f"Received: predictions of shape {scores.shape} for {rows} ids"
        )
    return scores.reshape(-1)
