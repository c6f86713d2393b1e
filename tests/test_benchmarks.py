"""What the benchmarks refuse; their times are printed and never tested."""

import measure
import pytest
import timing


@pytest.mark.skipif(timing.has_gpu(), reason="there is a GPU to measure")
def test_no_gpu_is_measured_where_there_is_none(backend, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["measure.py", "--device", "gpu"])
    with pytest.raises(SystemExit) as stopped:
        measure.main()
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert f"--device gpu: {backend} computes on a cpu." in printed.err
    assert not printed.out
