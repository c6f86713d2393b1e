"""Utilities to export and merge the states of metrics."""

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

    `merge_state` adds the state to another metric, which may be in another process, on
    another machine or on another backend. The keys start with the name of the metric:
    `"ndcg_at_10/totals"` and `"ndcg_at_10/remainders"` hold the sums, and
    `"ndcg_at_10/lists_seen"` holds the number of lists. For a group, the result has the
    states of all members.

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
    return _export(metric)


def _export(metric: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the state of a metric, even if the metric was passed to a group."""
    return {
        name: np.array(ops.convert_to_numpy(variable)[index])
        for name, (variable, index) in _locate_parts(metric).items()
    }


def _locate_parts(metric: Any) -> dict[str, tuple[keras.Variable, Any]]:
    """Returns the variable and the index of each part of the state, by name.

    The members of a group share variables, so each member has an index. The names are
    the same in every process, which the paths of variables are not.
    """
    if not isinstance(metric, RankingMetrics):
        if isinstance(metric, ScoreMetric):
            metric._check_has_sums("merge_state")
        return {f"{metric.name}/{x.name}": (x, ...) for x in metric.variables}
    return {
        f"{metric.prefix}{member.name}/{variable.name}": (variable, index)
        for member in metric.members
        for variable, index in [
            *metric._find_sums(member),
            *((variable, ...) for variable in member.variables),
        ]
    }


def merge_state(
    metric: keras.metrics.Metric,
    others: Iterable[keras.metrics.Metric | Mapping[str, np.ndarray[Any, Any]]],
) -> keras.metrics.Metric:
    """Adds the states of other metrics to the state of a metric.

    The result is exactly that of a single metric which has been updated with all lists.
    The other metrics may be those of workers on other machines, for example.

    Args:
        metric: a ranking metric, or a group. It is updated.
        others: list of metrics of the same class and configuration, except for names
            and seeds, or list of states that `export_state` returned for metrics of the
            same names. A state holds names and sums, but no configuration, such as a
            gain or a discount: make sure that the exported metric had the same
            configuration.

    Returns:
        The metric.

    Raises:
        ValueError: if a metric has a different class or configuration, a state has
            different names or shapes, or `others` is not a list.

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
    # All states are checked and copied before any state is added.
    states = [_read_values(metric, other) for other in others]
    parts = _locate_parts(metric)
    variables = {id(variable): variable for variable, _ in parts.values()}.values()
    if isinstance(metric, ScoreMetric):
        metric._has_group_copy = False
    for values in states:
        added = {id(x): np.zeros_like(ops.convert_to_numpy(x)) for x in variables}
        for (variable, index), value in zip(parts.values(), values, strict=True):
            added[id(variable)][index] = value
        new_values = [_add(x, added[id(x)]) for x in variables]
        for variable, new_value in zip(variables, new_values, strict=True):
            variable.assign(new_value)
    return metric


def _add(variable: keras.Variable, value: np.ndarray[Any, Any]) -> Tensor:
    """Returns the sum of a variable and a value."""
    added = ops.convert_to_tensor(value, variable.dtype)
    is_totals = tuple(variable.shape)[: len(state.SHAPE)] == state.SHAPE
    return state.merge(variable.value, added) if is_totals else variable + added


def _read_values(metric: Any, other: Any) -> list[Any]:
    """Returns the values of another metric or state, in the order of `_locate_parts`.

    Raises:
        ValueError: if the other metric or state does not match the metric.
    """
    if isinstance(other, Mapping):
        expected = {name: value.shape for name, value in _export(metric).items()}
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
    config, other_config = (
        _drop_names_and_seeds(x.get_config()) for x in (metric, other)
    )
    if type(metric) is not type(other) or config != other_config:
        raise ValueError(
            "`others` should be metrics of the same class and configuration as "
            f"`metric`, {type(metric).__name__} with {config}. "
            f"Received: {type(other).__name__} with {other_config}"
        )
    return list(export_state(other).values())


def _drop_names_and_seeds(config: Any) -> Any:
    if isinstance(config, list):
        return [_drop_names_and_seeds(part) for part in config]
    if not isinstance(config, dict):
        return config
    items = ((k, v) for k, v in config.items() if k not in ("name", "seed"))
    return {key: _drop_names_and_seeds(value) for key, value in items}
