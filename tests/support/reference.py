"""What the reference backend can't do where no backend replaces its functions."""

# By backend and test: the error that is expected, and the reason.
EXCEPTIONS = {
    ("torch", "test_float64_is_computed_in_full"): (
        AssertionError,
        "Keras's functions cast float64 to float32 on torch",
    ),
}
# Cases of which float32 holds the values in full.
PASS = {
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

# NumPy warns of sums of infinities of both signs, and of 0 / 0 where no list counts,
# unless told to be quiet: of some examples that hypothesis draws.
WARNINGS = {
    ("numpy", name): "ignore::RuntimeWarning"
    for name in (
        "test_scores_are_what_they_mean",
        "test_class_is_the_weighted_mean_of_the_oracle",
    )
}
