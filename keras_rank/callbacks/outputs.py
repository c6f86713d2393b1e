"""The output of a model that holds the scores, and what belongs to it."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_rank.backends import Array

# What to do where predictions are not scores alone.
WHICH = (
    "For one of several outputs, pass its name as `output`; for one of several "
    "columns, pass a `model` that returns it."
)


def of_output(
    argument: str, structure: Any, output: str | None, names: list[str] | None
) -> Any:
    """Returns what predictions, targets or weights have for an output.

    Args:
        argument: the name of the argument that chooses it.
        structure: an array, or a dict, list or tuple of one for each output.
        output: the name of the output, `None` if there is one only.
        names: the names of the outputs in their order, `None` if unknown.
    """
    by_name = structure
    if isinstance(structure, list | tuple):
        are_named = names is not None and len(names) == len(structure)
        by_name = dict(zip(names or [], structure, strict=True)) if are_named else {}
    if not isinstance(by_name, Mapping):
        return structure
    if output is None and len(structure) == 1:
        (only,) = structure.values() if isinstance(structure, Mapping) else structure
        return only
    if output in by_name:
        return by_name[output]
    known = f"are {sorted(map(str, by_name))}" if by_name else "are unknown"
    raise ValueError(
        f"`output` should be the name of the output whose {argument} are evaluated. "
        f"Received: output={output!r}, where the names {known}"
    )


def output_names(model: Any) -> list[str] | None:
    """The names of the outputs of a model, in order, `None` if it tells none."""
    names = getattr(model, "output_names", None)
    return None if names is None else list(names)


def scores_of(predicted: Any, output: str | None, names: list[str] | None) -> Array:
    """The scores in what `predict` returns."""
    if output is not None and not isinstance(predicted, Mapping | list | tuple):
        predicted = [predicted]
    scores = of_output("scores", predicted, output, names)
    if not hasattr(scores, "shape"):
        raise ValueError(
            "`output` should be the name of an output that is one array. Received: "
            f"output={output!r}, which is of type {type(scores).__name__}"
        )
    # A model may return the same memory again.
    scores = np.array(scores)
    # NumPy has no bfloat16 of its own.
    return scores if scores.dtype.kind in "biuf" else scores.astype("float32")


def of_rows(scores: Array, rows: int) -> Array:
    """Scores as a column, and checks that there is one for each row."""
    if scores.shape[:1] != (rows,) or set(scores.shape[1:]) - {1}:
        raise ValueError(
            "The model should return one score for each row, of shape (rows,) or "
            f"(rows, 1). {WHICH} Received: predictions of shape {scores.shape} for "
            f"{rows} rows"
        )
    return scores.reshape(-1)


def taken(model: Any, x: Any, names: list[str]) -> Any:
    """Inputs without the columns of some names, if the model doesn't take these."""
    if not isinstance(x, Mapping) or not names:
        return x
    inputs = _inputs_of(model)
    return {
        name: each
        for name, each in x.items()
        if name not in names
        or (name in inputs if inputs is not None else _is_tensor(each))
    }


def _inputs_of(model: Any) -> set[str] | None:
    """The names of the inputs of a model, `None` if it tells none."""
    inputs = getattr(model, "input", None)
    if isinstance(inputs, Mapping):
        return set(inputs)
    if inputs is None:
        return None
    return {each.name for each in keras.tree.flatten(inputs)}


def _is_tensor(column: Any) -> bool:
    """Whether the backend has tensors of such values: not all have strings."""
    try:
        keras.ops.convert_to_tensor(column[:1])
    except (TypeError, ValueError):
        return False
    return True
