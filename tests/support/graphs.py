"""A CPU in the place of CUDA: what is recorded there is called again."""

import contextlib
from typing import ClassVar

import torch

from keras_rank.backends import backend, torch_graphs


class Recorded(torch_graphs.Graph):
    """Outputs lie in memory of their own, which each replay overwrites.

    As of a device, they hold nothing of use before the first one.
    """

    # What was done, in order.
    events: ClassVar[list] = []
    is_replayed = False

    @staticmethod
    def device():
        return torch.device("cpu")

    def record(self, run):
        run()
        self.events.append("recorded")
        self._program, recorded = run.func, (self._run, self._tree)
        own = [torch.full_like(x, 1) for x in self._outputs]
        self._outputs, self._recorded = own, recorded
        return 0

    def replay(self, leaves, outputs):
        assert not Recorded.is_replayed
        Recorded.is_replayed = True
        try:
            self._take(leaves)
            own = self._outputs
            # Constants that are kept may have to be made again, as here they can be.
            with torch.inference_mode(False):
                self._program(is_first=True)
            for x, again in zip(own, self._outputs, strict=True):
                x.copy_(again)
            self._outputs, (self._run, self._tree) = own, self._recorded
            torch._foreach_copy_(outputs, own)
            self.events.append("replayed")
        finally:
            Recorded.is_replayed = False

    def wait(self):
        self.events.append("waited")


@contextlib.contextmanager
def recording(monkeypatch):
    """Programs are recorded, as where eager code runs on an accelerator."""
    with monkeypatch.context() as patch:
        patch.setattr(torch_graphs, "is_on", True)
        patch.setattr(torch_graphs, "graph_kind", Recorded)
        patch.setattr(torch_graphs, "_kinds", {})
        patch.setattr(Recorded, "events", [])
        patch.setattr(backend, "on_accelerator", lambda: True)
        yield


def replays():
    """How often a graph was replayed."""
    return Recorded.events.count("replayed")


def errors():
    """Why programs were not recorded."""
    return [kind.error for kind in torch_graphs._kinds.values() if kind.error]


def recorded():
    """The kinds of calls that have a graph."""
    return [x for x in torch_graphs._kinds.values() if x.graph is not None]
