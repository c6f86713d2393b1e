"""Metrics of exposure: values equal those of plain Python, in any batches."""

import itertools
import re
from collections import Counter
from fractions import Fraction

import keras
import numpy as np
import oracle
import pytest
from compiled import COMPILERS
from hypothesis import given
from hypothesis import strategies as st
from keras import ops
from precision import default_precision
from recording import results
from registry import IS_SLOW
from strategies import BATCH, LIST_SIZE, batches, splits
from test_catalogue import ITEMS, score_matrix, tasks

from keras_rank import catalogue, utils
from keras_rank.catalogue import candidates as candidates_module
from keras_rank.metrics import (
    NDCG,
    AveragePopularity,
    Coverage,
    Gini,
    IntraListDiversity,
    Novelty,
    Personalization,
    RankingMetrics,
    base,
)
from keras_rank.metrics.diversity import intra_list_diversity

# Compiled programs of few shapes are shared by many tests.
pytestmark = pytest.mark.programs

SEED = 3
PURCHASES = [30.0, 0.0, 5.0, 1.0, 7.5, 2.0, 900.0]
POPULARITY = [1.0, 0.5, 0.25, 0.001, 0.3, 0.7, 0.01]
EVERY_K = [1, 3] if IS_SLOW else [1, 2, 3, LIST_SIZE, 20]


def make_vectors(items):
    """Returns vectors in five directions, some of them equal, and one zero vector."""
    angles = np.arange(items) % 5
    vectors = np.stack([np.cos(angles), np.sin(angles), angles / 3], axis=1)
    vectors[1] = 0
    return vectors


def all_metrics(
    k, items=LIST_SIZE, purchases=PURCHASES, popularity=POPULARITY, **arguments
):
    return [
        Coverage(k, items=items, **arguments),
        Gini(k, items=items, **arguments),
        AveragePopularity(k, popularity=purchases, **arguments),
        Personalization(k, items=items, **arguments),
        Novelty(k, popularity=popularity, **arguments),
        IntraListDiversity(k, item_vectors=make_vectors(len(purchases)), **arguments),
    ]


def recommended_ids(labels, scores, weights, k, ties):
    """Yields the ids of the top k of each list, in plain Python."""
    ids, number = np.where(labels >= 0, np.arange(LIST_SIZE), -1), 0
    for row in zip(ids, scores, weights, strict=True):
        # The label of an item is its id.
        items = oracle.make_items(*row)
        ranked = next(oracle.possible_orders(items, ties, SEED, number))
        yield [int(item.label) for item in ranked[:k]]
        number += bool(items)


def cosine(x, y):
    norms = np.linalg.norm(x) * np.linalg.norm(y)
    return x @ y / norms if norms else 0.0


def diversities(recommended, vectors):
    """Yields the mean distance of the pairs of each list with two items or more."""
    for pairs in (list(itertools.combinations(each, 2)) for each in recommended):
        if pairs:
            yield np.mean([1 - cosine(vectors[i], vectors[j]) for i, j in pairs])


def expected_results(recommended):
    """Returns the results as plain sums over recommended items, and over pairs."""
    recommended = [each for each in recommended if each]
    counts = Counter(i for each in recommended for i in each)
    numbers, total = [counts[i] for i in range(LIST_SIZE)], counts.total()
    if not total:
        return [0.0] * 6
    differences = sum(abs(x - y) for x in numbers for y in numbers)
    others = sum(len({*x} - {*y}) for x, y in itertools.permutations(recommended, 2))
    values = list(diversities(recommended, make_vectors(LIST_SIZE)))
    return [
        sum(x > 0 for x in numbers) / LIST_SIZE,
        differences / (2 * LIST_SIZE * total),
        np.dot(numbers, PURCHASES) / total,
        others / (total * max(len(recommended) - 1, 1)),
        np.dot(numbers, -np.log2(POPULARITY)) / total,
        np.mean(values) if values else 0.0,
    ]


def read_results(metrics):
    return [float(metric.result()) for metric in metrics]


@pytest.mark.compiles_long
@given(
    batch=batches(weighted=True),
    parts=splits,
    k=st.sampled_from(EVERY_K),
    shuffle_ties=st.booleans(),
    is_group=st.booleans(),
)
def test_equals_plain_python_in_any_batches(batch, parts, k, shuffle_ties, is_group):
    metrics = all_metrics(k, shuffle_ties=shuffle_ties, seed=SEED)
    group = RankingMetrics([NDCG(k=k), *metrics])
    for start, stop in zip([0, *parts], [*parts, BATCH], strict=True):
        for metric in [group] if is_group else metrics:
            metric.update_state(*(x[start:stop] for x in batch))
    recommended = recommended_ids(*batch, k, "shuffle" if shuffle_ties else "stable")
    expected = expected_results(recommended)
    actual = (
        [*map(float, group.result().values())][1:]
        if is_group
        else read_results(metrics)
    )
    assert actual == pytest.approx(expected, rel=1e-6, abs=2e-7)


# Drawn embeddings are small integers, so that many are equal.
@pytest.mark.compiles_long
@pytest.mark.filterwarnings("ignore:`candidates` should hold each item once")
@given(task=tasks(), k=st.sampled_from([1, 4, ITEMS]), shuffle_ties=st.booleans())
def test_a_catalogue_equals_its_matrix_of_scores(task, k, shuffle_ties):
    """Neither the relevant items nor weights above 0 change the values."""
    targets, queries, candidates, seen, weights = task
    popularity = np.linspace(0.01, 1.0, ITEMS)

    def metrics(items=None, **more):
        more |= {"shuffle_ties": shuffle_ties, "seed": SEED}
        recommended = all_metrics(k, items, popularity, popularity, **more)
        return [NDCG(k=4, **more), *recommended, Gini(50, items=items, **more)]

    group = RankingMetrics(metrics(ITEMS, sparse_labels=True))
    scores = score_matrix(queries, candidates, seen, targets)
    group.update_state(targets, scores, weights)
    expected = results(group)
    options = {"sample_weight": weights, "exclude": seen, "block_size": 7, "verbose": 0}
    for each in (candidates, catalogue.Shards([candidates[:11], candidates[11:]])):
        actual = catalogue.evaluate(targets, queries, each, metrics(), **options)
        assert list(actual) == list(expected)
        assert actual == pytest.approx(expected, rel=2e-6)


def test_items_beyond_the_cutoff_do_not_count():
    assert float(Coverage(1, items=4)([[2, 0], [2, 1]])) == 1 / 4


def test_repeated_ids_of_a_list_count_once():
    """Otherwise a list could differ from itself, and personalization be negative."""
    metrics, others = all_metrics(3), all_metrics(3)
    for metric, other in zip(metrics, others, strict=True):
        metric.update_state([[2, 0, 2], [4, 4, 4], [-1, 3, 3]])
        other.update_state([[2, 0, -1], [4, -1, -1], [-1, 3, -1]])
    assert read_results(metrics) == read_results(others)
    assert read_results(metrics)[3] == 1.0


def copy_metric(metric):
    return type(metric).from_config(metric.get_config())


def test_lists_without_items_have_the_value_0():
    for metric in all_metrics(3):
        assert float(metric.result()) == 0.0
        metric.update_state(np.full((2, LIST_SIZE), -1), np.ones((2, LIST_SIZE)))
        metric.update_state([[-1, -1, -1]])
        metric.update_state(np.zeros((0, LIST_SIZE)), np.zeros((0, LIST_SIZE)))
        assert float(metric.result()) == 0.0
    nothing = np.zeros(0, "int32"), np.zeros((0, 2), "float32"), np.ones((5, 2))
    names = ["coverage@3", "mrr"]
    assert catalogue.evaluate(*nothing, names) == dict.fromkeys(names, 0.0)


def test_large_counts_are_exact():
    """Counts above 2**24 are equal in float32, and their sum overflows int32."""
    metrics = all_metrics(1)[:4]
    counts = [2**24, 2**24 + 1, 2**31 - 1, 2**31 - 2, 5, 0, 2**30]
    metrics[3].variables[1].assign(2**31 - 2)
    for metric in metrics:
        metric.variables[0].assign(np.array(counts, "int32"))
        metric.update_state([[0]])
        assert int(ops.convert_to_numpy(metric.variables[0])[0]) == 2**24 + 1
    counts[0] += 1
    pairs = sum(abs(a - b) for a in counts for b in counts)
    gini = Fraction(pairs, 2 * LIST_SIZE * sum(counts))
    mean = sum(
        Fraction(c) * Fraction(x) for c, x in zip(counts, PURCHASES, strict=True)
    )
    others = sum(c * (2**31 - 1 - c) for c in counts)
    personal = Fraction(others, sum(counts) * (2**31 - 2))
    expected = [6 / 7, float(gini), float(mean / sum(counts)), float(personal)]
    assert read_results(metrics) == pytest.approx(expected, rel=2e-7)


def test_states_are_merged(rng):
    inputs = np.zeros((6, LIST_SIZE)), rng.normal(size=(6, LIST_SIZE))
    whole = RankingMetrics([*all_metrics(2), NDCG(k=2)])
    first, second = copy_metric(whole), copy_metric(whole)
    for metric, rows in ((first, slice(2)), (second, slice(2, 6)), (whole, slice(6))):
        metric.update_state(*(x[rows] for x in inputs))
    merged = utils.merge_state(first, [utils.export_state(second)])
    assert results(merged) == pytest.approx(results(whole), abs=1e-6)
    with pytest.raises(ValueError, match=r"names and shapes that `metric` has") as e:
        utils.merge_state(Gini(2, items=5), [utils.export_state(Gini(2, items=6))])
    assert "older version" not in str(e.value)


@pytest.mark.compiles_long
@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiled_updates_equal_eager_ones(compiler, rng):
    scores = rng.integers(0, 3, (40, LIST_SIZE)).astype("float32")
    labels = rng.integers(-1, 2, scores.shape).astype("float32")
    group = RankingMetrics(all_metrics(2, seed=1))
    eager = copy_metric(group)
    update = COMPILERS[compiler](group)
    for part in (slice(0, 30), slice(30, 40)):
        batch = labels[part], scores[part], np.ones_like(scores[part])
        update(*batch)
        eager.update_state(*batch)
    states = [utils.export_state(metric) for metric in (group, eager)]
    counts = [{x: n for x, n in each.items() if n.dtype == "int32"} for each in states]
    np.testing.assert_equal(*counts)
    # The last bit of a mean of values depends on how it is compiled.
    assert results(group) == pytest.approx(results(eager), rel=1e-6)


def model_with(metrics, loss):
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(LIST_SIZE)(inputs))
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=metrics)
    return model


@pytest.mark.compiles_long
@pytest.mark.trains
def test_fit_and_evaluate(rng):
    x = rng.normal(size=(20, 4)).astype("float32")
    y = rng.integers(0, LIST_SIZE, 20)
    arguments = {"sparse_labels": True, "seed": 1}
    members = [NDCG(k=3, **arguments), *all_metrics(3, **arguments)]
    metrics = [*all_metrics(2, **arguments), RankingMetrics(members, prefix="group_")]
    model = model_with(metrics, "sparse_categorical_crossentropy")
    stop = keras.callbacks.EarlyStopping(monitor="gini_at_2", patience=3)
    options = {"batch_size": 8, "verbose": 0}
    history = model.fit(x, y, callbacks=[stop], shuffle=False, **options).history
    assert stop.monitor_op(1.0, 2.0), "a smaller index is better"
    scores = model.predict(x, verbose=0)
    actual = model.evaluate(x, y, return_dict=True, **options)
    for metric in metrics:
        metric.reset_state()
        metric.update_state(y, scores)
    for name, value in results(*metrics).items():
        for log in (history[name][-1], actual[name]):
            assert log == pytest.approx(value, abs=2e-6)


@pytest.mark.compiles_long
def test_metrics_are_saved_with_a_model(tmp_path):
    group = RankingMetrics(["ndcg@3", Gini(3, items=LIST_SIZE)])
    model = model_with([*all_metrics(2), group], "mse")
    data = np.ones((3, 4), "float32"), np.ones((3, LIST_SIZE), "float32")
    options = {"return_dict": True, "verbose": 0}
    logs = model.evaluate(*data, **options)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert logs == loaded.evaluate(*data, **options)
    assert {"coverage_at_2", "novelty_at_2", "gini_at_3"} < set(logs)


@pytest.mark.compiles_long
def test_standard_error_of_intra_list_diversity(rng, monkeypatch):
    """The metric is a mean over lists with a pair of items, in parts of any size."""
    queries, items = rng.normal(size=(9, 2)), rng.normal(size=(20, 2))
    metric = IntraListDiversity(4, item_vectors=items)
    group = RankingMetrics([Coverage(4), metric, "mrr"], standard_errors=True)
    _, ids = catalogue.top_k(queries, items, 4)
    recommended = [*ops.convert_to_numpy(ids).tolist(), [3, -1, -1, -1], [-1] * 4]
    metric.update_state(recommended)
    values = list(diversities(recommended[:-2], items))
    value, error = np.mean(values), np.std(values, ddof=1) / 9**0.5
    expected = pytest.approx([value, error], rel=1e-5)
    name = metric.name
    assert [float(metric.result()), float(metric.standard_error())] == expected
    assert list(group.standard_error()) == [name, "mrr"]
    assert list(group.result())[:3] == ["coverage_at_4", name, f"{name}_stderr"]
    for most in (base.MAX_GATHERED_NUMBERS, 20):
        monkeypatch.setattr(base, "MAX_GATHERED_NUMBERS", most)
        targets = np.zeros(9, "int64")
        actual = catalogue.evaluate(targets, queries, items, group, verbose=0)
        assert [actual[name], actual[f"{name}_stderr"]] == expected


@pytest.mark.compiles_long
@pytest.mark.parametrize("sign", [1, -1])
def test_the_diversity_of_lists_is_from_0_to_2(sign, rng):
    """Vectors may have equal directions, and pairs opposite directions."""
    vectors = rng.normal(size=(300, 1, 7)) * np.ones((10, 1))
    vectors[:, 1::2] *= sign
    for size in (2, 10) if sign == 1 else (2,):
        metric = IntraListDiversity(size, item_vectors=vectors.reshape(-1, 7))
        ids = np.arange(300)[:, None] * 10 + np.arange(size)
        values, _ = intra_list_diversity(
            metric._unit_vectors, ops.convert_to_tensor(ids, "int32")
        )
        values = ops.convert_to_numpy(values)
        assert np.all((values >= 0.0) & (values <= 2.0))
        np.testing.assert_allclose(values, 1 - sign, atol=2e-6)
        metric.update_state(ids)
        assert float(metric.result()) == pytest.approx(np.mean(values), abs=1e-7)


ROW = np.ones((1, 4), "float32")


def recommended(*inputs):
    return Coverage(2, items=5).update_state(*inputs)


def evaluate_four_items(metric):
    catalogue.evaluate([0], ROW, np.ones((4, 4)), [metric])


INVALID = (
    "`popularity` should be numbers {}, one for each item. Received: invalid values"
)
BELOW_0 = INVALID.format("of 0 or more") + " (1 of 2), such as -1.0"
NO_SHARES = INVALID.format("above 0 and up to 1") + " (2 of 3), such as 0.0"
NO_VECTORS = "`item_vectors` should be vectors of finite numbers, one for each item. "
NO_VECTORS += "Received: invalid values (1 of 2), such as inf"
NEEDS_IDS = "`y_true` should hold ids of recommended items, or come with the scores "
NEEDS_IDS += "of all items in `y_pred`. Received: "
NO_ITEMS = "`items` should be the number of items of the catalogue. Only `keras_rank."
NO_ITEMS += "catalogue` can infer it. Received: items=None, of 'coverage_at_2'"
NO_ERRORS = "metrics without standard errors. Received: standard_errors=True with "
NO_ERRORS += "'gini_at_2'"
ERRORS = [
    (lambda: Coverage(None), "`k` should be a positive integer. Received: k=None"),
    (
        lambda: Coverage(2, items=0),
        "`items` should be a positive integer or None. Received",
    ),
    (lambda: Gini(2, shuffle_ties="average"), "as each rank needs a single item."),
    (lambda: AveragePopularity(2, popularity=[3.0, -1.0]), BELOW_0),
    (lambda: Novelty(2, popularity=[0.5, 0.0, np.nan]), NO_SHARES),
    (lambda: Novelty(2, popularity=[[0.5, 0.1]]), "Received: popularity.shape=(1, 2)"),
    (
        lambda: IntraListDiversity(2, item_vectors=[1, 2]),
        "Received: item_vectors.shape=(2,)",
    ),
    (lambda: IntraListDiversity(2, item_vectors=[[1.0, np.inf]]), NO_VECTORS),
    (lambda: Coverage(2).update_state(ROW, ROW), NO_ITEMS),
    (
        lambda: recommended(ROW, ROW),
        "of shape (batch, 5). Received: y_pred.shape=(1, 4)",
    ),
    (lambda: recommended([[1]]), "padded with -1. Received: y_true.shape=(1, 1)"),
    (lambda: recommended([[1, 5]]), "items, 5. Received: a larger id, 5, in row 0"),
    (lambda: recommended([[1, 2]], None, [1.0]), f"{NEEDS_IDS}weights without scores"),
    (lambda: recommended(catalogue.rank([0], ROW, ROW)), f"{NEEDS_IDS}ranked lists"),
    (
        lambda: evaluate_four_items(Gini(2, items=5)),
        "candidates, 4. Received: items=5, of 'gini_at_",
    ),
    (
        lambda: evaluate_four_items(Novelty(2, popularity=[1, 1])),
        "4 candidates. Received: 2 numbers, of 'nov",
    ),
    (
        lambda: evaluate_four_items(IntraListDiversity(2, item_vectors=np.eye(3))),
        "4 candidates. Received: 3 ve",
    ),
    (lambda: RankingMetrics(["gini@2"], standard_errors=True), NO_ERRORS),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_wrong_calls_are_errors(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_an_error_changes_no_state():
    group = RankingMetrics(["mrr", Coverage(1, items=5)])
    with pytest.raises(ValueError, match="a score for each item"):
        group.update_state(ROW, ROW)
    assert not any(np.any(x) for x in utils.export_state(group).values())


def test_metrics_of_exposure_need_a_catalogue():
    evaluation = pytest.importorskip("keras_rank.evaluation")
    rows = {"query_id": [1, 1], "label": [1, 0], "score": [0.5, 0.1]}
    with pytest.raises(ValueError, match="Received: 'coverage@1', of a whole catalog"):
        evaluation.evaluate(rows, ["mrr", "coverage@1"])


@pytest.mark.compiles_long
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_default_precision_changes_no_count(precision, rng, monkeypatch):
    """On JAX, Keras converts integers to floats, which can't be indices."""
    # Small tiles split queries and candidates into several blocks.
    monkeypatch.setattr(candidates_module, "TILE", 8)
    scores, ids = rng.integers(0, 4, (5, 13)), rng.integers(0, 13, (5, 2))
    queries, items = (rng.normal(size=(n, 3)).astype("float32") for n in (5, 13))
    popularity = np.arange(1, 14) / 16

    def numbers():
        arguments = {"sparse_labels": True, "seed": 1}
        metrics = all_metrics(2, 13, popularity, popularity, **arguments)
        for metric in metrics:
            metric.update_state(ids, scores)
            metric.update_state(ids)
        actual, options = (
            read_results(metrics),
            {"exclude": [[1, 2]] * 5, "block_size": 4},
        )
        for candidates in (items, lambda: iter([items[:9], items[9:]])):
            task, names = (ids, queries, candidates), ["mrr", "coverage@2"]
            actual += catalogue.evaluate(*task, names, verbose=0, **options).values()
            _, best = catalogue.top_k(queries, candidates, 3, **options)
            actual += ops.convert_to_numpy(best).ravel().tolist()
        return actual

    # `precision` comes first, as compiled code is cached.
    with default_precision(precision):
        actual = numbers()
    assert actual == numbers()


def test_a_graph_of_unknown_sizes_fails_for_another_catalogue(backend):
    if backend != "tensorflow":
        pytest.skip("a graph of TensorFlow")
    import tensorflow as tf

    unknown = tf.TensorSpec((None, None))
    for sparse_labels, labels in ((False, np.ones((2, 7))), (True, np.ones((2, 1)))):
        metric, other = (
            Coverage(3, items=x, sparse_labels=sparse_labels) for x in (7, 8)
        )
        inputs = [tf.constant(x, "float32") for x in (labels, np.ones((2, 7)))]
        tf.function(metric.update_state, [unknown] * 2)(*inputs)
        assert int(metric.variables[0].numpy().sum()) == 6
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.function(other.update_state, [unknown] * 2)(*inputs)
        assert int(other.variables[0].numpy().sum()) == 0
    recommended = tf.function(other.update_state, [unknown])
    recommended(tf.constant([[1.0, 2.0, 3.0, 4.0]]))
    assert int(other.variables[0].numpy().sum()) == 3
    with pytest.raises(tf.errors.InvalidArgumentError):
        recommended(tf.constant([[1.0, 2.0]]))


def test_each_group_has_its_own_sums():
    """A group copies a metric that is a member of another group, and keeps its name."""
    gini, coverage = Gini(1, items=3), Coverage(1, items=3)
    first = RankingMetrics([gini, coverage], prefix="a_")
    paths = [variable.path for variable in first.variables]
    first.update_state([[0], [0]])
    others = [
        RankingMetrics([gini, coverage], prefix="b_"),
        RankingMetrics(first.members),
        RankingMetrics([NDCG(), gini]),
    ]
    assert [variable.path for variable in first.variables] == paths
    for group in others:
        assert len({*map(id, group.variables)} & {*map(id, first.variables)}) == 0
        assert float([*group.result().values()][-1]) == 0.0
    others[0].update_state([[0], [1]])
    others[0].reset_state()
    others[1].update_state([[1], [2]])
    assert float(first.result()["a_gini_at_1"]) == pytest.approx(2 / 3)
    assert float(others[1].result()["coverage_at_1"]) == pytest.approx(2 / 3)
    seeds = [member.seed for member in (gini, others[0].members[0])]
    assert seeds[0] == seeds[1]


def test_catalogues_do_not_change_metrics_of_groups():
    gini = Gini(1, items=3)
    group = RankingMetrics([gini], prefix="a_")
    paths = [variable.path for variable in group.variables]
    group.update_state([[0], [0]])
    catalogue.evaluate([0, 1], np.eye(2, 3), np.eye(3), [gini])
    assert [variable.path for variable in group.variables] == paths
    assert float(group.result()["a_gini_at_1"]) == pytest.approx(2 / 3)


def test_lists_may_have_as_many_ids_as_items():
    """Rows of repeated ids or of all ids are not taken for a one-hot matrix."""
    metric = Coverage(k=2, items=2)
    metric.update_state([[0, 0], [1, -1]])
    assert float(metric.result()) == 1.0
    metric = Coverage(k=3, items=3)
    metric.update_state([[0, 1, 0], [0, 0, 1]])
    assert float(metric.result()) == pytest.approx(2 / 3)
