"""Independence of the tests from files outside of the checkout, which add cases."""

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
# Paths outside of the checkout are allowed in one file.
UNPUBLISHED_DATA = pathlib.Path(unpublished_data.__file__)
FOLDERS = ["tests", "benchmarks", "examples", "docs", "keras_rank", ".ci"]
SOURCES = [path for each in FOLDERS for path in sorted((ROOT / each).rglob("*.py"))]
SOURCES = [path for path in [*SOURCES, *ROOT.glob("*.py")] if path != UNPUBLISHED_DATA]
# Folders that differ between machines, unlike those of the system, as `/proc`.
MACHINE_FOLDERS = "/(data|home|mnt|opt|root|srv|tmp|usr|var)"
OUTSIDE = re.compile(rf"([\w./-]*/)?\.\.(/|$)|(~|{MACHINE_FOLDERS})/")
HOME_ATTRIBUTES = ("expanduser", "home")


def find_paths_outside(source, depth):
    """Yields the expressions of a source that name a path outside of the checkout.

    Args:
        source: the source of a module.
        depth: the number of parts of the file's path below the root.
    """
    tree = ast.parse(source)
    depths = {"__file__": depth}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            depths.setdefault(node.targets[0].id, measure_depth(node.value, depths))
    for node in filter(lambda node: isinstance(node, ast.expr), ast.walk(tree)):
        text = str(node.value) if isinstance(node, ast.Constant) else ""
        is_home = getattr(node, "attr", "") in HOME_ATTRIBUTES
        if measure_depth(node, depths) < 0 or OUTSIDE.match(text) or is_home:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def measure_depth(node, depths):
    """Returns the least depth below the root of a path that starts at `__file__`."""
    match node:
        case ast.Name():
            return depths.get(node.id, math.inf)
        case ast.Attribute(value=path, attr="parent"):
            return measure_depth(path, depths) - 1
        case ast.Subscript(
            value=ast.Attribute(value=path, attr="parents"),
            slice=ast.Constant(value=more),
        ):
            return measure_depth(path, depths) - 1 - more
        case ast.BinOp(left=path, op=ast.Div()):
            return measure_depth(path, depths) + 1
        case ast.Call(func=ast.Attribute(attr="dirname"), args=[path]):
            return measure_depth(path, depths) - 1
        case ast.Call(func=ast.Attribute(value=path, attr="absolute" | "resolve")):
            return measure_depth(path, depths)
        case ast.Call(args=[path, *names]):
            # Calls such as `Path`, `str` and `os.path.join`.
            return measure_depth(path, depths) + len(names)
    return math.inf


@pytest.mark.slow
def test_no_source_names_a_path_outside():
    for path in SOURCES:
        depth = len(path.relative_to(ROOT).parts)
        assert [*find_paths_outside(path.read_text("utf-8"), depth)] == [], path


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
def test_paths_outside_are_found(source):
    assert [*find_paths_outside(source, depth=2)]


def test_one_function_returns_paths_outside():
    """The function skips tests whose files are absent, so that no test fails."""
    assert [*find_paths_outside(UNPUBLISHED_DATA.read_text("utf-8"), depth=3)]
    for path in SOURCES:
        text = path.read_text("utf-8")
        if path != pathlib.Path(__file__):
            assert "import unpublished_data" not in text, path
            imported = {*re.findall("from unpublished_data import (.*)", text)}
            assert imported <= {"find_data_file"}, path


@pytest.mark.slow
def test_no_home_folder_is_needed(tmp_path):
    """ranx would create a folder in the home folder when it is imported."""
    pytest.importorskip("ranx")
    home = tmp_path / "home"
    home.write_text("no folder, not even for root")
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    program = [sys.executable, "-W", "ignore", "-c", "import conftest, ranx"]
    subprocess.run(program, cwd=ROOT, env=env, check=True)


def test_absent_files_are_skipped(monkeypatch, tmp_path):
    monkeypatch.setattr(unpublished_data, "DATA", tmp_path)
    with pytest.raises(pytest.skip.Exception, match=r"rows is not in .*, and not ours"):
        unpublished_data.find_data_file("some/rows")
    (tmp_path / "rows").write_text("1")
    assert unpublished_data.find_data_file("rows").read_text() == "1"
