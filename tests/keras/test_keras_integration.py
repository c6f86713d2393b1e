"""Metrics in Keras models: compiling, training, evaluation, callbacks, saving."""

import pathlib

import keras
import numpy as np
import oracle
import pytest
from precision import default_precision
from recording import RecordedScores, results
from registry import FIRST_CASES
from strategies import BATCH, LIST_SIZE

import keras_rank
from keras_rank.metrics import DCG, NDCG, Coverage, PairwiseAccuracy, RankingMetrics

BACKEND = keras.backend.backend()
LISTS, ITEMS, FEATURES = 3 * BATCH, LIST_SIZE, 3


@pytest.fixture
def data(rng):
    x = rng.normal(size=(LISTS, ITEMS, FEATURES)).astype("float32")
    y = rng.integers(-1, 4, size=(LISTS, ITEMS)).astype("float32")
    return x, y


def build_model(metrics=(), outputs=("scores",), **compile_arguments):
    """Returns a compiled model whose weights do not change in training."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((ITEMS, FEATURES))
    scores = [
        keras.layers.Reshape((ITEMS,), name=name)(keras.layers.Dense(1)(inputs))
        for name in outputs
    ]
    model = keras.Model(inputs, scores[0] if len(scores) == 1 else scores)
    options = {"optimizer": keras.optimizers.SGD(0.0), "loss": "mse"}
    model.compile(metrics=list(metrics), **options | compile_arguments)
    return model


def expected_ndcg(y, scores, k, weights=None):
    weights = np.ones_like(y) if weights is None else np.broadcast_to(weights, y.shape)
    lists = zip(y, scores, weights, strict=True)
    mean = oracle.mean_over(lists, oracle.ndcg, oracle.exponential, k=k)
    return pytest.approx(mean, abs=2e-6)


@pytest.mark.compiles_long
@pytest.mark.trains
def test_callbacks_know_the_direction(data, tmp_path):
    """Callbacks maximize metrics, groups and members of groups by default."""
    x, y = data
    best = str(tmp_path / "{epoch}-{val_ndcg_at_1:.3f}-{mrr_at_20:.3f}.keras")
    stop = keras.callbacks.EarlyStopping
    callbacks = [
        stop("val_ndcg_at_1", patience=5),
        stop("val_ndcg_at_3", patience=5),
        stop("val_mrr_at_20", patience=5, mode="max"),
        keras.callbacks.ModelCheckpoint(best, "val_ndcg_at_1", save_best_only=True),
    ]
    model = build_model([RankingMetrics(["ndcg@1", "mrr@20"]), NDCG(k=3)])
    options = {"validation_data": (x, y), "epochs": 2, "verbose": 0}
    history = model.fit(x, y, callbacks=callbacks, **options).history
    assert all(callback.monitor_op(2.0, 1.0) for callback in callbacks)
    file_name = (
        f"1-{history['val_ndcg_at_1'][0]:.3f}-{history['mrr_at_20'][0]:.3f}.keras"
    )
    assert (tmp_path / file_name).exists()


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_changes_only_the_scores(data, policy):
    x, y = data
    # Scores in half precision tie, on some machines more often than on others.
    ties = {"shuffle_ties": "average"}
    # Half precision could not represent these labels and weights.
    y, weights = y + np.float32(0.001), np.linspace(0.5, 1.5, LISTS, dtype="float32")
    with default_precision(policy):
        group = RankingMetrics([NDCG(k=3, name="of_group", **ties)])
        recorded = RecordedScores(LISTS, ITEMS)
        metrics = [NDCG(k=2, **ties), group, recorded]
        weighted = NDCG(k=2, name="weighted", **ties)
        model = build_model(metrics, weighted_metrics=[weighted])
        assert model.output.dtype == policy.removeprefix("mixed_")
        options = {"sample_weight": weights, "batch_size": 4, "verbose": 0}
        logs = model.fit(x, y, shuffle=False, **options).history
        logs_and_scores = [
            ({name: x[0] for name, x in logs.items()}, recorded.scores())
        ]
        logs = model.evaluate(x, y, return_dict=True, **options)
        logs_and_scores.append((logs, recorded.scores()))
    for logs, scores in logs_and_scores:
        assert logs["ndcg_at_2"] == expected_ndcg(y, scores, 2)
        assert logs["of_group"] == expected_ndcg(y, scores, 3)
        assert logs["weighted"] == expected_ndcg(y, scores, 2, weights[:, None])


def test_stateless_use(rng):
    """Custom training loops call the stateless methods of a metric."""
    metric = NDCG(k=2, seed=1)
    variables = metric.stateless_reset_state()
    scores, labels = rng.normal(size=(6, 5)), rng.integers(0, 3, size=(6, 5))
    for rows in (slice(0, 2), slice(2, 6)):
        variables = metric.stateless_update_state(variables, labels[rows], scores[rows])
    actual = float(metric.stateless_result(variables))
    assert float(metric.result()) == 0.0
    assert actual == pytest.approx(float(metric(labels, scores)), abs=1e-6)


@pytest.mark.compiles_long
@pytest.mark.trains
@pytest.mark.parametrize(
    ("sparse_labels", "shuffle_ties"), [(False, "average"), (True, True)]
)
def test_all_metrics_together_in_fit(shuffle_ties, sparse_labels, rng):
    """Keras first traces all metrics without values. An error in one breaks all."""
    arguments = {"k": 2, "seed": 1, "shuffle_ties": shuffle_ties}
    alone = NDCG(k=3, seed=1, sparse_labels=sparse_labels)
    # `PairwiseAccuracy` accepts no cutoff if labels are ids.
    pairs = PairwiseAccuracy(sparse_labels=sparse_labels, name="pairs")
    metrics = [RankingMetrics([alone], prefix="group_"), pairs] + [
        case.make(sparse_labels=sparse_labels, **arguments)
        for case in FIRST_CASES
        if not sparse_labels
        or (case.metric.takes_sparse_labels and case.metric is not PairwiseAccuracy)
    ]
    x = rng.normal(size=(BATCH, FEATURES)).astype("float32")
    if sparse_labels:
        y, loss = rng.integers(0, LIST_SIZE, BATCH), "sparse_categorical_crossentropy"
    else:
        y, loss = rng.integers(-1, 4, (BATCH, LIST_SIZE)), "mse"
    inputs = keras.Input((FEATURES,))
    model = keras.Model(inputs, keras.layers.Dense(LIST_SIZE)(inputs))
    model.compile(keras.optimizers.SGD(0.0), loss, metrics=metrics)
    options = {"validation_data": (x, y), "epochs": 2, "shuffle": False, "verbose": 0}
    history = model.fit(x, y, **options).history
    scores = model.predict(x, verbose=0)
    for metric in metrics:
        metric.reset_state()
        metric.update_state(y, scores)
    expected = results(*metrics)
    for name, value in expected.items():
        for logged in (name, f"val_{name}"):
            assert history[logged] == pytest.approx([value] * 2, abs=2e-6)
    assert len(history) == 2 * len(["loss", *expected])


class OddlyNamed(NDCG):
    """A metric that is passed as a class, which Keras creates in a TensorFlow graph."""

    base_name = "odd@2"


SETS_OF_METRICS = {
    "groups, and others": (
        lambda: [
            RankingMetrics([NDCG(2), "mrr", Coverage(2, items=ITEMS)]),
            NDCG(5),
            DCG(),
        ],
        lambda: [RankingMetrics(["ndcg@2"], prefix="click_"), Coverage(3, items=ITEMS)],
        "ndcg_at_2, coverage_at_2, ndcg_at_5, dcg, click_ndcg_at_2, coverage_at_3",
    ),
    "equal names": (
        lambda: [NDCG(k=2), RankingMetrics(["mrr", "ndcg@2"])],
        lambda: [NDCG(k=2), RankingMetrics(["mrr"])],
        "ndcg_at_2, mrr, ndcg_at_2_1, mrr_1",
    ),
    "odd names": (
        lambda: [NDCG(name="ndcg@2"), NDCG(name="a/b c>d")],
        lambda: [NDCG(name="été"), OddlyNamed],
        "ndcg@2, a>b c>d, été, odd@2",
    ),
}


def make_state_tree(data, *metrics):
    """Evaluates a model of two outputs, and returns it and its metrics' state tree."""
    x, y = data
    model = build_model(metrics, ("buy", "click"))
    model.evaluate(x, [y, y], verbose=0)
    return model, model.get_state_tree("numpy_array")["metrics_variables"]


def test_paths_do_not_depend_on_earlier_models(data):
    """A model that failed before and a renamed metric change no other path."""
    with pytest.raises(ValueError, match="bogus"):
        make_state_tree(data, [NDCG(k=2), "bogus"], [])
    renamed = NDCG(k=3)
    renamed.name = "mine"
    _, tree = make_state_tree(data, [NDCG(k=2), renamed], [])
    assert {"ndcg_at_2", "mine"} <= set(tree)


@pytest.mark.compiles_long
@pytest.mark.parametrize("metrics", SETS_OF_METRICS.values(), ids=SETS_OF_METRICS)
def test_the_state_of_a_model_is_a_tree(metrics, data):
    """`keras.callbacks.OrbaxCheckpoint` saves this tree, which every backend has."""
    make_buy_metrics, make_click_metrics, names = metrics
    names, trees = names.split(", "), []
    for _ in range(2):
        model, tree = make_state_tree(data, make_buy_metrics(), make_click_metrics())
        trees.append({n: x for n, x in tree.items() if "loss" not in n})
    # The names do not depend on other models of this process.
    assert [list(tree) for tree in trees] == [names, names]
    assert {len(tree[name]) for tree in trees for name in names} <= {2, 3}
    model.reset_metrics()
    model.set_state_tree({"metrics_variables": trees[0]})
    actual = model.get_state_tree("numpy_array")["metrics_variables"]
    for name in names:
        assert np.all(trees[0][name]["lists_seen"] == LISTS)
        for variable, value in trees[0][name].items():
            np.testing.assert_array_equal(actual[name][variable], value)


def test_keys_of_exported_states_are_not_paths(data):
    """States fit that were exported for another output, or by another version."""
    x, y = data
    first, second = metrics = [NDCG(k=2, seed=1), NDCG(k=2, seed=1)]
    build_model(metrics=metrics).evaluate(x, y, verbose=0)
    assert second.variables[0].path == "ndcg_at_2_1/totals"
    state = keras_rank.utils.export_state(second)
    assert next(iter(state)) == "ndcg_at_2/totals"
    keras_rank.utils.merge_state(first, [state, second])
    assert first.variables[-1] == 3 * second.variables[-1]


@pytest.mark.compiles_long
@pytest.mark.trains
def test_models_of_older_versions_load_unchanged():
    """Metrics keep the names with which they were saved, as `ndcg@2` in 0.2.0."""
    path = pathlib.Path(__file__).parent / "saved" / "model-0.2.0.keras"
    model = keras.saving.load_model(path)
    x, y = np.ones((3, 4, 1), "float32"), np.eye(3, 4, dtype="float32")
    logs = model.evaluate(x, y, return_dict=True, verbose=0)
    group_names = {
        "ndcg@3",
        "ndcg@3_stderr",
        "map@3",
        "map@3_stderr",
        "mrr",
        "mrr_stderr",
    }
    assert set(logs) == {"loss", "ndcg@2"} | group_names


SINGLE = "One item has no order.* make lists of single items by .*GroupedEvaluation"


@pytest.mark.trains
@pytest.mark.parametrize("group", [False, True])
def test_a_model_of_single_items_is_warned_about_once(group, rng):
    x = rng.normal(size=(LISTS, FEATURES)).astype("float32")
    y = (x[:, :1] > 0).astype("float32")
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1)])
    metric = RankingMetrics(["ndcg", "mrr"]) if group else NDCG()
    model.compile("sgd", "mse", metrics=[metric])
    with pytest.warns(UserWarning, match=SINGLE) as caught:
        logs = model.fit(x, y, validation_data=(x, y), epochs=2, verbose=0).history
    model.evaluate(x, y, verbose=0)
    # Keras itself raises other warnings on torch.
    assert sum("One item" in str(warning.message) for warning in caught) == 1
    # NDCG of single items is the share of relevant items, for any model.
    assert logs["val_ndcg"] == pytest.approx([y.mean()] * 2)
