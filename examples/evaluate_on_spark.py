"""Evaluation on Spark: each partition holds whole queries, and returns a row per list.

    python examples/evaluate_on_spark.py rows/*.parquet

Without files, rows are generated. Needs `pip install ".[numpy,evaluation]"
"pyspark>=4"`, on the workers too.
"""

import itertools
import os
import sys

# Results are equal on all backends, and NumPy is always installed with Keras.
os.environ.setdefault("KERAS_BACKEND", "numpy")

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from keras_rank.evaluation import Evaluation, evaluate
from keras_rank.metrics import RankingMetrics

METRICS = ["ndcg@10", "mrr"]


def evaluate_partition(batches):
    """Yields a row per list of a partition, which is read as a stream."""
    first = next(batches, None)
    if first is not None:
        rows = itertools.chain([first], batches)
        stream = pa.RecordBatchReader.from_batches(first.schema, rows)
        yield from evaluate(stream, METRICS, item="item_id").table.to_batches()


def evaluate_on_spark(rows):
    """Evaluates a frame with the columns query_id, item_id, label and score."""
    # The schema of the result comes from a small evaluation.
    sample = pa.Table.from_pandas(rows.limit(10).toPandas(), preserve_index=False)
    schema = evaluate(sample, METRICS, item="item_id").table.schema
    lists = rows.repartition("query_id").mapInArrow(
        evaluate_partition, from_arrow_schema(schema)
    )
    table = lists.orderBy("query_id").toArrow()
    members = RankingMetrics(METRICS).members
    return Evaluation(table, metrics=members, query="query_id")


def generate(spark, queries=500, items=20):
    """Returns rows with scores that depend on the labels."""
    rows = spark.range(queries * items).selectExpr(
        f"id DIV {items} AS query_id",
        f"id % {items} AS item_id",
        "cast(4 * pow(rand(1), 3) AS int) AS label",
    )
    return rows.selectExpr("*", "label + 2 * randn(2) AS score")


def main():
    """Prints the means, and the warnings."""
    spark = SparkSession.builder.getOrCreate()
    files = sys.argv[1:]
    print(evaluate_on_spark(spark.read.parquet(*files) if files else generate(spark)))


if __name__ == "__main__":
    main()
