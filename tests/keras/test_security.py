"""Statements of SECURITY.md: no code in configs, no pickle, loading in safe mode."""

import ast
import json
import pathlib
import zipfile

import keras
import numpy as np
import pytest

import keras_rank
from keras_rank.metrics import DCG, NDCG, RankingMetrics

PACKAGE = pathlib.Path(keras_rank.__file__).parent
DATA = np.arange(8.0).reshape(2, 4) % 3, np.eye(2, 4)


def make_config(module, name, config=None):
    """Returns the config of a class, or that of a function if `config` is `None`."""
    is_class = config is not None
    return {
        "module": module,
        "class_name": name if is_class else "function",
        "config": config if is_class else name,
        "registered_name": None if is_class else name,
    }


LAMBDA = {
    "class_name": "__lambda__",
    "config": {"code": "4wEAAAA=", "defaults": None, "closure": None},
}
REFUSED = {
    "a lambda": LAMBDA,
    "a layer of a lambda": make_config("keras.layers", "Lambda", {"function": LAMBDA}),
    "a function of the system": make_config("os", "system"),
    "a class of the system": make_config("subprocess", "Popen", {"args": "true"}),
    "an unknown class": make_config("nowhere", "Unknown", {}),
    "the name of a function": "os.system",
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_a_config_that_would_run_code_is_refused(refused):
    config = NDCG(k=3).get_config()
    for argument in ("gain_fn", "rank_discount_fn"):
        with pytest.raises((TypeError, ValueError)):
            NDCG.from_config({**config, argument: refused})
    with pytest.raises((TypeError, ValueError)):
        RankingMetrics.from_config({"metrics": [refused]})


@pytest.fixture
def saved(tmp_path):
    """Saves a model, and returns the logs of its evaluation and its path."""
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(4)(inputs))
    metrics = [
        NDCG(k=2, seed=1, shuffle_ties="average", gain_fn="linear"),
        DCG(k=3, seed=2, rank_discount_fn=keras_rank.discounts.log(base=3)),
        RankingMetrics(["map@2", DCG(gain_fn="linear", k=4)]),
    ]
    model.compile("sgd", "mse", metrics=metrics)
    logs = model.evaluate(*DATA, return_dict=True, verbose=0)
    model.save(tmp_path / "model.keras")
    return logs, tmp_path / "model.keras"


def test_a_saved_model_is_text_and_numbers_and_loads_in_safe_mode(saved):
    expected, path = saved
    with zipfile.ZipFile(path) as archive:
        suffixes = {pathlib.Path(name).suffix for name in archive.namelist()}
    assert suffixes <= {".json", ".h5"}
    model = keras.saving.load_model(path)
    logs = model.evaluate(*DATA, return_dict=True, verbose=0)
    assert logs == pytest.approx(expected, abs=1e-6)
    assert {"ndcg_at_2", "dcg_at_3", "map_at_2", "dcg_at_4"} <= set(logs)


def test_a_saved_model_that_was_tampered_with_is_refused(saved, tmp_path):
    _, path = saved
    tampered = tmp_path / "tampered.keras"
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tampered, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                config = json.loads(content)
                metric = config["compile_config"]["metrics"][0]
                metric["config"]["gain_fn"] = LAMBDA
                content = json.dumps(config).encode()
            copy.writestr(name, content)
    with pytest.raises(ValueError, match="lambda"):
        keras.saving.load_model(tampered)


DANGEROUS = {"pickle", "marshal", "shelve", "subprocess", "importlib", "__import__"}
DANGEROUS |= {"eval", "exec", "compile", "safe_mode", "enable_unsafe_deserialization"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_nothing_is_pickled_or_run(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {getattr(node, "module", None)}
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.keyword):
            names.add(node.arg)
    assert not names & DANGEROUS
