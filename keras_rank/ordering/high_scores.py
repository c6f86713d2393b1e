"""The highest scores of lists, found without a look at all others."""


def _enough(count: Tensor | int) -> Tensor | int:
    """So many candidates hold the highest scores, and most often those tied too."""
    return 2 * count + 8
