"""The public API: its names, its documentation, and imports between modules."""

import ast
import graphlib
import importlib
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import keras_rank

PACKAGE = pathlib.Path(keras_rank.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def relative_name(path):
    return str(path.relative_to(PACKAGE))


def module_name(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


NAMES = {module_name(path) for path in MODULES}


def public_objects():
    for name in [*keras_rank.__all__, "evaluation"]:
        module = getattr(keras_rank, name)
        yield name, module
        for inner in getattr(module, "__all__", []):
            yield f"{name}.{inner}", getattr(module, inner)


@pytest.mark.parametrize(("name", "value"), list(public_objects()))
def test_public_names_are_documented(name, value):
    doc = inspect.getdoc(value)
    assert doc, name
    is_generated = "is generated from" in doc
    if not is_generated and (inspect.isclass(value) or inspect.isfunction(value)):
        assert "Example" in doc, f"{name} has no example"
        assert ">>>" in doc, f"the example of {name} is not run"
        for parameter in inspect.signature(value).parameters:
            # Arguments documented elsewhere are named: "**arguments: as for ...: seed."
            documented = re.search(rf"\b{parameter.strip('_')}[:,.]", doc)
            assert documented or parameter in ("args", "kwargs"), (name, parameter)


def test_all_lists_existing_names():
    for name, module in public_objects():
        if inspect.ismodule(module) and hasattr(module, "__all__"):
            assert len(set(module.__all__)) == len(module.__all__), name
            assert all(hasattr(module, inner) for inner in module.__all__)


# A module that the package imports on first use, and names for type checkers.
LAZY = "keras_rank.evaluation"


def find_imports(path):
    """Yields the modules that a file imports, also by `from` their package.

    Imports in functions and imports for types count too.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            is_lazy = names == [LAZY] and relative_name(path) == "__init__.py"
            yield from () if is_lazy else names
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name == LAZY and relative_name(path) == "__init__.py":
                    continue
                is_module = node.module == "keras_rank" or name in NAMES
                yield name if is_module else node.module


def build_graph(modules):
    """Returns the imports of each module from the other modules."""
    names = {module_name(path).removesuffix(".__init__"): path for path in modules}
    return {
        name: {*find_imports(path)} & {*names} - {name} for name, path in names.items()
    }


def test_imports_form_no_cycle():
    """The imports by which `backends/__init__.py` selects a backend are left out."""
    graph = build_graph(MODULES)
    backends = "keras_rank.backends"
    graph[backends] = {x for x in graph[backends] if not x.startswith(f"{backends}.")}
    # `prepare` raises an error if there is a cycle.
    graphlib.TopologicalSorter(graph).prepare()


# Layers from the lowest to the highest. A layer imports from itself and lower ones.
LAYERS = ["backends", "arrays", "gains state", "discounts", "lists"]
LAYERS += ["ranking", "formulas arguments", "metrics", "functional", "reading"]
LAYERS += ["utils catalogue", "callbacks", "model", "keras_rank", "evaluation"]
LAYERS += ["__main__"]
LEVELS = {name: i for i, names in enumerate(LAYERS) for name in names.split()}


def find_layer(module):
    """Returns the folder or file of a module directly below the package."""
    return [*module.split("."), "keras_rank"][1]


@pytest.mark.parametrize("path", MODULES, ids=relative_name)
def test_imports_go_down_only(path):
    first = path.relative_to(PACKAGE).with_suffix("").parts[0]
    layer = "keras_rank" if first == "__init__" else first
    package_imports = [
        name for name in find_imports(path) if name.startswith("keras_rank")
    ]
    other_layers = {find_layer(name) for name in package_imports} - {layer}
    assert not {other for other in other_layers if LEVELS[other] >= LEVELS[layer]}


def test_the_package_does_not_import_the_module_of_the_command():
    """The module sets the backend before the import, and passes the options."""
    importing = [x for x in MODULES if "keras_rank_command" in find_imports(x)]
    assert [*map(relative_name, importing)] == ["__main__.py"]


# The order of the modules within `evaluation` and `reading`: from the data to the
# functions and the command. The empty name is the package `evaluation` itself.
EVALUATION_ORDER = [
    "reading",
    "lists",
    "report",
    "evaluation",
    "functions",
    "",
    "command_inputs",
    "command",
]
EVALUATION = [
    x for x in MODULES if relative_name(x).startswith(("evaluation/", "reading/"))
]


def test_modules_of_the_evaluation_import_each_other_in_one_direction():
    graph = build_graph(EVALUATION)

    def find_index(name):
        _, folder, part, *_ = [*name.split("."), ""]
        return EVALUATION_ORDER.index(part if folder == "evaluation" else folder)

    for name, imported in graph.items():
        assert all(find_index(each) <= find_index(name) for each in imported), name


@pytest.mark.parametrize("path", MODULES, ids=relative_name)
def test_backends_and_private_keras_are_not_imported(path):
    imported = set(find_imports(path))
    assert not any(name.startswith("keras.src") for name in imported)
    if path.parent.name != "backends":
        assert not imported & {"jax", "tensorflow", "torch"}


def test_one_file_reads_the_name_of_the_backend():
    for path in MODULES:
        if relative_name(path) != "backends/__init__.py":
            assert "backend.backend()" not in path.read_text(), path


# Names that distinguish the forms of an argument: ragged, sparse, column, variable.
FORM_NAMES = {"is_nested", "row_splits", "to_padded_tensor", "to_list", "to_pylist"}
FORM_NAMES |= {"toarray", "todense", "dense_shape", "to_sparse_csr", "read_value"}


def test_one_file_distinguishes_the_forms_of_arguments():
    """Support of another form of input needs a change in one file."""
    folders = {"arrays", "lists", "ranking", "formulas.py", "metrics"}
    folders |= {"catalogue", "callbacks", "model.py", "functional.py"}
    names_by_file = {}
    for path in MODULES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        names |= {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
        if names & FORM_NAMES and path.relative_to(PACKAGE).parts[0] in folders:
            names_by_file[relative_name(path)] = names & FORM_NAMES
    assert names_by_file == {"lists/input_arrays.py": FORM_NAMES}


def test_dir_returns_public_names():
    names = [*keras_rank.__all__, "__version__", "evaluation"]
    assert dir(keras_rank) == sorted(names)


def run_in_python(code):
    return subprocess.check_output([sys.executable, "-c", code], text=True)


@pytest.mark.slow
def test_the_evaluation_is_imported_when_it_is_first_used():
    code = """
import inspect, pickle, sys
from keras_rank import *
import keras_rank
before = {"duckdb", "keras_rank.evaluation"} & {*sys.modules}
has = hasattr(keras_rank, "evaluation")
assert keras_rank.evaluation is sys.modules["keras_rank.evaluation"]
evaluate = keras_rank.evaluation.evaluate
assert pickle.loads(pickle.dumps(evaluate)) is evaluate
print(sorted(before), has, "evaluation" in dict(inspect.getmembers(keras_rank)))
"""
    assert run_in_python(code) == "[] True True\n"


@pytest.mark.slow
def test_the_evaluation_imports_no_optional_dependency():
    optional = "ray", "matplotlib", "jinja2"
    code = f"import sys; sys.modules.update(dict.fromkeys({optional}))"
    run_in_python(f"{code}; import keras_rank.evaluation.command")


@pytest.mark.slow
def test_the_evaluation_without_its_dependencies_is_no_attribute():
    """`help` and mocks search modules for attributes, which should raise no error."""
    code = """
import inspect, sys
sys.modules["duckdb"] = None
import keras_rank
print(hasattr(keras_rank, "evaluation"), len(inspect.getmembers(keras_rank)) > 5)
for code in ("keras_rank.evaluation.evaluate", "from keras_rank import evaluation"):
    try:
        exec(code)
    except (AttributeError, ImportError) as error:
        print(type(error).__name__, str(error).partition(",")[0])
"""
    needs = "`keras_rank.evaluation` needs duckdb"
    assert run_in_python(code).splitlines() == [
        "False True",
        f"AttributeError {needs}",
        f"ImportError {needs}",
    ]


@pytest.mark.parametrize("module", ["keras_rank", "keras_rank.functional"])
def test_unknown_names_of_modules_are_errors(module):
    with pytest.raises(AttributeError, match=f"'{module}' has no attribute 'mrr'"):
        importlib.import_module(module).mrr  # noqa: B018


@pytest.mark.slow
def test_importing_is_light():
    """The package imports no other backend than Keras, and no evaluation libraries."""
    backends = "{'jax', 'tensorflow', 'torch', 'duckdb', 'pyarrow', 'scipy', "
    backends += "'jinja2', 'tabulate'} & set(sys.modules)"
    code = f"import sys, keras; before = {backends}; import keras_rank"
    code += f"; print(sorted({backends} - before))"
    assert run_in_python(code) == "[]\n"


def test_jax_before_0_8_is_allowed():
    """`backends/jax.py` looks for `jax.enable_x64`, which these versions lack."""
    text = (PACKAGE.parent / "pyproject.toml").read_text()
    lowest = re.search(r'^jax = \["jax>=([0-9.]+)"\]', text, re.MULTILINE)[1]
    assert tuple(map(int, lowest.split("."))) < (0, 8)
    assert "enable_x64" in (PACKAGE / "backends" / "jax.py").read_text()
