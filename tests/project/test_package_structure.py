"""How the package is built: where it may ask for devices and values."""

import ast
import pathlib
import re

import pytest

import keras_rank

PACKAGE = pathlib.Path(keras_rank.__file__).parent
MODULES = {str(x.relative_to(PACKAGE)): x for x in sorted(PACKAGE.rglob("*.py"))}

# What computes on lists asks for no device, and looks at no value.
ROOMS = ("formulas.py", "functional.py", "lists/", "metrics/", "ranking/")
OF_DEVICES = re.compile(
    r"\b(on_accelerator|should_sort_together|accelerator|device_of|cuda|tpu|gpu|cpu)\b"
)
LOOKS = re.compile(
    r"\b(is_concrete|is_cheap_to_read|backend\.read_condition|copy\.copy"
    r"|looks_first|is_best_sorted|is_worth_a_look|among_high)\b"
)
# The looks of arguments, of which some values are errors where they can be seen.
OF_ARGUMENTS = {"lists/first_batch_warnings.py", "lists/ids.py", "lists/inputs.py"}
# Metrics that average over ties have a fast path for batches without ties.
BRANCHES = {"formulas.py", "metrics/graded.py"}


def docstrings_of(tree):
    for node in ast.walk(tree):
        if isinstance(
            node, (ast.Module, ast.ClassDef, ast.FunctionDef)
        ) and ast.get_docstring(node):
            yield node.body[0]


def code_of(name):
    """The source without docstrings and comments."""
    tree = ast.parse(MODULES[name].read_text())
    for docstring in docstrings_of(tree):
        docstring.value.value = ""
    return ast.unparse(tree)


@pytest.mark.parametrize("name", [x for x in MODULES if x.startswith(ROOMS)])
def test_one_way_whatever_the_device_and_the_values(name):
    code = code_of(name)
    assert not OF_DEVICES.findall(code)
    assert name in OF_ARGUMENTS or not LOOKS.findall(code)
    assert name in BRANCHES or "backend.branch(" not in code


def test_the_exceptions_are_needed():
    assert all(LOOKS.search(code_of(name)) for name in OF_ARGUMENTS)
    assert all("backend.branch(" in code_of(name) for name in BRANCHES)
