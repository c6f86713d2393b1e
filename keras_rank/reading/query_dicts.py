"""Judgments and runs that hold the items of each query together."""

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
from keras_rank.reading.engine import Connection, Relation, stored
from keras_rank.reading.part import INTEGERS, NUMERIC, ColumnRef, Part
from keras_rank.reading.rows import Columns
from keras_rank.reading.text import NUMBERS
from keras_rank.reading.typed_files import json_of


def as_tables(qrels: Any, run: Any, columns: Columns) -> tuple[Any, Any, bool]:
    """Turns lists of ids on both sides into dicts or tables by query number.

    Returns:
        The judgments, the run, and whether their queries are numbered. Other sources
        are returned unchanged.
    """
    given = {"qrels": qrels, "run": run}
    lists = {name: _lists_of(name, x, columns) for name, x in given.items()}
    if all(x is not None for x in lists.values()):
        return *_by_place(lists["qrels"], lists["run"], columns), True
    for name, values in lists.items():
        if values is not None:
            raise _no_lists(name, values, columns)
    return qrels, run, False


def _lists_of(name: str, source: Any, columns: Columns) -> Any:
    """Returns a list, or an array of integers in rows, and `None` for other sources.

    Raises for rows with the fields of one item.
    """
    if files.are_files(source) or hasattr(source, "__arrow_c_stream__"):
        return None
    array = on_host(source)
    if hasattr(array, "__array__"):
        # Ids under a mask become `None`, which is refused.
        array = array if isinstance(array, np.ma.MaskedArray) else np.asarray(array)
        if array.dtype.names:
            raise _no_lists(name, list(array[:1]), columns)
        if type(array) is np.ndarray and array.ndim == 2 and array.dtype.kind in "iu":
            return array
        return array.tolist() if array.ndim else None
    if not isinstance(source, Iterable) or isinstance(source, Mapping | Set):
        return None
    is_iterator = not isinstance(source, Sequence)
    if is_iterator or any(isinstance(x, tuple | Mapping | np.void) for x in source):
        raise _no_lists(name, source, columns)
    return list(source)


def _no_lists(name: str, values: Any, columns: Columns) -> ValueError:
    """The error for rows, for an iterator, and for lists on one side only."""
    first = next(iter(values), None) if isinstance(values, Sequence) else None
    has_names = isinstance(first, Mapping | np.void) or hasattr(first, "_fields")
    names = [columns.query, columns.item, getattr(columns, NUMBERS[name])]
    table = "pandas.DataFrame(rows" + ("" if has_names else f", columns={names}") + ")"
    return sources.not_understood(
        name, f"{reprlib.repr(values)}. If it has a row for each item, pass `{table}`"
    )


def _by_place(judged: Any, found: Any, columns: Columns) -> tuple[Any, Any]:
    """Numbers the queries. A single id is the one relevant item of a query."""
    if isinstance(judged, list):
        judged = [[x] if is_id(x) else x for x in judged]
    are_pairs = _are_pairs(judged) and _are_pairs(found)
    if are_pairs or any(map(_mixes_types, (judged, found))):
        raise ValueError(
            "`qrels` and `run` should be lists of the ids of each query, of one type: "
            "those of two ids on both sides in dicts, such as `dict(enumerate(run))`. "
            "If they have a row for each item, pass `pandas.DataFrame(rows, columns="
            f"{[columns.query, columns.item, columns.score]})`. Received: "
            f"{reprlib.repr(judged)} and {reprlib.repr(found)}"
        )
    if len(judged) != len(found):
        raise ValueError(
            "`qrels` and `run` should have the ids of each query, in the same order. "
            f"Received: those of {len(judged)} and of {len(found)} queries"
        )
    return _placed(judged, columns), _placed(found, columns)


def _are_pairs(ids: Any) -> bool:
    """Returns whether all queries have two ids."""
    if isinstance(ids, np.ndarray):
        return bool(ids.shape[1] == 2)
    return {isinstance(x, list) and len(x) for x in map(listed, ids)} == {2}


def _mixes_types(ids: Any) -> bool:
    """Returns whether the first list has values of several types, as a row has."""
    if isinstance(ids, np.ndarray):
        return False
    first = listed(ids[0]) if ids else []
    values = first if isinstance(first, list) else []
    return len({(is_id(x), isinstance(x, str | bytes)) for x in values}) > 1


def _placed(ids: Any, columns: Columns) -> Any:
    """Returns the ids of each query by the number of the query."""
    if not isinstance(ids, np.ndarray):
        return dict(enumerate(ids))
    number, size = ids.shape
    ends = pa.array(np.arange(number + 1) * size)
    items = pa.LargeListArray.from_arrays(ends, pa.array(ids.ravel()))
    return pa.table({columns.query: np.arange(number), columns.item or "": items})


# Keys of a dict of columns, which a query is not likely to have for an id.
_COLUMN = re.compile(
    r"(q|query|user|doc|corpus|item)?[ _-]?(id|no)|query|doc|item|label|rel|relevance|"
    r"rating|grade|score|rank|column\d",
    re.IGNORECASE,
)
# The types of numbers.
_KINDS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
_ACCEPTED = {
    "qrels": "a list or set of those of relevant items, in a table perhaps with as "
    "many labels. Leave a query without judgments out",
    "run": "a list, the best first, in a table perhaps with as many scores, and -1 "
    "only as padding at its end, or pairs (item, score). Where nothing was found, pass "
    "an empty one, which counts as 0",
}


class _Pairs(list[Any]):
    """Pairs of an item and a number."""


def is_nested(name: str, source: Any) -> bool:
    """Whether a source is JSON of `{query: {item: number}}`."""
    if not files.are_files(source):
        return False
    return files.layout_of(name, files.files_of(name, source)[0]) == "nested"


def on_host(x: Any) -> Any:
    """A tensor as an array, and others unchanged."""
    is_tensor = ops.is_tensor(x) and not isinstance(x, np.ndarray)
    return ops.convert_to_numpy(x) if is_tensor else x


def listed(x: Any) -> Any:
    """A tensor, an array or a series as a list, and others unchanged."""
    x = on_host(x)
    convert = getattr(x, "tolist", None) or getattr(x, "to_list", None)
    return convert() if convert else x


def plain(x: Any) -> Any:
    """A real number of any library as one of Python, and others unchanged."""
    is_number = isinstance(x, numbers.Real | decimal.Decimal)
    is_scalar = is_number or getattr(x, "shape", None) == ()
    is_other = isinstance(x, str | bytes | numbers.Complex) and not is_number
    if type(x) in (int, float) or is_other or not is_scalar:
        return x
    # Tensors may have no value yet.
    with contextlib.suppress(TypeError, ValueError, RuntimeError, OverflowError):
        number = float(x.detach() if hasattr(x, "detach") else x)
        return int(x) if number.is_integer() else number
    return x


def unpadded(ids: Any) -> Any:
    """Returns ids without -1 at their end."""
    if isinstance(ids, Set) or -1 not in ids:
        return ids
    number = ids.index(-1)
    return ids[:number] if {*ids[number:]} == {-1} else ids


def is_id(x: Any) -> bool:
    """Whether a value is an id, in lists of these and in rows."""
    return isinstance(x, str | bytes | int | np.integer) and not isinstance(x, bool)


def tabulated(name: str, source: Any, columns: Columns) -> Any:
    """Returns dicts with the items of each query as a table, and others unchanged.

    These are `{query: {item: number}}` or `{query: [items]}`, or for runs also
    `{query: [(item, score)]}`. The table has a row with lists for each query. A single
    dict of columns is one of the others. Judgments with subtopics, `{query: {subtopic:
    {item: label}}}`, have a row for each label.

    Args:
        name: `"qrels"` or `"run"`.
        source: the argument of the user.
        columns: the names of the columns.
    """
    if is_nested(name, source):
        dicts = [json_of(file) for file in files.files_of(name, source)]
    elif isinstance(source, Mapping):
        dicts = [source]
    else:
        return source
    query, item = columns.query, columns.item or ""
    number = getattr(columns, NUMBERS[name])
    keys = [x for each in dicts for x in each]
    values = [x for each in dicts for x in each.values()]
    if name == "run":
        values = list(map(_with_pairs, values))
    nested = [items for items in values if isinstance(items, Mapping | _Pairs)]
    has_columns = len(nested) < len(values) and names_columns(keys, columns)
    if has_columns and len(dicts) == 1:
        return source if isinstance(source, Mapping) else dicts[0]
    of_queries = list(zip(keys, values, strict=True))
    should_be_empty = has_columns or any(nested)
    if any(isinstance(items, Mapping) and items for items in nested):
        for of_query, items in of_queries:
            if isinstance(items, _Pairs):
                raise not_understood(name, of_query, items)
    if name == "qrels" and columns.subtopic is not None:
        names = query, columns.subtopic, item, number
        rows = list(_rows_of_subtopics(of_queries))
        found = {each: [row[i] for row in rows] for i, each in enumerate(names)}
    else:
        ids = [_ids_of(name, *each, should_be_empty) for each in of_queries]
        found = {query: keys, item: ids or pa.array([], pa.list_(pa.string()))}
        if any(nested):
            found[number] = _numbers(name, of_queries)
    return table_of(name, found)


def names_columns(keys: Iterable[Any], columns: Columns) -> bool:
    """Returns whether a key of a dict is the name of a column, rather than a query."""
    known = {columns.query, columns.item, columns.label, columns.score}
    return any(key in known or _COLUMN.fullmatch(str(key)) for key in keys)


def table_of(name: str, columns: Mapping[str, Any]) -> pa.Table:
    """A table of columns, with the scalars of any library."""
    try:
        return pa.table({key: _array(values) for key, values in columns.items()})
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise ValueError(
            f"`{name}` should have ids of one type, integers below 2**63 or text, and "
            f"numbers. Received: {' '.join(str(error).split())}"
        ) from error


def _array(values: Any) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, ValueError):
        return pa.array(list(map(plain, values)), from_pandas=True)


def _numbers(name: str, of_queries: Iterable[tuple[Any, Any]]) -> Any:
    """The numbers of the items of each query, none where nothing was found."""
    pairs = [(query, _pairs_of(items)) for query, items in of_queries]
    for query, items in pairs:
        for item, value in items:
            if isinstance(value, Mapping):
                # Arrow would read it too, or end the process if it contains itself.
                raise _no_number(name, query, item, value)
    with contextlib.suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
        found = pa.array([[x for _, x in items] for _, items in pairs])
        if any(is_kind(found.type.value_type) for is_kind in _KINDS):
            return found
    return [[_number(name, query, *each) for each in items] for query, items in pairs]


def _pairs_of(items: Any) -> Any:
    """The pairs of an item and a number, none of items without numbers."""
    if isinstance(items, Mapping):
        return items.items()
    return items if isinstance(items, _Pairs) else ()


def _with_pairs(items: Any) -> Any:
    """Returns a list of pairs of an item and a number as one, and others unchanged."""
    pairs = () if isinstance(items, Mapping) else listed(items)
    if not _is_list(pairs) or not _is_list(next(iter(pairs), None)):
        return items
    return _Pairs(pairs) if all(map(_is_pair, pairs)) else items


def _is_list(x: Any) -> bool:
    return isinstance(x, list | tuple)


def _is_pair(x: Any) -> bool:
    """Whether a value is an item and its number, which may be missing."""
    if not _is_list(x) or len(x) != 2 or not is_id(x[0]):
        return False
    number = plain(x[1])
    return number is None or type(number) in (int, float)


def _number(name: str, query: Any, item: Any, value: Any) -> Any:
    number = plain(value)
    if number is None or type(number) in (int, float):
        return number
    raise _no_number(name, query, item, value)


def _no_number(name: str, query: Any, item: Any, value: Any) -> ValueError:
    return ValueError(
        f"`{name}` should have a number for each item. Received: "
        f"{reprlib.repr(value)} for the item {item!r} of the query {query!r}"
    )


def _rows_of_subtopics(of_queries: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    """Yields the query, subtopic, item and label of judgments in dicts."""
    for query, subtopics in of_queries:
        of_subtopics = subtopics.values() if isinstance(subtopics, Mapping) else [None]
        if not all(isinstance(x, Mapping | list | tuple | Set) for x in of_subtopics):
            raise no_subtopics(f"{reprlib.repr(subtopics)}, for the query {query!r}")
        for subtopic, items in subtopics.items():
            ids = _ids_of("qrels", query, items, should_be_empty=False)
            if not isinstance(items, Mapping):
                ids = unpadded(ids)
                if -1 in ids:
                    raise not_understood("qrels", query, items)
            labels = items.values() if isinstance(items, Mapping) else [1] * len(ids)
            for item, label in zip(ids, labels, strict=True):
                yield query, subtopic, item, _number("qrels", query, item, label)


def _ids_of(name: str, query: Any, items: Any, should_be_empty: bool) -> list[Any]:
    """The ids of the items of a query.

    Args:
        name: `"qrels"` or `"run"`.
        query: the query.
        items: a dict from items to numbers, or a collection of items.
        should_be_empty: whether such a collection should not have any, as other queries
            have dicts, or columns.
    """
    if isinstance(items, Mapping | _Pairs):
        return [item for item, _ in _pairs_of(items)]
    ids = listed(items)
    labels = getattr(getattr(items, "index", None), "dtype", None)
    if labels is not None and labels.kind not in "iu":
        # A series with its items in the index.
        raise not_understood(name, query, items)
    accepted = (list, tuple, set, frozenset) if name == "qrels" else (list, tuple)
    if not isinstance(ids, accepted) or not all(
        is_id(item) and not should_be_empty for item in ids
    ):
        raise not_understood(name, query, items)
    return list(ids)


def not_understood(name: str, query: Any, items: Any) -> ValueError:
    """The error for what is no collection of the items of a query."""
    values = list(map(listed, items)) if isinstance(items, list | tuple) else []
    hint = ""
    if name == "qrels" and any(map(_is_list, values)):
        # Lists of integers may be either, and those of texts only groups.
        are_pairs = all(map(_is_pair, values)) and not all(map(_is_list_of_ids, values))
        are_pairs |= all(isinstance(x, tuple) and _is_pair(x) for x in values)
        hint = (
            ", of which `dict` makes a dict of items and numbers"
            if are_pairs
            else "; if any item of a group is enough, pass the groups as subtopics, "
            "{query: {subtopic: [items]}}, which metrics such as subtopic_recall read"
        )
    elif name == "run" and any(map(_is_list, values)):
        hint = "; pairs have an item and its score, in this order, for all queries"
    elif values and all(map(is_id, values)):
        numbers_ = "labels" if name == "qrels" else "scores, as a dict or pairs"
        hint = f"; all queries should have ids only, or all ids with {numbers_}"
    return ValueError(
        f"`{name}` should be a dict of columns, or have a dict of items and numbers "
        f"for each query, or ids for each: {_ACCEPTED[name]}. Received: "
        f"{reprlib.repr(items)}, for the query {query!r}{hint}"
    )


def _is_list_of_ids(x: Any) -> bool:
    """Whether a value is a list of ids of one kind."""
    kinds = {isinstance(id_, str | bytes) for id_ in x} if _is_list(x) else set()
    return len(kinds) == 1 and all(map(is_id, x))


def no_subtopics(received: str) -> ValueError:
    """The error for judgments that don't say to which subtopic an item is relevant."""
    return ValueError(
        "`qrels` should have subtopics, as metrics such as alpha_ndcg read them: lines "
        "of `query subtopic item label`, a table with a column of subtopics, which "
        "`subtopic` (--subtopic) names, or a dict {query: {subtopic: {item: label}}}. "
        f"Received: {received}"
    )


# The types of ids in lists. The last one is that of empty lists.
_IDS = {*INTEGERS, "VARCHAR", "BLOB", "UUID", '"NULL"'}


class ItemsPart(Part):
    """The items of a table with lists. An empty list has a row without an item."""

    def __init__(self, name: str, columns: Iterable[str], rows: Relation) -> None:
        super().__init__(name, columns)
        self._rows = rows

    def type_of(self, place: int) -> str:
        return str(self._rows.types[place])

    def scan(self, places: Sequence[int]) -> Relation:
        return self._rows


def has_lists(part: Part, name: str) -> bool:
    """Whether a column holds lists."""
    columns = part.columns
    return name in columns and part.type_of(columns.index(name)).endswith("]")


def items_of(
    connection: Connection,
    argument: str,
    part: Part,
    found: Mapping[str, str],
    is_padded: bool,
) -> ItemsPart:
    """Returns the items of a table with lists.

    Items without numbers have the label 1, or scores that keep their order.

    Args:
        connection: a DuckDB.
        argument: `"qrels"` or `"run"`.
        part: the table.
        found: the names of the columns, by what they hold.
        is_padded: whether -1 at the end of a list with numbers is padding, as it is in
            lists without.
    """
    id_, item, number = sought = [
        ColumnRef(role, found[role]) for role in ("query", "item", NUMBERS[argument])
    ]
    if "subtopic" in found:
        raise ValueError(
            "`qrels` with subtopics should have a row for each item. Received: "
            f"lists of items, in {part.name}"
        )
    has_numbers = has_lists(part, number.name)
    if not has_numbers:
        _require_no_numbers(part, item, number)
    type_ = part.type_of(part.place(item)).rpartition("[")[0]
    if type_ not in _IDS:
        accepted = "a column of ids, or of lists of texts or integers"
        raise item.refused(accepted, f"which has lists of the type {type_}")
    # Those of arrays have a fixed length.
    items = f'CAST("1" AS {type_}[])'
    kept = items
    if type_ in INTEGERS and (is_padded or not has_numbers):
        kept = f"list_filter({items}, lambda x: x <> -1)"
    columns = f'SELECT "0", {items} AS items, {kept} AS kept'
    wrong = "items IS NULL OR len(items) <> list_count(items)"
    if has_numbers or argument == "run":
        wrong += " OR items[:len(kept)] <> kept"
    numbers = (
        f"[{'-i' if argument == 'run' else '1'}::DOUBLE FOR i IN range(len(kept))]"
    )
    if has_numbers:
        columns += ', "2" AS numbers'
        wrong += " OR len(items) IS DISTINCT FROM len(numbers)"
        numbers = "numbers[:len(kept)]"
    read = part.read(sought if has_numbers else [id_, item])
    lists = stored(connection, engine.query(read, f"{columns} FROM source"))
    for of_query, ids, _, *given in lists.filter(wrong).limit(1).fetchall():
        raise not_understood(argument, of_query, [ids, *given] if given else ids)
    if argument == "qrels":
        # Others have no judgments.
        lists = lists.filter("len(kept) > 0")
    unnested = ", ".join(
        f'unnest(if(len(kept) = 0, [NULL], {values})) AS "{i}"'
        for i, values in enumerate(("kept", numbers), 1)
    )
    rows = engine.query(lists, f'SELECT "0", {unnested} FROM source')
    return ItemsPart(part.name, found.values(), rows)


def _require_no_numbers(part: Part, item: ColumnRef, number: ColumnRef) -> None:
    """Raises for a column that may hold the numbers of the items in lists."""
    for place, name in enumerate(part.columns):
        type_ = part.type_of(place)
        is_like = type_.startswith(NUMERIC) and type_.endswith("]")
        if name == number.name or (is_like and name != item.name):
            raise number.refused(
                f"the lists of numbers beside those of items, or leave out {name!r}",
                f"and {part.name} with {name!r} of the type {type_}",
            )
