"""An extension of Griffe that reads and completes docstrings in the style of Keras."""

import inspect
import pydoc
import re
from typing import Any

import griffe

ARGUMENTS = re.compile(r"(?<=^Args:\n)(?: .*\n?)+", re.MULTILINE)
ARGUMENT = re.compile(r"^    (\**\w+): ", re.MULTILINE)
# A reference to another docstring. That of `**arguments` lists names of arguments.
REFERENCE = re.compile(r"as for `(keras_rank[\w.]*)`(?:: (.*))?", re.DOTALL)
HEADING = re.compile(r"^(Example|Reference)s?:$")
END_OF_REFERENCE = re.compile(r"\d{4}\.$")


class KerasStyle(griffe.Extension):
    """An extension that lists all arguments, and indents sections as Google's style."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = convert_to_google_style(
                expand_references(obj.docstring.value)
            )

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Replaces `**arguments` of a function by the arguments of its signature.

        Annotations are removed: the docstrings describe types and defaults.
        """
        if "arguments" in func.parameters:
            signature = inspect.signature(pydoc.locate(func.path))
            func.parameters = griffe.Parameters(
                *(
                    griffe.Parameter(
                        parameter.name,
                        kind=griffe.ParameterKind[parameter.kind.name.lower()],
                        default=format_default(parameter),
                    )
                    for parameter in signature.parameters.values()
                )
            )
        for parameter in func.parameters:
            parameter.annotation = None


def format_default(parameter: inspect.Parameter) -> str | None:
    """Returns the source of the default of an argument, or `None`."""
    default = parameter.default
    if default is parameter.empty:
        return None
    if inspect.isfunction(default):
        return f"{default.__module__.rpartition('.')[2]}.{default.__name__}"
    return repr(default)


def parse_arguments(docstring: str) -> dict[str, str]:
    """Returns the description of each argument in a docstring."""
    section = ARGUMENTS.search(docstring)
    _, *parts = ARGUMENT.split(section[0].rstrip() if section else "")
    texts = (text.rstrip() for text in parts[1::2])
    return dict(zip(parts[::2], texts, strict=True))


def expand_references(docstring: str) -> str:
    """Replaces references to other docstrings by the descriptions in these docstrings.

    Args:
        docstring: the docstring, without the indentation of its code.

    Returns:
        The docstring. The arguments that `**arguments` lists replace it. Descriptions
        in the docstring itself take precedence.
    """
    arguments = {}
    for name, text in parse_arguments(docstring).items():
        reference = REFERENCE.match(text)
        if not reference:
            arguments[name] = text
            continue
        base = parse_arguments(inspect.getdoc(pydoc.locate(reference[1])))
        names = re.findall(r"\w+", reference[2]) if name == "**arguments" else [name]
        for listed_name in names:
            arguments.setdefault(listed_name, base[listed_name])
    section = "\n".join(f"    {name}: {text}" for name, text in arguments.items())
    return ARGUMENTS.sub(lambda _: f"{section}\n", docstring, count=1)


def convert_to_google_style(docstring: str) -> str:
    """Indents the examples, and makes a list of the references.

    Examples follow all other sections, except for references.

    Args:
        docstring: the docstring, without the indentation of its code.

    Returns:
        The docstring, with examples and references as sections.
    """
    section, is_start, lines = "", True, []
    for line in docstring.splitlines():
        heading = HEADING.match(line)
        if heading:
            section, is_start = heading[1], True
            lines.append(f"{section}s:")
        elif section and is_start and not line:
            continue  # Google's style has no empty line below a heading.
        elif section == "Example":
            lines.append(f"    {line}" if line else line)
            is_start = False
        elif section == "Reference":
            text = line.strip()
            lines.append(f"    - {text}" if is_start else f"      {text}")
            is_start = bool(END_OF_REFERENCE.search(text))
        else:
            lines.append(line)
    return "\n".join(lines)
