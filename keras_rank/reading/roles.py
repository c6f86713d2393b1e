"""Which columns of judgments and runs hold queries, items and numbers.

They are as named, or as known tools name them, or known by their places.
"""

import re
from collections.abc import Mapping, Sequence

from keras_rank.reading import engine, files, layouts, lists, query_dicts, text
from keras_rank.reading.layouts import plain_name
from keras_rank.reading.names import KNOWN, known_name
from keras_rank.reading.part import FINITE, Part
from keras_rank.reading.rows import Columns
from keras_rank.reading.sources import parts_of

# The queries and items of judgments whose label is named `score`.
_SCORED = (("query_id", "corpus_id"), ("q_id", "doc_id"), ("query", "doc_id"))
# The places of query, item and number in rows without names, by their length.
_PLACES: dict[str, dict[int, tuple[int, ...]]] = {
    "qrels": {2: (0, 1), 3: (0, 1, 2)},
    "run": {3: (0, 1, 2), 5: (0, 2, 4), 6: (0, 2, 4)},
}
# Query, iteration, item and label; query, item, label and iteration.
_TREC, _TSV = (0, 2, 3), (0, 1, 2)


def are_judgments(file: str, columns: Columns) -> bool:
    """Whether a file holds judgments, rather than rows with labels and scores."""
    if not layouts.is_table(file) or query_dicts.is_nested("qrels", file):
        return True
    with files.errors_of("qrels", file), engine.connect() as connection:
        (part, *_) = parts_of(connection, "qrels", file, names_of(columns))
        if {columns.label, columns.score} <= set(part.columns):
            return False
        found = by_name(part.columns, columns, "label")
        if lists.has_lists(part.with_lists(found["item"]), found["item"]):
            # Their items are relevant, or ranked.
            del found["label"]
        if are_ids([part], found, columns):
            return True
    return not part.has_names or set(found.values()) <= set(part.columns)


def names_of(columns: Columns) -> set[str]:
    """All names that columns may have."""
    given = {columns.query, columns.item or "", columns.label, columns.score}
    return given.union(*KNOWN.values())


def roles_of(name: str, part: Part, columns: Columns) -> dict[str, str]:
    """The columns of queries, items and numbers, by what they hold.

    That of the subtopics of judgments is among them if it is asked for.

    Args:
        name: `"qrels"` or `"run"`.
        part: the table.
        columns: the names that were given.
    """
    found = _roles_of(name, part, columns)
    if name == "run" or columns.subtopic is None:
        return found
    if part.has_names:
        subtopic = _known_name("subtopic", part.columns, columns)
    elif columns.subtopic in part.columns:
        subtopic = columns.subtopic
    else:
        others = [x for x in part.columns if x not in found.values()]
        subtopic = others[0] if len(others) == 1 else ""
    if subtopic not in part.columns:
        raise query_dicts.no_subtopics(f"{part.name} with the columns {part.columns}")
    return {**found, "subtopic": subtopic}


def _roles_of(name: str, part: Part, columns: Columns) -> dict[str, str]:
    """The same without subtopics."""
    number = text.NUMBERS[name]
    if part.has_names:
        return by_name(part.columns, columns, number)
    given = {"query": columns.query, "item": columns.item or ""}
    given[number] = getattr(columns, number)
    if set(given.values()) <= set(part.columns):
        return given
    places: tuple[int, ...] | None = _PLACES[name].get(len(part.columns))
    if name == "qrels" and len(part.columns) == 4:
        places = _places_of_four(part)
    if places is None:
        line = re.split("[\r\n]", part.first.lstrip("\r\n"), maxsplit=1)[0]
        raise ValueError(
            f"`{name}` should name its columns, or have those of TREC. Received: "
            f"{part.name}, whose first line is {line!r}: say which are the `query`, "
            f"the `item` and the `{number}` (--query, --item, --{number}), such as "
            f'query="column0"'
        )
    return given | {role: f"column{x}" for role, x in zip(given, places, strict=False)}


def _places_of_four(part: Part) -> tuple[int, ...] | None:
    """The places in rows of four columns, of which one is the iteration, if clear."""
    is_spaced = isinstance(part, text.LinesPart)
    if is_spaced and "\t" not in "".join(layouts.lines_of(part.first)):
        return _TREC
    label, iteration = f"\\s*({FINITE}|true|false)\\s*", f"{FINITE}|Q0"
    # Of a row in the order of TREC, and of one in the other.
    patterns = [(3, label), (1, iteration), (1, "0|Q0")]
    patterns += [(2, label), (3, iteration), (3, "0|Q0")]
    checks = ", ".join(
        f"bool_and(regexp_full_match(CAST(\"{i}\" AS VARCHAR), '(?i){x}'))"
        for i, x in patterns
    )
    checks += ', count(DISTINCT "1"), count(*)'
    rows = engine.query(part.read(range(4)), f"SELECT {checks} FROM source")
    ((fourth, second, is_0, third, last, last_is_0, values, number),) = rows.fetchall()
    # What is the same in all rows is no item.
    second, is_0 = second or values == 1, is_0 or values == 1 < number
    if is_spaced and not third and (second or not fourth):
        return _TREC
    is_trec, is_tsv = fourth and second, third and last
    if is_trec and is_tsv:
        is_trec, is_tsv = is_0 and not last_is_0, last_is_0 and not is_0
    if is_trec or is_tsv:
        return _TREC if is_trec else _TSV
    return None


def by_name(names: Sequence[str], columns: Columns, number: str) -> dict[str, str]:
    """The same of a table with names: as they were given, or of a known tool."""
    roles = ("query", "item", number)
    found = {role: _known_name(role, names, columns) for role in roles}
    are_scored = tuple(plain_name(found[role]) for role in roles[:2]) in _SCORED
    if number == "label" and found[number] not in names and are_scored:
        scores = (x for x in names if plain_name(x) == "score")
        found[number] = next(scores, columns.label)
    return found


def are_ids(parts: Sequence[Part], found: Mapping[str, str], columns: Columns) -> bool:
    """Whether judgments have nothing but ids: all of their items are relevant."""
    ids = {name for role, name in found.items() if role != "label"}
    is_default = columns.label == KNOWN["label"][0]
    return is_default and all(set(part.columns) == ids for part in parts)


def _known_name(role: str, names: Sequence[str], columns: Columns) -> str:
    """The name of a column: as it was given, or that of a known tool."""
    given: str = getattr(columns, role) or ""
    if given not in names and text.PLACE.fullmatch(given):
        # Of the other side, whose columns have no names.
        found = known_name(role, KNOWN[role][0], names)
        return found if found in names else given
    return known_name(role, given, names)
