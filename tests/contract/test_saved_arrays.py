"""Configs of metrics with arrays as arguments, which are saved bit for bit."""

import base64
import copy
import json
import re

import keras
import numpy as np
import pytest

from keras_rank.metrics import (
    AveragePopularity,
    IntraListDiversity,
    Novelty,
    RankingMetrics,
)

pytestmark = pytest.mark.programs


@keras.saving.register_keras_serializable("tests")
class Shares(Novelty):
    """A subclass whose `__init__` transforms its argument."""

    def __init__(self, k, popularity, **arguments):
        numbers = np.asarray(popularity, "float32")
        super().__init__(k, popularity=numbers / np.max(numbers), **arguments)


def make_metrics(items=7):
    numbers = np.arange(1.0, items + 1).astype("float32") / items
    vectors = np.random.default_rng(1).normal(size=(items, 3)).astype("float32")
    kinds = AveragePopularity, Novelty, Shares
    metrics = [
        kind(2, popularity=numbers, seed=1, name=kind.__name__) for kind in kinds
    ]
    return [*metrics, IntraListDiversity(2, item_vectors=vectors, seed=1)]


def name_and_array(metric):
    name = "item_vectors" if isinstance(metric, IntraListDiversity) else "popularity"
    return name, getattr(metric, name)


@pytest.mark.parametrize("metric", make_metrics(), ids=lambda metric: metric.name)
def test_arrays_are_saved_bit_for_bit(metric):
    """`from_config`, the class and copies restore the arrays from JSON."""
    name, array = name_and_array(metric)
    config = json.loads(json.dumps(metric.get_config()))
    kind = type(metric)
    as_lists = {**config, name: array.tolist()}  # The format of version 0.6.0.
    for restored in (
        kind.from_config(config),
        kind(**config) if kind is not Shares else metric,
        kind.from_config(as_lists),
        kind.from_config(kind.from_config(config).get_config()),
        copy.copy(metric),
        copy.deepcopy(metric),
    ):
        assert name_and_array(restored)[1].tobytes() == array.tobytes()
        assert repr(restored) == repr(metric)
        assert restored.get_config() == config


@pytest.mark.parametrize("dtype", ["float64", ">f8", ">f4", "float16", "int64"])
def test_saved_arrays_of_other_dtypes(dtype):
    inputs = np.arange(6).astype(dtype).reshape(3, 2)
    metric = IntraListDiversity(2, item_vectors=inputs)
    (saved,) = [x for x in metric.get_config().values() if isinstance(x, dict)]
    assert (saved["shape"], saved["dtype"]) == ([3, 2], "float32")
    assert base64.b64decode(saved["base64"]) == inputs.astype("<f4").tobytes()


def test_groups_save_large_arrays(rng):
    vectors = rng.normal(size=(10_000, 64)).astype("float32")
    group = RankingMetrics([IntraListDiversity(2, item_vectors=vectors), "mrr"])
    saved = json.dumps(keras.saving.serialize_keras_object(group))
    assert len(saved) < 1.4 * vectors.nbytes
    loaded = keras.saving.deserialize_keras_object(json.loads(saved), safe_mode=True)
    assert loaded.members[0].item_vectors.tobytes() == vectors.tobytes()
    assert len(repr(loaded)) < 200


SAVED_ARRAY = Novelty(2, popularity=[0.5, 1.0]).get_config()["popularity"]
WRONG_ARRAY = (
    "`popularity` should be an array, or a dict of its bytes as in `get_config`"
)


@pytest.mark.parametrize(
    ("changed", "received"),
    [
        ({"name": "x"}, "the keys ['base64', 'shape', 'dtype', 'name']"),
        ({"dtype": "float64"}, "dtype='float64'"),
        ({"dtype": ["float32"]}, "dtype=['float32']"),
        *(({"shape": x}, f"shape={x!r}") for x in (2, [-1], [2.0], [True], None, "2")),
        ({"shape": [3]}, "8 bytes for the shape (3,)"),
        ({"base64": "AAAA"}, "3 bytes for the shape (2,)"),
        *(({"base64": x}, "no base64") for x in ("AAA", "!!!!", "\xe9", None, 7, [])),
    ],
)
def test_malformed_arrays_are_errors(changed, received):
    saved = {**SAVED_ARRAY, **changed}
    config = {**Novelty(2, popularity=[0.5, 1.0]).get_config(), "popularity": saved}
    for call in (
        lambda: Novelty(2, popularity=saved),
        lambda: Novelty.from_config(config),
    ):
        with pytest.raises(ValueError, match=re.escape(WRONG_ARRAY)) as error:
            call()
        assert str(error.value).endswith(f"Received: a dict with {received}")


def test_saved_arrays_are_checked():
    numbers = np.array([np.nan, 0.5], "<f4").tobytes()
    for text, shape, received in (
        (numbers, [2], "invalid values (1 of 2), such as nan"),
        (numbers, [1, 2], "popularity.shape=(1, 2)"),
        (b"", [0], "popularity.shape=(0,)"),
    ):
        text = base64.b64encode(text).decode()
        with pytest.raises(ValueError, match=re.escape(f"Received: {received}")):
            Novelty(2, popularity={"base64": text, "shape": shape, "dtype": "float32"})
