"""Columns of lists, with the items of a query in each row, as rows of items."""

from collections.abc import Iterable, Mapping, Sequence

from keras_rank.reading.engine import Connection, Relation, query, stored
from keras_rank.reading.part import INTEGERS, NUMERIC, ColumnRef, Part
from keras_rank.reading.query_dicts import not_understood
from keras_rank.reading.text import NUMBERS

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
    lists = stored(connection, query(read, f"{columns} FROM source"))
    for of_query, ids, _, *given in lists.filter(wrong).limit(1).fetchall():
        raise not_understood(argument, of_query, [ids, *given] if given else ids)
    if argument == "qrels":
        # Others have no judgments.
        lists = lists.filter("len(kept) > 0")
    unnested = ", ".join(
        f'unnest(if(len(kept) = 0, [NULL], {values})) AS "{i}"'
        for i, values in enumerate(("kept", numbers), 1)
    )
    rows = query(lists, f'SELECT "0", {unnested} FROM source')
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
