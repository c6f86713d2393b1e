"""Ids of items that may be several ids in one cell, such as `"a3 b3"`."""

from collections.abc import Iterable

from keras_rank.reading.engine import Relation, query

_SPACE = r"\s\p{Z}"
_BRACKETS = r"\[\]{}"
# A list as Python and JSON write it, or a tuple, or a set.
_LIST = r"^\s*(\[.*\]|[({].*,.*[)}])\s*$"
# The condition that an id has characters that separate ids.
_IS_MERGED = rf"regexp_matches(item, '[{_SPACE}{_BRACKETS}(),;|]')"
# These ids, and their parts between such characters.
_PARTS = rf"""
WITH merged AS (
    SELECT item, min(row) AS row FROM source WHERE row IS NOT NULL AND {_IS_MERGED}
    GROUP BY item
), parts AS (
    SELECT item, row, unnest(
        string_split_regex(item, '[{_SPACE}{_BRACKETS}(),;|"'']+')
    ) AS part FROM merged
), counted AS (
    SELECT item, min(row) AS row, count(DISTINCT nullif(part, '')) AS size,
    count(DISTINCT part) FILTER (part IN (SELECT item FROM source)) AS known
    FROM parts GROUP BY item
)
SELECT count(*), arg_min(item, row) FROM counted WHERE regexp_matches(item, '{_LIST}')
"""
# A title may contain the words of others, but does not consist of other titles.
_OF_KNOWN = """
OR (size > 1 AND known > 0 AND (known = size OR regexp_matches(item, '[,;|]')))
"""
_OF_CSV = rf"OR regexp_matches(item, '[{_SPACE}{_BRACKETS}]')"


def warnings_of_ids(
    argument: str,
    name: str,
    items: Relation,
    others: Iterable[Relation] = (),
    is_csv: bool = False,
) -> list[str]:
    """Returns a warning if items may be several ids each.

    Such items are lists written as text, items whose parts are other items, and in CSV
    all items with white space or brackets.

    Args:
        argument: the name of the argument that is the source.
        name: the name of the source.
        items: a table with the columns `item` and `row`.
        others: further tables whose column `item` has the ids of items.
        is_csv: whether the source is CSV.
    """
    is_text = str(items.project("item").types[0]) == "VARCHAR"
    if not is_text or not items.filter(_IS_MERGED).limit(1).fetchall():
        return []
    known = items.project("item, row")
    for other in others:
        known = known.union(other.project("CAST(item AS VARCHAR), NULL"))
    sql = _PARTS + _OF_KNOWN + _OF_CSV * is_csv
    ((number, example),) = query(known, sql).fetchall()
    warning = (
        f"`{argument}` has item ids that may be several ids ({number}), such as "
        f"{example!r} in {name}: a cell is read as one id. If it has several, write "
        "one row per item"
    )
    return [warning] * (number > 0)
