"""Expected failures and warnings of the reference backend, `generic.py`, on its own."""

# The expected error and its reason, by backend and test.
EXCEPTIONS = {
    ("torch", "test_float64_keeps_its_precision"): (
        AssertionError,
        "Keras's functions cast float64 to float32 on torch",
    ),
}
# Cases that pass nevertheless, as float32 represents their values exactly.
PASSING_CASES = {
    "bpref",
    "f-beta",
    "f-beta of 0.3, of the retrieved",
    "f1",
    "fall-out",
    "hit rate",
    "kendall's tau",
    "precision",
    "precision of k",
    "precision of the retrieved",
    "r-precision",
    "recall",
    "recall, clipped",
    "spearman's correlation",
    "subtopic recall",
}

# NumPy warns of sums of infinities of both signs, and of 0 / 0 if no list counts. Some
# examples that Hypothesis draws cause these warnings, which only a backend suppresses.
WARNINGS = {
    ("numpy", name): "ignore::RuntimeWarning"
    for name in (
        "test_special_scores_count_as_plain_scores",
        "test_class_equals_the_weighted_mean_of_the_oracle",
    )
}
