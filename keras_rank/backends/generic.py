"""The reference backend: in `keras.ops` alone, without a branch, and always right.

The module of a backend takes these functions, and replaces by name those that must
differ there, or that another way makes faster. So functions that may be replaced are
called here as attributes of `backends.backend`.
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

# Two tensors; a way to a result; what makes a tensor of numbers; where to search.
Pair: TypeAlias = tuple[Tensor, Tensor]
Way: TypeAlias = Callable[[], Any]
Make: TypeAlias = Callable[..., Tensor]
Side: TypeAlias = Literal["left", "right"]

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)
Result = TypeVar("Result")

INT32_MIN = -(2**31)

_PACKAGE = __name__.partition(".")[0]

# Sorting a row takes less time than more comparisons with it. Measured with rows of
# 4,096 entries, including compilation.
MOST_COMPARISONS = 16

# Rows of this many entries or more are cut into blocks, of entries that are side by
# side, or spread over the row.
LONG_ROW = 4096
BLOCKS_ARE_SPREAD = False

# Of rows with fewer entries for each of the largest, it takes less time to compare all
# with a threshold than to find the largest.
MANY_TO_COUNT = 1000


def own_copy(x: Any) -> Any:
    """Returns a copy of a tensor that other code can change in place, or `x` itself."""
    return x


# Values that Python can see, and branches on them.


def on_accelerator() -> bool:
    """Whether there is a device other than a CPU, for eager and compiled code."""
    return False


def is_compiling() -> bool:
    """Whether `torch.compile` traces this code: a branch would break its graph."""
    return False


def is_concrete(x: Tensor) -> bool:
    """Whether Python can see the values of a tensor, if need be by waiting for them.

    `keras.ops` can't tell but by a copy.
    """
    try:
        ops.convert_to_numpy(x)
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def is_traced(*tensors: Tensor) -> bool:
    """Returns whether a function of these tensors is traced rather than executed."""
    return not all(map(backends.backend.is_concrete, tensors))


def is_at_hand(x: Tensor) -> bool:
    """Whether Python can see the values of a tensor without a wait for a device."""
    return backends.backend.is_concrete(x) and not backends.backend.on_accelerator()


def has_no_data(x: Tensor) -> bool:
    """Whether a tensor is of a run for shapes alone, in which nothing may be raised."""
    return False


def builds_symbolically() -> bool:
    """Returns whether Keras runs this code on the device `meta`, for shapes alone."""
    return False


def known(condition: Tensor | bool) -> bool | None:
    """The value of a boolean scalar, `None` where Python can't see it."""
    if isinstance(condition, bool):
        return condition
    return bool(condition) if backends.backend.is_concrete(condition) else None


def branch(holds: Tensor | bool, short: Way, whole: Way) -> Any:
    """Returns `whole()`, or the same result by a shorter way where a condition holds.

    `whole` is always right. It is the only way in code compiled for an accelerator,
    where a branch makes the host wait for the device, and by `torch.compile`. Eager
    code asks for the value, on any device.

    Args:
        holds: boolean scalar. Whether `short` gives the same result.
        short: function without arguments.
        whole: function without arguments.
    """
    value = backends.backend.known(holds)
    if value is not None:
        return short() if value else whole()
    if backends.backend.on_accelerator():
        return whole()
    return backends.backend.cond(holds, short, whole)


def cond(holds: Tensor, short: Way, whole: Way) -> Any:
    """A branch of a graph on a CPU, where the backend has graphs with branches."""
    return whole()


def require(condition: Tensor | bool, message: str) -> None:
    """Raises for a condition that is seen not to hold, possibly when a program ends.

    Code that a user compiles can't raise.
    """
    if backends.backend.known(condition) is False:
        raise ValueError(message)


# Programs.

# How results are shared.
cached_property = functools.cached_property


def kept(
    cache: dict[Any, Any], key: Any, function: Callable[..., Any], *arguments: Any
) -> Any:
    """The value of a key: what the function returns at the first call.

    Like properties, it may be asked for in a branch.
    """
    if key not in cache:
        cache[key] = function(*arguments)
    return cache[key]


def enter(function: Callable[..., Result], /, *tensors: Any, **static: Any) -> Result:
    """Returns `function(*tensors, **static)`, computed by one program.

    Programs are for eager calls whose many operations take long to start, and for
    graphs that take long to trace. An entered function enters no other function.

    Args:
        function: function of a module.
        *tensors: tensors, in lists, tuples or classes with `register_tree`.
        **static: the other arguments. Their values are part of the key under which the
            program is cached. If a value can't be hashed, or is not ours, no program
            is made: see `is_ours`. Calls should name them in the same order, which is
            part of the key, too.
    """
    return function(*tensors, **static)


def is_ours(*values: Any) -> bool:
    """Returns whether one program can compute what depends on these values.

    It can't if a part is a user's class or function, or has the attribute `by_steps`:
    then values of one step determine the sizes of the next.
    """
    try:
        _check_ours_once(*values)
    except TypeError:
        return False
    return True


def _check_ours(*values: Any) -> None:
    """Raises `TypeError` otherwise, as hashing does, so that no cache keeps it."""
    for value in values:
        if value is None or isinstance(value, bool | int | float | str):
            continue
        if getattr(value, "by_steps", False):
            raise TypeError
        if isinstance(value, tuple):
            _check_ours(*value)
        elif str(getattr(value, "__module__", "")).partition(".")[0] != _PACKAGE:
            raise TypeError
        elif not isinstance(value, type) and dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            _check_ours(*(getattr(value, field.name) for field in fields))


# To look at all parts takes longer than to find them here: 13 us of 200 for an update.
_check_ours_once = functools.lru_cache(256)(_check_ours)


def register_tree(kind: Class) -> Class:
    """Registers a dataclass as a tree of tensors, for programs.

    A program depends on the values of fields that are not tensors.
    """
    return kind


def parts_of(
    kind: type, leaves_of: Callable[[Any], list[Any]]
) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    """Functions that take a registered dataclass apart, and put it together again.

    Args:
        kind: the dataclass.
        leaves_of: function that returns the leaves of a tree.
    """
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]

    def is_fixed(value: Any) -> bool:
        leaves = leaves_of(value)
        return bool(leaves) and all(isinstance(x, int | str) for x in leaves)

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values = [getattr(tree, name) for name in names]
        tensors = tuple(None if is_fixed(x) else x for x in values)
        return tensors, tuple(x if is_fixed(x) else None for x in values)

    def unflatten(fixed: tuple[Any, ...], tensors: Sequence[Any]) -> Any:
        parts = zip(names, fixed, tensors, strict=True)
        return kind(**{name: x if y is None else y for name, y, x in parts})

    return flatten, unflatten


def compiled(function: Callable[..., Any], *, is_ours: bool) -> Callable[..., Any]:
    """Compiles a function of tensors, on backends that are faster for it.

    Args:
        function: the function.
        is_ours: whether it has no code of a user's, which XLA might not support.
    """
    return function


def without_autograph(function: Function) -> Function:
    """Stops TensorFlow from rewriting the source of a function and what it calls."""
    return function


def traced_as_constant(function: Function) -> Function:
    """Decorates a function of settings that code being traced calls for its result."""
    return function


def should_bucket(*tensors: Tensor) -> bool:
    """Whether sizes should be rounded up, as a program is compiled for each."""
    return False


def frees_shared_memory() -> bool:
    """Whether a compiled step frees the memory of variables, if others use it too."""
    return False


# Layers.


@functools.cache
def mask_layers() -> tuple[keras.layers.Layer, keras.layers.Layer]:
    """A layer that returns its mask, and one that returns its input with a mask.

    Keras passes a mask to a layer, and on, wherever it keeps it: some tensors take no
    attributes. With names of their own, other layers get the numbers that are theirs.
    """
    made = functools.partial(keras.layers.Lambda, dtype="float32", autocast=False)
    return (
        made(lambda x, mask=None: mask, mask=lambda *_: None, name="keras_rank_mask"),
        made(lambda x: x, mask=lambda x, mask: mask, name="keras_rank_with_mask"),
    )


def layer_mask(x: Any) -> Tensor | None:
    """The mask that layers have passed on to what one of them returned, or `None`."""
    return mask_layers()[0](x) if ops.is_tensor(x) else None


def with_layer_mask(x: Tensor, mask: Tensor | None) -> Tensor:
    """Gives a tensor a mask, as if a layer had passed it on."""
    return x if mask is None else mask_layers()[1](x, mask=mask)


# Memory.


def to_tensor(array: Array) -> Tensor:
    """An array as a tensor, in its precision."""
    return ops.convert_to_tensor(array, array.dtype)


def from_host(array: Array) -> Tensor:
    """An array of a user's as a tensor, or as an array where programs accept these."""
    return backends.backend.to_tensor(array)


def scalar(value: int) -> Tensor:
    """An int32 number that a program takes, if it may be another one each time."""
    return backends.backend.to_tensor(np.array(value, "int32"))


def sent(array: Array) -> Tensor:
    """An array as a tensor, which is copied while the device works."""
    return backends.backend.to_tensor(array)


def read(tensors: Sequence[Tensor]) -> list[Array]:
    """Reads tensors that lie on a device, and waits for it once."""
    return [ops.convert_to_numpy(x) for x in tensors]


def waiting_for(tensors: Any) -> Callable[[], Any]:
    """A function that waits for what a device is yet to compute."""
    return lambda: None


def free_memory() -> int | None:
    """The free memory of the device in bytes, `None` where it is unknown."""
    return None


def for_numpy(x: Any) -> Any:
    """A tensor of torch, on any backend, as NumPy reads it: it has no bfloat16."""
    if not hasattr(x, "detach"):
        return x
    x = x.detach().cpu()
    return x.float() if str(x.dtype) == "torch.bfloat16" else x


def on_host(x: Tensor) -> Tensor:
    """The memory of a tensor as an array, where tensors are reshaped by compiling."""
    return x


@functools.cache
def widest(dtype: str) -> str:
    """The dtype that a 64-bit dtype becomes: not every device has 64 bits."""
    with warnings.catch_warnings(action="ignore"):
        found: str = keras.backend.standardize_dtype(ops.zeros((), dtype).dtype)
    return found


def lasting() -> contextlib.AbstractContextManager[Any]:
    """A context in which tensors are created that are used later on."""
    return contextlib.nullcontext()


def constant(value: Tensor | float, like: Tensor) -> Tensor:
    """A number in the dtype of a tensor, and on its device. In a graph, it may be one.

    Keras gives a bare number the default precision: if that is bfloat16, integers
    become floats on JAX.
    """
    if isinstance(like, np.ndarray):
        return np.asarray(value, like.dtype)
    return ops.convert_to_tensor(value, like.dtype)


def made_once(make: Make, *numbers: Any, size: int, like: Tensor) -> Tensor:
    """Returns `make(*numbers)`, computed once where that is worth keeping.

    Args:
        make: function of numbers.
        *numbers: its arguments.
        size: the number of entries of the result.
        like: tensor on the device of the result.
    """
    return make(*numbers)


def detached(x: Tensor) -> Tensor:
    """The same tensor, without gradients."""
    return ops.stop_gradient(x)


# Numbers.


def library_of(x: Tensor) -> Any:
    """The library whose functions keep the precision of a tensor.

    Those of Keras cast float64 to float32 on NumPy and torch, and copy on NumPy.
    """
    return np if isinstance(x, np.ndarray | np.generic) else ops


def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """Chooses between two values by a condition, in the dtype of the first tensor.

    It may return that tensor itself, so nothing is written to the result.
    """
    like = y if isinstance(x, int | float) else x
    library = backends.backend.library_of(condition)
    return library.where(condition, _in_dtype_of(like, x), _in_dtype_of(like, y))


def minimum(x: Tensor, bound: Tensor | float) -> Tensor:
    """The minimum with a bound, in the dtype of `x`."""
    return backends.backend.library_of(x).minimum(x, _in_dtype_of(x, bound))


def maximum(x: Tensor, bound: Tensor | float) -> Tensor:
    """The maximum with a bound, in the dtype of `x`."""
    return backends.backend.library_of(x).maximum(x, _in_dtype_of(x, bound))


def _in_dtype_of(x: Tensor, other: Tensor | float) -> Tensor:
    if isinstance(other, int | float) and not isinstance(other, np.generic):
        return backends.backend.constant(other, x)
    return ops.convert_to_tensor(other, x.dtype)


def clip(x: Tensor, least: float, most: float) -> Tensor:
    """Clips numbers to two bounds."""
    return backends.backend.library_of(x).clip(x, least, most)


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """Divides numbers. Those that are equal have the quotient 1."""
    return x / y


def padded(x: Tensor, before: int, after: int, value: float) -> Tensor:
    """Pads rows with a value before and after their entries."""
    unpadded = [(0, 0)] * (len(x.shape) - 1)
    filling = backends.backend.constant(value, x)
    return ops.pad(x, [*unpadded, (before, after)], constant_values=filling)


def shrunk(x: Tensor, size: float) -> Tensor:
    """Sets numbers of at most this size to 0, below or above it, but no NaN."""
    return backends.backend.where(ops.abs(x) <= size, 0.0, x)


def power_of_two(x: Tensor) -> Tensor:
    """Returns `2**x`, exact for whole numbers."""
    return backends.backend.constant(2.0, x) ** x


def largest_size(x: Tensor) -> Tensor:
    """The largest absolute value of each row, of shape `(batch, 1)`."""
    return ops.amax(ops.abs(x), axis=1, keepdims=True)


def lengths(x: Tensor) -> Tensor:
    """The Euclidean length of each row, of shape `(batch, 1)`, in the dtype of `x`."""
    squares = ops.sum(x * x, axis=1, keepdims=True)
    return backends.backend.library_of(x).sqrt(squares)


def has_float64() -> bool:
    """Whether `in_float64` computes in float64."""
    return backends.backend.widest("float64") == "float64"


def in_float64(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Returns `function(*tensors)`, with tensors in float64 if the device has it.

    The function may only use Python's operators, as those of Keras cast float64 to
    float32 on most backends. It returns float32, as JAX has float64 only within a
    scope. It must not use bare numbers or constants, which JAX 0.6 compiles as float32.
    """
    dtype = backends.backend.widest("float64")
    return function(*(ops.cast(x, dtype) for x in tensors))


def split_float64(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Splits numbers into float32 ones, each the rounding error of those before."""
    high = ops.cast(x, "float32")
    rest = x - ops.cast(high, x.dtype)
    low = ops.cast(rest, "float32")
    return high, low, ops.cast(rest - ops.cast(low, x.dtype), "float32")


def plus_entry(number: Tensor, x: Tensor, row: int, column: int) -> Tensor:
    """Returns `number + x[row, column]` in int32, of an entry that is whole."""
    return number + ops.cast(x[row, column], "int32")


def no_fma(products: Tensor) -> Tensor:
    """Products that are rounded before anything is added to them."""
    return products


def fusion_barrier(x: Tensor) -> Tensor:
    """A tensor that is computed once, not again for each use."""
    return x


def quiet() -> contextlib.AbstractContextManager[Any]:
    """A context in which NumPy, like other backends, doesn't warn of NaN or inf."""
    return contextlib.nullcontext()


def full_precision() -> contextlib.AbstractContextManager[Any]:
    """A context in which float32 matrices are multiplied in float32, and quietly."""
    return contextlib.nullcontext()


def rounds_by_column() -> bool:
    """Whether the last bit of an entry of a product depends on its column."""
    return False


# Sums.


def tree_sum(values: Tensor, levels: int) -> Tensor:
    """Adds the second half of each row to the first, once per level.

    XLA would merge sums along successive axes into one sum in another order.
    """
    for level in reversed(range(levels)):
        values = values[..., : 2**level] + values[..., 2**level :]
    return values[..., 0]


def running_total(x: Tensor) -> Tensor:
    """The running sum of each row.

    A backend that adds entries one by one has to add float32 as float64, or the sum of
    thousands drifts.
    """
    return backends.backend.library_of(x).cumsum(x, axis=-1)


def count_at_least(entries: Tensor, thresholds: Tensor) -> Tensor:
    """Counts the entries of each row that are at least each threshold, as int32."""
    conditions = [
        functools.partial(operator.ge, entries, thresholds[:, i : i + 1])
        for i in range(thresholds.shape[1])
    ]
    counts = backends.backend.count_true(conditions, "int32")
    return counts[0] if len(counts) == 1 else ops.concatenate(counts, axis=1)


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    """Counts the entries of each row that are true, for each of several conditions.

    Args:
        conditions: functions without arguments that return boolean tensors of shape
            `(batch, size)`. Called one after the other, to reuse memory.
        dtype: the dtype of the counts.

    Returns:
        A tensor of shape `(batch, 1)` for each condition.
    """
    return [ops.sum(ops.cast(x(), dtype), axis=1, keepdims=True) for x in conditions]


def first_true(conditions: Tensor, like: Tensor) -> Tensor:
    """1 at the first entry of each row that is true, one of which is, 0 at others.

    Args:
        conditions: boolean tensor of shape `(batch, size)`.
        like: tensor of the dtype of the result.
    """
    first = ops.argmax(ops.cast(conditions, "int32"), axis=1)
    return ops.one_hot(first, ops.shape(conditions)[1], dtype=like.dtype)


def running_count(mask: Tensor) -> Tensor:
    """Numbers the true entries of each row 1, 2, 3, ..., and others 0, as int32.

    XLA's cumulative sums on an accelerator read each entry a hundred times. There, 32
    entries become the bits of one number, and only these numbers are summed.
    """
    ones, size = ops.cast(mask, "int32"), mask.shape[1]
    if backends.backend.on_accelerator() and size is not None:
        return count_in_words(ones)
    return ops.cumsum(ones, axis=1) * ones


def count_in_words(ones: Tensor) -> Tensor:
    """Returns `running_count` of an int32 tensor of 0 and 1, by the bits of words."""
    size = ones.shape[1]
    number = -(-size // 32)
    ones = backends.backend.padded(ones, 0, number * 32 - size, 0)
    bit = ops.arange(32, dtype="int32")
    words = ops.left_shift(ops.reshape(ones, (-1, number, 32)), bit)
    # Sums of int32 are int64 on JAX, if enabled, where no bit would be shifted out.
    words = ops.cast(ops.sum(words, axis=2), "int32")
    in_word = backends.backend.popcount(words)
    before = ops.cumsum(in_word, axis=1) - in_word
    words, before = words[:, :, None], before[:, :, None]
    counts = backends.backend.popcount(ops.left_shift(words, 31 - bit)) + before
    # XLA would keep a condition, and read it twice.
    counts = counts * (ops.right_shift(words, bit) & 1)
    return ops.reshape(counts, (-1, number * 32))[:, :size]


def popcount(words: Tensor) -> Tensor:
    """Returns the number of set bits of int32 numbers."""
    bits = ops.right_shift(words[..., None], ops.arange(32, dtype="int32")) & 1
    return ops.sum(bits, axis=-1)


def bincount(ids: Tensor, number: int) -> Tensor:
    """Counts how often each id from 0 to `number - 1` occurs, as int32.

    Args:
        ids: int32 tensor of any shape, from 0 on. Larger ids are not counted.
        number: the number of ids.
    """
    ids = ops.reshape(backends.backend.minimum(ids, number), (-1,))
    return ops.segment_sum(ops.ones_like(ids), ids, num_segments=number + 1)[:number]


def histogram(numbers: Tensor, end: int) -> Tensor:
    """Counts how often each row has each number from 0 to `end - 1`, as int32.

    Args:
        numbers: int32 tensor of shape `(batch, size)`, of numbers below the end.
        end: the number of counts of a row.
    """
    rows = numbers.shape[0]
    first = ops.arange(0, rows * end, end, dtype="int32")[:, None]
    counts = backends.backend.bincount(first + numbers, rows * end)
    return ops.reshape(counts, (rows, end))


def group_totals(values: Tensor, group: Tensor) -> Tensor:
    """Returns, for each entry, the sum over its group.

    Args:
        values: tensor of shape `(batch, depth)`.
        group: int tensor of shape `(batch * depth,)`. The group of each entry.
    """
    batch, depth = ops.shape(values)
    totals = ops.segment_sum(
        ops.reshape(values, (-1,)), group, num_segments=batch * depth
    )
    return ops.reshape(ops.take(totals, group), (batch, depth))


# Rows: entries at positions, sorts, searches.


def lowest_of(dtype: Any) -> float:
    """The lowest number of a dtype of floats or int32."""
    name = keras.backend.standardize_dtype(dtype)
    return -math.inf if keras.backend.is_float_dtype(name) else INT32_MIN


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Returns the entries of each row at positions within the row."""
    return ops.take_along_axis(x, positions, axis=1)


def with_lowest(x: Tensor, positions: Tensor) -> Tensor:
    """Returns the rows with `-inf` at positions, of which those at the end are outside.

    Args:
        x: tensor of shape `(batch, size)`, which must not be used afterwards.
        positions: int32 tensor of shape `(batch, some)`, from 0 to `size`.
    """
    rows = ops.arange(x.shape[0], dtype="int32")[:, None]
    rows = ops.broadcast_to(rows, ops.shape(positions))
    places = ops.reshape(ops.stack([rows, positions], axis=2), (-1, 2))
    lowest = ops.full(ops.shape(places)[:1], -math.inf, dtype=x.dtype)
    widened = ops.pad(x, [(0, 0), (0, 1)])
    return ops.scatter_update(widened, places, lowest)[:, :-1]


def without_nan(x: Tensor) -> Tensor:
    """Returns `-inf` in the place of NaN."""
    return backends.backend.where(x > -math.inf, x, -math.inf)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Returns the rows at the positions."""
    return ops.take(x, rows, axis=0)


def row_slice(x: Tensor, first: int, number: int) -> Tensor:
    """Returns consecutive rows of a tensor or an array."""
    return x[first : first + number]


def block_maxima(x: Tensor, size: int) -> Tensor:
    """The maxima of blocks of entries of each row, that is of those that are full.

    Args:
        x: tensor of shape `(batch, row_size)`.
        size: the number of entries of a block: see `BLOCKS_ARE_SPREAD`.

    Returns:
        A tensor of shape `(batch, blocks)`. With NaN, a maximum is NaN, or that of the
        numbers.
    """
    number = x.shape[1] // size
    full = x if number * size == x.shape[1] else x[:, : number * size]
    return ops.amax(ops.reshape(full, (-1, number, size)), axis=2)


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Returns the largest entries of each row in descending order, and their positions.

    Equal entries are in any order, and any of those equal to the last may be included.
    NaN comes first or last, by its sign on some backends, and stays NaN.
    """
    values, positions = ops.top_k(x, count)
    if not keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype)):
        return values, positions
    # On a CPU, XLA turns a slice of TopK into a full sort, ten times slower, unless
    # there is an operation between the two that it doesn't recognize as a no-op.
    lowest, first = constant(-math.inf, values), constant(0, positions)
    values = backends.backend.where(values <= lowest, lowest, values)
    return values, ops.maximum(positions, first)


def top_values(x: Tensor, count: Tensor | int) -> Tensor:
    """Returns the largest entries of each row in descending order."""
    return backends.backend.top_k(x, count)[0]


def argsort(x: Tensor) -> Tensor:
    """Returns the positions that sort each row; equal entries stay in their order."""
    if isinstance(x, np.ndarray):
        # Keras asks for NumPy's quicksort, which leaves equal entries in any order.
        return np.argsort(x, axis=1, kind="stable")
    return ops.argsort(x, axis=1)


def lexsort(*keys: Tensor) -> Tensor:
    """Returns the positions that sort each row by its first key, then by the next."""
    *first, last = keys
    order = backends.backend.argsort(last)
    for key in reversed(first):
        by_key = backends.backend.argsort(backends.backend.take(key, order))
        order = backends.backend.take(order, by_key)
    return order


def sort_by(values: Tensor, *keys: Tensor) -> Tensor:
    """Returns the values of each row in the order of its first key, then of the next.

    On a TPU, a sort that carries them along costs as much as gathering a few entries of
    each row, and 20 to 60 times less than gathering all.
    """
    return backends.backend.take(values, backends.backend.lexsort(*keys))


def sorts_packed(scores: Tensor) -> bool:
    """Returns whether `sort_packed` is the quickest order of some scores."""
    return False


def sort_packed(scores: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the scores and the keys of rows in descending order of both."""
    scores, positions = sorted_descending(scores, keys)
    return scores, take(keys, positions)


def sorts_along() -> bool:
    """Whether to sort values along with what sorts them, rather than gather them."""
    return False


def sorted_descending(scores: Tensor, keys: Tensor | None = None) -> Pair:
    """Returns the scores of each row and their positions, sorted by score and key.

    The highest scores come first, and of equal ones the largest int32 keys. Without
    keys, they are in any order.
    """
    by_key = () if keys is None else (-1 - keys,)
    order = backends.backend.lexsort(-scores, *by_key)
    return backends.backend.take(scores, order), order


def sort(x: Tensor) -> Tensor:
    """Returns the entries of each row, the smallest first."""
    return ops.sort(x, axis=1)


def sort_descending(x: Tensor) -> Tensor:
    """Returns the entries of each row, the largest first."""
    return ops.flip(backends.backend.sort(x), axis=1)


def sort_pairs(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the entries of each row and their int32 keys, sorted by both.

    The smallest entries come first, and of equal ones the smallest keys.
    """
    order = backends.backend.lexsort(x, keys)
    return backends.backend.take(x, order), backends.backend.take(keys, order)


def search_rows(rows: Tensor, thresholds: Tensor, side: Side, bisect: Way) -> Tensor:
    """Counts the entries of sorted rows below thresholds, or up to them.

    Keras's `searchsorted` searches only a single row.

    Args:
        rows: tensor of shape `(batch, size)`, the smallest entries first.
        thresholds: tensor of shape `(batch, number)`.
        side: `"left"` to count the entries below, `"right"` to include equal ones.
        bisect: function without arguments that returns the same by bisection.

    Returns:
        An int32 tensor of the shape of the thresholds.
    """
    return bisect()
