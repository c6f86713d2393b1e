"""Columns of lists, with the items of a query in each row, as rows of items."""

import itertools
from collections.abc import Mapping, Sequence

from keras_rank.reading.engine import Connection, Relation, query
from keras_rank.reading.part import INTEGERS, TYPES_OF_NUMBERS, ColumnRef, Part
from keras_rank.reading.query_dicts import not_understood
from keras_rank.reading.text import NUMBERS

# The types of ids in lists. The last one is that of empty lists.
_IDS = {*INTEGERS, "VARCHAR", "UUID", '"NULL"'}
# The numbers of tables.
_TABLES = itertools.count()


class ItemsPart(Part):
    """The rows of items of a table with lists. An empty list is one without an item."""

    def __init__(self, name: str, columns: Sequence[str], rows: Relation) -> None:
        super().__init__(name, columns)
        self._rows = rows

    def type_of(self, place: int) -> str:
        return str(self._rows.types[place])

    def scan(self, places: Sequence[int]) -> Relation:
        return self._rows


def has_lists(part: Part, item: str) -> bool:
    """Whether a column of items holds lists."""
    names = part.columns
    return item in names and part.type_of(names.index(item)).endswith("]")


def items_of(
    connection: Connection, argument: str, part: Part, found: Mapping[str, str]
) -> ItemsPart:
    """Returns the items of a table with lists, where -1 is padding at their ends.

    Items without numbers have the label 1, or scores that keep their order.

    Args:
        connection: a DuckDB.
        argument: `"qrels"` or `"run"`.
        part: the table.
        found: the names of the columns, by what they hold.
    """
    number = NUMBERS[argument]
    sought = [ColumnRef(role, found[role]) for role in ("query", "item", number)]
    has_numbers = has_lists(part, found[number])
    if not has_numbers:
        _require_no_numbers(part, sought)
    type_ = part.type_of(part.place(sought[1])).rpartition("[")[0]
    if type_ not in _IDS:
        accepted = "a column of ids, or of lists of texts or integers"
        raise sought[1].refused(accepted, f"which has lists of the type {type_}")
    # Those of arrays have a fixed length.
    kept = items = f'CAST("1" AS {type_}[])'
    if type_ in INTEGERS:
        kept = f"list_filter({items}, lambda x: x <> -1)"
    numbers = '"2"' if has_numbers else "NULL"
    table = f"lists_{next(_TABLES)}"
    query(
        part.read(sought if has_numbers else sought[:2]),
        f'SELECT "0", {items} AS items, {kept} AS kept, {numbers} AS numbers '
        "FROM source",
    ).create(table)
    lists = connection.table(table)
    wrong = "items IS NULL OR len(items) <> list_count(items)"
    if has_numbers or argument == "run":
        wrong += " OR items[:len(kept)] <> kept"
    if has_numbers:
        wrong += " OR len(items) IS DISTINCT FROM len(numbers)"
    for query_, ids, _, given in lists.filter(wrong).limit(1).fetchall():
        if has_numbers and ids is not None:
            raise ValueError(
                f"`{argument}` should have as many {number}s as ids for each query, "
                f"with -1 only as padding at the end. Received: {ids} and {given}, for "
                f"the query {query_!r}"
            )
        raise not_understood(argument, query_, ids)
    if has_numbers:
        numbers = "numbers[:len(kept)]"
    else:
        of_place = "1.0" if argument == "qrels" else "-i"
        numbers = f"[{of_place}::DOUBLE FOR i IN range(len(kept))]"
    if argument == "qrels":
        # A query without judgements.
        lists = lists.filter("len(kept) > 0")
    rows = query(
        lists,
        'SELECT "0", unnest(if(len(kept) = 0, [NULL], kept)) AS "1", '
        f'unnest(if(len(kept) = 0, [NULL], {numbers})) AS "2" FROM source',
    )
    return ItemsPart(part.name, [x.name for x in sought], rows)


def _require_no_numbers(part: Part, sought: Sequence[ColumnRef]) -> None:
    """Raises for a column that may hold the numbers of the items in lists."""
    item, number = sought[1:]
    for place, name in enumerate(part.columns):
        type_ = part.type_of(place)
        is_like = type_.startswith(TYPES_OF_NUMBERS) and type_.endswith("]")
        if name == number.name or (is_like and name != item.name):
            raise number.refused(
                f"the lists of numbers beside those of items, or leave out {name!r}",
                f"and {part.name} with {name!r} of the type {type_}",
            )
