"""Means over lists and differences of means, with standard errors and intervals."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from keras_rank.arguments import check_choice, check_fraction
from keras_rank.backends import Array
from keras_rank.evaluation.lists.list_table import ListTable
from keras_rank.evaluation.lists.metric_names import MetricInfo

# The accepted values of `test` and `correction`, with their names on pages.
TESTS = {"t": "paired t-test", "permutation": "permutation test"}
CORRECTIONS = {"holm": "Holm", "bh": "Benjamini-Hochberg", "by": "Benjamini-Yekutieli"}


class EstimateOptions(NamedTuple):
    """Options of estimates of means, or of differences from a baseline.

    The fields are the arguments of `compare`.
    """

    by: list[str]
    cluster: str | None
    confidence: float
    test: str
    correction: str | None

    @classmethod
    def from_arguments(
        cls,
        by: str | Sequence[str] | None,
        cluster: str | None,
        confidence: float,
        test: str = "t",
        correction: str | None = None,
    ) -> "EstimateOptions":
        """Returns the options. Raises `ValueError` for invalid arguments."""
        check_choice("test", test, list(TESTS))
        if correction is not None:
            check_choice("correction", correction, list(CORRECTIONS))
        confidence = check_fraction("confidence", confidence)
        names = list(check_column_names("by", by))
        return cls(names, cluster, confidence, test, correction)


def check_column_names(
    argument: str, names: str | Sequence[str] | None
) -> tuple[str, ...]:
    """Returns the distinct names of columns. Raises `ValueError` for other values."""
    name_list = [names] if isinstance(names, str) else names or []
    if isinstance(name_list, Sequence) and all(
        isinstance(name, str) for name in name_list
    ):
        return tuple(dict.fromkeys(name_list))
    raise ValueError(
        f"`{argument}` should be names of columns. Received: {argument}={names!r}"
    )


# The number of draws of a permutation test, and the maximum number of differences whose
# signs are drawn one by one.
_RESAMPLES = 9999
_MAX_SIGNED = 2**13
# Geometric means replace smaller values by this number, as trec_eval does.
_GEOMETRIC_MINIMUM = 1e-5


class Mean(NamedTuple):
    """A weighted mean over lists.

    Attributes:
        value: the mean, NaN for no lists.
        influence: array of shape `(lists,)`. The contribution of each list to the error
            of the mean, times the number of lists. The sum is 0.
        terms: array of the same shape. The contribution of each list to the mean, times
            the number of lists.
        is_log: whether the mean is the logarithm of a geometric mean.
    """

    value: float
    influence: Array
    terms: Array
    is_log: bool = False

    @property
    def number(self) -> float:
        """The mean, or the geometric mean if `value` is its logarithm."""
        return math.exp(self.value) if self.is_log else self.value

    def __sub__(self, other: "Mean") -> "Mean":
        influence = self.influence - other.influence
        return Mean(self.value - other.value, influence, self.terms - other.terms)


class Estimate(NamedTuple):
    """A number with its standard error, interval and p-value.

    The units are the clusters, or the lists if there are no clusters.
    """

    value: float
    standard_error: float
    low: float
    high: float
    p: float
    lists: int
    units: int

    def clip(self, low: float, high: float) -> "Estimate":
        """Returns the estimate with its interval clipped to a range."""
        return self._replace(low=max(self.low, low), high=min(self.high, high))

    def exp(self, baseline: float | None = None) -> "Estimate":
        """Returns the estimate of a geometric mean from the estimate of its logarithm.

        Args:
            baseline: the geometric mean of the baseline, if the estimate is the
                difference of two logarithms. The result is then the difference of the
                geometric means.
        """
        scale, offset = (1.0, 0.0) if baseline is None else (baseline, baseline)
        value, low, high = (
            scale * math.exp(min(x, 700.0)) - offset
            for x in (self.value, self.low, self.high)
        )
        error = (value + offset) * self.standard_error
        return self._replace(value=value, standard_error=error, low=low, high=high)


class Values(NamedTuple):
    """The values of a metric for all lists.

    Attributes:
        values: array of shape `(lists,)`, NaN for a list that is left out.
        weights: array of the same shape, NaN for a list without relevant items, which
            gets the average weight of the other lists.
        empty_value: the value of a list without relevant items.
        reduction: the reduction of the values to one number: see `MetricInfo`.
    """

    values: Array
    weights: Array
    empty_value: float | None
    reduction: str = "mean"

    @classmethod
    def from_table(
        cls, lists: ListTable, metric: MetricInfo, column: str | None = None
    ) -> "Values":
        """Returns the values of a metric.

        Args:
            lists: the lists.
            metric: the metric.
            column: the column of the values. Defaults to `None`: the column of the
                metric.
        """
        values = lists.array(column or metric.name)
        weights = lists.weights(metric)
        return cls(values, weights, metric.empty_value, metric.reduction)

    def take(self, indices: Array) -> "Values":
        """Returns the values at `indices`, NaN for the index -1."""
        is_missing = indices < 0
        values = np.where(is_missing, np.nan, self.values[indices])
        weights = np.where(is_missing, np.nan, self.weights[indices])
        return self._replace(values=values, weights=weights)

    def mean(self, indices: Array) -> Mean:
        """Returns the mean over lists, or the sum or geometric mean.

        A sum is an integer and estimates nothing, so that its error is NaN.

        Args:
            indices: int or bool array that selects the lists.
        """
        values, weights = self.values[indices], self.weights[indices]
        if self.reduction == "sum":
            unknown = np.full(len(values), math.nan)
            return Mean(int(values.sum()), unknown, unknown)
        if self.reduction == "geometric mean":
            logs, empty_log = (
                np.log(np.maximum(x, _GEOMETRIC_MINIMUM))
                for x in (self.values, self.empty_value or 0.0)
            )
            mean = Values(logs, self.weights, float(empty_log)).mean(indices)
            return mean._replace(is_log=True)
        is_relevant = ~np.isnan(weights)
        relevant_values, weights = values[is_relevant], weights[is_relevant]
        lists, total = len(values), weights.sum()
        if lists == 0:
            return Mean(math.nan, values, values)
        empty = float(self.empty_value or 0.0)
        # If no list has a weight, all lists have the weight 1.
        average_weight = total / len(weights) if len(weights) and total > 0.0 else 1.0
        relevant_mean = (
            (weights * relevant_values).sum() / total if total > 0.0 else 0.0
        )
        terms = np.full(lists, empty)
        terms[is_relevant] = weights / average_weight * relevant_values
        # `cumsum` adds the terms one by one, as trec_eval does, so that both results
        # are the same when rounded to four digits.
        value = float(np.cumsum(terms)[-1]) / lists
        influence = np.full(lists, empty - value)
        influence[is_relevant] = (
            weights / average_weight * (relevant_values - relevant_mean)
        )
        influence[is_relevant] += relevant_mean - value
        return Mean(value, influence, terms)

    def count_effective_lists(self, indices: Array) -> float:
        """Returns the effective sample size of lists of different weights.

        `effective_lists = sum(weight)**2 / sum(weight**2)`

        A list without a weight has the average weight of the other lists.
        """
        weights = self.weights[indices]
        known = weights[~np.isnan(weights)]
        average = known.mean() if known.size and known.sum() > 0.0 else 1.0
        weights = np.where(np.isnan(weights), average, weights)
        if not weights.any():
            return 0.0
        return float(weights.sum() ** 2 / np.square(weights).sum())

    def is_bounded(self, lowest: float) -> bool:
        """Returns whether all values are between `lowest` and 1, up to rounding."""
        return not np.any((self.values < lowest) | (self.values > 1.0 + 1e-6))

    def is_proportion(self, indices: Array) -> bool:
        """Returns whether the mean over lists is a proportion, as for hit rates.

        The mean is a proportion if all values are 0 or 1, and there are two or more
        lists, all with the same weight.
        """
        values, weights = self.values[indices], self.weights[indices]
        weights = weights[~np.isnan(weights)]
        is_binary = np.isin(values, (0.0, 1.0)).all()
        is_uniform = is_binary and np.all(weights == weights[:1])
        return bool(len(values) > 1 and is_uniform and self.reduction == "mean")

    def wilson_interval(self, indices: Array, confidence: float) -> tuple[float, float]:
        """Returns Wilson's interval for a mean that is a proportion.

        If nearly all values are equal, the interval of Student's t is far too narrow.
        """
        test_result = stats.binomtest(int(self.values[indices].sum()), len(indices))
        interval = test_result.proportion_ci(confidence, method="wilson")
        return float(interval.low), float(interval.high)


def estimate(
    mean: Mean, clusters: Array | None, confidence: float, permute: bool = False
) -> Estimate:
    """Estimates the error of a mean by the delta method.

    The contributions of the lists of a cluster are summed, so that a cluster counts as
    one unit. With one list per cluster and weights of 1, the standard error is the
    standard error of a mean, s / sqrt(n), and p is the p-value of the t-test.

    Args:
        mean: a mean, or the difference of two.
        clusters: int array of shape `(lists,)`, or `None` for one cluster per list.
        confidence: the confidence level of the interval.
        permute: whether p comes from a permutation test instead of Student's t.
    """
    value, influence, terms, _ = mean
    lists = len(influence)
    if clusters is not None:
        _, cluster_indices = np.unique(clusters, return_inverse=True)
        influence, terms = (np.bincount(cluster_indices, x) for x in (influence, terms))
    units = len(influence)
    if units < 2 or np.isnan(influence).any():
        return Estimate(value, math.nan, math.nan, math.nan, math.nan, lists, units)
    variance = units / (units - 1) * np.sum(np.square(influence)) / lists**2
    error = float(np.sqrt(variance))
    half_width = error * float(stats.t.ppf((1.0 + confidence) / 2.0, units - 1))
    if permute:
        p = _compute_permutation_p(terms)
    elif error == 0.0:
        p = float(value == 0.0)
    else:
        p = float(2.0 * stats.t.sf(abs(value) / error, units - 1))
    return Estimate(
        value, error, value - half_width, value + half_width, p, lists, units
    )


# OpenBLAS may report an invalid value although no value is invalid.
@np.errstate(invalid="ignore")
def _compute_permutation_p(differences: Array) -> float:
    """Returns the p-value of a permutation test with random signs.

    The p-value is the share of draws whose sum is at least as large as the sum of the
    differences. The sum of all but the `_MAX_SIGNED` largest differences is drawn from
    the normal distribution, as each of them is a small part of the sum.
    """
    sorted_sizes = np.sort(np.abs(differences[differences != 0.0]))[::-1]
    largest, rest = sorted_sizes[:_MAX_SIGNED], sorted_sizes[_MAX_SIGNED:]
    # The tolerance covers rounding, as sums in another order may differ.
    observed = abs(differences.sum()) - 1e-12 * sorted_sizes.sum()
    if len(sorted_sizes) < _RESAMPLES.bit_length():
        patterns = np.arange(2 ** len(sorted_sizes))[:, None]
        signs = 2.0 * (patterns >> np.arange(len(sorted_sizes)) & 1) - 1.0
        return float(np.mean(np.abs(signs @ largest) >= observed))
    rng = np.random.default_rng(0)
    sums = rng.standard_normal(_RESAMPLES) * np.sqrt(np.square(rest).sum())
    for block in np.array_split(sums, max(1, len(largest) // 100)):
        is_positive = rng.integers(0, 2, (len(block), len(largest)), dtype=np.uint8)
        block += (2.0 * is_positive - 1.0) @ largest
    return float(np.sum(np.abs(sums) >= observed) + 1) / (_RESAMPLES + 1)


def correct_p_values(p: Array, correction: str | None) -> Array:
    """Returns p-values corrected for multiple comparisons. NaN stays NaN."""
    result, is_known = p.copy(), ~np.isnan(p)
    known_p = p[is_known]
    if correction == "holm":
        order = np.argsort(known_p)
        steps = known_p[order] * np.arange(len(known_p), 0, -1)
        known_p[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    elif correction is not None and len(known_p):
        known_p = stats.false_discovery_control(known_p, method=correction)
    result[is_known] = known_p
    return result
