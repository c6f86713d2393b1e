"""The base class of tables that are read, and the types of their columns."""

import abc
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from keras_rank.arguments import suggestion
from keras_rank.reading.engine import Relation, query, sql_literal
from keras_rank.reading.files import is_number, parse_partitions

# DuckDB's types of integers that float64 holds exactly, of other integers, and of
# other numbers.
_SMALL_INTEGERS = {
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
}
_BIG_INTEGERS = {"BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"}
INTEGERS = _SMALL_INTEGERS | _BIG_INTEGERS
_FLOATS = {"FLOAT", "DOUBLE"}
_LARGE_TYPES = (*_BIG_INTEGERS, "DECIMAL")
NUMERIC = (*INTEGERS, *_FLOATS, "BOOLEAN", "DECIMAL")
# Types that cannot be ids.
_NON_ID_TYPES = ("STRUCT", "MAP", "UNION", "INTERVAL")
# DuckDB's type of a column that has no values.
_NULL_TYPE = '"NULL"'
# Types whose values have a unique text, so that they can be compared with text.
_TEXT_LIKE_TYPES = {*INTEGERS, "DATE", "UUID", "VARCHAR"}
# The arguments that name columns of ids.
ID_ARGUMENTS = ("query", "item")
# Names of columns of ranks, in lower case. Their numbers ascend from the best item.
_RANK_NAMES = {"rank", "ranks", "ranking", "position", "pos"}
# Usual names of the columns of each argument, in lower case, letters and digits only.
_USUAL_NAMES = {
    "query": "queryid qid query topicid topic searchid search sessionid session srchid "
    "requestid impressionid listid groupid group userid user uid",
    "item": "itemid item docid doc docno documentid corpusid productid product pid",
    "label": "label labels relevance rel rating grade target ytrue judgment click",
    "score": "score scores prediction predictions pred preds ypred probability logit",
    "weight": "weight weights sampleweight itemweight",
}
# The integer from which on float64 does not represent all integers.
LARGEST_INTEGER = 2**53


class ColumnRef(NamedTuple):
    """A reference to a column that an argument names.

    Attributes:
        argument: the name of the argument.
        name: the name of the column.
        is_required: whether a missing value in a text file is an error.
        is_finite: whether infinite values are an error. In a text file, NaN in a
            required column is an error, too.
    """

    argument: str
    name: str
    is_required: bool = False
    is_finite: bool = False

    def refused(self, accepted: str, reason: str) -> ValueError:
        """Returns the error for a name of a column that is not accepted."""
        return ValueError(
            f"`{self.argument}` should name {accepted}. Received: "
            f"{self.argument}={self.name!r}, {reason}"
        )


# Columns of a source, by their names in the result.
ColumnRefs: TypeAlias = Mapping[str, ColumnRef]


class Part(abc.ABC):
    """A table in memory, or several files with equal columns.

    Args:
        name: the name of the table in messages.
        columns: the names of the columns, as written.
        file: a file. The names of its folders may add columns.
    """

    # SQL of further columns that `scan` returns.
    extra_columns = ""
    # The roles of columns that have no names.
    fields: Sequence[str] = ()

    def __init__(self, name: str, columns: Iterable[str], file: Any = "") -> None:
        self.name, self.columns = name, list(columns)
        self._values = [f'"{index}"' for index in range(len(self.columns))]
        for folder, value in parse_partitions(file).items():
            if folder not in self.columns:
                self.columns.append(folder)
                self._values.append(sql_literal(value))

    @abc.abstractmethod
    def column_type(self, index: int) -> str:
        """Returns the DuckDB type of the column at an index."""

    @abc.abstractmethod
    def scan(self, indices: Sequence[int]) -> Relation:
        """Returns the columns at indices, named by index, and perhaps further columns.

        Columns of folder names are not included.
        """

    def count_rows_by_file(self, selected: Relation) -> list[int]:
        """Returns the number of rows of each file.

        Args:
            selected: the rows that `select` returned.
        """
        return [len(selected)]

    def parse_lists(self, name: str) -> "Part":
        """Returns a part with list types if a column of a text file holds lists.

        Other parts are returned unchanged.
        """
        return self

    def warnings(self) -> list[str]:
        """Returns warnings about rows that may not be read as intended."""
        return []

    def read(self, columns: Iterable[ColumnRef | int]) -> Relation:
        """Returns columns under the names `0`, `1`, ... in the order of `columns`."""
        indices = [x if isinstance(x, int) else self.find_index(x) for x in columns]
        values = [f'{self._values[x]} AS "{i}"' for i, x in enumerate(indices)]
        selected = ", ".join(values) + self.extra_columns
        return query(self.scan(indices), f"SELECT {selected} FROM source")

    def id_type(self, column: ColumnRef) -> str:
        """Returns the type of a column of ids, or of the argument `keep`."""
        type_ = self.column_type(self.find_index(column))
        if type_.endswith("]") or type_.startswith(_NON_ID_TYPES):
            accepted = "columns of numbers, text, or dates"
            raise column.refused(accepted, f"which is of the type {type_}")
        # DuckDB sorts categories by their codes, which may differ between files.
        return "VARCHAR" if type_.startswith("ENUM") else type_

    def number_type(self, column: ColumnRef) -> str:
        """Returns the type of a column of numbers."""
        type_ = self.column_type(self.find_index(column))
        if type_ == _NULL_TYPE or (type_.startswith(NUMERIC) and type_[-1] != "]"):
            return type_
        values = self.read([column]).filter('"0" IS NOT NULL')
        if type_ == "VARCHAR":
            # Texts that are not numbers sort first, as the error shows the first value.
            values = values.order('TRY_CAST("0" AS DOUBLE) IS NOT NULL')
        # A column without values has an arbitrary type, so it is accepted.
        for (value,) in values.limit(1).fetchall():
            reason = f"which is of the type {type_}, such as {value!r}"
            raise column.refused("a column of numbers", reason)
        return type_

    def select(self, refs: ColumnRefs, types: Mapping[str, str]) -> Relation:
        """Returns columns that are cast to types, under the keys of `refs`."""
        values = ", ".join(
            f'{self.value_expression(i, ref, types[key])} AS "{key}"'
            for i, (key, ref) in enumerate(refs.items())
        )
        return query(self.read(refs.values()), f"SELECT {values} FROM source")

    def value_expression(self, i: int, column: ColumnRef, type_: str) -> str:
        """Returns the SQL expression of a value that is cast to a type.

        Args:
            i: the position of the column in the result of `read`.
            column: the column.
            type_: the type.
        """
        value = f'CAST("{i}" AS {type_})'
        if type_ not in _FLOATS:
            return value
        # Adding 0 makes -0.0 the same id as 0.0.
        value, errors = f"{value} + CAST(0 AS {type_})", {}
        if column.argument in ID_ARGUMENTS:
            value = f"nullif({value}, CAST('nan' AS {type_}))"
        if self.column_type(self.find_index(column)).startswith(_LARGE_TYPES):
            errors[f"abs({value}) >= {LARGEST_INTEGER}"] = (
                "integers of 2**53 or more, not all of which float64 can hold"
            )
        if column.is_finite:
            errors[f"isinf({value})"] = "infinite values"
        for condition, reason in errors.items():
            error = sql_literal(f"the column {column.name!r} has {reason}")
            value = f"CASE WHEN {condition} THEN error({error}) ELSE {value} END"
        return value

    def locate_ids(self, ids: ColumnRefs, values: Sequence[Any]) -> list[str]:
        """Returns the locations of the first two rows with the given ids."""
        condition = " AND ".join(
            f'CAST("{i}" AS VARCHAR) = {sql_literal(str(value))}'
            for i, value in enumerate(values)
        )
        rows = self.read(ids.values()).filter(condition).limit(2)
        return list(dict.fromkeys(map(self.locate_row, rows.fetchall())))

    def locate_row(self, row: Sequence[Any]) -> str:
        """Returns the description of the location of a row in the result of `read`."""
        return self.name

    def find_index(self, column: ColumnRef) -> int:
        """Returns the index of a column, and raises unless one column has its name."""
        count = self.columns.count(column.name)
        if count == 1:
            return self.columns.index(column.name)
        if count:
            reason = f"which is the name of {count} columns of {self.name}"
            raise column.refused("one column", reason)
        raise no_column_error(column, self.name, self.columns)


def no_column_error(
    column: ColumnRef, table_name: str, columns: Sequence[str]
) -> ValueError:
    """Returns the error for a column that a table does not have."""
    argument, name = column.argument, column.name
    for rank_column in filter(is_rank_name, columns):
        if argument == "score":
            return no_score_error(f"{name!r}, and {table_name} with {rank_column!r}")
    end = suggestion(name, columns, f'{argument}="{{}}"')
    if any(map(is_number, columns)):
        end += ': without names, they are "column0", "column1" and so on'
    return column.refused("a column", f"which is not in {table_name}{end}")


def is_usual_name(argument: str, name: str) -> bool:
    """Returns whether `name` is an accepted column name for `argument`."""
    return re.sub(r"[\W_]", "", name.lower()) in _USUAL_NAMES[argument].split()


def is_rank_name(name: str) -> bool:
    """Returns whether a name is a usual name of a column of ranks."""
    return name.strip().lower() in _RANK_NAMES


def no_score_error(received: str) -> ValueError:
    """Returns the error for a column of ranks that is named as the scores."""
    return ValueError(
        "`score` should name a column of scores, where higher is better. Received: "
        f"score={received}, whose numbers ascend from the best item on: add a column "
        "with these numbers times -1, and name it"
    )


def common_type(argument: str, types: Mapping[str, str]) -> str:
    """Returns a type in which ids of several types can be compared without loss.

    Args:
        argument: the name of the argument that names the ids.
        types: the types of the ids, by a description of their source.
    """
    types = {
        source_name: type_
        for source_name, type_ in types.items()
        if type_ != _NULL_TYPE
    }
    distinct_types = set(types.values()) or {"VARCHAR"}
    if len(distinct_types) == 1:
        return distinct_types.pop()
    if distinct_types <= _SMALL_INTEGERS | {"BIGINT"}:
        return "BIGINT"
    if distinct_types <= _FLOATS:
        return "DOUBLE"
    if distinct_types <= INTEGERS or (
        "VARCHAR" in distinct_types and distinct_types <= _TEXT_LIKE_TYPES
    ):
        return "VARCHAR"
    (one, type_), *others = types.items()
    other, other_type = next(each for each in others if each[1] != type_)
    raise ValueError(
        f"`{argument}` should have ids of types that can be compared. Received: "
        f"{type_} in {one}, and {other_type} in {other}"
    )
