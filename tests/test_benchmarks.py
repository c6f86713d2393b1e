"""What the benchmarks refuse; their times are printed and never tested."""

import pathlib
import subprocess
import sys

import pytest
import timing

MEASURE = pathlib.Path(timing.__file__).with_name("measure.py")


@pytest.mark.skipif(timing.has_gpu(), reason="there is a GPU to measure")
def test_no_gpu_is_measured_where_there_is_none(backend):
    done = subprocess.run(
        [sys.executable, str(MEASURE), "--device", "gpu"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"--device gpu: {backend} computes on a cpu." in done.stderr
    assert not done.stdout
