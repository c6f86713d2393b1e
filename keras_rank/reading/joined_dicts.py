"""Judgments and runs in dicts, joined query by query without DuckDB.

The rows are those of tables with the same values. The labels of a query are looked up
in its own dict, and ids are compared as text only if scores tie.
"""

import array
import collections
import heapq
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from keras_rank.arrays.arithmetic import limits_of
from keras_rank.backends import Array
from keras_rank.reading import files
from keras_rank.reading.engine import connect
from keras_rank.reading.merged_ids import warnings_of_ids
from keras_rank.reading.part import LARGEST_INTEGER
from keras_rank.reading.query_dicts import names_columns, unpadded
from keras_rank.reading.rows import ROWS_AT_A_TIME, Columns, Order, Rows

# A dict of items and numbers for each query.
_Dicts: TypeAlias = Mapping[Any, Mapping[Any, Any]]
# Errors for values that only tables can read.
NEED_TABLES = TypeError, ValueError, OverflowError, pa.ArrowException
# The characters that separate ids in text, and more white space.
_SEPARATORS = re.compile(r"[\s\[\]{}(),;|]")
_ASCII_SEPARATORS = b"\t\n\v\f\r\x1c\x1d\x1e\x1f []{}(),;|"
# Backends may rank scores of a smaller size as 0.
_SMALLEST = limits_of("float32").smallest_normal
_NAN = float("nan")
# Types of dicts, whose methods return the values that they hold.
_DICTS: set[type] = {
    *(dict, collections.Counter, collections.OrderedDict, collections.defaultdict)
}


def join_dicts(
    qrels: Any,
    run: Any,
    columns: Columns,
    order: Order,
    missing: str,
    ignore_identical_ids: bool,
    keeps_items: bool,
) -> Rows:
    """Returns the joined rows. Raises an error of `NEED_TABLES` for other values.

    The ids of both sides should be of the same type, text or integers. Wrong values
    need tables too, whose errors name the values.

    Args:
        qrels: the judgments.
        run: the run.
        columns: the names of the columns, for tables.
        order: the order of the rows of a query, as in `read_rows`.
        missing: whether queries without a run are left out (`"skip"`).
        ignore_identical_ids: whether items with the id of their query are left out.
        keeps_items: whether the rows have items, and are in this order for all queries.
            Otherwise only queries with tied scores have this order.
    """
    _require(columns.subtopic is None)
    judged, found = _Side("qrels", qrels, columns), _Side("run", run, columns)
    _require(judged.types == found.types and bool(np.isfinite(judged.numbers).all()))
    labels = {query: items for query, items in judged.dicts.items() if items}
    left_out = [query for query in found.dicts if query not in labels]
    _require(len(left_out) < len(found.dicts))
    has_scores = found.has_numbers
    warnings = _warnings_of({"qrels": judged, "run": found})
    if ignore_identical_ids:
        others = {
            query: {x: score for x, score in items.items() if str(x) != str(query)}
            for query, items in found.dicts.items()
        }
        found = _Side("run", others, columns)
    if columns.lower_is_better:
        # Tables raise the error for a run without scores.
        _require(has_scores)
        found.numbers = 0.0 - found.numbers
    dtype = np.dtype("float32") if order == "trec_eval-9" else found.numbers.dtype
    queries = sorted(x for x in labels if missing == "zero" or x in found.dicts)
    types = judged.numbers.dtype, dtype
    tables = (
        _table_of(chunk, labels, found, order, keeps_items, types)
        for chunk in _chunks_of(queries, labels, found.dicts)
    )
    some = heapq.nsmallest(3, left_out)
    return Rows(tables, len(left_out), some, has_scores, warnings=warnings)


def _require(condition: bool) -> None:
    """Raises `TypeError` if values need tables."""
    if not condition:
        raise TypeError


class _Side:
    """Judgments or a run, whose values are checked.

    Attributes:
        dicts: a dict of items and numbers for each query.
        has_numbers: whether the user passed numbers.
        types: the type of all queries, and the type of all items.
        has_separators: whether an item has characters that separate ids in text.
        numbers: the numbers of all items.

    Args:
        name: `"qrels"` or `"run"`.
        source: the argument of the user.
        columns: the names of the columns, for tables.
    """

    def __init__(self, name: str, source: Any, columns: Columns) -> None:
        self.dicts, self.has_numbers = _dicts_of(name, source, columns)
        first = next(itertools.chain.from_iterable(self.dicts.values()), None)
        self.types = type(next(iter(self.dicts))), type(first)
        _text_of([self.dicts], self.types[0]).encode()
        text = _text_of(self.dicts.values(), self.types[1])
        encoded = text.encode()
        if len(encoded) > len(text):
            self.has_separators = _SEPARATORS.search(text) is not None
        else:
            others = encoded.translate(None, _ASCII_SEPARATORS)
            self.has_separators = len(others) < len(encoded)
        values = [x for items in self.dicts.values() for x in items.values()]
        types: set[type] = {*map(type, values)}
        # Arrow would read containers too.
        _require(all(issubclass(x, int | float | np.number) for x in types))
        numbers = pa.array(values)
        _require(str(numbers.type) in ("double", "float", "int64"))
        _require(numbers.null_count == 0)
        # The sum turns -0.0 into 0.0, as tables do.
        self.numbers = numbers.to_numpy() + 0
        if numbers.type == pa.int64():
            self.numbers = self.numbers.astype("float64")
            _require(bool(np.all(np.abs(self.numbers) < LARGEST_INTEGER)))
        ends = itertools.accumulate(map(len, self.dicts.values()))
        self._ends = dict(zip(self.dicts, ends, strict=True))

    def numbers_of(self, query: Any) -> Array:
        """Returns the numbers of the items of a query."""
        end = self._ends.get(query, 0)
        found: Array = self.numbers[end - len(self.dicts.get(query, ())) : end]
        return found


def _text_of(ids_of_queries: Iterable[Collection[Any]], type_: type) -> str:
    """Returns ids as one text, which is empty for integers. Raises for other types."""
    _require(type_ in (str, int))
    texts = []
    for ids in ids_of_queries:
        # The texts of subclasses, such as members of enumerations, may be others.
        _require({*map(type, ids)} <= {type_})
        if type_ is str:
            texts.append("".join(ids))
        else:
            # Raises for integers of more than 64 bits.
            array.array("q", ids)
    return "".join(texts)


def _warnings_of(sides: Mapping[str, "_Side"]) -> list[str]:
    """Returns the warnings about items that may be several ids each."""
    if not any(side.has_separators for side in sides.values()):
        return []
    with connect() as connection:
        tables = {}
        for name, side in sides.items():
            items = [*itertools.chain.from_iterable(side.dicts.values())]
            rows = pa.table({"item": items, "row": np.arange(len(items))})
            tables[name] = connection.from_arrow(rows)
        found = []
        for name, table in tables.items():
            others = [tables[other] for other in tables if other != name]
            found += warnings_of_ids(
                name, files.named(sides[name].dicts), table, others
            )
        return found


def _dicts_of(name: str, source: Any, columns: Columns) -> tuple[_Dicts, bool]:
    """Returns a dict of items and numbers for each query, and whether it had numbers.

    Raises `TypeError` for other values and duplicate items, which tables read.
    """
    _require(type(source) in _DICTS and bool(source))
    values = [*source.values()]
    types: set[type] = {*map(type, values)}
    if types <= _DICTS:
        return source, True
    accepted = {list, tuple} if name == "run" else {list, tuple, set, frozenset}
    _require(types <= accepted and not names_columns(source, columns))
    ids = [*itertools.chain.from_iterable(values)]
    are_pairs = name == "run" and {*map(type, ids)} <= {list, tuple}
    if are_pairs:
        ids = [x[0] if len(x) == 2 else None for x in ids]
    _require({*map(type, ids)} in ({str}, {int}))
    is_padded = not are_pairs and -1 in ids
    if is_padded:
        values = [unpadded(x) for x in values]
    if are_pairs:
        dicts = [dict(items) for items in values]
    elif name == "run":
        dicts = [dict(zip(x, range(0, -len(x), -1), strict=True)) for x in values]
    else:
        dicts = [dict.fromkeys(items, 1) for items in values]
    has_padding = is_padded and any(-1 in items for items in dicts)
    _require(not has_padding and sum(map(len, dicts)) == sum(map(len, values)))
    return dict(zip(source, dicts, strict=True)), are_pairs


def _chunks_of(
    queries: Sequence[Any], labels: _Dicts, scores: _Dicts
) -> Iterator[Sequence[Any]]:
    """Yields queries that have about the number of rows to process at a time."""
    sizes = [len(labels[query]) + len(scores.get(query, ())) for query in queries]
    chunks = np.cumsum(sizes) // ROWS_AT_A_TIME
    starts = np.flatnonzero(np.diff(chunks, prepend=-1))
    for start, end in itertools.pairwise([*starts, len(queries)]):
        yield queries[start:end]


def _table_of(
    queries: Sequence[Any],
    labels: _Dicts,
    run: "_Side",
    order: Order,
    keeps_items: bool,
    dtypes: Sequence[Any],
) -> pa.Table:
    """Returns the rows of queries, as those that are read from tables."""
    of_labels: list[Any] = []
    sizes, retrieved = np.zeros((2, len(queries)), np.int64)
    for i, query in enumerate(queries):
        # Judged items that were not retrieved follow the others.
        found = dict.fromkeys(run.dicts.get(query, ()), _NAN)
        retrieved[i] = len(found)
        found.update(labels[query])
        of_labels += found.values()
        sizes[i] = len(found)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    rows = np.arange(len(of_labels))
    is_retrieved = rows < np.repeat(starts + retrieved, sizes)
    scores = np.full(len(rows), np.nan, dtypes[1])
    with np.errstate(over="ignore"):
        scores[is_retrieved] = np.concatenate([run.numbers_of(x) for x in queries])
    is_unordered = _may_be_tied(scores, starts, retrieved) | keeps_items
    for i in np.flatnonzero(is_unordered).tolist() if order != "row" else ():
        of_query = slice(starts[i], ends[i])
        items = [*{**run.dicts.get(queries[i], {}), **labels[queries[i]]}]
        places = _order_of(items, scores[of_query], retrieved[i], order)
        rows[of_query] = starts[i] + places
    columns = {
        "query": pa.RunEndEncodedArray.from_arrays(ends, pa.array(queries)),
        "label": np.array(of_labels, dtypes[0])[rows],
        "score": pa.array(scores[rows], mask=~is_retrieved[rows]),
    }
    if keeps_items:
        pairs = ({**run.dicts.get(x, {}), **labels[x]} for x in queries)
        items = [*itertools.chain.from_iterable(pairs)]
        columns["item"] = pa.array(items).take(pa.array(rows))
    return pa.table(columns)


def _may_be_tied(scores: Array, starts: Array, numbers: Array) -> Array:
    """Returns for each query whether backends may rank some of its scores as tied.

    Args:
        scores: array of the scores of all rows.
        starts: int array of the first rows of queries.
        numbers: int array of the numbers of retrieved items, which come first.
    """
    ascending = scores.copy()
    for start, end in zip(starts.tolist(), (starts + numbers).tolist(), strict=True):
        ascending[start:end].sort()
    size = np.abs(scores)
    may_be_tied = (size == np.inf) | ((size < _SMALLEST) & (size > 0.0))
    may_be_tied[1:] |= ascending[1:] == ascending[:-1]
    return np.logical_or.reduceat(may_be_tied, starts)


def _order_of(items: list[Any], scores: Array, number: int, order: Order) -> Array:
    """Returns the order of the rows of a query.

    Args:
        items: the items of the rows.
        scores: array of their scores, NaN after the retrieved items.
        number: the number of retrieved items.
        order: how the rows are ordered, as in `read_rows`.
    """
    rows = range(len(items))
    if order == "item":
        return np.array(sorted(rows, key=items.__getitem__))
    texts = list(map(str, items))
    by_id = np.array(sorted(rows, key=texts.__getitem__, reverse=True))
    # NaN precedes all numbers, as in DuckDB.
    groups = np.where(np.isnan(scores), 0, 1)
    groups[number:] = 2
    return by_id[np.lexsort((-scores[by_id], groups[by_id]))]
