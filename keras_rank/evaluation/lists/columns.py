"""The names of the columns of a table with a row for each list."""

from collections.abc import Sequence

from keras_rank.ordering.preference import Ties

# The weight of a list, where all metrics agree on it, and else that to each of them.
WEIGHT = "weight"
OWN_WEIGHT = "{}_weight"
# What the columns of health have before their names.
HEALTH = "health/"
# The column of a metric with one of the orders of tied items that its spread is over.
SPREAD = HEALTH + "{}/{}"
ORDERS: dict[str, Ties] = {"worst": "stable", "average": "average", "best": "stable"}
# How many queries were left out, and what the metrics compute: columns, so that the one
# adds up in a concatenation of tables, and the other shows where they differ.
LEFT_OUT = HEALTH + "left out"
DEFINITION = HEALTH + "definition"


def require_free_names(names: Sequence[str], metrics: Sequence[str]) -> None:
    """Raises where two columns of a table with a row for each list would be one.

    Args:
        names: the names of all columns but those of weights and health.
        metrics: those of the metrics among them.
    """
    weights = [WEIGHT, *map(OWN_WEIGHT.format, metrics)]
    for name in names:
        twice = " twice" * (names.count(name) > 1)
        if twice or name in weights or name.startswith(HEALTH):
            others = ", ".join(f'"{each}"' for each in weights)
            raise ValueError(
                "`query`, `keep` and `metrics` should have distinct names, as all "
                f"become columns of the result. Others there are {others} and those "
                f'that start with "{HEALTH}". Received: {name!r}{twice}'
            )
