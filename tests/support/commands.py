"""The command, run within the tests."""

import keras_rank_command
from keras_rank.evaluation.command import run


def run_command(arguments):
    """Returns its exit code, as `main` does that of the arguments of the process."""
    try:
        parsed = keras_rank_command.parsed_arguments(arguments)
    except SystemExit as end:
        return end.code
    return run(parsed)
