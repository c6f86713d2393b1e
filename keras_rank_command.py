"""The command `keras-rank`, on NumPy unless `KERAS_BACKEND` names another backend."""

import os
import sys


def main() -> None:
    """Runs the command with the arguments of the process, and exits."""
    # Keras reads its backend when it is imported, as `keras_rank` does, so this module
    # is outside of that package. NumPy is the fastest backend for the command.
    os.environ.setdefault("KERAS_BACKEND", "numpy")
    try:
        from keras_rank.evaluation.command import run
    except Exception as error:
        # Such as a missing package. Not 1, which is the code of a gate.
        print(f"keras-rank: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
