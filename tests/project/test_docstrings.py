"""Docstrings: what is shared stands once, and the site shows it wherever it holds."""

import collections
import inspect
import pathlib
import runpy
import types

import pytest
from registry import CASES, EXPOSURE_METRICS, cases_for_cutoff

import keras_rank
from keras_rank.metrics import ExposureMetric, RankingMetric, RankingMetrics

pytest.importorskip("griffe", reason="the site's tools are not installed")

PATH = pathlib.Path(__file__).parents[2] / "docs" / "keras_style.py"
STYLE = types.SimpleNamespace(**runpy.run_path(str(PATH)))
FACES = [keras_rank.callbacks, keras_rank.catalogue, keras_rank.discounts]
FACES += [keras_rank.functional, keras_rank.gains, keras_rank.metrics, keras_rank.utils]
# Functions that are generated from classes refer to these.
GENERATED = {case.function for case in CASES}
THINGS = {
    f"{face.__name__}.{name}": getattr(face, name)
    for face in FACES
    for name in face.__all__
    if getattr(face, name) not in GENERATED
}
BASES = {
    "keras_rank.catalogue.rank": keras_rank.catalogue.rank,
    "keras_rank.functional": keras_rank.functional,
    "keras_rank.metrics.RankingMetric": RankingMetric,
    "keras_rank.metrics.ExposureMetric": ExposureMetric,
}
# What a class says otherwise than its function, as it computes a mean later on.
LATER = {
    "The seed of the shuffle. Defaults to `None`: each call draws a seed from Keras's "
    "global generator, as Keras's random operations do without a seed. Compiled code "
    "derives the seed from the state of Python's generator instead. "
    "`keras.utils.set_random_seed` sets both.": (
        "The seed of the shuffle. The order is a function of the seed, the number of "
        "the list since the last reset, and the item. Defaults to `None`: the seed is "
        "derived from the state of Python's generator at construction, which "
        "`keras.utils.set_random_seed` sets."
    ),
    "`None` gives NaN": "`None` leaves it out of the mean",
    "gives NaN": "is left out of the mean",
    "Defaults to float32.": "Defaults to float32, whatever Keras's default is.",
}


def arguments_of(docstring):
    found = STYLE.arguments_of(docstring)
    return {name: " ".join(text.split()) for name, text in found.items()}


def written(thing):
    """What the docstring of a thing itself says of each argument."""
    return arguments_of(inspect.getdoc(thing))


def shown(thing):
    """What the site shows of each argument."""
    return arguments_of(STYLE.in_full(inspect.getdoc(thing)))


UPDATED = [ExposureMetric, RankingMetric, RankingMetrics]
OTHERS = [ExposureMetric, *(metric.update_state for metric in UPDATED)]


@pytest.mark.parametrize(
    "thing", [*THINGS.values(), *OTHERS], ids=lambda thing: thing.__qualname__
)
def test_every_argument_is_shown_in_full(thing):
    arguments = shown(thing)
    assert arguments.keys() == inspect.signature(thing).parameters.keys() - {"self"}
    assert not [text for text in arguments.values() if text.startswith("as for `keras")]


def test_the_site_shows_all_of_ndcg():
    assert ", ".join(shown(keras_rank.metrics.NDCG)) == (
        "k, gain_fn, rank_discount_fn, relevance_threshold, name, shuffle_ties, seed, "
        "empty_value, empty_weight, sparse_labels, dtype"
    )
    before = inspect.getdoc(keras_rank.metrics.NDCG)
    docstring = STYLE.in_full(before)
    assert "\n    seed: int or `keras.random.SeedGenerator`. The seed of" in docstring
    # What the class itself says, not what its base does.
    assert "\n    relevance_threshold: float. Labels below the " in docstring
    assert "\n    name: str. Defaults to `ndcg_at_k`, or" in docstring
    assert docstring.split("Args:\n")[0] == before.split("Args:\n")[0]
    assert docstring.split("\n\nRaises:")[1] == before.split("\n\nRaises:")[1]


def test_what_a_docstring_says_itself_wins():
    own = "Args:\n    seed: my own.\n"
    both = f"{own}    **arguments: as for `keras_rank.functional`: seed.\n"
    assert STYLE.in_full(both) == own


def test_a_name_that_the_base_lacks_is_an_error():
    with pytest.raises(KeyError, match="cutoff"):
        STYLE.in_full("Args:\n    **arguments: as for `keras_rank.functional`: cutoff.")


@pytest.mark.parametrize("name", THINGS.keys() - BASES.keys())
def test_what_is_shared_is_not_repeated(name):
    """But `k`, which people look for first."""
    for base in BASES.values():
        repeated = written(THINGS[name]).items() & written(base).items()
        assert {argument for argument, _ in repeated} <= {"k"}


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_what_several_say_stands_in_their_base(face):
    said = collections.Counter(
        (argument, text)
        for name in face.__all__
        for argument, text in written(getattr(face, name)).items()
        if argument != "k" and not text.startswith("as for `keras_rank")
    )
    # Discounts have no base, and one line each.
    assert {each for each, number in said.items() if number > 2} <= {
        ("ranks", "tensor of any shape. The ranks, from 1.")
    }


def test_all_say_the_same_of_k():
    cases = cases_for_cutoff(1)
    for base, others in (
        (keras_rank.functional, [RankingMetric]),
        (RankingMetric, [case.metric for case in cases]),
        (ExposureMetric, EXPOSURE_METRICS),
    ):
        assert {written(other)["k"] for other in others} == {written(base)["k"]}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_function_shows_the_arguments_of_its_class(case):
    """And refers to the class, by the name under which it is found."""
    function = case.function
    assert getattr(keras_rank.functional, function.__name__) is function
    of_function, of_class = (
        dict(inspect.signature(x).parameters) for x in (function, case.metric)
    )
    first = [of_function.pop(x) for x in ("y_true", "y_pred", "sample_weight")]
    assert [str(x.kind) for x in first] == [
        "POSITIONAL_OR_KEYWORD",
        "POSITIONAL_OR_KEYWORD",
        "KEYWORD_ONLY",
    ]
    assert {x.kind.name for x in of_function.values()} == {"KEYWORD_ONLY"}
    names = [name for name in of_class if name not in ("name", "empty_weight")]
    assert [*of_function] == names
    assert all(of_function[x].default == of_class[x].default for x in names)
    docstring = inspect.getdoc(function)
    assert f"`keras_rank.metrics.{case.metric.__name__}`" in docstring
    row = f"| `{function.__name__}` | `{case.metric.__name__}` |"
    assert row in keras_rank.functional.__doc__


def test_a_class_says_the_same_as_the_functions():
    of_functions, of_class = written(keras_rank.functional), written(RankingMetric)
    for argument in of_functions.keys() & of_class.keys():
        expected = of_functions[argument]
        now = next((now for now in LATER if now in expected), "")
        assert of_class[argument] == expected.replace(now, LATER.get(now, ""))
