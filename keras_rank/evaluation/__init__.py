"""Evaluation of rankings that are already scored: tables and TREC runs."""

try:
    import duckdb as _duckdb  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
    import scipy as _scipy  # noqa: F401
except ImportError as error:
    raise ImportError(
        "`keras_rank.evaluation` needs duckdb, pyarrow and scipy, which the extra "
        f'`evaluation` installs: `pip install "duckdb>=2" pyarrow "scipy>=1.15"`. '
        f"Received: {error}"
    ) from error

from keras_rank.evaluation.evaluation import Evaluation, compare
from keras_rank.evaluation.functions import evaluate, evaluate_run
from keras_rank.evaluation.report.comparison import Comparison
from keras_rank.evaluation.report.table import Table

__all__ = ["Comparison", "Evaluation", "Table", "compare", "evaluate", "evaluate_run"]
