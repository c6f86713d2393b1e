"""Functions for JAX, which compiles eager calls, and for the costs of XLA."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import keras
import numpy as np
from jax import numpy as jnp
from keras import ops

from keras_rank import backends
from keras_rank.backends import branches, generic
from keras_rank.backends.generic import (
    Array,
    Branch,
    Class,
    Pair,
    Result,
    Tensor,
    TensorFactory,
)

# XLA compares rows with many thresholds in one pass.
MAX_COMPARISONS = 64

# Maximum number of entries of arrays whose sizes are rounded up: for larger arrays, the
# padding costs more than compiling.
_MAX_SIZE_TO_BUCKET = 2**17
# XLA compiles in two thirds of the time on a CPU with these options, and its code is as
# fast.
_FAST_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
}
# The types of tensors without values: traced and symbolic tensors.
_ABSTRACT_TYPES = jax.core.Tracer, keras.KerasTensor


def on_accelerator() -> bool:
    return bool(jax.default_backend() != "cpu")


def is_concrete(x: Tensor) -> bool:
    return not isinstance(x, _ABSTRACT_TYPES)


def is_traced(*tensors: Tensor) -> bool:
    """Checks a new tensor too, as inputs may be constants of the traced function."""
    return generic.is_traced(*tensors, jnp.zeros(()))


cached_property, compute_once = branches.cached_property, branches.compute_once


def cond(condition: Tensor, fast_path: Branch, full_path: Branch) -> Any:
    paths = (
        _vary_over_shards(condition, branches.isolate_cache(path))
        for path in (fast_path, full_path)
    )
    return ops.cond(condition, *paths)


def _vary_over_shards(
    condition: Tensor, function: Callable[[], Any]
) -> Callable[[], Any]:
    """Makes the result of a branch depend on the condition, without changing values.

    `jax.shard_map` requires that both branches vary over the same shards, and a
    constant varies over none.
    """
    false = ops.logical_and(condition, False)

    def add_dependence(x: Tensor) -> Tensor:
        if x.dtype == "bool":
            return ops.logical_or(x, false)
        return x + ops.cast(false, x.dtype)

    return lambda: keras.tree.map_structure(add_dependence, function())


# The conditions that the program being traced requires, by their messages.
_required_conditions: ContextVar[dict[str, Tensor] | None] = ContextVar(
    "required", default=None
)


def require(condition: Tensor | bool, message: str) -> None:
    """Adds a condition in a program to its outputs, which are read once."""
    conditions = _required_conditions.get()
    if conditions is not None and generic.read_condition(condition) is None:
        earlier = conditions.get(message)
        merged = condition if earlier is None else ops.logical_and(condition, earlier)
        conditions[message] = merged
    generic.require(condition, message)


def run_program(
    function: Callable[..., Result], /, *tensors: Any, **static: Any
) -> Result:
    """Compiles the function as one program, which is cached by the static arguments.

    JAX would otherwise compile each operation of eager code for each shape. Programs
    for small inputs are compiled with options that save time.
    """
    leaves = jax.tree_util.tree_leaves(tensors)
    is_traced = any(isinstance(x, _ABSTRACT_TYPES) for x in leaves)
    if is_traced or not generic.is_compilable(*static.values()):
        return function(*tensors, **static)
    key = backends.backend.on_accelerator(), keras.config.floatx()
    program = _compile_program(function, not key[0] and should_bucket(*leaves))
    # The inputs are concrete, even if a function of the user is being compiled.
    with jax.core.eval_context():
        result: Result
        result, conditions = program(key, tuple(static.items()), *tensors)
        for message, condition in conditions.items():
            if generic.read_condition(condition) is False:
                # Operations outside a program raise errors that report values.
                function(*tensors, **static)
            generic.require(condition, message)
    return result


@functools.cache
def _compile_program(
    function: Callable[..., Any], is_small: bool
) -> Callable[..., Any]:
    def call_with_conditions(key: Any, static: Any, *tensors: Any) -> tuple[Any, Any]:
        conditions = dict[str, Tensor]()
        token = _required_conditions.set(conditions)
        try:
            return function(*tensors, **dict(static)), conditions
        finally:
            _required_conditions.reset(token)

    options = _supported_fast_options() if is_small else None
    return jax.jit(
        call_with_conditions, static_argnums=(0, 1), compiler_options=options
    )


@functools.cache
def _supported_fast_options() -> dict[str, Any]:
    """Returns the options that this version of XLA supports and `XLA_FLAGS` don't set.

    Every call would fail with an unknown option.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    empty_program = jax.jit(lambda: 0).lower()
    options = {}
    for name, value in _FAST_OPTIONS.items():
        if name in flags:
            continue
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            empty_program.compile({name: value})
            options[name] = value
    return options


def register_tree(kind: Class) -> Class:
    flatten, unflatten = generic.make_tree_functions(kind, jax.tree_util.tree_leaves)
    jax.tree_util.register_pytree_node(kind, flatten, unflatten)
    return kind


def compile_function(
    function: Callable[..., Any], *, is_package_code: bool
) -> Callable[..., Any]:
    jitted: Callable[..., Any] = jax.jit(function)
    return jitted


def should_bucket(*tensors: Tensor) -> bool:
    """Returns False for large or sharded tensors."""
    return all(
        (isinstance(x, int | np.ndarray | np.generic) or _is_on_one_device(x))
        and np.size(x) <= _MAX_SIZE_TO_BUCKET
        for x in tensors
    )


def _is_on_one_device(x: Tensor) -> bool:
    has_values = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    return has_values and len(x.devices()) == 1


def has_buffer_donation() -> bool:
    return True


def get_layer_mask(x: Any) -> Tensor | None:
    """Reads the attribute of Keras, which only traced tensors cannot have."""
    is_traced = isinstance(x, jax.core.Tracer)
    return generic.get_layer_mask(x) if is_traced else getattr(x, "_keras_mask", None)


def to_tensor(array: Array) -> Tensor:
    """Transfers the array without compiling: Keras's conversion compiles each shape."""
    return jax.device_put(array)


# The largest row size and number of entries for which shorter programs are compiled:
# XLA takes 20 milliseconds to compile each kernel.
_MAX_PACKED_ROW, _MAX_PACKED_SIZE = 128, 2**14


def to_program_input(array: Array) -> Tensor:
    """Copies the array, as a program may read it after the call has returned."""
    return array.copy()


def scalar(value: int) -> Tensor:
    return np.array(value, "int32")


def read(tensors: Sequence[Tensor]) -> list[Array]:
    return list(jax.device_get(list(tensors)))


def make_waiter(tensors: Any) -> Callable[[], Any]:
    if not backends.backend.on_accelerator():
        return generic.make_waiter(tensors)
    return functools.partial(jax.block_until_ready, tensors)


def free_memory() -> int | None:
    memory = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" not in memory:
        return None
    return int(memory["bytes_limit"] - memory.get("bytes_in_use", 0))


def as_host_array(x: Tensor) -> Tensor:
    is_on_host = not backends.backend.on_accelerator() and _is_on_one_device(x)
    return np.asarray(x) if is_on_host and not x.committed else x


def supported_dtype(dtype: str) -> str:
    """Returns a 32-bit dtype unless `jax_enable_x64` is set."""
    return str(jax.dtypes.canonicalize_dtype(dtype))


def cached_constant(
    make: TensorFactory, *numbers: Any, size: int, like: Tensor
) -> Tensor:
    """Makes the result a constant of programs on an accelerator."""
    if not backends.backend.on_accelerator():
        return make(*numbers)
    return ops.convert_to_tensor(_cached_constant(make, *numbers))


@functools.lru_cache(maxsize=1024)
def _cached_constant(make: TensorFactory, *numbers: Any) -> Array:
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.jit(lambda: make(*numbers))())


def has_float64() -> bool:
    return jax.default_backend() in ("cpu", "gpu")


def compute_in_float64(function: Callable[..., Any], *tensors: Tensor) -> Any:
    if not backends.backend.has_float64():
        # A TPU would round factors to bfloat16.
        with jax.default_matmul_precision("float32"):
            return function(*tensors)
    with _enable_float64():
        return generic.compute_in_float64(function, *tensors)


def _enable_float64() -> Any:
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    # Older versions of JAX have no `jax.enable_x64`.
    from jax import experimental

    return experimental.enable_x64(True)  # type: ignore[attr-defined]


def add_entry(number: Tensor, x: Tensor, row: int, column: int) -> Tensor:
    # XLA fuses a maximum with other operations that read `x` on a GPU, but not a slice.
    is_entry = np.zeros((*x.shape[:2], *[1] * (len(x.shape) - 2)), "bool")
    is_entry[row, column] = True
    sums = number + x.astype("int32")
    return jnp.max(jnp.where(is_entry, sums, generic.INT32_MIN), axis=(0, 1))


def split_float64(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # XLA may remove a cast to float32 and back.
    rest = x - jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=23)
    remainder = rest - jax.lax.reduce_precision(rest, exponent_bits=8, mantissa_bits=23)
    high, low, remainder = (ops.cast(part, "float32") for part in (x, rest, remainder))
    return high, low, remainder


def no_fma(products: Tensor) -> Tensor:
    """Adds an operation that XLA does not recognize as a no-op.

    XLA would fuse products and sums of some shapes, without rounding in between.
    """
    largest = float(np.finfo(products.dtype).max)
    return ops.minimum(products, generic.constant(largest, products))


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """Replaces quotients of equal numbers by 1: XLA may round them down on a GPU."""
    if not backends.backend.on_accelerator():
        return x / y
    return ops.where(x == y, generic.constant(1.0, x), x / y)


def fusion_barrier(x: Tensor) -> Tensor:
    """Adds a barrier on accelerators, where XLA recomputes a tensor for each use."""
    if not backends.backend.on_accelerator():
        return x
    return jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]


full_precision = functools.partial(jax.default_matmul_precision, "highest")


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    """Counts in one reduction, as XLA reads memory once per reduction."""
    entries = [ops.cast(condition(), dtype) for condition in conditions]
    zeros = [np.zeros((), dtype) for _ in entries]
    counts = jax.lax.reduce(entries, zeros, _add_pairwise, (1,))
    return [count[:, None] for count in counts]


def _add_pairwise(sums: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    return [a + b for a, b in zip(sums, others, strict=True)]


popcount = jax.lax.population_count


def group_totals(values: Tensor, group: Tensor) -> Tensor:
    """Avoids scatter and gather on a TPU, which processes them entry by entry.

    Each entry adds the entries before it in its group, in steps of 1, 2, 4, ... Then
    all entries copy the sum of the last entry of the group.
    """
    if jax.default_backend() != "tpu":
        return generic.group_totals(values, group)
    group = ops.reshape(group, values.shape)
    position, depth = _positions(values), values.shape[1]
    steps = [2**i for i in range((depth - 1).bit_length())]

    def roll_in_group(x: Tensor, step: int, default: Tensor) -> Tensor:
        source, source_group = position - step, ops.roll(group, step, axis=1)
        is_in_row = (source >= 0) & (source < depth)
        rolled = ops.roll(x, step, axis=1)
        return ops.where(is_in_row & (source_group == group), rolled, default)

    for step in steps:
        values = values + roll_in_group(values, step, ops.zeros_like(values))
    for step in steps:
        values = roll_in_group(values, -step, values)
    return values


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Skips the handling of negative positions in Keras."""
    return jnp.take_along_axis(x, positions, 1, mode="promise_in_bounds")


def set_to_lowest(x: Tensor, positions: Tensor) -> Tensor:
    """Drops invalid positions, so that no wider copy is needed."""
    row = jnp.arange(x.shape[0])[:, None]
    return x.at[row, positions].set(-jnp.inf, mode="drop")


def row_slice(x: Tensor, first: int, number: int) -> Tensor:
    """Passes `first` as an input: JAX compiles a Python slice for each index."""
    if isinstance(x, np.ndarray):
        return x[first : first + number]
    return _slice_rows(x, first, number)


@functools.partial(jax.jit, static_argnames="number")
def _slice_rows(x: Tensor, first: int, number: int) -> Tensor:
    # Starting an eager operation takes the host twenty times as long.
    return jax.lax.dynamic_slice_in_dim(x, first, number)


def block_maxima(x: Tensor, size: int) -> Tensor:
    """Reduces with a comparison on a CPU.

    XLA's maximum loses the numbers before a NaN there. For a slice of each row, it also
    computes the index of each entry.
    """
    if backends.backend.on_accelerator():
        return generic.block_maxima(x, size)
    x, lowest = (
        generic.stop_gradient(x),
        np.array(generic.lowest_value(x.dtype), x.dtype),
    )
    if x.shape[1] % size == 0:
        blocks = x.reshape(-1, x.shape[1] // size, size)
        return jax.lax.reduce(blocks, lowest, _select_larger, (2,))
    return jax.lax.reduce_window(
        x, lowest, _select_larger, (1, size), (1, size), "VALID"
    )


def _select_larger(largest: Tensor, entry: Tensor) -> Tensor:
    """Returns the maximum, or the first number if the second is NaN."""
    return jax.lax.select(entry > largest, entry, largest)


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Splits int32 on a CPU, where XLA selects floats ten times as fast as integers.

    Entries are selected by their high bits. Entries whose high bits equal those of the
    last one are selected by their low bits. float32 represents both parts exactly.
    """
    if x.dtype != "int32" or backends.backend.on_accelerator():
        return generic.top_k(x, count)
    high_bits = (x >> 8).astype("float32")
    top_high_bits, above = generic.top_k(high_bits, count)
    last = top_high_bits[:, -1:]
    low_bits = jnp.where(high_bits == last, (x & 255).astype("float32"), -1.0)
    top_low_bits, at_last = generic.top_k(low_bits, count)
    positions = jnp.concatenate([at_last, above], axis=1)
    is_selected = jnp.concatenate([top_low_bits >= 0.0, top_high_bits > last], axis=1)
    values = jnp.where(is_selected, take(x, positions), generic.INT32_MIN)
    order = argsort(~values)[:, :count]
    return take(values, order), take(positions, order)


def top_values(x: Tensor, count: Tensor | int) -> Tensor:
    """Sorts rows on a TPU, which takes less time than selecting from them."""
    if should_sort_together():
        return sort_descending(x)[:, :count]
    return generic.top_values(x, count)


def argsort(x: Tensor) -> Tensor:
    """Packs values and positions: XLA sorts one operand five times as fast as two."""
    is_unsupported = x.dtype not in ("float32", "int32")
    # `vmap` loses the scope of 64 bits in branches and programs before JAX 0.8.
    has_scope = hasattr(jax, "enable_x64")
    if backends.backend.on_accelerator() or is_unsupported or not has_scope:
        return ops.argsort(x, axis=1)
    pairs = ops.stack([_positions(x), _sortable_bits(x)], axis=-1)
    with _enable_float64():
        keys = jax.lax.bitcast_convert_type(pairs, "int64")
        keys = jax.lax.sort(keys, is_stable=False)
        pairs = jax.lax.bitcast_convert_type(keys, "int32")
    return pairs[..., 0]


def running_count(mask: Tensor) -> Tensor:
    """Multiplies by a triangular matrix, which XLA compiles faster than a scan."""
    if not _is_small(mask):
        return generic.running_count(mask)
    upper = np.triu(np.ones((mask.shape[1], mask.shape[1]), "float32"))
    return (mask.astype("float32") @ upper).astype("int32") * mask


def _is_small(x: Tensor) -> bool:
    """Returns whether compiling takes longer than many runs of the program."""
    if backends.backend.is_concrete(x) or backends.backend.on_accelerator():
        return False
    lists, size = x.shape
    is_static = isinstance(lists, int) and isinstance(size, int)
    return is_static and size <= _MAX_PACKED_ROW and lists * size <= _MAX_PACKED_SIZE


def should_sort_packed(scores: Tensor) -> bool:
    """Returns True for small float32 tensors.

    XLA compiles one sort of 64 bits faster than a branch for ties.
    """
    # `vmap` loses the scope of 64 bits before JAX 0.8.
    has_scope = scores.dtype == "float32" and hasattr(jax, "enable_x64")
    return has_scope and _is_small(scores)


def sort_packed(scores: Tensor, keys: Tensor) -> Pair:
    # The low half of an int64 is compared as an unsigned number.
    low = ~keys ^ np.int32(generic.INT32_MIN)
    pairs = jnp.stack([low, _sortable_bits(-scores)], axis=-1)
    with _enable_float64():
        rows = jax.lax.bitcast_convert_type(pairs, "int64")
        rows = jax.lax.sort(rows, is_stable=False)
        pairs = jax.lax.bitcast_convert_type(rows, "int32")
    scores = -_flip_magnitude_bits(pairs[..., 1]).view("float32")
    return scores, ~(pairs[..., 0] ^ np.int32(generic.INT32_MIN))


def _positions(x: Tensor) -> Tensor:
    return ops.broadcast_to(ops.arange(x.shape[1], dtype="int32"), x.shape)


def should_sort_together() -> bool:
    return backends.backend.on_accelerator()


def lexsort(*keys: Tensor) -> Tensor:
    if should_sort_together():
        return sort_by_keys(_positions(keys[0]), *keys)
    return generic.lexsort(*keys)


def sort_by_keys(values: Tensor, *keys: Tensor) -> Tensor:
    if not should_sort_together():
        return generic.sort_by_keys(values, *keys)
    return _sort_together(*map(_sortable_bits, keys), values)[-1]


def sort_scores(scores: Tensor, keys: Tensor | None = None) -> Pair:
    if not should_sort_together() or scores.dtype != "float32":
        return generic.sort_scores(scores, keys)
    sort_keys = [_sortable_bits(-scores)] + ([] if keys is None else [-1 - keys])
    positions = _sort_together(*sort_keys, _positions(scores))[-1]
    # XLA removes one of these sorts if a program does not use its result.
    return sort_descending(scores), positions


def _sort_together(*rows: Tensor) -> Sequence[Tensor]:
    """Sorts the rows of several tensors by all tensors but the last.

    A single tensor is sorted by itself. A stable sort would take a TPU twice as long.
    """
    num_keys = max(len(rows) - 1, 1)
    result: Sequence[Tensor] = jax.lax.sort(rows, num_keys=num_keys, is_stable=False)
    return result


def _sortable_bits(x: Tensor) -> Tensor:
    """Converts float32 to int32 numbers of equal order. Other dtypes are unchanged."""
    if x.dtype != "float32":
        return x
    return _flip_magnitude_bits(
        ops.where(x == 0.0, generic.constant(0.0, x), x).view("int32")
    )


def _flip_magnitude_bits(bits: Tensor) -> Tensor:
    """Flips all bits of negative numbers but the sign. Two calls cancel out."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def sort(x: Tensor) -> Tensor:
    """Sorts int32 numbers: XLA on a CPU sorts them four times as fast as float32."""
    if x.dtype not in ("float32", "int32"):
        return ops.sort(x, axis=1)
    bits = _sort_together(_sortable_bits(x))[0]
    return bits if x.dtype == "int32" else _flip_magnitude_bits(bits).view("float32")


def sort_descending(x: Tensor) -> Tensor:
    """Sorts inverted bits, which avoids a pass over memory to reverse the rows."""
    if x.dtype not in ("float32", "int32"):
        return generic.sort_descending(x)
    bits = ~_sort_together(~_sortable_bits(x))[0]
    return bits if x.dtype == "int32" else _flip_magnitude_bits(bits).view("float32")


def sort_pairs(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    sorted_entries, sorted_keys = jax.lax.sort((x, keys), num_keys=2)
    return sorted_entries, sorted_keys
