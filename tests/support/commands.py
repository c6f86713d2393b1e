"""The command, run within the tests."""

import keras_rank_command
from keras_rank.evaluation.command import run


def run_command(arguments):
    """Returns its exit code, as `main` does that of the arguments of the process."""
    return run(keras_rank_command.parser_of_command().parse_args(arguments))
