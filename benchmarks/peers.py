"""NDCG of other libraries on the current backend, and a naive NDCG to compare with."""

import importlib.metadata

import keras
import numpy as np
from keras import ops
from timing import compile_call, make_update, tensors


def get_peers():
    """Returns a function per library that creates a call, by its name and version."""
    makers = {"keras-rs": _keras_rs, **_BY_BACKEND[keras.backend.backend()]}
    return {
        f"{name} {importlib.metadata.version(_DISTRIBUTIONS.get(name, name))}": maker
        for name, maker in makers.items()
    }


def naive_ndcg(labels, scores, k):
    """Computes NDCG without ties and masks, which is NaN for a list without gains."""

    def dcg(labels):
        discounts = np.log2(np.arange(2, k + 2)).astype("float32")
        return ops.sum((2.0**labels - 1.0) / discounts, axis=1)

    _, best_items = ops.top_k(scores, k)
    ideal, _ = ops.top_k(labels, k)
    return dcg(ops.take_along_axis(labels, best_items, axis=1)) / dcg(ideal)


def _keras_rs(labels, scores, k):
    import keras_rs

    return make_update(keras_rs.metrics.NDCG(k=k), *tensors(labels, scores))


def _rax(labels, scores, k):
    import rax

    return compile_call(
        lambda labels, scores: rax.ndcg_metric(scores, labels, topn=k),
        *tensors(labels, scores),
    )


def _ignite(labels, scores, k):
    if k is None:
        return None
    from ignite.metrics.rec_sys import NDCG

    batch = tensors(scores, labels)
    metric = NDCG(top_k=[k], device=batch[0].device)
    return lambda: metric.update(batch)


def _torchmetrics(labels, scores, k):
    import torch
    from torchmetrics.functional.retrieval import retrieval_normalized_dcg

    rows = list(zip(*tensors(scores, labels), strict=True))
    return lambda: torch.stack(
        [retrieval_normalized_dcg(*row, top_k=k) for row in rows]
    ).mean()


def _sklearn(labels, scores, k):
    from sklearn.metrics import ndcg_score

    return lambda: ndcg_score(labels, scores, k=k)


def _ranx(labels, scores, k):
    from ranx import Qrels, Run, evaluate

    names = [str(item) for item in range(labels.shape[1])]

    def table(values):
        return {
            str(i): dict(zip(names, map(float, row), strict=True))
            for i, row in enumerate(values)
        }

    qrels = Qrels(
        {q: {d: int(v) for d, v in r.items()} for q, r in table(labels).items()}
    )
    run = Run(table(scores))
    name = "ndcg_burges" if k is None else f"ndcg_burges@{k}"
    return lambda: evaluate(qrels, run, name, make_comparable=False)


_DISTRIBUTIONS = {"ignite": "pytorch-ignite", "sklearn": "scikit-learn"}
_BY_BACKEND = {
    "jax": {"rax": _rax},
    "tensorflow": {},
    "torch": {"ignite": _ignite, "torchmetrics": _torchmetrics},
    "numpy": {"sklearn": _sklearn, "ranx": _ranx},
}
# ranx stores ids as strings: to convert more items than these takes minutes.
MAX_ITEMS = {"ranx": 1_000_000}


def fits(name, lists, items):
    return lists * items <= MAX_ITEMS.get(name.split()[0], np.inf)
