"""On several devices, `fit` and `evaluate` give the number of one."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_rank.metrics import NDCG
from keras_rank.utils import merge_state

SUPPORT = pathlib.Path(__file__).parents[1] / "support"
PLACES = {
    "jax": ["4 devices"],
    "tensorflow": ["2 devices"],
    "torch": [
        f"rank {rank} of {world} devices" for world in (2, 3) for rank in range(world)
    ],
}


def printed_by(script):
    """What a script prints where there are several devices."""
    several = " --xla_force_host_platform_device_count=4"
    env = {**os.environ, "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + several}
    command = [sys.executable, str(SUPPORT / script)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.trains
def test_several_devices_give_the_numbers_of_one(backend):
    """JAX counts the lists of all devices; TensorFlow's replicas count their own."""
    found = printed_by("replicas.py")
    one = found.pop("1 devices")
    shuffled = one.pop("shuffled", None)
    assert set(found) == set(PLACES[backend])
    for place, several in found.items():
        of_several = several.pop("shuffled", None)
        assert several == pytest.approx(one, abs=1e-6), place
        # Processes of torch are as separate as the metrics of the next test.
        if backend != "torch":
            assert one["stable"] == 1.0
            is_of_one = of_several == pytest.approx(shuffled, abs=1e-6)
            assert is_of_one == (backend == "jax")
            # Four deviations of a mean of 5,000 values between 0 and 1, at most.
            assert of_several == pytest.approx(one["average"], abs=0.0283)


@pytest.mark.slow
def test_shards(backend):
    """With its check of what varies over shards, and candidates on several devices."""
    if backend != "jax":
        pytest.skip("shards of JAX")
    import jax

    if not hasattr(jax, "shard_map"):
        pytest.skip("JAX 0.6 has `shard_map` among its experiments alone")
    for name, (found, expected) in printed_by("shards.py").items():
        np.testing.assert_allclose(found, expected, atol=2e-6, err_msg=name)


@pytest.mark.programs
@pytest.mark.parametrize("seeds", [(1, 1), (1, 2)])
def test_constant_scores_on_two_replicas_are_not_flattered(seeds, rng):
    """Not even by replicas that shuffle their n-th lists alike."""
    data_sets = [-np.sort(-rng.integers(1, 4, (3000, 5))) for _ in seeds]
    replicas = [NDCG(k=2, seed=seed) for seed in seeds]
    for labels, replica in zip(data_sets, replicas, strict=True):
        replica.update_state(labels, np.zeros(labels.shape))
    gains = 2.0 ** np.concatenate(data_sets) - 1.0
    discounts = 1.0 / np.log2([2.0, 3.0])
    over_all_orders = gains.mean(axis=1) * discounts.sum() / (gains[:, :2] @ discounts)
    found = float(merge_state(replicas[0], replicas[1:]).result())
    # Four deviations of a mean of 3,000 values between 0 and 1, at most.
    assert found == pytest.approx(over_all_orders.mean(), abs=0.0366)
    assert over_all_orders.mean() < 0.9
