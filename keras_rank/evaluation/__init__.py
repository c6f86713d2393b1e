"""Evaluation of tables of scores and of TREC runs."""

try:
    import duckdb as _duckdb  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
    import scipy as _scipy  # noqa: F401
    import tabulate as _tabulate  # noqa: F401
except ImportError as error:
    raise ImportError(
        "`keras_rank.evaluation` needs duckdb, pyarrow, scipy and tabulate, which the "
        'extra `evaluation` installs: `pip install "duckdb>=2" "jinja2>=3.1" pyarrow '
        f'"scipy>=1.15" "tabulate>=0.10"`. Received: {error}'
    ) from error

from keras_rank.evaluation.evaluation import Evaluation, compare, prediction_powered
from keras_rank.evaluation.functions import agreement, evaluate, evaluate_run
from keras_rank.evaluation.report.comparison import Comparison
from keras_rank.evaluation.report.table import Table

__all__ = [
    "Comparison",
    "Evaluation",
    "Table",
    "agreement",
    "compare",
    "evaluate",
    "evaluate_run",
    "prediction_powered",
]
