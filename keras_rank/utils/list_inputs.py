"""Utilities to prepare lists and relevance judgments for metrics."""

import itertools
import numbers
import os
import reprlib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_rank.arguments import LARGEST_NUMBER, check_positive
from keras_rank.arrays.arithmetic import axis_size
from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists import groups
from keras_rank.lists.ids import NO_CANDIDATE, is_valid_id, to_id_tensor, validate_ids
from keras_rank.lists.input_arrays import read_array, to_tensor
from keras_rank.lists.inputs import check_distinguishable
from keras_rank.lists.tensors import as_tensor, sizes_agree, upcast


def pad_lists(
    values: Any,
    *,
    group_sizes: Any = None,
    group_ids: Any = None,
    padding_value: float = -1.0,
    list_size: int | None = None,
) -> np.ndarray[Any, Any]:
    """Turns flat rows, such as those of svmlight files, into lists of equal size.

    Either `group_sizes` or `group_ids` is required.

    **Pass `padding_value=0` for features**, such as rows of shape `(rows, features)`.
    The default is -1, the label of padding: labels of subtopics have the same shape as
    features, and need it.

    Args:
        values: array of shape `(rows,)` or `(rows, features)`: labels, scores or
            features.
        group_sizes: ints of shape `(batch,)`. The number of rows of each list, as for
            LightGBM and XGBoost.
        group_ids: array of shape `(rows,)`. The id of the list that each row belongs
            to, such as a query id, or `qid` in svmlight files. Lists are returned in
            the order of their first rows.
        padding_value: number. The value that pads shorter lists: -1 for labels, which
            metrics ignore, 0 for features, and any number for scores. Defaults to -1
            for all kinds of `values`.
        list_size: int. The size of all lists. Longer lists are truncated to their first
            rows. Defaults to `None`: the size of the longest list.

    Returns:
        A NumPy array of shape `(batch, list_size)` or `(batch, list_size, features)`.

    Raises:
        ValueError: if not exactly one of `group_sizes` and `group_ids` is given, it
            does not match the rows, an id is missing, or no dtype represents both the
            values and `padding_value`.

    Example:

    >>> keras_rank.utils.pad_lists([2, 0, 1], group_sizes=[1, 2])
    array([[ 2., -1.],
           [ 0.,  1.]], dtype=float32)
    >>> groups = ["a", "b", "a"]
    >>> keras_rank.utils.pad_lists([2, 0, 1], group_ids=groups, padding_value=0)
    array([[2, 1],
           [0, 0]])
    >>> features = [[0.5, 0.1], [0.2, 0.4], [0.9, 0.3]]
    >>> keras_rank.utils.pad_lists(features, group_ids=groups, padding_value=0).shape
    (2, 2, 2)
    """
    values = groups.convert_rows("values", values)
    group, position, num_lists, size = _locate_rows(len(values), group_sizes, group_ids)
    if not isinstance(padding_value, numbers.Real):
        raise ValueError(
            "`padding_value` should be a number. "
            f"Received: padding_value={padding_value!r}"
        )
    if list_size is not None:
        size = check_positive("list_size", list_size, "a positive integer or None")
    shape = (num_lists, size, *values.shape[1:])
    padded = np.full(shape, padding_value, _find_padded_dtype(values, padding_value))
    fits_list = position < size
    padded[group[fits_list], position[fits_list]] = values[fits_list]
    return padded


def _find_padded_dtype(values: Array, padding_value: Any) -> np.dtype[Any]:
    """Returns the dtype of padded lists, which represents all values and the padding.

    Integers stay integers if the padding value is an integer, and if they are too large
    for floats, such as timestamps in nanoseconds.
    """
    dtype: np.dtype[Any] = values.dtype
    if dtype.kind == "f":
        return _join_dtypes(dtype, float(padding_value))
    largest = max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0
    is_integer = isinstance(padding_value, numbers.Integral)
    if not is_integer and largest <= 2**53:
        fits = np.array_equal(values.astype("float32"), values)
        dtype = np.dtype("float32" if fits else "float64")
        return _join_dtypes(dtype, float(padding_value))
    if is_integer or float(padding_value).is_integer():
        if dtype.kind == "b" and padding_value in (0, 1):
            return dtype
        dtype = _join_dtypes(dtype, int(padding_value))
        if dtype.kind in "iu":
            return dtype
        # `uint64` and integers below 0 have no common dtype of integers.
        if dtype.kind == "f" and largest < 2**63:
            return np.dtype("int64")
    raise ValueError(
        "`padding_value` should be a number that has a common dtype with `values`, "
        f"without rounding. Received: padding_value={padding_value!r}, and `values` of "
        f"dtype {values.dtype} of up to {largest}"
    )


def _join_dtypes(dtype: np.dtype[Any], number: float) -> np.dtype[Any]:
    joined: np.dtype[Any] = np.result_type(dtype, np.min_scalar_type(number))
    return joined


def unpad_lists(
    values: Any, *, group_sizes: Any = None, group_ids: Any = None
) -> np.ndarray[Any, Any]:
    """Turns padded lists back into flat rows: the inverse of `pad_lists`.

    Args:
        values: array of shape `(batch, list_size)` or `(batch, list_size, features)`.
        group_sizes: the argument of `pad_lists`.
        group_ids: the argument of `pad_lists`.

    Returns:
        A NumPy array of shape `(rows,)` or `(rows, features)`, in the order of the
        rows.

    Raises:
        ValueError: if not exactly one of `group_sizes` and `group_ids` is given, the
            number of lists differs from that of `values`, or lists were truncated.

    Example:

    >>> scores = [[0.5, 0.0], [0.1, 0.2]]
    >>> keras_rank.utils.unpad_lists(scores, group_sizes=[1, 2])
    array([0.5, 0.1, 0.2])
    """
    values = groups.convert_rows("values", values)
    group, position, num_lists, longest = _locate_rows(None, group_sizes, group_ids)
    if values.ndim < 2 or len(values) != num_lists or values.shape[1] < longest:
        raise ValueError(
            "`values` should have the shape (batch, list_size, ...), with the number "
            "and size of the lists that the groups describe. "
            f"Received: {num_lists} groups of up to {longest} rows, "
            f"values.shape={values.shape}"
        )
    rows: Array = values[group, position]
    return rows


def _locate_rows(
    rows: int | None, group_sizes: Any, group_ids: Any
) -> tuple[Array, Array, int, int]:
    """Returns where each row is in padded lists, and the size of the padded lists.

    Returns:
        The index of the list of each row, the position of each row in the list, the
        number of lists, and the size of the longest list.
    """
    group, position = groups.locate_rows(rows, group_sizes, group_ids)
    num_lists, size = (int(x.max(initial=-1)) + 1 for x in (group, position))
    # The last lists may be empty, so the number of lists is that of the sizes.
    return (
        group,
        position,
        num_lists if group_sizes is None else len(group_sizes),
        size,
    )


def exclude_items(y_pred: Any, item_ids: Any, *, keep: Any = None) -> Tensor:
    """Sets the scores of items to -inf, which means that they are not retrieved.

    For example, items that the user has already seen are then not ranked. If a model
    predicts scores at every position of a sequence, `y_pred` may have the shape
    `(batch, time, items)`, `item_ids` the shape `(batch, time, n)`, and `keep` the
    shape `(batch, time)` or `(batch, time, m)`.

    Args:
        y_pred: scores of shape `(batch, items)`.
        item_ids: ids of shape `(batch, n)`, padded with -1. The items to exclude. Or a
            sparse matrix of SciPy of shape `(batch, items)`, whose stored entries are
            the items to exclude, whatever their values.
        keep: ids of shape `(batch,)` or `(batch, m)`, padded with -1, or a sparse
            matrix. Items that keep their scores even if they are in `item_ids`, such as
            the targets.

    Returns:
        A tensor of the shape of `y_pred`.

    Raises:
        ValueError: if shapes don't match, an id is not below the number of items, or
            `item_ids` is a dense matrix with a column for each item. Compiled code
            ignores ids that are too large, and reads such a matrix as ids.

    Example:

    >>> seen, target = [[0, 2, -1]], [2]
    >>> scores = keras_rank.utils.exclude_items([[3.0, 2.0, 1.0]], seen, keep=target)
    >>> [float(score) for score in scores[0]]
    [-inf, 2.0, 1.0]
    """
    scores = to_tensor("y_pred", y_pred, in_model=True)
    axes, items = scores.shape[:-1], scores.shape[-1] if scores.shape else None
    ids = [to_id_tensor("item_ids", item_ids, items, in_model=True)]
    if keep is not None:
        keep_ids = to_id_tensor("keep", keep, items, in_model=True)
        ids.append(
            keep_ids[..., None] if len(keep_ids.shape) == len(axes) else keep_ids
        )
    for name, x in zip(("item_ids", "keep"), ids, strict=False):
        if not (axes and sizes_agree(axes, x.shape[:-1])):
            raise ValueError(
                "`y_pred` should have the shape (batch, items) or (batch, time, "
                f"items), and `{name}` the shape (batch, n) or (batch, time, n). "
                f"Received: y_pred.shape={tuple(scores.shape)}, "
                f"{name}.shape={tuple(x.shape)}"
            )
    if not keras.backend.is_float_dtype(scores.dtype):
        scores = upcast(scores)
    if len(axes) == 1:
        return backend.run_program(_exclude, scores, *ids)
    # Each position of a sequence becomes a separate list.
    lists = [ops.reshape(x, (-1, axis_size(x, -1))) for x in (scores, *ids)]
    return ops.reshape(backend.run_program(_exclude, *lists), ops.shape(scores))


def _exclude(scores: Tensor, ids: Tensor, keep_ids: Tensor | None = None) -> Tensor:
    items = axis_size(scores, 1)
    columns = _find_columns("item_ids", ids, items)
    excluded = columns >= 0
    if keep_ids is not None:
        keep_columns = _find_columns("keep", keep_ids, items)
        is_kept = ops.any(columns[:, :, None] == keep_columns[:, None, :], axis=2)
        excluded = ops.logical_and(excluded, ops.logical_not(is_kept))
    # Padding is written to an extra column, which is then removed.
    columns = backend.where(excluded, columns, items)
    # The size of the batch may be unknown, so `ops.arange` can't number the rows.
    rows = ops.cumsum(ops.ones_like(columns), axis=0) - 1
    indices = ops.reshape(ops.stack([rows, columns], axis=2), (-1, 2))
    updates = ops.cast(ops.zeros_like(indices[:, 0]), scores.dtype) + float("-inf")
    widened = ops.pad(scores, [(0, 0), (0, 1)])
    return ops.scatter_update(widened, indices, updates)[:, :-1]


def _find_columns(argument: str, ids: Tensor, items: Tensor | int) -> Tensor:
    """Returns ids as int32 column indices, with -1 for ids that are not items."""
    ids = validate_ids(ids, argument=argument, items=items)
    is_item = ops.logical_and(is_valid_id(ids, items), ids >= 0)
    return ops.cast(backend.where(is_item, ids, -1), "int32")


def mask_labels(labels: Any, mask: Any) -> Tensor:
    """Sets labels to -1, which means padding, where the mask is False.

    Keras passes only labels to the metrics of `compile`, so the labels have to contain
    the mask. Keras's own losses would train on -1: use a loss that masks it, such as
    the losses of keras-rs.

    Args:
        labels: tensor of shape `(list_size,)` or `(batch, list_size)`, or
            `(batch, list_size, subtopics)`.
        mask: tensor of the same shape, but without subtopics. It is False where there
            is no item.

    Returns:
        A tensor of the shape of the labels. Signed integers keep their dtype. Other
        labels become floats.

    Example:

    >>> from keras import ops
    >>> labels = keras_rank.utils.mask_labels([[2, 1, 0]], [[True, True, False]])
    >>> [[int(label) for label in row] for row in labels]
    [[2, 1, -1]]
    """
    array = read_array("labels", labels)
    if array.form == "array" and array.numbers.dtype.kind in "iu":
        # Large labels are checked before JAX converts them to floats.
        check_distinguishable(array)
    labels = as_tensor(array.tensor(in_model=True))
    dtype = keras.backend.standardize_dtype(labels.dtype)
    if dtype == "bool" or dtype.startswith("uint"):
        # Bool and unsigned dtypes can't hold -1.
        labels = ops.cast(labels, "float32")
    mask = ops.cast(to_tensor("mask", mask, in_model=True), "bool")
    if len(labels.shape) == 3 and len(mask.shape) == 2:
        mask = mask[:, :, None]
        sizes = (*labels.shape[:2], 1)
    else:
        sizes = labels.shape
    if not sizes_agree(mask.shape, sizes):
        raise ValueError(
            "`mask` should have the same shape as `labels`. Received: "
            f"mask.shape={tuple(mask.shape)}, labels.shape={tuple(labels.shape)}"
        )
    # The result is a copy, even if the mask is True everywhere.
    return ops.copy(backend.where(mask, labels, -1.0))


def targets_from_qrels(
    qrels: Any, query_ids: Sequence[Any], item_ids: Sequence[Any]
) -> dict[str, np.ndarray[Any, Any]]:
    """Turns relevance judgments into graded targets, in the order of the queries.

    The result can be passed to `keras_rank.catalogue` as `targets`, and to metrics with
    `sparse_labels=True` as `y_true`. Items with grades of 0 or less are not targets. A
    relevant item that is not in `item_ids` has the id -2: it is never retrieved, but
    counts in the ideal and among the relevant items, as in trec_eval. One warning
    contains the number of such items. Another warning names queries without judgments,
    which have no targets.

    Args:
        qrels: the judgments: a dict `{query: {item: grade}}`. With the extra
            `evaluation` installed, also a table or file that
            `keras_rank.evaluation.evaluate_run` reads as `qrels`, such as TREC files,
            the TSV of BEIR, or `{query: [items]}`. Ids in text files are strings.
        query_ids: the id of each query, in the order of the query embeddings.
        item_ids: the id of each item, in the order of the item embeddings.

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
    queries, items = (
        _index_by_id("query_ids", query_ids),
        _index_by_id("item_ids", item_ids),
    )
    grades: dict[Any, dict[Any, float]] = {}
    for query, item, grade in _iterate_judgments(qrels):
        grades.setdefault(query, {})[item] = _check_grade(query, item, grade)
    unknown = [query for query in grades if query not in queries]
    if unknown:
        raise ValueError(
            "`qrels` should judge queries of `query_ids` only. Received: judgments of "
            f"other queries ({len(unknown)}): {_format_first(unknown)}"
        )
    _warn_about_ids(
        [query for query in queries if query not in grades],
        "`query_ids` without judgments",
        "Unlike trec_eval, which leaves them out, metrics count them as lists without "
        "relevant items.",
    )
    relevant = [
        {x: g for x, g in grades.get(q, {}).items() if g > 0.0} for q in queries
    ]
    # If no item is relevant, all judged items show whether `item_ids` matches `qrels`.
    expected = relevant if any(relevant) else grades.values()
    expected_items = dict.fromkeys(itertools.chain(*expected))
    missing = [item for item in expected_items if item not in items]
    if expected_items and len(missing) == len(expected_items):
        raise ValueError(
            "`item_ids` should have relevant items of `qrels`. Received: "
            f"{_format_first(items)}, and none of the {len(missing)} of `qrels`, "
            f"{_format_first(missing)}"
        )
    _warn_about_ids(
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


def _index_by_id(argument: str, ids: Sequence[Any]) -> dict[Any, int]:
    """Returns the index of each id, and raises if an id is repeated."""
    if isinstance(ids, str | bytes):
        raise ValueError(
            f"`{argument}` should be a sequence of ids. Received: a single id, {ids!r}"
        )
    # Scalars of pyarrow and torch are not equal to the Python values in `qrels`.
    convert = getattr(ids, "to_pylist", None) or getattr(ids, "tolist", None)
    values = convert() if convert else ids
    try:
        indices, size = {x: i for i, x in enumerate(values)}, len(values)
    except TypeError as error:
        raise ValueError(
            f"`{argument}` should be a sequence of ids that can be keys of a dict, "
            f"such as strings. Received: {reprlib.repr(values)} ({error})"
        ) from error
    if len(indices) < size:
        repeated = [x for i, x in enumerate(values) if indices[x] != i]
        raise ValueError(
            f"`{argument}` should hold each id once. Received: "
            f"{_format_first(repeated)} twice"
        )
    return indices


def _iterate_judgments(qrels: Any) -> Iterable[tuple[Any, Any, Any]]:
    """Returns an iterable of queries, items and grades."""
    is_dict = isinstance(qrels, Mapping)
    paths = qrels if isinstance(qrels, list | tuple) and qrels else [qrels]
    are_files = all(isinstance(path, str | os.PathLike) for path in paths)
    if is_dict and all(isinstance(grades, Mapping) for grades in qrels.values()):
        return (
            (q, item, x) for q, grades in qrels.items() for item, x in grades.items()
        )
    if is_dict or are_files or hasattr(qrels, "__arrow_c_stream__"):
        # The module needs DuckDB, so it is imported only here.
        from keras_rank.reading.runs import read_judgments

        columns = read_judgments(qrels).to_pydict().values()
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


def _check_grade(query: Any, item: Any, grade: Any) -> float:
    """Returns a grade as a float, and raises unless it is a finite number."""
    is_invalid = isinstance(grade, str | bytes | complex | np.complexfloating)
    is_invalid |= getattr(grade, "shape", ()) != ()
    try:
        number = np.nan if is_invalid else float(grade)
    except (TypeError, ValueError):
        number = np.nan
    is_invalid |= isinstance(grade, int | np.integer) and abs(int(grade)) >= 2**53
    # Labels are float32, so larger grades would become infinite.
    if is_invalid or not abs(number) <= LARGEST_NUMBER:
        raise ValueError(
            "`qrels` should have finite numbers as grades, and integers below 2**53. "
            f"Received: {grade!r} for the item {item!r} of the query {query!r}"
        )
    return number


def _warn_about_ids(ids: Sequence[Any], subject: str, consequence: str) -> None:
    """Warns about ids, if there are any."""
    if ids:
        warnings.warn(
            f"{subject} ({len(ids)}): {_format_first(ids)}. {consequence}", stacklevel=3
        )


def _format_first(ids: Collection[Any]) -> str:
    """Returns the first three ids as text."""
    first = map(repr, itertools.islice(ids, 3))
    return ", ".join(first) + ", ..." * (len(ids) > 3)
