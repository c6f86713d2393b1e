"""Rows of single items in a data set, whose batches hold all that belongs to them."""

import itertools
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array, backend
from keras_rank.callbacks.inputs import most_rows
from keras_rank.callbacks.outputs import of_output, output_names, taken
from keras_rank.callbacks.rows import (
    IDS,
    LABELS,
    WEIGHTS,
    Part,
    column,
    named,
    names_in,
)
from keras_rank.catalogue.candidates import batches_of
from keras_rank.lists.copies import own
from keras_rank.lists.given import SPARSE, form_of

_DATA_SET = (
    "arrays, as `predict` takes them, or a data set whose batches can be read again "
    "after each epoch"
)


class DataSetRows:
    """The rows in batches of inputs, targets and weights.

    All of a row is read in one pass, so that each pass may have an order of its own.

    Attributes:
        number: `None`, as the number of rows is unknown.
        given: nothing that belongs to all rows.
    """

    def __init__(self, x: Any, columns: Mapping[str, Any], output: str | None) -> None:
        """Checks that it can be read.

        Args:
            x: the data set.
            columns: what belongs to the rows, by argument: the name of an input or a
                target, or `None` for the targets and the weights.
            output: the name of the output that holds the scores, or `None`.
        """
        _check_data_set(x)
        for name, key in columns.items():
            if not isinstance(key, str | None) or (name == IDS and key is None):
                raise ValueError(
                    f"`{name}` should be the name of an input or target of the data "
                    "set `x`. Values for all rows go with arrays: put them into its "
                    'batches and name them, such as `labels=None, group_ids="query_'
                    f'id"`. Received: {name}={reprlib.repr(key)}'
                )
        self.number, self.given = None, dict[str, Array]()
        self._data_set, self._columns, self._output = x, columns, output
        self._names = names_in(columns)

    def first_batch(self, model: Any) -> Part:
        """Reads the rows of the first batch."""
        return Part.joined([*itertools.islice(self._batches(model), 1)])

    def parts(self, model: Any) -> Iterator[Part]:
        """Reads all rows once, in the parts that a model predicts at a time."""
        waiting: list[Part] = []
        for batch in self._batches(model):
            if waiting and not _can_join(waiting, batch):
                yield Part.joined(waiting)
                waiting = []
            waiting.append(batch)
        yield Part.joined(waiting)

    def _batches(self, model: Any) -> Iterator[Part]:
        """Reads the batches that have rows."""
        numbers_of: dict[Any, int] = {}
        for batch in batches_of(self._data_set):
            # The next one may be written to the same memory.
            batch = keras.tree.map_structure(own, batch)
            x, *others = keras.utils.unpack_x_y_sample_weight(batch)
            inputs = keras.tree.traverse(_as_array, taken(model, x, self._names))
            rows = _number_of_rows(inputs)
            if rows:
                columns = {
                    name: column(name, value, rows, numbers_of)
                    for name, value in self._found(model, x, *others)
                }
                yield Part(inputs, rows, rows, columns)

    def _found(
        self, model: Any, x: Any, y: Any, weights: Any
    ) -> Iterator[tuple[str, Any]]:
        """What a batch has for its rows, by argument."""
        in_place = {LABELS: y, WEIGHTS: weights}
        for name, key in self._columns.items():
            if key is not None:
                yield name, named(name, key, x, y)
            elif in_place.get(name) is not None:
                names = output_names(model)
                yield name, of_output(name, in_place[name], self._output, names)
            elif name == LABELS:
                accepted = "the name of an input, as the data set `x` has no targets"
                raise unaccepted(name, accepted, None)


def _check_data_set(x: Any) -> None:
    """Raises for what is no data set, or can't be read to its end again and again."""
    has_number = isinstance(x, keras.utils.PyDataset)
    is_of_parts = isinstance(x, str | bytes | Mapping | list | tuple)
    if is_of_parts or not (has_number or hasattr(x, "__iter__")):
        raise unaccepted("x", _DATA_SET, x)
    if hasattr(x, "__next__"):
        hint = ". A generator is read once: make a data set of it"
        raise unaccepted("x", _DATA_SET, x, hint)
    # TensorFlow's number for a data set that is repeated for ever.
    cardinality = getattr(x, "cardinality", lambda: 0)
    if x.num_batches is None if has_number else int(cardinality()) == -1:
        raise unaccepted("x", f"{_DATA_SET}, and end", x)


def _as_array(part: Any) -> Any:
    """An array for a tensor of any library, and for a list of strings or numbers.

    Ragged and sparse ones stay as they are.
    """
    is_list = isinstance(part, list | tuple)
    if is_list and isinstance(next(iter(part), None), str | bytes | int | float):
        # Strings in batches of PyTorch.
        return np.asarray(part)
    if is_list or isinstance(part, Mapping) or form_of(part) in ("ragged", *SPARSE):
        return None
    return np.asarray(backend.for_numpy(part))


def _number_of_rows(x: Any) -> int:
    shapes = [tuple(each.shape) for each in keras.tree.flatten(x)]
    sizes = {shape[:1] for shape in shapes}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(
            "`x` should have batches of arrays with one row for each item. Received: "
            f"arrays of the shapes {shapes}"
        )
    return int(shapes[0][0])


def _can_join(waiting: list[Part], batch: Part) -> bool:
    """Whether `predict` splits the joined rows into the same batches again."""
    first, last = waiting[0], waiting[-1]
    return (
        last.rows == first.rows >= batch.rows
        and first.rows * (len(waiting) + 1) <= most_rows(first.x, first.rows)
        and all(isinstance(x, np.ndarray) for x in keras.tree.flatten(first.x))
        and _kind(first.x) == _kind(batch.x)
    )


def _kind(x: Any) -> list[Any]:
    """The paths, shapes and types of inputs, but for the number of rows."""
    return [
        (path, tuple(each.shape[1:]), str(each.dtype))
        for path, each in keras.tree.flatten_with_path(x)
    ]
