"""Programs of PyTorch on CUDA, which are CUDA graphs that the host starts at once.

The host takes longer than the device to start each operation of eager PyTorch. The
third call of a program with inputs of one kind is therefore recorded, and later calls
are replayed: inputs are copied to the inputs of the graph, and outputs are copied from
its outputs. Tensors have no concrete values during a recording, as in compiled code.
Other modules depend on nothing else of the recording.
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

CALLS_BEFORE_RECORDING = 2
# Inputs with more entries take the device longer than the host.
MAX_ENTRIES = 2**22
# Programs with more operations, such as loops over items, take longer to replay than
# shorter eager code.
MAX_OPERATIONS = 2048
# Graphs use at most the free memory divided by this number.
MEMORY_DIVISOR = 16
MAX_GRAPHS, MAX_KINDS = 32, 256
# A graph that was replayed in this number of recent calls is never freed. If the kinds
# of calls alternate and are more than `MAX_GRAPHS`, each call would record a new graph.
RECENT_CALLS = 1000

# Operations that read values or draw random numbers.
_READING_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_FORBIDDEN_TAGS = _READING_TAGS | {torch.Tag.nondeterministic_seeded}
_TENSOR_TYPES = torch.Tensor, torch.nn.Parameter
# Flattens trees, including the registered dataclasses of this package.
_flatten: Any = functools.partial(optree.tree_flatten, namespace="keras_rank")


def _list_tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in _flatten(tree)[0] if isinstance(x, torch.Tensor)]


def _read_environment() -> bool:
    value = os.environ.get("KERAS_RANK_CUDA_GRAPHS", "1")
    if value in ("0", "1"):
        return value == "1"
    raise ValueError(f"`KERAS_RANK_CUDA_GRAPHS` should be 0 or 1. Received: {value!r}")


class _Run(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A run of a program: the run that is recorded, or a first run before it.

    The first run creates the tensors that are cached. A run raises an error for
    operations that no graph can hold, before CUDA fails.
    """

    def __init__(self, *, is_first: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_first, self._operations = is_first, 0
        self.conditions, self.messages = list[Tensor](), list[str]()
        # A graph reads the memory of tensors from outside, so they are stored.
        self._results, self._externals = (
            WeakIdKeyDictionary(),
            dict[int, torch.Tensor](),
        )

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self._operations += 1
        is_new = operation is torch.ops.aten.lift_fresh.default and not self.is_first
        if (
            is_new
            or _FORBIDDEN_TAGS & {*operation.tags}
            or self._operations > MAX_OPERATIONS
        ):
            raise RuntimeError(f"A CUDA graph can't hold {operation}.")
        for x in _list_tensors((args, kwargs)):
            if x not in self._results:
                self._externals[id(x)] = x
        result = operation(*args, **(kwargs or {}))
        for x in _list_tensors(result):
            self._results[x] = True
        return result


class Graph:
    """A recorded program, with the inputs that it reads and the outputs that it writes.

    Tests override `device`, `record`, `replay` and `wait` to run on a CPU.
    """

    def __init__(self, program: Any, tree: Any, leaves: list[Any]) -> None:
        def run(*, is_first: bool) -> None:
            with _Run(is_first=is_first) as self._run:
                returned = program(*tree.unflatten(self._inputs))
            self._outputs, self._tree = _flatten((returned, self._run.conditions))

        with torch.inference_mode(False), torch.no_grad():
            specs: Any = map(_get_input_spec, leaves)
            self._inputs = [
                torch.empty(shape, dtype=dtype, device=self.device())
                for shape, dtype in specs
            ]
            self._copy_inputs(leaves)
            run(is_first=True)
            self.num_bytes = self.record(functools.partial(run, is_first=False))
        self.num_bytes += sum(x.nbytes for x in (*self._inputs, *self._outputs))

    def __call__(self, leaves: list[Any]) -> list[torch.Tensor]:
        """Returns copies of the outputs, which the next call overwrites."""
        with torch.no_grad():
            outputs = [torch.empty_like(x) for x in self._outputs]
            self.replay(leaves, outputs)
        return outputs

    def result(self, outputs: list[torch.Tensor]) -> Any:
        """Returns the result of the program, or raises the errors of its conditions."""
        returned, conditions = self._tree.unflatten(outputs)
        values = torch.stack(conditions).tolist() if conditions else []
        for condition, message in zip(values, self._run.messages, strict=True):
            generic.require(condition, message)
        return returned

    def _copy_inputs(self, leaves: list[Any]) -> None:
        """Copies numbers and tensors to the inputs of the graph.

        Tensors of a GPU are copied by one call, tensors of the host by one call each.
        """
        targets, sources = list[torch.Tensor](), list[torch.Tensor]()
        for graph_input, x in zip(self._inputs, leaves, strict=True):
            if isinstance(x, int):
                graph_input.fill_(x)
            else:
                targets.append(graph_input)
                sources.append(x)
        torch._foreach_copy_(targets, sources)

    @staticmethod
    def device() -> torch.device | None:
        """Returns the device in use, or `None` if CUDA is unused or a user records."""
        is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        if not is_used or torch.cuda.is_current_stream_capturing():
            return None
        return torch.device("cuda", torch.cuda.current_device())

    def record(self, run: Callable[[], None]) -> int:
        """Records a run on one stream of the device, and returns its number of bytes.

        If a recording fails to end, PyTorch does not restore the current stream, and
        the allocator of versions before 2.13 does not end the recording.
        """
        device, pool = torch.cuda.current_device(), torch.cuda.graph_pool_handle()
        stream, self._last_replay = _get_stream_and_last_replay(device)
        self._graph, was_enabled = torch.cuda.CUDAGraph(), gc.isenabled()
        recording = torch.cuda.graph(self._graph, pool, stream, "thread_local")
        # CUDA raises an error if another graph is freed during a recording.
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
            if was_enabled:
                gc.enable()

    def replay(self, leaves: list[Any], outputs: list[torch.Tensor]) -> None:
        """Replays the graph after all earlier replays on the device, on any stream."""
        stream = torch.cuda.current_stream()
        stream.wait_event(self._last_replay)
        try:
            self._copy_inputs(leaves)
            self._graph.replay()
            torch._foreach_copy_(outputs, self._outputs)
        finally:
            self._last_replay.record(stream)

    def wait(self) -> None:
        """Waits for all replays, so that the graph can be freed."""
        self._last_replay.synchronize()


# Each device replays graphs one by one, as matrix products that were recorded on one
# stream share memory.
@functools.cache
def _get_stream_and_last_replay(device: int) -> Any:
    with torch.cuda.device(device):
        return torch.cuda.Stream(), torch.cuda.Event()  # type: ignore[no-untyped-call]


@dataclasses.dataclass
class _Kind:
    """A kind of calls that one graph can compute, which have equal keys."""

    calls: int = 0
    last_call: int = 0
    graph: Graph | None = None
    error: str = ""


is_enabled, graph_class = _read_environment(), Graph
_kinds: dict[Any, _Kind] = {}
_lock, _call_counter = threading.RLock(), itertools.count()


def _current_run() -> _Run | None:
    mode = None if torch.compiler.is_compiling() else _get_current_dispatch_mode()
    return mode if isinstance(mode, _Run) else None


def hides_values() -> bool:
    """Returns whether a program is being recorded or compiled."""
    return torch.compiler.is_compiling() or _current_run() is not None


def persistent_scope() -> contextlib.AbstractContextManager[Any]:
    """Disables inference mode, whose tensors have no gradients and can't be changed."""
    run = _current_run()
    if run is not None and not run.is_first:
        raise RuntimeError("A CUDA graph can't hold persistent tensors.")
    return torch.inference_mode(False)


def require(condition: Tensor | bool, message: str) -> None:
    """Adds a condition in a program to the outputs of its graph, to be read once."""
    run = _current_run()
    if run is not None and not isinstance(condition, bool):
        run.conditions.append(condition)
        run.messages.append(message)
    generic.require(condition, message)


def register_tree(kind: Class) -> Class:
    flatten, unflatten = generic.make_tree_functions(kind, optree.tree_leaves)
    optree.register_pytree_node(kind, flatten, unflatten, namespace="keras_rank")
    return kind


def run_program(
    function: Callable[..., Result], /, *tensors: Any, **static: Any
) -> Result:
    """Replays the graph of the function, or calls the function if there is no graph."""
    device = _device_in_use()
    if device is None or not generic.is_compilable(*static.values()):
        return function(*tensors, **static)
    leaves, tree = _flatten(tensors)
    specs = [_get_input_spec(x) for x in leaves]
    devices = {x.device for x in leaves if isinstance(x, torch.Tensor)}
    if None in specs or not {device} <= devices <= {device, torch.device("cpu")}:
        return function(*tensors, **static)
    settings = tuple(static.items())
    key = (device, function, settings, tree, tuple(specs), *_get_modes())
    with _lock:
        graph = _get_graph(key, functools.partial(function, **static), tree, leaves)
        outputs = graph(leaves) if graph else []
    result: Result = graph.result(outputs) if graph else function(*tensors, **static)
    return result


def _device_in_use() -> torch.device | None:
    """Returns the device in use, or `None` if graphs are disabled or code is traced."""
    if (
        torch.compiler.is_compiling()
        or not is_enabled
        or torch._C._get_tracing_state() is not None
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    ):
        return None
    return graph_class.device()


def _get_input_spec(x: Any) -> tuple[Any, torch.dtype] | None:
    """Returns the shape and dtype of a graph input, or `None` if it can't be one."""
    if type(x) is int and -(2**31) <= x < 2**31:
        # The key of a seed is a number, which may differ in each call.
        return (), torch.int32
    if type(x) not in _TENSOR_TYPES or x.layout is not torch.strided:
        return None
    has_gradient = x.requires_grad and torch.is_grad_enabled()
    is_supported = x.numel() < MAX_ENTRIES and not has_gradient
    return (x.shape, x.dtype) if is_supported else None


def _get_modes() -> tuple[Any, ...]:
    """Returns the modes on which the operations of a program depend."""
    return (
        torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
        keras.config.floatx(),
    )


def _get_graph(key: Any, program: Any, tree: Any, leaves: list[Any]) -> Graph | None:
    """Returns the graph of a kind of calls, which may be recorded now, or `None`."""
    if key not in _kinds and len(_kinds) >= MAX_KINDS:
        unrecorded = [x for x in _kinds if _kinds[x].graph is None]
        del _kinds[min(unrecorded, key=lambda x: _kinds[x].last_call)]
    kind = _kinds.setdefault(key, _Kind())
    kind.calls, kind.last_call = kind.calls + 1, next(_call_counter)
    if kind.calls > CALLS_BEFORE_RECORDING and not (kind.graph or kind.error):
        try:
            kind.graph = graph_class(program, tree, leaves)
        except Exception as error:
            kind.error = repr(error)
        _enforce_limits(kind)
    return kind.graph


def _enforce_limits(new: _Kind) -> None:
    """Frees the least recently used graphs, or the new graph, until limits are met."""
    max_bytes = (backends.backend.free_memory() or math.inf) / MEMORY_DIVISOR
    while new.graph:
        recorded = [(kind, kind.graph) for kind in _kinds.values() if kind.graph]
        num_bytes = sum(graph.num_bytes for _, graph in recorded)
        if len(recorded) <= MAX_GRAPHS and num_bytes <= max_bytes:
            return
        kind, graph = min(recorded, key=lambda x: x[0].last_call)
        if new.last_call - kind.last_call <= RECENT_CALLS:
            kind, graph = new, new.graph
        graph.wait()
        kind.graph, kind.calls = None, -RECENT_CALLS
