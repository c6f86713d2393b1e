"""A table in memory, or files with the same columns."""

import abc
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from keras_rank.arguments import suggestion
from keras_rank.reading.engine import Relation, in_sql, query
from keras_rank.reading.files import folders_of, is_number

# DuckDB's types: integers that float64 can hold, other integers, and numbers.
_SMALL = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER"}
_BIG = {"BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT"}
INTEGERS = _SMALL | _BIG
_FLOATS = {"FLOAT", "DOUBLE"}
_LARGE = (*_BIG, "DECIMAL")
NUMERIC = (*INTEGERS, *_FLOATS, "BOOLEAN", "DECIMAL")
# Types that cannot be ids.
_NO_IDS = ("STRUCT", "MAP", "UNION", "INTERVAL")
# The type of a column that has no values.
_NOTHING = '"NULL"'
# Types whose text is unique, so that they can be compared with text.
_AS_TEXT = {*INTEGERS, "DATE", "UUID", "VARCHAR"}
# The arguments that name ids.
IDS = ("query", "item")
# Names of columns whose numbers ascend from the best item on, in lower case.
_RANKS = {"rank", "ranks", "ranking", "position", "pos"}
# Names of the columns of an argument, in lower case and without signs.
_WORDS = {
    "query": "queryid qid query topicid topic searchid search sessionid session srchid "
    "requestid impressionid listid groupid group userid user uid",
    "item": "itemid item docid doc docno documentid corpusid productid product pid",
    "label": "label labels relevance rel rating grade target ytrue judgment click",
    "score": "score scores prediction predictions pred preds ypred probability logit",
    "weight": "weight weights sampleweight itemweight",
}
# From here on, float64 does not hold all integers.
LARGEST_INTEGER = 2**53


class ColumnRef(NamedTuple):
    """A column that an argument names.

    Attributes:
        argument: the name of the argument.
        name: the name of the column.
        is_required: whether a row of text without a value is an error.
        is_finite: whether infinities are, and NaN in text if it is required.
    """

    argument: str
    name: str
    is_required: bool = False
    is_finite: bool = False

    def refused(self, accepted: str, reason: str) -> ValueError:
        """The error for a name that does not name what is accepted."""
        return ValueError(
            f"`{self.argument}` should name {accepted}. Received: "
            f"{self.argument}={self.name!r}, {reason}"
        )


# Columns by the names that they get.
ColumnRefs: TypeAlias = Mapping[str, ColumnRef]


class Part(abc.ABC):
    """A table in memory, or files with the same columns.

    Args:
        name: its name in messages.
        columns: the names of the columns, as written.
        file: a file, the names of whose folders are columns too.
    """

    # What `scan` returns beside the columns.
    others = ""
    # What the columns hold, if they are without names.
    fields: Sequence[str] = ()

    def __init__(self, name: str, columns: Iterable[str], file: Any = "") -> None:
        self.name, self.columns = name, list(columns)
        self._values = [f'"{place}"' for place in range(len(self.columns))]
        for folder, value in folders_of(file).items():
            if folder not in self.columns:
                self.columns.append(folder)
                self._values.append(in_sql(value))

    @abc.abstractmethod
    def type_of(self, place: int) -> str:
        """Returns the type of the column at a place."""

    @abc.abstractmethod
    def scan(self, places: Sequence[int]) -> Relation:
        """Returns at least the columns at places, but those of folders, by place."""

    def sizes_of_files(self, selected: Relation) -> list[int]:
        """Returns the number of rows of each of its files, from what it selected."""
        return [len(selected)]

    def with_lists(self, name: str) -> "Part":
        """Returns the part with types of lists, if a column of text has lists."""
        return self

    def warnings(self) -> list[str]:
        """Returns warnings about rows that may not be read as meant."""
        return []

    def read(self, columns: Iterable[ColumnRef | int]) -> Relation:
        """Returns columns, or those at places, under the names `0`, `1`, ..."""
        places = [x if isinstance(x, int) else self.place(x) for x in columns]
        values = [f'{self._values[x]} AS "{i}"' for i, x in enumerate(places)]
        selected = ", ".join(values) + self.others
        return query(self.scan(places), f"SELECT {selected} FROM source")

    def id_type(self, sought: ColumnRef) -> str:
        """Returns the type of a column of ids, or of a kept column."""
        type_ = self.type_of(self.place(sought))
        if type_.endswith("]") or type_.startswith(_NO_IDS):
            accepted = "columns of numbers, text, or dates"
            raise sought.refused(accepted, f"which is of the type {type_}")
        # Categories would be sorted by their codes, which may differ between files.
        return "VARCHAR" if type_.startswith("ENUM") else type_

    def number_type(self, sought: ColumnRef) -> str:
        """Returns the type of a column of numbers."""
        type_ = self.type_of(self.place(sought))
        if type_ == _NOTHING or (type_.startswith(NUMERIC) and type_[-1] != "]"):
            return type_
        found = self.read([sought]).filter('"0" IS NOT NULL')
        if type_ == "VARCHAR":
            # The error shows a text that is not a number, if there is one.
            found = found.order('TRY_CAST("0" AS DOUBLE) IS NOT NULL')
        # The type of a column without values is arbitrary.
        for (value,) in found.limit(1).fetchall():
            reason = f"which is of the type {type_}, such as {value!r}"
            raise sought.refused("a column of numbers", reason)
        return type_

    def select(self, sought: ColumnRefs, types: Mapping[str, str]) -> Relation:
        """Returns columns as types, under the keys of these."""
        values = ", ".join(
            f'{self.value(i, each, types[key])} AS "{key}"'
            for i, (key, each) in enumerate(sought.items())
        )
        return query(self.read(sought.values()), f"SELECT {values} FROM source")

    def value(self, i: int, sought: ColumnRef, type_: str) -> str:
        """The expression of the column `i` of what is read, as a type."""
        value = f'CAST("{i}" AS {type_})'
        if type_ not in _FLOATS:
            return value
        # The ids -0.0 and 0.0 are the same.
        value, refused = f"{value} + CAST(0 AS {type_})", {}
        if sought.argument in IDS:
            value = f"nullif({value}, CAST('nan' AS {type_}))"
        if self.type_of(self.place(sought)).startswith(_LARGE):
            refused[f"abs({value}) >= {LARGEST_INTEGER}"] = (
                "integers of 2**53 or more, not all of which float64 can hold"
            )
        if sought.is_finite:
            refused[f"isinf({value})"] = "infinite values"
        for condition, what in refused.items():
            error = in_sql(f"the column {sought.name!r} has {what}")
            value = f"CASE WHEN {condition} THEN error({error}) ELSE {value} END"
        return value

    def where(self, ids: ColumnRefs, values: Sequence[Any]) -> list[str]:
        """Returns where the first two rows of the given ids are."""
        are_ids = " AND ".join(
            f'CAST("{i}" AS VARCHAR) = {in_sql(str(value))}'
            for i, value in enumerate(values)
        )
        rows = self.read(ids.values()).filter(are_ids).limit(2)
        return list(dict.fromkeys(map(self.place_of, rows.fetchall())))

    def place_of(self, row: Sequence[Any]) -> str:
        """Where a row of what is read is."""
        return self.name

    def place(self, sought: ColumnRef) -> int:
        """Returns the place of a column. Raises unless there is exactly one."""
        number = self.columns.count(sought.name)
        if number == 1:
            return self.columns.index(sought.name)
        if number:
            reason = f"which is the name of {number} columns of {self.name}"
            raise sought.refused("one column", reason)
        raise no_column(sought, self.name, self.columns)


def no_column(sought: ColumnRef, where: str, columns: Sequence[str]) -> ValueError:
    """Returns the error for a column that a table does not have."""
    argument, name = sought.argument, sought.name
    for rank in filter(is_rank, columns):
        if argument == "score":
            return no_score(f"{name!r}, and {where} with {rank!r}")
    end = suggestion(name, columns, f'{argument}="{{}}"')
    if any(map(is_number, columns)):
        end += ': without names, they are "column0", "column1" and so on'
    return sought.refused("a column", f"which is not in {where}{end}")


def is_called(argument: str, name: str) -> bool:
    """Returns whether `name` is an accepted column name for `argument`."""
    return re.sub(r"[\W_]", "", name.lower()) in _WORDS[argument].split()


def is_rank(name: str) -> bool:
    """Whether a name is that of a column of ranks."""
    return name.strip().lower() in _RANKS


def no_score(received: str) -> ValueError:
    """The error for ranks in the place of scores."""
    return ValueError(
        "`score` should name a column of scores, where higher is better. Received: "
        f"score={received}, whose numbers ascend from the best item on: add a column "
        "with these numbers times -1, and name it"
    )


def common_type(argument: str, types: Mapping[str, str]) -> str:
    """Returns a type in which ids of several types can be compared without loss.

    Args:
        argument: the name of the argument that names the ids.
        types: the types, by where they are found.
    """
    types = {where: type_ for where, type_ in types.items() if type_ != _NOTHING}
    found = set(types.values()) or {"VARCHAR"}
    if len(found) == 1:
        return found.pop()
    if found <= _SMALL | {"BIGINT"}:
        return "BIGINT"
    if found <= _FLOATS:
        return "DOUBLE"
    if found <= INTEGERS or ("VARCHAR" in found and found <= _AS_TEXT):
        return "VARCHAR"
    (one, type_), *others = types.items()
    other, other_type = next(each for each in others if each[1] != type_)
    raise ValueError(
        f"`{argument}` should have ids of types that can be compared. Received: "
        f"{type_} in {one}, and {other_type} in {other}"
    )
