"""Counts of the operations of one update, which are equal on all machines."""

from typing import NamedTuple

import keras


class Counts(NamedTuple):
    """The counts of one update.

    Attributes:
        operations: the number of operations that torch dispatches, of equations of JAX,
            or of nodes of TensorFlow's graph. Branches and loops are included.
        waits: the number of times that the host may wait for a value: reads of values
            on torch, conditionals in a graph.
        constants: the number of tensors that torch creates from host numbers, and of
            copies of tensors that no operation of the update has computed.
    """

    operations: int
    waits: int
    constants: int = 0


def count_operations(metric, *batch):
    """Returns the counts of an update after the first one, or `None` on NumPy."""
    count = _BY_BACKEND.get(keras.backend.backend())
    return None if count is None else count(metric, batch)


def _count_on_torch(metric, batch):
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.weak import WeakIdKeyDictionary

    class Counting(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.operations = self.reads = self.constants = 0
            # Weak references: torch may make a further view of a constant that a
            # reference keeps alive.
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

    # Run an update that is not counted: it creates tensors that later updates reuse.
    metric.update_state(*batch)
    with Counting() as counter:
        # Copies of the state are not constants.
        counter.computed.update(
            {x.value: True for x in getattr(metric, "variables", ())}
        )
        metric.update_state(*batch)
    return Counts(counter.operations, counter.reads, counter.constants)


def get_operation_kinds(metric, *batch):
    """Returns the kinds of operations in an update compiled by JAX or TensorFlow."""
    if keras.backend.backend() == "jax":
        return _get_jax_primitives(metric, batch)
    return _get_tensorflow_nodes(metric, batch)


def _get_jax_primitives(metric, batch):
    import jax

    def iterate_primitives(jaxpr):
        for equation in jaxpr.eqns:
            yield equation.primitive.name
            for parameter in jax.tree.leaves(
                equation.params, is_leaf=lambda x: hasattr(x, "eqns")
            ):
                inner = getattr(parameter, "jaxpr", parameter)
                if hasattr(inner, "eqns"):
                    yield from iterate_primitives(inner)

    variables = [variable.value for variable in metric.variables]
    traced = jax.make_jaxpr(metric.stateless_update_state)(variables, *batch)
    return list(iterate_primitives(traced.jaxpr))


def _get_tensorflow_nodes(metric, batch):
    import tensorflow as tf

    traced = tf.function(lambda *batch: metric.update_state(*batch), autograph=False)
    graph = traced.get_concrete_function(*batch).graph.as_graph_def()
    node_lists = [
        graph.node,
        *(function.node_def for function in graph.library.function),
    ]
    # Functions have an identity for each result, which TensorFlow removes later.
    return [
        node.op
        for node_list in node_lists
        for node in node_list
        if node.op != "Identity"
    ]


def _count_in_graph(metric, batch):
    kinds = get_operation_kinds(metric, *batch)
    return Counts(len(kinds), sum(map(is_branch, kinds)))


def is_branch(kind):
    """Returns whether an operation is a conditional."""
    return kind == "cond" or kind.endswith(("If", "Case"))


def is_loop(kind):
    """Returns whether an operation is a loop."""
    return kind in ("while", "scan") or kind.endswith("While")


_BY_BACKEND = {
    "torch": _count_on_torch,
    "jax": _count_in_graph,
    "tensorflow": _count_in_graph,
}
