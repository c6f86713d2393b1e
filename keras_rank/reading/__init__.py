"""Readers of tables, judgments and runs, from files or from memory."""

try:
    import duckdb as _duckdb  # noqa: F401
    import pyarrow as _pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(
        "Files and tables are read with duckdb and pyarrow, which the extra "
        f'`evaluation` installs: `pip install "duckdb>=2" pyarrow`. Received: {error}'
    ) from error
