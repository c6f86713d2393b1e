"""What the pages tell is what was measured; times are never tested."""

import re

import figures
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


PAGES = {name: (figures.ROOT / name).read_text() for name in figures.PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_tells_what_was_measured(name):
    assert figures.rendered(PAGES[name], figures.results()) == PAGES[name]


def test_all_figures_are_told():
    text = "\n".join(PAGES.values())
    told = [match["name"] for match in figures.BLOCK.finditer(text)]
    assert sorted(told) == sorted(figures.BLOCKS)


@pytest.mark.parametrize("name", ["README.md", "docs/speed.md"])
def test_no_times_stand_beside_them(name):
    """Which nothing would keep true."""
    rest = figures.BLOCK.sub("", PAGES[name])
    unit = r"(ms|s|seconds|MB|GB|%|times)\b"
    # What Keras prints, and what is exact.
    rest = re.sub(r"```.*?```", "", rest, flags=re.DOTALL)
    assert not re.findall(rf"\d ?{unit}", rest.replace("90% padding", ""))


@pytest.mark.parametrize("name", figures.CHARTS)
def test_a_chart_is_drawn_of_what_was_measured(name):
    image = pytest.importorskip("PIL.Image").open(figures.ROOT / name)
    drawn_of = figures.charted(figures.results())[name]
    assert image.text["Description"] == figures.digest(drawn_of)
