"""The command `keras-rank`: values on stdout, all else on stderr, and an exit code.

0: done. 1: done, and a gate that was asked for (`--fail-below`, `--fail-above`,
`--fail-if-worse`) failed. 2: an error, which one line on stderr names.
"""

from keras_rank.evaluation.command.main import run

__all__ = ["run"]
