"""Relevance judgments of a search collection, as graded targets of its queries."""

import itertools
import os
import reprlib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_rank.arguments import LARGEST_NUMBER
from keras_rank.lists.ids import NO_CANDIDATE


def targets_from_qrels(
    qrels: Any, query_ids: Sequence[Any], item_ids: Sequence[Any]
) -> dict[str, np.ndarray[Any, Any]]:
    """Turns relevance judgments into graded targets, in the order of the queries.

    The result can be passed to `keras_rank.catalogue` as `targets`, and to metrics with
    `sparse_labels=True` as `y_true`. Items with grades of 0 or less are no targets. A
    relevant item that is not in `item_ids` has the id -2: it is never found, but counts
    in the ideal and among the relevant items, as in trec_eval. A warning says how many
    there are, and another one names queries without judgments, which have no targets.

    Args:
        qrels: the judgments: a dict `{query: {item: grade}}`. With the extra
            `evaluation` installed, also a table or file that
            `keras_rank.evaluation.evaluate_run` reads as `qrels`, such as TREC files,
            the TSV of BEIR, or `{query: [items]}`. Ids in text files are text.
        query_ids: the id of each query, in the order of their embeddings.
        item_ids: the id of each item, in the order of their embeddings.

    Returns:
        A dict of arrays of shape `(queries, targets)`: `"ids"`, which are indices
        into `item_ids`, padded with -1, and `"labels"`.

    Raises:
        ValueError: if a query of the judgments is not in `query_ids`, none of the
            relevant items is in `item_ids`, an item is judged twice for a query, ids
            are repeated or can't be keys of a dict, or the judgments can't be read.

    Example:

    >>> qrels = {"q1": {"d1": 2, "d3": 0}, "q2": {"d2": 1, "d1": 1}}
    >>> items = ["d1", "d2", "d3"]
    >>> targets = keras_rank.utils.targets_from_qrels(qrels, ["q2", "q1"], items)
    >>> targets["ids"].tolist(), targets["labels"].tolist()
    ([[1, 0], [0, -1]], [[1.0, 1.0], [2.0, -1.0]])
    """
    queries, items = _places("query_ids", query_ids), _places("item_ids", item_ids)
    grades: dict[Any, dict[Any, float]] = {}
    for query, item, grade in _judgments(qrels):
        grades.setdefault(query, {})[item] = _number(query, item, grade)
    unknown = [query for query in grades if query not in queries]
    if unknown:
        raise ValueError(
            "`qrels` should judge queries of `query_ids` only. Received: judgments of "
            f"other queries ({len(unknown)}): {_some(unknown)}"
        )
    _warn_of(
        [query for query in queries if query not in grades],
        "`query_ids` without judgments",
        "Unlike trec_eval, which leaves them out, metrics count them as lists without "
        "relevant items.",
    )
    relevant = [
        {x: g for x, g in grades.get(q, {}).items() if g > 0.0} for q in queries
    ]
    # Where nothing is relevant, what is judged tells whether the ids are of one kind.
    sought = relevant if any(relevant) else grades.values()
    named = dict.fromkeys(itertools.chain(*sought))
    missing = [item for item in named if item not in items]
    if named and len(missing) == len(named):
        raise ValueError(
            "`item_ids` should have relevant items of `qrels`. Received: "
            f"{_some(items)}, and none of the {len(missing)} of `qrels`, "
            f"{_some(missing)}"
        )
    _warn_of(
        missing if any(relevant) else [],
        "Relevant items of `qrels` that are not in `item_ids`",
        "They are never found, but count in the ideal.",
    )
    shape = len(relevant), max([1, *map(len, relevant)])
    ids, labels = np.full(shape, -1, "int32"), np.full(shape, -1.0, "float32")
    for i, row in enumerate(relevant):
        ids[i, : len(row)] = [items.get(x, NO_CANDIDATE) for x in row]
        labels[i, : len(row)] = list(row.values())
    return {"ids": ids, "labels": labels}


def _places(argument: str, ids: Sequence[Any]) -> dict[Any, int]:
    """The index of each id."""
    if isinstance(ids, str | bytes):
        raise ValueError(
            f"`{argument}` should be a sequence of ids. Received: a single id, {ids!r}"
        )
    # Scalars of pyarrow and torch are not equal to the values of Python in `qrels`.
    convert = getattr(ids, "to_pylist", None) or getattr(ids, "tolist", None)
    values = convert() if convert else ids
    try:
        places, size = {x: i for i, x in enumerate(values)}, len(values)
    except TypeError as error:
        raise ValueError(
            f"`{argument}` should be a sequence of ids that can be keys of a dict, "
            f"such as strings. Received: {reprlib.repr(values)} ({error})"
        ) from error
    if len(places) < size:
        twice = [x for i, x in enumerate(values) if places[x] != i]
        raise ValueError(
            f"`{argument}` should hold each id once. Received: {_some(twice)} twice"
        )
    return places


def _judgments(qrels: Any) -> Iterable[tuple[Any, Any, Any]]:
    """Returns queries, items and grades."""
    is_dict = isinstance(qrels, Mapping)
    paths = qrels if isinstance(qrels, list | tuple) and qrels else [qrels]
    are_files = all(isinstance(path, str | os.PathLike) for path in paths)
    if is_dict and all(isinstance(grades, Mapping) for grades in qrels.values()):
        return (
            (q, item, x) for q, grades in qrels.items() for item, x in grades.items()
        )
    if is_dict or are_files or hasattr(qrels, "__arrow_c_stream__"):
        # It needs DuckDB.
        from keras_rank.reading.runs import judgments_of

        columns = judgments_of(qrels).to_pydict().values()
        return zip(*columns, strict=True)
    advice = (
        ". If it has a row for each judgment, pass `pandas.DataFrame(rows, columns="
        "['query_id', 'item_id', 'label'])`, or `pandas.DataFrame(rows)` if the rows "
        "have names"
    )
    raise ValueError(
        "`qrels` should be a dict, a table, or the path of a file. Received: "
        f"{type(qrels).__name__}" + advice * isinstance(qrels, Iterable)
    )


def _number(query: Any, item: Any, grade: Any) -> float:
    """Returns a grade as a float. Raises unless it is a finite number."""
    is_odd = isinstance(grade, str | bytes | complex | np.complexfloating)
    is_odd |= getattr(grade, "shape", ()) != ()
    try:
        number = np.nan if is_odd else float(grade)
    except (TypeError, ValueError):
        number = np.nan
    is_odd |= isinstance(grade, int | np.integer) and abs(int(grade)) >= 2**53
    # Labels are of float32.
    if is_odd or not abs(number) <= LARGEST_NUMBER:
        raise ValueError(
            "`qrels` should have finite numbers as grades, and integers below 2**53. "
            f"Received: {grade!r} for the item {item!r} of the query {query!r}"
        )
    return number


def _warn_of(some: Sequence[Any], which: str, what: str) -> None:
    if some:
        warnings.warn(f"{which} ({len(some)}): {_some(some)}. {what}", stacklevel=3)


def _some(ids: Collection[Any]) -> str:
    """Names the first few."""
    shown = map(repr, itertools.islice(ids, 3))
    return ", ".join(shown) + ", ..." * (len(ids) > 3)
