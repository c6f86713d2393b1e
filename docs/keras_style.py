"""Lets mkdocstrings read docstrings in the style of Keras, and completes them."""

import inspect
import pydoc
import re
from typing import Any

import griffe

ARGUMENTS = re.compile(r"(?<=^Args:\n)(?: .*\n?)+", re.MULTILINE)
ARGUMENT = re.compile(r"^    (\**\w+): ", re.MULTILINE)
# What refers to another docstring: for `**arguments`, with the names of these.
REFERENCE = re.compile(r"as for `(keras_rank[\w.]*)`(?:: (.*))?", re.DOTALL)
HEADING = re.compile(r"^(Example|Reference)s?:$")
END_OF_REFERENCE = re.compile(r"\d{4}\.$")


class KerasStyle(griffe.Extension):
    """Shows all arguments, and indents what Keras's style does not below a heading."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = in_google_style(in_full(obj.docstring.value))

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Shows the arguments that a function passes on, as its signature does.

        The docstrings describe their types and defaults.
        """
        if "arguments" in func.parameters:
            signature = inspect.signature(pydoc.locate(func.path))
            func.parameters = griffe.Parameters(
                *(
                    griffe.Parameter(
                        parameter.name,
                        kind=griffe.ParameterKind[parameter.kind.name.lower()],
                        default=default_of(parameter),
                    )
                    for parameter in signature.parameters.values()
                )
            )
        for parameter in func.parameters:
            parameter.annotation = None


def default_of(parameter: inspect.Parameter) -> str | None:
    """The default of an argument as written, `None` if it has none."""
    default = parameter.default
    if default is parameter.empty:
        return None
    if inspect.isfunction(default):
        return f"{default.__module__.rpartition('.')[2]}.{default.__name__}"
    return repr(default)


def arguments_of(docstring: str) -> dict[str, str]:
    """What a docstring says of each argument."""
    section = ARGUMENTS.search(docstring)
    _, *parts = ARGUMENT.split(section[0].rstrip() if section else "")
    texts = (text.rstrip() for text in parts[1::2])
    return dict(zip(parts[::2], texts, strict=True))


def in_full(docstring: str) -> str:
    """Replaces each argument that refers to another docstring by what that one says.

    Args:
        docstring: the docstring, without the indentation of its code.

    Returns:
        The docstring, with those that `**arguments` names in the place of it, unless it
        documents them itself.
    """
    arguments = {}
    for name, text in arguments_of(docstring).items():
        reference = REFERENCE.match(text)
        if not reference:
            arguments[name] = text
            continue
        base = arguments_of(inspect.getdoc(pydoc.locate(reference[1])))
        names = re.findall(r"\w+", reference[2]) if name == "**arguments" else [name]
        for each in names:
            arguments.setdefault(each, base[each])
    section = "\n".join(f"    {name}: {text}" for name, text in arguments.items())
    return ARGUMENTS.sub(lambda _: f"{section}\n", docstring, count=1)


def in_google_style(docstring: str) -> str:
    """Indents examples, which come last except for references, and lists the latter.

    Args:
        docstring: the docstring, without the indentation of its code.

    Returns:
        The docstring, in which examples and references are sections of their own.
    """
    section, starts, lines = "", True, []
    for line in docstring.splitlines():
        heading = HEADING.match(line)
        if heading:
            section, starts = heading[1], True
            lines.append(f"{section}s:")
        elif section and starts and not line:
            continue  # A section starts right below its heading.
        elif section == "Example":
            lines.append(f"    {line}" if line else line)
            starts = False
        elif section == "Reference":
            text = line.strip()
            lines.append(f"    - {text}" if starts else f"      {text}")
            starts = bool(END_OF_REFERENCE.search(text))
        else:
            lines.append(line)
    return "\n".join(lines)
