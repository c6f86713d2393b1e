"""Tables with one row per list, computed from rows, runs and Ray datasets."""

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
from keras_rank.reading.engine import connect_with_limit
from keras_rank.reading.part import ColumnRef, no_column_error
from keras_rank.reading.rows import Rows, clean_labels, read_rows
from keras_rank.reading.runs import Protocol, read_run


def collect_items(
    labels: Array,
    scores: Array,
    items: pa.Array,
    list_indices: Array,
    num_items: int,
    lower_is_better: bool = False,
) -> pa.Array:
    """Returns the items of each list with their ranks, labels and scores.

    Args:
        labels: array of shape `(rows,)`, below 0 for padding.
        scores: array of the same shape, NaN or -inf for items that were not retrieved.
        items: the item of each row.
        list_indices: int array of the same shape. The index of the list of each row, in
            ascending order.
        num_items: the number of items with the highest scores, and of relevant items
            with the highest labels, that are kept.
        lower_is_better: whether scores are the negatives of the scores of the user.
    """
    is_ranked = (labels >= 0.0) & (scores > -np.inf)
    ranks = _compute_positions(np.where(is_ranked, -scores, np.inf), list_indices) + 1
    is_relevant = labels > 0.0
    label_positions = _compute_positions(
        np.where(is_relevant, -labels, np.inf), list_indices
    )
    is_kept = (is_ranked & (ranks <= num_items)) | (
        is_relevant & (label_positions < num_items)
    )
    (kept_rows,) = np.nonzero(is_kept)
    kept_rows = kept_rows[np.lexsort((ranks[kept_rows], list_indices[kept_rows]))]
    sizes = np.bincount(list_indices[kept_rows], minlength=list_indices[-1] + 1)
    if lower_is_better:
        scores = 0.0 - scores
    fields = {
        "rank": pa.array(ranks[kept_rows], pa.int64(), mask=~is_ranked[kept_rows]),
        "item": items.take(pa.array(kept_rows)),
        "label": pa.array(labels[kept_rows]),
        "score": pa.array(scores[kept_rows], from_pandas=True),
    }
    rows = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return pa.ListArray.from_arrays(np.append(0, np.cumsum(sizes)), rows)


def _compute_positions(keys: Array, list_indices: Array) -> Array:
    """Returns the position of each row in its list by ascending keys, from 0 on."""
    order = np.lexsort((keys, list_indices))
    starts = np.searchsorted(list_indices, np.arange(list_indices[-1] + 1))
    positions = np.empty(len(keys), np.int64)
    positions[order] = np.arange(len(keys)) - starts[list_indices[order]]
    return positions


Progress: TypeAlias = Callable[[int, int], None]


def check_progress(progress: Progress | None) -> None:
    """Raises `ValueError` if `progress` is not callable."""
    if not (progress is None or callable(progress)):
        raise ValueError(
            "`progress` should be a function that is called with the numbers of rows "
            f"and lists done so far, such as `print`. Received: progress={progress!r}"
        )


def create_table_from_rows(
    source: Any, settings: Settings, progress: Progress | None = None
) -> pa.Table:
    """Returns a table with one row per list, from files or a table in memory."""
    with connect_with_limit(settings.memory_limit) as connection:
        rows = read_rows(connection, source, settings.columns, settings.order)
        table = _create_table(rows, settings, progress)
        return table.replace_schema_metadata(_create_warning_metadata(rows))


def create_table_from_run(
    qrels: Any,
    run: Any,
    settings: Settings,
    protocol: Protocol,
    progress: Progress | None = None,
) -> tuple[pa.Table, int | None]:
    """Returns a table with one row per query, and the number of left-out queries."""
    with read_run(
        qrels,
        run,
        settings.columns,
        settings.order,
        protocol,
        settings.memory_limit,
        settings.keep_items is not None,
    ) as rows:
        table = _create_table(rows, settings, progress)
        metadata = {
            result_columns.LEFT_OUT: json.dumps(list(map(repr, rows.some_left_out)))
        }
        metadata |= _create_warning_metadata(rows)
        metadata |= {} if rows.has_scores else {result_columns.NO_SCORES: ""}
        return table.replace_schema_metadata(metadata), rows.left_out


def _create_warning_metadata(rows: Rows) -> dict[str, str]:
    """Returns the metadata of a table with the warnings of reading, if any."""
    return {result_columns.READING: json.dumps(rows.warnings)} if rows.warnings else {}


class _ListRows(NamedTuple):
    """The rows of each list.

    Attributes:
        queries: the query of each list.
        starts: the index of the first row of each list.
        sizes: the number of rows of each list.
        list_indices: the index of the list of each row.
    """

    queries: pa.Array
    starts: Array
    sizes: Array
    list_indices: Array

    @classmethod
    def from_queries(cls, queries: pa.Array) -> "_ListRows":
        """Returns the lists of rows that are sorted by query."""
        is_encoded = isinstance(queries, pa.RunEndEncodedArray)
        runs = queries if is_encoded else pc.run_end_encode(queries)
        sizes = np.diff(runs.run_ends, prepend=0)
        list_indices = np.repeat(np.arange(len(sizes)), sizes)
        return cls(runs.values, np.asarray(runs.run_ends) - sizes, sizes, list_indices)

    def count_rows(self, is_counted: Array) -> Array:
        """Returns the number of rows of each list for which `is_counted` is True."""
        counts: Array = np.add.reduceat(is_counted, self.starts, dtype=np.int32)
        return counts

    def get_query(self, row: Any) -> Any:
        """Returns the query of a row, for messages."""
        return self.queries[int(self.list_indices[row])].as_py()


def _create_table(
    rows: Rows, settings: Settings, progress: Progress | None
) -> pa.Table:
    """Returns a table with one row per list, and calls `progress` after each part."""
    tables: list[pa.Table] = []
    rows_done = lists_done = 0
    for part in rows.tables:
        tables.append(_evaluate_lists(part, settings, rows))
        rows_done, lists_done = rows_done + len(part), lists_done + len(tables[-1])
        if progress is not None:
            progress(rows_done, lists_done)
    return pa.concat_tables(tables)


def _evaluate_lists(rows: pa.Table, settings: Settings, source: Rows) -> pa.Table:
    """Returns a table with one row per list, from rows that contain whole lists."""
    columns, is_table = settings.columns, source.left_out is None
    rows, padding_counts = _drop_padding(rows, settings) if is_table else (rows, {})
    lists = _ListRows.from_queries(rows["query"].combine_chunks())
    result: dict[str, Any] = {columns.query: lists.queries, **padding_counts}
    for i, name in enumerate(columns.keep):
        result[name] = _take_list_values(name, rows[str(i)].combine_chunks(), lists)
    label, score = rows["label"].to_numpy(), rows["score"].to_numpy()
    read_label = np.trunc(label) if settings.should_truncate else label
    if settings.ties != "metric":
        # trec_eval ranks infinite scores too, so they become finite. The rows are in
        # the order of trec_eval, so that scores that become equal keep this order.
        score = np.nan_to_num(score, nan=np.nan)
    # A label below 0 in a run is a judgment, for example of spam.
    is_judged = read_label >= 0.0 if is_table else ~np.isnan(read_label)
    judged = np.where(is_judged, 1.0, -1.0 if padding_counts else 0.0)
    items = {
        "label": clean_labels(read_label, lists.starts, settings.unjudged == "drop"),
        "judgment": clean_labels(read_label, lists.starts, drop_unjudged=True),
        "judged": judged.astype("float32"),
        "score": score,
    }
    _check_max_grade(settings.metrics, items["label"], lists)
    if columns.weight is not None:
        is_item, weights = items["label"] >= 0.0, rows["weight"].to_numpy()
        items["weight"] = _check_weights(columns.weight, weights, is_item, lists)
    list_hashes = _hash_queries(lists.queries)
    ranked_items = items
    if "subtopics" in rows.column_names:
        ranked_items = items | _read_subtopics(rows, items, settings.should_truncate)
    result |= padded_batches.compute_list_values(
        settings, ranked_items, lists.starts, lists.sizes, list_hashes
    )
    if columns.weight is None:
        result[result_columns.WEIGHT] = np.ones(len(lists.starts))
    else:
        for metric in (x for x in settings.metrics if x.list_weight == "mean"):
            name = result_columns.METRIC_WEIGHT.format(metric.name)
            result[name] = _restore_equal_weights(
                result[name], items["weight"], lists.starts
            )
    for name, values in _compute_row_health(
        rows, items, lists, source.file_ends
    ).items():
        result[result_columns.HEALTH + name] = values
    if columns.item is not None:
        result[result_columns.HEALTH + "duplicates"] = np.zeros(
            len(lists.starts), np.int32
        )
    if columns.item is not None and source.duplicate_error:
        result[result_columns.HEALTH + "duplicates"], duplicate = _count_duplicates(
            rows["item"], lists
        )
        if duplicate and settings.duplicates == "error":
            raise source.duplicate_error(duplicate)
    if settings.keep_items is not None:
        item_columns = (items["label"], items["score"], rows["item"].combine_chunks())
        result[result_columns.ITEMS] = collect_items(
            *item_columns,
            lists.list_indices,
            settings.keep_items,
            columns.lower_is_better,
        )
    metric_names = [metric.name for metric in settings.metrics]
    names = [columns.query, *columns.keep, *metric_names]
    names += [
        *map(result_columns.METRIC_WEIGHT.format, metric_names),
        result_columns.WEIGHT,
    ]
    names += [name for name in result if name.startswith(result_columns.HEALTH)]
    return pa.table({name: _to_arrow(result[name]) for name in names if name in result})


def _drop_padding(
    rows: pa.Table, settings: Settings
) -> tuple[pa.Table, dict[str, Array]]:
    """Returns the rows without padding, and columns with the number of dropped rows.

    A list without any label keeps its first row, whose label is missing. No rows are
    dropped unless the settings say so.
    """
    if settings.unjudged != "drop":
        return rows, {}
    lists, label = (
        _ListRows.from_queries(rows["query"].combine_chunks()),
        rows["label"].to_numpy(),
    )
    is_item = label >= 0.0
    padding = lists.count_rows(~is_item)
    counts = {result_columns.PADDING: padding}
    if any(metric._compares_labels for metric in settings.metrics):
        # -1 is not counted, as it is the usual mark of padding.
        counts[result_columns.NEGATIVE] = lists.count_rows(
            (label < 0.0) & (label != -1.0)
        )
    if not padding.any():
        return rows, counts
    labels = pa.array(label, mask=~is_item)
    is_item[lists.starts[padding == lists.sizes]] = True
    index = rows.column_names.index("label")
    rows = rows.set_column(index, "label", labels).filter(pa.array(is_item))
    return rows, counts


def _read_subtopics(
    rows: pa.Table, items: dict[str, Array], should_truncate: bool
) -> dict[str, Array]:
    """Returns the labels of each subtopic, and scores in the order of ndeval."""
    label_lists = rows["subtopics"].combine_chunks()
    sizes = pc.fill_null(pc.list_value_length(label_lists), 0).to_numpy(
        zero_copy_only=False
    )
    labels = np.zeros((len(sizes), sizes.max()))
    labels[np.arange(sizes.max()) < sizes[:, None]] = label_lists.flatten()
    if should_truncate:
        labels = np.trunc(labels)
    is_item, is_ranked = items["label"] >= 0.0, items["score"] > -np.inf
    result = {"subtopics": np.where(is_item[:, None], np.maximum(labels, 0.0), -1.0)}
    for name, column in (("score", "height"), ("place", "place")):
        if column in rows.column_names:
            result[name] = np.where(is_ranked, rows[column].to_numpy(), -np.inf)
    return result


def _compute_row_health(
    rows: pa.Table, items: dict[str, Array], lists: _ListRows, ends: Array | None
) -> dict[str, Array]:
    """Returns the columns of health that are computed without padding lists."""
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
        file_index = np.searchsorted(ends, rows["row"].to_numpy())
        is_counted["files"] = file_index != file_index[lists.starts][lists.list_indices]
    labels = np.maximum(items["label"], 0.0)
    return {
        **{name: lists.count_rows(counted) for name, counted in is_counted.items()},
        result_columns.LABEL_SUM: np.add.reduceat(labels, lists.starts),
    }


def _check_max_grade(
    metrics: Sequence[RankingMetric], labels: Array, lists: _ListRows
) -> None:
    """Raises `ValueError` if a label is larger than the `max_grade` of a metric."""
    label, query = float(labels.max()), lists.get_query(np.argmax(labels))
    for metric in metrics:
        highest = getattr(metric, "max_grade", None)
        if highest is not None and label > highest:
            replacement = f"{type(metric).__name__}(k={metric.k}, max_grade={label:g})"
            raise ValueError(
                "`metrics` should have the highest label as their `max_grade`. "
                f"Received: {metric.name!r} with max_grade={highest:g}, and the label "
                f"{label:g} in the query {query!r}. Pass "
                f"`keras_rank.metrics.{replacement}`"
            )


def _check_weights(
    name: str, weights: Array, is_item: Array, lists: _ListRows
) -> Array:
    """Returns the weights. Raises `ValueError` if they are missing or too large."""
    for row in np.flatnonzero(np.isnan(weights) & is_item)[:1]:
        raise ValueError(
            f"`weight` should name a column without missing weights. Received: "
            f"weight={name!r}, with one missing in the query {lists.get_query(row)!r}"
        )
    for row in np.flatnonzero((weights > LARGEST_WEIGHT) & is_item)[:1]:
        raise ValueError(
            "`weight` should name a column of weights of at most 2**50 (1.1e15): "
            "divide all weights by the same number, which changes no result. Received: "
            f"weight={name!r}, with {weights[row]:.4g} in the query "
            f"{lists.get_query(row)!r}"
        )
    return weights


def _count_duplicates(
    items: pa.ChunkedArray, lists: _ListRows
) -> tuple[Array, tuple[Any, Any] | None]:
    """Returns the number of duplicate items of each list, and an example."""
    codes = items.combine_chunks().dictionary_encode(null_encoding="encode")
    keys = lists.list_indices * len(codes.dictionary) + np.asarray(codes.indices)
    keys.sort()
    repeated = keys[1:][keys[1:] == keys[:-1]]
    repeated_lists, item_codes = np.divmod(repeated, len(codes.dictionary))
    example = None
    if len(repeated):
        example = (
            lists.queries[repeated_lists[0]].as_py(),
            codes.dictionary[item_codes[0]].as_py(),
        )
    return np.bincount(repeated_lists, minlength=len(lists.starts)).astype(
        np.int32
    ), example


def _hash_queries(queries: pa.Array) -> Array:
    """Returns hashes of queries, which key the shuffle of a list in every table."""
    numbers = [zlib.crc32(str(query).encode()) for query in queries.to_pylist()]
    return np.array(numbers, np.uint32).view(np.int32)


def _take_list_values(name: str, column: pa.Array, lists: _ListRows) -> pa.Array:
    """Returns the value of each list in a column.

    Raises `ValueError` if rows of a list have different values.
    """
    codes = np.asarray(column.dictionary_encode(null_encoding="encode").indices)
    for row in np.flatnonzero(codes != codes[lists.starts][lists.list_indices])[:1]:
        first = column[int(lists.starts[lists.list_indices[row]])].as_py()
        raise ValueError(
            "`keep` should name columns with one value for each query. Received: "
            f"keep={name!r}, with {first!r} and {column[int(row)].as_py()!r} in the "
            f"query {lists.get_query(row)!r}"
        )
    return column.take(pa.array(lists.starts))


def _restore_equal_weights(mean_weights: Array, weights: Array, starts: Array) -> Array:
    """Returns the mean weights, exact for lists whose items have equal weights.

    The mean of equal weights, which is weighted by relevance, may differ from them in
    the last digit.
    """
    lowest = np.minimum.reduceat(weights, starts)
    highest = np.maximum.reduceat(weights, starts)
    return np.where((lowest < highest) | np.isnan(mean_weights), mean_weights, lowest)


def _to_arrow(values: Any) -> Any:
    """Returns an Arrow array, in which NaN becomes null."""
    is_array = isinstance(values, np.ndarray)
    return pa.array(values, from_pandas=True) if is_array else values


def create_table_from_dataset(dataset: Any, settings: Settings) -> pa.Table:
    """Returns a table with one row per list of a Ray dataset.

    All rows of a query are sent to one worker. If a worker dies, Ray sends its queries
    to another worker.

    Args:
        dataset: `ray.data.Dataset` of the rows.
        settings: the settings of the computation.
    """
    # Ray is an optional dependency of the package.
    import ray

    columns = settings.columns
    arguments = ("query", "label", "score", "item", "weight")
    column_refs = [ColumnRef(x, getattr(columns, x)) for x in arguments]
    column_refs = [x for x in column_refs if x.name] + [
        ColumnRef("keep", x) for x in columns.keep
    ]
    schema = dataset.schema()
    for ref in column_refs if schema is not None else ():
        if ref.name not in schema.names:
            raise no_column_error(ref, "a Dataset", schema.names)
    blocks = ray.data.DataContext.get_current().default_hash_shuffle_parallelism
    # Metrics are sent to workers as configs.
    config = RankingMetrics(settings.metrics).get_config()
    settings = dataclasses.replace(settings, metrics=[])
    evaluate_block = functools.partial(
        _evaluate_block, config=config, settings=settings
    )
    table_refs = (
        dataset.select_columns(list(dict.fromkeys(ref.name for ref in column_refs)))
        .repartition(blocks, keys=[columns.query])
        # A batch is a whole block, as a block has all rows of its queries.
        .map_batches(evaluate_block, batch_size=None, batch_format="pyarrow")
        .to_arrow_refs()
    )
    tables = [table for table in ray.get(table_refs) if len(table)]
    if not tables:
        raise ValueError("`rows` should have rows. Received: none, from a Dataset")
    return pa.concat_tables(tables).sort_by(columns.query)


def _evaluate_block(
    rows: pa.Table, config: dict[str, Any], settings: Settings
) -> pa.Table:
    """Returns the table of the lists of a block, without columns if it is empty."""
    if len(rows) == 0:
        return pa.table({})
    metrics = RankingMetrics.from_config(config).members
    return create_table_from_rows(rows, dataclasses.replace(settings, metrics=metrics))
