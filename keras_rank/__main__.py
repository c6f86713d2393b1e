"""The command `keras-rank`, which is `python -m keras_rank` too."""

import sys


def main() -> None:
    """Runs the command with the arguments of the process, and exits."""
    try:
        from keras_rank.evaluation.command import run
    except ImportError as error:
        print(f"keras-rank: error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
