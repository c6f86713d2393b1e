"""Ids of items: numbers and sparse matrices of SciPy, and refused dense matrices."""

import compiled
import numpy as np
import pytest
import scipy.sparse
from arrays import array, assert_close, assert_equal
from epochs import Identity, run_epoch
from keras import ops

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.callbacks import CatalogueEvaluation

# Each row is a list. Items 1 and 3 are seen in the first list, none in the second one.
HISTORY = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]])
SEEN = [[1, 3], [-1, -1], [0, -1]]
GRADES = np.array([[3, 0, 1, 0], [0, 0, 0, 0], [0, 0, 2, 1]])
GRADED = {"ids": [[0, 2], [-1, -1], [2, 3]], "labels": [[3, 1], [-1, -1], [2, 1]]}
# Item 3 has the highest score, item 0 the lowest.
SCORES = np.array([[1.0, 2.0, 3.0, 4.0]] * 3, "float32")
QUERIES = np.ones((3, 1), "float32")
CANDIDATES = SCORES[:1].T
NAMES = ["ndcg@2", "mrr", "recall@2"]


def unsorted(matrix):
    """Returns a matrix with the columns of each row in descending order."""
    matrix = scipy.sparse.csr_array(matrix)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((-matrix.indices, rows))
    stored = matrix.data[order], matrix.indices[order], matrix.indptr
    return scipy.sparse.csr_array(stored, matrix.shape)


def split_in_halves(matrix):
    """Returns a matrix with two entries for each value, which is their sum."""
    matrix = scipy.sparse.csr_array(matrix)
    values, columns = (np.repeat(x, 2) for x in (matrix.data / 2, matrix.indices))
    return scipy.sparse.csr_array((values, columns, 2 * matrix.indptr), matrix.shape)


FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
SCIPY_NAMES = [f"{x}_{kind}" for x in FORMATS for kind in ("matrix", "array")]
SPARSE = {name: getattr(scipy.sparse, name) for name in SCIPY_NAMES}
SPARSE["blocks"] = lambda x: scipy.sparse.bsr_array(x, blocksize=(3, 2))
SPARSE |= {"unsorted": unsorted, "in halves": split_in_halves}


def evaluate(targets, exclude=None):
    arguments = {"exclude": exclude, "verbose": 0}
    return catalogue.evaluate(targets, QUERIES, CANDIDATES, NAMES, **arguments)


@pytest.mark.compiles_long
@pytest.mark.parametrize("name", SPARSE)
def test_a_sparse_matrix_equals_its_column_ids(name):
    history, grades = SPARSE[name](HISTORY), SPARSE[name](GRADES)
    expected = evaluate(GRADED, SEEN)
    assert evaluate(grades, history) == expected
    assert evaluate({"ids": grades}, history) == evaluate(GRADED["ids"], SEEN)

    def all_values(seen, graded, kept):
        yield from catalogue.top_k(QUERIES, CANDIDATES, 4, exclude=seen)
        yield utils.exclude_items(SCORES, seen, keep=kept)
        yield functional.ndcg(graded, SCORES, k=2, sparse_labels=True)
        yield functional.recall(graded, SCORES, k=2, sparse_labels=True)

    values_of_ids = all_values(SEEN, GRADED, GRADED["ids"])
    for actual, expected_value in zip(
        all_values(history, grades, grades), values_of_ids, strict=True
    ):
        assert_equal(actual, expected_value)
    ranked = catalogue.rank(grades, QUERIES, CANDIDATES, exclude=history)
    assert_close(functional.reciprocal_rank(ranked), [1.0, 0.0, 1.0])
    assert expected["mrr"] == pytest.approx(2 / 3)


@pytest.mark.compiles_long
def test_a_sparse_matrix_may_have_no_rows():
    empty = scipy.sparse.csr_matrix((0, 4))
    for function in (functional.ndcg, functional.recall):
        actual = function(empty, np.zeros((0, 4)), k=2, sparse_labels=True)
        assert array(actual).shape == (0,)


def test_stored_zeros_count_as_seen():
    """A stored 0 counts as seen, but is no grade, and neither are negative numbers."""
    history, grades = scipy.sparse.csr_matrix(HISTORY), scipy.sparse.csr_matrix(GRADES)
    history.data[0] = 0
    assert evaluate(GRADED, history) == evaluate(GRADED, SEEN)
    assert evaluate(GRADED, history.astype(bool)) == evaluate(GRADED, SEEN)
    without = {"ids": GRADED["ids"], "labels": [[3, -1], [-1, -1], [2, 1]]}
    for nothing in (0, -2):
        grades.data[1] = nothing
        assert evaluate(grades, history) == evaluate(without, SEEN)


def test_callbacks_accept_sparse_matrices():
    inputs = QUERIES, scipy.sparse.csr_matrix(GRADES), CANDIDATES, NAMES
    options = {"exclude": scipy.sparse.csr_array(HISTORY), "query_model": Identity()}
    with pytest.warns(UserWarning, match="1 of 3 lists have no relevant item"):
        logs = run_epoch(CatalogueEvaluation(*inputs, **options))
    assert logs["val_ndcg_at_2"] == pytest.approx(evaluate(GRADED, SEEN)["ndcg@2"])


NARROW = scipy.sparse.csr_matrix(HISTORY[:, :3])
SHORT = scipy.sparse.csr_matrix(HISTORY[:2])
CSR = scipy.sparse.csr_matrix(GRADES)
ROWS = [scipy.sparse.csr_array(GRADES[i : i + 1]) for i in range(3)]
DUPLICATE_LABELS = {"ids": CSR, "labels": GRADED["labels"]}
SPARSE_LABELS = {"ids": GRADED["ids"], "labels": CSR}
NO_LABELS = "`targets` should have no labels or mask next "


def ndcg(ids):
    return functional.ndcg(ids, SCORES, sparse_labels=True)


WRONG = [
    (lambda: evaluate(NARROW), r"`targets`.*each item \(4 in all\).*\(3, 3\)"),
    (lambda: evaluate(SHORT), "`targets` should have a row for each query"),
    (lambda: evaluate([0] * 3, NARROW), r"`exclude`.*each item \(4 in all\)"),
    (lambda: evaluate([0] * 3, CSR.T), r"`exclude`.*each item \(4 in all\)"),
    (lambda: evaluate([0] * 3, SHORT), r"`exclude` should have the shape \(batch,"),
    (lambda: utils.exclude_items(SCORES, NARROW), r"`item_ids`.*\(4 in all\)"),
    (lambda: utils.exclude_items(SCORES, SHORT), "`item_ids` the shape"),
    (lambda: ndcg(NARROW), r"`y_true`.*each item \(4 in all\)"),
    (lambda: ndcg(SHORT), "the same number of lists"),
    (lambda: evaluate(DUPLICATE_LABELS), NO_LABELS),
    (lambda: evaluate(SPARSE_LABELS), "`labels`.* real numbers.*shape of the ids"),
    (lambda: evaluate([0] * 3, ROWS), "`exclude` should hold real numbers"),
    (
        lambda: metrics.Coverage(1, items=4)(CSR),
        "`y_true` should hold ids in order.*csr",
    ),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_sparse_matrices_are_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def id_arguments(lists, items):
    """Returns calls with ids by argument, for a number of lists and of items."""
    queries, candidates = QUERIES[:lists], np.ones((items, 1))
    scores, seen = MANY_SCORES[:lists, :items], np.arange(lists)[:, None] % items
    exposed = metrics.Coverage(k=1, items=items, sparse_labels=True)
    options = {"queries": queries, "candidates": candidates}
    return {
        "targets": lambda ids: catalogue.rank(ids, queries, candidates),
        "exclude": lambda ids: catalogue.rank([0] * lists, **options, exclude=ids),
        "exclude of top_k": lambda ids: catalogue.top_k(**options, k=1, exclude=ids),
        "item_ids": lambda ids: utils.exclude_items(scores, ids),
        "keep": lambda ids: utils.exclude_items(scores, seen, keep=ids),
        "y_true": lambda ids: functional.recall(ids, scores, sparse_labels=True),
        "y_true that is exposed": lambda ids: exposed(ids, scores),
    }


MANY_SCORES = np.zeros((3, 2500), "float32")
ID_ARGUMENTS = id_arguments(3, 4)
# The last matrix has a row without repetitions.
DENSE = [HISTORY, HISTORY.tolist(), HISTORY.astype("float32"), HISTORY * 0.5, GRADES]
DENSE += [np.array([[0, 1, 2, 3], [0, 1, 0, 0], [3, 2, 1, 0]])]
# Matrices with other numbers of columns, as with a column for padding.
OTHERS = [np.eye(3, columns, 1, "int32") for columns in (3, 5)]
BOOLEANS = [HISTORY > 0, (HISTORY > 0).tolist(), [[True], [True, False], [False]]]


@pytest.mark.parametrize("name", ID_ARGUMENTS)
def test_dense_matrices_are_not_read_as_ids(name):
    argument = name.split()[0]
    for matrix in [*DENSE, *OTHERS]:
        message = rf"(?s)`{argument}` should hold.* ids.*each item.*some of them twice"
        with pytest.raises(ValueError, match=message):
            ID_ARGUMENTS[name](matrix)
    for matrix in BOOLEANS:
        with pytest.raises(ValueError, match=f"`{argument}` should hold ids.*bool"):
            ID_ARGUMENTS[name](matrix)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_numpy_matrices_are_arrays():
    scores, *ids = (np.asmatrix(x) for x in (SCORES, SEEN, HISTORY))
    actual = utils.exclude_items(scores, ids[0])
    assert_equal(actual, utils.exclude_items(SCORES, SEEN))
    with pytest.raises(ValueError, match=r"(?s)should hold ids.*some of them twice"):
        utils.exclude_items(scores, ids[1])


@pytest.mark.parametrize("name", ID_ARGUMENTS)
def test_nested_and_string_ids_are_errors(name):
    argument, strings = name.split()[0], [["a"]] * 3
    nested = f"`{argument}` should be a list of items or a batch of such lists"
    mapped = f"{argument} of dtype <U1. The id of an item is its place among"
    for ids, message in (
        ([[[1], [2]], [[0]], [[3]]], nested),
        (strings, mapped),
        (np.array(strings, object), mapped),
    ):
        with pytest.raises(ValueError, match=message):
            ID_ARGUMENTS[name](ids)


def test_lists_may_have_as_many_ids_as_items():
    """Ids may be in any order, padded and repeated."""
    for ids, left in (
        ([[3, 1, 2, 0], [0, 1, 2, 3], [2, 3, 1, 0]], [-1, -1, -1]),
        ([[3, 3, -1, -1], [1, -1, -1, -1], [3, 2, 2, -1]], [2, 3, 1]),
    ):
        _, actual = catalogue.top_k(QUERIES, CANDIDATES, 1, exclude=ids)
        assert array(actual)[:, 0].tolist() == left


@pytest.mark.compiles_long
@pytest.mark.parametrize("ids", [[3, 3, 1], [0, 1, -1], [3, 1, 0, 1, 3]], ids=str)
def test_lists_may_have_any_number_of_ids(ids):
    """The number of ids may be rounded up to the number of items."""
    dense = np.isin(np.arange(4), ids).astype("float32")
    expected = functional.average_precision(dense, SCORES[0], k=2)
    actual = functional.average_precision([ids] * 3, SCORES, k=2, sparse_labels=True)
    assert_close(actual, np.repeat(array(expected), 3))


@pytest.mark.optimized
@pytest.mark.parametrize("compiler", compiled.COMPILERS)
def test_compiled_code_checks_dtypes_of_ids(compiler):
    """A dense matrix of integers is read as ids in compiled code."""
    call = compiled.compile_function(
        compiler, lambda y, ids: utils.exclude_items(y, ids)
    )
    actual = call(*map(ops.convert_to_tensor, (SCORES, HISTORY)))
    expected = [[-np.inf, -np.inf, 3, 4], [-np.inf, 2, 3, 4], [-np.inf, -np.inf, 3, 4]]
    assert_equal(actual, expected)
    ids = ops.cast(ops.convert_to_tensor([[200.0], [3.0]]), "bfloat16")
    with pytest.raises(Exception, match="bfloat16 holds all numbers up to 256 only"):
        call(ops.convert_to_tensor(MANY_SCORES[:2]), ids)


# Ids in float dtypes that can't represent all ids.


def graded_ids(items):
    metric, scores = metrics.NDCG(sparse_labels=True), MANY_SCORES[:2, :items]
    return {
        "graded": lambda ids: metric({"ids": ids, "labels": np.ones((2, 1))}, scores),
        "stacked": lambda ids: metric(ops.stack([ids, ids], axis=2), scores),
    }


@pytest.mark.parametrize("name", [*ID_ARGUMENTS, *graded_ids(1)])
@pytest.mark.parametrize(("dtype", "most"), [("bfloat16", 2**8), ("float16", 2**11)])
def test_ids_in_half_precision_are_limited(name, dtype, most):
    """The ids are exact, but they may have been rounded before the call."""
    ids = ops.cast(ops.convert_to_tensor([[200.0], [3.0]]), dtype)
    (id_arguments(2, most) | graded_ids(most))[name](ids)
    message = rf"should hold whole numbers.*{dtype} holds all numbers up to {most} only"
    with pytest.raises(ValueError, match=message):
        (id_arguments(2, most + 1) | graded_ids(most + 1))[name](ids)


HALVES = [np.float16([[3], [5]]), [np.float16([3]), np.float16([5, 7])]]


@pytest.mark.parametrize("ids", HALVES, ids=repr)
def test_arrays_in_half_precision_are_errors(ids):
    with pytest.raises(ValueError, match="float16 holds all numbers up to 2048"):
        functional.recall(ids, MANY_SCORES[:2], sparse_labels=True)


@pytest.mark.compiles_long
@pytest.mark.parametrize("convert", [np.asarray, ops.convert_to_tensor])
def test_float32_ids_are_limited(convert):
    scores = np.zeros((1, 2**24 + 1), "float32")
    with pytest.raises(ValueError, match="float32 holds all numbers up to 16777216"):
        functional.recall(convert(np.float32([[5]])), scores, sparse_labels=True)
    assert float(functional.recall([[5]], scores[:, :-1], sparse_labels=True)[0]) == 1.0


@pytest.mark.compiles_long
@pytest.mark.optimized
@pytest.mark.parametrize("compiler", compiled.COMPILERS)
def test_a_one_hot_matrix_of_floats_is_an_error_in_compiled_code(compiler):
    """The shape and the dtype decide, as values are unknown. Integers may be ids."""

    def recall(ids):
        scores = ops.convert_to_tensor(SQUARE)
        return functional.recall(ids, scores, k=1, sparse_labels=True, seed=1)

    one_hot = ops.convert_to_tensor(np.eye(3, dtype="float32"))
    with pytest.raises(Exception, match="`y_true` should hold ids of items"):
        compiled.compile_function(compiler, recall)(one_hot)
    ids = ops.convert_to_tensor(np.array([[0, -1, -1], [1, 2, -1], [2, 1, 0]], "int32"))
    actual = compiled.compile_function(compiler, recall)(ids)
    assert_equal(actual, recall(ids))
    narrow = ops.convert_to_tensor(np.array([[0.0, -1.0], [1.0, 2.0], [2.0, 1.0]]))
    assert_equal(compiled.compile_function(compiler, recall)(narrow), recall(narrow))
    # Ids in a dict, and ids stacked with their labels, are no one-hot matrix.
    floats = ops.cast(ids, "float32")
    for inputs in (
        lambda x: recall({"ids": x}),
        lambda x: recall({"ids": x, "labels": ops.ones_like(x)}),
        lambda x: recall(ops.stack([x, ops.ones_like(x)], axis=-1)),
    ):
        assert_equal(compiled.compile_function(compiler, inputs)(floats), recall(ids))


SQUARE = np.array([[3.0, 1.0, 2.0], [1.0, 3.0, 2.0], [2.0, 1.0, 3.0]], "float32")
