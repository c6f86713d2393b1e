"""How means and differences are estimated."""

from collections.abc import Sequence
from typing import NamedTuple

from keras_rank.arguments import check_choice, check_fraction

# The accepted values, and what people call them.
TESTS = {"t": "paired t-test", "permutation": "permutation test"}
CORRECTIONS = {"holm": "Holm", "bh": "Benjamini-Hochberg", "by": "Benjamini-Yekutieli"}


class How(NamedTuple):
    """How means, or differences from a baseline, are estimated: as for `compare`."""

    by: list[str]
    cluster: str | None
    confidence: float
    test: str
    correction: str | None

    @classmethod
    def of(
        cls,
        by: str | Sequence[str] | None,
        cluster: str | None,
        confidence: float,
        test: str = "t",
        correction: str | None = None,
    ) -> "How":
        """Checks the arguments, as far as they don't depend on lists."""
        check_choice("test", test, list(TESTS))
        if correction is not None:
            check_choice("correction", correction, list(CORRECTIONS))
        confidence = check_fraction("confidence", confidence)
        names = list(column_names("by", by))
        return cls(names, cluster, confidence, test, correction)


def column_names(argument: str, names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Returns the distinct names of columns. Raises for other values."""
    found = [names] if isinstance(names, str) else names or []
    if isinstance(found, Sequence) and all(isinstance(name, str) for name in found):
        return tuple(dict.fromkeys(found))
    raise ValueError(
        f"`{argument}` should be names of columns. Received: {argument}={names!r}"
    )
