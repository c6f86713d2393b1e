"""What is public, that it is documented, and that the layers hold."""

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


def place(path):
    return str(path.relative_to(PACKAGE))


def name_of(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


NAMES = {name_of(path) for path in MODULES}


def public_objects():
    for name in [*keras_rank.__all__, "evaluation"]:
        module = getattr(keras_rank, name)
        yield name, module
        for inner in getattr(module, "__all__", []):
            yield f"{name}.{inner}", getattr(module, inner)


@pytest.mark.parametrize(("name", "thing"), list(public_objects()))
def test_public_names_are_documented(name, thing):
    doc = inspect.getdoc(thing)
    assert doc, name
    is_generated = "is generated from" in doc
    if not is_generated and (inspect.isclass(thing) or inspect.isfunction(thing)):
        assert "Example" in doc, f"{name} has no example"
        assert ">>>" in doc, f"the example of {name} is not run"
        for parameter in inspect.signature(thing).parameters:
            # Those documented elsewhere are named: "**arguments: as for ...: seed."
            documented = re.search(rf"\b{parameter.strip('_')}[:,.]", doc)
            assert documented or parameter in ("args", "kwargs"), (name, parameter)


def test_all_is_what_is_there():
    for name, module in public_objects():
        if inspect.ismodule(module) and hasattr(module, "__all__"):
            assert len(set(module.__all__)) == len(module.__all__), name
            assert all(hasattr(module, inner) for inner in module.__all__)


# What the package imports when it is first used, and names for type checkers.
LAZY = "keras_rank.evaluation"


def imports_of(path):
    """The modules that a file imports, also by `from` the package that holds them.

    Inside of functions too, and for the names of types alone.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            is_lazy = names == [LAZY] and place(path) == "__init__.py"
            yield from () if is_lazy else names
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name == LAZY and place(path) == "__init__.py":
                    continue
                is_module = node.module == "keras_rank" or name in NAMES
                yield name if is_module else node.module


def graph_of(modules):
    """What each of some modules imports of these."""
    names = {name_of(path).removesuffix(".__init__"): path for path in modules}
    return {
        name: {*imports_of(path)} & {*names} - {name} for name, path in names.items()
    }


def test_imports_form_no_circle():
    """The backends choose one of themselves."""
    graph = graph_of(MODULES)
    backends = "keras_rank.backends"
    graph[backends] = {x for x in graph[backends] if not x.startswith(f"{backends}.")}
    # It raises for a circle.
    graphlib.TopologicalSorter(graph).prepare()


# From the lowest to the highest: a room imports from lower ones and from itself.
ROOMS = ["backends", "arrays", "gains discounts state", "lists"]
ROOMS += ["ranking", "formulas arguments", "metrics", "functional", "reading"]
ROOMS += ["utils catalogue", "callbacks", "model", "keras_rank", "evaluation"]
ROOMS += ["__main__"]
LEVELS = {room: i for i, rooms in enumerate(ROOMS) for room in rooms.split()}


def room_of(module):
    """The folder or file that a module is in, below the package."""
    return [*module.split("."), "keras_rank"][1]


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_imports_go_down_only(path):
    first = path.relative_to(PACKAGE).with_suffix("").parts[0]
    room = "keras_rank" if first == "__init__" else first
    ours = [name for name in imports_of(path) if name.startswith("keras_rank")]
    others = {room_of(name) for name in ours} - {room}
    assert not {other for other in others if LEVELS[other] >= LEVELS[room]}


def test_the_package_does_not_know_the_module_that_starts_it():
    """It is handed the options: what parses them chooses a backend for the package."""
    knowing = [x for x in MODULES if "keras_rank_command" in imports_of(x)]
    assert [*map(place, knowing)] == ["__main__.py"]


# The same within `evaluation` and what it reads with: the way of its data, and what is
# asked of it. The package itself is the empty name.
PARTS = [
    "reading",
    "lists",
    "report",
    "evaluation",
    "functions",
    "",
    "command_inputs",
    "command",
]
EVALUATION = [x for x in MODULES if place(x).startswith(("evaluation/", "reading/"))]


def test_modules_of_the_evaluation_import_each_other_in_one_direction():
    graph = graph_of(EVALUATION)

    def part_of(name):
        _, room, part, *_ = [*name.split("."), ""]
        return PARTS.index(part if room == "evaluation" else room)

    for name, imported in graph.items():
        assert all(part_of(each) <= part_of(name) for each in imported), name


@pytest.mark.parametrize("path", MODULES, ids=place)
def test_backends_and_private_keras_are_not_imported(path):
    imported = set(imports_of(path))
    assert not any(name.startswith("keras.src") for name in imported)
    if path.parent.name != "backends":
        assert not imported & {"jax", "tensorflow", "torch"}


def test_only_one_file_names_a_backend():
    for path in MODULES:
        if place(path) != "backends/__init__.py":
            assert "backend.backend()" not in path.read_text(), path


# What tells the forms of an argument apart: ragged, sparse, a column, a variable.
FORMS = {"is_nested", "row_splits", "to_padded_tensor", "to_list", "to_pylist"}
FORMS |= {"toarray", "todense", "dense_shape", "to_sparse_csr", "read_value"}


def test_only_one_file_asks_for_the_form_of_an_argument():
    """So that another form of input is one place to add."""
    rooms = {"arrays", "lists", "ranking", "formulas.py", "metrics"}
    rooms |= {"catalogue", "callbacks", "model.py", "functional.py"}
    asking = {}
    for path in MODULES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        names |= {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
        if names & FORMS and path.relative_to(PACKAGE).parts[0] in rooms:
            asking[place(path)] = names & FORMS
    assert asking == {"lists/input_arrays.py": FORMS}


def test_only_public_names_are_in_sight():
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


def test_the_evaluation_imports_no_optional_dependency():
    optional = "ray", "matplotlib", "jinja2"
    code = f"import sys; sys.modules.update(dict.fromkeys({optional}))"
    run_in_python(f"{code}; import keras_rank.evaluation.command")


@pytest.mark.slow
def test_the_evaluation_without_its_extra_is_no_attribute():
    """Modules are searched for attributes, such as by `help` and mocks."""
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
def test_an_unknown_name_of_a_module(module):
    with pytest.raises(AttributeError, match=f"'{module}' has no attribute 'mrr'"):
        importlib.import_module(module).mrr  # noqa: B018


@pytest.mark.slow
def test_importing_is_light():
    """No backend is imported but what Keras imports, and nothing for evaluation."""
    backends = "{'jax', 'tensorflow', 'torch', 'duckdb', 'pyarrow', 'scipy', "
    backends += "'jinja2', 'tabulate'} & set(sys.modules)"
    code = f"import sys, keras; before = {backends}; import keras_rank"
    code += f"; print(sorted({backends} - before))"
    assert run_in_python(code) == "[]\n"


def test_jax_before_0_8_is_allowed():
    """Once it is not, what looks for `jax.enable_x64` in `backends/jax.py` can go."""
    text = (PACKAGE.parent / "pyproject.toml").read_text()
    lowest = re.search(r'^jax = \["jax>=([0-9.]+)"\]', text, re.MULTILINE)[1]
    assert tuple(map(int, lowest.split("."))) < (0, 8)
    assert "enable_x64" in (PACKAGE / "backends" / "jax.py").read_text()
