"""Functions under `jax.shard_map`, sharded candidates: what `test_devices.py` runs.

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python tests/support/shards.py

Prints, as JSON, by the names of the tie modes and cutoffs: the values on two shards and
those of the two halves alone, the results of metrics whose sums were added up, and the
values of candidates that lie on all devices.
"""

import json
import sys

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from keras_rank import catalogue, functional, metrics

MESH = Mesh(np.array(jax.devices()[:2]), ("shard",))
SPLIT, WHOLE = PartitionSpec("shard"), PartitionSpec()
SPLIT_ITEMS = PartitionSpec("items")


def batch():
    rng = np.random.default_rng(0)
    labels = rng.integers(-1, 4, size=(8, 12)).astype("float32")
    return labels, rng.integers(0, 5, size=(8, 12)).astype("float32")


def over_shards(function, outputs):
    given = {"in_specs": (SPLIT, SPLIT), "out_specs": outputs}
    return jax.jit(jax.shard_map(function, mesh=MESH, **given))


def values():
    labels, scores = batch()
    for shuffle_ties in (True, False, "average"):
        for k in (3, None):
            given = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}

            def ndcg(labels, scores, given=given):
                return functional.ndcg(labels, scores, **given)

            found = over_shards(ndcg, SPLIT)(labels, scores)
            alone = jax.jit(ndcg)
            halves = [alone(labels[:4], scores[:4]), alone(labels[4:], scores[4:])]
            yield f"{shuffle_ties}, {k}", np.asarray(found), np.concatenate(halves)


def results():
    members = [
        metrics.NDCG(k=3, shuffle_ties=False),
        metrics.MeanAveragePrecision(shuffle_ties=False),
        metrics.HitRate(k=2, shuffle_ties="average"),
        metrics.ExpectedReciprocalRank(k=3, shuffle_ties="average"),
        metrics.PairwiseAccuracy(shuffle_ties=False),
    ]
    group = metrics.RankingMetrics(members)
    variables = [variable.value for variable in group.variables]

    def update(labels, scores):
        new = group.stateless_update_state(variables, labels, scores)
        return jax.lax.psum(new, "shard")

    summed = over_shards(update, WHOLE)(*batch())
    whole = jax.jit(group.stateless_update_state)(variables, *batch())
    expected = group.stateless_result(whole)
    for name, found in group.stateless_result(summed).items():
        yield name, np.asarray(found), np.asarray(expected[name])


def of_catalogues():
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(6, 4)).astype("float32")
    candidates = np.round(rng.normal(size=(40, 4))).astype("float32")
    targets = rng.integers(0, 40, size=(6, 2))
    over_items = NamedSharding(Mesh(np.array(jax.devices()), ("items",)), SPLIT_ITEMS)
    sharded = jax.device_put(candidates, over_items)
    for shuffle_ties in (True, "average"):
        given = {"block_size": 16, "shuffle_ties": shuffle_ties, "seed": 1}
        of_both = [
            np.asarray(functional.ndcg(catalogue.rank(targets, queries, x, **given)))
            for x in (sharded, candidates)
        ]
        yield f"catalogue, {shuffle_ties}", *of_both


if __name__ == "__main__":
    triples = [*values(), *results(), *of_catalogues()]
    found = {name: [a.tolist(), b.tolist()] for name, a, b in triples}
    json.dump(found, sys.stdout)
