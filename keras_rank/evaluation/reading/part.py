"""A table in memory, or files with the same columns."""

import abc
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import duckdb

from keras_rank.evaluation.reading.engine import Relation, in_sql, query

# DuckDB's types: integers that float64 can hold, other integers, and numbers.
SMALL = {f"{u}{size}INT" for u in ("", "U") for size in ("TINY", "SMALL")}
SMALL |= {"INTEGER", "UINTEGER"}
_BIG = {"BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"}
INTEGERS = SMALL | _BIG
FLOATS = {"FLOAT", "DOUBLE"}
_LARGE = (*_BIG, "DECIMAL")
_NUMBERS = (*INTEGERS, *FLOATS, "BOOLEAN", "DECIMAL")
# Types that cannot be ids.
_NO_IDS = ("STRUCT", "MAP", "UNION", "INTERVAL")
# The type of a column that has no values.
NOTHING = '"NULL"'
# How numbers are written in text files.
_WRITTEN = r"(?i)[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|nan|inf|infinity)"
# From here on, float64 does not hold all integers.
_LARGEST_INTEGER = 2**53


class Sought(NamedTuple):
    """A column that an argument names.

    Attributes:
        argument: the name of the argument.
        name: the name of the column.
    """

    argument: str
    name: str


class Part(abc.ABC):
    """A table in memory, or files with the same columns.

    Args:
        name: its name in messages.
        columns: the names of the columns, as written.
    """

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        self.name, self.columns = name, list(columns)

    @abc.abstractmethod
    def type_of(self, place: int) -> str:
        """Returns the type of the column at a place."""

    @abc.abstractmethod
    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        """Returns the columns at places, under the names `0`, `1`, ...

        Args:
            places: the places of the columns.
            types: the types to read them as, if the file has none.
        """

    def id_type(self, sought: Sought) -> str:
        """Returns the type of a column of ids, or of a kept column."""
        type_ = self.type_of(self.place(sought))
        if type_.endswith("]") or type_.startswith(_NO_IDS):
            raise ValueError(
                f"`{sought.argument}` should name columns of numbers, text, or dates. "
                f"Received: {sought.argument}={sought.name!r}, which is of the type "
                f"{type_}"
            )
        # Categories would be sorted by their codes, which may differ between files.
        return "VARCHAR" if type_.startswith("ENUM") else type_

    def number_type(self, sought: Sought) -> str:
        """Returns the type of a column of numbers."""
        place = self.place(sought)
        type_ = self.type_of(place)
        if type_ == NOTHING or (type_.startswith(_NUMBERS) and type_[-1] != "]"):
            return type_
        found = self.read([place], [type_]).filter('"0" IS NOT NULL')
        if type_ == "VARCHAR":
            # The error shows a text that is not a number, if there is one.
            found = found.order(f"regexp_full_match(\"0\", '{_WRITTEN}')")
        # The type of a column without values is arbitrary.
        for (value,) in found.limit(1).fetchall():
            raise ValueError(
                f"`{sought.argument}` should name a column of numbers. Received: "
                f"{sought.argument}={sought.name!r}, which is of the type {type_}, "
                f"such as {value!r}"
            )
        return type_

    def select(
        self, sought: Mapping[str, Sought], types: Mapping[str, str]
    ) -> Relation:
        """Returns columns as types, under the keys of these."""
        places = [self.place(each) for each in sought.values()]
        table = self.read(places, [types[key] for key in sought])
        expressions = []
        for i, (key, place) in enumerate(zip(sought, places, strict=True)):
            value = f'CAST("{i}" AS {types[key]})'
            if types[key] in FLOATS:
                # The ids -0.0 and 0.0 are the same.
                value = f"{value} + CAST(0 AS {types[key]})"
                if self.type_of(place).startswith(_LARGE):
                    value = _if_exact(value, sought[key])
            expressions.append(f'{value} AS "{key}"')
        return query(table, f"SELECT {', '.join(expressions)} FROM source")

    def place(self, sought: Sought) -> int:
        """Returns the place of a column. Raises unless there is exactly one."""
        number = self.columns.count(sought.name)
        if number == 1:
            return self.columns.index(sought.name)
        received = f"Received: {sought.argument}={sought.name!r}"
        if number:
            raise ValueError(
                f"`{sought.argument}` should name one column. {received}, which is the "
                f"name of {number} columns of {self.name}"
            )
        raise ValueError(
            f"`{sought.argument}` should name a column. {received}, and {self.name} "
            f"with the columns {self.columns}"
        )


def of_places(table: Relation, places: Sequence[int]) -> Relation:
    """The columns at places, under the names `0`, `1`, ..."""
    names = [table.columns[place] for place in places]
    return table.select(
        *(duckdb.ColumnExpression(name).alias(str(i)) for i, name in enumerate(names))
    )


def _if_exact(value: str, sought: Sought) -> str:
    """The expression of a number, with an error for too large integers."""
    message = (
        f"the column {sought.name!r} has integers of 2**53 or more, not all of which "
        "float64 can hold"
    )
    return (
        f"CASE WHEN abs({value}) >= {_LARGEST_INTEGER} THEN "
        f"error({in_sql(message)}) ELSE {value} END"
    )
