"""What differs between backends or devices: branches, sorts, and more.

The only file that names a backend or a device.
"""

import contextlib
import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias, TypeVar, cast

import keras
import numpy as np
from keras import ops

# Keras has no common type for the tensors of its backends.
Tensor: TypeAlias = Any
Array: TypeAlias = np.ndarray[Any, Any]

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

INT32_MIN = -(2**31)

_is_in_branch = ContextVar("is_in_branch", default=False)

# Fewer entries are sorted equally fast in any way.
_MANY_ENTRIES = 4096
# From this many entries on, NumPy and torch read them in less time than it takes to get
# memory for a copy.
_MANY_TO_COPY = 2**14
# NumPy sorts rows of this many entries sooner than it would select from them.
_SHORT_ROW = 512
# Larger constants would make the graphs of TensorFlow as large as its lists.
_LARGEST_CONSTANT = 4096
# With more entries, what is added to round sizes up would cost more than compiling.
_MANY_TO_ROUND = 2**17
# With these, XLA takes two thirds of the time on a CPU, and its code is as fast.
_QUICK_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
}


def shortcut(
    holds: Tensor | bool, short: Callable[[], Any], whole: Callable[[], Any]
) -> Any:
    """Returns `whole()`, or the same result by a shorter path if a condition holds.

    `whole` is always right. It is the only path in code compiled for an accelerator,
    where a branch makes the host wait for the device, and by `torch.compile`, which
    would compile the code around a branch in separate graphs.

    Args:
        holds: boolean scalar. Whether `short` gives the same result.
        short: function without arguments.
        whole: function without arguments.
    """
    if _is_seen(holds):
        return short() if holds else whole()
    if is_torch_compiling() or on_accelerator():
        return whole()
    return _branch(holds, _in_branch(short), _in_branch(whole))


def _in_branch(function: Callable[[], Any]) -> Callable[[], Any]:
    def branch() -> Any:
        token = _is_in_branch.set(True)
        try:
            return function()
        finally:
            _is_in_branch.reset(token)

    return branch


def is_in_branch() -> bool:
    """Whether a branch of a graph is being traced: its tensors are local to it."""
    # Which torch.compile, that traces no branches, can't look up.
    return not is_torch_compiling() and _is_in_branch.get()


def on_accelerator() -> bool:
    """Whether code is compiled for a device other than a CPU."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return bool(jax.default_backend() != "cpu")
    if backend == "tensorflow":
        import tensorflow as tf

        return any(d.device_type != "CPU" for d in tf.config.list_logical_devices())
    if backend == "torch":
        import torch

        return torch.accelerator.is_available()
    return False


def may_stall(x: Tensor) -> bool:
    """Whether an accelerator would be idle while Python reads values here."""
    return on_accelerator() and _is_seen(x)


def is_on_host(x: Tensor) -> bool:
    """Whether Python can read values without waiting: it sees them, on a CPU."""
    return _is_seen(x) and not on_accelerator()


def is_read_before_copied(x: Tensor) -> bool:
    """Whether to see first if entries need to be masked, as they are many."""
    is_eager = keras.backend.backend() in ("numpy", "torch") and is_on_host(x)
    return is_eager and math.prod(x.shape) >= _MANY_TO_COPY


def is_known_false(condition: Tensor | bool) -> bool:
    """Whether Python can see that a condition is false."""
    return _is_seen(condition) and not bool(condition)


def seen_maximum(x: Tensor, bound: Tensor | int) -> Tensor | int:
    """The maximum of integers up to a bound, or the bound where Python can't see it.

    It is rounded up to a power of two, as JAX would compile each shape again.
    """
    if not _is_seen(x):
        return bound
    x = on_host(x)
    largest = library_of(x).amax(x) if 0 not in tuple(x.shape) else 0
    return min(2 ** max(int(largest) - 1, 0).bit_length(), int(bound))


def none_of(conditions: Tensor) -> Tensor | bool:
    """Whether all are False: a bool if Python can see it, so that it is read once."""
    any_of = ops.any(conditions)
    return not any_of if _is_seen(any_of) else ops.logical_not(any_of)


def read_once(condition: Tensor | bool) -> Tensor | bool:
    """The same condition, as a bool if Python can read it without waiting."""
    return bool(condition) if is_on_host(condition) else condition


def _is_seen(condition: Tensor | bool) -> bool:
    """Whether Python can see a condition."""
    if isinstance(condition, bool):
        return True
    if isinstance(condition, keras.KerasTensor):
        return False
    if keras.backend.backend() == "torch":
        return not is_torch_compiling() and condition.device.type != "meta"
    return not is_traced(condition)


def is_traced(x: Tensor) -> bool:
    """Whether a tensor is traced, without concrete values."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return isinstance(x, jax.core.Tracer)
    if backend == "tensorflow":
        return ops.is_tensor(x) and not hasattr(x, "numpy")
    return False


def is_torch_compiling() -> bool:
    """Whether `torch.compile` traces this code."""
    if keras.backend.backend() != "torch":
        return False
    import torch

    return torch.compiler.is_compiling()


def _is_eager_on_torch() -> bool:
    return keras.backend.backend() == "torch" and not is_torch_compiling()


def _is_eager_on_tensorflow() -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return bool(tf.executing_eagerly())


def _branch(holds: Tensor, short: Callable[[], Any], whole: Callable[[], Any]) -> Any:
    if keras.backend.backend() == "jax":
        short, whole = _over_shards(holds, short), _over_shards(holds, whole)
    return ops.cond(holds, short, whole)


def _over_shards(holds: Tensor, branch: Callable[[], Any]) -> Callable[[], Any]:
    """Makes the result of a branch depend on the condition, without changing it.

    `jax.shard_map` requires that both branches vary over the same shards, and a
    constant varies over none.
    """
    nothing = ops.logical_and(holds, False)

    def varying(x: Tensor) -> Tensor:
        if x.dtype == "bool":
            return ops.logical_or(x, nothing)
        return x + ops.cast(nothing, x.dtype)

    return lambda: keras.tree.map_structure(varying, branch())


def library_of(x: Tensor) -> Any:
    """The library whose functions keep the precision of a tensor.

    Those of Keras cast float64 to float32 on NumPy and torch, and copy on NumPy.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return np
    if keras.backend.backend() == "torch" and not isinstance(x, keras.KerasTensor):
        import torch

        return torch
    return ops


def constant(value: float, like: Tensor) -> Tensor:
    """A number in the dtype of a tensor, and on its device.

    Keras gives a bare number the default precision: if that is bfloat16, integers
    become floats on JAX. On torch, it would copy the number to the device at each use,
    and on TensorFlow that takes longer than what it is used for.
    """
    if isinstance(like, np.ndarray):
        return np.asarray(value, like.dtype)
    if isinstance(like, keras.KerasTensor):
        return ops.convert_to_tensor(value, like.dtype)
    if _is_eager_on_torch():
        return _torch_constant(value, like.dtype, like.device)
    if _is_eager_on_tensorflow():
        convert = ops.convert_to_tensor
        return _made_once_on_tensorflow(convert, value, like.dtype, device=like.device)
    return ops.convert_to_tensor(value, like.dtype)


def shared_constants(numbers: Sequence[int], like: Tensor) -> Sequence[Tensor]:
    """Numbers as tensors on TensorFlow, which makes a node for each use of a number."""
    if keras.backend.backend() != "tensorflow":
        return numbers
    return [constant(number, like) for number in numbers]


@functools.lru_cache(maxsize=1024)
def _torch_constant(value: float, dtype: Any, device: Any) -> Tensor:
    import torch

    with for_any_use():
        return torch.tensor(value, dtype=dtype, device=device)


def made_once(
    function: Callable[..., Tensor], *numbers: Any, size: int, like: Tensor
) -> Tensor:
    """Returns `function(*numbers)`, computed once per device in eager code.

    That is so on torch, and for few entries on TensorFlow. In its graphs, and on an
    accelerator of JAX, the result is a constant.

    Args:
        function: function of numbers.
        *numbers: its arguments.
        size: the number of entries of the result.
        like: tensor on the device of the result.
    """
    if _is_eager_on_torch():
        return _made_once_on_torch(function, *numbers, device=like.device)
    if _is_jax_on_accelerator():
        return ops.convert_to_tensor(_made_once_on_jax(function, *numbers))
    if keras.backend.backend() == "tensorflow" and size <= _LARGEST_CONSTANT:
        if _is_eager_on_tensorflow():
            return _made_once_on_tensorflow(function, *numbers, device=like.device)
        return _constant_of_graph(function, *numbers)
    return function(*numbers)


@functools.lru_cache(maxsize=1024)
def _made_once_on_torch(
    function: Callable[..., Tensor], *numbers: Any, device: Any
) -> Tensor:
    with for_any_use():
        return function(*numbers).to(device)


@functools.lru_cache(maxsize=1024)
def _made_once_on_jax(function: Callable[..., Tensor], *numbers: Any) -> Array:
    import jax

    with jax.ensure_compile_time_eval():
        return np.asarray(jax.jit(lambda: function(*numbers))())


@functools.lru_cache(maxsize=1024)
def _made_once_on_tensorflow(
    function: Callable[..., Tensor], *numbers: Any, device: str
) -> Tensor:
    import tensorflow as tf

    with tf.device(device):
        return function(*numbers)


def _constant_of_graph(function: Callable[..., Tensor], *numbers: Any) -> Tensor:
    import tensorflow as tf

    with tf.init_scope():
        # No function surrounds a graph of TensorFlow 1.
        made = function(*numbers).numpy() if tf.executing_eagerly() else None
    return function(*numbers) if made is None else ops.convert_to_tensor(made)


def for_any_use() -> contextlib.AbstractContextManager[Any]:
    """A context in which lasting tensors are created.

    Tensors that torch creates in inference mode can be used only there: they can't be
    assigned to, nor take part in a gradient.
    """
    if keras.backend.backend() == "torch":
        import torch

        return torch.inference_mode(False)
    return contextlib.nullcontext()


def power_of_two(x: Tensor) -> Tensor:
    """Returns `2**x`. NumPy and torch have a function that takes a tenth of the time.

    It is exact for whole numbers, except for 127 on NumPy.
    """
    library = library_of(x)
    return constant(2.0, x) ** x if library is ops else library.exp2(x)


def without_gradient(x: Tensor) -> Tensor:
    """The same tensor, detached from gradients."""
    if _is_eager_on_torch() and not isinstance(x, keras.KerasTensor):
        return x.detach() if x.requires_grad else x
    return ops.stop_gradient(x)


def in_float64(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Returns `function(*tensors)`, with tensors in float64 if the device has it.

    The function may only use Python's operators, as those of Keras cast float64 to
    float32 on most backends. It returns float32, as JAX has float64 only within a
    scope. It must not use bare numbers or constants, which JAX 0.6 compiles as float32.
    """
    if keras.backend.backend() == "jax":
        import jax

        if jax.default_backend() not in ("cpu", "gpu"):
            # Otherwise a TPU rounds factors to bfloat16.
            with jax.default_matmul_precision("float32"):
                return function(*tensors)
        with _float64_on_jax():
            return function(*_as_float64(tensors))
    if keras.backend.backend() == "torch" and tensors[0].device.type == "mps":
        return function(*tensors)
    return function(*_as_float64(tensors))


def _as_float64(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    return [ops.cast(x, "float64") for x in tensors]


def _float64_on_jax() -> Any:
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    # Of older versions.
    from jax import experimental

    return experimental.enable_x64(True)  # type: ignore[attr-defined]


def parts_of_float64(x: Tensor) -> tuple[Tensor, Tensor]:
    """Splits float64 numbers into float32 ones and their rounding errors."""
    high = rounded = ops.cast(x, "float32")
    if keras.backend.backend() == "jax":
        import jax

        # XLA may drop a cast there and back.
        rounded = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=23)
    if keras.backend.backend() == "tensorflow":
        # Other backends subtract in the wider of both precisions.
        rounded = ops.cast(high, x.dtype)
    return high, ops.cast(x - rounded, "float32")


def without_warnings() -> contextlib.AbstractContextManager[Any]:
    """A context in which NumPy, like other backends, doesn't warn of NaN or inf."""
    if keras.backend.backend() == "numpy":
        return np.errstate(over="ignore", divide="ignore", invalid="ignore")
    return contextlib.nullcontext()


def may_have_nan(x: Tensor, extremes: Tensor) -> Tensor:
    """Whether a tensor may have NaN, given its minima or maxima.

    These are then NaN, except in XLA on CPU, where a maximum forgets what came before a
    NaN. A sum is NaN there, also for infinities of both signs.
    """
    if keras.backend.backend() in ("jax", "tensorflow"):
        return ops.isnan(ops.sum(x))
    return ops.any(ops.isnan(extremes))


def lowest(x: Tensor) -> Tensor:
    """The smallest entry of a tensor, or NaN if it may have NaN."""
    least = ops.amin(x)
    if keras.backend.backend() in ("jax", "tensorflow"):
        return ops.where(may_have_nan(x, least), constant(math.nan, least), least)
    return least


def without_autograph(function: Function) -> Function:
    """Stops `tf.function` from converting a function, and all that it calls.

    It would spend several seconds rewriting code that has no branches to convert.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    as_it_is: Function = tf.autograph.experimental.do_not_convert(function)
    return as_it_is


def as_tree(kind: Class) -> Class:
    """Registers a dataclass of tensors as a tree, for programs on JAX and TensorFlow.

    A program depends on the values of fields that are not tensors.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        leaves_of = jax.tree_util.tree_leaves
    elif backend == "tensorflow":
        import tensorflow as tf

        leaves_of = tf.nest.flatten
    else:
        return kind
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]

    def is_fixed(value: Any) -> bool:
        leaves = leaves_of(value)
        return bool(leaves) and all(isinstance(x, (int, str)) for x in leaves)

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values = [getattr(tree, name) for name in names]
        tensors = tuple(None if is_fixed(x) else x for x in values)
        return tensors, tuple(x if is_fixed(x) else None for x in values)

    def unflatten(fixed: tuple[Any, ...], tensors: Sequence[Any]) -> Any:
        parts = zip(names, fixed, tensors, strict=True)
        return kind(**{name: x if y is None else y for name, y, x in parts})

    if backend == "jax":
        jax.tree_util.register_pytree_node(kind, flatten, unflatten)
    else:
        # The protocol of `tf.nest`, for which nothing is registered.
        tree = cast(Any, kind)
        tree.__tf_flatten__ = lambda self: flatten(self)[::-1]
        tree.__tf_unflatten__ = staticmethod(unflatten)
    return kind


def _settings() -> tuple[bool, str]:
    """What a program depends on besides its arguments, as it may ask for it."""
    return on_accelerator(), keras.config.floatx()


def compiled_by_eager_code(
    function: Callable[..., Any],
) -> Callable[..., Any] | None:
    """Compiles a function whose first argument is hashable, on JAX; `None` elsewhere.

    For small inputs, it is compiled more quickly.
    """
    if keras.backend.backend() != "jax":
        return None
    import jax

    def keyed(key: Any, depends: Any, *tensors: Any) -> Any:
        return function(depends, *tensors)

    @functools.cache
    def compiled(is_small: bool) -> Callable[..., Any]:
        options = _known_quick_options() if is_small else None
        return jax.jit(keyed, static_argnums=(0, 1), compiler_options=options)

    def call(depends: Any, *tensors: Any) -> Any:
        key = _settings()
        is_small = not key[0] and is_of_few_shapes(*jax.tree_util.tree_leaves(tensors))
        # In a function that is being compiled, these inputs are known already.
        with jax.core.eval_context():
            return compiled(is_small)(key, depends, *tensors)

    return call


def traced_once(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Traces a function once for all graphs of TensorFlow; `None` elsewhere.

    Its first argument is hashable. Keras traces a step twice before the first batch,
    and a metric is part of several steps.
    """
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    # Of equal ones, that of the call: a metric of the first one may have changed since.
    of_call: ContextVar[Any] = ContextVar("of_call")

    def of_tensors(*tensors: Any) -> Any:
        return function(of_call.get(), *tensors)

    @functools.lru_cache(256)
    def traced(key: Any, depends: Any) -> Any:
        return tf.function(of_tensors, autograph=False)

    def as_tensor(x: Any) -> Any:
        # A number or a variable would be part of the trace. Keras's conversion returns
        # a variable as it is.
        return None if x is None else tf.convert_to_tensor(x)

    def call(depends: Any, *tensors: Any) -> Any:
        given = tf.nest.map_structure(as_tensor, tensors)
        token = of_call.set(depends)
        try:
            return traced(_settings(), depends)(*given)
        finally:
            of_call.reset(token)

    return call


def is_in_graph(tensors: Any) -> bool:
    """Whether tensors are part of a graph of TensorFlow, and not symbolic."""
    import tensorflow as tf

    return not tf.executing_eagerly() and not any(
        isinstance(x, keras.KerasTensor) for x in tf.nest.flatten(tensors)
    )


@functools.cache
def _known_quick_options() -> dict[str, Any]:
    """Those that this version of XLA has, and that `XLA_FLAGS` don't set.

    An unknown option would be an error of every call.
    """
    import jax

    flags = os.environ.get("XLA_FLAGS", "")
    nothing = jax.jit(lambda: 0).lower()
    known = {}
    for name, value in _QUICK_OPTIONS.items():
        if name in flags:
            continue
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            nothing.compile({name: value})
            known[name] = value
    return known


def runs_within_another(tensors: Any) -> bool:
    """Whether tensors are being traced on JAX, or are symbolic."""
    import jax

    unknown = jax.core.Tracer, keras.KerasTensor
    return any(isinstance(x, unknown) for x in jax.tree_util.tree_leaves(tensors))


def on_host(x: Tensor) -> Tensor:
    """On JAX on CPU, the same memory as an array, to be reshaped without compiling."""
    if not _is_jax_on_cpu() or not _is_on_one_device(x) or x.committed:
        return x
    return np.asarray(x)


def to_device(array: Array) -> Tensor:
    """An array as a tensor. On JAX, Keras's conversion would compile each shape."""
    if keras.backend.backend() != "jax":
        return ops.convert_to_tensor(array, array.dtype)
    import jax

    return jax.device_put(array)


def widest(dtype: str) -> str:
    """The dtype that a 64-bit dtype becomes: JAX has 64 bits only if enabled."""
    if keras.backend.backend() == "jax":
        import jax

        return str(jax.dtypes.canonicalize_dtype(dtype))
    if keras.backend.backend() == "torch" and dtype == "float64":
        import torch

        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None and accelerator.type == "mps":
            return "float32"
    return dtype


def frees_shared_memory() -> bool:
    """Whether a compiled step frees the memory of variables, if others use it too."""
    return bool(keras.backend.backend() == "jax")


def from_host(array: Array) -> Tensor:
    """An array as a tensor; unchanged on JAX, where programs accept arrays."""
    return array if keras.backend.backend() == "jax" else to_device(array)


def is_of_few_shapes(*tensors: Tensor) -> bool:
    """Whether sizes should be rounded up: not for large or sharded tensors."""
    if keras.backend.backend() != "jax":
        return False
    return all(
        (isinstance(x, (int, np.ndarray, np.generic)) or _is_on_one_device(x))
        and np.size(x) <= _MANY_TO_ROUND
        for x in tensors
    )


def _is_on_one_device(x: Tensor) -> bool:
    """Whether it is a JAX array on a single device."""
    import jax

    is_known = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    return is_known and len(x.devices()) == 1


def rounded(products: Tensor) -> Tensor:
    """Products that are rounded before anything is added to them.

    For some shapes, XLA would fuse both into one operation without rounding between.
    An operation that it can't recognize as a no-op prevents this.
    """
    if keras.backend.backend() != "jax":
        return products
    largest = float(np.finfo(products.dtype).max)
    return ops.minimum(products, constant(largest, products))


def computed_once(x: Tensor) -> Tensor:
    """A tensor that XLA computes once on an accelerator, not again for each use."""
    if not _is_jax_on_accelerator():
        return x
    import jax

    return jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]


def each_plus_last(numbers: Sequence[Tensor], x: Tensor) -> list[Tensor]:
    """Adds the last entry of a matrix of whole numbers to each of several numbers.

    XLA reads a single entry in a kernel of its own, but computes a maximum of all
    together with what else follows from the matrix.
    """
    if not _is_jax_on_accelerator():
        last = ops.cast(x[-1, -1], "int32")
        return [number + last for number in numbers]
    is_last, integers = np.zeros(x.shape, "bool"), ops.cast(x, "int32")
    is_last[-1, -1] = True
    lowest = constant(INT32_MIN, integers)
    return [ops.amax(ops.where(is_last, n + integers, lowest)) for n in numbers]


def added_in_halves(values: Tensor, levels: int) -> Tensor:
    """Adds the second half of each row to the first, once per level.

    XLA would merge sums along successive axes into one sum in another order.
    """
    if keras.backend.backend() != "jax":
        rows = tuple(values.shape[:-1])
        if rows.count(None) == 1:
            # In a graph, one operation where to read the size takes seven.
            rows = tuple(-1 if size is None else size for size in rows)
        else:
            rows = ops.shape(values)[:-1]
        values = ops.reshape(values, (*rows, *[2] * levels))
        for _ in range(levels):
            values = library_of(values).sum(values, axis=len(rows))
        return values
    for level in reversed(range(levels)):
        values = values[..., : 2**level] + values[..., 2**level :]
    return values[..., 0]


def sum_by_row(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Returns the sum of a function of the entries of each row, of shape `(rows,)`.

    XLA on CPU writes the entries to memory before it sums them: row by row, they share
    the same memory.
    """
    # Outside of jit, JAX would compile the map again at every call.
    if _is_jax_on_cpu() and is_traced(x) and x.shape[1] >= _MANY_ENTRIES:
        return ops.map(lambda row: ops.sum(function(row)), x)
    return ops.sum(function(x), axis=1)


def search_rows(
    in_order: Tensor,
    thresholds: Tensor,
    side: Literal["left", "right"],
    bisect: Callable[[], Tensor],
) -> Tensor:
    """Counts the entries of sorted rows below thresholds, or up to them.

    Keras's `searchsorted` searches only a single row.

    Args:
        in_order: tensor of shape `(batch, size)`, the smallest entries first.
        thresholds: tensor of shape `(batch, number)`.
        side: `"left"` to count the entries below, `"right"` to include equal ones.
        bisect: function without arguments that returns the same by bisection.

    Returns:
        An int32 tensor of the shape of the thresholds.
    """
    if keras.backend.backend() == "torch":
        import torch

        return torch.searchsorted(
            in_order.contiguous(), thresholds.contiguous(), side=side, out_int32=True
        )
    if keras.backend.backend() != "numpy":
        return bisect()
    number = np.empty(thresholds.shape, "int32")
    for row, of_row, found in zip(in_order, thresholds, number, strict=True):
        found[:] = row.searchsorted(of_row, side)
    return number


def sorts_sooner_than(comparisons: Tensor | int) -> Tensor | bool:
    """Whether sorting rows takes less time than that many comparisons.

    Measured with rows of 4,096 entries, including compilation. XLA compares with many
    thresholds in one pass.
    """
    most = {"numpy": 8, "torch": 16, "tensorflow": 16, "jax": 64}
    return comparisons > most[keras.backend.backend()]


def adds_up_anew() -> bool:
    """Whether a running sum adds a hundred or more entries for each of its entries.

    XLA does so, except on a CPU.
    """
    return keras.backend.backend() in ("jax", "tensorflow") and on_accelerator()


def bits_set(words: Tensor) -> Tensor:
    """The number of set bits of int32 numbers, where XLA `adds_up_anew`."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.lax.population_count(words)
    import tensorflow as tf

    return ops.cast(tf.raw_ops.PopulationCount(x=words), "int32")


def pads_in_one_step() -> bool:
    """Whether Keras's `pad` is one operation. It takes ten times as long on torch."""
    return bool(keras.backend.backend() == "tensorflow")


def rounds_by_column() -> bool:
    """Whether the last bit of an entry of a product depends on its column.

    OpenBLAS, which NumPy uses, adds up the columns of a matrix in different orders.
    """
    return bool(keras.backend.backend() == "numpy")


def neighbors_are_slow() -> bool:
    """Whether a maximum over a few adjacent entries takes ten times as long."""
    return bool(keras.backend.backend() == "numpy")


def size_of(x: Tensor, axis: int) -> Tensor | int:
    """The size of an axis. In a graph, Keras's `shape` would also read the others."""
    known: int | None = x.shape[axis]
    return ops.shape(x)[axis] if known is None else known


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Returns the entries of each row at positions within the row.

    Keras also handles negative positions, in seven operations on torch.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        from jax import numpy

        return numpy.take_along_axis(x, positions, 1, mode="promise_in_bounds")
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, positions, batch_dims=1)
    if backend == "torch":
        return x.gather(1, positions.long())
    # In a third of the time of `np.take_along_axis`.
    starts = x.shape[1] * np.arange(x.shape[0])[:, None]
    return np.take(x, positions + starts)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Returns the rows at the positions, in one operation on torch too."""
    if keras.backend.backend() == "torch":
        import torch

        return torch.nn.functional.embedding(rows, x)
    return ops.take(x, rows, axis=0)


def block_of_rows(x: Tensor, first: int, number: int) -> Tensor:
    """Returns consecutive rows of a tensor or an array.

    JAX would compile each Python slice again. Keras's `slice` avoids that, but warns on
    torch up to Keras 3.14.
    """
    if keras.backend.backend() == "jax" and not isinstance(x, np.ndarray):
        return ops.slice(x, [first, 0], [number, x.shape[1]])
    return x[first : first + number]


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the largest entries of each row in descending order, and their positions.

    Equal entries are in any order, and any of those equal to the last may be included.
    NaN comes first or last, by its sign on some backends.
    """
    if _is_best_sorted_whole(x, count):
        positions = _argsort_by_keys(-x)[:, :count]
        return take(x, positions), positions
    if keras.backend.backend() == "numpy":
        return _top_k_of_arrays(x, count)
    values, positions = ops.top_k(x, count)
    if keras.backend.backend() == "torch":
        return values, positions
    return _not_sliced(values, positions)


def top_values(x: Tensor, count: Tensor | int) -> Tensor:
    """Returns the largest entries of each row in descending order."""
    if _is_best_sorted_whole(x, count):
        return falling(x)[:, :count]
    if isinstance(x, np.ndarray):
        # NumPy finds them three times as fast without their positions.
        return falling(np.partition(x, -count, axis=1)[:, -count:])
    return top_k(x, count)[0]


def _not_sliced(values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """The same values, by an operation that XLA does not recognize as a no-op.

    On CPU, XLA turns a slice of TopK into a full sort, ten times slower, unless there
    is such an operation between the two. NaN stays NaN, so that it can be seen.
    """
    lowest, first = constant(-math.inf, values), constant(0, positions)
    values = ops.where(values <= lowest, lowest, values)
    return values, ops.maximum(positions, first)


def _top_k_of_arrays(x: Array, count: int) -> tuple[Array, Array]:
    """By partitioning each row, as Keras sorts whole rows on NumPy."""
    positions = np.argpartition(x, -count, axis=1)[:, -count:]
    values = np.take_along_axis(x, positions, axis=1)
    descending = np.argsort(values, axis=1)[:, ::-1]
    return (
        np.take_along_axis(values, descending, axis=1),
        np.take_along_axis(positions, descending, axis=1),
    )


def stable_argsort(x: Tensor) -> Tensor:
    """Returns the positions that sort each row; equal entries stay in their order."""
    if _is_sorted_by_numpy(x):
        return _argsort_by_keys(x)
    if keras.backend.backend() == "numpy":
        # Keras asks for NumPy's quicksort, which is not stable.
        return np.argsort(x, 1, kind="stable")
    if _is_jax_on_cpu() and x.dtype in ("float32", "int32"):
        return _argsort_by_pairs(x)
    if keras.backend.backend() == "tensorflow":
        # As TensorFlow does, where the first of equal entries comes first.
        is_float = keras.backend.is_float_dtype(x.dtype)
        return ops.top_k(-x if is_float else ~x, size_of(x, 1))[1]
    return ops.argsort(x, axis=1)


def sort_by(*keys: Tensor) -> Tensor:
    """Returns the positions that sort each row by its first key, then by the next."""
    if sorts_along():
        return sorted_along(_positions(keys[0]), *keys)
    *first, last = keys
    order = stable_argsort(last)
    for key in reversed(first):
        by_key = stable_argsort(take(key, order))
        order = take(order, by_key)
    return order


def _positions(x: Tensor) -> Tensor:
    return ops.broadcast_to(ops.arange(x.shape[1], dtype="int32"), x.shape)


def sorted_along(values: Tensor, *keys: Tensor) -> Tensor:
    """Returns the values of each row in the order of its first key, then of the next.

    On a TPU, a sort that carries them along costs as much as gathering a few entries of
    each row, and 20 to 60 times less than gathering all.
    """
    if not sorts_along():
        return take(values, sort_by(*keys))
    return _sorted_on_jax(*map(_sortable_bits, keys), values)


def _sorted_on_jax(*rows: Tensor) -> Tensor:
    """The last of several tensors, whose rows are sorted by those before it.

    A stable sort would take a TPU twice as long.
    """
    import jax

    keys = max(len(rows) - 1, 1)
    return jax.lax.sort(rows, num_keys=keys, is_stable=False)[-1]


def sorts_along() -> bool:
    """Whether to sort values along with their keys, rather than gather them."""
    return _is_jax_on_accelerator()


def descending(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the entries of each row, the largest first, and their positions.

    Equal entries are in any order.
    """
    if keras.backend.backend() in ("tensorflow", "torch"):
        # These sort entries with positions. `ops.argsort` would drop the entries.
        return top_k(x, size_of(x, 1))
    order = stable_argsort(-x)
    return take(x, order), order


def falling(x: Tensor) -> Tensor:
    """Returns the entries of each row, the largest first."""
    if keras.backend.backend() != "jax" or x.dtype not in ("float32", "int32"):
        return ops.flip(sorted_rows(x), axis=1)
    bits = ~_sorted_on_jax(~_sortable_bits(x))
    return bits if x.dtype == "int32" else _flipped(bits).view("float32")


def sorted_rows(x: Tensor) -> Tensor:
    """Returns the entries of each row, the smallest first.

    On a CPU, NumPy takes a fifth to a tenth of the time of any other.
    """
    if isinstance(x, np.ndarray):
        return np.sort(x, axis=1)
    if _is_open_to_numpy(x):
        in_order = np.sort(_as_array(x), axis=1)
        return ops.convert_to_tensor(in_order, x.dtype)
    if keras.backend.backend() != "jax" or x.dtype not in ("float32", "int32"):
        return ops.sort(x, axis=1)
    bits = _sorted_on_jax(_sortable_bits(x))
    return bits if x.dtype == "int32" else _flipped(bits).view("float32")


def sorted_pairs(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the entries of each row and their int32 keys, sorted by both.

    The smallest entries come first, and of equal ones the smallest keys. On a CPU,
    NumPy sorts them, as in `sorted_rows`.
    """
    if _is_open_to_numpy(x):
        entries = _as_array(x)
        if entries.dtype == "float32":
            pairs = _pairs_in_order(entries, _as_array(keys))
            of_pairs = pairs.astype("int32")
            pairs -= of_pairs
            pairs >>= 32
            in_order = _flipped(pairs.astype("int32")).view("float32")
            return ops.convert_to_tensor(in_order), ops.convert_to_tensor(of_pairs)
    if keras.backend.backend() == "jax":
        import jax

        in_order, of_entries = jax.lax.sort((x, keys), num_keys=2)
        return in_order, of_entries
    order = sort_by(x, keys)
    return take(x, order), take(keys, order)


def _is_sorted_by_numpy(x: Tensor) -> bool:
    """Whether NumPy sorts the rows: torch takes six times as long on a CPU."""
    backend = keras.backend.backend()
    if backend not in ("numpy", "torch") or not is_on_host(x):
        return False
    if backend == "torch" and math.prod(x.shape) < _MANY_ENTRIES:
        return False
    dtype = keras.backend.standardize_dtype(x.dtype)
    return dtype in ("float32", "int32") and _is_open_to_numpy(x)


def _is_best_sorted_whole(x: Tensor, count: Tensor | int) -> bool:
    """Whether the largest entries of rows are best found by sorting all, with NumPy."""
    if not _is_sorted_by_numpy(x):
        return False
    if keras.backend.backend() == "numpy":
        return bool(x.shape[1] <= max(_SHORT_ROW, 8 * count))
    # From 64 times as many entries on, torch orders only the largest, in a fifth of the
    # time of fewer.
    return bool(x.shape[1] < 64 * count)


def _is_open_to_numpy(x: Tensor) -> bool:
    """Whether NumPy can read a tensor without waiting."""
    if not is_on_host(x):
        return False
    if keras.backend.backend() == "torch":
        # Within `torch.func`, torch refuses that of any tensor.
        try:
            _as_array(x)
        except (RuntimeError, TypeError):
            return False
    return True


def _as_array(x: Tensor) -> Array:
    """The memory of a tensor on a CPU as an array: Keras's conversion would copy it."""
    if isinstance(x, np.ndarray):
        return x
    array: Array
    if keras.backend.backend() != "torch":
        array = ops.convert_to_numpy(x)
        return array
    # Torch refuses a tensor whose signs it has yet to change.
    x = without_gradient(x)
    array = (x.resolve_neg() if x.is_neg() else x).numpy()
    return array


def _as_tensor(x: Array) -> Tensor:
    """The reverse."""
    if keras.backend.backend() == "numpy":
        return x
    import torch

    return torch.from_numpy(x)


def _argsort_by_keys(x: Tensor) -> Tensor:
    """The positions that sort each row, where `_is_sorted_by_numpy`."""
    pairs = _pairs_in_order(_as_array(x), np.arange(x.shape[1]))
    pairs &= 0xFFFFFFFF
    return _as_tensor(pairs)


def _pairs_in_order(x: Array, keys: Array) -> Array:
    """Sorts bits with int32 keys below, in half the time of NumPy's stable argsort."""
    # In place, as new memory costs as much as the arithmetic.
    if x.dtype == "float32":
        # Turns -0.0 into 0.0, as both are equal.
        x = _flipped((x + np.float32(0.0)).view("int32"))
    pairs = x.astype("int64")
    pairs <<= 32
    pairs += keys
    pairs.sort(axis=1)
    return pairs


def _argsort_by_pairs(x: Tensor) -> Tensor:
    """The same on JAX: XLA on CPU sorts one operand five times as fast as two."""
    import jax

    if not hasattr(jax, "enable_x64"):
        # Before JAX 0.8, `vmap` forgets the scope within branches and programs.
        return ops.argsort(x, axis=1)
    pairs = ops.stack([_positions(x), _sortable_bits(x)], axis=-1)
    with _float64_on_jax():
        keys = jax.lax.bitcast_convert_type(pairs, "int64")
        keys = jax.lax.sort(keys, is_stable=False)
        pairs = jax.lax.bitcast_convert_type(keys, "int32")
    return pairs[..., 0]


def _is_jax_on_tpu() -> bool:
    if keras.backend.backend() != "jax":
        return False
    import jax

    return bool(jax.default_backend() == "tpu")


def _is_jax_on_accelerator() -> bool:
    return keras.backend.backend() == "jax" and on_accelerator()


def _is_jax_on_cpu() -> bool:
    return keras.backend.backend() == "jax" and not on_accelerator()


def _sortable_bits(x: Tensor) -> Tensor:
    """Int32 numbers in the order of float32 numbers; other numbers as they are."""
    if x.dtype != "float32":
        return x
    return _flipped(ops.where(x == 0.0, constant(0.0, x), x).view("int32"))


def _flipped(bits: Tensor) -> Tensor:
    """Flips all bits of negative numbers but the sign: its own inverse."""
    # By operators, as Keras copies its inputs on NumPy.
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def number_of_each(ids: Tensor, number: int) -> Tensor:
    """Counts how often each id from 0 to `number - 1` occurs, as int32.

    Args:
        ids: int32 tensor of any shape, from 0 on. Larger ids are not counted.
        number: the number of ids.
    """
    if isinstance(ids, np.ndarray):
        return np.bincount(ids[ids < number], minlength=number).astype("int32")
    # Not `ops.minimum`, that makes a float of the number on JAX in half precision.
    ids = ops.reshape(library_of(ids).minimum(ids, constant(number, ids)), (-1,))
    ones = ops.ones_like(ids)
    if keras.backend.backend() == "torch":
        # In one operation, which torch.compile can trace.
        return ids.new_zeros(number + 1).index_add(0, ids, ones)[:number]
    return ops.segment_sum(ones, ids, num_segments=number + 1)[:number]


def total_by_group(values: Tensor, group: Tensor) -> Tensor:
    """Returns, for each entry, the sum over its group.

    Args:
        values: tensor of shape `(batch, depth)`.
        group: int tensor of shape `(batch * depth,)`. The group of each entry.
    """
    if keras.backend.backend() == "torch":
        # Keras's segment_sum takes ten operations, one of which torch.compile can't
        # trace, and casts float64 to float32.
        totals = values.new_zeros(values.numel())
        totals = totals.index_add(0, group, values.reshape(-1))
        return totals.index_select(0, group).view(values.shape)
    if isinstance(values, np.ndarray):
        # Keras would sort the groups first.
        totals = np.bincount(group, np.ravel(values)).astype(values.dtype)
        return np.take(totals, np.reshape(group, values.shape))
    if _is_jax_on_tpu():
        return _total_by_steps(values, ops.reshape(group, values.shape))
    batch, depth = ops.shape(values)
    totals = ops.segment_sum(
        ops.reshape(values, (-1,)), group, num_segments=batch * depth
    )
    return ops.reshape(ops.take(totals, group), (batch, depth))


def _total_by_steps(values: Tensor, group: Tensor) -> Tensor:
    """The same without scatter and gather, which a TPU does entry by entry.

    In steps of 1, 2, 4, ... each entry adds those before it in its group. Then all take
    the sum of the last entry of the group.
    """
    place, depth = _positions(values), values.shape[1]
    steps = [2**i for i in range((depth - 1).bit_length())]

    def from_group(x: Tensor, step: int, otherwise: Tensor) -> Tensor:
        from_place, from_group = place - step, ops.roll(group, step, axis=1)
        is_in_row = (from_place >= 0) & (from_place < depth)
        rolled = ops.roll(x, step, axis=1)
        return ops.where(is_in_row & (from_group == group), rolled, otherwise)

    for step in steps:
        values = values + from_group(values, step, ops.zeros_like(values))
    for step in steps:
        values = from_group(values, -step, values)
    return values


def compiled(function: Callable[..., Any], *, is_ours: bool) -> Callable[..., Any]:
    """Compiles a function of tensors, on backends that are faster for it.

    Args:
        function: the function.
        is_ours: whether it has no code of a user's, which XLA might not support.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        jitted: Callable[..., Any] = jax.jit(function)
        return jitted
    if backend == "tensorflow":
        import tensorflow as tf

        graph: Callable[..., Any] = tf.function(
            function,
            # Rewriting our source would take longer than the rest of tracing.
            autograph=not is_ours,
            jit_compile=is_ours or None,
        )
        return graph
    return function


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Multiplies float32 matrices in float32, where they would be rounded."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
    elif backend == "tensorflow":
        import tensorflow as tf

        rounds = tf.config.experimental.tensor_float_32_execution_enabled()
        tf.config.experimental.enable_tensor_float_32_execution(False)
        try:
            yield
        finally:
            tf.config.experimental.enable_tensor_float_32_execution(rounds)
    elif backend == "torch":
        import torch

        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            with torch.no_grad(), _without_autocast():
                yield
        finally:
            torch.set_float32_matmul_precision(precision)
    else:
        yield


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    """Switches off `torch.autocast`, which multiplies in half precision."""
    import torch

    accelerator = torch.accelerator.current_accelerator()
    with contextlib.ExitStack() as stack:
        for device in {"cpu", accelerator.type if accelerator else "cpu"}:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    """Counts the entries of each row that are true, for each of several conditions.

    Args:
        conditions: functions without arguments that return boolean tensors of shape
            `(batch, size)`. Called one after the other, to reuse memory.
        dtype: the dtype of the counts.

    Returns:
        A tensor of shape `(batch, 1)` for each condition.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        # In one pass, as XLA reads memory once per reduction.
        entries = [ops.cast(condition(), dtype) for condition in conditions]
        zeros = [np.zeros((), dtype) for _ in entries]
        counts = jax.lax.reduce(entries, zeros, _add_each, (1,))
        return [count[:, None] for count in counts]
    if backend == "numpy":
        # Ten times as fast as a sum of numbers.
        counts = [np.count_nonzero(x(), axis=1, keepdims=True) for x in conditions]
        return [count.astype(dtype) for count in counts]
    if backend == "torch":
        return [_sum_of_bytes(x(), dtype) for x in conditions]
    return [ops.sum(ops.cast(x(), dtype), axis=1, keepdims=True) for x in conditions]


def _add_each(sums: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    return [a + b for a, b in zip(sums, others, strict=True)]


def _sum_of_bytes(conditions: Tensor, dtype: str) -> Tensor:
    """The number of true entries of each row, on torch.

    It adds bytes thirty times as fast as booleans, and another twenty times as fast if
    four bytes are read as one number. Each byte holds sums of up to 255.
    """
    import torch

    # A comparison of a transposed view has its layout.
    as_bytes = conditions.contiguous().view(torch.uint8)
    size = conditions.shape[1]
    if size >= _MANY_ENTRIES and size % 4 == 0 and not is_traced(conditions):
        some = math.gcd(size // 4, 128)
        words = as_bytes.view(torch.int32).view(-1, size // 4 // some, some)
        as_bytes = words.sum(2, dtype=torch.int32).view(torch.uint8)
    return as_bytes.sum(1, keepdim=True, dtype=getattr(torch, dtype))
