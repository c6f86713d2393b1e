"""Rows of single items, and what belongs to each: arrays of all, or a data set."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array, backend
from keras_rank.callbacks.inputs import Inputs
from keras_rank.callbacks.outputs import taken
from keras_rank.callbacks.segments import BY
from keras_rank.lists.groups import ids_of, labels_of, rows_of

# The arguments that have a value for each row, with `BY`.
LABELS, IDS, WEIGHTS = "labels", "group_ids", "sample_weight"


class Part(NamedTuple):
    """Rows that are predicted at a time.

    Attributes:
        x: the inputs of the model, or their scores.
        rows: their number.
        batch_size: the batch size of `predict`.
        columns: what a data set has for them, by argument.
    """

    x: Any
    rows: int
    batch_size: int
    columns: Mapping[str, Array]

    @classmethod
    def joined(cls, parts: Sequence["Part"]) -> "Part":
        """Returns those of several parts."""
        if not parts:
            raise ValueError("`x` should have batches of rows. Received: none")
        each_x, rows, sizes, columns = zip(*parts, strict=True)
        if len({*map(frozenset, columns)}) > 1:
            raise ValueError(
                f"`{WEIGHTS}` should come with each batch of the data set `x`, or with "
                "none. Received: batches with weights, and others without"
            )
        if len(parts) == 1:
            return parts[0]

        def join(*arrays: Array) -> Array:
            return np.concatenate(arrays)

        x, its = (keras.tree.map_structure(join, *each) for each in (each_x, columns))
        return cls(x, sum(rows), sizes[0], its)


class ArrayRows:
    """The rows of an array, or of a list, tuple or dict of arrays.

    Attributes:
        number: the number of rows.
        given: what belongs to all rows, by argument.
    """

    def __init__(
        self, x: Any, columns: Mapping[str, Any], batch_size: int | None
    ) -> None:
        """Converts what belongs to the rows.

        Args:
            x: the arrays.
            columns: by argument, values, the name of an input, or `None`.
            batch_size: the batch size of `predict`, or `None`.
        """
        self._inputs, self._names = Inputs(x, batch_size, "item"), names_in(columns)
        self.number = self._inputs.number
        self.given: dict[str, Array] = {}
        for name, value in columns.items():
            if isinstance(value, str):
                value = named(name, value, x)
            if value is not None:
                # Weights may be those of lists, whose number is not known yet.
                rows = None if name == WEIGHTS else self.number
                self.given[name] = column(name, value, rows)
            elif name in (LABELS, IDS):
                raise unaccepted(name, "given for each row of the arrays `x`", None)

    def first_batch(self, model: Any) -> Part:
        """The rows of the first batch that a model predicts."""
        return self._part(model, *self._inputs.first())

    def parts(self, model: Any) -> Iterator[Part]:
        """All rows, in the parts that a model predicts at a time."""
        for span in self._inputs.spans():
            yield self._part(model, *span)

    def _part(self, model: Any, start: int, stop: int) -> Part:
        x = taken(model, self._inputs.part(start, stop), self._names)
        return Part(x, stop - start, self._inputs.batch_size, {})


def names_in(columns: Mapping[str, Any]) -> list[str]:
    """The names of inputs or targets that are given, which a model may not take."""
    return [key for key in columns.values() if isinstance(key, str)]


def named(argument: str, key: str, *structures: Any) -> Any:
    """What inputs or targets hold under a name."""
    dicts = [each for each in structures if isinstance(each, Mapping)]
    found = [each[key] for each in dicts if key in each]
    if len(found) == 1:
        return found[0]
    names = sorted(str(name) for each in dicts for name in each)
    raise ValueError(
        f"`{argument}` should be the name of one input or target in `x`, or, with "
        f"arrays, values for each row: for a column of a table, pass `df[{key!r}]`. "
        f"Received: {argument}={key!r}, where the names are {names}"
    )


def column(
    argument: str,
    value: Any,
    rows: int | None,
    numbers_of: dict[Any, int] | None = None,
) -> Array:
    """Converts what belongs to rows.

    Args:
        argument: the name of the argument.
        value: the values.
        rows: the number of rows, `None` if values may be those of lists.
        numbers_of: as for `ids_of`, where the rows are those of a batch.
    """
    if argument in (LABELS, WEIGHTS):
        value = rows_of(argument, backend.for_numpy(value))
    flat = _flat(argument, value)
    if argument == BY:
        found = labels_of(BY, flat)
    else:
        # A copy, as users may change what they gave before the end of an epoch.
        found = np.array(ids_of(flat, numbers_of) if argument == IDS else flat)
    if rows not in (None, len(found)):
        raise ValueError(
            f"`{argument}` should have one value for each row. Received: {len(found)} "
            f"values for {rows} rows"
        )
    return found


def _flat(argument: str, value: Any) -> Any:
    """Drops the last axis of a column, as Keras and data sets add one."""
    shape = tuple(getattr(value, "shape", (0,)))
    if len(shape) > 1 and set(shape[1:]) == {1}:
        return value.reshape(-1) if hasattr(value, "reshape") else value[:, 0]
    if len(shape) != 1:
        raise ValueError(
            f"`{argument}` should have one value for each row, in the shape (rows,) or "
            f"(rows, 1). Received: {argument}.shape={shape}"
        )
    return value
