"""Rows of single items, read in the order in which a model predicts their scores."""

import abc
import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array, backend
from keras_rank.callbacks import inputs
from keras_rank.callbacks.outputs import of_output
from keras_rank.callbacks.segments import BY
from keras_rank.catalogue.candidates import batches_of
from keras_rank.lists.copies import own
from keras_rank.lists.given import SPARSE, form_of
from keras_rank.lists.groups import ids_of, labels_of, rows_of

# The arguments that have a value for each row.
LABELS, IDS, WEIGHTS = "labels", "group_ids", "sample_weight"

# The chance that rows are shuffled and it is not noticed is below 2 to minus this.
_CERTAINTY = 40

_DATA_SET = (
    "arrays, as `predict` takes them, or a data set whose batches can be read again "
    "after each epoch"
)


class Part(NamedTuple):
    """Rows that are predicted at a time.

    Attributes:
        x: the inputs.
        rows: their number.
        batch_size: the batch size of `predict`.
        columns: what a data set has for them: of each of its batches the number of
            rows, and a dict by the names of arguments.
    """

    x: Any
    rows: int
    batch_size: int
    columns: list[tuple[int, dict[str, Any]]]


class Rows(abc.ABC):
    """All rows, in an order in which they can be read again.

    Attributes:
        given: what was given for all rows, by the names of arguments.
        number: the number of rows, `None` if it is unknown.
        names: the names of inputs or targets that are no values of the model, but were
            named as one of the arguments.
    """

    given: dict[str, Any]
    number: int | None
    names: list[str]

    @abc.abstractmethod
    def first_batch(self) -> Part:
        """Returns the first rows, as many as the batch size."""

    @abc.abstractmethod
    def parts(self) -> Iterator[Part]:
        """Reads all rows once."""

    @abc.abstractmethod
    def check_order(self) -> None:
        """Raises if the rows are not in the order of what was given for them."""

    def _check_numbers(self) -> None:
        for name, values in self.given.items():
            # Weights may be those of lists, whose number is not known yet.
            if name != WEIGHTS and len(values) != self.number:
                raise ValueError(
                    f"`{name}` should have one value for each row. Received: "
                    f"{len(values)} values for {self.number} rows"
                )


def rows_from(x: Any, columns: Mapping[str, Any], batch_size: int | None) -> Rows:
    """Returns the rows of arrays, or of a data set.

    Args:
        x: the inputs of a model, as arrays or as a data set.
        columns: what belongs to the rows, by the names of arguments: values, the name
            of an input or of a target, or `None` for what a data set has in its place.
        batch_size: the batch size for arrays, or `None`.
    """
    if inputs.are_arrays(x):
        return ArrayRows(x, columns, batch_size)
    return DataSetRows(x, columns)


class ArrayRows(Rows):
    """The rows of an array, or of a list, tuple or dict of arrays."""

    def __init__(
        self, x: Any, columns: Mapping[str, Any], batch_size: int | None
    ) -> None:
        self.names = [key for key in columns.values() if isinstance(key, str)]
        values = {
            name: _named(name, value, x, None) if isinstance(value, str) else value
            for name, value in columns.items()
        }
        for name in (LABELS, IDS):
            if values[name] is None:
                raise unaccepted(name, "given for each row of the arrays `x`", None)
        self.given = {
            name: column(name, value)
            for name, value in values.items()
            if value is not None
        }
        self._inputs = inputs.Inputs(x, batch_size, "item")
        self.number = self._inputs.number
        self._check_numbers()

    def first_batch(self) -> Part:
        return self._part(*self._inputs.first())

    def parts(self) -> Iterator[Part]:
        for span in self._inputs.spans():
            yield self._part(*span)

    def check_order(self) -> None:
        """Arrays have an order."""

    def _part(self, start: int, stop: int) -> Part:
        x = self._inputs.part(start, stop)
        return Part(x, stop - start, self._inputs.batch_size, [])


class DataSetRows(Rows):
    """The rows of a data set: batches of inputs, targets and weights.

    What was not given for all rows is read in the same pass as the inputs, so that
    their order may be another one in each pass.
    """

    def __init__(self, x: Any, columns: Mapping[str, Any]) -> None:
        _check_data_set(x)
        self._data_set = x
        self._are_read = {
            name: key
            for name, key in columns.items()
            if key is None or isinstance(key, str)
        }
        if self._are_read.get(IDS, "") is None:
            accepted = "ids, or the name of the input or target that holds them"
            raise unaccepted(IDS, accepted, None)
        self.names = [key for key in self._are_read.values() if key is not None]
        self.given = {
            name: column(name, value)
            for name, value in columns.items()
            if name not in self._are_read
        }
        # Weights may be those of lists.
        of_rows = [name for name in self.given if name != WEIGHTS]
        self.number = len(self.given[of_rows[0]]) if of_rows else None
        self._check_numbers()
        self._fingerprint = b""

    def first_batch(self) -> Part:
        batch = next(self._batches(), None)
        if batch is None:
            raise ValueError("`x` should have batches of rows. Received: none")
        return _joined([batch])

    def parts(self) -> Iterator[Part]:
        waiting: list[_Batch] = []
        for batch in self._checked_batches():
            if waiting and not _can_join(waiting, batch):
                yield _joined(waiting)
                waiting = []
            waiting.append(batch)
        if waiting:
            yield _joined(waiting)

    def check_order(self) -> None:
        if self.number is None:
            return
        batches, targets = 0, []
        for batch in self._checked_batches():
            batches += 1
            targets.append(batch.y)
        _check_targets(self.given.get(LABELS), targets)
        # Of few rows or batches, a shuffle may repeat an order.
        moved = batches if batches > 1 else self.number
        orders = math.log2(math.factorial(min(moved, 20)))
        for _ in range(math.ceil(_CERTAINTY / orders) if orders else 0):
            for _ in self._checked_batches():
                pass

    def _checked_batches(self) -> Iterator["_Batch"]:
        """Reads all batches, and raises if they don't fit what was given for them."""
        fingerprint, rows = hashlib.blake2b(), 0
        for batch in self._batches():
            rows += batch.rows
            if self.number is not None:
                # A data set may go on for ever.
                self._check_rows(rows, rows <= self.number, "or more ")
                _add(fingerprint, batch)
            yield batch
        if self.number is not None:
            self._check_rows(rows, rows == self.number)
            self._check_repeated(fingerprint.digest())

    def _check_rows(self, rows: int, are_right: bool, more: str = "") -> None:
        if not are_right:
            (name, *_) = (name for name in self.given if name != WEIGHTS)
            raise ValueError(
                f"`{name}` should have one value for each row of the data set `x`. "
                f"Received: {self.number} values for {rows} {more}rows"
            )

    def _check_repeated(self, fingerprint: bytes) -> None:
        if self._fingerprint not in (b"", fingerprint):
            raise _other_order(
                "a data set that has other rows, or another order of them, in each pass"
            )
        self._fingerprint = fingerprint

    def _batches(self) -> Iterator["_Batch"]:
        for x, y, weights in _read(self._data_set):
            in_place = {LABELS: y, WEIGHTS: weights}
            columns = {
                name: in_place[name] if key is None else _named(name, key, x, y)
                for name, key in self._are_read.items()
            }
            # Names of strings are lists in batches of PyTorch.
            x = _as_arrays(x, self.names)
            rows = {int(each.shape[0]) for each in keras.tree.flatten(x)}
            if len(rows) != 1:
                raise ValueError(
                    "`x` should have batches of arrays with one row for each item. "
                    f"Received: arrays with the numbers of rows {sorted(rows)}"
                )
            if 0 not in rows:
                yield _Batch(x, y, rows.pop(), columns)


class _Batch(NamedTuple):
    """A batch of a data set, with its columns by the names of arguments."""

    x: Any
    y: Any
    rows: int
    columns: dict[str, Any]


def column(argument: str, value: Any) -> Array:
    """Converts what was given for all rows."""
    is_numeric = argument not in (IDS, BY)
    flat: Array = _flat(argument, rows_of(argument, value) if is_numeric else value)
    if argument == BY:
        return labels_of(BY, flat)
    # A copy, as users may change what they gave before the end of an epoch.
    return np.array(ids_of(flat) if argument == IDS else flat)


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


class Columns:
    """What a data set has for its rows, collected batch by batch."""

    def __init__(self, output: str | None, output_names: list[str] | None) -> None:
        self._output, self._names = output, output_names
        self._rows = 0
        self._parts: dict[str, list[Array]] = {}
        self._numbers: dict[Any, int] = {}

    def add(self, rows: int, columns: dict[str, Any]) -> None:
        """Adds those of a batch."""
        self._rows += rows
        for name, value in columns.items():
            if name == WEIGHTS and value is None:
                continue
            self._parts.setdefault(name, []).append(self._of_batch(name, value, rows))

    def _of_batch(self, name: str, value: Any, rows: int) -> Array:
        if name == IDS:
            found = ids_of(_flat(name, _on_host(value)), self._numbers)
        elif name == BY:
            found = labels_of(name, _flat(name, _on_host(value)))
        else:
            if value is None:
                raise ValueError(
                    f"`{name}` should be given, as the data set `x` has no targets: "
                    "values for each row, or the name of an input. Received: None"
                )
            value = of_output(name, value, self._output, self._names)
            found = _flat(name, rows_of(name, _on_host(value)))
        if len(found) != rows:
            raise ValueError(
                f"`{name}` should have one value for each row. Received: a batch with "
                f"{len(found)} values for {rows} rows"
            )
        return found

    def all(self) -> dict[str, Array]:
        """Returns those of all rows, by the names of arguments."""
        columns = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        weights = columns.get(WEIGHTS)
        if weights is not None and len(weights) != self._rows:
            raise ValueError(
                f"`{WEIGHTS}` should come with each batch of the data set `x`, or with "
                f"none. Received: weights of {len(weights)} of {self._rows} rows"
            )
        return columns


def _check_data_set(x: Any) -> None:
    """Raises for what is no data set, or can't be read to its end again and again."""
    if isinstance(x, keras.utils.PyDataset):
        if x.num_batches is None:
            raise unaccepted("x", f"{_DATA_SET}, and end", x)
        return
    is_of_parts = isinstance(x, str | bytes | Mapping | list | tuple)
    if is_of_parts or not hasattr(x, "__iter__"):
        raise unaccepted("x", _DATA_SET, x)
    if hasattr(x, "__next__"):
        hint = ". A generator is read once: make a data set of it"
        raise unaccepted("x", _DATA_SET, x, hint)
    # TensorFlow's number for a data set that is repeated for ever.
    cardinality = getattr(x, "cardinality", None)
    if callable(cardinality) and int(cardinality()) == -1:
        raise unaccepted("x", f"{_DATA_SET}, and end", x)


def _read(data_set: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Reads inputs, targets and weights."""
    for batch in batches_of(data_set):
        # The next one may be written to the same memory.
        batch = keras.tree.map_structure(own, batch)
        parts: tuple[Any, Any, Any] = keras.utils.unpack_x_y_sample_weight(batch)
        yield parts


def _named(argument: str, key: str, x: Any, y: Any) -> Any:
    """What inputs or targets hold under a name."""
    dicts = [each for each in (x, y) if isinstance(each, Mapping)]
    found = [each[key] for each in dicts if key in each]
    if len(found) == 1:
        return found[0]
    names = sorted(str(name) for each in dicts for name in each)
    raise ValueError(
        f"`{argument}` should be values for each row, or the name of one input or "
        f"target in `x`. For a column of a table, pass `df[{key!r}]`. Received: "
        f"{argument}={key!r}, where the names are {names}"
    )


def _as_arrays(x: Any, names: list[str]) -> Any:
    """Inputs as arrays, those of some names too, which may be lists of strings."""
    if isinstance(x, Mapping):
        x = {
            name: np.asarray(each) if name in names and _is_list(each) else each
            for name, each in x.items()
        }
    return keras.tree.map_structure(_on_host, x)


def _is_list(x: Any) -> bool:
    return isinstance(x, list | tuple)


def _on_host(x: Any) -> Any:
    """A tensor of any library as an array; ragged and sparse ones as they are."""
    if _is_list(x) or isinstance(x, np.ndarray):
        return x
    if form_of(x) in ("ragged", *SPARSE):
        return x
    array = np.asarray(backend.for_numpy(x))
    if array.ndim == 0:
        raise ValueError(
            "`x` should have batches of arrays with one row for each item. Received: "
            f"a batch that holds {x!r}"
        )
    return array


def _can_join(waiting: list[_Batch], batch: _Batch) -> bool:
    """Whether `predict` splits the joined rows into the same batches again."""
    first, last = waiting[0], waiting[-1]
    leaves = keras.tree.flatten(first.x)
    if not all(isinstance(each, np.ndarray) for each in leaves):
        return False
    number = len(waiting) + 1
    return (
        last.rows == first.rows >= batch.rows
        and first.rows * number <= inputs.MOST_ROWS
        and sum(each.nbytes for each in leaves) * number <= inputs.MOST_BYTES
        and _kind(first.x) == _kind(batch.x)
    )


def _kind(x: Any) -> list[Any]:
    """The paths, shapes and types of inputs, but for the number of rows."""
    return [
        (path, tuple(each.shape[1:]), str(each.dtype))
        for path, each in keras.tree.flatten_with_path(x)
    ]


def _joined(batches: list[_Batch]) -> Part:
    x = batches[0].x
    if len(batches) > 1:
        each_x = [batch.x for batch in batches]
        x = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *each_x)
    rows = sum(batch.rows for batch in batches)
    columns = [(batch.rows, batch.columns) for batch in batches]
    return Part(x, rows, batches[0].rows, columns)


def _add(fingerprint: Any, batch: _Batch) -> None:
    """Adds the inputs and targets of a batch."""
    for each in keras.tree.flatten((batch.x, batch.y)):
        each = _on_host(each) if hasattr(each, "shape") else each
        is_plain = isinstance(each, np.ndarray) and each.dtype != object
        # The bytes of objects are their addresses.
        fingerprint.update(each.tobytes() if is_plain else repr(each).encode())


def _check_targets(labels: Array | None, targets: list[Any]) -> None:
    """Raises if the targets of a data set are the labels in another order."""
    if labels is None or not all(hasattr(each, "shape") for each in targets):
        return
    found = np.concatenate([np.ravel(_on_host(each)) for each in targets])
    if found.shape != labels.shape or found.dtype.kind not in "biuf":
        return
    is_other = not np.array_equal(found, labels)
    if is_other and np.array_equal(np.sort(found), np.sort(labels)):
        raise _other_order("a data set that has the labels in another order")


def _other_order(received: str) -> ValueError:
    return ValueError(
        "`x` should have its rows in the order of the labels and ids that are given. "
        "A data set that is shuffled, or changed at random, has none: put them into "
        'its batches, and name them, such as `labels=None, group_ids="query_id"`. '
        f"Received: {received}"
    )
