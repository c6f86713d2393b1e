"""JAX: eager calls are compiled; XLA has its own costs on a CPU and on accelerators."""

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
from keras_rank.backends.generic import Array, Class, Make, Pair, Result, Tensor, Way

# XLA compares with many thresholds in one pass.
MOST_COMPARISONS = 64

# With more entries, what is added to round sizes up would cost more than compiling.
_MANY_TO_ROUND = 2**17
# With these, XLA takes two thirds of the time on a CPU, and its code is as fast.
_QUICK_OPTIONS: dict[str, Any] = {
    "xla_backend_optimization_level": 1,
    "xla_cpu_use_fusion_emitters": False,
}
# Traced and symbolic tensors.
_WITHOUT_VALUES = jax.core.Tracer, keras.KerasTensor


def on_accelerator() -> bool:
    return bool(jax.default_backend() != "cpu")


def is_concrete(x: Tensor) -> bool:
    return not isinstance(x, _WITHOUT_VALUES)


def is_traced(*tensors: Tensor) -> bool:
    """A new tensor is checked too, as inputs may be constants of what is traced."""
    return generic.is_traced(*tensors, jnp.zeros(()))


cached_property, kept = branches.cached_property, branches.kept


def cond(holds: Tensor, short: Way, whole: Way) -> Any:
    ways = (_over_shards(holds, branches.forgetful(way)) for way in (short, whole))
    return ops.cond(holds, *ways)


def _over_shards(holds: Tensor, way: Callable[[], Any]) -> Callable[[], Any]:
    """Makes the result of a branch depend on the condition, without changing it.

    `jax.shard_map` requires that both branches vary over the same shards, and a
    constant varies over none.
    """
    nothing = ops.logical_and(holds, False)

    def varying(x: Tensor) -> Tensor:
        if x.dtype == "bool":
            return ops.logical_or(x, nothing)
        return x + ops.cast(nothing, x.dtype)

    return lambda: keras.tree.map_structure(varying, way())


# What the program that is being traced requires: conditions, by their messages.
_required: ContextVar[dict[str, Tensor] | None] = ContextVar("required", default=None)


def require(condition: Tensor | bool, message: str) -> None:
    """A program returns its conditions with its result, and they are read once."""
    required = _required.get()
    if required is not None and generic.known(condition) is None:
        earlier = required.get(message)
        both = condition if earlier is None else ops.logical_and(condition, earlier)
        required[message] = both
    generic.require(condition, message)


def enter(function: Callable[..., Result], /, *tensors: Any, **static: Any) -> Result:
    """JAX compiles each operation of eager code, for each shape.

    So there a call is one function, compiled at its first call and cached by its static
    arguments. For small inputs, it is compiled more quickly.
    """
    leaves = jax.tree_util.tree_leaves(tensors)
    is_traced = any(isinstance(x, _WITHOUT_VALUES) for x in leaves)
    if is_traced or not generic.is_ours(*static.values()):
        return function(*tensors, **static)
    key = backends.backend.on_accelerator(), keras.config.floatx()
    program = _program(function, not key[0] and should_bucket(*leaves))
    # In a function that is being compiled, these inputs are known already.
    with jax.core.eval_context():
        result: Result
        result, required = program(key, tuple(static.items()), *tensors)
        for message, condition in required.items():
            if generic.known(condition) is False:
                # Again by steps, where an error can tell the values.
                function(*tensors, **static)
            generic.require(condition, message)
    return result


@functools.cache
def _program(function: Callable[..., Any], is_small: bool) -> Callable[..., Any]:
    def with_required(key: Any, static: Any, *tensors: Any) -> tuple[Any, Any]:
        required = dict[str, Tensor]()
        token = _required.set(required)
        try:
            return function(*tensors, **dict(static)), required
        finally:
            _required.reset(token)

    options = _known_quick_options() if is_small else None
    return jax.jit(with_required, static_argnums=(0, 1), compiler_options=options)


@functools.cache
def _known_quick_options() -> dict[str, Any]:
    """Those that this version of XLA has, and that `XLA_FLAGS` don't set.

    An unknown option would be an error of every call.
    """
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


def register_tree(kind: Class) -> Class:
    flatten, unflatten = generic.parts_of(kind, jax.tree_util.tree_leaves)
    jax.tree_util.register_pytree_node(kind, flatten, unflatten)
    return kind


def compiled(function: Callable[..., Any], *, is_ours: bool) -> Callable[..., Any]:
    jitted: Callable[..., Any] = jax.jit(function)
    return jitted


def should_bucket(*tensors: Tensor) -> bool:
    """Not for large or sharded tensors."""
    return all(
        (isinstance(x, int | np.ndarray | np.generic) or _is_on_one_device(x))
        and np.size(x) <= _MANY_TO_ROUND
        for x in tensors
    )


def _is_on_one_device(x: Tensor) -> bool:
    is_known = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    return is_known and len(x.devices()) == 1


def frees_shared_memory() -> bool:
    return True


def layer_mask(x: Any) -> Tensor | None:
    """Traced tensors alone take no attributes."""
    is_traced = isinstance(x, jax.core.Tracer)
    return generic.layer_mask(x) if is_traced else getattr(x, "_keras_mask", None)


def to_tensor(array: Array) -> Tensor:
    """Keras's conversion would compile each shape."""
    return jax.device_put(array)


# The longest rows, and the number of entries, for which short programs are compiled:
# XLA compiles kernels for 20 milliseconds each.
_LONGEST_PACKED, _MOST_PACKED = 128, 2**14


def from_host(array: Array) -> Tensor:
    """A copy, as a program may read it after the call has returned."""
    return array.copy()


def scalar(value: int) -> Tensor:
    return np.array(value, "int32")


def read(tensors: Sequence[Tensor]) -> list[Array]:
    return list(jax.device_get(list(tensors)))


def waiting_for(tensors: Any) -> Callable[[], Any]:
    if not backends.backend.on_accelerator():
        return generic.waiting_for(tensors)
    return functools.partial(jax.block_until_ready, tensors)


def free_memory() -> int | None:
    memory = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" not in memory:
        return None
    return int(memory["bytes_limit"] - memory.get("bytes_in_use", 0))


def on_host(x: Tensor) -> Tensor:
    is_here = not backends.backend.on_accelerator() and _is_on_one_device(x)
    return np.asarray(x) if is_here and not x.committed else x


def widest(dtype: str) -> str:
    """JAX has 64 bits only if enabled."""
    return str(jax.dtypes.canonicalize_dtype(dtype))


def made_once(make: Make, *numbers: Any, size: int, like: Tensor) -> Tensor:
    """On an accelerator, a constant of the program."""
    if not backends.backend.on_accelerator():
        return make(*numbers)
    return ops.convert_to_tensor(_made_once(make, *numbers))


@functools.lru_cache(maxsize=1024)
def _made_once(make: Make, *numbers: Any) -> Array:
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.jit(lambda: make(*numbers))())


def has_float64() -> bool:
    return jax.default_backend() in ("cpu", "gpu")


def in_float64(function: Callable[..., Any], *tensors: Tensor) -> Any:
    if not backends.backend.has_float64():
        # Otherwise a TPU rounds factors to bfloat16.
        with jax.default_matmul_precision("float32"):
            return function(*tensors)
    with _float64():
        return generic.in_float64(function, *tensors)


def _float64() -> Any:
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    # Of older versions.
    from jax import experimental

    return experimental.enable_x64(True)  # type: ignore[attr-defined]


def plus_entry(number: Tensor, x: Tensor, row: int, column: int) -> Tensor:
    # A GPU computes a maximum in the kernel of what else reads `x`, not a slice.
    is_entry = np.zeros((*x.shape[:2], *[1] * (len(x.shape) - 2)), "bool")
    is_entry[row, column] = True
    sums = number + x.astype("int32")
    return jnp.max(jnp.where(is_entry, sums, generic.INT32_MIN), axis=(0, 1))


def split_float64(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # XLA may drop a cast there and back.
    rest = x - jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=23)
    remainder = rest - jax.lax.reduce_precision(rest, exponent_bits=8, mantissa_bits=23)
    high, low, remainder = (ops.cast(part, "float32") for part in (x, rest, remainder))
    return high, low, remainder


def no_fma(products: Tensor) -> Tensor:
    """For some shapes, XLA would fuse both into one operation without rounding between.

    An operation that it can't recognize as a no-op prevents this.
    """
    largest = float(np.finfo(products.dtype).max)
    return ops.minimum(products, generic.constant(largest, products))


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """On a GPU, XLA's quotient of equal numbers may be a bit below 1."""
    if not backends.backend.on_accelerator():
        return x / y
    return ops.where(x == y, generic.constant(1.0, x), x / y)


def fusion_barrier(x: Tensor) -> Tensor:
    """XLA would compute it again for each use on an accelerator."""
    if not backends.backend.on_accelerator():
        return x
    return jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]


full_precision = functools.partial(jax.default_matmul_precision, "highest")


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    """In one pass, as XLA reads memory once per reduction."""
    entries = [ops.cast(condition(), dtype) for condition in conditions]
    zeros = [np.zeros((), dtype) for _ in entries]
    counts = jax.lax.reduce(entries, zeros, _add_each, (1,))
    return [count[:, None] for count in counts]


def _add_each(sums: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    return [a + b for a, b in zip(sums, others, strict=True)]


popcount = jax.lax.population_count


def group_totals(values: Tensor, group: Tensor) -> Tensor:
    """Without scatter and gather on a TPU, which does these entry by entry.

    In steps of 1, 2, 4, ... each entry adds those before it in its group. Then all take
    the sum of the last entry of the group.
    """
    if jax.default_backend() != "tpu":
        return generic.group_totals(values, group)
    group = ops.reshape(group, values.shape)
    place, depth = _positions(values), values.shape[1]
    steps = [2**i for i in range((depth - 1).bit_length())]

    def from_group(x: Tensor, step: int, otherwise: Tensor) -> Tensor:
        from_place, of_group = place - step, ops.roll(group, step, axis=1)
        is_in_row = (from_place >= 0) & (from_place < depth)
        rolled = ops.roll(x, step, axis=1)
        return ops.where(is_in_row & (of_group == group), rolled, otherwise)

    for step in steps:
        values = values + from_group(values, step, ops.zeros_like(values))
    for step in steps:
        values = from_group(values, -step, values)
    return values


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Keras also handles negative positions."""
    return jnp.take_along_axis(x, positions, 1, mode="promise_in_bounds")


def with_lowest(x: Tensor, positions: Tensor) -> Tensor:
    """Without a copy that is wider."""
    row = jnp.arange(x.shape[0])[:, None]
    return x.at[row, positions].set(-jnp.inf, mode="drop")


def row_slice(x: Tensor, first: int, number: int) -> Tensor:
    """JAX would compile each Python slice again."""
    if isinstance(x, np.ndarray):
        return x[first : first + number]
    return _rows(x, first, number)


@functools.partial(jax.jit, static_argnames="number")
def _rows(x: Tensor, first: int, number: int) -> Tensor:
    # An eager operation takes the host twenty times as long to start.
    return jax.lax.dynamic_slice_in_dim(x, first, number)


def block_maxima(x: Tensor, size: int) -> Tensor:
    """On a CPU, XLA's own maximum forgets numbers before a NaN.

    Of a part of each row, it would also compute the place of each entry.
    """
    if backends.backend.on_accelerator():
        return generic.block_maxima(x, size)
    x, lowest = generic.detached(x), np.array(generic.lowest_of(x.dtype), x.dtype)
    if x.shape[1] % size == 0:
        blocks = x.reshape(-1, x.shape[1] // size, size)
        return jax.lax.reduce(blocks, lowest, _larger, (2,))
    return jax.lax.reduce_window(x, lowest, _larger, (1, size), (1, size), "VALID")


def _larger(largest: Tensor, entry: Tensor) -> Tensor:
    """The first number if the second is NaN, in no more time than a maximum."""
    return jax.lax.select(entry > largest, entry, largest)


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """XLA on a CPU selects the largest floats ten times as fast as integers.

    Of integers, it selects by the first bits, then by the others among those that are
    equal to the last: float32 is exact for each.
    """
    if x.dtype != "int32" or backends.backend.on_accelerator():
        return generic.top_k(x, count)
    first_bits = (x >> 8).astype("float32")
    highest, above = generic.top_k(first_bits, count)
    last = highest[:, -1:]
    other_bits = jnp.where(first_bits == last, (x & 255).astype("float32"), -1.0)
    others, at_last = generic.top_k(other_bits, count)
    positions = jnp.concatenate([at_last, above], axis=1)
    are_in = jnp.concatenate([others >= 0.0, highest > last], axis=1)
    values = jnp.where(are_in, take(x, positions), generic.INT32_MIN)
    order = argsort(~values)[:, :count]
    return take(values, order), take(positions, order)


def top_values(x: Tensor, count: Tensor | int) -> Tensor:
    """A TPU takes less time to sort a row than to select from it."""
    if sorts_along():
        return sort_descending(x)[:, :count]
    return generic.top_values(x, count)


def argsort(x: Tensor) -> Tensor:
    """On a CPU, XLA sorts one operand five times as fast as two."""
    is_short = x.dtype not in ("float32", "int32")
    # Before JAX 0.8, `vmap` forgets the scope within branches and programs.
    has_scope = hasattr(jax, "enable_x64")
    if backends.backend.on_accelerator() or is_short or not has_scope:
        return ops.argsort(x, axis=1)
    pairs = ops.stack([_positions(x), _sortable_bits(x)], axis=-1)
    with _float64():
        keys = jax.lax.bitcast_convert_type(pairs, "int64")
        keys = jax.lax.sort(keys, is_stable=False)
        pairs = jax.lax.bitcast_convert_type(keys, "int32")
    return pairs[..., 0]


def running_count(mask: Tensor) -> Tensor:
    """Multiplies by a triangular matrix: XLA compiles a scan for a longer time."""
    if not _is_small(mask):
        return generic.running_count(mask)
    upper = np.triu(np.ones((mask.shape[1], mask.shape[1]), "float32"))
    return (mask.astype("float32") @ upper).astype("int32") * mask


def _is_small(x: Tensor) -> bool:
    """Returns whether compiling takes longer than many runs of the program."""
    if backends.backend.is_concrete(x) or backends.backend.on_accelerator():
        return False
    lists, size = x.shape
    are_known = isinstance(lists, int) and isinstance(size, int)
    return are_known and size <= _LONGEST_PACKED and lists * size <= _MOST_PACKED


def sorts_packed(scores: Tensor) -> bool:
    """XLA compiles one sort of 64 bits in less time than a branch for ties."""
    # Before JAX 0.8, `vmap` forgets the scope of 64 bits.
    has_scope = scores.dtype == "float32" and hasattr(jax, "enable_x64")
    return has_scope and _is_small(scores)


def sort_packed(scores: Tensor, keys: Tensor) -> Pair:
    # The order of unsigned numbers.
    low = ~keys ^ np.int32(generic.INT32_MIN)
    pairs = jnp.stack([low, _sortable_bits(-scores)], axis=-1)
    with _float64():
        rows = jax.lax.bitcast_convert_type(pairs, "int64")
        rows = jax.lax.sort(rows, is_stable=False)
        pairs = jax.lax.bitcast_convert_type(rows, "int32")
    scores = -_flipped(pairs[..., 1]).view("float32")
    return scores, ~(pairs[..., 0] ^ np.int32(generic.INT32_MIN))


def _positions(x: Tensor) -> Tensor:
    return ops.broadcast_to(ops.arange(x.shape[1], dtype="int32"), x.shape)


def sorts_along() -> bool:
    return backends.backend.on_accelerator()


def lexsort(*keys: Tensor) -> Tensor:
    if sorts_along():
        return sort_by(_positions(keys[0]), *keys)
    return generic.lexsort(*keys)


def sort_by(values: Tensor, *keys: Tensor) -> Tensor:
    if not sorts_along():
        return generic.sort_by(values, *keys)
    return _sorted_together(*map(_sortable_bits, keys), values)[-1]


def sorted_descending(scores: Tensor, keys: Tensor | None = None) -> Pair:
    if not sorts_along() or scores.dtype != "float32":
        return generic.sorted_descending(scores, keys)
    by = [_sortable_bits(-scores)] + ([] if keys is None else [-1 - keys])
    positions = _sorted_together(*by, _positions(scores))[-1]
    # A program that needs only one of both does not compute the other.
    return sort_descending(scores), positions


def _sorted_together(*rows: Tensor) -> Sequence[Tensor]:
    """Several tensors, whose rows are sorted by all but the last, or by a single one.

    A stable sort would take a TPU twice as long.
    """
    keys = max(len(rows) - 1, 1)
    found: Sequence[Tensor] = jax.lax.sort(rows, num_keys=keys, is_stable=False)
    return found


def _sortable_bits(x: Tensor) -> Tensor:
    """Int32 numbers in the order of float32 numbers; other numbers as they are."""
    if x.dtype != "float32":
        return x
    return _flipped(ops.where(x == 0.0, generic.constant(0.0, x), x).view("int32"))


def _flipped(bits: Tensor) -> Tensor:
    """Flips all bits of negative numbers but the sign: its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def sort(x: Tensor) -> Tensor:
    """XLA on a CPU sorts int32 four times as fast as float32."""
    if x.dtype not in ("float32", "int32"):
        return ops.sort(x, axis=1)
    bits = _sorted_together(_sortable_bits(x))[0]
    return bits if x.dtype == "int32" else _flipped(bits).view("float32")


def sort_descending(x: Tensor) -> Tensor:
    """Without a pass over memory that would turn the rows around."""
    if x.dtype not in ("float32", "int32"):
        return generic.sort_descending(x)
    bits = ~_sorted_together(~_sortable_bits(x))[0]
    return bits if x.dtype == "int32" else _flipped(bits).view("float32")


def sort_pairs(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    in_order, of_entries = jax.lax.sort((x, keys), num_keys=2)
    return in_order, of_entries
