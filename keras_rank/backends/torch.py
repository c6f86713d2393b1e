"""PyTorch: each operation of eager code takes time, and on a CPU NumPy sorts sooner."""

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
from keras_rank.backends.generic import Array, Function, Make, Pair, Side, Tensor, Way

enter, lasting = torch_graphs.enter, torch_graphs.lasting
register_tree, require = torch_graphs.register_tree, torch_graphs.require

# Fewer entries are sorted equally fast in any way.
_MANY_ENTRIES = 4096
_SORTED_BY_NUMPY = (torch.float32, torch.int32, torch.bool)
_INT32_MAX = 2**31 - 1
# So many comparisons take twice the memory of the scores.
_COMPARED_AT_ONCE = 8


def on_accelerator() -> bool:
    return torch.accelerator.is_available()


def _accelerator() -> torch.device | None:
    """The device, `None` where there is none: torch names those it was built for."""
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
    """`torch.vmap` raises for operations that draw numbers."""
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
        or generic.is_traced(*tensors)
    )


def traced_as_constant(function: Function) -> Function:
    """Calls it while tracing: `torch.compile` can't trace the creation of a metric."""
    assume: Any = torch.compiler.assume_constant_result
    constant: Function = assume(function)
    return constant


def has_no_data(x: Tensor) -> bool:
    """An error would leave Keras's device as it is there."""
    return bool(x.device.type == "meta")


def builds_symbolically() -> bool:
    return has_no_data(ops.convert_to_tensor(0.0))


if sys.version_info < (3, 12):

    class cached_property(functools.cached_property[Any]):  # noqa: N801
        """Without the lock of Python 3.11, which `torch.compile` can't trace."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            value = vars(instance)[self.attrname] = self.func(instance)
            return value


def layer_mask(x: Any) -> Tensor | None:
    mask: Tensor | None = getattr(x, "_keras_mask", None)
    return mask


def own_copy(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


def scalar(value: int) -> Tensor:
    """An operation takes it without a copy to the device."""
    return value


def sent(array: Array) -> Tensor:
    """From pinned memory and beside the other work, or the host would wait for that."""
    accelerator = _accelerator()
    if accelerator is None or accelerator.type != "cuda":
        return backends.backend.to_tensor(array)
    here, aside = torch.cuda.current_stream(), _stream(torch.cuda.current_device())
    with torch.cuda.stream(aside):
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        pinned = torch.empty(array.shape, dtype=dtype, pin_memory=True)
        np.copyto(pinned.numpy(), array)
        copied = pinned.to(accelerator, non_blocking=True)
    here.wait_stream(aside)
    copied.record_stream(here)
    return copied


@functools.cache
def _stream(device: int) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def read(tensors: Sequence[Tensor]) -> list[Array]:
    """Those of one dtype are copied as one."""
    if not backends.backend.on_accelerator():
        return generic.read(tensors)
    found = dict[int, Array]()
    for dtype in {x.dtype for x in tensors}:
        places = [i for i, x in enumerate(tensors) if x.dtype == dtype]
        parts = [tensors[i].reshape(-1) for i in places]
        array = torch.cat(parts).cpu().numpy()
        ends = np.cumsum([len(x) for x in parts])
        for i, part in zip(places, np.split(array, ends[:-1]), strict=True):
            found[i] = part.reshape(tuple(tensors[i].shape))
    return [found[i] for i in range(len(tensors))]


def waiting_for(tensors: Any) -> Callable[[], Any]:
    if not torch.cuda.is_available():
        return generic.waiting_for(tensors)
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    wait: Callable[[], Any] = event.synchronize
    return wait


def free_memory() -> int | None:
    """With what torch keeps for itself and does not use."""
    accelerator = _accelerator()
    module: Any = accelerator and torch.get_device_module(accelerator)
    if not hasattr(module, "mem_get_info"):
        return None
    kept = module.memory_reserved() - module.memory_allocated()
    return int(module.mem_get_info()[0] + kept)


def widest(dtype: str) -> str:
    accelerator = _accelerator() if dtype == "float64" else None
    return "float32" if accelerator and accelerator.type == "mps" else dtype


def constant(value: Tensor | float, like: Tensor) -> Tensor:
    """Keras would copy the number to the device at each use."""
    if torch.compiler.is_compiling() or not isinstance(like, torch.Tensor):
        return generic.constant(value, like)
    if isinstance(value, torch.Tensor):
        return value.to(like.dtype)
    return _constant(value, like.dtype, like.device)


@functools.lru_cache(maxsize=1024)
def _constant(value: float, dtype: Any, device: Any) -> Tensor:
    with lasting():
        return torch.tensor(value, dtype=dtype, device=device)


def made_once(make: Make, *numbers: Any, size: int, like: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return make(*numbers)
    return _made_once(make, *numbers, device=like.device)


@functools.lru_cache(maxsize=1024)
def _made_once(make: Make, *numbers: Any, device: Any) -> Tensor:
    with lasting():
        return make(*numbers).to(device)


def detached(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or not isinstance(x, torch.Tensor):
        return ops.stop_gradient(x)
    return x.detach() if x.requires_grad else x


def library_of(x: Tensor) -> Any:
    if isinstance(x, torch.Tensor):
        return torch
    return generic.library_of(x)


def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    """Torch would copy a number to the device at each use.

    On a CPU, to look whether a number is chosen anywhere takes less time than memory
    for a copy.
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
        if like is x and x.shape == condition.shape and _are_all(condition):
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


def padded(x: Tensor, before: int, after: int, value: float) -> Tensor:
    """Keras's `pad` takes ten times as long."""
    return torch.nn.functional.pad(x, (before, after), value=value)


def shrunk(x: Tensor, size: float) -> Tensor:
    """In one operation."""
    return torch.nn.functional.hardshrink(x, size)


# In a tenth of the time of a power.
power_of_two = torch.exp2
# In one operation.
lengths = functools.partial(torch.linalg.vector_norm, dim=1, keepdim=True)
largest_size = functools.partial(lengths, ord=math.inf)


def in_float64(function: Callable[..., Any], *tensors: Tensor) -> Any:
    if tensors[0].device.type == "mps":
        return function(*tensors)
    return function(*(x.double() for x in tensors))


def split_float64(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rest = x - (high := x.float())
    return high, (low := rest.float()), (rest - low).float()


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Autocast would multiply in half precision."""
    accelerator = _accelerator()
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
    """In one operation for each level."""
    values = values.reshape(*values.shape[:-1], *[2] * levels)
    for level in range(levels):
        values = values.sum(dim=level - levels)
    return values


def running_count(mask: Tensor) -> Tensor:
    """Sums in one operation, which reads each entry once on all devices."""
    return mask.cumsum(1, dtype=torch.int32) * mask


def count_at_least(entries: Tensor, thresholds: Tensor) -> Tensor:
    """Many at a time, as bytes of words: a GPU takes half as long as for booleans."""
    (lists, size), number = entries.shape, thresholds.shape[1]
    if not backends.backend.on_accelerator() or size % 4:
        return generic.count_at_least(entries, thresholds)
    if number > _COMPARED_AT_ONCE:
        groups = thresholds.split(_COMPARED_AT_ONCE, dim=1)
        return torch.cat([count_at_least(entries, some) for some in groups], dim=1)
    # Where a view in another dtype is one operation.
    with torch.inference_mode():
        # A comparison of a transposed view has its layout.
        reach = (entries[:, None] >= thresholds[..., None]).contiguous()
        some = math.gcd(size // 4, 128)
        words = reach.view(torch.int32).view(lists, number, -1, some)
        as_bytes = words.sum(3, dtype=torch.int32).view(torch.uint8)
        return as_bytes.sum(2, dtype=torch.int32)


def count_true(conditions: Sequence[Callable[[], Tensor]], dtype: str) -> list[Tensor]:
    if backends.backend.on_accelerator():
        number = {"dim": 1, "keepdim": True, "dtype": getattr(torch, dtype)}
        return [x().sum(**number) for x in conditions]
    return [_sum_of_bytes(x(), dtype) for x in conditions]


def _sum_of_bytes(conditions: Tensor, dtype: str) -> Tensor:
    """The number of true entries of each row.

    It adds bytes nine times as fast as booleans, and another ten times as fast if four
    bytes are read as one number. Each byte holds sums of up to 255. NumPy also reads
    numbers that begin anywhere.
    """
    size = conditions.shape[1]
    array = _of_many(conditions) if size % 4 else None
    if array is not None:
        return torch.from_numpy(numpy.sum_of_bytes(array).astype(dtype))
    # A comparison of a transposed view has its layout.
    as_bytes = conditions.contiguous().view(torch.uint8)
    if size >= _MANY_ENTRIES and size % 4 == 0:
        some = math.gcd(size // 4, 128)
        words = as_bytes.view(torch.int32).view(-1, size // 4 // some, some)
        as_bytes = words.sum(2, dtype=torch.int32).view(torch.uint8)
    return as_bytes.sum(1, keepdim=True, dtype=getattr(torch, dtype))


def first_true(conditions: Tensor, like: Tensor) -> Tensor:
    """In half the time."""
    first = conditions.byte().argmax(1, keepdim=True)
    return like.new_zeros(conditions.shape).scatter_(1, first, 1.0)


def bincount(ids: Tensor, number: int) -> Tensor:
    """In one operation, which torch.compile can trace."""
    ids = minimum(ids, number).reshape(-1)
    counts = ids.new_zeros(number + 1).index_add(0, ids, torch.ones_like(ids))
    return counts[:number]


def histogram(numbers: Tensor, end: int) -> Tensor:
    counts = numbers.new_zeros((numbers.shape[0], end))
    one = _constant(1, numbers.dtype, numbers.device).expand(numbers.shape)
    return counts.scatter_add_(1, numbers.long(), one)


def group_totals(values: Tensor, group: Tensor) -> Tensor:
    """Keras's segment_sum takes ten operations, one of which torch.compile can't trace.

    It also casts float64 to float32.
    """
    totals = values.new_zeros(values.numel())
    totals = totals.index_add(0, group, values.reshape(-1))
    return totals.index_select(0, group).view(values.shape)


def take(x: Tensor, positions: Tensor) -> Tensor:
    """Keras also handles negative positions, in seven operations."""
    return x.gather(1, positions.long())


def with_lowest(x: Tensor, positions: Tensor) -> Tensor:
    """In place. Those outside leave the last entry as it is, whatever comes first."""
    size = x.shape[1]
    lowest = where(positions < size, _constant(-math.inf, x.dtype, x.device), math.inf)
    positions = positions.clamp(max=size - 1).long()
    return x.scatter_reduce_(1, positions, lowest, "amin")


def without_nan(x: Tensor) -> Tensor:
    """In one operation."""
    return x.nan_to_num(-math.inf, math.inf, -math.inf)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """In one operation."""
    return torch.nn.functional.embedding(rows, x)


def top_k(x: Tensor, count: Tensor | int) -> tuple[Tensor, Tensor]:
    """From 64 times as many entries on, torch orders only the largest."""
    array = _of_many(x) if x.shape[1] < 64 * count else None
    if array is None:
        values, positions = torch.topk(x, count)
        return values, positions
    found, places = numpy.top_k(array, count)
    return torch.from_numpy(found), torch.from_numpy(places)


def top_values(x: Tensor, count: Tensor | int) -> Tensor:
    array = _of_many(x) if x.shape[1] < 64 * count else None
    if array is None:
        return torch.topk(x, count).values
    return torch.from_numpy(np.sort(array, axis=1)[:, ::-1][:, :count].copy())


def argsort(x: Tensor) -> Tensor:
    array = _of_many(x)
    if array is None:
        return torch.argsort(x, dim=1, stable=True)
    return torch.from_numpy(numpy.argsort(array))


def _of_many(x: Tensor) -> Array | None:
    """The memory of many entries for NumPy, or `None`.

    On a CPU, it sorts them in a sixth of the time of torch, or less.
    """
    is_many = math.prod(x.shape) >= _MANY_ENTRIES and x.dtype in _SORTED_BY_NUMPY
    if not is_many or not is_concrete(x) or backends.backend.on_accelerator():
        return None
    # Torch refuses a tensor whose signs it has yet to change, and any within
    # `torch.func`.
    with contextlib.suppress(RuntimeError, TypeError):
        x = x.resolve_neg() if x.is_neg() else x
        array: Array = x.numpy(force=x.requires_grad)
        return array
    return None


def _are_all(conditions: Tensor) -> bool:
    """Whether many conditions are seen to hold."""
    array = _of_many(conditions)
    return array is not None and bool(array.all())


def sort(x: Tensor) -> Tensor:
    array = _of_many(x)
    if array is None:
        return x.sort(dim=1).values
    return torch.from_numpy(np.sort(array, axis=1))


def sorted_descending(scores: Tensor, keys: Tensor | None = None) -> Pair:
    is_cuda = getattr(scores, "is_cuda", False)
    if keys is None and is_cuda:
        found: tuple[Tensor, Tensor] = torch.sort(scores, dim=1, descending=True)
        return found
    if keys is not None and is_cuda and scores.dtype == torch.float32:
        return sorted_as_words(scores, keys)
    return generic.sorted_descending(scores, keys)


def sorted_as_words(scores: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """By one stable sort of both as words, for float32 scores."""
    # Of the two zeros, only 0.0 is left.
    bits = (detached(scores) + 0.0).view(torch.int32)
    # As integers, negative numbers would be in reverse order.
    digits = bits ^ (bits >> 31 & _INT32_MAX)
    words = torch.add(keys, digits.long(), alpha=2**32)
    order = words.sort(dim=1, descending=True, stable=True).indices
    return take(scores, order), order


def sort_pairs(x: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    array, of_array = _of_many(x), _of_many(keys)
    if array is None or of_array is None:
        return generic.sort_pairs(x, keys)
    in_order, of_entries = map(torch.from_numpy, numpy.sort_pairs(array, of_array))
    return in_order, of_entries


def search_rows(rows: Tensor, thresholds: Tensor, side: Side, bisect: Way) -> Tensor:
    rows, thresholds = rows.contiguous(), thresholds.contiguous()
    return torch.searchsorted(rows, thresholds, side=side, out_int32=True)
