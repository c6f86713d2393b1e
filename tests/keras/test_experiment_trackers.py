"""Results that experiment trackers and tuners record of a run, read from disk."""

import re

import keras
import numpy as np
import pytest
from pages import DOCS, read_blocks

from keras_rank.callbacks import CatalogueEvaluation
from keras_rank.metrics import NDCG, MeanReciprocalRank, RankingMetrics

pytestmark = [pytest.mark.slow, pytest.mark.trains]
# Trackers, and the libraries that they call, raise warnings of these categories.
pytestmark += [
    pytest.mark.filterwarnings(f"ignore::{kind}Warning")
    for kind in ("Deprecation", "PendingDeprecation", "Future", "Resource")
]

USERS, ITEMS, EPOCHS = 12, 20, 2
COMPILED = {"loss", "ndcg_at_5", "ndcg_at_5_stderr", "mrr", "mrr_stderr"}
SEGMENTS = ["", "_new_users", "_18_25", "__true_"]
LOGGED = COMPILED | {f"val_{name}" for name in COMPILED}
LOGGED |= {f"all_recall_at_3{name}" for name in SEGMENTS}

users = np.arange(USERS)
bought = (users * 7 % ITEMS).astype("int32")


def build(rate=0.1):
    """Returns a model that scores all items, with metrics of the bought item."""
    inputs = keras.Input((), dtype="int32")
    embedded = keras.layers.Embedding(USERS, 4)(inputs)
    outputs = keras.layers.Dense(ITEMS, use_bias=False, name="items")(embedded)
    model = keras.Model(inputs, outputs)
    members = [NDCG(k=5, sparse_labels=True), MeanReciprocalRank(sparse_labels=True)]
    group = RankingMetrics(members, standard_errors=True)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=[group])
    model.queries = keras.Model(inputs, embedded)
    return model


def fit(model, *callbacks):
    """Trains a model and returns the history, which each callback should record."""

    def items():
        return keras.ops.transpose(model.get_layer("items").kernel)

    by = ["new users", "18-25", "(true)"] * (USERS // 3)
    options = {"query_model": model.queries, "by": by, "prefix": "all_"}
    evaluation = CatalogueEvaluation(users, bought, items, ["recall@3"], **options)
    fit_options = {"validation_data": (users, bought), "epochs": EPOCHS, "verbose": 0}
    fit_options["callbacks"] = [evaluation, *callbacks]
    history = model.fit(users, bought, **fit_options).history
    assert set(history) == LOGGED
    return history


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """Yields the module `mlflow`, which stores runs in a temporary folder."""
    module = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.chdir(tmp_path)
    module.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    yield module
    module.keras.autolog(disable=True)


@pytest.mark.parametrize("uses_autolog", [True, False])
def test_mlflow_logs(uses_autolog, mlflow):
    """MLflow records training by `autolog` and by its callback."""
    if uses_autolog:
        mlflow.keras.autolog(log_models=False)
    with mlflow.start_run() as run:
        callbacks = [] if uses_autolog else [mlflow.keras.MlflowCallback()]
        history = fit(build(), *callbacks)
    client = mlflow.MlflowClient()
    for name, values in history.items():
        steps = client.get_metric_history(run.info.run_id, name)
        assert [step.value for step in steps] == pytest.approx(values)


def test_weights_and_biases(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="W&B is not installed")
    from wandb.integration.keras import WandbMetricsLogger

    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path, project="test") as run:
        history = fit(build(), WandbMetricsLogger())
        summary = dict(run.summary)
    # W&B reads the environment once, so the next test needs a teardown.
    wandb.teardown()
    for name, values in history.items():
        assert summary[f"epoch/{name}"] == pytest.approx(values[-1])


def test_keras_tuner(tmp_path):
    keras_tuner = pytest.importorskip(
        "keras_tuner", reason="KerasTuner is not installed"
    )
    tuner = keras_tuner.RandomSearch(
        lambda choice: build(choice.Choice("rate", [0.0, 0.1])),
        objective=keras_tuner.Objective("val_ndcg_at_5", "max"),
        max_trials=2,
        directory=tmp_path,
    )
    data = {"x": users, "y": bought, "validation_data": (users, bought)}
    tuner.search(**data, epochs=20, verbose=0)
    best = tuner.oracle.get_best_trials()[0]
    assert best.hyperparameters.values == {"rate": 0.1}
    assert 0.9 < best.score <= 1.0
    assert COMPILED - {"loss"} <= set(best.metrics.metrics)


def test_optuna_prunes():
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed")
    integration = pytest.importorskip(
        "optuna_integration.keras", reason="optuna-integration is not installed"
    )

    def objective(trial):
        callback = integration.KerasPruningCallback(trial, "val_ndcg_at_5")
        return fit(build(), callback)["val_ndcg_at_5"][-1]

    # The pruner stops the trial after the last epoch, as no value reaches 2.
    pruner = optuna.pruners.ThresholdPruner(lower=2.0, n_warmup_steps=EPOCHS - 1)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.state == optuna.trial.TrialState.PRUNED
    assert len(trial.intermediate_values) == EPOCHS


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    fit(build(), keras.callbacks.TensorBoard(tmp_path))
    for folder in ("train", "validation"):
        tags = read_events(tmp_path / folder).Tags()["tensors"]
        assert {f"epoch_{name}" for name in COMPILED} <= set(tags)


def read_events(folder):
    from tensorboard.backend.event_processing import event_accumulator

    return event_accumulator.EventAccumulator(str(folder)).Reload()


# Modules that each section of the page imports.
SECTIONS = {
    "MLflow": ["mlflow"],
    "Weights & Biases": ["wandb"],
    "TensorBoard": ["tensorboard", "tensorflow", "torch"],
    "KerasTuner": ["keras_tuner"],
    "Optuna": ["optuna", "optuna_integration"],
    "File names": [],
    "Metrics from a config file": [],
}
PAGE = DOCS / "trackers.md"
HEADINGS = [
    (PAGE.read_text()[: match.start()].count("\n") + 1, match[1])
    for match in re.finditer(r"^## (.*)$", PAGE.read_text(), re.MULTILINE)
]


def find_section(block):
    return [heading for line, heading in HEADINGS if line < block.line][-1:]


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_runs(section, tmp_path, monkeypatch):
    for module in SECTIONS[section]:
        pytest.importorskip(module, reason=f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    inputs = keras.Input((4, 3))
    outputs = keras.layers.Reshape((4,))(keras.layers.Dense(1)(inputs))
    model = keras.Model(inputs, outputs)
    x, y = np.ones((8, 4, 3), "float32"), np.eye(8, 4, dtype="float32")
    names = {"model": model, "ranker": model, "x": x, "y": y, "x_val": x, "y_val": y}
    names["loss"] = "mse"  # The lists have no padding.
    for block in read_blocks(PAGE):
        if find_section(block) in ([], [section]):
            exec(block.code, names)
    if section == "TensorBoard":
        events = read_events("logs/loop")
        assert {*events.Tags()["scalars"]} == {"val/ndcg_at_10", "val/mrr"}
        for name, value in names["group"].result().items():
            last = events.Scalars(f"val/{name}")[-1]
            assert (last.step, last.value) == (1, pytest.approx(float(value)))


def test_all_sections_of_the_page_are_run():
    assert [heading for _, heading in HEADINGS] == list(SECTIONS)
