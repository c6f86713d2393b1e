"""A fast path that joins judgments and runs in dicts without DuckDB.

The rows equal those that the reader of tables returns for the same values. The labels
of a query are looked up in the dict of the query, and ids are compared as text only if
scores tie.
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

from keras_rank.arrays.arithmetic import float_limits
from keras_rank.backends import Array
from keras_rank.reading import files
from keras_rank.reading.engine import connect
from keras_rank.reading.merged_ids import find_id_warnings
from keras_rank.reading.part import LARGEST_INTEGER
from keras_rank.reading.query_dicts import has_column_names, strip_padding
from keras_rank.reading.rows import ROWS_AT_A_TIME, Columns, Order, Rows

# A dict of items and numbers for each query.
_Dicts: TypeAlias = Mapping[Any, Mapping[Any, Any]]
# Errors for values that only the reader of tables supports.
NEED_TABLES = TypeError, ValueError, OverflowError, pa.ArrowException
# The characters that separate ids in text, and more white space.
_SEPARATORS = re.compile(r"[\s\[\]{}(),;|]")
_ASCII_SEPARATORS = b"\t\n\v\f\r\x1c\x1d\x1e\x1f []{}(),;|"
# Backends may treat scores of a smaller magnitude (subnormals) as 0.
_SMALLEST = float_limits("float32").smallest_normal
_NAN = float("nan")
# Dict types whose methods are known to return the values that they hold.
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
    should_keep_items: bool,
) -> Rows:
    """Joins judgments and a run in dicts.

    Raises an error of `NEED_TABLES` for values that only the reader of tables supports.
    The ids of both sides should be of one type, text or integers. Invalid values are
    left to the reader of tables as well, whose errors name the values.

    Args:
        qrels: the judgments.
        run: the run.
        columns: the names of the columns, for tables.
        order: the order of the rows of a query, as in `read_rows`.
        missing: `"skip"` to leave out queries without a run, else `"zero"`.
        ignore_identical_ids: whether items with the id of their query are left out.
        should_keep_items: whether the rows have items. The rows of all queries are
            then sorted by `order`, else only those of queries with tied scores.
    """
    _require(columns.subtopic is None)
    judged_side, run_side = _Side("qrels", qrels, columns), _Side("run", run, columns)
    _require(
        judged_side.types == run_side.types
        and bool(np.isfinite(judged_side.numbers).all())
    )
    labels = {query: items for query, items in judged_side.dicts.items() if items}
    left_out = [query for query in run_side.dicts if query not in labels]
    _require(len(left_out) < len(run_side.dicts))
    has_scores = run_side.has_numbers
    warnings = _find_warnings({"qrels": judged_side, "run": run_side})
    if ignore_identical_ids:
        filtered_dicts = {
            query: {x: score for x, score in items.items() if str(x) != str(query)}
            for query, items in run_side.dicts.items()
        }
        run_side = _Side("run", filtered_dicts, columns)
    if columns.lower_is_better:
        # The reader of tables raises the error for a run without scores.
        _require(has_scores)
        run_side.numbers = 0.0 - run_side.numbers
    dtype = np.dtype("float32") if order == "trec_eval-9" else run_side.numbers.dtype
    queries = sorted(x for x in labels if missing == "zero" or x in run_side.dicts)
    types = judged_side.numbers.dtype, dtype
    tables = (
        _build_table(chunk, labels, run_side, order, should_keep_items, types)
        for chunk in _split_queries(queries, labels, run_side.dicts)
    )
    some_left_out = heapq.nsmallest(3, left_out)
    return Rows(tables, len(left_out), some_left_out, has_scores, warnings=warnings)


def _require(condition: bool) -> None:
    """Raises `TypeError`, which selects the reader of tables, unless `condition`."""
    if not condition:
        raise TypeError


class _Side:
    """Judgments or a run in dicts, with checked values.

    Attributes:
        dicts: a dict of items and numbers for each query.
        has_numbers: whether the user passed numbers.
        types: the type of all queries, and the type of all items.
        has_separators: whether an item id contains characters that may separate ids.
        numbers: array of the numbers of all items.

    Args:
        name: `"qrels"` or `"run"`.
        source: the argument of the user.
        columns: the names of the columns, for tables.
    """

    def __init__(self, name: str, source: Any, columns: Columns) -> None:
        self.dicts, self.has_numbers = _to_dicts(name, source, columns)
        first = next(itertools.chain.from_iterable(self.dicts.values()), None)
        self.types = type(next(iter(self.dicts))), type(first)
        _join_ids([self.dicts], self.types[0]).encode()
        text = _join_ids(self.dicts.values(), self.types[1])
        encoded = text.encode()
        if len(encoded) > len(text):
            self.has_separators = _SEPARATORS.search(text) is not None
        else:
            other_bytes = encoded.translate(None, _ASCII_SEPARATORS)
            self.has_separators = len(other_bytes) < len(encoded)
        values = [x for items in self.dicts.values() for x in items.values()]
        types: set[type] = {*map(type, values)}
        # Arrow would accept containers, too, so the types are checked first.
        _require(all(issubclass(x, int | float | np.number) for x in types))
        numbers = pa.array(values)
        _require(str(numbers.type) in ("double", "float", "int64"))
        _require(numbers.null_count == 0)
        # Adding 0 turns -0.0 into 0.0, as the reader of tables does.
        self.numbers = numbers.to_numpy() + 0
        if numbers.type == pa.int64():
            self.numbers = self.numbers.astype("float64")
            _require(bool(np.all(np.abs(self.numbers) < LARGEST_INTEGER)))
        ends = itertools.accumulate(map(len, self.dicts.values()))
        self._ends = dict(zip(self.dicts, ends, strict=True))

    def get_numbers(self, query: Any) -> Array:
        """Returns the numbers of the items of a query."""
        end = self._ends.get(query, 0)
        numbers: Array = self.numbers[end - len(self.dicts.get(query, ())) : end]
        return numbers


def _join_ids(ids_of_queries: Iterable[Collection[Any]], type_: type) -> str:
    """Returns ids as one text, which is empty for integers.

    Raises an error of `NEED_TABLES` for ids of other types.
    """
    _require(type_ in (str, int))
    texts = []
    for ids in ids_of_queries:
        # Subclasses, such as enumerations, may be converted to a different text.
        _require({*map(type, ids)} <= {type_})
        if type_ is str:
            texts.append("".join(ids))
        else:
            # The array raises `OverflowError` for integers of more than 64 bits.
            array.array("q", ids)
    return "".join(texts)


def _find_warnings(sides: Mapping[str, "_Side"]) -> list[str]:
    """Returns warnings about item ids that may be several ids in one text."""
    if not any(side.has_separators for side in sides.values()):
        return []
    with connect() as connection:
        tables = {}
        for name, side in sides.items():
            items = [*itertools.chain.from_iterable(side.dicts.values())]
            rows = pa.table({"item": items, "row": np.arange(len(items))})
            tables[name] = connection.from_arrow(rows)
        warnings = []
        for name, table in tables.items():
            other_tables = [tables[other] for other in tables if other != name]
            warnings += find_id_warnings(
                name, files.describe_source(sides[name].dicts), table, other_tables
            )
        return warnings


def _to_dicts(name: str, source: Any, columns: Columns) -> tuple[_Dicts, bool]:
    """Returns a dict of items and numbers for each query, and whether it had numbers.

    Raises `TypeError` for other values and for duplicate items, which are left to the
    reader of tables.
    """
    _require(type(source) in _DICTS and bool(source))
    values = [*source.values()]
    types: set[type] = {*map(type, values)}
    if types <= _DICTS:
        return source, True
    accepted = {list, tuple} if name == "run" else {list, tuple, set, frozenset}
    _require(types <= accepted and not has_column_names(source, columns))
    ids = [*itertools.chain.from_iterable(values)]
    are_pairs = name == "run" and {*map(type, ids)} <= {list, tuple}
    if are_pairs:
        ids = [x[0] if len(x) == 2 else None for x in ids]
    _require({*map(type, ids)} in ({str}, {int}))
    is_padded = not are_pairs and -1 in ids
    if is_padded:
        values = [strip_padding(x) for x in values]
    if are_pairs:
        dicts = [dict(items) for items in values]
    elif name == "run":
        dicts = [dict(zip(x, range(0, -len(x), -1), strict=True)) for x in values]
    else:
        dicts = [dict.fromkeys(items, 1) for items in values]
    has_padding = is_padded and any(-1 in items for items in dicts)
    _require(not has_padding and sum(map(len, dicts)) == sum(map(len, values)))
    return dict(zip(source, dicts, strict=True)), are_pairs


def _split_queries(
    queries: Sequence[Any], labels: _Dicts, scores: _Dicts
) -> Iterator[Sequence[Any]]:
    """Splits queries into chunks of about `ROWS_AT_A_TIME` rows."""
    sizes = [len(labels[query]) + len(scores.get(query, ())) for query in queries]
    chunks = np.cumsum(sizes) // ROWS_AT_A_TIME
    starts = np.flatnonzero(np.diff(chunks, prepend=-1))
    for start, end in itertools.pairwise([*starts, len(queries)]):
        yield queries[start:end]


def _build_table(
    queries: Sequence[Any],
    labels: _Dicts,
    run: "_Side",
    order: Order,
    should_keep_items: bool,
    dtypes: Sequence[Any],
) -> pa.Table:
    """Returns the joined rows of queries as a table."""
    all_labels: list[Any] = []
    sizes, retrieved = np.zeros((2, len(queries)), np.int64)
    for i, query in enumerate(queries):
        # Judged items that were not retrieved follow the retrieved items.
        labels_by_item = dict.fromkeys(run.dicts.get(query, ()), _NAN)
        retrieved[i] = len(labels_by_item)
        labels_by_item.update(labels[query])
        all_labels += labels_by_item.values()
        sizes[i] = len(labels_by_item)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    rows = np.arange(len(all_labels))
    is_retrieved = rows < np.repeat(starts + retrieved, sizes)
    scores = np.full(len(rows), np.nan, dtypes[1])
    with np.errstate(over="ignore"):
        scores[is_retrieved] = np.concatenate([run.get_numbers(x) for x in queries])
    is_unordered = _has_possible_ties(scores, starts, retrieved) | should_keep_items
    for i in np.flatnonzero(is_unordered).tolist() if order != "row" else ():
        query_rows = slice(starts[i], ends[i])
        items = [*{**run.dicts.get(queries[i], {}), **labels[queries[i]]}]
        sorted_indices = _sort_rows(items, scores[query_rows], retrieved[i], order)
        rows[query_rows] = starts[i] + sorted_indices
    columns = {
        "query": pa.RunEndEncodedArray.from_arrays(ends, pa.array(queries)),
        "label": np.array(all_labels, dtypes[0])[rows],
        "score": pa.array(scores[rows], mask=~is_retrieved[rows]),
    }
    if should_keep_items:
        pairs = ({**run.dicts.get(x, {}), **labels[x]} for x in queries)
        items = [*itertools.chain.from_iterable(pairs)]
        columns["item"] = pa.array(items).take(pa.array(rows))
    return pa.table(columns)


def _has_possible_ties(scores: Array, starts: Array, num_retrieved: Array) -> Array:
    """Returns for each query whether backends may treat some of its scores as tied.

    Args:
        scores: array of the scores of all rows.
        starts: int array of the first row of each query.
        num_retrieved: int array of the number of retrieved items of each query, which
            are its first rows.
    """
    ascending = scores.copy()
    for start, end in zip(
        starts.tolist(), (starts + num_retrieved).tolist(), strict=True
    ):
        ascending[start:end].sort()
    magnitudes = np.abs(scores)
    may_be_tied = (magnitudes == np.inf) | (
        (magnitudes < _SMALLEST) & (magnitudes > 0.0)
    )
    may_be_tied[1:] |= ascending[1:] == ascending[:-1]
    return np.logical_or.reduceat(may_be_tied, starts)


def _sort_rows(
    items: list[Any], scores: Array, num_retrieved: int, order: Order
) -> Array:
    """Returns the indices that sort the rows of a query.

    Args:
        items: the items of the rows.
        scores: array of the scores of the items, NaN after the retrieved items.
        num_retrieved: the number of retrieved items.
        order: the order of the rows, as in `read_rows`.
    """
    rows = range(len(items))
    if order == "item":
        return np.array(sorted(rows, key=items.__getitem__))
    texts = list(map(str, items))
    by_id = np.array(sorted(rows, key=texts.__getitem__, reverse=True))
    # NaN precedes all numbers, as in DuckDB's descending order.
    groups = np.where(np.isnan(scores), 0, 1)
    groups[num_retrieved:] = 2
    return by_id[np.lexsort((-scores[by_id], groups[by_id]))]
