"""What the reference backend can't do where no backend replaces its functions.

By backend and test: the error that is expected, and the reason.
"""

EXCEPTIONS = {
    ("torch", "test_float64_is_computed_in_full"): (
        AssertionError,
        "Keras's functions cast float64 to float32 on torch",
    ),
    ("torch", "test_functions_compile"): (
        RuntimeError,
        "the reference does not know that torch.compile traces it, which can't trace "
        "the frame that tells whether a loss is called",
    ),
    ("numpy", "test_scores_are_what_they_mean"): (
        RuntimeWarning,
        "NumPy warns of sums of infinities of both signs, unless told to be quiet",
    ),
    ("numpy", "test_class_is_the_weighted_mean_of_the_oracle"): (
        RuntimeWarning,
        "NumPy warns of 0 / 0 where no list counts, unless told to be quiet",
    ),
}
