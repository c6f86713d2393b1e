"""From rows that are sorted by query to a row for each list: its values and weight.

Lists of similar length are padded to one size and given to the formulas of the metrics.
The columns whose names start with `health/` are what `health` reads.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from keras import ops

from keras_rank import functional
from keras_rank.arrays.backends import compiles_each_shape
from keras_rank.evaluation.reading import Columns, Rows, judge, received_twice
from keras_rank.lists.inputs import standardize
from keras_rank.metrics.base import (
    RankingMetric,
    alike,
    rank_together,
    values_together,
)
from keras_rank.metrics.binary import BPref
from keras_rank.ordering.preference import Ties

Array: TypeAlias = np.ndarray[Any, Any]
Progress: TypeAlias = Callable[[int, int], None]

# What the columns of health have before their names.
HEALTH = "health/"
# The weight of a list, where all metrics agree on it, and else that to each of them.
WEIGHT = "weight"
OWN_WEIGHT = "{}_weight"
# The orders of tied items that the spread of a metric is over.
ORDERS: dict[str, Ties] = {"worst": "stable", "average": "average", "best": "stable"}
# A padded batch has so many positions: few enough to stay in the caches of a CPU.
_POSITIONS = 2**17
# The largest size of a batch over that of its shortest list.
_GROWTH = 1.4


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
        self.metrics, self.columns, self.ties = metrics, columns, ties
        self.drops_unjudged = drops_unjudged
        self.counts_duplicates = counts_duplicates
        self.cutoffs = sorted({metric.k for metric in metrics if metric.k is not None})

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
        found |= self._values(items, starts, sizes, _numbers_of_lists(queries))
        if self.columns.weight is not None:
            # As given, where that is one number: the mean of equal ones may differ from
            # it in the last digit, and another relevance would make another digit.
            lowest, highest = (
                extreme.reduceat(weights, starts)
                for extreme in (np.minimum, np.maximum)
            )
            for metric in self.metrics:
                own = found[OWN_WEIGHT.format(metric.name)]
                own[:] = np.where((lowest < highest) | np.isnan(own), own, lowest)
        is_nan = np.isnan(score) & np.asarray(rows["score"].is_valid())
        found[HEALTH + "items"] = _count(label >= 0.0, starts)
        found[HEALTH + "nan"] = _count(is_nan, starts)
        for name, numbers in (("labels", given), ("scores", score)):
            is_fraction = ~np.isnan(numbers) & (numbers != np.floor(numbers))
            found[f"{HEALTH}fractional {name}"] = _count(is_fraction, starts)
        if self.columns.item is not None:
            found[HEALTH + "duplicates"] = self._duplicates(
                rows["item"].combine_chunks(), of_list, starts, queries, described
            )
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
        return weights

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

    def _values(
        self, items: dict[str, Array], starts: Array, sizes: Array, numbers: Array
    ) -> dict[str, Array]:
        """The values and weights of all lists, by the names of their columns."""
        found: dict[str, Array] = {}
        for chosen, size in _batches_of(sizes):
            shown = _of_few_shapes(chosen)
            positions = starts[shown, None] + np.arange(size)
            is_item = np.arange(size) < sizes[shown, None]
            positions = np.where(is_item, positions, starts[shown, None])
            batch = {name: values[positions] for name, values in items.items()}
            for name in ("label", "judgement"):
                batch[name] = np.where(is_item, batch[name], -1.0)
            batch["judged"] = batch["judged"] | ~is_item
            for name, values in self._of_batch(batch, numbers[shown]).items():
                if name not in found:
                    found[name] = np.empty(len(starts), values.dtype)
                found[name][chosen] = values[: len(chosen)]
        return found

    def _of_batch(self, batch: dict[str, Array], numbers: Array) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for metric, judged, values, weights in self._computed(
            batch, numbers, self.ties
        ):
            found[metric.name] = values
            if self.columns.weight is not None:
                found[OWN_WEIGHT.format(metric.name)] = weights
            if metric is self.metrics[0]:
                found[HEALTH + "relevant"] = judged
        scores = np.where(batch["label"] >= 0.0, batch["score"], np.nan)
        scores = np.sort(np.where(scores > -np.inf, scores, -np.inf), axis=1)[:, ::-1]
        is_retrieved = scores > -np.inf
        retrieved = np.sum(is_retrieved, axis=1).astype(np.int32)
        tied = (scores[:, 1:] == scores[:, :-1]) & is_retrieved[:, 1:]
        found[HEALTH + "retrieved"] = retrieved
        is_judged = batch["judged"] & (batch["label"] >= 0.0)
        is_judged &= batch["score"] > -np.inf
        found[HEALTH + "unjudged"] = (retrieved > 0) & ~np.any(is_judged, axis=1)
        found[HEALTH + "constant"] = (np.sum(tied, axis=1) == retrieved - 1) & (
            retrieved > 1
        )
        for k in self.cutoffs:
            at_cut = tied[:, k - 1] if k <= tied.shape[1] else np.zeros(len(tied), bool)
            found[f"{HEALTH}tied@{k}"] = at_cut
            found[f"{HEALTH}judged@{k}"] = _judged_share(batch, k)
        has_ties = np.any(tied, axis=1)
        found[HEALTH + "ties"] = has_ties
        return found | self._spread(batch, has_ties, found)

    def _spread(
        self, batch: dict[str, Array], has_ties: Array, found: dict[str, Array]
    ) -> dict[str, Array]:
        """The values with the worst and the best order of ties, and their mean."""
        names = {
            (metric.name, order): f"{HEALTH}{metric.name}/{order}"
            for metric in self.metrics
            for order in ORDERS
        }
        # In the precision of most metrics: these are most of what is known of a list.
        spread = {
            column: found[name].astype("float32") for (name, _), column in names.items()
        }
        chosen = np.flatnonzero(has_ties)
        if not len(chosen):
            return spread
        shown = _of_few_shapes(chosen)
        tied = {name: values[shown] for name, values in batch.items()}
        numbers = np.zeros(len(shown), np.int32)
        for order, ties in ORDERS.items():
            ordered = tied
            if ties == "stable":
                # The earlier of tied items comes first: so these are put in order.
                sign = -1.0 if order == "best" else 1.0
                place = np.argsort(sign * tied["label"], axis=1, kind="stable")
                ordered = {
                    name: np.take_along_axis(values, place, axis=1)
                    for name, values in tied.items()
                }
            for metric, _, values, _ in self._computed(ordered, numbers, ties):
                spread[names[metric.name, order]][chosen] = values[: len(chosen)]
        return spread

    def _computed(
        self, batch: dict[str, Array], numbers: Array, ties: Ties | None
    ) -> Iterator[tuple[RankingMetric, Array, Array, Array]]:
        """Yields each metric, which lists have relevant items, values and weights."""
        # To bpref, an item that nobody judged is none, whatever it is to others.
        by_label = {
            "judgement": [m for m in self.metrics if isinstance(m, BPref)],
            "label": [m for m in self.metrics if not isinstance(m, BPref)],
        }
        for label, dtype, members in (
            (label, dtype, members)
            for label, metrics in by_label.items()
            for (_, dtype), members in alike(metrics).items()
        ):
            lists = standardize(
                batch[label], batch["score"], batch.get("weight"), dtype
            )
            # So that a list is shuffled alike wherever it stands.
            places = np.cumsum(ops.convert_to_numpy(lists.has_items), dtype=np.int32)
            first_list = ops.convert_to_tensor(numbers - (places - 1))
            rankings = rank_together(members, lists, first_list, ties)
            computed = values_together(members, lists, rankings)
            for metric, (judged, values, weights) in zip(
                members, computed, strict=True
            ):
                values = judged.fill_empty(values, metric.empty_value)
                has_relevant = ops.convert_to_numpy(judged.has_relevant)
                # Missing, where a list weighs the average of the others.
                has_weight = has_relevant | metric._weighs_empty_lists
                weights = np.where(has_weight, ops.convert_to_numpy(weights), np.nan)
                values = ops.convert_to_numpy(values).astype("float64")
                yield metric, has_relevant, values, weights.astype("float64")


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


def _batches_of(sizes: Array) -> Iterator[tuple[Array, int]]:
    """Yields the numbers of lists of similar sizes, and the size to pad these to."""
    grid = [1]
    while grid[-1] < sizes.max():
        grid.append(max(grid[-1] + 1, int(grid[-1] * _GROWTH)))
    classes = np.searchsorted(grid, sizes)
    by_class = np.argsort(classes, kind="stable")
    for chosen in np.split(by_class, np.flatnonzero(np.diff(classes[by_class])) + 1):
        size = grid[classes[chosen[0]]]
        lists = max(1, _POSITIONS // size)
        for first in range(0, len(chosen), lists):
            yield chosen[first : first + lists], size


def _of_few_shapes(chosen: Array) -> Array:
    """The numbers of lists, the first repeated where each shape would be compiled."""
    if not compiles_each_shape():
        return chosen
    missing = 2 ** int(len(chosen) - 1).bit_length() - len(chosen)
    return np.concatenate([chosen, np.repeat(chosen[:1], missing)])


def _numbers_of_lists(queries: pa.Array) -> Array:
    """Numbers that key the shuffle: a list has the same in every table."""
    numbers = [zlib.crc32(str(query).encode()) for query in queries.to_pylist()]
    return np.array(numbers, np.uint32).view(np.int32)


def _judged_share(batch: dict[str, Array], k: int) -> Array:
    """The share of the first k items that have a label."""
    if batch["judged"].all():
        return np.ones(len(batch["label"]), np.float32)
    is_retrieved = (batch["label"] >= 0.0) & (batch["score"] > -np.inf)
    labels = np.where(is_retrieved, batch["judged"], -1.0)
    share = functional.precision(labels, batch["score"], k=k, shuffle_ties="average")
    return np.asarray(ops.convert_to_numpy(share))


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
            f"{name!r}, with {both[0]!r} and {both[1]!r} in the query "
            f"{queries[int(number)].as_py()!r}"
        )
    return column.take(pa.array(starts))


def _numbers(column: pa.ChunkedArray) -> Array:
    """The numbers of a column, NaN where they are missing."""
    numbers: Array = column.to_numpy()
    return numbers


def _count(is_counted: Array, starts: Array) -> Array:
    counts: Array = np.add.reduceat(is_counted, starts, dtype=np.int32)
    return counts


def _column(values: Any) -> Any:
    """A column of Arrow, in which NaN is missing."""
    return (
        pa.array(values, from_pandas=True) if isinstance(values, np.ndarray) else values
    )
