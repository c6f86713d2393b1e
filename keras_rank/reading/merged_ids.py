"""Detection of item ids that may be several ids in one cell, such as `"a3 b3"`."""

import re
from collections.abc import Collection, Iterable

from keras_rank.reading.engine import Relation, query, sql_literal

# An SQL condition: the id contains characters that may separate ids.
_IS_MERGED = r"regexp_matches(item, '[\s\p{Z}\[\]{}(),;|]')"
# The largest number of rows with such ids that are inspected.
_MAX_ROWS = 2_000
_SEPARATORS = re.compile(r"""[\s\[\]{}(),;|"']+""")
_SPACE = re.compile(r"[\s\[\]{}]")
# A list as Python and JSON write it, or a tuple, or a set.
_LIST = re.compile(r"\s*(\[.*\]|[({].*,.*[)}])\s*")
# The problems of ids, and the advice for each problem.
_SEVERAL = "may be several ids"
_PADDED = "start or end with white space"
_ADVICE = {
    _SEVERAL: "a cell is read as one id. If it has several, write one row per item",
    _PADDED: "ids are read as written. Remove it",
}


def find_id_warnings(
    argument: str,
    name: str,
    items: Relation,
    other_tables: Iterable[Relation] = (),
    is_csv: bool = False,
) -> list[str]:
    """Returns warnings about items that may be several ids, or have outer white space.

    An item may be several ids if it is a list written as text, if its parts are other
    items, or, in CSV, if it contains white space or brackets. Items that the other side
    contains as well are single ids. White space at the ends is reported for CSV only.

    Args:
        argument: the name of the argument whose value is the source.
        name: the name of the source.
        items: a table with the columns `item` and `row`.
        other_tables: the tables of the other side, with ids in the column `item`.
        is_csv: whether the source is CSV.
    """
    is_text = str(items.project("item").types[0]) == "VARCHAR"
    if not is_text or not items.filter(_IS_MERGED).limit(1).fetchall():
        return []
    source = items.project("item, row")
    merged = source.filter(_IS_MERGED)
    for other_table in other_tables:
        source = source.union(other_table.project("CAST(item AS VARCHAR), NULL"))
        merged = query(
            source,
            "FROM (SELECT item, row FROM source WHERE row IS NOT NULL) ANTI JOIN "
            "(SELECT item FROM source WHERE row IS NULL) USING (item) "
            f"WHERE {_IS_MERGED}",
        )
    rows = merged.limit(_MAX_ROWS).fetchall()
    ids = dict.fromkeys(item for item, _ in sorted(rows, key=lambda row: row[1]))
    ids_by_problem: dict[str, list[str]] = {_SEVERAL: [], _PADDED: []}
    parts_by_item = {}
    for item in ids:
        if is_csv and item != item.strip():
            ids_by_problem[_PADDED].append(item)
        elif _LIST.fullmatch(item) or (is_csv and _SPACE.search(item)):
            ids_by_problem[_SEVERAL].append(item)
        else:
            parts_by_item[item] = {*_SEPARATORS.split(item)} - {""}
    known = _find_known_ids(source, set().union(*parts_by_item.values()))
    ids_by_problem[_SEVERAL] += [
        x for x, parts in parts_by_item.items() if _is_id_list(x, parts, known)
    ]
    at_least = "at least " * (len(rows) == _MAX_ROWS)
    return [
        f"`{argument}` has item ids that {problem} ({at_least}{len(items_)}), such as "
        f"{min(items_, key=[*ids].index)!r} in {name}: {_ADVICE[problem]}"
        for problem, items_ in ids_by_problem.items()
        if items_
    ]


def _find_known_ids(source: Relation, parts: Collection[str]) -> set[str]:
    """Returns the parts that are ids of other items."""
    if not parts:
        return set()
    texts = ", ".join(map(sql_literal, parts))
    rows = source.filter(f"item IN ({texts})").project("item").distinct().fetchall()
    return {item for (item,) in rows}


def _is_id_list(item: str, parts: set[str], known: set[str]) -> bool:
    """Returns whether an item may be a list of known ids.

    Without delimiters, all parts must be known: a title may contain another title, but
    does not consist of other titles.
    """
    has_known = len(parts) > 1 and not parts.isdisjoint(known)
    return has_known and (parts <= known or re.search("[,;|]", item) is not None)
