"""Counts the operations of one update: exact, and the same on every machine."""

from typing import NamedTuple

import keras


class Counts(NamedTuple):
    """The counts of one update.

    Attributes:
        operations: those that torch dispatches; the equations of JAX, and the nodes of
            TensorFlow's graph, those of branches and loops included.
        waits: how often the host may wait for a value: reads on torch, conditionals in
            a graph.
        constants: tensors that torch creates from host numbers, and copies of tensors
            that no operation of the update has computed.
    """

    operations: int
    waits: int
    constants: int = 0


def counts_of(metric, *batch):
    """Returns the counts of one update after the first, or `None` on NumPy."""
    count = _BY_BACKEND.get(keras.backend.backend())
    return None if count is None else count(metric, batch)


def _on_torch(metric, batch):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.weak import WeakIdKeyDictionary

    class Counting(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.operations = self.reads = self.constants = 0
            # Not kept alive, as torch makes a further view of a constant that is.
            self.computed = WeakIdKeyDictionary()

        def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
            result = operation(*arguments, **(keywords or {}))
            name = operation.overloadpacket.__name__
            self.operations += 1
            self.reads += name == "_local_scalar_dense"
            if name in ("lift_fresh", "_to_copy"):
                self.constants += arguments[0] not in self.computed
            for output in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(output, torch.Tensor):
                    self.computed[output] = True
            return result

    # The first update creates what later ones reuse.
    metric.update_state(*batch)
    with Counting() as counting:
        # Nor is the state a constant.
        counting.computed.update(
            {x.value: True for x in getattr(metric, "variables", ())}
        )
        metric.update_state(*batch)
    return Counts(counting.operations, counting.reads, counting.constants)


def kinds_in_graph(metric, *batch):
    """Returns the kinds of the operations of a compiled update, JAX or TensorFlow."""
    if keras.backend.backend() == "jax":
        return _equations(metric, batch)
    return _nodes(metric, batch)


def _equations(metric, batch):
    import jax

    def primitives(jaxpr):
        for equation in jaxpr.eqns:
            yield equation.primitive.name
            for parameter in jax.tree.leaves(
                equation.params, is_leaf=lambda x: hasattr(x, "eqns")
            ):
                inner = getattr(parameter, "jaxpr", parameter)
                if hasattr(inner, "eqns"):
                    yield from primitives(inner)

    variables = [variable.value for variable in metric.variables]
    traced = jax.make_jaxpr(metric.stateless_update_state)(variables, *batch)
    return list(primitives(traced.jaxpr))


def _nodes(metric, batch):
    import tensorflow as tf

    traced = tf.function(lambda *batch: metric.update_state(*batch), autograph=False)
    graph = traced.get_concrete_function(*batch).graph.as_graph_def()
    nodes = [graph.node, *(function.node_def for function in graph.library.function)]
    # An identity stands for each result of a function, until TensorFlow removes it.
    return [node.op for some in nodes for node in some if node.op != "Identity"]


def _in_graph(metric, batch):
    kinds = kinds_in_graph(metric, *batch)
    return Counts(len(kinds), sum(map(is_branch, kinds)))


def is_branch(kind):
    """Whether an operation is a conditional."""
    return kind == "cond" or kind.endswith(("If", "Case"))


def is_loop(kind):
    """Whether an operation is a loop."""
    return kind in ("while", "scan") or kind.endswith("While")


_BY_BACKEND = {"torch": _on_torch, "jax": _in_graph, "tensorflow": _in_graph}
