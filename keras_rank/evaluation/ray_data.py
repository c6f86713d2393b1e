"""The same on Ray Data: lists are evaluated where they are, and a table comes back."""

import functools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import ray

from keras_rank.evaluation import scored
from keras_rank.evaluation.evaluation import Evaluation
from keras_rank.evaluation.reading import Columns
from keras_rank.metrics.base import RankingMetric
from keras_rank.metrics.group import RankingMetrics


def evaluate_dataset(
    dataset: "ray.data.Dataset",
    members: list[RankingMetric],
    columns: Columns,
    arguments: Mapping[str, Any],
) -> Evaluation:
    """Evaluates a dataset, of which each query goes to one worker as a whole.

    A worker that dies has returned nothing, and Ray gives its queries to another one.

    Args:
        dataset: the rows.
        members: the metrics.
        columns: the names of the columns, which are there.
        arguments: the other arguments of `evaluate`.
    """
    names = [columns.query, columns.label, columns.score, columns.item, columns.weight]
    names += columns.keep
    blocks = ray.data.DataContext.get_current().default_hash_shuffle_parallelism
    config = RankingMetrics(members).get_config()
    tables = (
        dataset.select_columns([name for name in dict.fromkeys(names) if name])
        .repartition(blocks, keys=[columns.query])
        # A block as a whole, as it has all rows of its queries.
        .map_batches(
            functools.partial(_of_block, config=config, arguments=dict(arguments)),
            batch_size=None,
            batch_format="pyarrow",
        )
        .to_arrow_refs()
    )
    found = [table for table in ray.get(tables) if len(table)]
    if not found:
        raise ValueError("`rows` should have rows. Received: none, from a Dataset")
    table = pa.concat_tables(found).sort_by(columns.query)
    return Evaluation(table, metrics=members, query=columns.query)


def _of_block(
    rows: pa.Table, config: dict[str, Any], arguments: dict[str, Any]
) -> pa.Table:
    """Returns the table of the lists of a block, without columns if it has no rows."""
    if len(rows) == 0:
        return pa.table({})
    group = RankingMetrics.from_config(config)
    return scored.evaluate(rows, group, **arguments).table
