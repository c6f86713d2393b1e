"""A table that lies in shards, evaluated on Ray: what `test_ray_data.py` runs.

python tests/evaluated_on_ray.py rows/ lists.parquet
"""

import sys

import ray

from keras_rank.evaluation import evaluate

ARGUMENTS = {"item": "item_id", "duplicates": "count", "weight": "item_weight"}
ARGUMENTS["keep"] = ["market", "user"]
METRICS = ["ndcg@5", "map"]


def main():
    source, target = sys.argv[1:]
    ray.init(num_cpus=2, include_dashboard=False)
    context = ray.data.DataContext.get_current()
    context.default_hash_shuffle_parallelism = 3
    context.enable_progress_bars = False
    rows = ray.data.read_parquet(source)
    evaluate(rows, METRICS, **ARGUMENTS).write(target)
    ray.shutdown()


if __name__ == "__main__":
    main()
