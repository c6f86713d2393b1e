"""Rows of single items, and what belongs to each: arrays of all, or a data set."""

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
        x: the inputs of the model.
        rows: their number.
        batch_size: the batch size of `predict`.
        columns: what each batch of a data set has for its rows, by argument.
    """

    x: Any
    rows: int
    batch_size: int
    columns: Sequence[dict[str, Array]] = ()


class Rows(abc.ABC):
    """All rows, which can be read again.

    Attributes:
        given: what arrays have for all rows, by argument. Nothing for a data set.
        number: the number of rows, `None` if it is unknown.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.given: dict[str, Array] = {}
        self.number: int | None = None
        # Of inputs or targets, which the model may not take.
        self._names = [key for key in columns.values() if isinstance(key, str)]

    @abc.abstractmethod
    def first_batch(self, model: Any) -> Part:
        """Reads the rows of the first batch that a model predicts."""

    @abc.abstractmethod
    def parts(self, model: Any) -> Iterator[Part]:
        """Reads all rows once."""


class ArrayRows(Rows):
    """The rows of an array, or of a list, tuple or dict of arrays.

    Args:
        x: the arrays.
        columns: what belongs to the rows, by argument: values, or the name of an input.
        batch_size: the batch size of `predict`, or `None`.
    """

    def __init__(
        self, x: Any, columns: Mapping[str, Any], batch_size: int | None
    ) -> None:
        super().__init__(columns)
        self._inputs = Inputs(x, batch_size, "item")
        self.number = self._inputs.number
        for name, value in columns.items():
            if value is None and name in (LABELS, IDS):
                raise unaccepted(name, "given for each row of the arrays `x`", None)
            if isinstance(value, str):
                value = named(name, value, x)
            if value is not None:
                # Weights may be those of lists, whose number is not known yet.
                rows = None if name == WEIGHTS else self.number
                self.given[name] = column(name, value, rows)

    def first_batch(self, model: Any) -> Part:
        return self._part(model, *self._inputs.first())

    def parts(self, model: Any) -> Iterator[Part]:
        for span in self._inputs.spans():
            yield self._part(model, *span)

    def _part(self, model: Any, start: int, stop: int) -> Part:
        x = taken(model, self._inputs.part(start, stop), self._names)
        return Part(x, stop - start, self._inputs.batch_size)


def named(argument: str, key: str, *structures: Any) -> Any:
    """What inputs or targets hold under a name."""
    dicts = [each for each in structures if isinstance(each, Mapping)]
    found = [each[key] for each in dicts if key in each]
    if len(found) == 1:
        return found[0]
    names = sorted(str(name) for each in dicts for name in each)
    raise ValueError(
        f"`{argument}` should be values for each row, or the name of one input or "
        f"target in `x`. For a column of a table, pass `df[{key!r}]`. Received: "
        f"{argument}={key!r}, where the names are {names}"
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
