"""Ids of items that may be several ids in one cell, such as `"a3 b3"`."""

import re
from collections.abc import Collection, Iterable

from keras_rank.reading.engine import Relation, in_sql, query

# The condition that an id has characters that separate ids.
_IS_MERGED = r"regexp_matches(item, '[\s\p{Z}\[\]{}(),;|]')"
# The number of rows with such ids that are inspected.
_MOST = 2_000
_SEPARATORS = re.compile(r"""[\s\[\]{}(),;|"']+""")
_SPACE = re.compile(r"[\s\[\]{}]")
# A list as Python and JSON write it, or a tuple, or a set.
_LIST = re.compile(r"\s*(\[.*\]|[({].*,.*[)}])\s*")
# Problems of ids, and their remedies.
_SEVERAL = "may be several ids"
_PADDED = "start or end with white space"
_ADVICE = {
    _SEVERAL: "a cell is read as one id. If it has several, write one row per item",
    _PADDED: "ids are read as written. Remove it",
}


def warnings_of_ids(
    argument: str,
    name: str,
    items: Relation,
    others: Iterable[Relation] = (),
    is_csv: bool = False,
) -> list[str]:
    """Returns warnings if items may be several ids each, or in CSV have white space.

    Items that may be several ids are lists written as text, items whose parts are other
    items, and in CSV all items with white space or brackets. An item that the other
    side has too is one id.

    Args:
        argument: the name of the argument that is the source.
        name: the name of the source.
        items: a table with the columns `item` and `row`.
        others: the tables of the other side, whose column `item` has ids.
        is_csv: whether the source is CSV.
    """
    is_text = str(items.project("item").types[0]) == "VARCHAR"
    if not is_text or not items.filter(_IS_MERGED).limit(1).fetchall():
        return []
    source = items.project("item, row")
    merged = source.filter(_IS_MERGED)
    for other in others:
        source = source.union(other.project("CAST(item AS VARCHAR), NULL"))
        merged = query(
            source,
            "FROM (SELECT item, row FROM source WHERE row IS NOT NULL) ANTI JOIN "
            "(SELECT item FROM source WHERE row IS NULL) USING (item) "
            f"WHERE {_IS_MERGED}",
        )
    rows = merged.limit(_MOST).fetchall()
    ids = dict.fromkeys(item for item, _ in sorted(rows, key=lambda row: row[1]))
    found: dict[str, list[str]] = {_SEVERAL: [], _PADDED: []}
    split = {}
    for item in ids:
        if is_csv and item != item.strip():
            found[_PADDED].append(item)
        elif _LIST.fullmatch(item) or (is_csv and _SPACE.search(item)):
            found[_SEVERAL].append(item)
        else:
            split[item] = {*_SEPARATORS.split(item)} - {""}
    known = _known(source, set().union(*split.values()))
    found[_SEVERAL] += [
        x for x, parts in split.items() if _consists_of(x, parts, known)
    ]
    at_least = "at least " * (len(rows) == _MOST)
    return [
        f"`{argument}` has item ids that {reason} ({at_least}{len(those)}), such as "
        f"{min(those, key=[*ids].index)!r} in {name}: {_ADVICE[reason]}"
        for reason, those in found.items()
        if those
    ]


def _known(source: Relation, parts: Collection[str]) -> set[str]:
    """Returns the parts that are ids."""
    if not parts:
        return set()
    texts = ", ".join(map(in_sql, parts))
    rows = source.filter(f"item IN ({texts})").project("item").distinct().fetchall()
    return {item for (item,) in rows}


def _consists_of(item: str, parts: set[str], known: set[str]) -> bool:
    """Returns whether an item may be a list of known ids.

    A title may contain the words of other titles, but does not consist of other titles.
    """
    has_known = len(parts) > 1 and not parts.isdisjoint(known)
    return has_known and (parts <= known or re.search("[,;|]", item) is not None)
