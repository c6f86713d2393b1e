"""Functions for TensorFlow, where tracing and constants of eager code take long."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_rank import backends
from keras_rank.backends import branches, generic
from keras_rank.backends.generic import (
    Branch,
    Class,
    Function,
    Result,
    Tensor,
    TensorFactory,
)

# Graphs with larger constants would become as large as the lists.
_LARGEST_CONSTANT = 4096
# Shorter rows are counted equally fast as numbers and as bytes.
_MIN_LARGE_SIZE = 4096


def on_accelerator() -> bool:
    return any(d.device_type != "CPU" for d in tf.config.list_logical_devices())


def is_concrete(x: Tensor) -> bool:
    if isinstance(x, keras.KerasTensor):
        return False
    return hasattr(x, "numpy") or not tf.is_tensor(x)


def is_traced(*tensors: Tensor) -> bool:
    """Checks the mode too, as inputs may be constants of the traced function."""
    return not tf.executing_eagerly() or generic.is_traced(*tensors)


cached_property, compute_once = branches.cached_property, branches.compute_once


def cond(condition: Tensor, fast_path: Branch, full_path: Branch) -> Any:
    return ops.cond(
        condition, branches.isolate_cache(fast_path), branches.isolate_cache(full_path)
    )


# The static arguments of the current call. Arguments of an earlier call that are equal
# may contain a metric that has changed since.
_static_arguments: ContextVar[dict[str, Any]] = ContextVar("static")


def run_program(
    function: Callable[..., Result], /, *tensors: Any, **static: Any
) -> Result:
    """Traces the function once for all graphs that call it.

    Keras traces a step twice before the first batch, and several steps may use the same
    metric.
    """
    if not tf.compat.v1.executing_eagerly_outside_functions():
        # `==` compares tensors by identity in such graphs, so no items would be tied.
        raise RuntimeError(
            "Metrics should be called in eager code or in a `tf.function`. Received: "
            "a call in a `tf.Graph` that no function surrounds"
        )
    leaves = tf.nest.flatten(tensors)
    is_symbolic = any(isinstance(x, keras.KerasTensor) for x in leaves)
    should_call = tf.executing_eagerly() or is_symbolic
    if should_call or not generic.is_compilable(*static.values()):
        return function(*tensors, **static)
    key = backends.backend.on_accelerator(), keras.config.floatx()
    token = _static_arguments.set(static)
    try:
        inputs = tf.nest.map_structure(_as_tensor, tensors)
        result: Result = _compile_program(function, key, tuple(static.items()))(*inputs)
        return result
    finally:
        _static_arguments.reset(token)


@functools.lru_cache(1024)
def _compile_program(
    function: Callable[..., Any], key: Any, static: Any
) -> Callable[..., Any]:
    graph: Callable[..., Any] = tf.function(
        lambda *tensors: function(*tensors, **_static_arguments.get()), autograph=False
    )
    return graph


def _as_tensor(x: Any) -> Any:
    # A number or a variable would become a part of the traced graph. The conversion of
    # Keras returns variables unchanged.
    return None if x is None else tf.convert_to_tensor(x)


def get_layer_mask(x: Any) -> Tensor | None:
    """Reads `__dict__`, as TensorFlow is slow to report a missing attribute."""
    return getattr(x, "__dict__", {}).get("_keras_mask")


def register_tree(kind: Class) -> Class:
    """Adds the methods of the protocol of `tf.nest`, which has no registry."""
    flatten, unflatten = generic.make_tree_functions(kind, tf.nest.flatten)
    tree = cast(Any, kind)
    tree.__tf_flatten__ = lambda self: flatten(self)[::-1]
    tree.__tf_unflatten__ = staticmethod(unflatten)
    return kind


def compile_function(
    function: Callable[..., Any], *, is_package_code: bool
) -> Callable[..., Any]:
    graph: Callable[..., Any] = tf.function(
        function, autograph=not is_package_code, jit_compile=is_package_code or None
    )
    return graph


def without_autograph(function: Function) -> Function:
    """Disables AutoGraph, which would spend seconds on code without branches."""
    unconverted: Function = tf.autograph.experimental.do_not_convert(function)
    return unconverted


def constant(value: float, like: Tensor) -> Tensor:
    """Caches constants, as eager code creates one more slowly than it uses it."""
    if not (tf.is_tensor(like) and tf.executing_eagerly()):
        return generic.constant(value, like)
    return _cached_constant(
        ops.convert_to_tensor, value, like.dtype, device=like.device
    )


def cached_constant(
    make: TensorFactory, *numbers: Any, size: int, like: Tensor
) -> Tensor:
    """Caches small results, which become constants of graphs."""
    if size > _LARGEST_CONSTANT:
        return make(*numbers)
    if tf.executing_eagerly():
        return _cached_constant(make, *numbers, device=like.device)
    with tf.init_scope():
        array = make(*numbers).numpy()
    return ops.convert_to_tensor(array)


@functools.lru_cache(maxsize=1024)
def _cached_constant(make: TensorFactory, *numbers: Any, device: str) -> Tensor:
    with tf.device(device):
        return make(*numbers)


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    was_enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(was_enabled)


def tree_sum(values: Tensor, levels: int) -> Tensor:
    """Sums with one operation per level.

    Reading a dynamic size takes seven operations, so a single unknown size becomes -1.
    """
    rows = tuple(values.shape[:-1])
    if rows.count(None) == 1:
        rows = tuple(-1 if size is None else size for size in rows)
    else:
        rows = ops.shape(values)[:-1]
    values = ops.reshape(values, (*rows, *[2] * levels))
    for _ in range(levels):
        values = ops.sum(values, axis=len(rows))
    return values


def running_total(x: Tensor) -> Tensor:
    return tf.cast(tf.cumsum(tf.cast(x, "float64"), axis=-1), x.dtype)


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    return [_count_true_bytes(x(), dtype) for x in conditions]


def _count_true_bytes(conditions: Tensor, dtype: str) -> Tensor:
    """Counts the true entries of each row.

    Long rows are summed as bytes, which takes a third of the time of numbers of four
    bytes. Each byte of a sum holds counts of up to 255.
    """
    size = conditions.shape[1] or 0
    group_size = 1 if size < _MIN_LARGE_SIZE else _find_group_size(size)
    if group_size == 1 or backends.backend.on_accelerator():
        return generic.count_true([lambda: conditions], dtype)[0]
    groups = (-1, size // group_size, group_size)
    summands = tf.reshape(tf.cast(conditions, "uint8"), groups)
    counts = tf.cast(tf.reduce_sum(summands, axis=2), dtype)
    return tf.reduce_sum(counts, axis=1, keepdims=True)


@functools.cache
def _find_group_size(size: int) -> int:
    """Returns the largest divisor of a size that is at most 255."""
    return max(x for x in range(1, 256) if size % x == 0)


def popcount(words: Tensor) -> Tensor:
    return ops.cast(tf.raw_ops.PopulationCount(x=words), "int32")


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Skips the handling of negative positions in Keras."""
    return tf.gather(x, positions, batch_dims=1)


def argsort(x: Tensor) -> Tensor:
    """Uses `top_k`, which returns equal entries in their original order."""
    is_float = keras.backend.is_float_dtype(x.dtype)
    size = ops.shape(x)[1] if x.shape[1] is None else x.shape[1]
    return ops.top_k(-x if is_float else ~x, size)[1]


def sort(x: Tensor) -> Tensor:
    """Uses NumPy in eager code on a CPU, in a fifth to a tenth of the time."""
    if is_concrete(x) and not backends.backend.on_accelerator():
        return ops.convert_to_tensor(np.sort(x.numpy(), axis=1))
    return ops.sort(x, axis=1)
