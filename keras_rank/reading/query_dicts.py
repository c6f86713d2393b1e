"""Conversion of judgments and runs with a list or a dict for each query to tables."""

import contextlib
import decimal
import numbers
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa
from keras import ops

from keras_rank.reading import engine, files, sources
from keras_rank.reading.engine import Connection, Relation, materialize
from keras_rank.reading.part import INTEGERS, NUMERIC, ColumnRef, Part
from keras_rank.reading.rows import Columns
from keras_rank.reading.text import NUMBER_ROLES
from keras_rank.reading.typed_files import read_json


def number_queries(qrels: Any, run: Any, columns: Columns) -> tuple[Any, Any, bool]:
    """Converts lists of ids on both sides to dicts or tables with query numbers.

    Other sources are returned unchanged.

    Returns:
        The judgments, the run, and whether their queries were numbered.
    """
    sources_by_name = {"qrels": qrels, "run": run}
    lists = {name: _to_lists(name, x, columns) for name, x in sources_by_name.items()}
    if all(x is not None for x in lists.values()):
        return *_match_lists(lists["qrels"], lists["run"], columns), True
    for name, values in lists.items():
        if values is not None:
            raise _rows_error(name, values, columns)
    return qrels, run, False


def _to_lists(name: str, source: Any, columns: Columns) -> Any:
    """Returns a list of lists or a 2D array of integers, and `None` for other sources.

    Raises `ValueError` for an iterator, and for rows that describe one item each.
    """
    if files.is_file_source(source) or hasattr(source, "__arrow_c_stream__"):
        return None
    array = to_numpy_if_tensor(source)
    if hasattr(array, "__array__"):
        # `tolist` turns masked ids into `None`, which is rejected later.
        array = array if isinstance(array, np.ma.MaskedArray) else np.asarray(array)
        if array.dtype.names:
            raise _rows_error(name, list(array[:1]), columns)
        if array.ndim > 2:
            raise sources.source_error(name, f"an array of shape {array.shape}")
        if type(array) is np.ndarray and array.ndim == 2 and array.dtype.kind in "iu":
            return array
        return array.tolist() if array.ndim else None
    if not isinstance(source, Iterable) or isinstance(source, Mapping | Set):
        return None
    is_iterator = not isinstance(source, Sequence)
    if is_iterator or any(isinstance(x, tuple | Mapping | np.void) for x in source):
        raise _rows_error(name, source, columns)
    return list(source)


def _rows_error(name: str, values: Any, columns: Columns) -> ValueError:
    """Returns the error for rows, for an iterator, and for lists on one side only."""
    first = next(iter(values), None) if isinstance(values, Sequence) else None
    has_names = isinstance(first, Mapping | np.void) or hasattr(first, "_fields")
    names = [columns.query, columns.item, getattr(columns, NUMBER_ROLES[name])]
    table = "pandas.DataFrame(rows" + ("" if has_names else f", columns={names}") + ")"
    return sources.source_error(
        name, f"{reprlib.repr(values)}. If it has a row for each item, pass `{table}`"
    )


def _match_lists(qrels: Any, run: Any, columns: Columns) -> tuple[Any, Any]:
    """Numbers the queries of lists on both sides.

    A single id in the judgments is the only relevant item of the query.
    """
    if isinstance(qrels, list):
        qrels = [[x] if is_id(x) else x for x in qrels]
    has_pairs = _has_two_ids(qrels) and _has_two_ids(run)
    if has_pairs or any(map(_has_mixed_types, (qrels, run))):
        raise ValueError(
            "`qrels` and `run` should be lists of the ids of each query, of one type. "
            "Pass pairs of ids on both sides in dicts, such as `dict(enumerate(run))`. "
            "If there is a row for each item, pass `pandas.DataFrame(rows, columns="
            f"{[columns.query, columns.item, columns.score]})`. Received: "
            f"{reprlib.repr(qrels)} and {reprlib.repr(run)}"
        )
    if len(qrels) != len(run):
        raise ValueError(
            "`qrels` and `run` should have the ids of each query, in the same order. "
            f"Received: ids of {len(qrels)} queries and of {len(run)} queries"
        )
    return _key_by_number(qrels, columns), _key_by_number(run, columns)


def _has_two_ids(ids: Any) -> bool:
    """Returns whether all queries have two ids, which may be a query and an item."""
    if isinstance(ids, np.ndarray):
        return bool(ids.shape[1] == 2)
    return {isinstance(x, list) and len(x) for x in map(to_list, ids)} == {2}


def _has_mixed_types(ids: Any) -> bool:
    """Returns whether the first list has values of several types, as rows do."""
    if isinstance(ids, np.ndarray):
        return False
    first = to_list(ids[0]) if ids else []
    values = first if isinstance(first, list) else []
    return len({(is_id(x), isinstance(x, str | bytes)) for x in values}) > 1


def _key_by_number(ids: Any, columns: Columns) -> Any:
    """Returns a dict or a table with the ids of each query number."""
    if not isinstance(ids, np.ndarray):
        return dict(enumerate(ids))
    num_queries, size = ids.shape
    ends = pa.array(np.arange(num_queries + 1) * size)
    items = pa.LargeListArray.from_arrays(ends, pa.array(ids.ravel()))
    return pa.table({columns.query: np.arange(num_queries), columns.item or "": items})


# Names of columns that are unlikely to be ids of queries.
_COLUMN_NAME = re.compile(
    r"(q|query|user|doc|corpus|item)?[ _-]?(id|no)|query|doc|item|label|rel|relevance|"
    r"rating|grade|score|rank|column\d",
    re.IGNORECASE,
)
# Predicates for Arrow's types of numbers.
_NUMBER_PREDICATES = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
_ACCEPTED = {
    "qrels": "a list or set of the ids of relevant items. A table may have a list of "
    "as many labels, too. Leave out queries without judgments",
    "run": "a list, the best item first, with -1 only as padding at its end, or pairs "
    "(item, score). A table may have a list of as many scores, too. For a query "
    "without results, pass an empty list, which counts as 0",
}


class _Pairs(list[Any]):
    """A list of pairs of an item and a number."""


def is_nested(name: str, source: Any) -> bool:
    """Returns whether a source is JSON of the form `{query: {item: number}}`."""
    if not files.is_file_source(source):
        return False
    return files.detect_layout(name, files.list_files(name, source)[0]) == "nested"


def to_numpy_if_tensor(x: Any) -> Any:
    """Converts a tensor to a NumPy array, and returns other values unchanged."""
    is_tensor = ops.is_tensor(x) and not isinstance(x, np.ndarray)
    return ops.convert_to_numpy(x) if is_tensor else x


def to_list(x: Any) -> Any:
    """Converts a tensor, an array or a series to a list.

    Other values are returned unchanged.
    """
    x = to_numpy_if_tensor(x)
    convert = getattr(x, "tolist", None) or getattr(x, "to_list", None)
    return convert() if convert else x


def to_python_number(x: Any) -> Any:
    """Converts a real number of any library to a Python int or float.

    Other values are returned unchanged.
    """
    is_number = isinstance(x, numbers.Real | decimal.Decimal)
    is_scalar = is_number or getattr(x, "shape", None) == ()
    is_excluded = isinstance(x, str | bytes | numbers.Complex) and not is_number
    if type(x) in (int, float) or is_excluded or not is_scalar:
        return x
    # A symbolic tensor has no value, so it is returned unchanged.
    with contextlib.suppress(TypeError, ValueError, RuntimeError, OverflowError):
        number = float(x.detach() if hasattr(x, "detach") else x)
        return int(x) if number.is_integer() else number
    return x


def strip_padding(ids: Any) -> Any:
    """Returns ids without the padding of -1 at their end."""
    if isinstance(ids, Set) or -1 not in ids:
        return ids
    number = ids.index(-1)
    return ids[:number] if {*ids[number:]} == {-1} else ids


def is_id(x: Any) -> bool:
    """Returns whether a value can be an id: an integer, a text, or bytes."""
    return isinstance(x, str | bytes | int | np.integer) and not isinstance(x, bool)


def tabulate(name: str, source: Any, columns: Columns) -> Any:
    """Converts dicts with the items of each query to a table.

    The dicts have the form `{query: {item: number}}` or `{query: [items]}`, or for runs
    also `{query: [(item, score)]}`. The table has a row with lists for each query.
    Judgments with subtopics have the form `{query: {subtopic: {item: label}}}`. Their
    table has a row for each label. Other sources, such as a dict of columns, are
    returned unchanged.

    Args:
        name: `"qrels"` or `"run"`.
        source: the argument of the user.
        columns: the names of the columns.
    """
    if is_nested(name, source):
        dicts = [read_json(file) for file in files.list_files(name, source)]
    elif isinstance(source, Mapping):
        dicts = [source]
    else:
        return source
    query, item = columns.query, columns.item or ""
    number = getattr(columns, NUMBER_ROLES[name])
    keys = [x for each in dicts for x in each]
    values = [x for each in dicts for x in each.values()]
    if name == "run":
        values = list(map(_mark_pairs, values))
    nested = [items for items in values if isinstance(items, Mapping | _Pairs)]
    has_columns = len(nested) < len(values) and has_column_names(keys, columns)
    if has_columns and len(dicts) == 1:
        return source if isinstance(source, Mapping) else dicts[0]
    query_items = list(zip(keys, values, strict=True))
    should_be_empty = has_columns or any(nested)
    if any(isinstance(items, Mapping) and items for items in nested):
        for query_id, items in query_items:
            if isinstance(items, _Pairs):
                raise items_error(name, query_id, items)
    if name == "qrels" and columns.subtopic is not None:
        names = query, columns.subtopic, item, number
        rows = list(_iter_subtopic_rows(query_items))
        table_columns = {each: [row[i] for row in rows] for i, each in enumerate(names)}
    else:
        ids = [_get_ids(name, *each, should_be_empty) for each in query_items]
        table_columns = {query: keys, item: ids or pa.array([], pa.list_(pa.string()))}
        if any(nested):
            table_columns[number] = _collect_numbers(name, query_items)
    return build_table(name, table_columns)


def has_column_names(keys: Iterable[Any], columns: Columns) -> bool:
    """Returns whether a key of a dict is the name of a column, rather than a query."""
    known = {columns.query, columns.item, columns.label, columns.score}
    return any(key in known or _COLUMN_NAME.fullmatch(str(key)) for key in keys)


def build_table(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """Returns an Arrow table of columns whose scalars may be of any library."""
    try:
        return pa.table({key: _to_arrow(values) for key, values in columns.items()})
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise ValueError(
            f"`{name}` should have ids of one type, integers below 2**63 or text, and "
            f"numbers. Received: {' '.join(str(error).split())}"
        ) from error


def _to_arrow(values: Any) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError):
        return pa.array(list(map(to_python_number, values)), from_pandas=True)


def _collect_numbers(name: str, query_items: Iterable[tuple[Any, Any]]) -> Any:
    """Returns the list of numbers of each query, empty for items without numbers."""
    pairs = [(query, _get_pairs(items)) for query, items in query_items]
    for query, items in pairs:
        for item, value in items:
            if isinstance(value, Mapping):
                # Arrow would accept a dict, or crash if the dict contains itself.
                raise _number_error(name, query, item, value)
    with contextlib.suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
        array = pa.array([[x for _, x in items] for _, items in pairs])
        if any(is_kind(array.type.value_type) for is_kind in _NUMBER_PREDICATES):
            return array
    return [
        [_check_number(name, query, *each) for each in items] for query, items in pairs
    ]


def _get_pairs(items: Any) -> Any:
    """Returns the pairs of items and numbers, and none for items without numbers."""
    if isinstance(items, Mapping):
        return items.items()
    return items if isinstance(items, _Pairs) else ()


def _mark_pairs(items: Any) -> Any:
    """Converts a list of pairs of an item and a number to `_Pairs`.

    Other values are returned unchanged.
    """
    pairs = () if isinstance(items, Mapping) else to_list(items)
    if not _is_list(pairs) or not _is_list(next(iter(pairs), None)):
        return items
    return _Pairs(pairs) if all(map(_is_pair, pairs)) else items


def _is_list(x: Any) -> bool:
    return isinstance(x, list | tuple)


def _is_pair(x: Any) -> bool:
    """Returns whether a value is a pair of an item and a number or `None`."""
    if not _is_list(x) or len(x) != 2 or not is_id(x[0]):
        return False
    number = to_python_number(x[1])
    return number is None or type(number) in (int, float)


def _check_number(name: str, query: Any, item: Any, value: Any) -> Any:
    number = to_python_number(value)
    if number is None or type(number) in (int, float):
        return number
    raise _number_error(name, query, item, value)


def _number_error(name: str, query: Any, item: Any, value: Any) -> ValueError:
    return ValueError(
        f"`{name}` should have a number for each item. Received: "
        f"{reprlib.repr(value)} for the item {item!r} of the query {query!r}"
    )


def _iter_subtopic_rows(query_items: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    """Yields the query, the subtopic, the item and the label of each judgment."""
    for query, subtopics in query_items:
        subtopic_items = (
            subtopics.values() if isinstance(subtopics, Mapping) else [None]
        )
        if not all(isinstance(x, Mapping | list | tuple | Set) for x in subtopic_items):
            raise no_subtopics_error(
                f"{reprlib.repr(subtopics)}, for the query {query!r}"
            )
        for subtopic, items in subtopics.items():
            ids = _get_ids("qrels", query, items, should_be_empty=False)
            if not isinstance(items, Mapping):
                ids = strip_padding(ids)
                if -1 in ids:
                    raise items_error("qrels", query, items)
            labels = items.values() if isinstance(items, Mapping) else [1] * len(ids)
            for item, label in zip(ids, labels, strict=True):
                yield query, subtopic, item, _check_number("qrels", query, item, label)


def _get_ids(name: str, query: Any, items: Any, should_be_empty: bool) -> list[Any]:
    """Returns the ids of the items of a query.

    Args:
        name: `"qrels"` or `"run"`.
        query: the query.
        items: a dict from items to numbers, or a collection of items.
        should_be_empty: whether a collection of items should be empty, because other
            queries have dicts with numbers, or the source is a dict of columns.
    """
    if isinstance(items, Mapping | _Pairs):
        return [item for item, _ in _get_pairs(items)]
    ids = to_list(items)
    index_dtype = getattr(getattr(items, "index", None), "dtype", None)
    if index_dtype is not None and index_dtype.kind not in "iu":
        # The series has the items in its index, rather than among its values.
        raise items_error(name, query, items)
    accepted = (list, tuple, set, frozenset) if name == "qrels" else (list, tuple)
    if not isinstance(ids, accepted) or not all(
        is_id(item) and not should_be_empty for item in ids
    ):
        raise items_error(name, query, items)
    return list(ids)


def items_error(name: str, query: Any, items: Any) -> ValueError:
    """Returns the error for a value that is not a collection of items of a query."""
    values = list(map(to_list, items)) if isinstance(items, list | tuple) else []
    hint = ""
    if name == "qrels" and any(map(_is_list, values)):
        # Lists of two integers may be pairs or groups, lists of two texts only groups.
        has_pairs = all(map(_is_pair, values)) and not all(map(_is_list_of_ids, values))
        has_pairs |= all(isinstance(x, tuple) and _is_pair(x) for x in values)
        hint = (
            "; pass the pairs as a dict of items and numbers, `dict(pairs)`"
            if has_pairs
            else "; if any item of a group is enough, pass the groups as subtopics, "
            "{query: {subtopic: [items]}}, which metrics such as subtopic_recall read"
        )
    elif name == "run" and any(map(_is_list, values)):
        hint = "; pairs have an item and its score, in this order, for all queries"
    elif values and all(map(is_id, values)):
        numbers_ = "labels" if name == "qrels" else "scores, as a dict or pairs"
        hint = f"; either all queries or none should have ids with {numbers_}"
    return ValueError(
        f"`{name}` should be a dict of columns, or have a dict of items and numbers "
        f"for each query, or the ids: {_ACCEPTED[name]}. Received: "
        f"{reprlib.repr(items)}, for the query {query!r}{hint}"
    )


def _is_list_of_ids(x: Any) -> bool:
    """Returns whether a value is a list of ids that are all text or all integers."""
    kinds = {isinstance(id_, str | bytes) for id_ in x} if _is_list(x) else set()
    return len(kinds) == 1 and all(map(is_id, x))


def no_subtopics_error(received: str) -> ValueError:
    """Returns the error for judgments without subtopics."""
    return ValueError(
        "`qrels` should have subtopics, as metrics such as alpha_ndcg read them: lines "
        "of `query subtopic item label`, a table with a column of subtopics, which "
        "`subtopic` (--subtopic) names, or a dict {query: {subtopic: {item: label}}}. "
        f"Received: {received}"
    )


# DuckDB's types of ids in lists. Empty lists have the type `"NULL"`.
_IDS = {*INTEGERS, "VARCHAR", "BLOB", "UUID", '"NULL"'}


class ItemsPart(Part):
    """A table of the items in lists. An empty list has one row without an item."""

    def __init__(self, name: str, columns: Iterable[str], rows: Relation) -> None:
        super().__init__(name, columns)
        self._rows = rows

    def column_type(self, index: int) -> str:
        return str(self._rows.types[index])

    def scan(self, indices: Sequence[int]) -> Relation:
        return self._rows


def has_lists(part: Part, name: str) -> bool:
    """Returns whether a column of a part holds lists."""
    columns = part.columns
    return name in columns and part.column_type(columns.index(name)).endswith("]")


def unnest_items(
    connection: Connection,
    argument: str,
    part: Part,
    columns_by_role: Mapping[str, str],
    is_padded: bool,
) -> ItemsPart:
    """Returns the items of a table with lists, with a row for each item.

    Items without numbers get the label 1, or scores that descend in the order of items.

    Args:
        connection: a DuckDB connection.
        argument: `"qrels"` or `"run"`.
        part: the table.
        columns_by_role: the names of the columns, by role.
        is_padded: whether -1 at the end of a list is padding even if the items have
            numbers. Without numbers, -1 always is padding.
    """
    id_, item, number = refs = [
        ColumnRef(role, columns_by_role[role])
        for role in ("query", "item", NUMBER_ROLES[argument])
    ]
    if "subtopic" in columns_by_role:
        raise ValueError(
            "`qrels` with subtopics should have a row for each item. Received: "
            f"lists of items, in {part.name}"
        )
    has_numbers = has_lists(part, number.name)
    if not has_numbers:
        _require_no_numbers(part, item, number)
    type_ = part.column_type(part.find_index(item)).rpartition("[")[0]
    if type_ not in _IDS:
        accepted = "a column of ids, or of lists of texts or integers"
        raise item.refused(accepted, f"which has lists of the type {type_}")
    # The cast turns arrays, which have a fixed length, into lists.
    items = f'CAST("1" AS {type_}[])'
    unpadded_items = items
    if type_ in INTEGERS and (is_padded or not has_numbers):
        unpadded_items = f"list_filter({items}, lambda x: x <> -1)"
    columns = f'SELECT "0", {items} AS items, {unpadded_items} AS kept'
    is_invalid = "items IS NULL OR len(items) <> list_count(items)"
    if has_numbers or argument == "run":
        is_invalid += " OR items[:len(kept)] <> kept"
    numbers = (
        f"[{'-i' if argument == 'run' else '1'}::DOUBLE FOR i IN range(len(kept))]"
    )
    if has_numbers:
        columns += ', "2" AS numbers'
        is_invalid += " OR len(items) IS DISTINCT FROM len(numbers)"
        numbers = "numbers[:len(kept)]"
    read = part.read(refs if has_numbers else [id_, item])
    lists = materialize(connection, engine.query(read, f"{columns} FROM source"))
    for query_id, ids, _, *given_numbers in (
        lists.filter(is_invalid).limit(1).fetchall()
    ):
        raise items_error(
            argument, query_id, [ids, *given_numbers] if given_numbers else ids
        )
    if argument == "qrels":
        # Queries without items have no judgments.
        lists = lists.filter("len(kept) > 0")
    unnested = ", ".join(
        f'unnest(if(len(kept) = 0, [NULL], {values})) AS "{i}"'
        for i, values in enumerate(("kept", numbers), 1)
    )
    rows = engine.query(lists, f'SELECT "0", {unnested} FROM source')
    return ItemsPart(part.name, columns_by_role.values(), rows)


def _require_no_numbers(part: Part, item: ColumnRef, number: ColumnRef) -> None:
    """Raises `ValueError` for a column that may hold the numbers of items in lists."""
    for index, name in enumerate(part.columns):
        type_ = part.column_type(index)
        has_number_lists = type_.startswith(NUMERIC) and type_.endswith("]")
        if name == number.name or (has_number_lists and name != item.name):
            raise number.refused(
                f"the lists of numbers of the lists of items, or leave out {name!r}",
                f"and {part.name} with {name!r} of the type {type_}",
            )
