"""The command `keras-rank`, which chooses a backend unless `KERAS_BACKEND` does."""

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Sequence

_HELP = """usage: keras-rank [-h] [--version] COMMAND ...

Evaluates rankings that are already scored. A package that it needs is not installed:
"""


def main() -> None:
    """Runs the command with the arguments of the process, and exits."""
    # Keras reads its backend when it is imported, as `keras_rank` does, so this module
    # is outside of that package.
    os.environ.setdefault("KERAS_BACKEND", _backend())
    try:
        from keras_rank.evaluation.command import run
    except Exception as error:
        sys.exit(_explain(error, sys.argv[1:]))
    sys.exit(run(sys.argv[1:]))


def _backend() -> str:
    """NumPy, the fastest for the command, or what is installed if Keras has no JAX."""
    installed = filter(importlib.util.find_spec, ("jax", "torch", "tensorflow"))
    backend = next(installed, "jax")
    return "numpy" if backend == "jax" else backend


def _explain(error: Exception, arguments: Sequence[str]) -> int:
    """Answers what it can where the command can't be imported."""
    said = " ".join(str(error).split())
    if isinstance(error, ImportError):
        if error.name == "jax":
            said += ", which Keras needs for NumPy too: `pip install jax`"
        if {"-h", "--help"} & set(arguments):
            print(_HELP + said)
            return 0
        if "--version" in arguments:
            print(importlib.metadata.version("keras-rank"))
            return 0
    print(f"keras-rank: error: {said}", file=sys.stderr)
    # Not 1, which is the code of a gate.
    return 2


if __name__ == "__main__":
    main()
