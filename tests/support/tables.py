"""Tables of scored items, as the tests of evaluation and of its command read them."""

import pathlib
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet


def raises(message):
    return pytest.raises(ValueError, match=re.escape(message))


def write(rows, path):
    """Writes a table in the format that the name says."""
    suffix = pathlib.Path(path).suffix
    if suffix == ".parquet":
        parquet.write_table(rows, path)
    elif suffix == ".arrow":
        feather.write_feather(rows, path)
    elif suffix == ".csv":
        csv.write_csv(rows, path)
    else:
        rows.to_pandas().to_json(path, orient="records", lines=True)


def texts(folder, **contents):
    """Writes files of text, and returns their paths."""
    paths = [folder / name for name in contents]
    for path, text in zip(paths, contents.values(), strict=True):
        path.write_text(text)
    return paths


# A table of Arrow in other forms.
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


def rows_of(lists=60, seed=0, noise=1.0, digits=1):
    """Shuffled rows of lists of 1 to 20 items, with ties, empty lists and weights."""
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


def lists_of(table, *names):
    """The values of columns by query, in the order of the rows."""
    columns = {name: table[name].to_pylist() for name in (*names, "query_id")}
    queries = sorted(set(columns["query_id"]))
    places = {query: [] for query in queries}
    for place, query in enumerate(columns["query_id"]):
        places[query].append(place)
    return [
        [[columns[name][place] for place in places[query]] for query in queries]
        for name in names
    ]


def checks(evaluation):
    """The rows of its health, by their names."""
    return {row["check"]: row for row in evaluation.health()}
