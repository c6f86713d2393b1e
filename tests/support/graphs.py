"""CUDA graphs of torch, simulated on a CPU: a replay calls the program again."""

import contextlib
from typing import ClassVar

import torch

from keras_rank.backends import backend, torch_graphs


class RecordedGraph(torch_graphs.Graph):
    """A graph whose outputs have separate memory, which each replay overwrites.

    As on a device, the outputs hold no valid values before the first replay.
    """

    # The steps that were taken, in order.
    events: ClassVar[list] = []
    is_replayed = False

    @staticmethod
    def device():
        return torch.device("cpu")

    def record(self, run):
        run()
        self.events.append("recorded")
        self._program, recorded = run.func, (self._run, self._tree)
        buffers = [torch.full_like(x, 1) for x in self._outputs]
        self._outputs, self._recorded = buffers, recorded
        return 0

    def replay(self, leaves, outputs):
        assert not RecordedGraph.is_replayed
        RecordedGraph.is_replayed = True
        try:
            self._copy_inputs(leaves)
            buffers = self._outputs
            # The program may have to create cached constants again, which is not
            # possible in inference mode.
            with torch.inference_mode(False):
                self._program(is_first=True)
            for buffer, output in zip(buffers, self._outputs, strict=True):
                buffer.copy_(output)
            self._outputs, (self._run, self._tree) = buffers, self._recorded
            torch._foreach_copy_(outputs, buffers)
            self.events.append("replayed")
        finally:
            RecordedGraph.is_replayed = False

    def wait(self):
        self.events.append("waited")


@contextlib.contextmanager
def record_graphs(monkeypatch):
    """Records programs, as eager code on an accelerator does."""
    with monkeypatch.context() as patch:
        patch.setattr(torch_graphs, "is_enabled", True)
        patch.setattr(torch_graphs, "graph_class", RecordedGraph)
        patch.setattr(torch_graphs, "_kinds", {})
        patch.setattr(RecordedGraph, "events", [])
        patch.setattr(backend, "on_accelerator", lambda: True)
        yield


def count_replays():
    """Returns the number of replays of graphs."""
    return RecordedGraph.events.count("replayed")


def recording_errors():
    """Returns the reasons why programs were not recorded."""
    return [kind.error for kind in torch_graphs._kinds.values() if kind.error]


def recorded_kinds():
    """Returns the kinds of calls that have a graph."""
    return [x for x in torch_graphs._kinds.values() if x.graph is not None]
