"""Rows of single items in a data set, whose batches hold all that belongs to them."""

import itertools
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_rank.arguments import unaccepted
from keras_rank.backends import Array, backend
from keras_rank.callbacks.inputs import can_join, joined
from keras_rank.callbacks.outputs import of_output, output_names, taken
from keras_rank.callbacks.rows import IDS, LABELS, WEIGHTS, Part, Rows, column, named
from keras_rank.catalogue.candidates import batches_of
from keras_rank.lists.copies import own
from keras_rank.lists.given import SPARSE, form_of

_DATA_SET = (
    "arrays, as `predict` takes them, or a data set whose batches can be read again "
    "after each epoch"
)


class DataSetRows(Rows):
    """The rows in batches of inputs, targets and weights.

    All of a row is read in one pass, so that each pass may have an order of its own.

    Args:
        x: the data set.
        columns: what belongs to the rows, by argument: the name of an input or a
            target, or `None` for the targets and the weights.
        output: the name of the output that holds the scores, or `None`.
    """

    def __init__(self, x: Any, columns: Mapping[str, Any], output: str | None) -> None:
        _check_data_set(x)
        for name, key in columns.items():
            if not isinstance(key, str | None) or (name == IDS and key is None):
                raise ValueError(
                    f"`{name}` should be the name of an input or target of the data "
                    "set `x`. Values for all rows go with arrays: put them into its "
                    'batches and name them, such as `labels=None, group_ids="query_'
                    f'id"`. Received: {name}={reprlib.repr(key)}'
                )
        super().__init__(columns)
        self._data_set, self._columns, self._output = x, columns, output

    def first_batch(self, model: Any) -> Part:
        return _joined([*itertools.islice(self._batches(model), 1)])

    def parts(self, model: Any) -> Iterator[Part]:
        waiting: list[Part] = []
        for batch in self._batches(model):
            if waiting and not can_join([each.x for each in waiting], batch.x):
                yield _joined(waiting)
                waiting = []
            waiting.append(batch)
        yield _joined(waiting)

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
                    for name, value in self._found(model, x, *others).items()
                }
                yield Part(inputs, rows, rows, [columns])

    def _found(self, model: Any, x: Any, y: Any, weights: Any) -> dict[str, Any]:
        """What a batch has for its rows, by argument."""
        in_place = {LABELS: y, WEIGHTS: weights}
        found = {}
        for name, key in self._columns.items():
            if key is not None:
                found[name] = named(name, key, x, y)
            elif in_place.get(name) is not None:
                names = output_names(model)
                found[name] = of_output(name, in_place[name], self._output, names)
        if LABELS not in found:
            accepted = "the name of an input, as the data set `x` has no targets"
            raise unaccepted(LABELS, accepted, None)
        return found


def of_all_rows(batches: list[dict[str, Array]]) -> dict[str, Array]:
    """What belongs to the rows of all batches, by argument."""
    names = dict.fromkeys(itertools.chain(*batches))
    found = {
        name: np.concatenate([each[name] for each in batches if name in each])
        for name in names
    }
    rows, weights = len(found[LABELS]), found.get(WEIGHTS)
    if weights is not None and len(weights) != rows:
        raise ValueError(
            f"`{WEIGHTS}` should come with each batch of the data set `x`, or with "
            f"none. Received: weights of {len(weights)} of {rows} rows"
        )
    return found


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


def _joined(batches: list[Part]) -> Part:
    """Rows of several batches, predicted in these batches."""
    if not batches:
        raise ValueError("`x` should have batches of rows. Received: none")
    return Part(
        joined([batch.x for batch in batches]),
        sum(batch.rows for batch in batches),
        batches[0].batch_size,
        [columns for batch in batches for columns in batch.columns],
    )
