"""A checkout is all that the tests need: what lies beside it only adds cases."""

import ast
import math
import os
import pathlib
import re
import subprocess
import sys

import pytest
import unpublished_data

ROOT = pathlib.Path(__file__).parents[2]
# The one file that may name a path outside.
UNPUBLISHED_DATA = pathlib.Path(unpublished_data.__file__)
FOLDERS = ["tests", "benchmarks", "examples", "docs", "keras_rank", ".ci"]
SOURCES = [path for each in FOLDERS for path in sorted((ROOT / each).rglob("*.py"))]
SOURCES = [path for path in [*SOURCES, *ROOT.glob("*.py")] if path != UNPUBLISHED_DATA]
# Of a machine, not of the system: `/proc` and `/dev` are the same on each.
OF_MACHINES = "/(data|home|mnt|opt|root|srv|tmp|usr|var)"
OUTSIDE = re.compile(rf"([\w./-]*/)?\.\.(/|$)|(~|{OF_MACHINES})/")
OF_HOME = ("expanduser", "home")


def paths_outside(source, depth):
    """The expressions of a source that name a path outside of the checkout.

    Args:
        source: the source of a module.
        depth: how many folders below the root its file is, with its own name.
    """
    tree = ast.parse(source)
    known = {"__file__": depth}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known.setdefault(node.targets[0].id, depth_of(node.value, known))
    for node in filter(lambda node: isinstance(node, ast.expr), ast.walk(tree)):
        text = str(node.value) if isinstance(node, ast.Constant) else ""
        of_home = getattr(node, "attr", "") in OF_HOME
        if depth_of(node, known) < 0 or OUTSIDE.match(text) or of_home:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def depth_of(node, known):
    """How many folders below the root a path is at least that starts at `__file__`."""
    match node:
        case ast.Name():
            return known.get(node.id, math.inf)
        case ast.Attribute(value=path, attr="parent"):
            return depth_of(path, known) - 1
        case ast.Subscript(
            value=ast.Attribute(value=path, attr="parents"),
            slice=ast.Constant(value=more),
        ):
            return depth_of(path, known) - 1 - more
        case ast.BinOp(left=path, op=ast.Div()):
            return depth_of(path, known) + 1
        case ast.Call(func=ast.Attribute(attr="dirname"), args=[path]):
            return depth_of(path, known) - 1
        case ast.Call(func=ast.Attribute(value=path, attr="absolute" | "resolve")):
            return depth_of(path, known)
        case ast.Call(args=[path, *names]):
            # `Path`, `str`, `os.path.join` and their like.
            return depth_of(path, known) + len(names)
    return math.inf


def test_no_source_names_a_path_outside():
    for path in SOURCES:
        depth = len(path.relative_to(ROOT).parts)
        assert [*paths_outside(path.read_text("utf-8"), depth)] == [], path


@pytest.mark.parametrize(
    "source",
    [
        'Path(__file__).resolve().parent.parent.parent / "data"',
        'ROOT = pathlib.Path(__file__).parents[1]\nDATA = ROOT.parent / "data"',
        'HERE = Path(__file__).parent\nDATA = HERE / ".." / ".." / "data"',
        'ROOT = Path(__file__).parents[2]\nDATA = ROOT.joinpath("../data")',
        'os.path.join(os.path.dirname(__file__), "../../data")',
        'os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + "/data"',
        *('open("/root/data/rows")', 'open("../data/rows")', 'read("~/data")'),
        *("pathlib.Path.home()", 'os.path.expanduser("x")'),
    ],
)
def test_a_path_outside_is_noticed(source):
    assert [*paths_outside(source, depth=2)]


def test_one_function_finds_what_lies_beside_the_checkout():
    """It skips, so that nothing fails where that is absent."""
    assert [*paths_outside(UNPUBLISHED_DATA.read_text("utf-8"), depth=3)]
    for path in SOURCES:
        text = path.read_text("utf-8")
        if path != pathlib.Path(__file__):
            assert "import unpublished_data" not in text, path
            imported = {*re.findall("from unpublished_data import (.*)", text)}
            assert imported <= {"find_data_file"}, path


@pytest.mark.slow
def test_no_home_is_needed(tmp_path):
    """By what the tests compare with: ranx makes a folder when it is imported."""
    pytest.importorskip("ranx")
    home = tmp_path / "home"
    home.write_text("no folder, not even for root")
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    program = [sys.executable, "-W", "ignore", "-c", "import conftest, ranx"]
    subprocess.run(program, cwd=ROOT, env=env, check=True)


def test_what_is_absent_is_skipped(monkeypatch, tmp_path):
    monkeypatch.setattr(unpublished_data, "DATA", tmp_path)
    with pytest.raises(pytest.skip.Exception, match=r"rows is not in .*, and not ours"):
        unpublished_data.find_data_file("some/rows")
    (tmp_path / "rows").write_text("1")
    assert unpublished_data.find_data_file("rows").read_text() == "1"
