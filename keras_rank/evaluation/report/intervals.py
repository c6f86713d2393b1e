"""Means over lists and differences of means, with their errors and intervals."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from keras_rank.arguments import check_choice, check_fraction
from keras_rank.backends import Array
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import Measured

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


# The draws of a permutation test, and how many of the largest differences it permutes.
_RESAMPLES = 9999
_SIGNS = 2**13
# What geometric means take for 0, as trec_eval does.
_SMALLEST = 1e-5


class Mean(NamedTuple):
    """A weighted mean over lists.

    Attributes:
        value: the mean, NaN for no lists.
        influence: array of shape `(lists,)`. What each list contributes to the error
            of the mean, times the number of lists. The sum is 0.
        terms: array of the same shape. What each list contributes to the mean itself,
            times the number of lists.
        is_log: whether it is the logarithm of a geometric mean.
    """

    value: float
    influence: Array
    terms: Array
    is_log: bool = False

    @property
    def number(self) -> float:
        """The mean itself."""
        return math.exp(self.value) if self.is_log else self.value

    def __sub__(self, other: "Mean") -> "Mean":
        influence = self.influence - other.influence
        return Mean(self.value - other.value, influence, self.terms - other.terms)


class Estimate(NamedTuple):
    """A number with its standard error, interval and p-value.

    Its units are the clusters, or the lists if there are none.
    """

    value: float
    standard_error: float
    low: float
    high: float
    p: float
    lists: int
    units: int

    def within(self, low: float, high: float) -> "Estimate":
        """The estimate with an interval that does not exceed a range."""
        return self._replace(low=max(self.low, low), high=min(self.high, high))

    def exp(self, baseline: float | None = None) -> "Estimate":
        """The estimate of a geometric mean, or its difference, from that of its log."""
        factor, less = (1.0, 0.0) if baseline is None else (baseline, baseline)
        value, low, high = (
            factor * math.exp(min(x, 700.0)) - less
            for x in (self.value, self.low, self.high)
        )
        error = (value + less) * self.standard_error
        return self._replace(value=value, standard_error=error, low=low, high=high)


class Values(NamedTuple):
    """The values of a metric.

    Attributes:
        values: array of shape `(lists,)`, NaN for a list that is left out.
        weights: array of the same shape, NaN for a list without relevant items, which
            has the average weight of the others.
        empty_value: the value of such a list.
        reduction: how they become one number: see `Measured`.
    """

    values: Array
    weights: Array
    empty_value: float | None
    reduction: str = "mean"

    @classmethod
    def of(
        cls, lists: ListTable, metric: Measured, column: str | None = None
    ) -> "Values":
        """The values of a metric, or of a similar column."""
        values = lists.array(column or metric.name)
        weights = lists.weights(metric)
        return cls(values, weights, metric.empty_value, metric.reduction)

    def at(self, places: Array) -> "Values":
        """The values at places, NaN where these are -1."""
        is_missing = places < 0
        values = np.where(is_missing, np.nan, self.values[places])
        weights = np.where(is_missing, np.nan, self.weights[places])
        return self._replace(values=values, weights=weights)

    def mean(self, chosen: Array) -> Mean:
        """The mean over chosen lists, or their sum or geometric mean, as they have it.

        A sum is an integer, and no estimate of anything: its error is NaN.
        """
        values, weights = self.values[chosen], self.weights[chosen]
        if self.reduction == "sum":
            unknown = np.full(len(values), math.nan)
            return Mean(int(values.sum()), unknown, unknown)
        if self.reduction == "geometric mean":
            logs, of_empty = (
                np.log(np.maximum(x, _SMALLEST))
                for x in (self.values, self.empty_value or 0.0)
            )
            mean = Values(logs, self.weights, float(of_empty)).mean(chosen)
            return mean._replace(is_log=True)
        is_relevant = ~np.isnan(weights)
        relevant, weights = values[is_relevant], weights[is_relevant]
        lists, total = len(values), weights.sum()
        if lists == 0:
            return Mean(math.nan, values, values)
        empty = float(self.empty_value or 0.0)
        # Without weights of its own, the average is 1.
        average = total / len(weights) if len(weights) and total > 0.0 else 1.0
        of_relevant = (weights * relevant).sum() / total if total > 0.0 else 0.0
        terms = np.full(lists, empty)
        terms[is_relevant] = weights / average * relevant
        # One after the other, as trec_eval adds them: both round alike to four places.
        value = float(np.cumsum(terms)[-1]) / lists
        influence = np.full(lists, empty - value)
        influence[is_relevant] = weights / average * (relevant - of_relevant)
        influence[is_relevant] += of_relevant - value
        return Mean(value, influence, terms)

    def count_effective_lists(self, chosen: Array) -> float:
        """Returns the number of lists of equal weight with the same variance.

        `effective_lists = sum(weight)**2 / sum(weight**2)`

        Lists without a weight have the average weight of the others.
        """
        weights = self.weights[chosen]
        known = weights[~np.isnan(weights)]
        average = known.mean() if known.size and known.sum() > 0.0 else 1.0
        weights = np.where(np.isnan(weights), average, weights)
        if not weights.any():
            return 0.0
        return float(weights.sum() ** 2 / np.square(weights).sum())

    def are_from(self, lowest: float) -> bool:
        """Whether all values are between that and 1, but for a rounding."""
        return not np.any((self.values < lowest) | (self.values > 1.0 + 1e-6))

    def are_hits(self, chosen: Array) -> bool:
        """Whether the mean over chosen lists is a share: of values of 0 and 1.

        As for hit rates, of two or more lists with the same weight.
        """
        values, weights = self.values[chosen], self.weights[chosen]
        weights = weights[~np.isnan(weights)]
        are_binary = np.isin(values, (0.0, 1.0)).all()
        are_alike = are_binary and np.all(weights == weights[:1])
        return bool(len(values) > 1 and are_alike and self.reduction == "mean")

    def share_interval(self, chosen: Array, confidence: float) -> tuple[float, float]:
        """Wilson's interval for the mean of such values.

        If nearly all values are equal, that of Student's t is far too narrow.
        """
        found = stats.binomtest(int(self.values[chosen].sum()), len(chosen))
        interval = found.proportion_ci(confidence, method="wilson")
        return float(interval.low), float(interval.high)


def estimate(
    mean: Mean, clusters: Array | None, confidence: float, permute: bool = False
) -> Estimate:
    """Estimates the error of a mean by the delta method.

    The lists of a cluster count as one: what they contribute is summed. With one list
    per cluster and weights of 1, the standard error is that of a mean, s / sqrt(n), and
    p that of the t-test.

    Args:
        mean: a mean, or the difference of two.
        clusters: int array of shape `(lists,)`, or `None` for one cluster per list.
        confidence: the confidence level of the interval.
        permute: whether p comes from random signs, instead of Student's t.
    """
    value, influence, terms, _ = mean
    lists = len(influence)
    if clusters is not None:
        _, numbers = np.unique(clusters, return_inverse=True)
        influence, terms = (np.bincount(numbers, x) for x in (influence, terms))
    units = len(influence)
    if units < 2 or np.isnan(influence).any():
        return Estimate(value, math.nan, math.nan, math.nan, math.nan, lists, units)
    variance = units / (units - 1) * np.sum(np.square(influence)) / lists**2
    error = float(np.sqrt(variance))
    half = error * float(stats.t.ppf((1.0 + confidence) / 2.0, units - 1))
    if permute:
        p = _permuted(terms)
    elif error == 0.0:
        p = float(value == 0.0)
    else:
        p = float(2.0 * stats.t.sf(abs(value) / error, units - 1))
    return Estimate(value, error, value - half, value + half, p, lists, units)


# OpenBLAS may say that a value was invalid where none was.
@np.errstate(invalid="ignore")
def _permuted(differences: Array) -> float:
    """How often random signs give a sum as large as that of the differences.

    The sum of all but the largest differences is drawn from the normal distribution,
    as each of them is a small part of the whole.
    """
    by_size = np.sort(np.abs(differences[differences != 0.0]))[::-1]
    largest, rest = by_size[:_SIGNS], by_size[_SIGNS:]
    # Sums in another order may differ in their last digits.
    observed = abs(differences.sum()) - 1e-12 * by_size.sum()
    if len(by_size) < _RESAMPLES.bit_length():
        patterns = np.arange(2 ** len(by_size))[:, None]
        signs = 2.0 * (patterns >> np.arange(len(by_size)) & 1) - 1.0
        return float(np.mean(np.abs(signs @ largest) >= observed))
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal(_RESAMPLES) * np.sqrt(np.square(rest).sum())
    for block in np.array_split(drawn, max(1, len(largest) // 100)):
        are_kept = rng.integers(0, 2, (len(block), len(largest)), dtype=np.uint8)
        block += (2.0 * are_kept - 1.0) @ largest
    return float(np.sum(np.abs(drawn) >= observed) + 1) / (_RESAMPLES + 1)


def corrected(p: Array, correction: str | None) -> Array:
    """The p-values of many comparisons, NaN where there are none."""
    result, is_known = p.copy(), ~np.isnan(p)
    known = p[is_known]
    if correction == "holm":
        order = np.argsort(known)
        steps = known[order] * np.arange(len(known), 0, -1)
        known[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    elif correction is not None and len(known):
        known = stats.false_discovery_control(known, method=correction)
    result[is_known] = known
    return result
