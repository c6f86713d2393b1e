"""`catalogue.rank` and `evaluate`: ranks equal those of the full matrix of scores."""

import itertools
import re
import tracemalloc

import keras
import numpy as np
import pytest
from arrays import compute_values
from data_sets import Batches, data_loader, tf_data
from epochs import Identity, run_epoch
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from registry import IS_SLOW
from strategies import ties
from targets import BINARY_SPARSE_CASES, patch_module

from keras_rank import catalogue, functional, metrics, utils
from keras_rank.backends import backend
from keras_rank.callbacks import CatalogueEvaluation
from keras_rank.catalogue.blocks import Queries, split_queries
from keras_rank.catalogue.candidates import TILE, open_candidates
from keras_rank.catalogue.target_ranks import prepare_retrieval
from keras_rank.lists import standardize

BACKEND = keras.backend.backend()
# `catalogue.rank` does not count how many candidates are retrieved.
COUNTED = [
    x for x in BINARY_SPARSE_CASES if x.arguments.get("denominator") != "retrieved"
]
QUERIES, ITEMS, TARGETS, FEATURES = 7, 40, 5, 4

# Programs that count blocks are shared by many tests.
pytestmark = pytest.mark.programs


@st.composite
def tasks(draw):
    """Draws integers, many of which tie, with NaN, padding, repetitions and weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    high = draw(st.integers(0, 4))
    queries = rng.integers(-high, high + 1, size=(QUERIES, FEATURES)).astype("float32")
    candidates = rng.integers(-2, 3, size=(ITEMS, FEATURES)).astype("float32")
    candidates[rng.integers(0, ITEMS, 5)] = candidates[0]
    candidates[rng.random(ITEMS) < rng.choice([0.0, 0.1])] = np.nan
    targets = rng.integers(-1, ITEMS, size=(QUERIES, TARGETS))
    targets[rng.random(targets.shape) < rng.choice([0.0, 0.4])] = -1
    # Targets may be at the edges of blocks.
    targets[0, :3] = [0, ITEMS - 1, 15]
    excluded = rng.integers(-1, ITEMS, size=(QUERIES, 9))
    excluded[1, :TARGETS] = targets[1]
    weights = rng.choice([0.0, 0.5, 2.0], size=QUERIES).astype("float32")
    return targets, queries, candidates, excluded, weights


def score_matrix(queries, candidates, excluded, targets=None):
    """Returns the full matrix of scores. Sums of small integers are exact."""
    scores = np.nansum(queries[:, None, :] * candidates[None], axis=2).astype("float32")
    scores[:, np.isnan(candidates).any(axis=1)] = np.nan
    return utils.exclude_items(ops.convert_to_tensor(scores), excluded, keep=targets)


@pytest.mark.compiles_long
@pytest.mark.optimized
@given(
    task=tasks(),
    shuffle_ties=ties,
    k=st.sampled_from([None, 1, 10]),
    block_size=st.sampled_from([16, 33, ITEMS, 64] if IS_SLOW else [1, 16, 33, 40, 64]),
    cuts=st.sets(st.integers(1, ITEMS - 1), max_size=3),
)
def test_equals_the_full_matrix(task, shuffle_ties, k, block_size, cuts):
    """Values are equal for candidates in parts of any size and kind.

    Few targets are compared with all candidates, and many targets are sorted.
    """
    targets, queries, candidates, excluded, weights = task
    parts = np.split(candidates, sorted(cuts))
    parts[-1:] = [lambda last=parts[-1]: iter([last[:1], last[1:]])]
    forms = candidates, catalogue.Shards(parts)
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}
    arguments["sample_weight"] = weights
    scores = score_matrix(queries, candidates, excluded, targets)
    full = functional.rank(targets, scores, sparse_labels=True, **arguments)
    arguments |= {"exclude": excluded, "block_size": block_size}
    orders = []
    for most, on_accelerator in ((TARGETS, False), (0, False), (0, True)):
        at = {"MAX_COMPARISONS": most, "on_accelerator": lambda at=on_accelerator: at}
        with patch_module(backend, **at):
            orders += [catalogue.rank(*task[:2], x, **arguments) for x in forms]
    for case in COUNTED:
        which = {"k": k, **case.arguments}
        expected = compute_values(case.function, full, **which)
        actual = [compute_values(case.function, order, **which) for order in orders]
        near = {"rtol": 2e-6, "atol": 2e-6, "err_msg": str(case)}
        np.testing.assert_allclose(actual[0], expected, **near)
        np.testing.assert_array_equal(actual, [actual[0]] * len(actual), str(case))


def test_queries_are_split_by_number_of_targets(rng):
    """Chunks have few shapes. Queries with few targets, which are compared with all
    candidates of a block, are separate from queries with many targets.
    """
    numbers = np.array([1, 300, 3, 70, 2, 0, 1, 90, 4, 80])
    ids = np.where(np.arange(300) < numbers[:, None], np.arange(300, dtype="int32"), -1)
    queries = Queries(ops.ones((len(numbers), 2)), ids, None, None)
    candidates = open_candidates(np.zeros((TILE // 2, 1), "int8"), TILE, len(ids))
    # A larger block would only be padded.
    assert candidates.block_size == TILE // 2
    shapes = [x.ids.shape for _, x in split_queries(queries, candidates)]
    assert [*map(tuple, shapes)] == [(2, 1), (2, 2), (2, 4), (2, 128), (2, 300)]


@pytest.mark.compiles_long
@pytest.mark.parametrize("shuffle_ties", [False, "average"])
def test_other_queries_change_no_ranks(shuffle_ties, rng):
    numbers = rng.permutation([1] * 10 + [5, 70, 120, 200])
    targets = [rng.permutation(300)[:number].tolist() for number in numbers]
    shapes = (len(numbers), 3), (300, 3)
    queries, candidates = (rng.integers(-2, 3, x).astype("float32") for x in shapes)

    def precisions(rows):
        inputs = [targets[row] for row in rows], queries[rows], candidates
        order = catalogue.rank(*inputs, shuffle_ties=shuffle_ties, block_size=64)
        return compute_values(functional.average_precision, order)

    actual = precisions(np.arange(len(numbers)))
    for rows in (rng.permutation(len(numbers)), [int(np.argmax(numbers))]):
        np.testing.assert_array_equal(precisions(rows), actual[rows])


def random_task(rng, targets=1, items=300):
    queries = rng.normal(size=(20, 8)).astype("float32")
    # The numbers are exact in half precision.
    candidates = rng.normal(size=(items, 8)).astype("float16").astype("float32")
    ids = rng.integers(0, items, size=(20, targets))
    return ids, queries, candidates


def reciprocal_ranks(*arguments, **options):
    order = catalogue.rank(*arguments, **options)
    return compute_values(functional.reciprocal_rank, order)


def assert_ranks_match(scores, *inputs, **options):
    """Compares ranks with those of the full matrix of scores without ties."""
    ids, *_ = inputs
    target_scores = np.take_along_axis(scores, ids, axis=1)
    above = (scores[:, None] > target_scores[..., None]).sum(axis=2).min(axis=1)
    actual = reciprocal_ranks(*inputs, **options)
    np.testing.assert_allclose(actual, 1.0 / (1.0 + above), rtol=1e-6)


def split_into_blocks(candidates):
    return [candidates[:7], candidates[7:8], candidates[8:200], candidates[200:]]


def blocks_with_labels(candidates, kind=tuple):
    """Returns blocks as pairs of embeddings and labels, as data sets yield them."""
    return [kind((part, np.zeros(len(part)))) for part in split_into_blocks(candidates)]


def blocks_in_one_buffer(candidates, convert=np.asarray):
    """Returns a function that yields blocks which share one buffer."""

    def blocks():
        buffer = np.zeros((20, candidates.shape[1]), "float32")
        for first in range(0, len(candidates), 20):
            buffer[:] = candidates[first : first + 20]
            yield convert(buffer)

    return blocks


def make_embedding(candidates):
    return keras.layers.Embedding(*candidates.shape, weights=candidates)


def products(queries, block):
    return ops.matmul(queries, ops.transpose(block))


def torch():
    return pytest.importorskip("torch")


FORMS = {
    "array": lambda x: x,
    "memory map": lambda x: x.view(np.memmap),
    "list": lambda x: x.tolist(),
    # The products are computed in single precision.
    "tensor of half precision": lambda x: ops.convert_to_tensor(x.astype("float16")),
    "variable": keras.Variable,
    "layer": make_embedding,
    "blocks": split_into_blocks,
    "PyDataset": Batches,
    "data set of TensorFlow": tf_data,
    "DataLoader": data_loader,
    "blocks beside labels": blocks_with_labels,
    "tuple of blocks": lambda x: tuple(blocks_with_labels(x)),
    "one memory": blocks_in_one_buffer,
    "one memory of torch": lambda x: blocks_in_one_buffer(x, torch().from_numpy),
    "gradients of torch": lambda x: torch().tensor(x, requires_grad=True),
    "function of a layer": lambda x: lambda: make_embedding(x),
    "function of lists": lambda x: lambda: blocks_with_labels(x, list),
}


@pytest.mark.parametrize("form", FORMS)
def test_candidates_of_any_form(form, rng):
    ids, queries, candidates = random_task(rng)
    inputs = ids, queries, FORMS[form](candidates)
    assert_ranks_match(queries @ candidates.T, *inputs, block_size=64)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has no float64 unless it is enabled")
@pytest.mark.parametrize("score", ["dot", "cosine"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_double_precision_embeddings_are_not_rounded(score, dtype, rng):
    """Single precision of one part or one block does not round the other parts."""
    ids, queries, candidates = random_task(rng, targets=2)
    candidates = 1.0 + 1e-9 * candidates.astype("float64")
    first = rng.normal(size=(99, 8)).astype("float32")
    candidates[:99] = first
    queries = queries.astype(dtype)
    lengths = np.linalg.norm(candidates, axis=1) if score == "cosine" else 1.0
    scores = queries.astype("float64") @ candidates.T / lengths
    blocks = [first, candidates[99:]]
    for each in (candidates, catalogue.Shards(blocks), blocks):
        assert_ranks_match(scores, ids, queries, each, score=score)


def test_cosine_and_score_functions(rng):
    ids, queries, candidates = random_task(rng)
    cosines = queries @ candidates.T / np.linalg.norm(candidates, axis=1)
    # The vectors may be very long and very short.
    for scale in (1.0, 1e25, 1e-25):
        scaled = ((scale * x).astype("float32") for x in (queries, candidates))
        assert_ranks_match(cosines, ids, *scaled, score="cosine")

    layer = keras.layers.Dense(1, activation="tanh")
    layer.build((None, None, 8))

    def score_pairs(queries, candidates):
        return layer(queries[:, None, :] * candidates[None])[..., 0]

    scores = compute_values(score_pairs, queries, candidates)
    assert_ranks_match(
        scores, ids, queries, candidates, score=score_pairs, block_size=64
    )


def test_score_functions_may_depend_on_the_position(rng):
    """A score may depend on the position in a block. The score in the block counts."""
    if BACKEND == "jax":
        import jax

        if jax.__version_info__ < (0, 7):
            pytest.skip("XLA of JAX 0.6 rounds each use of the scores differently")
    ids, queries, candidates = random_task(rng)
    candidates[:] = candidates[0]

    def score_by_position(queries, block):
        places = ops.arange(block.shape[0], dtype="float32")
        return products(queries, block) + 1e-3 * places

    options = {"score": score_by_position, "shuffle_ties": False, "block_size": 100}
    actual = reciprocal_ranks(ids, queries, candidates, **options)
    # Scores differ only by column. In each of the three blocks, items in later columns
    # are above, and in earlier blocks the item in the same column.
    block, column = np.divmod(ids[:, 0], 100)
    above = 3 * (99 - column) + block
    np.testing.assert_allclose(actual, 1.0 / (1.0 + above), rtol=1e-6)


@pytest.mark.compiles_long
@pytest.mark.parametrize("targets", [1, 90])
def test_candidates_are_scored_in_one_pass(targets, rng):
    """One pass suffices, although libraries round products by their position."""
    queries, items = 150, 1000
    ids = np.stack([rng.permutation(items)[:targets] for _ in range(queries)])
    shapes = (queries, 64), (items, 64)
    embeddings, candidates = (rng.normal(size=x).astype("float32") for x in shapes)
    readings = []

    def read():
        readings.append(1)
        for start in range(0, items, 300):
            yield candidates[start : start + 300]

    catalogue.rank(ids, embeddings, read, block_size=256)
    # Reading 1 counts the candidates, and reading 2 scores them.
    assert len(readings) == 2
    done = []
    task = prepare_retrieval(
        ids, embeddings, candidates, None, "dot", None, 256, "float32"
    )
    task.count("stable", 0, done.append)
    assert done == [256, 512, 768, 1000]


def test_shards_are_mapped_by_the_map_fn(rng):
    ids, queries, candidates = random_task(rng)
    rounds = []

    def map_backwards(function, parts):
        rounds.append(len(parts))
        return [function(part) for part in parts[::-1]][::-1]

    shards = catalogue.Shards([candidates[:50], candidates[50:]], map_backwards)
    actual = catalogue.evaluate(ids, queries, shards, ["mrr"])
    assert actual == catalogue.evaluate(ids, queries, candidates, ["mrr"])
    # The rounds: numbers of items, scores of targets, and counts above these.
    assert rounds == [2, 2, 2]


@pytest.mark.compiles_long
def test_inputs_are_read_once_for_all_metrics_and_parts(rng, monkeypatch):
    """Lists with averaged ties are ranked in parts that fit into memory."""
    ids, queries, candidates = random_task(rng, targets=2)
    queries, candidates = np.round(queries), np.round(candidates)
    read, read_ids = [], standardize.read_ids

    def encoded():
        read.append("candidates")
        return candidates

    def counted(argument, *inputs):
        read.append(argument)
        return read_ids(argument, *inputs)

    targets = {"ids": ids, "labels": np.ones(ids.shape)}
    group = [metrics.NDCG(shuffle_ties=x, name=str(x)) for x in (True, "average")]
    expected = catalogue.evaluate(targets, queries, encoded, group)
    assert read == ["candidates"]
    monkeypatch.setattr(catalogue.catalogue_metrics, "MAX_RANKS", 500)
    monkeypatch.setattr(standardize, "read_ids", counted)
    actual = catalogue.evaluate(targets, queries, candidates, group)
    assert actual == pytest.approx(expected, abs=1e-6)
    assert read == ["candidates", "targets"]


class BestRank(metrics.RankingMetric):
    """A metric of a user, which is not registered with Keras."""

    takes_sparse_labels = True

    def compute(self, lists, ranking):
        return ops.min(ops.where(ranking.ranks > 0, ranking.ranks, 1e9), axis=1)


def test_user_metrics_may_take_ids():
    metric = BestRank(sparse_labels=True)
    assert float(metric([[1, -1], [0, 2]], [[0.9, 0.1, 0.5], [0.7, 0.8, 0.1]])) == 2.5


@pytest.mark.compiles_long
def test_evaluate_does_not_change_metrics(rng):
    """Metrics keep their seeds and their state, and need not be registered."""
    task = random_task(rng)
    own = metrics.NDCG(k=10, gain_fn=lambda labels: labels, name="own")
    members = [BestRank(seed=1), own, metrics.NDCG(k=2)]
    seeds = [metric.seed for metric in members]
    assert len({*seeds}) == 2
    CatalogueEvaluation(Q, [0, 1], C, members)
    actual = catalogue.evaluate(*task, [*members, "ndcg@10"])
    assert [*actual] == ["best_rank", "own", "ndcg_at_2", "ndcg@10"]
    assert actual["best_rank"] == pytest.approx(np.mean(1 / reciprocal_ranks(*task)))
    assert actual["own"] == pytest.approx(actual["ndcg@10"], rel=1e-6)
    assert [metric.seed for metric in members] == seeds
    assert [int(metric.variables[-1]) for metric in members] == [0, 0, 0]
    group = metrics.RankingMetrics(["ndcg@10"], prefix="all_")
    for _ in range(2):
        assert catalogue.evaluate(*task, group) == {"all_ndcg_at_10": actual["ndcg@10"]}
    assert float(group.result()["all_ndcg_at_10"]) == 0.0


@pytest.mark.compiles_long
@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
def test_metrics_accept_ranked_lists(shuffle_ties, rng):
    labels, scores = rng.integers(0, 4, (2, 40, 12)).astype("float32")
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1}
    order = functional.rank(labels, scores, **arguments)
    metric, other, expected = (metrics.NDCG(k=3, **arguments) for _ in range(3))
    right = float(expected(labels, scores))
    assert float(metric(order)) == right
    assert float(metrics.RankingMetrics([other])(order)["ndcg_at_3"]) == right
    assert int(metric.variables[-1]) == len(labels)


Q, C = np.ones((2, 3), "float32"), np.ones((5, 3), "float32")


def rank(targets=(0, 1), queries=Q, candidates=C, **options):
    return catalogue.rank(targets, queries, candidates, **options)


def rank_parts(map_fn=map, parts=(C, C), targets=(0, 1)):
    return rank(targets, candidates=catalogue.Shards([*parts], map_fn))


def evaluate(metrics=("mrr",), **options):
    return catalogue.evaluate([0, 1], Q, C, metrics, **options)


def callback(targets=(0, 1), candidates=C, metrics=("mrr",), **options):
    return CatalogueEvaluation(Q, targets, candidates, metrics, **options)


def top_k(k=2, **options):
    return catalogue.top_k(Q, C, k, **options)


def read_as(blocks_of):
    """Returns candidates whose blocks depend on the number of earlier readings."""

    def source(candidates):
        times = itertools.count()
        return lambda: iter(blocks_of(candidates, next(times)))

    return source


def second_part(source):
    return lambda x: catalogue.Shards([x[:9], source(x)])


# Blocks are read once before the first pass.
used_up = read_as(lambda x, times: [x] * (times < 2))
shorter = read_as(lambda x, times: [x[: 300 - 7 * times]])
longer = read_as(lambda x, times: [x[: 200 + 7 * times]])
rolled = read_as(lambda x, times: [np.roll(x, times, axis=0)])
rolled_but_first = read_as(lambda x, times: [x[:1], np.roll(x[1:], times, axis=0)])


def rank_again(source):
    """Ranks among candidates that differ in each pass."""
    ids, queries, candidates = random_task(np.random.default_rng(0))
    rank(ids % 200, queries, source(candidates))


SCORED = Identity()
CHANGED = "whose scores changed from one pass to the next"
ROLLED = "same order each time they are read. Received: another first item when they"
ALL_LABELS = "`BPref` should get the labels of all items"
NOT_COUNTED = "`denominator` should be"
NO_PAIRS = "`k` should be None for the pairs of lists that hold only the relevant"
WIDTHS = "`queries` and `candidates` should have the same number of features"
MODEL = "or a function such as `lambda: model.predict(items)`. Received: candidates=<"
ONE_HOT = "`targets` should hold ids of items. Of a matrix with a column for each"
ERRORS = [
    (lambda: rank([0]), "1 rows of targets for 2 queries"),
    (lambda: rank(queries=Q[0]), "`queries` should have the shape"),
    (lambda: rank(candidates=C[:, :2]), WIDTHS),
    (lambda: rank(candidates=C[0]), "`candidates` should have the shape"),
    (lambda: rank(candidates="items.npy"), "Received: str with a block"),
    (lambda: rank(candidates=iter([C])), "readable more than once"),
    (lambda: rank(candidates=lambda: iter([])), "one or more items"),
    (lambda: rank(candidates=keras.layers.Embedding(5, 3)), "should be a built layer"),
    (lambda: rank(candidates=[C, C[:, :2]]), "Received: blocks with 3 and 2 features"),
    (lambda: rank(candidates=keras.Sequential([])), f"{MODEL}Sequential"),
    (lambda: rank(score="l2"), '`score` should be "dot", "cosine"'),
    (lambda: rank(score=lambda q, c: q), "one number for each query and candidate"),
    (lambda: rank(block_size=0), "`block_size` should be a positive integer or None"),
    (lambda: rank(exclude=[0, 1]), "`exclude` should have the shape (batch, n)"),
    (lambda: top_k(0), "`k` should be a positive integer. Received: k=0"),
    (lambda: top_k(shuffle_ties="average"), "`shuffle_ties` should be True or"),
    # Ids out of range, and values without ids.
    (lambda: rank([[0, 1], [2, 7]]), "items, 5. Received: a larger id, 7, in row 1"),
    (lambda: rank({"ids": [0, 9], "labels": [1, 1]}), "a larger id, 9, in row 1"),
    (lambda: rank([[0, 1], [2, 1.5]]), "Received: a fraction, 1.5, in row 1"),
    (lambda: top_k(exclude=[[1, -1], [0, 6]]), "`exclude` should hold ids below the"),
    (lambda: rank({0, 1}), "targets of type set, without an order: pass lists"),
    (lambda: rank({7: {0}, 8: {2}}), 'ids, or a dict with the keys "ids", "labels"'),
    (lambda: rank({0: [1]}.values()), "type dict_values: pass `list(targets)`"),
    (lambda: rank(np.eye(2, 5, dtype=int)), ONE_HOT),
    # Parts.
    (lambda: catalogue.Shards([]), "`parts` should be a list of one or more parts"),
    (lambda: rank_parts(2), "`map_fn` should be a function"),
    (lambda: rank_parts(parts=(C, C[:, :2])), "the same number of features"),
    (lambda: rank_parts(targets=[0, 10]), "below the number of items, 10"),
    (lambda: rank_parts(lambda f, parts: []), "0 results for 2 parts"),
    (lambda: rank_parts(lambda f, parts: [f(C)]), "1 results for 2 parts"),
    (lambda: rank_parts(lambda f, parts: [f(C)] * 3), "3 results for 2 parts"),
    (lambda: rank_parts(lambda f, parts: None), "for each part. Received: NoneType"),
    (lambda: rank_parts(lambda f, parts: [None] * 2), "Received: None for part 0"),
    # Candidates that change.
    (lambda: rank_again(used_up), "300 items at first, 0 when they were read again"),
    (lambda: rank_again(shorter), "293 items at first, 286 when they were read"),
    (lambda: rank_again(longer), "207 items at first, 214 when they were read"),
    (lambda: rank_again(rolled), ROLLED),
    (lambda: rank_again(rolled_but_first), CHANGED),
    (lambda: rank_again(second_part(shorter)), "items at first, "),
    (lambda: rank_again(second_part(rolled)), ROLLED),
    (lambda: rank_again(second_part(rolled_but_first)), CHANGED),
    # Ranked lists that do not fit the metric.
    (lambda: metrics.NDCG()(rank(), [[1.0]]), "which include them. Received: y_pred"),
    (lambda: metrics.NDCG(shuffle_ties=False)(rank()), "False of the metric, shuffle_"),
    (lambda: metrics.NDCG(k=3)(rank(k=2)), "k=3"),
    (lambda: metrics.MeanReciprocalRank()(rank(k=2)), "k=None"),
    (lambda: metrics.BPref(k=1)(rank(k=2)), ALL_LABELS),
    (lambda: metrics.RankingMetrics(["bpref"])(rank()), ALL_LABELS),
    (lambda: functional.bpref(rank()), ALL_LABELS),
    (lambda: functional.precision(rank(), denominator="retrieved"), NOT_COUNTED),
    (lambda: functional.pairwise_accuracy(rank(k=2), k=1), NO_PAIRS),
    # Metrics and callbacks. The last two errors come before the first epoch.
    (lambda: evaluate(["bpref"]), ALL_LABELS),
    (lambda: evaluate([]), "`metrics` should be a list"),
    (lambda: evaluate(verbose=3), '`verbose` should be "auto", 0, 1 or 2'),
    (lambda: callback(score="bla"), "`score` should be"),
    (lambda: callback(block_size=-1), "`block_size` should be a positive integer or"),
    (lambda: callback(query_model=3), "`query_model` should be a model with a method"),
    (lambda: callback("item_id"), "column of a table, pass `df['item_id']`"),
    (lambda: callback([{0}, {1}]), "targets of dtype object, of sets: pass lists"),
    (lambda: callback(candidates=keras.layers.Dense(3)), f"{MODEL}Dense name="),
    (lambda: run_epoch(callback([0, 5], query_model=SCORED)), "number of items, 5"),
    (lambda: run_epoch(callback(candidates=C[:, :2], query_model=SCORED)), WIDTHS),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_wrong_calls_are_errors(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.skipif(BACKEND not in ("jax", "tensorflow"), reason="nothing is traced")
def test_rank_is_an_error_in_compiled_code():
    compiled = backend.compile_function(
        lambda x: rank(queries=x), is_package_code=False
    )
    with pytest.raises(ValueError, match="outside compiled functions"):
        compiled(ops.convert_to_tensor(Q))


def test_top_k_without_queries():
    scores, ids = catalogue.top_k(np.zeros((0, 3)), C, 2)
    assert tuple(scores.shape) == tuple(ids.shape) == (0, 2)


@pytest.mark.skipif(BACKEND != "numpy", reason="only NumPy's memory is traced")
def test_a_list_of_many_targets_takes_little_memory(rng):
    """All lists are padded to its length, but no further."""
    ids = np.full((1000, 1000), -1)
    ids[:, 0], ids[0] = rng.integers(0, 5000, 1000), rng.permutation(5000)[:1000]
    embeddings = (rng.normal(size=(x, 4)).astype("float32") for x in (1000, 5000))
    tracemalloc.start()
    catalogue.evaluate(ids, *embeddings, ["ndcg@10", "mrr"], verbose=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 * ids.nbytes


@pytest.mark.slow
@pytest.mark.compiles_long
def test_large_ids_are_not_rounded():
    """The id is odd and above 2**24, so float32 can't represent it."""
    target = 2**24 + 1
    items = -np.arange(target + 7, dtype="float32")[:, None]
    items[target] = 10.0
    inputs = np.ones((2, 1), "float32"), items, ["mrr"]
    options = {"block_size": 2**22, "verbose": 0}
    for ids in ([[target], [5, target]], np.array([[target, np.nan], [5.0, target]])):
        assert catalogue.evaluate(ids, *inputs, **options) == {"mrr": 1.0}
        assert catalogue.evaluate([0, 0], *inputs, exclude=ids, **options) == {
            "mrr": 1.0
        }


@pytest.mark.parametrize("padding", [-7, -(2**32), -(2**63)])
def test_excluded_ids_below_zero_are_padding(padding):
    """Cast to int32, the last two ids would be that of the first item."""
    excluded = np.full((3, 1), padding, "int64")
    _, ids = catalogue.top_k(np.eye(3), np.eye(3), k=3, exclude=excluded)
    assert ops.convert_to_numpy(ids)[:, 0].tolist() == [0, 1, 2]


@pytest.mark.compiles_long
def test_exclude_without_columns():
    """`exclude` may have no columns, in shards and with many targets.

    On an accelerator, a search in an array without entries would be a loop over them.
    """
    arguments = {"exclude": np.zeros((2, 0), "int64"), "shuffle_ties": False}
    items, task = np.array([[2.0], [1.0], [1.0], [3.0]]), ([[1], [2]], np.ones((2, 1)))
    shards = catalogue.Shards([items[:2], items[2:]])
    actual = [reciprocal_ranks(*task, shards, **arguments)]
    with patch_module(backend, MAX_COMPARISONS=0, on_accelerator=lambda: True):
        actual.append(reciprocal_ranks(*task, items, **arguments))
    np.testing.assert_allclose(actual, [[1 / 3, 1 / 4]] * 2)


@pytest.mark.parametrize("axis", [0, 1])
def test_score_functions_that_depend_on_other_items_are_errors(axis, rng):
    ids, queries, candidates = random_task(rng)

    def softmax(queries, block):
        return ops.softmax(products(queries, block), axis=axis)

    message = "`score` should give each pair of a query and a candidate"
    with pytest.raises(ValueError, match=message):
        catalogue.rank(ids, queries, candidates, score=softmax, block_size=100)
    with pytest.raises(ValueError, match=message):
        catalogue.top_k(queries, candidates, 3, score=softmax)


def test_verbose_shows_progress(capsys):
    for verbose in (1, 2):
        evaluate(verbose=verbose)
        assert "5/5" in capsys.readouterr().out
    evaluate()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x,
        lambda x: {"ids": x, "labels": 1.0 + x % 3},
        lambda x: [list(row) for row in x.tolist()],
        lambda x: torch().from_numpy(x),
    ],
)
def test_callbacks_copy_their_arguments(form, rng):
    """Callbacks copy all arguments except inputs and candidates."""
    _, queries, candidates = random_task(rng)
    targets = form(rng.integers(0, 300, (20, 2)))
    weights, seen = rng.random(20).astype("float32"), rng.integers(0, 300, (20, 5))
    options = {"sample_weight": weights, "exclude": seen}
    arguments = queries, targets, candidates, metrics.NDCG(k=20, seed=1)
    expected = catalogue.evaluate(targets, queries, *arguments[2:], **options)
    callback_of_copies = CatalogueEvaluation(
        *arguments, query_model=Identity(), **options
    )
    weights[:] = seen[:] = 0
    for part in targets.values() if isinstance(targets, dict) else [targets]:
        for row in part:
            row[:] = [7, 7] if isinstance(row, list) else 7
    assert run_epoch(callback_of_copies) == {"val_ndcg_at_20": expected["ndcg_at_20"]}


DUPLICATES = "`candidates` should hold each item once. Received: most targets, such as"


@pytest.mark.compiles_long
@pytest.mark.parametrize("block_size", [None, 7])
@pytest.mark.parametrize(
    "form", [lambda x: x, lambda x: lambda: x, lambda x: [x[:20], x[20:]]]
)
def test_duplicates_of_targets_are_warned_about(form, block_size, rng):
    """A duplicate of the target takes a rank, so the target is first or second."""
    candidates = np.repeat(rng.normal(size=(30, 8)).astype("float32"), 2, axis=0)
    inputs = np.arange(0, 60, 2), 9.0 * candidates[::2], form(candidates)
    exact = metrics.MeanReciprocalRank(shuffle_ties="average")
    with pytest.warns(UserWarning, match=DUPLICATES):
        actual = catalogue.evaluate(
            *inputs, exact, block_size=block_size, score="cosine"
        )
    assert actual["mrr"] == pytest.approx((1 + 1 / 2) / 2)
    # Excluded duplicates cause no warning.
    excluded = {"exclude": np.arange(1, 60, 2)[:, None]}
    catalogue.evaluate(*inputs, exact, **excluded, block_size=block_size)


def test_a_callback_warns_once_about_duplicates(rng):
    candidates = np.repeat(rng.normal(size=(15, 4)).astype("float32"), 2, axis=0)
    task = candidates[:8], np.arange(8), lambda: candidates, ["mrr"]
    callback = CatalogueEvaluation(*task, query_model=Identity())
    with pytest.warns(UserWarning, match=DUPLICATES):
        run_epoch(callback)
    run_epoch(callback)


@pytest.mark.compiles_long
def test_ties_without_duplicates_are_not_warned_about(rng):
    queries, candidates = (rng.normal(size=(n, 4)).astype("float32") for n in (20, 40))
    # Duplicates of an item that is rarely a target.
    copies = np.where(np.arange(40)[:, None] < 20, candidates, candidates[20])
    ones = np.ones_like

    def rounded(queries, block):
        return ops.round(products(queries, block))

    for task, options in (
        ((queries, candidates), {"score": rounded}),
        # Models with constant items or constant queries.
        ((queries, ones(candidates)), {}),
        ((0.0 * queries, candidates), {}),
        ((queries, copies), {}),
        # Scores by popularity, which is equal for several items.
        ((ones(queries[:, :1]), np.arange(40.0)[:, None] // 4), {}),
    ):
        catalogue.evaluate(np.arange(20), *task, ["mrr"], **options)


def retrieval_model():
    user, item = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    users, items = keras.layers.Embedding(6, 4), keras.layers.Embedding(30, 4)
    score = keras.layers.Dot(axes=1)([users(user), items(item)])
    model = keras.Model([user, item], score)
    model.compile(keras.optimizers.Adam(0.05), "mse")
    return model, keras.Model(user, users(user)), items


USERS = np.arange(6)


def fitted(candidates, models=None, before=()):
    """Trains a model of users and items with an evaluation after each epoch."""
    model, query_model, _ = models or retrieval_model()
    task = USERS, USERS * 4, candidates, ["mrr"]
    last = CatalogueEvaluation(*task, query_model=query_model)
    inputs = [np.repeat(USERS, 30), np.tile(np.arange(30), 6)], np.ones(180)
    return model.fit(*inputs, epochs=2, verbose=0, callbacks=[*before, last])


def user_warnings(caught):
    """Returns the messages of user warnings, without those that Keras causes."""
    return [str(each.message) for each in caught if each.category is UserWarning]


@pytest.mark.compiles_long
@pytest.mark.trains
def test_constant_candidates_of_trained_items_are_warned_about():
    model, query_model, items = models = retrieval_model()
    array = np.array(ops.convert_to_numpy(items.embeddings))
    with pytest.warns(UserWarning, match="`candidates` should be a function") as caught:
        fitted(array, models)
    (message,) = user_warnings(caught)
    assert items.embeddings.path in message
    # Functions, layers and variables are read again, and cause no warning.
    for candidates in (lambda: array, items, items.embeddings, lambda: items):
        actual = fitted(candidates, models).history["val_mrr"]
    queries = query_model.predict(USERS, verbose=0)
    expected = catalogue.evaluate(USERS * 4, queries, items, ["mrr"])
    assert actual[-1] == pytest.approx(expected["mrr"])
    # A callback that updates the array in each epoch.
    write = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: np.copyto(array, ops.convert_to_numpy(items.embeddings))
    )
    message = "`LambdaCallback` should be listed after"
    with pytest.warns(UserWarning, match=message) as caught:
        fitted(array, models, [write])
    assert len(user_warnings(caught)) == 1
    # Items that are not trained cause no warning.
    items.trainable = False
    model.compile("sgd", "mse")
    fitted(np.ones((30, 4)), models)


NAN_ROWS = np.where(np.arange(60)[:, None] < 20, np.nan, np.ones((60, 4), "float32"))
WITH_NAN = {
    "candidates": {"candidates": NAN_ROWS},
    "a tensor": {"candidates": ops.convert_to_tensor(NAN_ROWS)},
    "blocks": {"candidates": lambda: iter(np.split(NAN_ROWS, 3))},
    "queries": {"queries": NAN_ROWS[15:25]},
}


@pytest.mark.parametrize("name", WITH_NAN)
def test_embeddings_with_nan_are_warned_about(name):
    options = {"queries": np.ones((10, 4)), "candidates": np.ones((60, 4)) * 2.0}
    options |= WITH_NAN[name]
    (argument,) = WITH_NAN[name]
    with pytest.warns(UserWarning, match=f"`{argument}` has embeddings with NaN"):
        catalogue.evaluate(np.arange(30, 40), **options, metrics=["mrr", "ndcg@5"])


def test_infinite_embeddings_are_not_warned_about(recwarn):
    candidates = np.ones((60, 4), "float32")
    candidates[:2, 0] = np.inf, -np.inf
    catalogue.evaluate(np.arange(30, 40), np.ones((10, 4)), candidates, ["mrr"])
    half = np.ones((70_000, 4), "float16")
    catalogue.evaluate(np.arange(10), np.ones((10, 4), "float16"), half, ["mrr"])
    assert not [x for x in recwarn if "NaN" in str(x.message)]
