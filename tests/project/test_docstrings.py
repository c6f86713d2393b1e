"""Descriptions of shared arguments, which the site copies from a base to all users."""

import collections
import inspect
import pathlib
import runpy
import types

import pytest
from registry import CASES, EXPOSURE_METRICS, cases_for_cutoff

import keras_rank
from keras_rank.metrics import ExposureMetric, RankingMetric, RankingMetrics

pytest.importorskip("griffe", reason="the tools of the site are not installed")

PATH = pathlib.Path(__file__).parents[2] / "docs" / "keras_style.py"
STYLE = types.SimpleNamespace(**runpy.run_path(str(PATH)))
MODULES = [keras_rank.callbacks, keras_rank.catalogue, keras_rank.discounts]
MODULES += [
    keras_rank.functional,
    keras_rank.gains,
    keras_rank.metrics,
    keras_rank.utils,
]
# Functions that are generated from classes refer to the docstrings of the classes.
GENERATED = {case.function for case in CASES}
OBJECTS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in module.__all__
    if getattr(module, name) not in GENERATED
}
BASES = {
    "keras_rank.catalogue.rank": keras_rank.catalogue.rank,
    "keras_rank.functional": keras_rank.functional,
    "keras_rank.metrics.RankingMetric": RankingMetric,
    "keras_rank.metrics.ExposureMetric": ExposureMetric,
}
# Sentences that differ between functions and classes, which compute means.
SENTENCES_OF_CLASSES = {
    "The seed of the shuffle. Defaults to `None`: each call draws a seed from Keras's "
    "global generator, as Keras's random operations do without a seed. Compiled code "
    "derives the seed from the state of Python's generator instead. "
    "`keras.utils.set_random_seed` sets both; Keras 3.12 sets only Python's.": (
        "The seed of the shuffle. The order is a function of the seed, the number of "
        "the list since the last reset, and the item. Defaults to `None`: the seed is "
        "derived from the state of Python's generator at construction, which "
        "`keras.utils.set_random_seed` sets."
    ),
    "`None` gives NaN": "`None` leaves it out of the mean",
    "gives NaN": "is left out of the mean",
    "Defaults to float32.": "Defaults to float32, whatever Keras's default is.",
}


def read_arguments(docstring):
    arguments = STYLE.parse_arguments(docstring)
    return {name: " ".join(text.split()) for name, text in arguments.items()}


def read_own_arguments(documented):
    """Returns the descriptions of arguments that an object's own docstring has."""
    return read_arguments(inspect.getdoc(documented))


def read_shown_arguments(documented):
    """Returns the descriptions of arguments that the site shows for an object."""
    return read_arguments(STYLE.expand_references(inspect.getdoc(documented)))


UPDATED = [ExposureMetric, RankingMetric, RankingMetrics]
MORE_OBJECTS = [ExposureMetric, *(metric.update_state for metric in UPDATED)]


@pytest.mark.parametrize(
    "documented", [*OBJECTS.values(), *MORE_OBJECTS], ids=lambda x: x.__qualname__
)
def test_every_argument_is_shown_in_full(documented):
    arguments = read_shown_arguments(documented)
    assert arguments.keys() == inspect.signature(documented).parameters.keys() - {
        "self"
    }
    assert not [text for text in arguments.values() if text.startswith("as for `keras")]


def test_the_site_shows_all_of_ndcg():
    assert ", ".join(read_shown_arguments(keras_rank.metrics.NDCG)) == (
        "k, gain_fn, rank_discount_fn, relevance_threshold, name, shuffle_ties, seed, "
        "empty_value, empty_weight, list_weight, sparse_labels, dtype"
    )
    before = inspect.getdoc(keras_rank.metrics.NDCG)
    docstring = STYLE.expand_references(before)
    assert "\n    seed: int or `keras.random.SeedGenerator`. The seed of" in docstring
    # Descriptions of the class precede those of its base.
    assert "\n    relevance_threshold: float. Labels below the " in docstring
    assert "\n    name: str. Defaults to `ndcg_at_k`, or" in docstring
    assert docstring.split("Args:\n")[0] == before.split("Args:\n")[0]
    assert docstring.split("\n\nRaises:")[1] == before.split("\n\nRaises:")[1]


def test_own_descriptions_take_precedence():
    own_section = "Args:\n    seed: my own.\n"
    section = f"{own_section}    **arguments: as for `keras_rank.functional`: seed.\n"
    assert STYLE.expand_references(section) == own_section


def test_a_name_that_the_base_lacks_is_an_error():
    with pytest.raises(KeyError, match="cutoff"):
        STYLE.expand_references(
            "Args:\n    **arguments: as for `keras_rank.functional`: cutoff."
        )


@pytest.mark.parametrize("name", OBJECTS.keys() - BASES.keys())
def test_shared_descriptions_are_not_repeated(name):
    """The description of `k` is repeated, as people look for `k` first."""
    for base in BASES.values():
        repeated = (
            read_own_arguments(OBJECTS[name]).items() & read_own_arguments(base).items()
        )
        assert {argument for argument, _ in repeated} <= {"k"}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_repeated_descriptions_are_in_a_base(module):
    counts = collections.Counter(
        (argument, text)
        for name in module.__all__
        for argument, text in read_own_arguments(getattr(module, name)).items()
        if argument != "k" and not text.startswith("as for `keras_rank")
    )
    # Discounts have no base. They repeat a description of one line.
    assert {description for description, number in counts.items() if number > 2} <= {
        ("ranks", "tensor of any shape. The ranks, from 1.")
    }


def test_all_descriptions_of_k_are_equal():
    cases = cases_for_cutoff(1)
    for base, others in (
        (keras_rank.functional, [RankingMetric]),
        (RankingMetric, [case.metric for case in cases]),
        (ExposureMetric, EXPOSURE_METRICS),
    ):
        assert {read_own_arguments(other)["k"] for other in others} == {
            read_own_arguments(base)["k"]
        }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_function_shows_the_arguments_of_its_class(case):
    """The docstring also refers to the class by its public name."""
    function = case.function
    assert getattr(keras_rank.functional, function.__name__) is function
    function_parameters, class_parameters = (
        dict(inspect.signature(x).parameters) for x in (function, case.metric)
    )
    first = [function_parameters.pop(x) for x in ("y_true", "y_pred", "sample_weight")]
    assert [str(x.kind) for x in first] == [
        "POSITIONAL_OR_KEYWORD",
        "POSITIONAL_OR_KEYWORD",
        "KEYWORD_ONLY",
    ]
    assert {x.kind.name for x in function_parameters.values()} == {"KEYWORD_ONLY"}
    names = [name for name in class_parameters if name not in ("name", "empty_weight")]
    assert [*function_parameters] == names
    assert all(
        function_parameters[x].default == class_parameters[x].default for x in names
    )
    docstring = inspect.getdoc(function)
    assert f"`keras_rank.metrics.{case.metric.__name__}`" in docstring
    row = f"| `{function.__name__}` | `{case.metric.__name__}` |"
    assert row in keras_rank.functional.__doc__


def test_descriptions_of_classes_equal_those_of_functions():
    function_descriptions, class_descriptions = (
        read_own_arguments(keras_rank.functional),
        read_own_arguments(RankingMetric),
    )
    for argument in function_descriptions.keys() & class_descriptions.keys():
        expected = function_descriptions[argument]
        sentence = next(
            (sentence for sentence in SENTENCES_OF_CLASSES if sentence in expected), ""
        )
        assert class_descriptions[argument] == expected.replace(
            sentence, SENTENCES_OF_CLASSES.get(sentence, "")
        )
