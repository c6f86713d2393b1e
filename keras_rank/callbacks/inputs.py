"""The inputs of a model as arrays, in the parts that are predicted at a time."""

from collections.abc import Iterator
from typing import Any

import keras

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
