"""A CPU in the place of CUDA: what is recorded there is called again."""

import contextlib

import torch

from keras_rank.backends import backend, torch_graphs


class Recorded(torch_graphs.Device):
    """Outputs lie in memory of their own, which each replay overwrites.

    As of a device, they hold nothing of use before the first one.
    """

    # What was done, in order.
    events = ()

    def __init__(self, index):
        self.name, self.held = torch.device("cpu"), 0
        self.events, self.is_turn = [], False

    @staticmethod
    def current():
        return 0

    @staticmethod
    def of(x):
        return 0 if x.device.type == "cpu" else x.get_device()

    @contextlib.contextmanager
    def aside(self):
        self.events.append("warmed up")
        yield

    @contextlib.contextmanager
    def turn(self):
        assert not self.is_turn
        self.is_turn = True
        try:
            yield
        finally:
            self.is_turn = False

    def record(self, program):
        returned = program()
        self.events.append("recorded")
        outputs = returned[0]
        outputs[:] = [torch.full_like(x, 1) for x in outputs]

        def replay():
            assert self.is_turn
            # Constants that are kept may have to be made again, as here they can be.
            with torch.inference_mode(False):
                again = program(is_first=True)
            for own, x in zip(outputs, again[0], strict=True):
                own.copy_(x)
            self.events.append("replayed")

        return replay, returned

    def wait(self):
        self.events.append("waited")

    def clear(self):
        self.held = 0


@contextlib.contextmanager
def recording(monkeypatch):
    """Programs are recorded, as where eager code runs on an accelerator."""
    with monkeypatch.context() as patch:
        patch.setattr(torch_graphs, "is_on", True)
        patch.setattr(torch_graphs, "device_kind", Recorded)
        patch.setattr(torch_graphs, "_kinds", {})
        patch.setattr(torch_graphs, "_devices", {})
        patch.setattr(backend, "on_accelerator", lambda: True)
        yield


def replays():
    """How often a graph was replayed."""
    return sum(x.events.count("replayed") for x in torch_graphs._devices.values())


def errors():
    """Why programs were not recorded."""
    return [kind.error for kind in torch_graphs._kinds.values() if kind.error]


def recorded():
    """The kinds of calls that have a graph."""
    return [x for x in torch_graphs._kinds.values() if x.graph is not None]
