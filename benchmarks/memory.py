"""Peak memory of one update beyond its inputs, over the size of one of them."""

import os
import resource
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from timing import batch_of, tensors, update_of


def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main():
    if sys.argv[1] == "keras_rank":
        from keras_rank.metrics import NDCG
    else:
        from keras_rs.metrics import NDCG
    # What compiling needs is not counted: short lists are compiled first.
    update_of(NDCG(k=10), *tensors(*batch_of(64, 1000)))()
    labels, scores = batch_of(64, 100_000)
    batch = tensors(labels, scores)
    call = update_of(NDCG(k=10), *batch)
    # Fills up to the peak so far, which a smaller one would hide behind.
    before = peak()
    call()
    print(f"{(peak() - before) / scores.nbytes:.2f}")


if __name__ == "__main__":
    main()
