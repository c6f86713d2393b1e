"""From rows that are sorted by query to a row for each list: its values and weight.

The columns whose names start with `health/` are what `health` reads.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keras_rank.evaluation.batches import PaddedBatches
from keras_rank.evaluation.reading import Columns, Rows, judge, received_twice
from keras_rank.evaluation.values import HEALTH, OWN_WEIGHT, WEIGHT
from keras_rank.lists.base import LARGEST_WEIGHT
from keras_rank.metrics.base import RankingMetric
from keras_rank.ordering.preference import Ties

Array: TypeAlias = np.ndarray[Any, Any]
Progress: TypeAlias = Callable[[int, int], None]


class PerList:
    """Computes a row for each list.

    Args:
        metrics: metrics of names that differ.
        columns: the names of the columns.
        ties: how ties are ordered, whatever the metrics say. Defaults to `None`: as
            they say.
        drops_unjudged: whether an item whose label is missing, or below 0, is none.
        counts_duplicates: whether an item that a query has twice is counted. Else it
            is an error.
    """

    def __init__(
        self,
        metrics: Sequence[RankingMetric],
        columns: Columns,
        ties: Ties | None = None,
        drops_unjudged: bool = False,
        counts_duplicates: bool = False,
    ) -> None:
        self.metrics, self.columns = metrics, columns
        self.batches = PaddedBatches(metrics, ties)
        self.drops_unjudged = drops_unjudged
        self.counts_duplicates = counts_duplicates

    def tables(
        self, rows: Rows, progress: Progress | None = None
    ) -> Iterator[pa.Table]:
        """Yields tables with a row for each list.

        Args:
            rows: the rows.
            progress: function that is told how many rows and lists are done.
        """
        rows_done = lists_done = 0
        for whole in _whole_lists(rows.batches, self.columns.query):
            table = self._table(whole, rows.described)
            yield table
            rows_done, lists_done = rows_done + len(whole), lists_done + len(table)
            if progress is not None:
                progress(rows_done, lists_done)

    def _table(self, rows: pa.Table, described: Callable[[Any, Any], str]) -> pa.Table:
        """Returns the table of the lists of rows, each of which is whole."""
        groups = pc.run_end_encode(rows["query"].combine_chunks())
        ends, queries = np.asarray(groups.run_ends), groups.values
        starts = np.concatenate([[0], ends[:-1]])
        sizes = ends - starts
        of_list = np.repeat(np.arange(len(starts)), sizes)
        found: dict[str, Any] = {self.columns.query: queries}
        for i, name in enumerate(self.columns.keep):
            found[name] = _kept(
                name, rows[str(i)].combine_chunks(), starts, of_list, queries
            )
        given, score = _numbers(rows["label"]), _numbers(rows["score"])
        label = judge(given, starts, self.drops_unjudged)
        items = {"label": label, "score": score, "judged": ~np.isnan(given)}
        items["judgement"] = judge(given, starts, drop_unjudged=True)
        if self.columns.weight is not None:
            weights = self._weights(rows["weight"], of_list, queries)
            items["weight"] = weights
            found[HEALTH + "weightless"] = _count(weights <= 0.0, starts)
        else:
            found[WEIGHT] = np.ones(len(starts))
        found |= self.batches.values(items, starts, sizes, _numbers_of_lists(queries))
        if self.columns.weight is not None:
            for metric in self.metrics:
                name = OWN_WEIGHT.format(metric.name)
                found[name] = _exact(found[name], weights, starts)
        found[HEALTH + "items"] = _count(label >= 0.0, starts)
        found[HEALTH + "judged"] = _count(items["judged"], starts)
        is_nan = np.isnan(score) & np.asarray(rows["score"].is_valid())
        found[HEALTH + "nan"] = _count(is_nan, starts)
        for name, numbers in (("labels", given), ("scores", score)):
            is_fraction = ~np.isnan(numbers) & (numbers != np.floor(numbers))
            found[f"{HEALTH}fractional {name}"] = _count(is_fraction, starts)
        if self.columns.item is not None:
            found[HEALTH + "duplicates"] = self._duplicates(
                rows["item"].combine_chunks(), of_list, starts, queries, described
            )
        return self._ordered(found)

    def _ordered(self, found: dict[str, Any]) -> pa.Table:
        """The table of columns: the query, what is kept, metrics, weights, health."""
        names = [self.columns.query, *self.columns.keep]
        names += [metric.name for metric in self.metrics]
        names += [OWN_WEIGHT.format(metric.name) for metric in self.metrics]
        names += [WEIGHT, *(name for name in found if name.startswith(HEALTH))]
        return pa.table({name: _column(found[name]) for name in names if name in found})

    def _weights(self, column: pa.ChunkedArray, of_list: Array, queries: Any) -> Array:
        weights = _numbers(column)
        missing = np.flatnonzero(np.isnan(weights))
        if len(missing):
            query = queries[of_list[missing[0]]].as_py()
            raise ValueError(
                f"`weight` should name a column without missing weights. Received: "
                f"weight={self.columns.weight!r}, with one missing in the query "
                f"{query!r}"
            )
        # As those of a metric are.
        return np.minimum(weights, LARGEST_WEIGHT)

    def _duplicates(
        self,
        items: pa.Array,
        of_list: Array,
        starts: Array,
        queries: Any,
        described: Callable[[Any, Any], str],
    ) -> Array:
        """The number of rows of each list whose items stood in it before."""
        codes = items.dictionary_encode(null_encoding="encode")
        keys = of_list * len(codes.dictionary) + np.asarray(codes.indices)
        keys.sort()
        again = keys[1:][keys[1:] == keys[:-1]]
        twice, item = np.divmod(again, max(len(codes.dictionary), 1))
        if len(again) and not self.counts_duplicates:
            values = queries[twice[0]].as_py(), codes.dictionary[item[0]].as_py()
            raise received_twice("rows", *values, described(*values))
        return np.bincount(twice, minlength=len(starts)).astype(np.int32)


def _whole_lists(
    batches: Iterable[pa.RecordBatch], query_name: str
) -> Iterator[pa.Table]:
    """Yields the rows of whole lists: the last may go on in the next batch."""
    rest: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        queries = batch["query"]
        is_missing = queries.is_null(nan_is_null=True)
        if is_missing.true_count:
            raise ValueError(
                f"`query` should name a column without missing ids. Received: "
                f"query={query_name!r}, with a row without one"
            )
        if rest is not None:
            rows = pa.concat_tables([rest, rows])
        if rest is not None and queries[-1] == rest["query"][0]:
            rest = rows
            continue
        ends = np.asarray(pc.run_end_encode(queries).run_ends)
        last = len(rows) - (len(queries) - (int(ends[-2]) if len(ends) > 1 else 0))
        if last:
            yield rows.slice(0, last)
        rest = rows.slice(last)
    if rest is not None:
        yield rest


def _numbers_of_lists(queries: pa.Array) -> Array:
    """Numbers that key the shuffle: a list has the same in every table."""
    numbers = [zlib.crc32(str(query).encode()) for query in queries.to_pylist()]
    return np.array(numbers, np.uint32).view(np.int32)


def _kept(
    name: str, column: pa.Array, starts: Array, of_list: Array, queries: pa.Array
) -> pa.Array:
    """The value of each list, of which all rows have to have the same."""
    codes = np.asarray(column.dictionary_encode(null_encoding="encode").indices)
    differ = np.flatnonzero(codes != codes[starts][of_list])
    if len(differ):
        number = of_list[differ[0]]
        both = column[int(starts[number])].as_py(), column[int(differ[0])].as_py()
        raise ValueError(
            "`keep` should name columns with one value for each query. Received: "
            f"keep={name!r}, with {both[0]!r} and {both[1]!r} in the query "
            f"{queries[int(number)].as_py()!r}"
        )
    return column.take(pa.array(starts))


def _numbers(column: pa.ChunkedArray) -> Array:
    """The numbers of a column, NaN where they are missing."""
    numbers: Array = column.to_numpy()
    return numbers


def _exact(own: Array, weights: Array, starts: Array) -> Array:
    """The weights of lists, as they are given where that is one number.

    The mean of equal ones may differ from it in the last digit, and another relevance
    would make another digit.
    """
    lowest = np.minimum.reduceat(weights, starts)
    highest = np.maximum.reduceat(weights, starts)
    return np.where((lowest < highest) | np.isnan(own), own, lowest)


def _count(is_counted: Array, starts: Array) -> Array:
    counts: Array = np.add.reduceat(is_counted, starts, dtype=np.int32)
    return counts


def _column(values: Any) -> Any:
    """A column of Arrow, in which NaN is missing."""
    return (
        pa.array(values, from_pandas=True) if isinstance(values, np.ndarray) else values
    )
