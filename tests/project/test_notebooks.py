"""The notebooks in examples/, which run and have stored outputs."""

import pathlib
import re

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[2] / "examples").glob("*.ipynb"))
# The outputs of training differ between versions and machines.
TRAINS = {"train_and_compare"}
NUMBER = re.compile(r"-?\d+\.\d+")


def read_texts(notebook):
    """Returns the printed texts of each cell, and the number of its plots."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    texts, plots = [], []
    for cell in cells:
        texts.append(
            "".join(
                x.get("text", "") for x in cell.outputs if x.get("name") == "stdout"
            )
        )
        plots.append(sum("image/png" in x.get("data", {}) for x in cell.outputs))
    return texts, plots


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} == {"judge_correction", *TRAINS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_have_outputs(path):
    """Outputs are stored without warnings, paths and counters of other programs."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    texts, plots = read_texts(notebook)
    assert sum(map(bool, texts)) >= 3
    assert sum(plots) >= 2
    outputs = [x for cell in notebook.cells for x in cell.get("outputs", [])]
    assert all(x.get("name") != "stderr" for x in outputs)
    counts = [cell.execution_count for cell in notebook.cells if "outputs" in cell]
    assert counts == [*range(1, len(counts) + 1)]


@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, monkeypatch, tmp_path):
    """Notebooks select their own backend, and print the stored numbers."""
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.chdir(tmp_path)
    stored = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    (texts, plots), (stored_texts, stored_plots) = map(read_texts, (notebook, stored))
    assert plots == stored_plots
    for text, stored_text in zip(texts, stored_texts, strict=True):
        assert bool(text) == bool(stored_text)
        if path.stem not in TRAINS:
            assert NUMBER.sub("", text).split() == NUMBER.sub("", stored_text).split()
            numbers = [list(map(float, NUMBER.findall(x))) for x in (text, stored_text)]
            assert numbers[0] == pytest.approx(numbers[1], abs=2e-3)
