"""TEMPORARY: until `functional.py` no longer imports it."""

from collections.abc import Iterable


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """Returns the error for a name that a module does not have."""
    return AttributeError(f"module {module!r} has no attribute {name!r}")
