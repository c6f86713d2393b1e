"""Search for the columns of judgments and runs that hold queries, items and numbers.

A column is found by the name that the user passed, by the name that a known tool gives
it, or by its position in a TREC file.
"""

from collections.abc import Collection, Mapping, Sequence

from keras_rank.reading import engine, files, query_dicts, text
from keras_rank.reading.files import normalize_name
from keras_rank.reading.part import Part
from keras_rank.reading.rows import KNOWN_NAMES, Columns, find_known_name
from keras_rank.reading.sources import open_parts

# The columns of queries and items in judgments whose labels are in a column `score`.
_SCORED_JUDGMENTS = (("query_id", "corpus_id"), ("q_id", "doc_id"), ("query", "doc_id"))

# The columns of the query, the item and the label in TREC judgments.
_TREC_COLUMNS = ["column0", "column2", "column3"]


def is_judgments_file(file: str, columns: Columns) -> bool:
    """Returns whether a file holds judgments, rather than rows with labels and scores.

    Args:
        file: the path of the file.
        columns: the names of the columns.
    """
    if not files.is_table(file) or query_dicts.is_nested("qrels", file):
        return True
    with files.reraise_errors("qrels", file), engine.connect() as connection:
        (part, *_) = open_parts(connection, "qrels", file, accepted_names(columns))
        if {columns.label, columns.score} <= set(part.columns):
            return False
        # The user may have named columns of the run.
        other_columns = {columns.query, columns.item or ""}
        columns_by_role = find_columns_by_name(
            part.columns, columns, "label", other_columns
        )
        if query_dicts.has_lists(
            part.parse_lists(columns_by_role["item"]), columns_by_role["item"]
        ):
            # The lists may hold relevant or ranked items, so labels are not needed.
            del columns_by_role["label"]
        if has_only_ids([part], columns_by_role, columns):
            return True
    return bool(part.fields) or set(columns_by_role.values()) <= set(part.columns)


def accepted_names(columns: Columns) -> set[str]:
    """Returns all names that the columns may have in a file."""
    names = {columns.query, columns.item or "", columns.label, columns.score}
    return names.union(*KNOWN_NAMES.values())


def find_columns(
    name: str, part: Part, columns: Columns, other_columns: Collection[str] = ()
) -> dict[str, str]:
    """Returns the names of the columns of queries, items and numbers, by role.

    For judgments, the column of subtopics is included if `columns` names one.

    Args:
        name: `"qrels"` or `"run"`.
        part: the table.
        columns: the names that the user passed.
        other_columns: the names of the columns of the other side.
    """
    columns_by_role = _find_basic_columns(name, part, columns, other_columns)
    if name == "run" or columns.subtopic is None:
        return columns_by_role
    subtopic = _find_known_name("subtopic", part.columns, columns)
    if (
        subtopic not in part.columns
        and part.fields
        and [*columns_by_role.values()] == _TREC_COLUMNS
    ):
        subtopic = "column1"
    if subtopic not in part.columns:
        raise query_dicts.no_subtopics_error(
            f"{part.name} with the columns {part.columns}"
        )
    return {**columns_by_role, "subtopic": subtopic}


def _find_basic_columns(
    name: str, part: Part, columns: Columns, other_columns: Collection[str]
) -> dict[str, str]:
    """Returns the names of the columns without the column of subtopics."""
    number = text.NUMBER_ROLES[name]
    names_by_role = {"query": columns.query, "item": columns.item or ""}
    names_by_role[number] = getattr(columns, number)
    if not isinstance(part, text.LinesPart) or set(names_by_role.values()) <= set(
        part.columns
    ):
        return find_columns_by_name(part.columns, columns, number, other_columns)
    if not part.has_known_fields(columns.subtopic is not None):
        raise ValueError(
            f"`{name}` should name its columns, or have those of TREC. Received: "
            f"{part.name}, whose first line is {files.split_lines(part.first)[0]!r}: "
            f"say which are the `query`, the `item` and the `{number}` (--query, "
            f'--item, --{number}), such as query="column0"'
        )
    columns_by_role = {role: f"column{i}" for i, role in enumerate(part.fields)}
    return {
        role: columns_by_role.get(role, column)
        for role, column in names_by_role.items()
    }


def find_columns_by_name(
    names: Sequence[str], columns: Columns, number: str, other_columns: Collection[str]
) -> dict[str, str]:
    """Returns the columns of a table with column names, by role.

    A column has the name that the user passed or, for the default name, the name that a
    known tool gives it.
    """
    roles = ("query", "item", number)
    columns_by_role = {
        role: _find_known_name(role, names, columns, other_columns) for role in roles
    }
    has_scored_ids = (
        tuple(normalize_name(columns_by_role[role]) for role in roles[:2])
        in _SCORED_JUDGMENTS
    )
    if number == "label" and columns_by_role[number] not in names and has_scored_ids:
        scores = (x for x in names if normalize_name(x) == "score")
        columns_by_role[number] = next(scores, columns.label)
    return columns_by_role


def has_only_ids(
    parts: Sequence[Part], columns_by_role: Mapping[str, str], columns: Columns
) -> bool:
    """Returns whether judgments have only columns of ids, so all items are relevant."""
    ids = {name for role, name in columns_by_role.items() if role != "label"}
    is_default = columns.label == KNOWN_NAMES["label"][0]
    return is_default and all(set(part.columns) == ids for part in parts)


def _find_known_name(
    role: str,
    names: Sequence[str],
    columns: Columns,
    other_columns: Collection[str] = (),
) -> str:
    """Returns the name of a column: the name passed, or the name in a known tool."""
    requested_name: str = getattr(columns, role) or ""
    if requested_name not in names and (
        requested_name in other_columns or text.UNNAMED_COLUMN.fullmatch(requested_name)
    ):
        # The user named a column of the other side, so this side has the default name.
        known_name = find_known_name(role, KNOWN_NAMES[role][0], names)
        return known_name if known_name in names else requested_name
    return find_known_name(role, requested_name, names)
