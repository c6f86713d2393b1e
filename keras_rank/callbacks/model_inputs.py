"""Inputs of a model and columns with a value for each row, as arrays."""

import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_rank.arguments import argument_error
from keras_rank.backends import Array, backend
from keras_rank.callbacks.base import BY
from keras_rank.lists.groups import convert_ids, convert_labels, convert_rows

# The default batch size of `predict`.
BATCH_SIZE = 32
# The largest numbers of rows and of bytes of inputs for one call of `predict`, so that
# the inputs and outputs of all rows are never in memory at the same time.
MAX_ROWS, MAX_BYTES = 2**19, 2**26


def has_only_arrays(x: Any) -> bool:
    """Returns whether inputs are an array, or a list, tuple or dict of arrays."""
    leaves = keras.tree.flatten(x)
    return bool(leaves) and all(len(getattr(leaf, "shape", ())) > 0 for leaf in leaves)


class Inputs:
    """The inputs of a model: arrays with an equal number of rows.

    Attributes:
        num_rows: the number of rows.
        batch_size: the batch size of `predict`.
    """

    def __init__(self, x: Any, batch_size: int | None, noun: str) -> None:
        """Checks that the arrays agree in their number of rows.

        Args:
            x: an array, or a list, tuple or dict of arrays.
            batch_size: the batch size of `predict`, or `None`.
            noun: a name for a row, for error messages.
        """
        self._x, self.batch_size = x, batch_size or BATCH_SIZE
        sizes = {int(array.shape[0]) for array in keras.tree.flatten(x)}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError(
                f"`x` should hold arrays with one row for each {noun}. Received: "
                f"arrays with the numbers of rows {sorted(sizes)}"
            )
        self.num_rows = sizes.pop()

    def first(self) -> tuple[int, int]:
        """Returns the start and stop of the rows of the first batch."""
        return 0, min(self.batch_size, self.num_rows)

    def spans(self, max_rows: int = MAX_ROWS) -> Iterator[tuple[int, int]]:
        """Yields the start and stop of the rows of each part to predict.

        Args:
            max_rows: the largest number of rows of a part. A part has at least the size
                of a batch.
        """
        arrays = keras.tree.flatten(self._x)
        memory = max(1, sum(int(getattr(x, "nbytes", 0)) for x in arrays))
        max_rows = min(max_rows, MAX_ROWS, int(MAX_BYTES * self.num_rows / memory))
        # Parts consist of whole batches, so batches are those of `predict` on all rows.
        size = max(max_rows // self.batch_size, 1) * self.batch_size
        if not all(hasattr(x, "__getitem__") for x in arrays):
            # Sparse tensors of TensorFlow can't be sliced.
            size = self.num_rows
        for start in range(0, self.num_rows, size):
            yield start, min(start + size, self.num_rows)

    def part(self, start: int, stop: int) -> Any:
        """Returns the inputs of a range of rows."""

        def slice_rows(x: Any) -> Any:
            # pandas slices rows by `iloc`.
            return getattr(x, "iloc", x)[start:stop]

        is_whole = (start, stop) == (0, self.num_rows)
        return self._x if is_whole else keras.tree.map_structure(slice_rows, self._x)


# The arguments with a value for each row, in addition to `BY`.
LABELS, IDS, WEIGHTS = "labels", "group_ids", "sample_weight"


def read_column(argument: str, value: Any, rows: int | None = None) -> Array:
    """Returns a copy of an argument with a value for each row, as an array.

    Args:
        argument: the name of the argument.
        value: the values.
        rows: the expected number of rows. Defaults to `None`: it is unknown, or there
            may be a value for each list instead.
    """
    if value is None or isinstance(value, str | bytes):
        source = "y" if value is None else f"x[{value!r}]"
        raise ValueError(
            f"`{argument}` should be an array with one value for each row of `x`. "
            "Nothing is read from the batches of a data set: for batches `(x, y)`, "
            f"pass `np.concatenate([{source} for x, y in data_set])`. Received: "
            f"{argument}={reprlib.repr(value)}"
        )
    if not isinstance(value, Sequence) and not hasattr(value, "shape"):
        raise argument_error(argument, "an array or a list of values for rows", value)
    if argument in (LABELS, WEIGHTS):
        value = convert_rows(argument, backend.prepare_for_numpy(value))
    flat = _flatten(argument, value)
    if argument == BY:
        values = convert_labels(BY, flat)
    else:
        # The values are copied, as users may change them before the end of an epoch.
        values = np.array(convert_ids(flat) if argument == IDS else flat)
    if rows not in (None, len(values)):
        raise ValueError(
            f"`{argument}` should have one value for each row. Received: {len(values)} "
            f"values for {rows} rows, each with an id in `{IDS}`"
        )
    return values


def _flatten(argument: str, value: Any) -> Any:
    """Returns a column without the last axis of size 1 that Keras and data sets add."""
    shape = tuple(getattr(value, "shape", (0,)))
    if len(shape) > 1 and set(shape[1:]) == {1}:
        return value.reshape(-1) if hasattr(value, "reshape") else np.ravel(value)
    if len(shape) != 1:
        raise ValueError(
            f"`{argument}` should have one value for each row, in the shape (rows,) or "
            f"(rows, 1). Received: {argument}.shape={shape}"
        )
    return value
