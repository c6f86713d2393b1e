"""Data files that the project may not publish, and that may lie beside the checkout."""

import pathlib

import pytest

DATA = pathlib.Path(__file__).parents[3] / "shared" / "data"


def find_data_file(name):
    """Returns the path of a data file. Skips the calling test if the file is absent."""
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{name} is not in {DATA}, and not ours to publish")
    return path
