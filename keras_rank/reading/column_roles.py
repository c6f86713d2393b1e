"""Which columns of judgments and runs hold queries, items and numbers.

They are as named, or as known tools name them, or known by their places.
"""

from collections.abc import Collection, Mapping, Sequence

from keras_rank.reading import engine, files, query_dicts, text
from keras_rank.reading.files import plain_name
from keras_rank.reading.part import Part
from keras_rank.reading.rows import KNOWN, Columns, known_name
from keras_rank.reading.sources import parts_of

# The queries and items of judgments whose label is named `score`.
_SCORED = (("query_id", "corpus_id"), ("q_id", "doc_id"), ("query", "doc_id"))

# The places of a query, an item and a label in lines of TREC.
_OF_TREC = ["column0", "column2", "column3"]


def are_judgments(file: str, columns: Columns) -> bool:
    """Whether a file holds judgments, rather than rows with labels and scores."""
    if not files.is_table(file) or query_dicts.is_nested("qrels", file):
        return True
    with files.errors_of("qrels", file), engine.connect() as connection:
        (part, *_) = parts_of(connection, "qrels", file, names_of(columns))
        if {columns.label, columns.score} <= set(part.columns):
            return False
        # Named columns may be those of the run.
        others = {columns.query, columns.item or ""}
        found = by_name(part.columns, columns, "label", others)
        if query_dicts.has_lists(part.with_lists(found["item"]), found["item"]):
            # Their items are relevant, or ranked.
            del found["label"]
        if are_ids([part], found, columns):
            return True
    return bool(part.fields) or set(found.values()) <= set(part.columns)


def names_of(columns: Columns) -> set[str]:
    """All names that columns may have."""
    given = {columns.query, columns.item or "", columns.label, columns.score}
    return given.union(*KNOWN.values())


def roles_of(
    name: str, part: Part, columns: Columns, others: Collection[str] = ()
) -> dict[str, str]:
    """The columns of queries, items and numbers, by what they hold.

    That of the subtopics of judgments is among them if it is asked for.

    Args:
        name: `"qrels"` or `"run"`.
        part: the table.
        columns: the names that were given.
        others: the names of the columns of the other side.
    """
    found = _roles_of(name, part, columns, others)
    if name == "run" or columns.subtopic is None:
        return found
    subtopic = _known_name("subtopic", part.columns, columns)
    if subtopic not in part.columns and part.fields and [*found.values()] == _OF_TREC:
        subtopic = "column1"
    if subtopic not in part.columns:
        raise query_dicts.no_subtopics(f"{part.name} with the columns {part.columns}")
    return {**found, "subtopic": subtopic}


def _roles_of(
    name: str, part: Part, columns: Columns, others: Collection[str]
) -> dict[str, str]:
    """The same without subtopics."""
    number = text.NUMBERS[name]
    given = {"query": columns.query, "item": columns.item or ""}
    given[number] = getattr(columns, number)
    if not isinstance(part, text.LinesPart) or set(given.values()) <= set(part.columns):
        return by_name(part.columns, columns, number, others)
    if not part.are_clear(columns.subtopic is not None):
        raise ValueError(
            f"`{name}` should name its columns, or have those of TREC. Received: "
            f"{part.name}, whose first line is {files.lines_of(part.first)[0]!r}: "
            f"say which are the `query`, the `item` and the `{number}` (--query, "
            f'--item, --{number}), such as query="column0"'
        )
    places = {role: f"column{i}" for i, role in enumerate(part.fields)}
    return {role: places.get(role, column) for role, column in given.items()}


def by_name(
    names: Sequence[str], columns: Columns, number: str, others: Collection[str]
) -> dict[str, str]:
    """The same of a table with names: as they were given, or of a known tool."""
    roles = ("query", "item", number)
    found = {role: _known_name(role, names, columns, others) for role in roles}
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


def _known_name(
    role: str, names: Sequence[str], columns: Columns, others: Collection[str] = ()
) -> str:
    """The name of a column: as it was given, or that of a known tool."""
    given: str = getattr(columns, role) or ""
    if given not in names and (given in others or text.PLACE.fullmatch(given)):
        # The given name is that of a column of the other side.
        found = known_name(role, KNOWN[role][0], names)
        return found if found in names else given
    return known_name(role, given, names)
