"""The inputs of a model and the columns of its rows, as arrays."""

import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array, backend
from keras_rank.callbacks.base import BY
from keras_rank.lists.groups import ids_of, labels_of, rows_of

# The default batch size of `predict`.
BATCH_SIZE = 32
# How much is predicted at a time, so that neither inputs nor outputs of all rows are in
# memory at once.
MOST_ROWS, MOST_BYTES = 2**19, 2**26


def are_arrays(x: Any) -> bool:
    """Whether inputs are an array, or a list, tuple or dict of arrays."""
    leaves = keras.tree.flatten(x)
    return bool(leaves) and all(len(getattr(each, "shape", ())) > 0 for each in leaves)


class Inputs:
    """An array, or a list, tuple or dict of arrays, with as many rows each.

    Attributes:
        number: the number of rows.
        batch_size: the batch size of `predict`.
    """

    def __init__(self, x: Any, batch_size: int | None, noun: str) -> None:
        """Checks the number of rows.

        Args:
            x: the arrays.
            batch_size: the batch size of `predict`, or `None`.
            noun: what a row is, for errors.
        """
        self._x, self.batch_size = x, batch_size or BATCH_SIZE
        sizes = {int(each.shape[0]) for each in keras.tree.flatten(x)}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError(
                f"`x` should hold arrays with one row for each {noun}. Received: "
                f"arrays with the numbers of rows {sorted(sizes)}"
            )
        self.number = sizes.pop()

    def first(self) -> tuple[int, int]:
        """The first row of the first batch, and the first after it."""
        return 0, min(self.batch_size, self.number)

    def spans(self, most: int = MOST_ROWS) -> Iterator[tuple[int, int]]:
        """The first row of each part, and the first after it.

        Args:
            most: how many rows may be predicted at a time, but a batch at least.
        """
        arrays = keras.tree.flatten(self._x)
        memory = max(1, sum(int(getattr(x, "nbytes", 0)) for x in arrays))
        most = min(most, MOST_ROWS, int(MOST_BYTES * self.number / memory))
        # So that batches are those of `predict` on all rows.
        size = max(most // self.batch_size, 1) * self.batch_size
        if not all(hasattr(x, "__getitem__") for x in arrays):
            # Sparse tensors of TensorFlow can't be cut.
            size = self.number
        for start in range(0, self.number, size):
            yield start, min(start + size, self.number)

    def part(self, start: int, stop: int) -> Any:
        """The inputs of some rows."""

        def cut(x: Any) -> Any:
            # Rows of a table of pandas.
            return getattr(x, "iloc", x)[start:stop]

        is_whole = (start, stop) == (0, self.number)
        return self._x if is_whole else keras.tree.map_structure(cut, self._x)


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
