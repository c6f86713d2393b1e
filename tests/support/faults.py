"""Small faults that can be planted in the functions of a file.

Faults that change no number on any backend are left out:

- Errors, warnings, `__repr__`, and keywords that only detect mistakes or copy.
- Types: annotations, unions, and the first argument of `typing.cast`.
- Choices between two code paths with one result, of which one is faster: functions
  such as `should_sort_together`, and comparisons with sizes such as `_MAX_SORTED_SIZE`.
"""

import ast
import pathlib
import re
import textwrap
import types
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

ROOT = pathlib.Path(__file__).parents[2]

PAIRS = "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, And Or, BitAnd BitOr, Add Sub"
NAMES = "min max, minimum maximum, amin amax, any all, logical_and logical_or"
NAMES += ", floor ceil, zeros ones, zeros_like ones_like"


def replace_each_other(pairs: str) -> dict[str, str]:
    """Returns a dict that maps each name of a pair to the other name."""
    forward = dict(x.split() for x in pairs.split(", "))
    return forward | {y: x for x, y in forward.items()}


OTHER_OPERATORS = {
    "Mult": "Add",
    "Div": "Mult",
    "FloorDiv": "Mult",
    "Mod": "FloorDiv",
    "Pow": "Mult",
} | replace_each_other(PAIRS)
OTHER_NAMES = replace_each_other(NAMES)
# Errors and their messages.
NOT_CHANGED = ast.Raise | ast.Assert | ast.JoinedStr
ERROR_NAMES = {"expected", "received", "message", "value_error", "ValueError"}
# Calls that give or suppress a warning, and the module of the warnings of a batch.
WARNING_CALLS = {"warn", "catch_warnings", "suppress_float_warnings"}
WARNING_MODULES = {"first_batch_warnings.py"}
# Predicates and sizes that choose the faster of two code paths with one result.
PATH_CONDITIONS = re.compile(
    "_?should_.*|is_long|is_comparison_faster|_?(MAX|MIN)_.*(SIZE|RATIO|COMPARISONS)"
)
# Type annotations, and decorators, which have run when a fault is planted.
IGNORED_FIELDS = ("annotation", "returns", "decorator_list", "type_params")
COMMUTATIVE = {"isinstance", *OTHER_NAMES}
# `zip` is strict only to detect mistakes, and a copy has the same values.
IGNORED_KEYWORDS = {"strict", "copy"}

# An attribute of a node of a tree, and its new value.
Change: TypeAlias = tuple[ast.AST, str, object]


class Fault(NamedTuple):
    """The location of a fault, and its number among the faults of the file."""

    path: str
    lines: range
    function: str
    number: int
    change: str

    def __str__(self):
        return f"{self.path}:{self.lines.start}  {self.change}"

    def planted(self) -> types.CodeType:
        """Returns the code of the module with the fault."""
        for fault, (node, attribute, value), tree in _find_faults(self.path):
            if fault == self:
                setattr(node, attribute, value)
                ast.fix_missing_locations(tree)
                return compile(tree, ROOT / self.path, "exec")
        raise ValueError(f"There is no such fault any more: {self}")


def list_faults(path: str) -> list[Fault]:
    """Returns all faults of a file in a fixed order."""
    return [fault for fault, *_ in _find_faults(path)]


def _find_faults(path: str) -> Iterator[tuple[Fault, Change, ast.Module]]:
    if pathlib.Path(path).name in WARNING_MODULES:
        return
    tree = ast.parse((ROOT / path).read_text())
    number = 0
    for function, node in _find_functions(tree):
        for part in node.body:
            for shown, change, lines in _find_changes(part, range(0)):
                before, after = _texts(shown, *change)
                if before != after:
                    text = f"{before}  ->  {after}"
                    yield Fault(path, lines, function, number, text), change, tree
                    number += 1


def _find_functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yields the functions of a module and of its classes by qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _find_functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not _is_ignored(node):
            yield prefix + node.name, node


def _texts(shown: ast.AST, node: ast.AST, attribute: str, value: object) -> list[str]:
    """Returns the shortened source of a node before and after the change."""
    old = getattr(node, attribute)
    texts = []
    for x in (value, old):
        setattr(node, attribute, x)
        text = ast.unparse(shown.test if isinstance(shown, ast.If) else shown)
        texts.insert(0, textwrap.shorten(text, 100, placeholder=" ..."))
    return texts


def _find_changes(
    node: ast.AST, lines: range
) -> Iterator[tuple[ast.AST, Change, range]]:
    """Yields the changes within a node, and the lines that must run to reach them."""
    if isinstance(node, NOT_CHANGED) or _is_ignored(node):
        return
    if isinstance(node, ast.stmt):
        body = getattr(node, "body", None)
        last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
        lines = range(node.lineno, last + 1)
    for change in _node_changes(node):
        yield node, change, lines
    for name, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST) and name not in IGNORED_FIELDS:
                yield from _find_changes(part, lines)


def _is_ignored(node: ast.AST) -> bool:
    """Returns whether a fault within a node changes no number."""
    match node:
        case ast.FunctionDef("__repr__"):
            return True
        case ast.FunctionDef(name) if PATH_CONDITIONS.fullmatch(name):
            return True
        case ast.Compare():
            return _chooses_path(node)
        case ast.Call(ast.Attribute(attr=name)) if name in WARNING_CALLS:
            return True
        case ast.keyword(arg):
            return arg in IGNORED_KEYWORDS
        case ast.Assign(targets=[ast.Name(name)]) | ast.AugAssign(ast.Name(name)):
            return name in ERROR_NAMES
        case ast.Call(ast.Name(name)) | ast.FunctionDef(returns=ast.Name(name)):
            return name in ERROR_NAMES or name.endswith("_error")
    return False


def _node_changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[operator]):
            yield from _other_operator(node, "ops", operator)
        case ast.BinOp(left=ast.Name("int" | "float" | "bool" | "str")):
            """A union of types."""
        case (
            ast.BinOp(op=operator)
            | ast.BoolOp(op=operator)
            | ast.AugAssign(op=operator)
        ):
            yield from _other_operator(node, "op", operator)
        case ast.UnaryOp():
            # Two equal unary operators cancel each other.
            yield node, "operand", ast.UnaryOp(node.op, node.operand)
        case ast.Constant(bool(value)):
            yield node, "value", not value
        case ast.Constant(int(value) | float(value)):
            yield node, "value", value + 1
        case ast.IfExp(test) | ast.If(test) if _chooses_path(test):
            """A choice of the faster path."""
        case ast.IfExp() | ast.If():
            yield node, "test", ast.Constant(True)
            yield node, "test", ast.Constant(False)
        case ast.comprehension(ifs=[_, *_]):
            yield node, "ifs", []
        case ast.Assign() if _find_names(*node.targets) <= _find_names(node.value):
            # The assignment is removed. Only a name that had a value before, on the
            # right side, still has a value then.
            yield node, "value", ast.parse(ast.unparse(node.targets[0])).body[0].value
        case ast.Expr(ast.Call()):
            yield node, "value", ast.Constant(None)
        case ast.Call(ast.Name("cast"), [ast.Name("Any"), _]):
            """A type, and a value that is not changed."""
        case ast.Call():
            yield from _call_changes(node)


def _other_operator(node: ast.AST, attribute: str, old: ast.AST) -> Iterator[Change]:
    other = OTHER_OPERATORS.get(type(old).__name__)
    if other:
        new = getattr(ast, other)()
        yield node, attribute, [new] if attribute == "ops" else new


def _find_names(*nodes: ast.AST) -> set[str]:
    return {x.id for node in nodes for x in ast.walk(node) if isinstance(x, ast.Name)}


def _chooses_path(node: ast.AST) -> bool:
    """Returns whether a condition chooses one of two code paths with one result."""
    attributes = {x.attr for x in ast.walk(node) if isinstance(x, ast.Attribute)}
    names = _find_names(node) | attributes
    return any(PATH_CONDITIONS.fullmatch(name) for name in names)


def _call_changes(node: ast.Call) -> Iterator[Change]:
    attribute = "attr" if isinstance(node.func, ast.Attribute) else "id"
    name = getattr(node.func, attribute, None)
    if name in OTHER_NAMES:
        yield node.func, attribute, OTHER_NAMES[name]
    if len(node.args) > 1 and name not in COMMUTATIVE:
        first, second, *rest = node.args
        yield node, "args", [second, first, *rest]
    for word in node.keywords:
        if word.arg not in IGNORED_KEYWORDS:
            yield node, "keywords", [x for x in node.keywords if x is not word]
