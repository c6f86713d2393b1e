"""Names of the columns of a table with one row per list."""

from collections.abc import Sequence

from keras_rank.ranking.base import Ties

# The weight of a list for all metrics, and the weight for a single metric if weights
# differ by metric.
WEIGHT = "weight"
METRIC_WEIGHT = "{}_weight"
# The prefix of the columns of health.
HEALTH = "health/"
# The value of a metric with one of the orders of tied items.
SPREAD = HEALTH + "{}/{}"
# Whether a list has relevant items for a metric.
RELEVANT = HEALTH + "{}/relevant"
# The rules of a table of the agreement of two runs, which has no judgments.
AGREEMENT = "agreement"
ORDERS: tuple[Ties, ...] = ("worst", "average", "best")
# The kept items of a list.
ITEMS = HEALTH + "kept items"
# The number of rows of a list that were left out as padding. The column exists with
# `unjudged="drop"`.
PADDING = HEALTH + "padding"
# The number of left-out rows with a label below 0 other than -1. The column exists if a
# metric compares labels with each other.
NEGATIVE = HEALTH + "negative"
# The sum of the labels of a list. Different sums reveal different judgments.
LABEL_SUM = "label sum"
# The number of labels of a list above 0 other than 1. The gain function matters to
# these labels alone.
GRADED = "graded labels"
# The number of queries that were left out, and a checksum of the definitions of the
# metrics. They are columns, so that a concatenation of tables has the sum of the
# numbers, and different checksums reveal different definitions.
LEFT_OUT = HEALTH + "left out"
DEFINITION = HEALTH + "definition"
# Keys in the metadata of the schema: the warnings of reading, and the marker of a run
# whose items are in order but have no scores.
READING = "reading"
NO_SCORES = "no scores"


def require_distinct_names(names: Sequence[str], metrics: Sequence[str]) -> None:
    """Raises `ValueError` if two columns of the result would have the same name.

    Args:
        names: the names of all columns except the columns of weights and health.
        metrics: the names of the metrics among them.
    """
    weights = [WEIGHT, *map(METRIC_WEIGHT.format, metrics)]
    for name in names:
        suffix = " twice" * (names.count(name) > 1)
        if suffix or name in weights or name.startswith(HEALTH):
            weight_names = ", ".join(f'"{each}"' for each in weights)
            raise ValueError(
                "`query`, `keep` and `metrics` should have distinct names, as all "
                f"become columns of the result. It also has {weight_names} and columns "
                f'that start with "{HEALTH}". Received: {name!r}{suffix}'
            )
