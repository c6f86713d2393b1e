"""TensorFlow: to trace takes long, and so do constants of eager code."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_rank import backends
from keras_rank.backends import branches, generic
from keras_rank.backends.generic import Class, Function, Make, Result, Tensor, Way

# Larger constants would make graphs as large as the lists.
_LARGEST_CONSTANT = 4096


def on_accelerator() -> bool:
    return any(d.device_type != "CPU" for d in tf.config.list_logical_devices())


def is_concrete(x: Tensor) -> bool:
    if isinstance(x, keras.KerasTensor):
        return False
    return hasattr(x, "numpy") or not tf.is_tensor(x)


def is_traced(*tensors: Tensor) -> bool:
    """Inputs may be constants of the traced function."""
    return not tf.executing_eagerly() or generic.is_traced(*tensors)


cached_property, kept = branches.cached_property, branches.kept


def cond(holds: Tensor, short: Way, whole: Way) -> Any:
    return ops.cond(holds, branches.forgetful(short), branches.forgetful(whole))


# The static arguments of a call. Those of an earlier, equal call may hold a metric that
# has changed since.
_static: ContextVar[dict[str, Any]] = ContextVar("static")


def enter(function: Callable[..., Result], /, *tensors: Any, **static: Any) -> Result:
    """Keras traces a step twice before the first batch, with a metric in several steps.

    So a function is traced once for all graphs that call it.
    """
    if not tf.compat.v1.executing_eagerly_outside_functions():
        # There `==` compares tensors by identity: no items would be tied.
        raise RuntimeError(
            "Metrics should be called in eager code or in a `tf.function`. Received: "
            "a call in a `tf.Graph` that no function surrounds"
        )
    leaves = tf.nest.flatten(tensors)
    is_symbolic = any(isinstance(x, keras.KerasTensor) for x in leaves)
    runs_here = tf.executing_eagerly() or is_symbolic
    if runs_here or not generic.is_ours(*static.values()):
        return function(*tensors, **static)
    key = backends.backend.on_accelerator(), keras.config.floatx()
    token = _static.set(static)
    try:
        given = tf.nest.map_structure(_as_tensor, tensors)
        result: Result = _program(function, key, tuple(static.items()))(*given)
        return result
    finally:
        _static.reset(token)


@functools.lru_cache(1024)
def _program(function: Callable[..., Any], key: Any, static: Any) -> Callable[..., Any]:
    graph: Callable[..., Any] = tf.function(
        lambda *tensors: function(*tensors, **_static.get()), autograph=False
    )
    return graph


def _as_tensor(x: Any) -> Any:
    # A number or a variable would be part of the trace. Keras's conversion returns a
    # variable as it is.
    return None if x is None else tf.convert_to_tensor(x)


def layer_mask(x: Any) -> Tensor | None:
    """TensorFlow is slow to report a missing attribute."""
    return getattr(x, "__dict__", {}).get("_keras_mask")


def register_tree(kind: Class) -> Class:
    """By the protocol of `tf.nest`, for which nothing is registered."""
    flatten, unflatten = generic.parts_of(kind, tf.nest.flatten)
    tree = cast(Any, kind)
    tree.__tf_flatten__ = lambda self: flatten(self)[::-1]
    tree.__tf_unflatten__ = staticmethod(unflatten)
    return kind


def compiled(function: Callable[..., Any], *, is_ours: bool) -> Callable[..., Any]:
    graph: Callable[..., Any] = tf.function(
        function, autograph=not is_ours, jit_compile=is_ours or None
    )
    return graph


def without_autograph(function: Function) -> Function:
    """It would spend several seconds rewriting code that has no branches to convert."""
    as_it_is: Function = tf.autograph.experimental.do_not_convert(function)
    return as_it_is


def constant(value: float, like: Tensor) -> Tensor:
    """In eager code, to make one takes longer than what it is used for."""
    if not (tf.is_tensor(like) and tf.executing_eagerly()):
        return generic.constant(value, like)
    return _made_once(ops.convert_to_tensor, value, like.dtype, device=like.device)


def made_once(make: Make, *numbers: Any, size: int, like: Tensor) -> Tensor:
    """In a graph, as a constant."""
    if size > _LARGEST_CONSTANT:
        return make(*numbers)
    if tf.executing_eagerly():
        return _made_once(make, *numbers, device=like.device)
    with tf.init_scope():
        made = make(*numbers).numpy()
    return ops.convert_to_tensor(made)


@functools.lru_cache(maxsize=1024)
def _made_once(make: Make, *numbers: Any, device: str) -> Tensor:
    with tf.device(device):
        return make(*numbers)


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    rounds = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(rounds)


def tree_sum(values: Tensor, levels: int) -> Tensor:
    """In one operation for each level, where to read a size takes seven."""
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


def popcount(words: Tensor) -> Tensor:
    return ops.cast(tf.raw_ops.PopulationCount(x=words), "int32")


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Keras also handles negative positions."""
    return tf.gather(x, positions, batch_dims=1)


def argsort(x: Tensor) -> Tensor:
    """`top_k` takes the first of equal entries first."""
    is_float = keras.backend.is_float_dtype(x.dtype)
    size = ops.shape(x)[1] if x.shape[1] is None else x.shape[1]
    return ops.top_k(-x if is_float else ~x, size)[1]


def sort(x: Tensor) -> Tensor:
    """In eager code on a CPU, NumPy takes a fifth to a tenth of the time."""
    if is_concrete(x) and not backends.backend.on_accelerator():
        return ops.convert_to_tensor(np.sort(x.numpy(), axis=1))
    return ops.sort(x, axis=1)
