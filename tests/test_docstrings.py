"""Docstrings stand alone, so what they share is written often: the same everywhere."""

import inspect
import re
from collections import defaultdict

import pytest
from registry import CASES, OF_EXPOSURE

import keras_rank

FACES = [keras_rank.functional, keras_rank.metrics]
NAMES_OF_EXPOSURE = {metric.__name__ for metric in OF_EXPOSURE}
# Who says something else of an argument than all others of its face.
OWN = {
    "y_true": [{"rank"}],
    "y_pred": [],
    "sample_weight": [
        {"average_precision"},
        {"pairwise_accuracy"},
        {"dcg", "ndcg", "rank"},
    ],
    "k": [{"rank"}, NAMES_OF_EXPOSURE],
    "shuffle_ties": [{"pairwise_accuracy"}, {"PairwiseAccuracy"}, NAMES_OF_EXPOSURE],
    "seed": [{"pairwise_accuracy"}, {"PairwiseAccuracy"}, {"RankingMetric"}],
    "empty_value": [
        {"average_relevance_position"},
        {"fall_out"},
        {"pairwise_accuracy"},
        {"AverageRelevancePosition"},
        {"FallOut"},
        {"PairwiseAccuracy"},
    ],
    "empty_weight": [{"AverageRelevancePosition", "PairwiseAccuracy"}],
    "relevance_threshold": [
        {"dcg", "ndcg"},
        {"expected_reciprocal_rank"},
        {"pairwise_accuracy"},
        {"DCG", "NDCG"},
        {"ExpectedReciprocalRank"},
        {"PairwiseAccuracy"},
    ],
    "sparse_labels": [
        {"rank"},
        {"bpref", "fall_out"},
        {"RankingMetric"},
        {"BPref", "FallOut"},
        NAMES_OF_EXPOSURE,
    ],
    "items": [],
    "dtype": [],
}
# What a class says otherwise than its function, as it computes a mean later on.
LATER = {
    "drawn at each call, so that a list with ties may get a different value each "
    "time": "drawn once, at construction",
    "`None` gives NaN": "`None` leaves it out of the mean",
    "gives NaN": "is left out of the mean",
    "Defaults to float32.": "Defaults to float32, whatever Keras's default is.",
}


def described(thing):
    """What the docstring of a function or class says of each of its arguments."""
    arguments = re.search(r"\nArgs:\n(.*?)\n\n(?=\S)", inspect.getdoc(thing), re.S)[1]
    parts = re.split(r"\n(?=    \w+: )", arguments)
    pairs = (part.strip().split(": ", 1) for part in parts)
    return {name: " ".join(text.split()) for name, text in pairs}


@pytest.mark.parametrize("argument", OWN)
@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_all_of_a_face_say_the_same_of_an_argument(face, argument):
    names_by_text = defaultdict(set)
    for name in face.__all__:
        text = described(getattr(face, name)).get(argument)
        if text is not None:
            names_by_text[text].add(name)
    own = [names for names in OWN[argument] if names <= set(face.__all__)]
    others = [names for names in names_by_text.values() if names not in own]
    assert len(others) <= 1, f"one of {others} was edited without the others"
    assert len(names_by_text) == len(own) + len(others)


@pytest.mark.parametrize(
    "case", {case.metric: case for case in CASES}.values(), ids=lambda case: case.name
)
def test_a_class_says_the_same_as_its_function(case):
    of_function, of_class = described(case.function), described(case.metric)
    for argument in of_function.keys() & of_class.keys():
        expected = of_function[argument]
        for now, later in LATER.items():
            if now in expected:
                expected = expected.replace(now, later)
                break
        assert of_class[argument] == expected
