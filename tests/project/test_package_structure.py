"""The structure of the package: modules that may depend on devices and values."""

import ast
import pathlib
import re

import pytest

import keras_rank

PACKAGE = pathlib.Path(keras_rank.__file__).parent
MODULES = {str(x.relative_to(PACKAGE)): x for x in sorted(PACKAGE.rglob("*.py"))}

# Modules that compute on lists depend on neither the device nor the values.
LIST_MODULES = ("formulas.py", "functional.py", "lists/", "metrics/", "ranking/")
DEVICE_NAMES = re.compile(
    r"\b(on_accelerator|should_sort_together|accelerator|device_of|cuda|tpu|gpu|cpu)\b"
)
VALUE_NAMES = re.compile(
    r"\b(is_concrete|is_cheap_to_read|backend\.read_condition|copy\.copy)\b"
)
# Modules that check arguments, and raise errors if values can be read.
ARGUMENT_MODULES = {"lists/first_batch_warnings.py", "lists/ids.py", "lists/inputs.py"}
# Metrics that average over ties have a fast path for batches without ties.
BRANCHES = {"formulas.py", "metrics/graded.py"}


def find_docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(
            node, (ast.Module, ast.ClassDef, ast.FunctionDef)
        ) and ast.get_docstring(node):
            yield node.body[0]


def read_code(name):
    """Returns the source of a module without docstrings and comments."""
    tree = ast.parse(MODULES[name].read_text())
    for docstring in find_docstrings(tree):
        docstring.value.value = ""
    return ast.unparse(tree)


@pytest.mark.parametrize("name", [x for x in MODULES if x.startswith(LIST_MODULES)])
def test_code_depends_on_neither_devices_nor_values(name):
    code = read_code(name)
    assert not DEVICE_NAMES.findall(code)
    assert name in ARGUMENT_MODULES or not VALUE_NAMES.findall(code)
    assert name in BRANCHES or "backend.branch(" not in code


def test_the_exceptions_are_needed():
    assert all(VALUE_NAMES.search(read_code(name)) for name in ARGUMENT_MODULES)
    assert all("backend.branch(" in read_code(name) for name in BRANCHES)
