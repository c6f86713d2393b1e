"""Data that is not ours to publish, which may lie beside the checkout."""

import pathlib

import pytest

DATA = pathlib.Path(__file__).parents[3] / "shared" / "data"


def path_of(name):
    """The path of a file of it. Without that file, whoever asks is skipped."""
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"{name} is not in {DATA}, and not ours to publish")
    return path
