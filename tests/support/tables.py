"""Tables of scored items for the tests of the evaluation and of the command."""

import pathlib
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet


def raises(message):
    return pytest.raises(ValueError, match=re.escape(message))


def write(rows, path):
    """Writes a table in the format of the suffix of the path."""
    suffix = pathlib.Path(path).suffix
    if suffix == ".parquet":
        parquet.write_table(rows, path)
    elif suffix == ".arrow":
        feather.write_feather(rows, path)
    elif suffix == ".csv":
        csv.write_csv(rows, path)
    else:
        rows.to_pandas().to_json(path, orient="records", lines=True)


def write_texts(folder, **contents):
    """Writes text files, named by keyword, and returns their paths."""
    paths = [folder / name for name in contents]
    for path, text in zip(paths, contents.values(), strict=True):
        path.write_text(text)
    return paths


# Functions that convert a table of Arrow to each form of a table in memory.
IN_MEMORY = {
    "arrow": lambda rows: rows,
    "dict": lambda rows: rows.to_pydict(),
    "pandas": lambda rows: rows.to_pandas(),
    "stream": lambda rows: pa.RecordBatchReader.from_batches(
        rows.schema, rows.to_batches()
    ),
    "batch": lambda rows: rows.combine_chunks().to_batches()[0],
    "duckdb": lambda rows: pytest.importorskip("duckdb").from_arrow(rows),
    "polars": lambda rows: pytest.importorskip("polars").from_arrow(rows),
}


def make_rows(lists=60, seed=0, noise=1.0, digits=1):
    """Returns shuffled rows of lists of 1 to 20 items, with ties and weights.

    The lists of every seventh query have no relevant item.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 21, lists)
    query = np.repeat(np.arange(lists), sizes)
    label = rng.choice(4, len(query), p=[0.7, 0.15, 0.1, 0.05])
    label[query % 7 == 0] = 0
    score = np.round(label + noise * rng.normal(size=len(query)), digits)
    order = rng.permutation(len(query))
    columns = {
        "query_id": query,
        "item_id": np.arange(len(query)) % 37,
        "label": label,
        "score": score.astype("float32"),
        "weight": rng.uniform(0.5, 2.0, lists)[query],
        "item_weight": rng.uniform(0.5, 2.0, len(query)),
        "market": np.array(["de", "fr", "jp"])[query % 3],
        "user": query // 4,
    }
    return pa.table({name: values[order] for name, values in columns.items()})


def columns_by_list(table, *names):
    """Returns the values of columns, grouped by query, in the order of the rows."""
    columns = {name: table[name].to_pylist() for name in (*names, "query_id")}
    queries = sorted(set(columns["query_id"]))
    row_numbers = {query: [] for query in queries}
    for row, query in enumerate(columns["query_id"]):
        row_numbers[query].append(row)
    return [
        [[columns[name][row] for row in row_numbers[query]] for query in queries]
        for name in names
    ]


def health_checks(evaluation):
    """Returns the rows of the health table of an evaluation by their names."""
    return {row["check"]: row for row in evaluation.health()}
