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
from collections.abc import Callable
from typing import Any

import keras
import optree
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.weak import WeakIdKeyDictionary

from keras_rank import backends
from keras_rank.backends import generic
from keras_rank.backends.generic import Class, Result, Tensor

CALLS_BEFORE = 2
# With more entries, the device takes longer than the host.
MOST_ENTRIES = 2**22
# With more, as of loops over items, a replay takes longer than shorter eager code.
MOST_OPERATIONS = 2048
# Graphs hold at most this part of the memory that is free.
MEMORY_PART = 16
MOST_GRAPHS, MOST_KINDS = 32, 256
# A graph that one of so many calls has replayed is kept. If more kinds take turns than
# there may be graphs, each call would record another one.
RECENT_CALLS = 1000

# Operations that read a value, or draw one.
_READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_NEVER = _READS | {torch.Tag.nondeterministic_seeded}
_TENSORS = torch.Tensor, torch.nn.Parameter
# With the classes of this package.
_flatten: Any = functools.partial(optree.tree_flatten, namespace="keras_rank")


def _tensors_in(tree: Any) -> list[torch.Tensor]:
    return [x for x in _flatten(tree)[0] if isinstance(x, torch.Tensor)]


def _is_asked_for() -> bool:
    value = os.environ.get("KERAS_RANK_CUDA_GRAPHS", "1")
    if value in ("0", "1"):
        return value == "1"
    raise ValueError(f"`KERAS_RANK_CUDA_GRAPHS` should be 0 or 1. Received: {value!r}")


class _Run(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A run of a program that is recorded, or a first one, which makes what lasts.

    It fails at what no graph can hold, before CUDA does.
    """

    def __init__(self, *, is_first: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_first, self._operations = is_first, 0
        self.conditions, self.messages = list[Tensor](), list[str]()
        # Tensors that no operation has made are kept: a graph reads their memory.
        self._made, self._given = WeakIdKeyDictionary(), dict[int, torch.Tensor]()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self._operations += 1
        is_new = operation is torch.ops.aten.lift_fresh.default and not self.is_first
        if is_new or _NEVER & {*operation.tags} or self._operations > MOST_OPERATIONS:
            raise RuntimeError(f"A CUDA graph can't hold {operation}.")
        for x in _tensors_in((args, kwargs)):
            if x not in self._made:
                self._given[id(x)] = x
        result = operation(*args, **(kwargs or {}))
        for x in _tensors_in(result):
            self._made[x] = True
        return result


class Graph:
    """A recorded program: the inputs that it reads, and the outputs that it writes.

    Tests put a CPU in the place of CUDA: `device`, `record`, `replay` and `wait`.
    """

    def __init__(self, program: Any, tree: Any, leaves: list[Any]) -> None:
        def run(*, is_first: bool) -> None:
            with _Run(is_first=is_first) as self._run:
                returned = program(*tree.unflatten(self._inputs))
            self._outputs, self._tree = _flatten((returned, self._run.conditions))

        with torch.inference_mode(False), torch.no_grad():
            forms: Any = map(_form_of, leaves)
            self._inputs = [
                torch.empty(shape, dtype=dtype, device=self.device())
                for shape, dtype in forms
            ]
            self._take(leaves)
            run(is_first=True)
            self.held = self.record(functools.partial(run, is_first=False))
        self.held += sum(x.nbytes for x in (*self._inputs, *self._outputs))

    def __call__(self, leaves: list[Any]) -> list[torch.Tensor]:
        """Returns the outputs of a call, before another one overwrites them."""
        with torch.no_grad():
            outputs = [torch.empty_like(x) for x in self._outputs]
            self.replay(leaves, outputs)
        return outputs

    def result(self, outputs: list[torch.Tensor]) -> Any:
        """Returns what the program returns, or raises as it would."""
        returned, conditions = self._tree.unflatten(outputs)
        hold = torch.stack(conditions).tolist() if conditions else []
        for condition, message in zip(hold, self._run.messages, strict=True):
            generic.require(condition, message)
        return returned

    def _take(self, leaves: list[Any]) -> None:
        """Tensors of a GPU are copied by one call, those of the host by one each."""
        own, others = list[torch.Tensor](), list[torch.Tensor]()
        for ours, x in zip(self._inputs, leaves, strict=True):
            if isinstance(x, int):
                ours.fill_(x)
            else:
                own.append(ours)
                others.append(x)
        torch._foreach_copy_(own, others)

    @staticmethod
    def device() -> torch.device | None:
        """The device in use, `None` if there is none, or a user records on it."""
        is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if not is_used or torch.cuda.is_current_stream_capturing():
            return None
        return torch.device("cuda", torch.cuda.current_device())

    def record(self, run: Callable[[], None]) -> int:
        """Records a run on one stream of the device, and returns the memory it needs.

        Where a recording can't be ended, PyTorch leaves its stream the current one, and
        before version 2.13 its allocator takes the recording for still going on.
        """
        device, pool = torch.cuda.current_device(), torch.cuda.graph_pool_handle()
        stream, self._last_replay = _stream_and_last_replay(device)
        self._graph, collects = torch.cuda.CUDAGraph(), gc.isenabled()
        recording = torch.cuda.graph(self._graph, pool, stream, "thread_local")
        # To free another graph while one is recorded is an error.
        gc.disable()
        try:
            with torch.cuda.stream(stream), recording:
                before = torch.cuda.memory_reserved()
                run()
                return torch.cuda.memory_reserved() - before
        except BaseException:
            with contextlib.suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(device, pool)
            raise
        finally:
            if collects:
                gc.enable()

    def replay(self, leaves: list[Any], outputs: list[torch.Tensor]) -> None:
        """Replays after whatever the device has replayed before, on any stream."""
        here = torch.cuda.current_stream()
        here.wait_event(self._last_replay)
        try:
            self._take(leaves)
            self._graph.replay()
            torch._foreach_copy_(outputs, self._outputs)
        finally:
            self._last_replay.record(here)

    def wait(self) -> None:
        """Waits for all replays, after which a graph may be freed."""
        self._last_replay.synchronize()


# Of each device: graphs are replayed one by one, as products of matrices that were
# recorded on one stream share memory.
@functools.cache
def _stream_and_last_replay(device: int) -> Any:
    with torch.cuda.device(device):
        return torch.cuda.Stream(), torch.cuda.Event()  # type: ignore[no-untyped-call]


@dataclasses.dataclass
class _Kind:
    """The calls that one graph computes."""

    calls: int = 0
    last_call: int = 0
    graph: Graph | None = None
    error: str = ""


is_on, graph_kind = _is_asked_for(), Graph
_kinds: dict[Any, _Kind] = {}
_lock, _clock = threading.RLock(), itertools.count()


def _current_run() -> _Run | None:
    mode = None if torch.compiler.is_compiling() else _get_current_dispatch_mode()
    return mode if isinstance(mode, _Run) else None


def hides_values() -> bool:
    """Whether a program is being recorded, or compiled."""
    return torch.compiler.is_compiling() or _current_run() is not None


def lasting() -> contextlib.AbstractContextManager[Any]:
    """Tensors of inference mode take no part in gradients, nor can be assigned to."""
    run = _current_run()
    if run is not None and not run.is_first:
        raise RuntimeError("A CUDA graph can't hold what lasts.")
    return torch.inference_mode(False)


def require(condition: Tensor | bool, message: str) -> None:
    """A graph has its conditions among its outputs, and they are read once."""
    run = _current_run()
    if run is not None and not isinstance(condition, bool):
        run.conditions.append(condition)
        run.messages.append(message)
    generic.require(condition, message)


def register_tree(kind: Class) -> Class:
    flatten, unflatten = generic.parts_of(kind, optree.tree_leaves)
    optree.register_pytree_node(kind, flatten, unflatten, namespace="keras_rank")
    return kind


def enter(function: Callable[..., Result], /, *tensors: Any, **static: Any) -> Result:
    """A call that can't be replayed is one of the function itself."""
    device = _device_in_use()
    if device is None or not generic.is_ours(*static.values()):
        return function(*tensors, **static)
    leaves, tree = _flatten(tensors)
    forms = [_form_of(x) for x in leaves]
    places = {x.device for x in leaves if isinstance(x, torch.Tensor)}
    if None in forms or not {device} <= places <= {device, torch.device("cpu")}:
        return function(*tensors, **static)
    given = tuple(static.items())
    key = (device, function, given, tree, tuple(forms), *_modes())
    with _lock:
        graph = _graph_of(key, functools.partial(function, **static), tree, leaves)
        outputs = graph(leaves) if graph else []
    result: Result = graph.result(outputs) if graph else function(*tensors, **static)
    return result


def _device_in_use() -> torch.device | None:
    """The device in use, `None` if there is none, or operations are traced."""
    if (
        torch.compiler.is_compiling()
        or not is_on
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    ):
        return None
    return graph_kind.device()


def _form_of(x: Any) -> tuple[Any, torch.dtype] | None:
    """The shape and dtype of an input of a graph, `None` if it can't be one."""
    if type(x) is int and -(2**31) <= x < 2**31:
        # As the key of a seed, which may be another each time.
        return (), torch.int32
    if type(x) not in _TENSORS or x.layout is not torch.strided:
        return None
    keeps_gradient = x.requires_grad and torch.is_grad_enabled()
    fits = x.numel() < MOST_ENTRIES and not keeps_gradient
    return (x.shape, x.dtype) if fits else None


def _modes() -> tuple[Any, ...]:
    """What else determines the operations of a program."""
    return (
        torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        keras.config.floatx(),
    )


def _graph_of(key: Any, program: Any, tree: Any, leaves: list[Any]) -> Graph | None:
    """The graph of a kind of calls, recorded if it is time, `None` if there is none."""
    if key not in _kinds and len(_kinds) >= MOST_KINDS:
        others = [x for x in _kinds if _kinds[x].graph is None]
        del _kinds[min(others, key=lambda x: _kinds[x].last_call)]
    kind = _kinds.setdefault(key, _Kind())
    kind.calls, kind.last_call = kind.calls + 1, next(_clock)
    if kind.calls > CALLS_BEFORE and not (kind.graph or kind.error):
        try:
            kind.graph = graph_kind(program, tree, leaves)
        except Exception as error:
            kind.error = repr(error)
        _keep_limits(kind)
    return kind.graph


def _keep_limits(new: _Kind) -> None:
    """Frees graphs beyond the limits: those not used for long, or else the new one."""
    most = (backends.backend.free_memory() or math.inf) / MEMORY_PART
    while new.graph:
        recorded = [(kind, kind.graph) for kind in _kinds.values() if kind.graph]
        held = sum(graph.held for _, graph in recorded)
        if len(recorded) <= MOST_GRAPHS and held <= most:
            return
        kind, graph = min(recorded, key=lambda x: x[0].last_call)
        if new.last_call - kind.last_call <= RECENT_CALLS:
            kind, graph = new, new.graph
        graph.wait()
        kind.graph, kind.calls = None, -RECENT_CALLS
