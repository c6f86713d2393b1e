"""Functions for PyTorch, with few eager operations, and NumPy's sorts on a CPU."""

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import torch
from keras import ops

from keras_rank import backends
from keras_rank.backends import generic, numpy, torch_graphs
from keras_rank.backends.generic import (
    Array,
    Branch,
    Function,
    Pair,
    Side,
    Tensor,
    TensorFactory,
)

run_program, persistent_scope = torch_graphs.run_program, torch_graphs.persistent_scope
register_tree, require = torch_graphs.register_tree, torch_graphs.require

# torch and NumPy sort fewer entries equally fast.
_MIN_LARGE_SIZE = 4096
_NUMPY_SORTED_DTYPES = (torch.float32, torch.int32, torch.bool)
_INT32_MAX = 2**31 - 1
# The booleans of so many comparisons take twice the memory of the scores.
_COMPARISON_BLOCK_SIZE = 8


def on_accelerator() -> bool:
    return torch.accelerator.is_available()


def _get_accelerator() -> torch.device | None:
    """Returns the accelerator, or `None` if none is available.

    `current_accelerator` alone also returns devices that torch was only built for.
    """
    if not torch.accelerator.is_available():
        return None
    return torch.accelerator.current_accelerator()


def is_compiling() -> bool:
    return torch.compiler.is_compiling()


def is_concrete(x: Tensor) -> bool:
    if isinstance(x, keras.KerasTensor) or torch_graphs.hides_values():
        return False
    if isinstance(x, np.ndarray):
        return True
    return x.device.type != "meta" and not torch._C._functorch.is_batchedtensor(x)


def is_traced(*tensors: Tensor) -> bool:
    """Checks all transforms: `torch.vmap` raises for operations that draw numbers."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or generic.is_traced(*tensors)
    )


def traced_as_constant(function: Function) -> Function:
    """Makes the result a constant: `torch.compile` can't trace how it is created."""
    assume: Any = torch.compiler.assume_constant_result
    constant: Function = assume(function)
    return constant


def has_no_data(x: Tensor) -> bool:
    """Returns whether the device is `meta`.

    An error would leave the device scope of Keras at `meta`.
    """
    return bool(x.device.type == "meta")


def is_building_symbolically() -> bool:
    return has_no_data(ops.convert_to_tensor(0.0))


if sys.version_info < (3, 12):

    class cached_property(functools.cached_property[Any]):  # noqa: N801
        """A property without the lock of Python 3.11, which can't be traced."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            value = vars(instance)[self.attrname] = self.func(instance)
            return value


def get_layer_mask(x: Any) -> Tensor | None:
    mask: Tensor | None = getattr(x, "_keras_mask", None)
    return mask


def copy_if_mutable(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


def scalar(value: int) -> Tensor:
    """Returns the number: operations use it without a copy to the device."""
    return value


def copy_to_device(array: Array) -> Tensor:
    """Copies from pinned memory on a separate stream.

    The host would otherwise wait for the work on the current stream.
    """
    accelerator = _get_accelerator()
    if accelerator is None or accelerator.type != "cuda":
        return backends.backend.to_tensor(array)
    current_stream, transfer_stream = (
        torch.cuda.current_stream(),
        _get_transfer_stream(torch.cuda.current_device()),
    )
    with torch.cuda.stream(transfer_stream):
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        pinned = torch.empty(array.shape, dtype=dtype, pin_memory=True)
        np.copyto(pinned.numpy(), array)
        copied = pinned.to(accelerator, non_blocking=True)
    current_stream.wait_stream(transfer_stream)
    copied.record_stream(current_stream)
    return copied


@functools.cache
def _get_transfer_stream(device: int) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def read(tensors: Sequence[Tensor]) -> list[Array]:
    """Copies all tensors of one dtype together."""
    if not backends.backend.on_accelerator():
        return generic.read(tensors)
    arrays = dict[int, Array]()
    for dtype in {x.dtype for x in tensors}:
        indices = [i for i, x in enumerate(tensors) if x.dtype == dtype]
        parts = [tensors[i].reshape(-1) for i in indices]
        array = torch.cat(parts).cpu().numpy()
        ends = np.cumsum([len(x) for x in parts])
        for i, part in zip(indices, np.split(array, ends[:-1]), strict=True):
            arrays[i] = part.reshape(tuple(tensors[i].shape))
    return [arrays[i] for i in range(len(tensors))]


def make_waiter(tensors: Any) -> Callable[[], Any]:
    if not torch.cuda.is_available():
        return generic.make_waiter(tensors)
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    wait: Callable[[], Any] = event.synchronize
    return wait


def free_memory() -> int | None:
    """Includes memory that torch has reserved and does not use."""
    accelerator = _get_accelerator()
    module: Any = accelerator and torch.get_device_module(accelerator)
    if not hasattr(module, "mem_get_info"):
        return None
    unused = module.memory_reserved() - module.memory_allocated()
    return int(module.mem_get_info()[0] + unused)


def supported_dtype(dtype: str) -> str:
    accelerator = _get_accelerator() if dtype == "float64" else None
    return "float32" if accelerator and accelerator.type == "mps" else dtype


def constant(value: Tensor | float, like: Tensor) -> Tensor:
    """Caches the number, which Keras would copy to the device at each use."""
    if torch.compiler.is_compiling() or not isinstance(like, torch.Tensor):
        return generic.constant(value, like)
    if isinstance(value, torch.Tensor):
        return value.to(like.dtype)
    return _constant(value, like.dtype, like.device)


@functools.lru_cache(maxsize=1024)
def _constant(value: float, dtype: Any, device: Any) -> Tensor:
    with persistent_scope():
        return torch.tensor(value, dtype=dtype, device=device)


def cached_constant(
    make: TensorFactory, *numbers: Any, size: int, like: Tensor
) -> Tensor:
    if torch.compiler.is_compiling():
        return make(*numbers)
    return _cached_constant(make, *numbers, device=like.device)


@functools.lru_cache(maxsize=1024)
def _cached_constant(make: TensorFactory, *numbers: Any, device: Any) -> Tensor:
    with persistent_scope():
        return make(*numbers).to(device)


def stop_gradient(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or not isinstance(x, torch.Tensor):
        return ops.stop_gradient(x)
    return x.detach() if x.requires_grad else x


def get_library(x: Tensor) -> Any:
    if isinstance(x, torch.Tensor):
        return torch
    return generic.get_library(x)


def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """Caches numbers, which torch would copy to the device at each use.

    Returns `x` on a CPU if the condition is true everywhere: this test takes less time
    than the allocation of a copy.
    """
    if not isinstance(condition, torch.Tensor):
        return generic.where(condition, x, y)
    like: Tensor = x if isinstance(x, torch.Tensor) else y
    if torch.compiler.is_compiling():
        x, y = (
            a if isinstance(a, torch.Tensor) else like.new_full((), a) for a in (x, y)
        )
        return torch.where(condition, x, y)
    if not isinstance(y, torch.Tensor):
        if like is x and x.shape == condition.shape and _is_known_all_true(condition):
            return x
        y = _constant(y, like.dtype, like.device)
    elif not isinstance(x, torch.Tensor):
        x = _constant(x, like.dtype, like.device)
    return torch.where(condition, x, y)


def minimum(x: Tensor, bound: Tensor | float) -> Tensor:
    if isinstance(x, torch.Tensor) and isinstance(bound, int | float):
        return x.clamp(max=bound)
    return generic.minimum(x, bound)


def maximum(x: Tensor, bound: Tensor | float) -> Tensor:
    if isinstance(x, torch.Tensor) and isinstance(bound, int | float):
        return x.clamp(min=bound)
    return generic.maximum(x, bound)


def pad_rows(x: Tensor, before: int, after: int, value: float) -> Tensor:
    """Uses torch, as `keras.ops.pad` takes ten times as long."""
    return torch.nn.functional.pad(x, (before, after), value=value)


def hard_shrink(x: Tensor, threshold: float) -> Tensor:
    """Uses a single operation."""
    return torch.nn.functional.hardshrink(x, threshold)


# `torch.exp2` takes a tenth of the time of a power.
power_of_two = torch.exp2
# A norm is a single operation.
row_norms = functools.partial(torch.linalg.vector_norm, dim=1, keepdim=True)
row_max_abs = functools.partial(row_norms, ord=math.inf)


def compute_in_float64(function: Callable[..., Any], *tensors: Tensor) -> Any:
    if tensors[0].device.type == "mps":
        return function(*tensors)
    return function(*(x.double() for x in tensors))


def split_float64(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rest = x - (high := x.float())
    return high, (low := rest.float()), (rest - low).float()


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Disables autocast too, which would multiply in half precision."""
    accelerator = _get_accelerator()
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            for device in {"cpu", accelerator.type if accelerator else "cpu"}:
                stack.enter_context(torch.autocast(device, enabled=False))
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def tree_sum(values: Tensor, levels: int) -> Tensor:
    """Sums with one operation per level."""
    values = values.reshape(*values.shape[:-1], *[2] * levels)
    for level in range(levels):
        values = values.sum(dim=level - levels)
    return values


def running_count(mask: Tensor) -> Tensor:
    """Uses one cumulative sum, which reads each entry once on all devices."""
    return mask.cumsum(1, dtype=torch.int32) * mask


def count_at_least(entries: Tensor, thresholds: Tensor) -> Tensor:
    """Sums booleans as bytes of words, which takes a GPU half the time."""
    (lists, size), number = entries.shape, thresholds.shape[1]
    if not backends.backend.on_accelerator() or size % 4:
        return generic.count_at_least(entries, thresholds)
    if number > _COMPARISON_BLOCK_SIZE:
        blocks = thresholds.split(_COMPARISON_BLOCK_SIZE, dim=1)
        return torch.cat([count_at_least(entries, block) for block in blocks], dim=1)
    # A view in another dtype is a single operation in inference mode.
    with torch.inference_mode():
        # A comparison of a transposed view has the layout of the view.
        is_reached = (entries[:, None] >= thresholds[..., None]).contiguous()
        group_size = math.gcd(size // 4, 128)
        words = is_reached.view(torch.int32).view(lists, number, -1, group_size)
        byte_sums = words.sum(3, dtype=torch.int32).view(torch.uint8)
        return byte_sums.sum(2, dtype=torch.int32)


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    if backends.backend.on_accelerator():
        options = {"dim": 1, "keepdim": True, "dtype": getattr(torch, dtype)}
        return [x().sum(**options) for x in conditions]
    return [_count_true_bytes(x(), dtype) for x in conditions]


def _count_true_bytes(conditions: Tensor, dtype: str) -> Tensor:
    """Counts the true entries of each row.

    torch sums bytes nine times as fast as booleans, and words of four bytes another ten
    times as fast. Each byte of a sum holds counts of up to 255. NumPy does not require
    that words are aligned, so it counts rows of other sizes.
    """
    size = conditions.shape[1]
    array = _to_large_array(conditions) if size % 4 else None
    if array is not None:
        return torch.from_numpy(numpy.count_true_bytes(array).astype(dtype))
    # A comparison of a transposed view has the layout of the view.
    summands = conditions.contiguous().view(torch.uint8)
    if size >= _MIN_LARGE_SIZE and size % 4 == 0:
        group_size = math.gcd(size // 4, 128)
        words = summands.view(torch.int32).view(-1, size // 4 // group_size, group_size)
        summands = words.sum(2, dtype=torch.int32).view(torch.uint8)
    return summands.sum(1, keepdim=True, dtype=getattr(torch, dtype))


def first_true(conditions: Tensor, like: Tensor) -> Tensor:
    """Uses `argmax` of bytes: half the time of the reference."""
    first = conditions.byte().argmax(1, keepdim=True)
    return like.new_zeros(conditions.shape).scatter_(1, first, 1.0)


def bincount(ids: Tensor, number: int) -> Tensor:
    """Uses one sum by index, which `torch.compile` can trace."""
    ids = minimum(ids, number).reshape(-1)
    counts = ids.new_zeros(number + 1).index_add(0, ids, torch.ones_like(ids))
    return counts[:number]


def histogram(numbers: Tensor, end: int) -> Tensor:
    counts = numbers.new_zeros((numbers.shape[0], end))
    one = _constant(1, numbers.dtype, numbers.device).expand(numbers.shape)
    return counts.scatter_add_(1, numbers.long(), one)


def group_totals(values: Tensor, group: Tensor) -> Tensor:
    """Uses one sum by index.

    `keras.ops.segment_sum` takes ten operations, one of which `torch.compile` can't
    trace, and casts float64 to float32.
    """
    totals = values.new_zeros(values.numel())
    totals = totals.index_add(0, group, values.reshape(-1))
    return totals.index_select(0, group).view(values.shape)


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Skips the handling of negative positions, which takes Keras seven operations."""
    return x.gather(1, positions.long())


def set_to_lowest(x: Tensor, positions: Tensor) -> Tensor:
    """Changes `x` in place, by minima that don't depend on the order of positions.

    A position outside a row leaves the last entry unchanged.
    """
    size = x.shape[1]
    lowest = where(positions < size, _constant(-math.inf, x.dtype, x.device), math.inf)
    positions = positions.clamp(max=size - 1).long()
    return x.scatter_reduce_(1, positions, lowest, "amin")


def replace_nan(x: Tensor) -> Tensor:
    """Uses a single operation."""
    return x.nan_to_num(-math.inf, math.inf, -math.inf)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Uses a single operation."""
    return torch.nn.functional.embedding(rows, x)


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """Uses NumPy for rows below `64 * count` entries, which torch sorts as a whole."""
    array = _to_large_array(x) if x.shape[1] < 64 * count else None
    if array is None:
        values, positions = torch.topk(x, count)
        return values, positions
    top, indices = numpy.top_k(array, count)
    return torch.from_numpy(top), torch.from_numpy(indices)


def top_values(x: Tensor, count: Tensor | int) -> Tensor:
    array = _to_large_array(x) if x.shape[1] < 64 * count else None
    if array is None:
        return torch.topk(x, count).values
    return torch.from_numpy(np.sort(array, axis=1)[:, ::-1][:, :count].copy())


def argsort(x: Tensor) -> Tensor:
    array = _to_large_array(x)
    if array is None:
        return torch.argsort(x, dim=1, stable=True)
    return torch.from_numpy(numpy.argsort(array))


def _to_large_array(x: Tensor) -> Array | None:
    """Returns a large tensor as an array, or `None` if NumPy does not sort it faster.

    They share memory. NumPy sorts on a CPU in a sixth of the time of torch, or less.
    """
    is_large = math.prod(x.shape) >= _MIN_LARGE_SIZE and x.dtype in _NUMPY_SORTED_DTYPES
    if not is_large or not is_concrete(x) or backends.backend.on_accelerator():
        return None
    # torch raises for a tensor with a pending negation, and for all tensors within
    # `torch.func`.
    with contextlib.suppress(RuntimeError, TypeError):
        x = x.resolve_neg() if x.is_neg() else x
        array: Array = x.numpy(force=x.requires_grad)
        return array
    return None


def _is_known_all_true(conditions: Tensor) -> bool:
    """Returns whether a large tensor is concrete and true everywhere."""
    array = _to_large_array(conditions)
    return array is not None and bool(array.all())


def sort(x: Tensor) -> Tensor:
    array = _to_large_array(x)
    if array is None:
        return x.sort(dim=1).values
    return torch.from_numpy(np.sort(array, axis=1))


def sort_scores(scores: Tensor, keys: Tensor | None = None) -> Pair:
    is_cuda = getattr(scores, "is_cuda", False)
    if keys is None and is_cuda:
        result: tuple[Tensor, Tensor] = torch.sort(scores, dim=1, descending=True)
        return result
    if keys is not None and is_cuda and scores.dtype == torch.float32:
        return sort_as_words(scores, keys)
    return generic.sort_scores(scores, keys)


def sort_as_words(scores: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Sorts float32 scores and keys as words of 64 bits, with one stable sort."""
    # The sum turns -0.0 into 0.0, as both are equal.
    bits = (stop_gradient(scores) + 0.0).view(torch.int32)
    # Bits of negative numbers would be sorted in reverse order, so they are flipped.
    high_bits = bits ^ (bits >> 31 & _INT32_MAX)
    words = torch.add(keys, high_bits.long(), alpha=2**32)
    order = words.sort(dim=1, descending=True, stable=True).indices
    return take(scores, order), order


def sort_pairs(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    entries, key_array = _to_large_array(x), _to_large_array(keys)
    if entries is None or key_array is None:
        return generic.sort_pairs(x, keys)
    sorted_x, sorted_keys = map(torch.from_numpy, numpy.sort_pairs(entries, key_array))
    return sorted_x, sorted_keys


def search_rows(rows: Tensor, thresholds: Tensor, side: Side, bisect: Branch) -> Tensor:
    rows, thresholds = rows.contiguous(), thresholds.contiguous()
    return torch.searchsorted(rows, thresholds, side=side, out_int32=True)
