"""JSON lines: files with an object in each line."""

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa

from keras_rank.reading import files
from keras_rank.reading.arrow import ArrowPart
from keras_rank.reading.engine import Relation, in_sql, query
from keras_rank.reading.part import IDS, ColumnRef, Part
from keras_rank.reading.text import TextPart


class JsonPart(TextPart):
    """A file with an object in each line."""

    others = ", line, row"

    def names(self, sought: Collection[str]) -> Iterable[str]:
        if self.first.lstrip().startswith("["):
            raise ValueError(
                f"`{self.argument}` should have one object in each line of JSON. "
                f"Received: a list, in {files.named(self.file)}: write JSON lines, or "
                "pass `pandas.DataFrame(rows)`, where `rows = json.load(file)`"
            )
        self._keys: dict[str, None] = {}
        of_lines = query(
            self._objects(),
            "SELECT TRY(json_keys(line)) AS keys, min(row), arg_min(line, row) "
            "FROM source GROUP BY keys ORDER BY min(row)",
        ).fetchall()
        for keys, row, line in of_lines:
            if not keys or len(set(keys)) < len(keys):
                raise ValueError(
                    f"`{self.argument}` should have an object of JSON in each line, "
                    f"with each key once. Received, as number {row}: "
                    f"{files.shortened(line)}, in {files.named(self.file)}"
                )
            self._keys.update(dict.fromkeys(keys))
        if not self._keys:
            raise files.no_rows(self.argument, self.file)
        return self._keys

    def scan(self, places: Sequence[int]) -> Relation:
        keys = list(self._keys)
        read = list(dict.fromkeys(x for x in (*places, 0) if x < len(keys)))
        pointers, texts = [_pointer(keys[x]) for x in read], []
        for i, (x, pointer) in enumerate(zip(read, pointers, strict=True), 1):
            message = f"{keys[x]!r} should be a text or a number. Received, as number "
            texts.append(
                f"CASE WHEN texts[{i}][1] IN ('{{', '[') AND json_type(line, {pointer})"
                f" IN ('OBJECT', 'ARRAY') THEN error({in_sql(message)} || row || ': ' "
                f"|| line) ELSE coalesce(texts[{i}], '') END AS \"{x}\""
            )
        # Together, as each call parses the line.
        extracted = f"json_extract_string(line, [{', '.join(pointers)}]) AS texts"
        return query(
            query(self._objects(), f"SELECT *, {extracted} FROM source"),
            f"SELECT {', '.join(texts)}, line, row FROM source",
        )

    def error(self, sought: ColumnRef, text: str, row: Sequence[Any]) -> ValueError:
        if not text or sought.argument not in IDS:
            return super().error(sought, text, row)
        return sought.refused(
            "a column of texts or integers, as 1.10 and 1.1 are one number",
            f"with {text} in {self.place_of(row)}: write it as a text",
        )

    def _is_wrong(self, i: int, sought: ColumnRef, type_: str) -> str:
        is_wrong = super()._is_wrong(i, sought, type_)
        if sought.argument in IDS and sought.name in self._keys:
            type_ = f"json_type(line, {_pointer(sought.name)})"
            is_wrong += f" OR (regexp_matches(\"{i}\", '[.eE]') AND {type_} = 'DOUBLE')"
        return is_wrong

    def with_lists(self, name: str) -> Part:
        ((first, _),) = self._objects().limit(1).fetchall()
        if not isinstance(json.loads(first).get(name), list):
            return self
        rows = [json.loads(line) for line, _ in self._objects().fetchall()]
        columns = {key: [row.get(key) for row in rows] for key in self._keys}
        return ArrowPart(self.connection, self.name, pa.table(columns), self.name)

    def _objects(self) -> Relation:
        return self._lines().filter(r"regexp_matches(line, '\S')")


def _pointer(key: str) -> str:
    """The place of a value in an object of JSON, as SQL."""
    return in_sql("/" + key.replace("~", "~0").replace("/", "~1"))


def json_of(file: str | bytes) -> Any:
    """The content of a JSON file. Raises for duplicate keys."""

    def of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            last = {key: i for i, (key, _) in enumerate(pairs)}
            twice = next(key for i, (key, _) in enumerate(pairs) if i < last[key])
            raise ValueError(
                "Objects of JSON should have each key once. Received twice: "
                f"{twice!r}, in {files.named(file)}"
            )
        return found

    with files.opened(file) as stream:
        try:
            return json.loads(stream.read(), object_pairs_hook=of_pairs)
        except ValueError as error:
            # Such as that of an integer with too many digits.
            raise pa.ArrowInvalid(str(error)) from error
