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
        names = [by] if isinstance(by, str) else by or []
        are_names = isinstance(names, Sequence)
        if not are_names or not all(isinstance(name, str) for name in names):
            raise ValueError(f"`by` should be names of columns. Received: by={by!r}")
        return cls(list(dict.fromkeys(names)), cluster, confidence, test, correction)
