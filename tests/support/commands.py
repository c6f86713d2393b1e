"""A call of the command-line program within the process of the tests."""

import keras_rank_command
from keras_rank.evaluation.command import run


def run_command(arguments):
    """Runs the command with arguments as `main` does, and returns the exit code."""
    try:
        parsed = keras_rank_command.parse_arguments(arguments)
    except SystemExit as end:
        return end.code
    return run(parsed)
