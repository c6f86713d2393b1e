"""PyTorch on CUDA: a program is a CUDA graph, which the host starts by one launch.

Eager PyTorch takes the host longer for each operation than the device. So the third
call of a program with inputs of one kind is recorded, and later ones are replayed:
inputs are copied into the graph's own, and outputs out of it. All other code knows of
it only that Python can't see values meanwhile, as in whatever is compiled.
"""

import contextlib
import dataclasses
import functools
import gc
import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import keras
import optree
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from keras_rank import backends
from keras_rank.backends import generic
from keras_rank.backends.generic import Class, Result, Tensor

BY_DEFAULT = False
CALLS_BEFORE = 2
# With more entries, the device takes longer than the host.
MOST_ENTRIES = 2**22
# With more, as of loops over items, a replay takes longer than shorter eager code.
MOST_OPERATIONS = 2048
# The graphs of a device hold at most this part of the memory that is free.
MEMORY_PART = 16
MOST_GRAPHS, MOST_KINDS = 32, 256
# A graph that one of so many calls has replayed is kept. If more kinds take turns than
# there may be graphs, each call would record another one.
RECENT_CALLS = 1000

_NAMESPACE = "keras_rank"
_TENSORS = torch.Tensor, torch.nn.Parameter
# Operations that read a value, or draw one.
_NEVER = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.nondeterministic_seeded,
}


def _is_asked_for() -> bool:
    value = os.environ.get("KERAS_RANK_CUDA_GRAPHS", str(int(BY_DEFAULT)))
    if value not in ("0", "1"):
        raise ValueError(
            f"`KERAS_RANK_CUDA_GRAPHS` should be 0 or 1. Received: {value!r}"
        )
    return value == "1"


is_on = _is_asked_for()


class Device:
    """All that is asked of CUDA. Tests put a CPU in its place.

    Graphs are recorded on one stream, and share the memory in which they compute, as
    none reads what another one has left there. So they are replayed one by one.
    """

    def __init__(self, index: int) -> None:
        self.name = torch.device("cuda", index)
        self._stream: Any = torch.cuda.Stream(index)  # type: ignore[no-untyped-call]
        self._replayed: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._pool, self.held = torch.cuda.graph_pool_handle(), 0

    @staticmethod
    def current() -> int | None:
        """The device in use, `None` if there is none, or a user records on it."""
        is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if not is_used or torch.cuda.is_current_stream_capturing():
            return None
        return torch.cuda.current_device()

    @staticmethod
    def of(x: torch.Tensor) -> int | None:
        """The device of a tensor, `None` for the host."""
        return None if x.device.type == "cpu" else x.get_device()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Runs on the stream that records, in the order of the current one."""
        here = torch.cuda.current_stream()
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            yield
        here.wait_stream(self._stream)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Replays after whatever was replayed before, on any stream."""
        here = torch.cuda.current_stream()
        here.wait_event(self._replayed)
        try:
            yield
        finally:
            self._replayed.record(here)

    def record(self, program: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Returns what replays a program on the current stream, and what it returned.

        Where a recording can't be ended, PyTorch leaves its stream the current one, and
        before version 2.13 its allocator takes the recording for still going on.
        """
        graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
        recording = torch.cuda.graph(
            graph, self._pool, self._stream, capture_error_mode="thread_local"
        )
        # To free another graph while one is recorded is an error.
        gc.disable()
        try:
            with torch.cuda.stream(self._stream), recording:
                before = torch.cuda.memory_reserved(self.name)
                returned = program()
            self.held += torch.cuda.memory_reserved(self.name) - before
        except BaseException:
            with contextlib.suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(self.name.index, self._pool)
            self._pool = torch.cuda.graph_pool_handle()
            raise
        finally:
            if collects:
                gc.enable()
        return graph.replay, returned

    def wait(self) -> None:
        """Waits for all replays, after which graphs may be freed."""
        self._replayed.synchronize()

    def clear(self) -> None:
        """Records in other memory from now on, as all graphs are freed."""
        self._pool, self.held = torch.cuda.graph_pool_handle(), 0


class _Run(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A run of a program as it is recorded: values are hidden from Python.

    It fails at what no graph can hold, before CUDA does. What is made once is made by a
    first run, as it would lie in the memory of the graph.
    """

    def __init__(self, *, is_first: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_first = is_first
        self.conditions, self.messages = list[Tensor](), list[str]()
        # Tensors that no operation has made: a graph reads their memory.
        self.given = dict[int, torch.Tensor]()
        self._made, self._operations = WeakIdKeyDictionary(), 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self._operations += 1
        self.check(self._operations <= MOST_OPERATIONS, "so many operations")
        self.check(not _NEVER & {*operation.tags}, str(operation))
        is_new = operation is torch.ops.aten.lift_fresh.default
        self.check(self.is_first or not is_new, "a constant that is not kept")
        for x in filter(torch.is_tensor, optree.tree_leaves(args)):
            if x not in self._made:
                self.given[id(x)] = x
        result = operation(*args, **(kwargs or {}))
        for x in filter(torch.is_tensor, optree.tree_leaves(result)):
            self._made[x] = True
            is_here = device_kind.of(x) is not None
            self.check(self.is_first or is_here, "a tensor of the host")
        return result

    @staticmethod
    def check(holds: bool, what: str) -> None:
        if not holds:
            raise RuntimeError(f"A CUDA graph can't hold {what}.")

    def __enter__(self) -> Any:
        self._token = _run.set(self)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        _run.reset(self._token)


class _Graph:
    """A recorded program: the inputs that it reads, and the outputs that it writes."""

    def __init__(self, device: Device, program: Any, tree: Any, leaves: Any) -> None:
        def run(*, is_first: bool = False) -> tuple[list[torch.Tensor], Any, _Run]:
            with _Run(is_first=is_first) as ran:
                returned = program(*tree.unflatten(self._inputs))
                outputs, returns = optree.tree_flatten(returned, namespace=_NAMESPACE)
                if ran.conditions:
                    outputs.append(torch.stack(ran.conditions))
            return outputs, returns, ran

        self.device = device
        with torch.inference_mode(False), torch.no_grad():
            self._inputs = [
                torch.empty((), dtype=torch.int32, device=device.name)
                if isinstance(x, int)
                else torch.empty(x.shape, dtype=x.dtype, device=device.name)
                for x in leaves
            ]
            self._take(leaves)
            with device.aside():
                run(is_first=True)
                run()
            self._replay, (self._outputs, self._returns, self._run) = device.record(run)
        device.held += sum(x.nbytes for x in self._inputs)

    def __call__(self, leaves: list[Any]) -> list[torch.Tensor]:
        """Returns the outputs of a call, before another one overwrites them."""
        with torch.no_grad(), self.device.turn():
            self._take(leaves)
            self._replay()
            outputs = [torch.empty_like(x) for x in self._outputs]
            torch._foreach_copy_(outputs, self._outputs)
        return outputs

    def result(self, outputs: list[torch.Tensor]) -> Any:
        """Returns what the program returns, or raises as it would."""
        if self._run.messages:
            hold = outputs.pop().tolist()
            for condition, message in zip(hold, self._run.messages, strict=True):
                generic.require(condition, message)
        return self._returns.unflatten(outputs)

    def _take(self, leaves: list[Any]) -> None:
        own, others = list[torch.Tensor](), list[torch.Tensor]()
        for ours, x in zip(self._inputs, leaves, strict=True):
            if isinstance(x, int):
                ours.fill_(x)
            else:
                own.append(ours)
                others.append(x)
        torch._foreach_copy_(own, others)


@dataclasses.dataclass
class _Kind:
    """The calls that one graph computes."""

    calls: int = 0
    last_call: int = 0
    graph: _Graph | None = None
    error: str = ""


device_kind: type[Device] = Device
_devices: dict[int, Device] = {}
_kinds: dict[Any, _Kind] = {}
_lock, _clock = threading.RLock(), itertools.count()
_run: ContextVar[_Run | None] = ContextVar("run", default=None)


def hides_values() -> bool:
    """Whether a program is being recorded."""
    return _run.get() is not None


def lasting() -> contextlib.AbstractContextManager[Any]:
    """Tensors of inference mode take no part in gradients, nor can be assigned to."""
    run = None if torch.compiler.is_compiling() else _run.get()
    if run is not None:
        run.check(run.is_first, "what lasts")
    return torch.inference_mode(False)


def require(condition: Tensor | bool, message: str) -> None:
    """A graph has its conditions among its outputs, and they are read once."""
    run = None if torch.compiler.is_compiling() else _run.get()
    if run is not None and generic.known(condition) is None:
        run.conditions.append(condition)
        run.messages.append(message)
    generic.require(condition, message)


def register_tree(kind: Class) -> Class:
    def leaves_of(value: Any) -> list[Any]:
        return list(value) if isinstance(value, list | tuple) else [value]

    flatten, unflatten = generic.parts_of(kind, leaves_of)
    optree.register_pytree_node(kind, flatten, unflatten, namespace=_NAMESPACE)
    return kind


def enter(function: Callable[..., Result], depends: Any, *tensors: Any) -> Result:
    """A call that can't be replayed is one of the function itself."""
    index = None if torch.compiler.is_compiling() else _device_in_use()
    if index is None:
        return function(depends, *tensors)
    leaves: list[Any]
    leaves, tree = optree.tree_flatten(tensors, namespace=_NAMESPACE)  # type: ignore[arg-type]
    forms = _forms_of(leaves, index)
    key = index, function, depends, tree, forms, _modes()
    kind = None if forms is None else _kind_of(key)
    if kind is None:
        return function(depends, *tensors)
    with _lock:
        if kind.graph is None and _is_time(kind):
            _record(kind, index, functools.partial(function, depends), tree, leaves)
        graph, kind.last_call = kind.graph, next(_clock)
        outputs = [] if graph is None else graph(leaves)
    if graph is None:
        return function(depends, *tensors)
    result: Result = graph.result(outputs)
    return result


def _device_in_use() -> int | None:
    """The device whose calls may be replayed, `None` if none is, or all is traced."""
    is_left_out = not is_on or (
        torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        # A mode of a user's, or of a program that is being recorded.
        or torch._C._len_torch_dispatch_stack() > 0
    )
    return None if is_left_out else device_kind.current()


def _modes() -> tuple[Any, ...]:
    """What else determines the operations of a program."""
    return (
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        keras.config.floatx(),
    )


def _forms_of(leaves: list[Any], index: int) -> tuple[Any, ...] | None:
    """What a graph depends on of its inputs, `None` if there can't be one."""
    keeps_gradients = torch.is_grad_enabled()
    devices, forms = set[int | None](), list[Any]()
    for x in leaves:
        if type(x) is int and -(2**31) <= x < 2**31:
            # One of its inputs, as the key of a seed may be another each time.
            forms.append(int)
        elif type(x) in _TENSORS and x.layout is torch.strided:
            if x.numel() >= MOST_ENTRIES or (keeps_gradients and x.requires_grad):
                return None
            devices.add(device_kind.of(x))
            forms.append((x.shape, x.dtype))
        else:
            return None
    return tuple(forms) if devices - {None} == {index} else None


def _kind_of(key: Any) -> _Kind | None:
    """The kind of a call, `None` if no program can be made of it."""
    try:
        kind = _kinds.get(key)
    except TypeError:
        return None
    if kind is None and generic.is_ours(key[2]):
        with _lock:
            if len(_kinds) >= MOST_KINDS:
                others = [x for x in _kinds if _kinds[x].graph is None]
                del _kinds[min(others, key=lambda x: _kinds[x].last_call)]
            kind = _kinds.setdefault(key, _Kind())
    return kind


def _is_time(kind: _Kind) -> bool:
    """Whether to record the next call, in the place of a graph that is not used."""
    kind.calls += 1
    if kind.error or kind.calls <= CALLS_BEFORE:
        return False
    recorded = [other for other in _kinds.values() if other.graph is not None]
    if len(recorded) < MOST_GRAPHS:
        return True
    oldest = min(recorded, key=lambda other: other.last_call)
    if kind.last_call - oldest.last_call <= RECENT_CALLS:
        return False
    _forget([oldest])
    return True


def _record(kind: _Kind, index: int, program: Any, tree: Any, leaves: Any) -> None:
    if index not in _devices:
        _devices[index] = device_kind(index)
    device, free = _devices[index], backends.backend.free_memory()
    try:
        kind.graph = _Graph(device, program, tree, leaves)
    except Exception as error:
        kind.error = repr(error)
    if device.held > (math.inf if free is None else free / MEMORY_PART):
        # All of them, as they share memory.
        graphs = ((other, other.graph) for other in _kinds.values())
        _forget([other for other, x in graphs if x and x.device is device])
        device.clear()
        kind.error = kind.error or "It takes too much memory."


def _forget(kinds: list[_Kind]) -> None:
    for kind in kinds:
        if kind.graph is not None:
            kind.graph.device.wait()
        kind.graph, kind.calls = None, 0
