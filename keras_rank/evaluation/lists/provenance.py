"""How lists were evaluated: versions and ties, kept in the schema of their table."""

import json
import sys
from typing import Any

import keras
import pyarrow as pa

import keras_rank
from keras_rank.evaluation.lists.columns import NO_SCORES
from keras_rank.evaluation.lists.settings import Settings
from keras_rank.metrics.base import RankingMetric

# The key in the schema.
_KEY = b"keras_rank/made by"
_ORDERS = {
    "trec_eval": "the item whose id is larger as text comes first, as in trec_eval",
    "trec_eval-9": "the item whose id is larger as text comes first, as in trec_eval 9",
    "average": "the mean over all orders",
    False: "the earlier row comes first",
}


def stamped(table: pa.Table, settings: Settings) -> pa.Table:
    """The table, whose schema tells how it was made."""
    backend = keras.config.backend()
    versions = {
        "keras_rank": keras_rank.__version__,
        "Keras": keras.__version__,
        backend: str(sys.modules[backend].__version__),
    }
    known = table.schema.metadata or {}
    # None are tied that have no scores.
    tied = () if NO_SCORES.encode() in known else settings.metrics
    ties = {metric.name: _order_of_ties(metric, settings.ties) for metric in tied}
    made = json.dumps({"versions": versions, "ties": ties})
    return table.replace_schema_metadata({**known, _KEY: made})


def stamp_of(table: pa.Table) -> dict[str, Any]:
    """The versions, and the order of ties of each metric, if they are known."""
    found = (table.schema.metadata or {}).get(_KEY, b"{}")
    return {"versions": {}, "ties": {}, **json.loads(found)}


def _order_of_ties(metric: RankingMetric, ties: str) -> str:
    order: Any = metric.shuffle_ties if ties == "metric" else ties
    return _ORDERS.get(order) or f"shuffled, with the seed {metric.seed}"
