"""Figures of the pages, which equal the stored measurements. No test takes times."""

import re

import figures
import measure
import pytest
import timing


@pytest.mark.skipif(timing.has_gpu(), reason="this machine has a GPU")
def test_measuring_a_missing_gpu_is_an_error(backend, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["measure.py", "--device", "gpu"])
    with pytest.raises(SystemExit) as stopped:
        measure.main()
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert f"--device gpu: {backend} computes on a cpu." in printed.err
    assert not printed.out


PAGES = {name: (figures.ROOT / name).read_text() for name in figures.PAGES}


@pytest.mark.parametrize("name", PAGES)
def test_pages_show_the_measurements(name):
    assert figures.render(PAGES[name], figures.read_results()) == PAGES[name]


def test_all_figures_are_on_a_page():
    text = "\n".join(PAGES.values())
    names = [match["name"] for match in figures.BLOCK.finditer(text)]
    assert sorted(names) == sorted(figures.BLOCKS)


@pytest.mark.parametrize("name", ["README.md", "docs/speed.md"])
def test_no_times_are_outside_of_figures(name):
    """Times outside of the generated figures would become outdated."""
    rest = figures.BLOCK.sub("", PAGES[name])
    unit = r"(ms|s|seconds|MB|GB|%|times)\b"
    # Times that Keras prints may be shown, and the share of padding is exact.
    rest = re.sub(r"```.*?```", "", rest, flags=re.DOTALL)
    assert not re.findall(rf"\d ?{unit}", rest.replace("90% padding", ""))


@pytest.mark.parametrize("name", figures.CHARTS)
def test_charts_show_the_measurements(name):
    image = pytest.importorskip("PIL.Image").open(figures.ROOT / name)
    data = figures.get_chart_figures(figures.read_results())[name]
    assert image.text["Description"] == figures.digest(data)
