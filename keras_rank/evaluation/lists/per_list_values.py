"""Ray Data: workers evaluate lists, and return tables with one row per list."""

import dataclasses
import functools
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from keras_rank.arrays.arithmetic import LARGEST_WEIGHT
from keras_rank.backends import Array
from keras_rank.evaluation.lists import padded_batches, result_columns
from keras_rank.evaluation.lists.settings import Settings
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.group import RankingMetrics
from keras_rank.reading.engine import connected
from keras_rank.reading.part import ColumnRef, no_column
from keras_rank.reading.rows import Rows, labels_of, read_rows
from keras_rank.reading.runs import Protocol, read_run


def items_of_lists(
    labels: Array,
    scores: Array,
    items: pa.Array,
    of_row: Array,
    number: int,
    lower_is_better: bool = False,
) -> pa.Array:
    """Returns the items of each list with their ranks, labels and scores.

    Args:
        labels: array of shape `(rows,)`, below 0 for padding.
        scores: array of the same shape, NaN or -inf for items that were not retrieved.
        items: the item of each row.
        of_row: int array of the same shape. The number of the list, ascending.
        number: how many items with the highest scores are kept, and how many relevant
            ones with the highest labels.
        lower_is_better: whether the scores are the negatives of the user's scores.
    """
    is_ranked = (labels >= 0.0) & (scores > -np.inf)
    ranks = _places(np.where(is_ranked, -scores, np.inf), of_row) + 1
    is_relevant = labels > 0.0
    by_label = _places(np.where(is_relevant, -labels, np.inf), of_row)
    is_kept = (is_ranked & (ranks <= number)) | (is_relevant & (by_label < number))
    (kept,) = np.nonzero(is_kept)
    kept = kept[np.lexsort((ranks[kept], of_row[kept]))]
    sizes = np.bincount(of_row[kept], minlength=of_row[-1] + 1)
    found = {
        "rank": pa.array(ranks[kept], pa.int64(), mask=~is_ranked[kept]),
        "item": items.take(pa.array(kept)),
        "label": pa.array(labels[kept]),
        "score": pa.array(
            0.0 - scores[kept] if lower_is_better else scores[kept], from_pandas=True
        ),
    }
    rows = pa.StructArray.from_arrays(list(found.values()), list(found))
    return pa.ListArray.from_arrays(np.append(0, np.cumsum(sizes)), rows)


def _places(keys: Array, of_row: Array) -> Array:
    """The place of each row in its list by ascending keys, from 0 on."""
    order = np.lexsort((keys, of_row))
    starts = np.searchsorted(of_row, np.arange(of_row[-1] + 1))
    places = np.empty(len(keys), np.int64)
    places[order] = np.arange(len(keys)) - starts[of_row[order]]
    return places


Progress: TypeAlias = Callable[[int, int], None]


def check_progress(progress: Progress | None) -> None:
    """Raises unless it can be called."""
    if not (progress is None or callable(progress)):
        raise ValueError(
            "`progress` should be a function that is called with the numbers of rows "
            f"and lists done so far, such as `print`. Received: progress={progress!r}"
        )


def table_of_rows(
    source: Any, settings: Settings, progress: Progress | None = None
) -> pa.Table:
    """Returns one row per list of files, or of a table in memory."""
    with connected(settings.memory_limit) as connection:
        rows = read_rows(connection, source, settings.columns, settings.order)
        table = _table_of(rows, settings, progress)
        return table.replace_schema_metadata(_with_warnings(rows))


def table_of_run(
    qrels: Any,
    run: Any,
    settings: Settings,
    protocol: Protocol,
    progress: Progress | None = None,
) -> tuple[pa.Table, int | None]:
    """Returns one row per query of judgments, and the number of those left out."""
    with read_run(
        qrels,
        run,
        settings.columns,
        settings.order,
        protocol,
        settings.memory_limit,
        settings.keep_items is not None,
    ) as rows:
        table = _table_of(rows, settings, progress)
        known = {result_columns.LEFT_OUT: json.dumps(list(map(repr, rows.some)))}
        known |= _with_warnings(rows)
        known |= {} if rows.has_scores else {result_columns.NO_SCORES: ""}
        return table.replace_schema_metadata(known), rows.left_out


def _with_warnings(rows: Rows) -> dict[str, str]:
    """The metadata of a table whose rows were read with warnings."""
    return {result_columns.READING: json.dumps(rows.warnings)} if rows.warnings else {}


class _Lists(NamedTuple):
    """Which rows belong to which list.

    Attributes:
        queries: the query of each list.
        starts: the first row of each list.
        sizes: the number of rows of each list.
        of_row: the number of the list of each row.
    """

    queries: pa.Array
    starts: Array
    sizes: Array
    of_row: Array

    @classmethod
    def of(cls, queries: pa.Array) -> "_Lists":
        """The lists of rows sorted by query."""
        is_encoded = isinstance(queries, pa.RunEndEncodedArray)
        groups = queries if is_encoded else pc.run_end_encode(queries)
        sizes = np.diff(groups.run_ends, prepend=0)
        of_row = np.repeat(np.arange(len(sizes)), sizes)
        return cls(groups.values, np.asarray(groups.run_ends) - sizes, sizes, of_row)

    def counts(self, is_counted: Array) -> Array:
        """The number of counted rows of each list."""
        counts: Array = np.add.reduceat(is_counted, self.starts, dtype=np.int32)
        return counts

    def query_of(self, row: Any) -> Any:
        """The query of a row, for messages."""
        return self.queries[int(self.of_row[row])].as_py()


def _table_of(rows: Rows, settings: Settings, progress: Progress | None) -> pa.Table:
    """Returns one row per list, and reports the numbers of rows and lists done."""
    tables: list[pa.Table] = []
    rows_done = lists_done = 0
    for whole in rows.tables:
        tables.append(_table_of_lists(whole, settings, rows))
        rows_done, lists_done = rows_done + len(whole), lists_done + len(tables[-1])
        if progress is not None:
            progress(rows_done, lists_done)
    return pa.concat_tables(tables)


def _table_of_lists(rows: pa.Table, settings: Settings, source: Rows) -> pa.Table:
    """Returns the table of whole lists."""
    named, is_table = settings.columns, source.left_out is None
    rows, of_lists = _without_padding(rows, settings) if is_table else (rows, {})
    lists = _Lists.of(rows["query"].combine_chunks())
    found: dict[str, Any] = {named.query: lists.queries, **of_lists}
    for i, name in enumerate(named.keep):
        found[name] = _kept(name, rows[str(i)].combine_chunks(), lists)
    label, score = rows["label"].to_numpy(), rows["score"].to_numpy()
    read = np.trunc(label) if settings.truncates else label
    if settings.ties != "metric":
        # trec_eval ranks any number. The rows are in its order, so that ties which
        # are made here stay in it.
        score = np.nan_to_num(score, nan=np.nan)
    # In runs a label below 0 is a judgment too, such as of spam.
    is_judged = read >= 0.0 if is_table else ~np.isnan(read)
    judged = np.where(is_judged, 1.0, -1.0 if of_lists else 0.0)
    items = {
        "label": labels_of(read, lists.starts, settings.unjudged == "drop"),
        "judgment": labels_of(read, lists.starts, drop_unjudged=True),
        "judged": judged.astype("float32"),
        "score": score,
    }
    _require_grades(settings.metrics, items["label"], lists)
    if named.weight is not None:
        is_item, weights = items["label"] >= 0.0, rows["weight"].to_numpy()
        items["weight"] = _weights(named.weight, weights, is_item, lists)
    numbers = _numbers_of_lists(lists.queries)
    ranked = items
    if "subtopics" in rows.column_names:
        ranked = items | _of_subtopics(rows, items, settings.truncates)
    found |= padded_batches.values_of_lists(
        settings, ranked, lists.starts, lists.sizes, numbers
    )
    if named.weight is None:
        found[result_columns.WEIGHT] = np.ones(len(lists.starts))
    else:
        for metric in (x for x in settings.metrics if x.list_weight == "mean"):
            name = result_columns.OWN_WEIGHT.format(metric.name)
            found[name] = _exact(found[name], items["weight"], lists.starts)
    for name, values in _health_of_rows(rows, items, lists, source.ends).items():
        found[result_columns.HEALTH + name] = values
    if named.item is not None:
        found[result_columns.HEALTH + "duplicates"] = np.zeros(
            len(lists.starts), np.int32
        )
    if named.item is not None and source.twice:
        found[result_columns.HEALTH + "duplicates"], twice = _duplicates(
            rows["item"], lists
        )
        if twice and settings.duplicates == "error":
            raise source.twice(twice)
    if settings.keep_items is not None:
        kept = (items["label"], items["score"], rows["item"].combine_chunks())
        found[result_columns.ITEMS] = items_of_lists(
            *kept, lists.of_row, settings.keep_items, named.lower_is_better
        )
    metrics = [metric.name for metric in settings.metrics]
    names = [named.query, *named.keep, *metrics]
    names += [*map(result_columns.OWN_WEIGHT.format, metrics), result_columns.WEIGHT]
    names += [name for name in found if name.startswith(result_columns.HEALTH)]
    return pa.table({name: _column(found[name]) for name in names if name in found})


def _without_padding(
    rows: pa.Table, settings: Settings
) -> tuple[pa.Table, dict[str, Array]]:
    """The rows with labels, and how many others each list had, if these are dropped.

    Of a list without any label, its first row remains, without one.
    """
    if settings.unjudged != "drop":
        return rows, {}
    lists, label = _Lists.of(rows["query"].combine_chunks()), rows["label"].to_numpy()
    is_item = label >= 0.0
    padding = lists.counts(~is_item)
    counts = {result_columns.PADDING: padding}
    if any(metric._compares_labels for metric in settings.metrics):
        # -1 is the usual sign of padding, so that nobody means it as a label.
        counts[result_columns.NEGATIVE] = lists.counts((label < 0.0) & (label != -1.0))
    if not padding.any():
        return rows, counts
    labels = pa.array(label, mask=~is_item)
    is_item[lists.starts[padding == lists.sizes]] = True
    place = rows.column_names.index("label")
    rows = rows.set_column(place, "label", labels).filter(pa.array(is_item))
    return rows, counts


def _of_subtopics(
    rows: pa.Table, items: dict[str, Array], truncates: bool
) -> dict[str, Array]:
    """The labels of items for each subtopic, and scores in the order of ndeval."""
    given = rows["subtopics"].combine_chunks()
    sizes = pc.fill_null(pc.list_value_length(given), 0).to_numpy(zero_copy_only=False)
    labels = np.zeros((len(sizes), sizes.max()))
    labels[np.arange(sizes.max()) < sizes[:, None]] = given.flatten()
    if truncates:
        labels = np.trunc(labels)
    is_item, is_ranked = items["label"] >= 0.0, items["score"] > -np.inf
    found = {"subtopics": np.where(is_item[:, None], np.maximum(labels, 0.0), -1.0)}
    for name, height in (("score", "height"), ("place", "place")):
        if height in rows.column_names:
            found[name] = np.where(is_ranked, rows[height].to_numpy(), -np.inf)
    return found


def _health_of_rows(
    rows: pa.Table, items: dict[str, Array], lists: _Lists, ends: Array | None
) -> dict[str, Array]:
    """The columns of health for which no list need be padded."""
    label, score = rows["label"].to_numpy(), items["score"]
    is_counted = {
        "items": items["label"] >= 0.0,
        "judged": items["judged"] > 0.0,
        "unscored": np.isnan(score) & (items["label"] >= 0.0),
        "nan": np.isnan(score) & np.asarray(rows["score"].is_valid()),
        "fractional labels": np.floor(label) < label,
        result_columns.GRADED: (items["label"] > 0.0) & (items["label"] != 1.0),
    }
    if "weight" in items:
        is_counted["weightless"] = items["weight"] <= 0.0
    if ends is not None:
        file = np.searchsorted(ends, rows["row"].to_numpy())
        is_counted["files"] = file != file[lists.starts][lists.of_row]
    labels = np.maximum(items["label"], 0.0)
    return {
        **{name: lists.counts(counted) for name, counted in is_counted.items()},
        result_columns.LABEL_SUM: np.add.reduceat(labels, lists.starts),
    }


def _require_grades(
    metrics: Sequence[RankingMetric], labels: Array, lists: _Lists
) -> None:
    """Raises for a label that is larger than the highest one of a metric."""
    label, query = float(labels.max()), lists.query_of(np.argmax(labels))
    for metric in metrics:
        highest = getattr(metric, "max_grade", None)
        if highest is not None and label > highest:
            new = f"{type(metric).__name__}(k={metric.k}, max_grade={label:g})"
            raise ValueError(
                "`metrics` should have the highest label as their `max_grade`. "
                f"Received: {metric.name!r} with max_grade={highest:g}, and the label "
                f"{label:g} in the query {query!r}. Pass `keras_rank.metrics.{new}`"
            )


def _weights(name: str, weights: Array, is_item: Array, lists: _Lists) -> Array:
    """The weights of items. Raises for missing ones."""
    for row in np.flatnonzero(np.isnan(weights) & is_item)[:1]:
        raise ValueError(
            f"`weight` should name a column without missing weights. Received: "
            f"weight={name!r}, with one missing in the query {lists.query_of(row)!r}"
        )
    for row in np.flatnonzero((weights > LARGEST_WEIGHT) & is_item)[:1]:
        raise ValueError(
            "`weight` should name a column of weights of at most 2**50 (1.1e15): "
            "divide all weights by the same number, which changes no result. Received: "
            f"weight={name!r}, with {weights[row]:.4g} in the query "
            f"{lists.query_of(row)!r}"
        )
    return weights


def _duplicates(
    items: pa.ChunkedArray, lists: _Lists
) -> tuple[Array, tuple[Any, Any] | None]:
    """The number of rows of each list that repeat an item, and one such item."""
    codes = items.combine_chunks().dictionary_encode(null_encoding="encode")
    keys = lists.of_row * len(codes.dictionary) + np.asarray(codes.indices)
    keys.sort()
    again = keys[1:][keys[1:] == keys[:-1]]
    of_list, item = np.divmod(again, len(codes.dictionary))
    twice = None
    if len(again):
        twice = lists.queries[of_list[0]].as_py(), codes.dictionary[item[0]].as_py()
    return np.bincount(of_list, minlength=len(lists.starts)).astype(np.int32), twice


def _numbers_of_lists(queries: pa.Array) -> Array:
    """Numbers that key the shuffle: a list has the same number in every table."""
    numbers = [zlib.crc32(str(query).encode()) for query in queries.to_pylist()]
    return np.array(numbers, np.uint32).view(np.int32)


def _kept(name: str, column: pa.Array, lists: _Lists) -> pa.Array:
    """The value of each list. Raises unless all its rows agree."""
    codes = np.asarray(column.dictionary_encode(null_encoding="encode").indices)
    for row in np.flatnonzero(codes != codes[lists.starts][lists.of_row])[:1]:
        first = column[int(lists.starts[lists.of_row[row]])].as_py()
        raise ValueError(
            "`keep` should name columns with one value for each query. Received: "
            f"keep={name!r}, with {first!r} and {column[int(row)].as_py()!r} in the "
            f"query {lists.query_of(row)!r}"
        )
    return column.take(pa.array(lists.starts))


def _exact(own: Array, weights: Array, starts: Array) -> Array:
    """The weights of lists: exactly the given one if all items have the same.

    The mean of equal weights may differ in the last digit, by the relevance.
    """
    lowest = np.minimum.reduceat(weights, starts)
    highest = np.maximum.reduceat(weights, starts)
    return np.where((lowest < highest) | np.isnan(own), own, lowest)


def _column(values: Any) -> Any:
    """An Arrow column, with null for NaN."""
    is_array = isinstance(values, np.ndarray)
    return pa.array(values, from_pandas=True) if is_array else values


def table_of_dataset(dataset: Any, settings: Settings) -> pa.Table:
    """Returns one row per list of a dataset.

    All rows of a query go to one worker. If a worker dies, Ray gives its queries to
    another one.

    Args:
        dataset: `ray.data.Dataset` of the rows.
        settings: what is computed, and how.
    """
    # Ray is an optional dependency of the package.
    import ray

    columns = settings.columns
    arguments = ("query", "label", "score", "item", "weight")
    sought = [ColumnRef(x, getattr(columns, x)) for x in arguments]
    sought = [x for x in sought if x.name] + [
        ColumnRef("keep", x) for x in columns.keep
    ]
    there = dataset.schema()
    for each in sought if there is not None else ():
        if each.name not in there.names:
            raise no_column(each, "a Dataset", there.names)
    blocks = ray.data.DataContext.get_current().default_hash_shuffle_parallelism
    # Keras's metrics are sent as configs.
    config = RankingMetrics(settings.metrics).get_config()
    settings = dataclasses.replace(settings, metrics=[])
    of_block = functools.partial(_of_block, config=config, settings=settings)
    tables = (
        dataset.select_columns(list(dict.fromkeys(each.name for each in sought)))
        .repartition(blocks, keys=[columns.query])
        # Whole blocks, as these have all rows of their queries.
        .map_batches(of_block, batch_size=None, batch_format="pyarrow")
        .to_arrow_refs()
    )
    found = [table for table in ray.get(tables) if len(table)]
    if not found:
        raise ValueError("`rows` should have rows. Received: none, from a Dataset")
    return pa.concat_tables(found).sort_by(columns.query)


def _of_block(rows: pa.Table, config: dict[str, Any], settings: Settings) -> pa.Table:
    """Returns the table of the lists of a block, without columns if it is empty."""
    if len(rows) == 0:
        return pa.table({})
    metrics = RankingMetrics.from_config(config).members
    return table_of_rows(rows, dataclasses.replace(settings, metrics=metrics))
