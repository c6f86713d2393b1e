"""Results of `fit` and `evaluate` on several devices, which equal those of one."""

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
DEVICES = {
    "jax": ["4 devices"],
    "tensorflow": ["2 devices"],
    "torch": [
        f"rank {rank} of {world} devices" for world in (2, 3) for rank in range(world)
    ],
}


def run_script(script):
    """Runs a script with several devices and returns its output."""
    flag = " --xla_force_host_platform_device_count=4"
    env = {**os.environ, "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + flag}
    command = [sys.executable, str(SUPPORT / script)]
    process = subprocess.run(
        command, capture_output=True, text=True, env=env, check=False
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.slow
@pytest.mark.trains
def test_several_devices_give_the_results_of_one(backend):
    """JAX numbers the lists of all devices, and TensorFlow those of each replica."""
    results = run_script("replicas.py")
    result_of_one = results.pop("1 devices")
    shuffled_result_of_one = result_of_one.pop("shuffled", None)
    assert set(results) == set(DEVICES[backend])
    for devices, result in results.items():
        shuffled_result = result.pop("shuffled", None)
        assert result == pytest.approx(result_of_one, abs=1e-6), devices
        # Processes of torch are as separate as the metrics of two replicas below.
        if backend != "torch":
            assert result_of_one["stable"] == 1.0
            is_equal = shuffled_result == pytest.approx(
                shuffled_result_of_one, abs=1e-6
            )
            assert is_equal == (backend == "jax")
            # At most four standard errors of a mean of 5,000 values in [0, 1].
            assert shuffled_result == pytest.approx(
                result_of_one["average"], abs=0.0283
            )


@pytest.mark.slow
def test_shards(backend):
    """Programs pass the checks of `shard_map`, with candidates on several devices."""
    if backend != "jax":
        pytest.skip("only JAX has shards")
    import jax

    if not hasattr(jax, "shard_map"):
        pytest.skip("JAX 0.6 has `shard_map` only as an experiment")
    for name, (actual, expected) in run_script("shards.py").items():
        np.testing.assert_allclose(actual, expected, atol=2e-6, err_msg=name)


@pytest.mark.programs
@pytest.mark.parametrize("seeds", [(1, 1), (1, 2)])
def test_constant_scores_on_two_replicas_get_no_advantage(seeds, rng):
    """The mean is that over all orders, even if replicas have equal seeds."""
    data_sets = [-np.sort(-rng.integers(1, 4, (3000, 5))) for _ in seeds]
    replicas = [NDCG(k=2, seed=seed) for seed in seeds]
    for labels, replica in zip(data_sets, replicas, strict=True):
        replica.update_state(labels, np.zeros(labels.shape))
    gains = 2.0 ** np.concatenate(data_sets) - 1.0
    discounts = 1.0 / np.log2([2.0, 3.0])
    expected = gains.mean(axis=1) * discounts.sum() / (gains[:, :2] @ discounts)
    actual = float(merge_state(replicas[0], replicas[1:]).result())
    # At most four standard errors of a mean of 3,000 values in [0, 1].
    assert actual == pytest.approx(expected.mean(), abs=0.0366)
    assert expected.mean() < 0.9
