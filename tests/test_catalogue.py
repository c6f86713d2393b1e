"""Ranks among candidates: those of the full matrix of scores, to the last item."""

import itertools
import re
import tracemalloc

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from registry import CASES_HERE, IS_SLOW
from strategies import BATCH, LIST_SIZE, ties

import keras_rank
from keras_rank import catalogue, functional, metrics
from keras_rank.backends import backend
from keras_rank.callbacks import CatalogueEvaluation
from keras_rank.catalogue.blocks import Queries, _kept_step, chunks_of_queries
from keras_rank.catalogue.candidates import open_candidates
from keras_rank.catalogue.ranks import retrieval
from keras_rank.catalogue.tiles import TILE

BACKEND = keras.backend.backend()
SPARSE = [
    case
    for case in CASES_HERE
    if case.metric.takes_sparse_labels
    and (case.arguments.get("relevance_threshold") or 1.0) <= 1.0
    # Whose pairs have no cutoff here, and which has laws of its own.
    and case.metric is not metrics.PairwiseAccuracy
    # How many candidates were retrieved is not counted.
    and case.arguments.get("denominator") != "retrieved"
]
QUERIES, ITEMS, TARGETS, FEATURES = 7, 40, 3, 4

# Blocks are counted by programs that many tests share.
pytestmark = pytest.mark.programs


def products(queries, candidates):
    """Exact for small whole numbers, in whatever order they are added."""
    return np.nansum(queries[:, None, :] * candidates[None], axis=2)


@st.composite
def tasks(draw):
    """Whole numbers, so that many tie, with NaN, padding, repetitions and weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    high = draw(st.integers(0, 4))
    queries = rng.integers(-high, high + 1, size=(QUERIES, FEATURES)).astype("float32")
    candidates = rng.integers(-2, 3, size=(ITEMS, FEATURES)).astype("float32")
    candidates[rng.integers(0, ITEMS, 5)] = candidates[0]
    candidates[rng.random(ITEMS) < rng.choice([0.0, 0.1])] = np.nan
    targets = rng.integers(-1, ITEMS, size=(QUERIES, TARGETS))
    targets[rng.random(targets.shape) < rng.choice([0.0, 0.4])] = -1
    # At the edges of blocks, too.
    targets[0] = [0, ITEMS - 1, 15]
    excluded = rng.integers(-1, ITEMS, size=(QUERIES, 9))
    excluded[1, :3] = targets[1]
    weights = rng.choice([0.0, 0.5, 2.0], size=QUERIES).astype("float32")
    return targets, queries, candidates, excluded, weights


def full_matrix(targets, queries, candidates, excluded):
    scores = products(queries, candidates).astype("float32")
    scores[:, np.isnan(candidates).any(axis=1)] = np.nan
    scores = ops.convert_to_tensor(scores)
    return keras_rank.utils.exclude_items(scores, excluded, keep=targets)


@pytest.mark.optimized
@given(
    task=tasks(),
    shuffle_ties=ties,
    k=st.sampled_from([None, 1, 10]),
    block_size=st.sampled_from([16, 33, ITEMS, 64] if IS_SLOW else [1, 16, 33, 40, 64]),
)
def test_equals_the_full_matrix(task, shuffle_ties, k, block_size):
    targets, queries, candidates, excluded, weights = task
    arguments = {"k": k, "shuffle_ties": shuffle_ties, "seed": 1}
    order = catalogue.rank(
        targets,
        queries,
        candidates,
        sample_weight=weights,
        exclude=excluded,
        block_size=block_size,
        **arguments,
    )
    full = functional.rank(
        targets,
        full_matrix(*task[:4]),
        sample_weight=weights,
        sparse_labels=True,
        **arguments,
    )
    for case in SPARSE:
        found, expected = (
            case.function(each, k=k, **case.arguments) for each in (order, full)
        )
        np.testing.assert_allclose(
            ops.convert_to_numpy(found),
            ops.convert_to_numpy(expected),
            rtol=2e-6,
            atol=2e-6,
            err_msg=str(case),
        )


@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
def test_many_targets(shuffle_ties, rng, monkeypatch):
    """By sorting, to the last bit what comparing with each of them gives."""
    # Compiled for each target where they are compared.
    items, number = 150, 8
    targets = np.stack([rng.permutation(items)[:number] for _ in range(QUERIES)])
    targets[1, 1:] = -1
    targets[2, :4] = targets[2, 4:]
    excluded = rng.integers(-1, items, size=(QUERIES, 90))
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1}
    tasks = {}
    for levels in (2, 50, None):
        candidates = rng.normal(size=(items, FEATURES)).astype("float32")
        queries = rng.normal(size=(QUERIES, FEATURES)).astype("float32")
        if levels is not None:
            candidates, queries = np.round(candidates * levels), np.round(queries)
        candidates[rng.integers(0, items, 5)] = np.nan
        tasks[levels] = queries, candidates
    found = {levels: {} for levels in tasks}
    for sorts, on_accelerator in ((True, False), (False, False), (True, True)):
        monkeypatch.setattr(backend, "MOST_COMPARISONS", 0 if sorts else number)
        monkeypatch.setattr(backend, "on_accelerator", lambda at=on_accelerator: at)
        _kept_step.cache_clear()
        for levels, (queries, candidates) in tasks.items():
            for name, each in {
                "whole": candidates,
                "parts": catalogue.Shards([candidates[:70], candidates[70:]]),
            }.items():
                order = catalogue.rank(
                    targets,
                    queries,
                    each,
                    exclude=excluded,
                    block_size=64,
                    **arguments,
                )
                found[levels][sorts, on_accelerator, name] = [
                    ops.convert_to_numpy(function(order))
                    for function in (functional.ndcg, functional.average_precision)
                ]
    monkeypatch.undo()
    _kept_step.cache_clear()
    for ways in found.values():
        for values in ways.values():
            np.testing.assert_array_equal(values, ways[True, False, "whole"])
    labels = np.zeros((QUERIES, items), "float32")
    for row, ids in zip(labels, targets, strict=True):
        row[ids[ids >= 0]] = 1.0
    for levels in (2, 50):
        scores = full_matrix(targets, *tasks[levels], excluded)
        expected = [
            ops.convert_to_numpy(function(labels, scores, **arguments))
            for function in (functional.ndcg, functional.average_precision)
        ]
        np.testing.assert_allclose(
            found[levels][True, False, "whole"], expected, atol=2e-6
        )


def test_queries_are_cut_by_their_number_of_targets(rng):
    """Into few shapes, those that are compared with a block apart from all others."""
    numbers = np.array([1, 300, 3, 70, 2, 0, 1, 90, 4, 80])
    ids = np.full((len(numbers), 300), -1, "int32")
    for row, number in zip(ids, numbers, strict=True):
        row[:number] = rng.permutation(1000)[:number]
    embeddings = ops.ones((len(numbers), 2))
    queries = Queries(embeddings, ids, None, None)
    candidates = open_candidates(np.zeros((TILE // 2, 1), "int8"), TILE, len(ids))
    chunks = chunks_of_queries(queries, candidates)
    shapes = [tuple(chunk.ids.shape) for _, chunk in chunks]
    assert shapes == [(2, 1), (2, 2), (2, 4), (2, 128), (2, 300)]
    rows = np.concatenate([of_chunk for of_chunk, _ in chunks])
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(numbers)))
    for of_chunk, chunk in chunks:
        found, width = ops.convert_to_numpy(chunk.ids), chunk.ids.shape[1]
        np.testing.assert_array_equal(found, ids[of_chunk, :width])
        assert np.all(ids[of_chunk, width:] == -1)


@pytest.mark.parametrize("shuffle_ties", [False, "average"])
def test_neither_the_order_of_queries_nor_others_change_ranks(shuffle_ties, rng):
    numbers = rng.permutation([1] * 10 + [5, 70, 120, 200])
    targets = [rng.permutation(300)[:number].tolist() for number in numbers]
    queries = rng.integers(-2, 3, size=(len(numbers), 3)).astype("float32")
    candidates = rng.integers(-2, 3, size=(300, 3)).astype("float32")

    def precisions(rows):
        order = catalogue.rank(
            [targets[row] for row in rows],
            queries[rows],
            candidates,
            shuffle_ties=shuffle_ties,
            block_size=64,
        )
        return ops.convert_to_numpy(functional.average_precision(order))

    everyone, shuffled = np.arange(len(numbers)), rng.permutation(len(numbers))
    found = precisions(everyone)
    np.testing.assert_array_equal(precisions(shuffled), found[shuffled])
    largest = int(np.argmax(numbers))
    np.testing.assert_array_equal(precisions([largest]), found[[largest]])


def random_task(rng, targets=1, items=300):
    queries = rng.normal(size=(20, 8)).astype("float32")
    candidates = rng.normal(size=(items, 8)).astype("float32")
    ids = rng.integers(0, items, size=(20, targets))
    return ids, queries, candidates


def reciprocal_ranks(*arguments, **options):
    order = catalogue.rank(*arguments, **options)
    return ops.convert_to_numpy(functional.reciprocal_rank(order))


def expected_reciprocal_ranks(ids, scores):
    own = np.take_along_axis(scores, ids, axis=1)
    return 1.0 / (1.0 + (scores[:, None] > own[..., None]).sum(axis=2).min(axis=1))


def in_blocks(candidates):
    return [candidates[:7], candidates[7:8], candidates[8:200], candidates[200:]]


class Blocks(keras.utils.PyDataset):
    def __init__(self, candidates):
        super().__init__()
        self.blocks = in_blocks(candidates)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        return (self.blocks[index],)


def on_disk(candidates, folder):
    path = folder / "candidates.npy"
    np.save(path, candidates)
    return np.load(path, mmap_mode="r")


def embedding_of(candidates):
    layer = keras.layers.Embedding(*candidates.shape)
    layer.build()
    layer.embeddings.assign(candidates)
    return layer


def torch_loader(candidates):
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.from_numpy(candidates))
    return torch.utils.data.DataLoader(data, batch_size=64)


def tensorflow_dataset(candidates):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(candidates).batch(64)


@pytest.mark.parametrize(
    "made",
    [
        lambda c, folder: c,
        lambda c, folder: c.tolist(),
        lambda c, folder: ops.convert_to_tensor(c),
        lambda c, folder: keras.Variable(c),
        lambda c, folder: embedding_of(c),
        on_disk,
        lambda c, folder: lambda: c,
        lambda c, folder: lambda: iter(in_blocks(c)),
        lambda c, folder: in_blocks(c),
        lambda c, folder: Blocks(c),
        lambda c, folder: torch_loader(c) if BACKEND == "torch" else Blocks(c),
        lambda c, folder: tensorflow_dataset(c) if BACKEND == "tensorflow" else c,
    ],
)
def test_candidates_may_be_anything_that_holds_them(made, rng, tmp_path):
    ids, queries, candidates = random_task(rng)
    given_candidates = made(candidates, tmp_path)
    found = reciprocal_ranks(ids, queries, given_candidates, block_size=64)
    expected = expected_reciprocal_ranks(ids, queries @ candidates.T)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_embeddings_of_half_precision_are_multiplied_in_full(rng):
    ids, queries, candidates = random_task(rng)
    half = candidates.astype("float16")
    scores = queries @ half.astype("float32").T
    found = reciprocal_ranks(ids, queries, ops.convert_to_tensor(half))
    np.testing.assert_allclose(found, expected_reciprocal_ranks(ids, scores), rtol=1e-6)


@pytest.mark.skipif(BACKEND == "jax", reason="has no float64 unless asked for")
@pytest.mark.parametrize("score", ["dot", "cosine"])
@pytest.mark.parametrize("narrow", [None, "queries"])
def test_embeddings_of_double_precision_are_not_rounded(score, narrow, rng):
    ids, queries, candidates = random_task(rng, targets=2)
    queries, candidates = (x.astype("float64") for x in (queries, candidates))
    candidates = 1.0 + 1e-9 * candidates
    if narrow == "queries":
        queries = queries.astype("float32")
    scores = queries.astype("float64") @ candidates.T
    if score == "cosine":
        scores = scores / np.linalg.norm(candidates, axis=1)
    expected = expected_reciprocal_ranks(ids, scores)
    for each in (candidates, catalogue.Shards([candidates[:99], candidates[99:]])):
        found = reciprocal_ranks(ids, queries, each, score=score)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_scores_by_cosine_and_by_a_function(rng):
    ids, queries, candidates = random_task(rng)
    lengths = (
        np.linalg.norm(candidates, axis=1) * np.linalg.norm(queries, axis=1)[:, None]
    )
    expected = expected_reciprocal_ranks(ids, queries @ candidates.T / lengths)
    found = reciprocal_ranks(ids, queries, candidates, score="cosine")
    np.testing.assert_allclose(found, expected, rtol=1e-6)

    layer = keras.layers.Dense(1, activation="tanh")
    layer.build((None, None, 8))

    def of_pairs(queries, candidates):
        return layer(queries[:, None, :] * candidates[None])[..., 0]

    found = reciprocal_ranks(ids, queries, candidates, score=of_pairs, block_size=64)
    scores = ops.convert_to_numpy(layer(queries[:, None] * candidates[None]))[..., 0]
    np.testing.assert_allclose(found, expected_reciprocal_ranks(ids, scores), rtol=1e-6)


def test_a_function_that_rounds_otherwise_where_it_has_other_neighbors(rng):
    """A target scores otherwise among the targets than in its block, which counts."""
    if BACKEND == "jax":
        import jax

        if jax.__version_info__ < (0, 7):
            pytest.skip("XLA of JAX 0.6 rounds otherwise in each use of the scores")
    ids, queries, candidates = random_task(rng)
    candidates[:] = candidates[0]

    def by_neighbors(queries, block):
        scores = ops.matmul(queries, ops.transpose(block))
        return scores + 1e-3 * ops.cast(ops.arange(block.shape[0]), "float32")

    found = reciprocal_ranks(
        ids,
        queries,
        candidates,
        score=by_neighbors,
        shuffle_ties=False,
        block_size=100,
    )
    # All are alike but for their columns: in each of the three blocks the later ones
    # are above, and in earlier blocks the same one is.
    block, column = np.divmod(ids[:, 0], 100)
    above = 3 * (99 - column) + block
    np.testing.assert_allclose(found, 1.0 / (1.0 + above), rtol=1e-6)


@pytest.mark.parametrize("targets", [1, 90])
def test_one_pass_is_enough(targets, rng):
    """Though libraries round the entries of a product by where they are in it."""
    queries, items = 150, 1000
    ids = np.stack([rng.permutation(items)[:targets] for _ in range(queries)])
    embeddings = rng.normal(size=(queries, 64)).astype("float32")
    candidates = rng.normal(size=(items, 64)).astype("float32")
    readings = []

    def read():
        readings.append(1)
        for start in range(0, items, 300):
            yield candidates[start : start + 300]

    catalogue.rank(ids, embeddings, read, block_size=256)
    # To count the candidates, and to score them.
    assert len(readings) == 2
    done = []
    task = retrieval(
        ids,
        embeddings,
        candidates,
        None,
        score="dot",
        exclude=None,
        block_size=256,
        dtype="float32",
    )
    task.counted("stable", 0, done.append)
    assert done == [256, 512, 768, 1000]


@given(task=tasks(), shuffle_ties=ties, cuts=st.sets(st.integers(1, ITEMS - 1)))
def test_shards_add_up_to_the_whole(task, shuffle_ties, cuts):
    """Parts of any size and kind, the scores of which are the same in all of them."""
    targets, queries, candidates, excluded, weights = task
    parts = np.split(candidates, sorted(cuts)[:3])
    parts[-1:] = [lambda last=parts[-1]: iter([last[:1], last[1:]])]
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1, "exclude": excluded}
    arguments["sample_weight"] = weights
    order, expected = (
        catalogue.rank(targets, queries, each, block_size=16, **arguments)
        for each in (catalogue.Shards(parts), candidates)
    )
    for function in (functional.ndcg, functional.recall, functional.reciprocal_rank):
        np.testing.assert_array_equal(
            *(ops.convert_to_numpy(function(each)) for each in (order, expected))
        )


def test_shards_are_mapped_by_what_users_give(rng):
    ids, queries, candidates = random_task(rng)
    rounds = []

    def map_backwards(function, parts):
        rounds.append(len(parts))
        return [function(part) for part in parts[::-1]][::-1]

    shards = catalogue.Shards([candidates[:50], candidates[50:]], map_backwards)
    found = catalogue.evaluate(ids, queries, shards, ["mrr"])
    assert found == catalogue.evaluate(ids, queries, candidates, ["mrr"])
    # How many items there are, the scores of targets, and what is above these.
    assert rounds == [2, 2, 2]


def test_a_constant_model_is_not_flattered(rng):
    ids, queries, candidates = random_task(rng)
    found = reciprocal_ranks(ids, queries, 0 * candidates, shuffle_ties="average")
    expected = np.mean(1.0 / np.arange(1, 301))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_any_split_into_batches_gives_the_same(rng):
    ids, queries, candidates = random_task(rng, targets=2)
    group = ["ndcg@10", "recall@50", "mrr"]
    whole = catalogue.evaluate(ids, queries, candidates, group)
    parts = metrics.RankingMetrics(group)
    # Of few shapes, each of which is compiled.
    for start in (0, 5, 10, 15):
        rows = slice(start, start + 5)
        parts.update_state(catalogue.rank(ids[rows], queries[rows], candidates))
    found = [float(value) for value in parts.result().values()]
    assert found == pytest.approx(list(whole.values()), rel=1e-6)


def test_averaged_ties_are_added_up_in_parts(rng, monkeypatch):
    ids, queries, candidates = random_task(rng, targets=2)
    candidates = np.round(candidates)
    arguments = ids, np.round(queries), candidates
    group = [metrics.NDCG(shuffle_ties="average"), metrics.MeanAveragePrecision(k=9)]
    whole = catalogue.evaluate(*arguments, group)
    monkeypatch.setattr(catalogue.evaluation, "MOST_RANKS", 500)
    parts = catalogue.evaluate(*arguments, group)
    assert whole == pytest.approx(parts, abs=1e-6)


def test_candidates_are_encoded_once_for_all_metrics(rng):
    ids, queries, candidates = random_task(rng)
    calls = []

    def encoded():
        calls.append(1)
        return candidates

    group = [metrics.NDCG(shuffle_ties=ties, name=str(ties)) for ties in (True, False)]
    catalogue.evaluate(ids, queries, encoded, group)
    assert len(calls) == 1


def test_metrics_keep_their_seeds(rng):
    given = [metrics.NDCG(k=2), metrics.MeanReciprocalRank()]
    seeds = [metric.seed for metric in given]
    assert seeds[0] != seeds[1]
    catalogue.evaluate(*random_task(rng), given, verbose=0)
    CatalogueEvaluation(Q, [0, 1], C, given)
    assert [metric.seed for metric in given] == seeds


class BestRank(metrics.RankingMetric):
    """Registered nowhere, as most metrics of one's own."""

    takes_sparse_labels = True

    def compute(self, lists, ranking):
        return ops.min(ops.where(ranking.ranks > 0, ranking.ranks, 1e9), axis=1)


def test_metrics_need_not_be_registered(rng):
    ids, queries, candidates = random_task(rng)
    given = [BestRank(), metrics.NDCG(k=10, gain_fn=lambda labels: labels, name="own")]
    found = catalogue.evaluate(ids, queries, candidates, [*given, "ndcg@10"], verbose=0)
    ranks = 1.0 / reciprocal_ranks(ids, queries, candidates)
    assert found["best_rank"] == pytest.approx(ranks.mean(), rel=1e-6)
    assert found["own"] == pytest.approx(found["ndcg@10"], rel=1e-6)
    assert [int(metric.variables[-1]) for metric in given] == [0, 0]


def test_a_metric_of_all_labels_is_refused_at_once(rng):
    ids, queries, candidates = random_task(rng)
    message = "`BPref` should get the labels of all items"
    with pytest.raises(ValueError, match=message):
        catalogue.evaluate(ids, queries, candidates, ["bpref"])
    with pytest.raises(ValueError, match=message):
        CatalogueEvaluation(queries, ids, candidates, ["bpref"])


def test_metrics_keep_their_state(rng):
    ids, queries, candidates = random_task(rng)
    group = metrics.RankingMetrics(["ndcg@10"], prefix="all_")
    first, again = (
        catalogue.evaluate(ids, queries, candidates, group, verbose=0) for _ in range(2)
    )
    assert list(first) == ["all_ndcg_at_10"]
    assert first == again
    assert float(group.result()["all_ndcg_at_10"]) == 0.0


@pytest.mark.parametrize("shuffle_ties", [True, False, "average"])
def test_metrics_take_ranked_lists(shuffle_ties, rng):
    labels = rng.integers(0, 4, size=(BATCH, LIST_SIZE)).astype("float32")
    scores = rng.integers(0, 3, size=(BATCH, LIST_SIZE)).astype("float32")
    order = functional.rank(labels, scores, shuffle_ties=shuffle_ties, seed=1)
    arguments = {"shuffle_ties": shuffle_ties, "seed": 1}
    metric = metrics.NDCG(k=3, **arguments)
    group = metrics.RankingMetrics([metrics.NDCG(k=3, **arguments)])
    metric.update_state(order)
    group.update_state(order)
    expected = metrics.NDCG(k=3, **arguments)
    expected.update_state(labels, scores)
    assert float(metric.result()) == float(expected.result())
    assert float(group.result()["ndcg_at_3"]) == float(expected.result())
    assert int(metric.variables[-1]) == BATCH


ORDER = "ranked lists, which include them. Received: y_pred"


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (lambda order: metrics.NDCG().update_state(order, [[0.1, 0.2]]), ORDER),
        (
            lambda order: metrics.NDCG(shuffle_ties=False).update_state(order),
            "shuffle_ties=False of the metric, shuffle_ties=True of the lists",
        ),
        (lambda order: metrics.NDCG(k=3).update_state(order), "k=3"),
        (lambda order: metrics.MeanReciprocalRank().update_state(order), "k=None"),
        (
            lambda order: metrics.FallOut(k=1).update_state(order),
            "`FallOut` should get the labels of all items.",
        ),
        (
            lambda order: metrics.RankingMetrics(["bpref"]).update_state(order),
            "`BPref` should get the labels of all items.",
        ),
        (
            lambda order: functional.precision(order, k=1, denominator="retrieved"),
            "`denominator` should be",
        ),
        (
            lambda order: functional.pairwise_accuracy(order, k=1),
            "`k` should be None for the pairs of lists that hold only the relevant",
        ),
        (
            lambda order: functional.bpref(order),
            "needs the labels of all items",
        ),
    ],
)
def test_orders_that_do_not_fit(update, message):
    order = catalogue.rank([0], [[1.0]], [[1.0], [2.0], [3.0]], k=2)
    with pytest.raises(ValueError, match=re.escape(message)):
        update(order)


Q, C = np.ones((2, 3), "float32"), np.ones((5, 3), "float32")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: catalogue.rank([0, 5], Q, C), "below the number of items, 5"),
        (lambda: catalogue.rank([0.5, 1], Q, C), "whole numbers as ids"),
        (lambda: catalogue.rank([0], Q, C), "1 rows of targets for 2 queries"),
        (lambda: catalogue.rank([0, 1], Q[0], C), "`queries` should have the shape"),
        (lambda: catalogue.rank([0, 1], Q, C[:, :2]), "the same number of features"),
        (lambda: catalogue.rank([0, 1], Q, C[0]), "`candidates` should have the shape"),
        (lambda: catalogue.rank([0, 1], Q, "items.npy"), "Received: str with a block"),
        (lambda: catalogue.rank([0, 1], Q, iter([C])), "readable more than once"),
        (lambda: catalogue.rank([0, 1], Q, lambda: iter([])), "one or more items"),
        (
            lambda: catalogue.rank([0, 1], Q, keras.layers.Embedding(5, 3)),
            "should be a built layer",
        ),
        (lambda: catalogue.rank([0, 1], Q, C, score="l2"), '"dot", "cosine"'),
        (
            lambda: catalogue.rank([0, 1], Q, C, score=lambda q, c: q),
            "one number for each query and candidate",
        ),
        (lambda: catalogue.rank([0, 1], Q, C, block_size=0), "`block_size` should be"),
        (lambda: catalogue.rank([0, 1], Q, C, exclude=[[5], [0]]), "`exclude` should"),
        (lambda: catalogue.rank([0, 1], Q, C, exclude=[0, 1]), "`exclude` should have"),
        (lambda: catalogue.rank([0, 1], Q, C, seed="x"), "`seed` should be"),
        (lambda: catalogue.Shards([]), "`parts` should be a list of one or more parts"),
        (lambda: catalogue.Shards([C], map_fn=2), "`map_fn` should be a function"),
        (
            lambda: catalogue.rank([0, 1], Q, catalogue.Shards([C, C[:, :2]])),
            "`parts` should have the same number of features",
        ),
        (
            lambda: catalogue.rank(
                [0, 1], Q, catalogue.Shards([C, C], map_fn=lambda f, parts: [])
            ),
            "0 results for 2 parts",
        ),
        (
            lambda: catalogue.rank(
                [0, 1], Q, catalogue.Shards([C, C], map_fn=mapped_ever_less())
            ),
            "1 results for 2 parts",
        ),
        (
            lambda: catalogue.rank(
                [0, 1], Q, catalogue.Shards([C, C], map_fn=lambda f, parts: None)
            ),
            "`map_fn` should return or yield the result of the function for each part. "
            "Received: NoneType",
        ),
        (
            lambda: catalogue.rank(
                [0, 1],
                Q,
                catalogue.Shards([C, C], map_fn=lambda f, parts: [None] * len(parts)),
            ),
            "Received: None for part 0",
        ),
        (
            lambda: catalogue.rank(
                [0, 1],
                Q,
                catalogue.Shards(
                    [C, C], map_fn=lambda f, parts: [f(x) for x in [*parts, parts[0]]]
                ),
            ),
            "3 results for 2 parts",
        ),
        (
            lambda: catalogue.rank([0, 1], Q, [C, C[:, :2]]),
            "number of features in each block. Received: blocks with 3 and 2 features",
        ),
        (
            lambda: CatalogueEvaluation(Q, [0, 1], C, ["mrr"]).on_epoch_end(
                0, {"loss": 0.1, "val_mrr": 0.5}
            ),
            "`prefix` should give keys that are not in the logs yet",
        ),
        (
            lambda: catalogue.rank([0, 10], Q, catalogue.Shards([C, C])),
            "below the number of items, 10",
        ),
        (lambda: catalogue.evaluate([0, 1], Q, C, ["bpref"]), "labels of all items"),
        (lambda: catalogue.evaluate([0, 1], Q, C, []), "`metrics` should be a list"),
        (lambda: catalogue.evaluate([0, 1], Q, C, ["mrr"], verbose=3), "`verbose`"),
        (
            lambda: CatalogueEvaluation(Q, [0, 1], C, ["mrr"], frequency=0),
            "`frequency` should be a positive integer",
        ),
        (
            lambda: CatalogueEvaluation(Q, [0, 1], C, ["mrr"], score="bla"),
            "`score` should be",
        ),
        (
            lambda: CatalogueEvaluation(Q, [0, 1], C, ["mrr"], block_size=-1),
            "`block_size` should be a positive integer or None",
        ),
        (
            lambda: CatalogueEvaluation(Q, [0, 1], C, ["mrr"], batch_size="x"),
            "`batch_size` should be a positive integer or None",
        ),
        (
            lambda: CatalogueEvaluation(Q, [0, 1], C, ["mrr"], verbose=7),
            '`verbose` should be "auto", 0, 1 or 2. Received: verbose=7',
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.skipif(BACKEND not in ("jax", "tensorflow"), reason="nothing is traced")
def test_candidates_are_not_ranked_in_compiled_functions():
    def compiled(queries):
        return functional.ndcg(catalogue.rank([0, 1], queries, C))

    with pytest.raises(ValueError, match="outside compiled functions"):
        backend.compiled(compiled, is_ours=False)(ops.convert_to_tensor(Q))


def test_no_queries():
    order = catalogue.rank(np.zeros((0, 1), int), np.zeros((0, 3)), C)
    assert tuple(functional.ndcg(order).shape) == (0,)


@pytest.mark.skipif(BACKEND != "numpy", reason="its memory alone is traced")
def test_one_list_of_many_targets_takes_little_memory(rng):
    """It makes each list as long as it is itself, but no longer than that."""
    ids = np.full((1000, 1000), -1)
    ids[:, 0], ids[0] = rng.integers(0, 5000, 1000), rng.permutation(5000)[:1000]
    queries, candidates = (
        rng.normal(size=(number, 4)).astype("float32") for number in (1000, 5000)
    )
    tracemalloc.start()
    catalogue.evaluate(ids, queries, candidates, ["ndcg@10", "mrr"], verbose=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 * ids.nbytes


def test_a_large_id_is_that_of_its_item():
    """In lists of uneven length and as floats, where float32 knows no odd number."""
    target = 2**24 + 1
    items = -np.arange(target + 7, dtype="float32")[:, None]
    items[target] = 10.0
    queries = np.ones((2, 1), "float32")
    arguments = {"block_size": 2**22, "verbose": 0}
    for ids in ([[target], [5, target]], np.array([[target, -1.0], [5.0, target]])):
        found = catalogue.evaluate(ids, queries, items, ["mrr"], **arguments)
        assert found["mrr"] == 1.0
        found = catalogue.evaluate(
            [0, 0], queries, items, ["mrr"], exclude=ids, **arguments
        )
        assert found["mrr"] == 1.0


@pytest.mark.parametrize("padding", [-7, -(2**32), -(2**63)])
def test_an_excluded_id_below_zero_is_padding(padding):
    """However far below: in int32 the last two would be that of the first item."""
    excluded = np.full((3, 1), padding, "int64")
    _, ids = catalogue.top_k(np.eye(3), np.eye(3), k=3, exclude=excluded)
    assert ops.convert_to_numpy(ids)[:, 0].tolist() == [0, 1, 2]


def test_nothing_is_excluded_in_shards():
    """Ids stay integers on their way to where parts are counted."""
    shards = catalogue.Shards([np.eye(3)[:2], np.eye(3)[2:]])
    nothing = np.zeros((3, 0), "int64")
    found = reciprocal_ranks([0, 1, 2], np.eye(3), shards, exclude=nothing)
    np.testing.assert_array_equal(found, [1.0, 1.0, 1.0])


def test_nothing_is_excluded_where_targets_are_many(monkeypatch):
    """Nor is it searched: on an accelerator, that would be a loop over no entries."""
    monkeypatch.setattr(backend, "MOST_COMPARISONS", 0)
    monkeypatch.setattr(backend, "on_accelerator", lambda: True)
    _kept_step.cache_clear()
    candidates = np.array([[2.0], [1.0], [1.0], [3.0]])
    found = reciprocal_ranks(
        [[1], [2]],
        np.ones((2, 1)),
        candidates,
        exclude=np.zeros((2, 0), "int64"),
        shuffle_ties=False,
    )
    _kept_step.cache_clear()
    np.testing.assert_allclose(found, [1 / 3, 1 / 4])


def shuffled(candidates):
    """But for the first one."""
    rng = np.random.default_rng(0)
    return lambda: iter([candidates[:1], rng.permutation(candidates[1:])])


def turned(candidates):
    turns = itertools.count()
    return lambda: iter([np.roll(candidates, next(turns), axis=0)])


def shrinking(candidates):
    lengths = iter(range(300, 0, -7))
    return lambda: iter([candidates[: next(lengths)]])


def growing(candidates):
    lengths = iter(range(200, 300, 7))
    return lambda: iter([candidates[: next(lengths)]])


def used_up(candidates):
    blocks = iter([candidates[:100], candidates[100:]])
    return lambda: blocks


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (used_up, "300 items at first, 0 when they were read again"),
        (shuffled, "whose scores changed from one pass to the next"),
        (turned, "another first item when they were read again"),
        (shrinking, "293 items at first, 286 when they were read again"),
        (growing, "207 items at first, 214 when they were read again"),
        (
            lambda c: catalogue.Shards([c[:9], shrinking(c)]),
            "items at first, ",
        ),
        (
            lambda c: catalogue.Shards([c[:9], shuffled(c)]),
            "whose scores changed from one pass to the next",
        ),
    ],
)
def test_candidates_that_change_between_passes(source, message, rng):
    ids, queries, candidates = random_task(rng, items=300)
    with pytest.raises(ValueError, match=re.escape(message)):
        catalogue.rank(ids % 200, queries, source(candidates))


@pytest.mark.parametrize("kind", [tuple, list])
def test_blocks_beside_labels(kind):
    """As data sets give them: of embeddings and labels."""
    candidates = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.7]])
    blocks = [kind((part, np.zeros(len(part)))) for part in np.split(candidates, [2])]
    for source in (blocks, tuple(blocks), lambda: blocks):
        found = reciprocal_ranks([0, 1], np.eye(2), source)
        np.testing.assert_array_equal(found, [1.0, 0.5])


@pytest.mark.skipif(BACKEND == "jax", reason="has no float64 unless asked for")
def test_blocks_of_a_stream_in_different_dtypes(rng):
    ids, queries, candidates = random_task(rng)
    candidates = 1.0 + 1e-9 * candidates.astype("float64")
    blocks = [candidates[:100].astype("float32"), candidates[100:]]
    joined = np.concatenate(blocks)
    np.testing.assert_array_equal(
        *(reciprocal_ranks(ids, queries, each, seed=1) for each in (blocks, joined))
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_a_score_that_depends_on_others(axis, rng):
    ids, queries, candidates = random_task(rng)

    def softmax(queries, block):
        return ops.softmax(ops.matmul(queries, ops.transpose(block)), axis=axis)

    with pytest.raises(ValueError, match="`score` should give each pair"):
        catalogue.rank(ids, queries, candidates, score=softmax, block_size=100)


def test_cosines_of_very_long_and_very_short_vectors(rng):
    ids, queries, candidates = random_task(rng)
    arguments = {"score": "cosine", "seed": 1}
    expected = reciprocal_ranks(ids, queries, candidates, **arguments)
    for scale in (1e25, 1e-25):
        scaled = (candidates * scale).astype("float32")
        found = reciprocal_ranks(
            ids, (queries * scale).astype("float32"), scaled, **arguments
        )
        np.testing.assert_allclose(found, expected)


def test_a_function_that_returns_a_layer(rng):
    ids, queries, candidates = random_task(rng)
    layer = embedding_of(candidates)
    np.testing.assert_array_equal(
        *(
            reciprocal_ranks(ids, queries, each, seed=1)
            for each in (layer, lambda: layer)
        )
    )


def test_a_stream_is_not_padded_to_a_huge_block(rng):
    ids, queries, candidates = random_task(rng)
    sizes = []

    def by_product(queries, block):
        sizes.append(block.shape[0])
        return ops.matmul(queries, ops.transpose(block))

    catalogue.rank(
        ids, queries, in_blocks(candidates), score=by_product, block_size=10**7
    )
    assert set(sizes) == {300}


@pytest.mark.skipif(BACKEND == "torch", reason="they are its own")
@pytest.mark.parametrize(
    "options", [{"dtype": "bfloat16"}, {"requires_grad": True}], ids=str
)
def test_tensors_of_torch_on_other_backends(options, rng):
    torch = pytest.importorskip("torch")
    options = {**options, "dtype": getattr(torch, options.get("dtype", "float32"))}
    queries, candidates = (
        torch.tensor(rng.integers(-3, 4, shape).tolist(), **options)
        for shape in ((4, 3), (50, 3))
    )
    ids = np.arange(4)
    arrays = [x.detach().float().numpy() for x in (queries, candidates)]
    expected = reciprocal_ranks(ids, *arrays, seed=1)
    for each in (candidates, lambda: [candidates[:7], candidates[7:]]):
        found = reciprocal_ranks(ids, queries, each, seed=1)
        np.testing.assert_array_equal(found, expected)


def mapped_ever_less():
    """All the parts when it is called first, and then one less."""
    number = iter([2, 1])
    return lambda function, parts: [function(x) for x in parts[: next(number)]]


def test_all_are_excluded_but_targets():
    everything = np.tile(np.arange(5), (2, 1))
    values = reciprocal_ranks([[0, 4], [2, -1]], Q, C, exclude=everything)
    np.testing.assert_allclose(values, 1.0)


@pytest.mark.parametrize("verbose", [1, 2])
def test_progress_is_shown_where_asked_for(verbose, capsys):
    catalogue.evaluate([0, 1], Q, C, ["mrr"], verbose=verbose)
    assert "5/5" in capsys.readouterr().out
    catalogue.evaluate([0, 1], Q, C, ["mrr"])
    assert capsys.readouterr().out == ""


def retrieval_model():
    user, item = keras.Input((), dtype="int32"), keras.Input((), dtype="int32")
    users, items = keras.layers.Embedding(6, 4), keras.layers.Embedding(30, 4)
    score = keras.layers.Dot(axes=1)([users(user), items(item)])
    model = keras.Model([user, item], score)
    model.compile(keras.optimizers.Adam(0.05), "mse")
    return model, keras.Model(user, users(user)), items


@pytest.mark.trains
def test_fit_shows_results_to_the_callbacks_after(tmp_path):
    model, query_model, items = retrieval_model()
    users = np.arange(6)
    evaluation = CatalogueEvaluation(
        users,
        users * 4,
        lambda: items.embeddings,
        ["ndcg@10", "mrr"],
        query_model=query_model,
        frequency=2,
    )
    path = tmp_path / "best.weights.h5"
    stopping = keras.callbacks.EarlyStopping("val_ndcg_at_10", mode="max", patience=50)
    best = keras.callbacks.ModelCheckpoint(
        path, "val_mrr", mode="max", save_best_only=True, save_weights_only=True
    )
    pairs = [np.repeat(users, 30), np.tile(np.arange(30), 6)]
    labels = (pairs[1] == pairs[0] * 4).astype("float32")
    history = model.fit(
        pairs,
        labels,
        epochs=4,
        verbose=0,
        callbacks=[evaluation],
    ).history
    assert len(history["val_ndcg_at_10"]) == 2
    evaluation.frequency = 1
    model.fit(
        pairs, labels, epochs=2, verbose=0, callbacks=[evaluation, stopping, best]
    )
    assert path.exists()
    assert stopping.best == pytest.approx(max(model.history.history["val_ndcg_at_10"]))
    expected = catalogue.evaluate(
        users * 4, query_model.predict(users, verbose=0), items, ["mrr"]
    )
    assert model.history.history["val_mrr"][-1] == pytest.approx(expected["mrr"])


@pytest.mark.trains
@pytest.mark.parametrize("swap_on_epoch", [False, True])
def test_averaged_weights_are_evaluated_as_in_validation(swap_on_epoch):
    """Before and after the callback that swaps them in, and by a callback of one's own.

    The model scores all items, so a compiled metric computes the same.
    """
    users, targets, items = np.arange(6), np.arange(6) * 4, 30

    class Caller(keras.callbacks.Callback):
        def __init__(self, callback):
            super().__init__()
            self.callback = callback

        def on_epoch_end(self, epoch, logs=None):
            self.callback.set_model(self.model)
            self.callback.on_epoch_end(epoch, logs)

    def fit(callbacks, **validation):
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(6, 4), keras.layers.Dense(items)]
        model = keras.Sequential([keras.Input((), dtype="int32"), *layers])
        adam = keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.9)
        metric = metrics.MeanReciprocalRank(sparse_labels=True)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(adam, loss, metrics=[metric])
        given = {"epochs": 2, "batch_size": 3, "shuffle": False, "verbose": 0}
        return model.fit(users, targets, callbacks=callbacks, **given, **validation)

    def evaluation(prefix):
        return CatalogueEvaluation(
            users, targets, np.eye(items), ["mrr"], prefix=prefix
        )

    def logs(*callbacks, **validation):
        history = fit(callbacks, **validation).history
        return {name: x for name, x in history.items() if name.endswith("_mrr")}

    raw = logs(evaluation("raw_"))["raw_mrr"]
    evaluations = [evaluation("first_"), Caller(evaluation("second_"))]
    found = []
    for validation in ({"validation_data": (users, targets)}, {}):
        first, second = (keras.callbacks.SwapEMAWeights(swap_on_epoch) for _ in "12")
        found.append(logs(*evaluations, first, **validation))
        found.append(logs(second, *evaluations, **validation))
    averaged = found[0]["val_mrr"]
    assert raw != averaged
    assert [len(each) for each in found] == [3, 3, 2, 2]
    for values in (values for each in found for values in each.values()):
        assert values == pytest.approx(averaged, abs=1e-6)


@pytest.mark.trains
def test_averaged_weights_outlive_an_evaluation(tmp_path):
    """Where Keras makes weights and averages the same memory, after the last epoch."""
    model, query_model, items = retrieval_model()
    users = np.arange(6)
    adam = keras.optimizers.Adam(0.1, use_ema=True)
    model.compile(adam, "mse")
    evaluation = CatalogueEvaluation(
        users, users, items, ["mrr"], query_model=query_model
    )
    callbacks = [
        keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
        evaluation,
        keras.callbacks.ModelCheckpoint(
            tmp_path / "model.weights.h5", verbose=0, save_weights_only=True
        ),
    ]
    pairs = [users, users]
    model.fit(pairs, np.ones(6), epochs=2, verbose=0, callbacks=callbacks)
    assert np.isfinite(model.evaluate(pairs, np.ones(6), verbose=0))


@pytest.mark.trains
def test_averaged_weights_need_an_optimizer_that_averages():
    model, query_model, items = retrieval_model()
    users = np.arange(6)
    evaluation = CatalogueEvaluation(
        users, users, items, ["mrr"], query_model=query_model
    )
    callbacks = [evaluation, keras.callbacks.SwapEMAWeights()]
    with pytest.raises(ValueError, match="`use_ema=True` is set on the optimizer"):
        model.fit([users, users], np.ones(6), verbose=0, callbacks=callbacks)


def test_a_query_model_predicts():
    message = "`query_model` should be a model with a method `predict`, or None. Rec"
    with pytest.raises(ValueError, match=message):
        CatalogueEvaluation([[0]], [0], [[1.0]], ["mrr"], query_model=3)


@pytest.mark.trains
def test_fit_fails_early_and_warns():
    model, query_model, items = retrieval_model()
    pairs = [np.arange(6), np.arange(6)]

    def fit(targets, candidates, *before):
        callback = CatalogueEvaluation(
            np.arange(6), targets, candidates, ["mrr"], query_model=query_model
        )
        model.fit(pairs, np.ones(6), verbose=0, callbacks=[*before, callback])

    with pytest.raises(ValueError, match="below the number of items, 30"):
        fit(np.arange(6) + 30, items)
    with pytest.raises(ValueError, match="the same number of features"):
        fit(np.arange(6), np.ones((30, 5)))
    logger = keras.callbacks.TerminateOnNaN()
    stopping = keras.callbacks.EarlyStopping("loss")
    with pytest.warns(UserWarning, match="`EarlyStopping` should be listed after"):
        fit(np.arange(6), items, logger, stopping)
    # What has no results to miss is let be.
    fit(np.arange(6), items, keras.callbacks.LearningRateScheduler(lambda epoch: 0.1))


@pytest.mark.trains
@pytest.mark.parametrize(
    "make",
    [
        lambda folder: keras.callbacks.CSVLogger(folder / "log.csv"),
        lambda folder: keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None),
        lambda folder: keras.callbacks.ModelCheckpoint(folder / "{epoch}.keras"),
        lambda folder: keras.callbacks.TensorBoard(folder),
    ],
)
def test_who_reads_the_logs_too_early_is_told(make, tmp_path):
    model, query_model, items = retrieval_model()
    users = np.arange(6)
    evaluation = CatalogueEvaluation(
        users, users, items, ["mrr"], query_model=query_model
    )
    early = make(tmp_path)
    message = f"`{type(early).__name__}` should be listed after .* such as 'val_mrr'"
    with pytest.warns(UserWarning, match=message):
        model.fit([users, users], np.ones(6), verbose=0, callbacks=[early, evaluation])


@pytest.mark.parametrize("labels", [np.eye(3, dtype=int), [[2, 0, 0], [0, 2, 2]]])
def test_labels_for_all_items_are_no_targets(labels):
    message = "For a label for each item, such as a one-hot matrix, give the ids"
    with pytest.raises(ValueError, match=message):
        catalogue.evaluate(labels, np.eye(3)[: len(labels)], np.eye(3), ["mrr"])


def lists_of_targets(targets):
    return [list(row) for row in targets.tolist()]


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x,
        lambda x: {"ids": x, "labels": np.ones(x.shape)},
        lists_of_targets,
        pytest.param(
            lambda x: pytest.importorskip("torch").from_numpy(x), id="of torch"
        ),
    ],
)
def test_what_a_callback_keeps_may_change_afterwards(form, rng):
    """All but inputs and candidates, which are read again after each epoch."""
    _, queries, candidates = random_task(rng)
    number = len(queries)
    given = {
        "targets": form(rng.integers(0, 300, (number, 2))),
        "sample_weight": rng.random(number).astype("float32"),
        "exclude": rng.integers(0, 300, (number, 5)),
    }
    metric = metrics.NDCG(k=20, seed=1)
    expected = catalogue.evaluate(
        queries=queries, candidates=candidates, metrics=metric, **given
    )
    features = keras.Input((queries.shape[1],))
    model = keras.Model(features, keras.layers.Identity()(features))
    callback = CatalogueEvaluation(
        queries, candidates=candidates, metrics=metric, **given
    )
    for part in keras.tree.flatten({**given, "targets": None}):
        if part is not None:
            part[:] = 0
    targets = given["targets"]
    for part in targets.values() if isinstance(targets, dict) else [targets]:
        part[:] = [[7, 7]] * number if isinstance(part, list) else 7
    callback.set_model(model)
    logs = {}
    callback.on_train_begin()
    callback.on_epoch_end(0, logs)
    assert logs == {"val_ndcg_at_20": expected["ndcg_at_20"]}


def test_ranks_do_not_depend_on_what_happens_to_the_arrays(rng):
    ids, queries, candidates = random_task(rng)
    ids = ids.reshape(-1, 1)
    labels, weights = np.ones(ids.shape, "int64"), rng.random(len(ids))
    given = {"ids": ids, "labels": labels}
    metric = metrics.PairwiseAccuracy(shuffle_ties=False)

    def number(after):
        ranked = catalogue.rank(
            given, queries, candidates, sample_weight=weights, shuffle_ties=False
        )
        after()
        metric.reset_state()
        metric.update_state(ranked)
        return float(metric.result())

    def change():
        for array in (ids, queries, candidates, weights):
            array[:] = 0
        # That these tie would be an error.
        labels[:] = 2**62 + np.arange(len(labels))[:, None]

    assert number(lambda: None) == number(change)


@pytest.mark.parametrize("make", [lambda x: x, "torch"])
def test_blocks_may_be_read_into_the_same_memory(make, rng):
    ids, queries, candidates = random_task(rng)
    if make == "torch":
        make = pytest.importorskip("torch").from_numpy

    def blocks():
        buffer = np.zeros((20, candidates.shape[1]), "float32")
        for first in range(0, len(candidates), 20):
            buffer[:] = candidates[first : first + 20]
            yield make(buffer)

    options = {"block_size": 64, "shuffle_ties": False}
    found = reciprocal_ranks(ids, queries, blocks, **options)
    expected = reciprocal_ranks(ids, queries, candidates, **options)
    np.testing.assert_array_equal(found, expected)


def test_targets_are_read_once_for_all_parts(rng, monkeypatch):
    """With ties, lists are ranked in parts that memory has room for."""
    ids, queries, candidates = random_task(rng)
    targets = {"ids": ids, "labels": np.ones(ids.shape)}
    metric = metrics.MeanReciprocalRank(shuffle_ties="average")
    expected = catalogue.evaluate(targets, queries, candidates, metric)
    read, tied_labels = [], catalogue.evaluation.tied_labels

    def counted(argument, value, **arguments):
        read.append(argument)
        return tied_labels(argument, value, **arguments)

    monkeypatch.setattr(catalogue.evaluation, "MOST_RANKS", 1)
    monkeypatch.setattr(catalogue.evaluation, "tied_labels", counted)
    assert catalogue.evaluate(targets, queries, candidates, metric) == expected
    assert read == ["targets"]


COPIES = "`candidates` should hold each item once. Received: most targets, such as"


@pytest.mark.parametrize("block_size", [None, 7])
@pytest.mark.parametrize(
    "form", [lambda x: x, lambda x: lambda: x, lambda x: [x[:20], x[20:]]]
)
def test_copies_of_targets_are_warned_of(form, block_size, rng):
    """A copy of the target takes a rank: by chance, it is first or second."""
    candidates = np.repeat(rng.normal(size=(30, 8)).astype("float32"), 2, axis=0)
    given = np.arange(0, 60, 2), 9.0 * candidates[::2], form(candidates)
    exact = metrics.MeanReciprocalRank(shuffle_ties="average")
    with pytest.warns(UserWarning, match=COPIES):
        found = catalogue.evaluate(*given, exact, block_size=block_size, score="cosine")
    assert found["mrr"] == pytest.approx((1 + 1 / 2) / 2)
    # Without a word where the copies take no rank.
    excluded = {"exclude": np.arange(1, 60, 2)[:, None]}
    catalogue.evaluate(*given, exact, **excluded, block_size=block_size)


def test_what_ties_need_not_be_a_copy(rng):
    queries = rng.normal(size=(20, 4)).astype("float32")
    candidates = rng.normal(size=(40, 4)).astype("float32")
    ids = np.arange(20)
    catalogue.evaluate(ids, queries, candidates, ["mrr"], score=rounded)
    # A constant model, by its queries, its items, or both.
    ones = np.ones_like
    catalogue.evaluate(ids, queries, ones(candidates), ["mrr"])
    catalogue.evaluate(ids, 0.0 * queries, candidates, ["mrr"])
    # Copies of items that few are looking for.
    candidates[20:] = candidates[20]
    catalogue.evaluate(ids, queries, candidates, ["mrr"])
    # The popularity of items, which several share.
    popularity = np.arange(40.0)[:, None] // 4
    catalogue.evaluate(ids, ones(queries[:, :1]), popularity, ["mrr"])


def rounded(queries, candidates):
    return ops.round(ops.matmul(queries, ops.transpose(candidates)))


def fitted(candidates, *, query_model=None, model=None, epochs=2, **arguments):
    """Trains a model of users and items, evaluated after each epoch."""
    own, of_users, _ = retrieval_model()
    users = np.arange(6)
    callback = CatalogueEvaluation(
        users,
        arguments.pop("targets", users * 4),
        candidates,
        arguments.pop("metrics", ["mrr"]),
        query_model=of_users if query_model is None else query_model,
        **arguments,
    )
    given = [np.repeat(users, 30), np.tile(np.arange(30), 6)], np.ones(180)
    (model or own).fit(*given, epochs=epochs, verbose=0, callbacks=[callback])
    return callback


def of_ours(caught):
    """Keras is warned of its own conversions by NumPy."""
    return [each for each in caught if each.category is UserWarning]


@pytest.mark.trains
def test_copies_are_warned_of_once_in_fit(rng):
    candidates = np.repeat(rng.normal(size=(15, 4)).astype("float32"), 2, axis=0)
    with pytest.warns(UserWarning, match=COPIES) as caught:
        fitted(lambda: candidates)
    assert len(of_ours(caught)) == 1


@pytest.mark.trains
def test_an_array_that_stays_as_it_is_while_items_are_trained_is_warned_of(rng):
    model, query_model, items = retrieval_model()
    array = np.array(ops.convert_to_numpy(items.embeddings))
    with pytest.warns(UserWarning, match="`candidates` should be a function") as caught:
        fitted(array, query_model=query_model, model=model)
    assert len(of_ours(caught)) == 1
    assert items.embeddings.path in str(of_ours(caught)[0].message)
    # What is meant, or is read again.
    for candidates in (lambda: array, items, items.embeddings, lambda: items):
        fitted(candidates, query_model=query_model, model=model)
    # An array that is written to in each epoch.
    write = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: np.copyto(array, ops.convert_to_numpy(items.embeddings))
    )
    callback = CatalogueEvaluation(
        np.arange(6), np.arange(6), array, ["mrr"], query_model=query_model
    )
    given = [np.arange(6), np.arange(6)], np.ones(6)
    with pytest.warns(UserWarning, match="`LambdaCallback` should be listed after"):
        model.fit(*given, epochs=2, verbose=0, callbacks=[write, callback])
    # Items that are not trained.
    items.trainable = False
    model.compile("sgd", "mse")
    fitted(np.ones((30, 4)), query_model=query_model, model=model)


@pytest.mark.trains
def test_lists_without_a_relevant_item_are_warned_of():
    """Half of the users have no item: they count as 0 unless they are left out."""
    targets = np.array([0, -1, 8, -1, 16, -1])
    constant = np.ones((30, 4), "float32")
    message = re.escape(
        "3 of 6 lists have no relevant item, and count as 0.0 in 'val_mrr'. To leave "
        "them out, pass only lists that have one, or "
        "`MeanReciprocalRank(..., empty_value=None)`"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        fitted(lambda: constant, targets=targets)
    assert len(of_ours(caught)) == 1
    fitted(
        lambda: constant,
        targets=targets,
        metrics=[metrics.MeanReciprocalRank(empty_value=None)],
    )
    # Padding is not in any list.
    fitted(lambda: constant, targets=np.stack([np.arange(6), targets], 1))
    fitted(lambda: constant, targets=targets, sample_weight=targets >= 0)


@pytest.mark.trains
def test_weights_that_are_none_are_warned_of():
    weights = np.array([1.0, np.nan, 1.0, -2.0, 0.0, 1.0])
    message = "2 of 6 weights that are negative or NaN, the first, nan, in row 1. Th"
    with pytest.warns(UserWarning, match=message) as caught:
        fitted(lambda: np.ones((30, 4), "float32"), sample_weight=weights)
    assert len(of_ours(caught)) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: catalogue.rank([[0, 1], [2, 7]], Q, C),
            "below the number of items, 5. Received: a larger id, 7, in row 1",
        ),
        (
            lambda: catalogue.rank({"ids": [0, 9], "labels": [1, 1]}, Q, C),
            "Received: a larger id, 9, in row 1",
        ),
        (
            lambda: catalogue.top_k(Q, C, 2, exclude=[[1, -1], [0, 6]]),
            "`exclude` should hold ids below the number of items, 5. Received: a "
            "larger id, 6, in row 1",
        ),
        (
            lambda: catalogue.rank([[0, 1], [2, 1.5]], Q, C),
            "Received: a fraction, 1.5, in row 1",
        ),
        (
            lambda: catalogue.rank([{0, 1}, {2}], Q, C),
            "`targets` should hold real numbers. Received: targets of dtype object, "
            "of sets: pass lists",
        ),
        (
            lambda: catalogue.rank({0, 1}, Q, C),
            "Received: targets of type set, without an order: pass lists",
        ),
        (
            lambda: catalogue.top_k(Q, C, 2, exclude=[{0, 1}, {2}]),
            "Received: exclude of dtype object, of sets: pass lists",
        ),
        (
            lambda: catalogue.rank({7: {0, 1}, 8: {2}}, Q, C),
            '`targets` should be ids, or a dict with the keys "ids", "labels"',
        ),
        (
            lambda: catalogue.rank({0: [1], 1: [2]}.values(), Q, C),
            "Received: targets of type dict_values: pass `list(targets)`",
        ),
        (
            lambda: CatalogueEvaluation(Q, "item_id", C, ["mrr"]),
            "Received: targets of type str: for a column of a table, pass "
            "`df['item_id']`",
        ),
        (
            lambda: CatalogueEvaluation(Q, [{0}, {1}], C, ["mrr"]),
            "of sets: pass lists",
        ),
        (
            lambda: catalogue.rank([0, 1], Q, keras.Sequential([])),
            "`candidates` should be embeddings, or a function such as "
            "`lambda: model.predict(items)`. Received: candidates=<Sequential",
        ),
        (
            lambda: CatalogueEvaluation(Q, [0, 1], keras.layers.Dense(3), ["mrr"]),
            "`lambda: model.predict(items)`. Received: candidates=<Dense name=",
        ),
    ],
)
def test_errors_say_where_and_what_to_do(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
