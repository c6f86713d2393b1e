"""Ray Data: workers evaluate lists, and return tables with one row per list."""

import dataclasses
import functools
from typing import Any

import pyarrow as pa
import ray

from keras_rank.evaluation.lists.per_list import table_of_rows
from keras_rank.evaluation.lists.settings import Settings
from keras_rank.metrics.group import RankingMetrics
from keras_rank.reading.part import ColumnRef, no_column


def table_of_dataset(dataset: "ray.data.Dataset", settings: Settings) -> pa.Table:
    """Returns one row per list of a dataset.

    All rows of a query go to one worker. If a worker dies, Ray gives its queries to
    another one.

    Args:
        dataset: the rows.
        settings: what is computed, and how.
    """
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
