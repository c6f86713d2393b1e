"""What SECURITY.md says: no code in a config, no pickle, safe mode loads."""

import ast
import json
import pathlib
import zipfile

import keras
import numpy as np
import pytest

import keras_rank
from keras_rank.metrics import NDCG, RankingMetrics

PACKAGE = pathlib.Path(keras_rank.__file__).parent


def config_of(module, name, config=None):
    """That of a class, or without a config that of a function."""
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
    "a layer of a lambda": config_of("keras.layers", "Lambda", {"function": LAMBDA}),
    "a function of the system": config_of("os", "system"),
    "eval": config_of("builtins", "eval"),
    "a class of the system": config_of("subprocess", "Popen", {"args": "true"}),
    "an unknown class": config_of("nowhere", "Unknown", {}),
    "an unknown module": config_of("this", "s"),
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
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(4)(inputs))
    metrics = [
        NDCG(k=2, rank_discount_fn=keras_rank.discounts.geometric(0.5)),
        RankingMetrics(["mrr", "map@3"]),
    ]
    model.compile("sgd", "mse", metrics=metrics)
    model.evaluate(np.ones((2, 4)), np.ones((2, 4)), verbose=0)
    model.save(tmp_path / "model.keras")
    return tmp_path / "model.keras"


def test_a_saved_model_is_text_and_numbers_and_loads_in_safe_mode(saved):
    with zipfile.ZipFile(saved) as archive:
        kinds = {pathlib.Path(name).suffix for name in archive.namelist()}
    assert kinds <= {".json", ".h5"}
    model = keras.saving.load_model(saved)
    logs = model.evaluate(np.ones((2, 4)), np.ones((2, 4)), verbose=0, return_dict=True)
    assert {"ndcg_at_2", "mrr", "map_at_3"} <= set(logs)


def test_a_saved_model_that_was_tampered_with_is_refused(saved, tmp_path):
    tampered = tmp_path / "tampered.keras"
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(tampered, "w") as copy:
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
