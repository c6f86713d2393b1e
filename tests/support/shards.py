"""A program that runs functions under `jax.shard_map` and ranks sharded candidates.

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python tests/support/shards.py

`test_multi_device.py` runs it. It prints pairs of values as JSON: functions on two
shards and on the two halves alone, by tie mode and cutoff; results of metrics whose
sums were added over the shards, and of metrics of all lists; and values of candidates
on all devices and on one.
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
    specs = {"in_specs": (SPLIT, SPLIT), "out_specs": outputs}
    return jax.jit(jax.shard_map(function, mesh=MESH, **specs))


def function_values():
    labels, scores = batch()
    for shuffle_ties in (True, False, "average"):
        for k in (3, None):
            options = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}

            def ndcg(labels, scores, options=options):
                return functional.ndcg(labels, scores, **options)

            sharded = over_shards(ndcg, SPLIT)(labels, scores)
            single = jax.jit(ndcg)
            halves = [single(labels[:4], scores[:4]), single(labels[4:], scores[4:])]
            yield f"{shuffle_ties}, {k}", np.asarray(sharded), np.concatenate(halves)


def metric_results():
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
    for name, result in group.stateless_result(summed).items():
        yield name, np.asarray(result), np.asarray(expected[name])


def catalogue_values():
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(6, 4)).astype("float32")
    candidates = np.round(rng.normal(size=(40, 4))).astype("float32")
    targets = rng.integers(0, 40, size=(6, 2))
    over_items = NamedSharding(Mesh(np.array(jax.devices()), ("items",)), SPLIT_ITEMS)
    sharded = jax.device_put(candidates, over_items)
    for shuffle_ties in (True, "average"):
        options = {"block_size": 16, "shuffle_ties": shuffle_ties, "seed": 1}
        pair = [
            np.asarray(functional.ndcg(catalogue.rank(targets, queries, x, **options)))
            for x in (sharded, candidates)
        ]
        yield f"catalogue, {shuffle_ties}", *pair


if __name__ == "__main__":
    triples = [*function_values(), *metric_results(), *catalogue_values()]
    pairs = {name: [a.tolist(), b.tolist()] for name, a, b in triples}
    json.dump(pairs, sys.stdout)
