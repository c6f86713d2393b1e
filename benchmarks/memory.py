"""Peak memory of one update beyond its inputs, over the size of one of them."""

import os
import pathlib
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from timing import batch_of, tensors, update_of


def kilobytes(name):
    """Reads a number of Linux on this process."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", status)[1])


def main():
    if sys.argv[1] == "keras_rank":
        from keras_rank.metrics import NDCG
    else:
        from keras_rs.metrics import NDCG
    labels, scores = batch_of(64, 100_000)
    call = update_of(NDCG(k=10), *tensors(labels, scores))
    # What compiling needs is not counted.
    call()
    # Forgets the peak so far.
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = kilobytes("VmRSS")
    call()
    print(f"{1024 * (kilobytes('VmHWM') - before) / scores.nbytes:.2f}")


if __name__ == "__main__":
    main()
