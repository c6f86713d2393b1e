"""Lets mkdocstrings read docstrings in the style of Keras."""

import importlib
import inspect
import re
from typing import Any

import griffe

HEADING = re.compile(r"^(Example|Reference)s?:$")
END_OF_REFERENCE = re.compile(r"\d{4}\.$")


class KerasStyle(griffe.Extension):
    """Indents the text below headings, which Keras's style does not."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrites the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = in_google_style(obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Shows the arguments that an `__init__` passes to that of its base.

        The docstrings describe their types and defaults.
        """
        if "arguments" in func.parameters and func.name == "__init__":
            module = importlib.import_module(func.module.path)
            signature = inspect.signature(getattr(module, func.parent.name).__init__)
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
