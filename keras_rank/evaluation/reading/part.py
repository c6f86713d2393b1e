"""A table in memory, or files that have the same columns: by name, place and type."""

import abc
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import duckdb

from keras_rank.evaluation.reading.engine import Relation, in_sql, query

# The types of DuckDB: integers that float64 has, others, and those of numbers.
SMALL = {f"{u}{size}INT" for u in ("", "U") for size in ("TINY", "SMALL")}
SMALL |= {"INTEGER", "UINTEGER"}
_BIG = {"BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"}
INTEGERS = SMALL | _BIG
FLOATS = {"FLOAT", "DOUBLE"}
_LARGE = (*_BIG, "DECIMAL")
_NUMBERS = (*INTEGERS, *FLOATS, "BOOLEAN", "DECIMAL")
# The types whose values tell no queries apart.
_NO_IDS = ("STRUCT", "MAP", "UNION", "INTERVAL")
# The type of a column that has no values.
NOTHING = '"NULL"'
# From here on, float64 does not have all integers.
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
    """A table in memory, or files that have the same columns.

    Args:
        name: what it is called in messages.
        columns: the names of the columns, as they are written.
    """

    def __init__(self, name: str, columns: Sequence[str]) -> None:
        self.name, self.columns = name, list(columns)

    @abc.abstractmethod
    def type_of(self, place: int) -> str:
        """Returns the type of the column of a place."""

    @abc.abstractmethod
    def read(self, places: Sequence[int], types: Sequence[str]) -> Relation:
        """Returns the columns of places, which are called `0`, `1`, ...

        Args:
            places: the places of the columns.
            types: what to read them as, where the file does not say.
        """

    def id_type(self, sought: Sought) -> str:
        """Returns the type of a column of ids, or of what is known of a query."""
        type_ = self.type_of(self.place(sought))
        if type_.endswith("]") or type_.startswith(_NO_IDS):
            raise ValueError(
                f"`{sought.argument}` should name columns of numbers, text, or dates. "
                f"Received: {sought.argument}={sought.name!r}, which is of the type "
                f"{type_}"
            )
        # Categories would be sorted by their codes, which files need not share.
        return "VARCHAR" if type_.startswith("ENUM") else type_

    def number_type(self, sought: Sought) -> str:
        """Returns the type of a column of numbers."""
        place = self.place(sought)
        type_ = self.type_of(place)
        if type_ == NOTHING or (type_.startswith(_NUMBERS) and type_[-1] != "]"):
            return type_
        found = self.read([place], [type_]).filter('"0" IS NOT NULL')
        if type_ == "VARCHAR":
            # Text that is no number, if there is any, is what to tell of.
            found = found.order('TRY_CAST("0" AS DOUBLE) IS NOT NULL')
        # A column without any value has a type of chance.
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
        """Returns columns in types, under the names that these have."""
        places = [self.place(each) for each in sought.values()]
        table = self.read(places, [types[key] for key in sought])
        expressions = []
        for i, (key, place) in enumerate(zip(sought, places, strict=True)):
            value = f'CAST("{i}" AS {types[key]})'
            if types[key] in FLOATS:
                # An id of -0.0 is that of 0.0.
                value = f"{value} + CAST(0 AS {types[key]})"
                if self.type_of(place).startswith(_LARGE):
                    value = _if_exact(value, sought[key])
            expressions.append(f'{value} AS "{key}"')
        return query(table, f"SELECT {', '.join(expressions)} FROM source")

    def place(self, sought: Sought) -> int:
        """Returns the place of a column, which has to be there once."""
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
    """The columns of places, which are called `0`, `1`, ..."""
    names = [table.columns[place] for place in places]
    return table.select(
        *(duckdb.ColumnExpression(name).alias(str(i)) for i, name in enumerate(names))
    )


def _if_exact(value: str, sought: Sought) -> str:
    """The expression of a number, or an error where it is too large an integer."""
    message = (
        f"the column {sought.name!r} has integers from 2**53 on, of which float64 does "
        "not have all"
    )
    return (
        f"CASE WHEN abs({value}) >= {_LARGEST_INTEGER} THEN "
        f"error({in_sql(message)}) ELSE {value} END"
    )
