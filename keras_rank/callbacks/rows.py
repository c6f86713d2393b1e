"""Arrays with one value for each row: labels, ids, weights and segments."""

import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array, backend
from keras_rank.callbacks.segments import BY
from keras_rank.lists.groups import ids_of, labels_of, rows_of

# The arguments that have a value for each row, with `BY`.
LABELS, IDS, WEIGHTS = "labels", "group_ids", "sample_weight"


def column(argument: str, value: Any, rows: int | None = None) -> Array:
    """Returns a copy of the values of all rows as an array.

    Args:
        argument: the name of the argument.
        value: the values.
        rows: the number of rows. Defaults to `None`: it is unknown, or the values may
            be those of lists.
    """
    if value is None or isinstance(value, str | bytes):
        place = "y" if value is None else f"x[{value!r}]"
        raise ValueError(
            f"`{argument}` should be an array with one value for each row of `x`. "
            "Nothing is read from the batches of a data set: for batches `(x, y)`, "
            f"pass `np.concatenate([{place} for x, y in data_set])`. Received: "
            f"{argument}={reprlib.repr(value)}"
        )
    if not isinstance(value, Sequence) and not hasattr(value, "shape"):
        raise unaccepted(argument, "an array or a list of values for rows", value)
    if argument in (LABELS, WEIGHTS):
        value = rows_of(argument, backend.for_numpy(value))
    flat = _flat(argument, value)
    if argument == BY:
        values = labels_of(BY, flat)
    else:
        # A copy, as users may change the values before the end of an epoch.
        values = np.array(ids_of(flat) if argument == IDS else flat)
    if rows not in (None, len(values)):
        raise ValueError(
            f"`{argument}` should have one value for each row. Received: {len(values)} "
            f"values for {rows} rows, each with an id in `{IDS}`"
        )
    return values


def _flat(argument: str, value: Any) -> Any:
    """Drops the last axis of size 1 of a column, which Keras and data sets add."""
    shape = tuple(getattr(value, "shape", (0,)))
    if len(shape) > 1 and set(shape[1:]) == {1}:
        return value.reshape(-1) if hasattr(value, "reshape") else np.ravel(value)
    if len(shape) != 1:
        raise ValueError(
            f"`{argument}` should have one value for each row, in the shape (rows,) or "
            f"(rows, 1). Received: {argument}.shape={shape}"
        )
    return value
