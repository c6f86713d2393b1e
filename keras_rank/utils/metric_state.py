"""Exports the state of a metric, and merges states."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank import state
from keras_rank.backends import Tensor
from keras_rank.metrics import RankingMetrics
from keras_rank.metrics.base import ScoreMetric


def export_state(metric: keras.metrics.Metric) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the state of a metric as NumPy arrays, to be sent or saved.

    `merge_state` adds it to another metric, in another process, on another machine or
    another backend. The keys start with the name of the metric: `"ndcg_at_10/totals"`
    and `"ndcg_at_10/remainders"` hold the sums, `"ndcg_at_10/lists_seen"` the number of
    lists. A group exports the states of all its members.

    Args:
        metric: a ranking metric, or a group.

    Returns:
        A dict from names to NumPy arrays, which are copies.

    Example:

    >>> metric = keras_rank.metrics.NDCG(k=10)
    >>> metric.update_state([[1, 0]], [[0.9, 0.1]])
    >>> state = keras_rank.utils.export_state(metric)
    >>> list(state)
    ['ndcg_at_10/totals', 'ndcg_at_10/remainders', 'ndcg_at_10/lists_seen']
    """
    if isinstance(metric, ScoreMetric):
        metric._check_has_sums("export_state", reads=True)
    return _exported(metric)


def _exported(metric: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the state of a metric, also that of one which was given to a group."""
    return {
        name: np.array(ops.convert_to_numpy(variable)[index])
        for name, (variable, index) in _places(metric).items()
    }


def _places(metric: Any) -> dict[str, tuple[keras.Variable, Any]]:
    """The variables, and what indexes the part of each member, by names.

    Unlike paths, the names are the same in any process.
    """
    if not isinstance(metric, RankingMetrics):
        if isinstance(metric, ScoreMetric):
            metric._check_has_sums("merge_state")
        return {f"{metric.name}/{x.name}": (x, ...) for x in metric.variables}
    return {
        f"{metric.prefix}{member.name}/{variable.name}": (variable, index)
        for member in metric.members
        for variable, index in [
            *metric._sums_of(member),
            *((variable, ...) for variable in member.variables),
        ]
    }


def merge_state(
    metric: keras.metrics.Metric,
    others: Iterable[keras.metrics.Metric | Mapping[str, np.ndarray[Any, Any]]],
) -> keras.metrics.Metric:
    """Adds the states of other metrics to that of a metric.

    The result is exactly that of one metric that has seen all lists, such as those of
    workers on other machines.

    Args:
        metric: a ranking metric, or a group. It is updated.
        others: list of metrics of the same class and configuration, except for names
            and seeds, or of states that `export_state` returned for metrics of the same
            names. A state holds names and sums, but no configuration, such as a gain
            or a discount: make sure that its metric had the same one.

    Returns:
        The metric.

    Raises:
        ValueError: if a metric has another class or configuration, a state has other
            names or shapes, or `others` is not a list.

    Example:

    >>> first, second = keras_rank.metrics.NDCG(seed=1), keras_rank.metrics.NDCG(seed=1)
    >>> first.update_state([[1, 0]], [[0.9, 0.1]])
    >>> second.update_state([[1, 0], [0, 0]], [[0.9, 0.1], [0.9, 0.1]])
    >>> metric = keras_rank.utils.merge_state(first, [second])
    >>> f"{float(metric.result()):.4f}"
    '0.6667'
    >>> state = keras_rank.utils.export_state(metric)
    >>> restored = keras_rank.utils.merge_state(keras_rank.metrics.NDCG(), [state])
    >>> f"{float(restored.result()):.4f}"
    '0.6667'
    """
    if isinstance(others, Mapping | keras.metrics.Metric):
        raise ValueError(
            "`others` should be a list of metrics or states. Received: a single "
            f"{type(others).__name__}"
        )
    # All are checked and copied before any is added.
    states = [_values(metric, other) for other in others]
    places = _places(metric)
    variables = {id(variable): variable for variable, _ in places.values()}.values()
    if isinstance(metric, ScoreMetric):
        metric._was_given = False
    for values in states:
        added = {id(x): np.zeros_like(ops.convert_to_numpy(x)) for x in variables}
        for (variable, index), value in zip(places.values(), values, strict=True):
            added[id(variable)][index] = value
        new_values = [_sum_of(x, added[id(x)]) for x in variables]
        for variable, new_value in zip(variables, new_values, strict=True):
            variable.assign(new_value)
    return metric


def _sum_of(variable: keras.Variable, value: np.ndarray[Any, Any]) -> Tensor:
    added = ops.convert_to_tensor(value, variable.dtype)
    is_totals = tuple(variable.shape)[: len(state.SHAPE)] == state.SHAPE
    return state.merge(variable.value, added) if is_totals else variable + added


def _values(metric: Any, other: Any) -> list[Any]:
    """Returns the values to add to the variables of a metric, in their order."""
    if isinstance(other, Mapping):
        expected = {name: value.shape for name, value in _exported(metric).items()}
        received = {name: np.shape(value) for name, value in other.items()}
        if received != expected:
            is_old = any(
                name.endswith("/totals") and received.get(name, shape) != shape
                for name, shape in expected.items()
            )
            raise ValueError(
                "`others` should be metrics, or states with the names and shapes that "
                f"`metric` has: {expected}. Received: {received}"
                + ", as an older version exports them, without the sums of a standard "
                "error: export them again" * is_old
            )
        return [other[name] for name in expected]
    if not isinstance(other, keras.metrics.Metric):
        raise ValueError(
            "`others` should hold metrics or states. Received: an element of type "
            f"{type(other).__name__}"
        )
    # Names and seeds may differ.
    mine, its = (_without_names_and_seeds(x.get_config()) for x in (metric, other))
    if type(metric) is not type(other) or mine != its:
        raise ValueError(
            "`others` should be metrics of the same class and configuration as "
            f"`metric`, {type(metric).__name__} with {mine}. "
            f"Received: {type(other).__name__} with {its}"
        )
    return list(export_state(other).values())


def _without_names_and_seeds(config: Any) -> Any:
    if isinstance(config, list):
        return [_without_names_and_seeds(part) for part in config]
    if not isinstance(config, dict):
        return config
    items = ((k, v) for k, v in config.items() if k not in ("name", "seed"))
    return {key: _without_names_and_seeds(value) for key, value in items}
