"""The reference implementation of all backend functions, in `keras.ops` and NumPy.

The module of a backend replaces functions by name, because they must differ there or
because another implementation is faster. Functions that may be replaced are therefore
called as attributes of `backends.backend` in this module.
"""

import contextlib
import dataclasses
import functools
import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast

import keras
import numpy as np
from keras import ops

from keras_rank import backends

# Keras has no common type for the tensors of its backends.
Tensor: TypeAlias = Any
Array: TypeAlias = np.ndarray[Any, Any]

# `Branch` is a function without arguments that computes a result. `TensorFactory`
# creates a tensor from numbers. `Side` is an option of `search_rows`.
Pair: TypeAlias = tuple[Tensor, Tensor]
Branch: TypeAlias = Callable[[], Any]
TensorFactory: TypeAlias = Callable[..., Tensor]
Side: TypeAlias = Literal["left", "right"]

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)
Result = TypeVar("Result")

INT32_MIN = -(2**31)

_PACKAGE = __name__.partition(".")[0]

# Maximum number of thresholds to compare a row with: for more thresholds, sorting the
# row is faster. Measured with rows of 4,096 entries, including compilation.
MAX_COMPARISONS = 16

# Rows of this size or more are cut into blocks. The entries of a block are adjacent, or
# strided over the whole row.
LONG_ROW = 4096
BLOCKS_ARE_STRIDED = False

# Minimum number of comparisons with thresholds per selected entry: fewer comparisons
# take less time than selecting the largest entries.
MIN_SELECTION_RATIO = 1000


def copy_if_mutable(x: Any) -> Any:
    """Returns a copy of `x` if tensors can be changed in place, or `x` itself."""
    return x


# Concrete values, and branches on them.


def on_accelerator() -> bool:
    """Returns whether there is a device other than a CPU."""
    return False


def is_compiling() -> bool:
    """Returns whether `torch.compile` traces this code.

    If so, a branch on values would break the graph.
    """
    return False


def is_concrete(x: Tensor) -> bool:
    """Returns whether a tensor has values that Python can read.

    Reading them may have to wait for a device. `keras.ops` has no such test, so the
    reference copies the tensor to the host.
    """
    try:
        ops.convert_to_numpy(x)
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def is_traced(*tensors: Tensor) -> bool:
    """Returns whether a function of these tensors is traced rather than executed."""
    return not all(map(backends.backend.is_concrete, tensors))


def is_cheap_to_read(x: Tensor) -> bool:
    """Returns whether values can be read without waiting for a device."""
    return backends.backend.is_concrete(x) and not backends.backend.on_accelerator()


def has_no_data(x: Tensor) -> bool:
    """Returns whether a tensor only has a shape, because Keras infers shapes.

    Code must not raise errors about such a tensor.
    """
    return False


def is_building_symbolically() -> bool:
    """Returns whether Keras runs this code on the device `meta` to infer shapes."""
    return False


def read_condition(condition: Tensor | bool) -> bool | None:
    """Returns the value of a boolean scalar, or `None` if it is not concrete."""
    if isinstance(condition, bool):
        return condition
    return bool(condition) if backends.backend.is_concrete(condition) else None


def branch(condition: Tensor | bool, fast_path: Branch, full_path: Branch) -> Any:
    """Returns `fast_path()` if a condition holds, and `full_path()` otherwise.

    The full path is always correct. It is used in code that `torch.compile` traces, and
    in code that is compiled for an accelerator, where a branch makes the host wait for
    the device. Eager code reads the condition, on any device.

    Args:
        condition: boolean scalar. Whether both paths give the same result.
        fast_path: function without arguments.
        full_path: function without arguments.
    """
    value = backends.backend.read_condition(condition)
    if value is not None:
        return fast_path() if value else full_path()
    if backends.backend.on_accelerator():
        return full_path()
    return backends.backend.cond(condition, fast_path, full_path)


def cond(condition: Tensor, fast_path: Branch, full_path: Branch) -> Any:
    """Returns the result of a branch of a graph on a CPU.

    The reference always uses the full path, as not all backends have such branches.
    """
    return full_path()


def require(condition: Tensor | bool, message: str) -> None:
    """Raises `ValueError` if a concrete condition is false.

    A condition within a program may be checked when the program ends. Conditions in
    code that a user compiles are not checked.
    """
    if backends.backend.read_condition(condition) is False:
        raise ValueError(message)


# Programs.

# Stores results on an instance.
cached_property = functools.cached_property


def compute_once(
    cache: dict[Any, Any], key: Any, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Returns the cached value of a key, which is computed at the first call.

    Like cached properties, it may be used within a branch.
    """
    if key not in cache:
        cache[key] = function(*arguments)
    return cache[key]


def run_program(
    function: Callable[..., Result], /, *tensors: Any, **static: Any
) -> Result:
    """Returns `function(*tensors, **static)`, computed by one compiled program.

    Programs speed up eager calls, whose many operations take long to start, and graphs,
    which take long to trace. A function that runs as a program runs no other programs.

    Args:
        function: module-level function.
        *tensors: tensors, or lists, tuples or registered trees of tensors.
        **static: the other arguments. Their values are part of the key under which the
            program is cached. If a value can't be hashed or is not compilable, the
            function is called directly: see `is_compilable`. Calls should pass them in
            the same order, as the order is part of the key, too.
    """
    return function(*tensors, **static)


def is_compilable(*values: Any) -> bool:
    """Returns whether a program can be compiled for these static arguments.

    A value is not compilable if a part of it is a class or function of a user, or has a
    true attribute `is_stepwise`: then the values of one step determine the shapes of
    the next step.
    """
    try:
        _cached_check_compilable(*values)
    except TypeError:
        return False
    return True


def _check_compilable(*values: Any) -> None:
    """Raises `TypeError` if a value is not compilable.

    Hashing raises the same error, and `lru_cache` does not store errors.
    """
    for value in values:
        if value is None or isinstance(value, bool | int | float | str):
            continue
        if getattr(value, "is_stepwise", False):
            raise TypeError
        if isinstance(value, tuple):
            _check_compilable(*value)
        elif str(getattr(value, "__module__", "")).partition(".")[0] != _PACKAGE:
            raise TypeError
        elif not isinstance(value, type) and dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            _check_compilable(*(getattr(value, field.name) for field in fields))


# Checking all parts would take 13 of the 200 microseconds of an update.
_cached_check_compilable = functools.lru_cache(256)(_check_compilable)


def register_tree(kind: Class) -> Class:
    """Registers a dataclass as a tree of tensors, so that programs accept instances.

    A program is compiled for the values of the fields that are not tensors.
    """
    return kind


def make_tree_functions(
    kind: type, list_leaves: Callable[[Any], list[Any]]
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Returns functions that flatten and unflatten instances of a dataclass.

    Args:
        kind: the dataclass.
        list_leaves: function that returns the leaves of a tree.
    """
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]

    def is_fixed(value: Any) -> bool:
        leaves = list_leaves(value)
        return bool(leaves) and all(isinstance(x, int | str) for x in leaves)

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values = [getattr(tree, name) for name in names]
        tensors = tuple(None if is_fixed(x) else x for x in values)
        return tensors, tuple(x if is_fixed(x) else None for x in values)

    def unflatten(fixed: tuple[Any, ...], tensors: Sequence[Any]) -> Any:
        parts = zip(names, fixed, tensors, strict=True)
        return kind(**{name: x if y is None else y for name, y, x in parts})

    return flatten, unflatten


def compile_function(
    function: Callable[..., Any], *, is_package_code: bool
) -> Callable[..., Any]:
    """Compiles a function of tensors on backends where this makes it faster.

    Args:
        function: the function.
        is_package_code: whether the function calls no code of a user, which XLA might
            not support.
    """
    return function


def without_autograph(function: Function) -> Function:
    """Prevents AutoGraph from converting a function and the functions it calls."""
    return function


def traced_as_constant(function: Function) -> Function:
    """Makes tracers call a function of settings, and use the result as a constant."""
    return function


def should_bucket(*tensors: Tensor) -> bool:
    """Returns whether to round sizes up, so that fewer programs are compiled."""
    return False


def has_buffer_donation() -> bool:
    """Returns whether a compiled step frees the old memory of its variables.

    Other arrays that share this memory become invalid.
    """
    return False


# Layers.


@functools.cache
def mask_layers() -> tuple[keras.layers.Layer, keras.layers.Layer]:
    """Returns a layer that returns its mask, and one that attaches a mask to its input.

    Keras stores some masks outside of the tensors, which may accept no attributes, and
    passes all masks to layers. The layers have explicit names, so that they don't
    change the numbers in the default names of other layers.
    """
    create = functools.partial(keras.layers.Lambda, dtype="float32", autocast=False)
    return (
        create(lambda x, mask=None: mask, mask=lambda *_: None, name="keras_rank_mask"),
        create(lambda x: x, mask=lambda x, mask: mask, name="keras_rank_with_mask"),
    )


def get_layer_mask(x: Any) -> Tensor | None:
    """Returns the mask that Keras has attached to the output of a layer, or `None`."""
    return mask_layers()[0](x) if ops.is_tensor(x) else None


def attach_layer_mask(x: Tensor, mask: Tensor | None) -> Tensor:
    """Attaches a mask to a tensor, as a layer does that supports masking."""
    return x if mask is None else mask_layers()[1](x, mask=mask)


# Memory.


def to_tensor(array: Array) -> Tensor:
    """Converts an array to a tensor without a change of precision."""
    return ops.convert_to_tensor(array, array.dtype)


def to_program_input(array: Array) -> Tensor:
    """Converts an array of a user to a tensor, unless programs accept arrays."""
    return backends.backend.to_tensor(array)


def scalar(value: int) -> Tensor:
    """Returns an int32 scalar that a program accepts as a varying input."""
    return backends.backend.to_tensor(np.array(value, "int32"))


def copy_to_device(array: Array) -> Tensor:
    """Copies an array to the device, without waiting for earlier work if possible."""
    return backends.backend.to_tensor(array)


def read(tensors: Sequence[Tensor]) -> list[Array]:
    """Copies tensors from a device to the host, with one synchronization."""
    return [ops.convert_to_numpy(x) for x in tensors]


def make_waiter(tensors: Any) -> Callable[[], Any]:
    """Returns a function that blocks until the device has computed the tensors."""
    return lambda: None


def free_memory() -> int | None:
    """Returns the free memory of the device in bytes, or `None` if it is unknown."""
    return None


def prepare_for_numpy(x: Any) -> Any:
    """Moves a torch tensor to the CPU and casts bfloat16, which NumPy does not have.

    Other values are returned unchanged. Users may pass torch tensors on any backend.
    """
    if not hasattr(x, "detach"):
        return x
    x = x.detach().cpu()
    return x.float() if str(x.dtype) == "torch.bfloat16" else x


def as_host_array(x: Tensor) -> Tensor:
    """Returns the memory of a tensor as an array if eager operations are compiled.

    NumPy then reshapes it without compiling. The reference returns the tensor.
    """
    return x


@functools.cache
def supported_dtype(dtype: str) -> str:
    """Returns the dtype that the device uses for a 64-bit dtype.

    Not all devices support 64 bits.
    """
    with warnings.catch_warnings(action="ignore"):
        supported: str = keras.backend.standardize_dtype(ops.zeros((), dtype).dtype)
    return supported


def persistent_scope() -> contextlib.AbstractContextManager[Any]:
    """Returns a context for creating tensors that are used after the current call."""
    return contextlib.nullcontext()


def constant(value: Tensor | float, like: Tensor) -> Tensor:
    """Converts a number to a tensor with the dtype and on the device of `like`.

    In a graph, the number may be a tensor. Without a dtype, Keras gives a Python number
    the default precision: if that is bfloat16, integers become floats on JAX.
    """
    if isinstance(like, np.ndarray):
        return np.asarray(value, like.dtype)
    return ops.convert_to_tensor(value, like.dtype)


def cached_constant(
    make: TensorFactory, *numbers: Any, size: int, like: Tensor
) -> Tensor:
    """Returns `make(*numbers)`, from a cache where this saves time.

    Args:
        make: function of numbers.
        *numbers: the arguments of the function.
        size: the number of entries of the result.
        like: tensor on the device of the result.
    """
    return make(*numbers)


def stop_gradient(x: Tensor) -> Tensor:
    """Returns a tensor through which no gradients flow."""
    return ops.stop_gradient(x)


# Arithmetic.


def get_library(x: Tensor) -> Any:
    """Returns the library whose functions preserve the precision of a tensor.

    The functions of Keras cast float64 to float32 on NumPy and torch, and copy arrays
    on NumPy.
    """
    return np if isinstance(x, np.ndarray | np.generic) else ops


def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """Selects from two values by a condition, in the dtype of the first tensor.

    The result may be `x` or `y` itself, so it must not be changed in place.
    """
    like = y if isinstance(x, int | float) else x
    library = backends.backend.get_library(condition)
    return library.where(condition, _cast_like(like, x), _cast_like(like, y))


def minimum(x: Tensor, bound: Tensor | float) -> Tensor:
    """Returns the elementwise minimum of `x` and a bound, in the dtype of `x`."""
    return backends.backend.get_library(x).minimum(x, _cast_like(x, bound))


def maximum(x: Tensor, bound: Tensor | float) -> Tensor:
    """Returns the elementwise maximum of `x` and a bound, in the dtype of `x`."""
    return backends.backend.get_library(x).maximum(x, _cast_like(x, bound))


def _cast_like(x: Tensor, other: Tensor | float) -> Tensor:
    if isinstance(other, int | float) and not isinstance(other, np.generic):
        return backends.backend.constant(other, x)
    return ops.convert_to_tensor(other, x.dtype)


def clip(x: Tensor, least: float, most: float) -> Tensor:
    """Clips numbers to a lower and an upper bound."""
    return backends.backend.get_library(x).clip(x, least, most)


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """Divides numbers. The quotient of equal numbers is exactly 1."""
    return x / y


def pad_rows(x: Tensor, before: int, after: int, value: float) -> Tensor:
    """Pads each row with a value before and after its entries."""
    unpadded = [(0, 0)] * (len(x.shape) - 1)
    fill_value = backends.backend.constant(value, x)
    return ops.pad(x, [*unpadded, (before, after)], constant_values=fill_value)


def hard_shrink(x: Tensor, threshold: float) -> Tensor:
    """Replaces numbers with an absolute value of at most `threshold` by 0.

    NaN stays NaN.
    """
    return backends.backend.where(ops.abs(x) <= threshold, 0.0, x)


def power_of_two(x: Tensor) -> Tensor:
    """Returns `2**x`, exact for whole numbers."""
    return backends.backend.constant(2.0, x) ** x


def row_max_abs(x: Tensor) -> Tensor:
    """Returns the largest absolute value of each row, of shape `(batch, 1)`."""
    return ops.amax(ops.abs(x), axis=1, keepdims=True)


def row_norms(x: Tensor) -> Tensor:
    """Returns the Euclidean norm of each row, of shape `(batch, 1)`."""
    squares = ops.sum(x * x, axis=1, keepdims=True)
    return backends.backend.get_library(x).sqrt(squares)


def has_float64() -> bool:
    """Returns whether `compute_in_float64` computes in float64."""
    return backends.backend.supported_dtype("float64") == "float64"


def compute_in_float64(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Calls a function with tensors that are cast to float64 if the device supports it.

    The function may only use Python's operators, as the functions of Keras cast float64
    to float32 on most backends. It must return float32, as JAX has float64 only within
    a scope. It must not use Python numbers or constants, which JAX 0.6 compiles as
    float32.
    """
    dtype = backends.backend.supported_dtype("float64")
    return function(*(ops.cast(x, dtype) for x in tensors))


def split_float64(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Splits float64 numbers into three float32 numbers.

    The second number is the rounding error of the first one, and the third number is
    the remaining rounding error.
    """
    high = ops.cast(x, "float32")
    rest = x - ops.cast(high, x.dtype)
    low = ops.cast(rest, "float32")
    return high, low, ops.cast(rest - ops.cast(low, x.dtype), "float32")


def add_entry(number: Tensor, x: Tensor, row: int, column: int) -> Tensor:
    """Returns `number + x[row, column]` in int32, for an entry without a fraction."""
    return number + ops.cast(x[row, column], "int32")


def no_fma(products: Tensor) -> Tensor:
    """Returns products that are rounded before other numbers are added to them."""
    return products


def fusion_barrier(x: Tensor) -> Tensor:
    """Returns a tensor that compilers compute once rather than for each use."""
    return x


def suppress_float_warnings() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which NumPy does not warn about NaN and infinity.

    The other backends never warn about them.
    """
    return contextlib.nullcontext()


def full_precision() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which products of float32 matrices use full float32.

    NumPy does not warn about NaN and infinity in this context.
    """
    return contextlib.nullcontext()


def rounds_by_column() -> bool:
    """Returns whether the last bit of an entry of a product depends on the column."""
    return False


# Sums and counts.


def tree_sum(values: Tensor, levels: int) -> Tensor:
    """Sums rows by adding the second half of each row to the first, once per level.

    XLA would merge sums along successive axes into one sum in another order.
    """
    for level in reversed(range(levels)):
        values = values[..., : 2**level] + values[..., 2**level :]
    return values[..., 0]


def running_total(x: Tensor) -> Tensor:
    """Returns the cumulative sum of each row.

    A backend that adds entries one by one must sum float32 in float64: otherwise
    rounding errors accumulate over thousands of entries.
    """
    return backends.backend.get_library(x).cumsum(x, axis=-1)


def count_at_least(entries: Tensor, thresholds: Tensor) -> Tensor:
    """Counts the entries of each row that are at least each threshold, as int32."""
    conditions = [
        functools.partial(operator.ge, entries, thresholds[:, i : i + 1])
        for i in range(thresholds.shape[1])
    ]
    counts = backends.backend.count_true(conditions, "int32")
    return counts[0] if len(counts) == 1 else ops.concatenate(counts, axis=1)


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    """Counts the true entries of each row, for each of several conditions.

    Args:
        conditions: functions without arguments that return boolean tensors of shape
            `(batch, size)`. They are called one after the other, to reuse memory.
        dtype: the dtype of the counts.

    Returns:
        A tensor of shape `(batch, 1)` for each condition.
    """
    return [ops.sum(ops.cast(x(), dtype), axis=1, keepdims=True) for x in conditions]


def first_true(conditions: Tensor, like: Tensor) -> Tensor:
    """Returns 1 at the first true entry of each row, and 0 at all other entries.

    Args:
        conditions: boolean tensor of shape `(batch, size)`. Each row has a true entry.
        like: tensor of the dtype of the result.
    """
    first = ops.argmax(ops.cast(conditions, "int32"), axis=1)
    return ops.one_hot(first, ops.shape(conditions)[1], dtype=like.dtype)


def running_count(mask: Tensor) -> Tensor:
    """Numbers the true entries of each row 1, 2, 3, ..., and all others 0, as int32.

    XLA's cumulative sums read each entry a hundred times on an accelerator. There, 32
    entries are packed into the bits of one word, and the sum runs over words.
    """
    ones, size = ops.cast(mask, "int32"), mask.shape[1]
    if backends.backend.on_accelerator() and size is not None:
        return count_in_words(ones)
    return ops.cumsum(ones, axis=1) * ones


def count_in_words(ones: Tensor) -> Tensor:
    """Computes `running_count` of an int32 tensor of 0 and 1, with 32-bit words."""
    size = ones.shape[1]
    number = -(-size // 32)
    ones = backends.backend.pad_rows(ones, 0, number * 32 - size, 0)
    bit = ops.arange(32, dtype="int32")
    words = ops.left_shift(ops.reshape(ones, (-1, number, 32)), bit)
    # Sums of int32 are int64 on JAX if 64 bits are enabled: shifts would keep all bits.
    words = ops.cast(ops.sum(words, axis=2), "int32")
    word_counts = backends.backend.popcount(words)
    before = ops.cumsum(word_counts, axis=1) - word_counts
    words, before = words[:, :, None], before[:, :, None]
    counts = backends.backend.popcount(ops.left_shift(words, 31 - bit)) + before
    # XLA would store a boolean mask and read it twice.
    counts = counts * (ops.right_shift(words, bit) & 1)
    return ops.reshape(counts, (-1, number * 32))[:, :size]


def popcount(words: Tensor) -> Tensor:
    """Counts the set bits of each int32 number."""
    bits = ops.right_shift(words[..., None], ops.arange(32, dtype="int32")) & 1
    return ops.sum(bits, axis=-1)


def bincount(ids: Tensor, number: int) -> Tensor:
    """Counts how often each id from 0 to `number - 1` occurs, as int32.

    Args:
        ids: int32 tensor of any shape, with ids from 0 on. Larger ids are not counted.
        number: the number of ids.
    """
    ids = ops.reshape(backends.backend.minimum(ids, number), (-1,))
    return ops.segment_sum(ops.ones_like(ids), ids, num_segments=number + 1)[:number]


def histogram(numbers: Tensor, end: int) -> Tensor:
    """Counts how often each row contains each number from 0 to `end - 1`, as int32.

    Args:
        numbers: int32 tensor of shape `(batch, size)`, with numbers below `end`.
        end: the number of counts per row.
    """
    rows = numbers.shape[0]
    first = ops.arange(0, rows * end, end, dtype="int32")[:, None]
    counts = backends.backend.bincount(first + numbers, rows * end)
    return ops.reshape(counts, (rows, end))


def group_totals(values: Tensor, group: Tensor) -> Tensor:
    """Sums the entries of each group, and returns the sum of the group of each entry.

    Args:
        values: tensor of shape `(batch, depth)`.
        group: int tensor of shape `(batch * depth,)`. The group of each entry.
    """
    batch, depth = ops.shape(values)
    totals = ops.segment_sum(
        ops.reshape(values, (-1,)), group, num_segments=batch * depth
    )
    return ops.reshape(ops.take(totals, group), (batch, depth))


# Entries at positions, sorting and searching of rows.


def lowest_value(dtype: Any) -> float:
    """Returns the lowest value of a float dtype or int32."""
    name = keras.backend.standardize_dtype(dtype)
    return -math.inf if keras.backend.is_float_dtype(name) else INT32_MIN


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Returns the entries at the given positions of each row."""
    return ops.take_along_axis(x, positions, axis=1)


def set_to_lowest(x: Tensor, positions: Tensor) -> Tensor:
    """Sets the entries at the given positions of each row to `-inf`.

    Args:
        x: tensor of shape `(batch, size)`, which must not be used afterwards.
        positions: int32 tensor of shape `(batch, n)`, from 0 to `size`. The position
            `size` is ignored.
    """
    rows = ops.arange(x.shape[0], dtype="int32")[:, None]
    rows = ops.broadcast_to(rows, ops.shape(positions))
    indices = ops.reshape(ops.stack([rows, positions], axis=2), (-1, 2))
    lowest = ops.full(ops.shape(indices)[:1], -math.inf, dtype=x.dtype)
    padded = ops.pad(x, [(0, 0), (0, 1)])
    return ops.scatter_update(padded, indices, lowest)[:, :-1]


def replace_nan(x: Tensor) -> Tensor:
    """Replaces NaN by `-inf`."""
    return backends.backend.where(x > -math.inf, x, -math.inf)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Returns the rows with the given indices."""
    return ops.take(x, rows, axis=0)


def row_slice(x: Tensor, first: int, number: int) -> Tensor:
    """Returns consecutive rows of a tensor or an array."""
    return x[first : first + number]


def block_maxima(x: Tensor, size: int) -> Tensor:
    """Returns the maxima of all full blocks of each row.

    Args:
        x: tensor of shape `(batch, row_size)`.
        size: the number of entries of a block: see `BLOCKS_ARE_STRIDED`.

    Returns:
        A tensor of shape `(batch, blocks)`. The maximum of a block with NaN is NaN or
        the maximum of the numbers.
    """
    number = x.shape[1] // size
    full = x if number * size == x.shape[1] else x[:, : number * size]
    return ops.amax(ops.reshape(full, (-1, number, size)), axis=2)


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the largest entries of each row in descending order, and their positions.

    Equal entries may be in any order, and any entries that equal the last one may be
    included. NaN is first or last. On some backends, the sign of NaN decides which.
    """
    values, positions = ops.top_k(x, count)
    if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype)):
        return values, positions
    # XLA compiles a slice of TopK on a CPU as a full sort, which is ten times slower.
    # Operations before the slice that XLA does not see to be no-ops prevent this.
    lowest, first = constant(-math.inf, values), constant(0, positions)
    values = backends.backend.where(values <= lowest, lowest, values)
    return values, ops.maximum(positions, first)


def top_values(x: Tensor, count: Tensor | int) -> Tensor:
    """Returns the largest entries of each row in descending order."""
    return backends.backend.top_k(x, count)[0]


def argsort(x: Tensor) -> Tensor:
    """Returns the positions that sort each row. The sort is stable."""
    if isinstance(x, np.ndarray):
        # Keras uses NumPy's quicksort, which is not stable.
        return np.argsort(x, axis=1, kind="stable")
    return ops.argsort(x, axis=1)


def lexsort(*keys: Tensor) -> Tensor:
    """Returns the positions that sort each row by the first key, then by the next."""
    *other_keys, last_key = keys
    order = backends.backend.argsort(last_key)
    for key in reversed(other_keys):
        key_order = backends.backend.argsort(backends.backend.take(key, order))
        order = backends.backend.take(order, key_order)
    return order


def sort_by_keys(values: Tensor, *keys: Tensor) -> Tensor:
    """Sorts the values of each row by the first key, then by the next.

    On a TPU, sorting the values together with the keys costs as much as gathering a few
    entries of each row, and 20 to 60 times less than gathering all entries.
    """
    return backends.backend.take(values, backends.backend.lexsort(*keys))


def should_sort_packed(scores: Tensor) -> bool:
    """Returns whether `sort_packed` sorts the scores faster than `sort_scores`."""
    return False


def sort_packed(scores: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts each row by descending scores and keys, and returns both."""
    scores, positions = sort_scores(scores, keys)
    return scores, take(keys, positions)


def should_sort_together() -> bool:
    """Returns whether to sort values together with their keys.

    Otherwise, the keys are sorted, and the values are gathered.
    """
    return False


def sort_scores(scores: Tensor, keys: Tensor | None = None) -> Pair:
    """Returns the scores of each row and their positions, sorted by score and key.

    Both orders are descending. The keys are int32 numbers. If there are no keys, equal
    scores may be in any order.
    """
    tie_keys = () if keys is None else (-1 - keys,)
    order = backends.backend.lexsort(-scores, *tie_keys)
    return backends.backend.take(scores, order), order


def sort(x: Tensor) -> Tensor:
    """Sorts the entries of each row in ascending order."""
    return ops.sort(x, axis=1)


def sort_descending(x: Tensor) -> Tensor:
    """Sorts the entries of each row in descending order."""
    return ops.flip(backends.backend.sort(x), axis=1)


def sort_pairs(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts the entries of each row and their int32 keys by entry, then by key.

    Both orders are ascending.
    """
    order = backends.backend.lexsort(x, keys)
    return backends.backend.take(x, order), backends.backend.take(keys, order)


def search_rows(rows: Tensor, thresholds: Tensor, side: Side, bisect: Branch) -> Tensor:
    """Counts the entries of sorted rows that are below thresholds.

    `keras.ops.searchsorted` searches only a single row.

    Args:
        rows: tensor of shape `(batch, size)`, sorted in ascending order.
        thresholds: tensor of shape `(batch, number)`.
        side: `"left"` to count the entries below, `"right"` to include equal entries.
        bisect: function without arguments that computes these counts by bisection.

    Returns:
        An int32 tensor of the shape of the thresholds.
    """
    return bisect()
