"""The command `keras-rank`: values on stdout, all else on stderr, and an exit code.

0: done. 1: done, but a gate (`--fail-below`, `--fail-above`, `--fail-if-worse`) failed.
2: an error, with one line on stderr.
"""

from keras_rank.evaluation.command.main import run

__all__ = ["run"]
