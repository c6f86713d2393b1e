"""The names of the columns of a table with one row per list."""

from collections.abc import Sequence

from keras_rank.ranking.base import Ties

# The weight of a list, if all metrics agree on it, and otherwise that of each metric.
WEIGHT = "weight"
OWN_WEIGHT = "{}_weight"
# The prefix of the columns of health.
HEALTH = "health/"
# The column of a metric with one of the orders of tied items.
SPREAD = HEALTH + "{}/{}"
# Whether a list has relevant items for a metric.
RELEVANT = HEALTH + "{}/relevant"
ORDERS: tuple[Ties, ...] = ("worst", "average", "best")
# The items of a list that are kept.
ITEMS = HEALTH + "kept items"
# The number of rows of a list that were left out, if the rule is to leave them out.
PADDING = HEALTH + "padding"
# The number of these with a label below 0, if labels are compared with each other.
NEGATIVE = HEALTH + "negative"
# The sum of the labels of a list, in which other judgments show.
LABEL_SUM = "label sum"
# The number of labels of a list other than 0 and 1, on which gains have an effect.
GRADED = "graded labels"
# The number of queries that were left out, and the definitions of the metrics. They are
# columns so that in a concatenation of tables the former adds up, and the latter shows
# differences.
LEFT_OUT = HEALTH + "left out"
DEFINITION = HEALTH + "definition"
# What the schema has for warnings of reading, and for a run of ids in order.
READING = "reading"
NO_SCORES = "no scores"


def require_free_names(names: Sequence[str], metrics: Sequence[str]) -> None:
    """Raises if two columns of a table with one row per list had the same name.

    Args:
        names: the names of all columns except those of weights and health.
        metrics: the names of the metrics among them.
    """
    weights = [WEIGHT, *map(OWN_WEIGHT.format, metrics)]
    for name in names:
        twice = " twice" * (names.count(name) > 1)
        if twice or name in weights or name.startswith(HEALTH):
            others = ", ".join(f'"{each}"' for each in weights)
            raise ValueError(
                "`query`, `keep` and `metrics` should have distinct names, as all "
                f"become columns of the result. It also has {others} and columns "
                f'that start with "{HEALTH}". Received: {name!r}{twice}'
            )
