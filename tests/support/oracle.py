"""The oracle: every metric of a single list in plain Python, slow and obvious.

It uses no Keras, tensors or batches. Numbers are float64.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

INT32 = 2**32


class Item(NamedTuple):
    label: float
    score: float
    weight: float = 1.0

    @property
    def retrieved(self) -> bool:
        return self.score > -math.inf


Formula = Callable[..., float]


def make_items(labels, scores, weights=None, mask=None) -> list[Item]:
    """Returns the items of a list in their order, without padding."""
    size = len(labels)
    weights = [1.0] * size if weights is None else weights
    mask = [True] * size if mask is None else mask
    items = []
    for label, score, weight, real in zip(labels, scores, weights, mask, strict=True):
        if label >= 0 and real and weight > 0:
            score = -math.inf if math.isnan(score) else float(score)
            items.append(Item(float(label), score, float(weight)))
    return items


def value(formula: Formula, items, k=None, ties="average", seed=0, number=0, **options):
    """Returns the value of one list, which is the mean over its possible orders."""
    if ties in ("worst", "best"):
        items, ties = untie_by_label(items, ties), "stable"
    orders = list(possible_orders(items, ties, seed, number))
    depth = len(items) if k is None else k
    return statistics.fmean(
        formula(ranked[:depth], items, k, **options) for ranked in orders
    )


def possible_orders(items, ties, seed=0, number=0) -> Iterator[list[Item]]:
    """Yields the orders of the retrieved items: one, or all orders of tied items."""
    retrieved = [i for i, item in enumerate(items) if item.retrieved]
    if ties == "stable":
        yield [items[i] for i in sorted(retrieved, key=lambda i: -items[i].score)]
    elif ties == "shuffle":
        keys = [shuffle_key(seed, number, i) for i in range(len(items))]
        order = sorted(retrieved, key=lambda i: (-items[i].score, -keys[i]))
        yield [items[i] for i in order]
    else:
        scores = sorted({items[i].score for i in retrieved}, reverse=True)
        groups = [[items[i] for i in retrieved if items[i].score == s] for s in scores]
        for parts in itertools.product(*map(itertools.permutations, groups)):
            yield [item for part in parts for item in part]


def untie_by_label(items, ties) -> list[Item]:
    """Returns the items with distinct scores: tied items are in the order of labels."""
    sign = -1.0 if ties == "best" else 1.0
    by_label = lambda i: (-items[i].score, sign * items[i].label)  # noqa: E731
    return with_ranks(items, sorted(range(len(items)), key=by_label))


def with_ranks(items, order) -> list[Item]:
    """Returns the items with their negative ranks as scores."""
    ranks = {i: rank for rank, i in enumerate(order)}
    return [
        item._replace(score=-float(ranks[i])) if item.retrieved else item
        for i, item in enumerate(items)
    ]


def untied_lists(items) -> Iterator[list[Item]]:
    """Yields the items with the distinct scores of each order of tied items."""
    scores = sorted({item.score for item in items}, reverse=True)
    groups = [[i for i, item in enumerate(items) if item.score == s] for s in scores]
    for parts in itertools.product(*map(itertools.permutations, groups)):
        yield with_ranks(items, [i for part in parts for i in part])


def mean(values: Sequence[float], weights: Sequence[float | None], empty_value=0.0):
    """Returns the mean over lists. Lists without relevance have the weight `None`."""
    known = [weight for weight in weights if weight is not None]
    average = statistics.fmean(known) if known else 1.0
    total = total_weight = 0.0
    for list_value, weight in zip(values, weights, strict=True):
        if weight is None and empty_value is None:
            continue
        weight = average if weight is None else weight
        total += weight * (empty_value if list_value is None else list_value)
        total_weight += weight
    return total / total_weight if total_weight else 0.0


def mean_over(lists, formula: Formula, relevance, **arguments) -> float:
    """Returns the mean over nonempty lists of labels, scores and weights."""
    nonempty = [items for items in itertools.starmap(make_items, lists) if items]
    values = [value(formula, items, **arguments) for items in nonempty]
    return mean(values, [list_weight(items, relevance) for items in nonempty])


def list_weight(items, relevance: Callable[[float], float]) -> float | None:
    total = sum(relevance(item.label) for item in items)
    if total == 0:
        return None
    return sum(item.weight * relevance(item.label) for item in items) / total


# Relevance, gains and discounts.


def exponential(label: float) -> float:
    return 2.0**label - 1.0


def linear(label: float) -> float:
    return label


def binary(threshold: float = 1.0) -> Callable[[float], float]:
    return lambda label: float(label >= threshold)


at_least_one = binary()


def log2(rank: int) -> float:
    return 1.0 / math.log2(rank + 1)


DISCOUNTS = {
    "log2": log2,
    "clipped_log2": lambda rank: 1.0 / max(1.0, math.log2(rank)),
    "reciprocal": lambda rank: 1.0 / rank,
}


# The formulas. Arguments: the ranked items up to the cutoff, all items, and the cutoff.


def dcg(ranked, items, k, relevance=exponential, rank_discount_fn="log2"):
    weight = list_weight(items, relevance)
    return _discounted(ranked, relevance, rank_discount_fn) / weight if weight else 0.0


def ndcg(ranked, items, k, relevance=exponential, rank_discount_fn="log2"):
    gain = lambda item: item.weight * relevance(item.label)  # noqa: E731
    ideal = sorted(items, key=gain, reverse=True)[:k]
    best = _discounted(ideal, relevance, rank_discount_fn)
    return _discounted(ranked, relevance, rank_discount_fn) / best if best else 0.0


def _discounted(ranked, relevance, rank_discount_fn) -> float:
    discount = DISCOUNTS.get(rank_discount_fn, rank_discount_fn)
    return math.fsum(
        item.weight * relevance(item.label) * discount(rank)
        for rank, item in enumerate(ranked, start=1)
    )


def average_precision(ranked, items, k, normalizer="total", relevance=at_least_one):
    weight = lambda item: item.weight * relevance(item.label)  # noqa: E731
    num_relevant, terms, precisions = 0, [], []
    for rank, item in enumerate(ranked, start=1):
        if relevance(item.label):
            num_relevant += 1
            precisions.append(num_relevant / rank)
            terms.append(item.weight * num_relevant / rank)
    if normalizer == "retrieved":
        return statistics.fmean(precisions) if precisions else 0.0
    best = sorted(map(weight, items), reverse=True)
    divisor = sum(best if normalizer == "total" else best[:k])
    return sum(terms) / divisor if divisor else 0.0


def reciprocal_rank(ranked, items, k, relevance=at_least_one):
    for rank, item in enumerate(ranked, start=1):
        if relevance(item.label):
            return 1 / rank
    return 0.0


def hits(ranked, relevance):
    return sum(relevance(item.label) for item in ranked)


def precision(ranked, items, k, denominator="available", relevance=at_least_one):
    k = len(items) if k is None else k
    retrieved = sum(item.retrieved for item in items)
    sizes = {"k": k, "available": len(items), "retrieved": retrieved}
    divisor = min(k, sizes[denominator])
    return hits(ranked, relevance) / divisor if divisor else 0.0


def recall(ranked, items, k, normalizer="total", relevance=at_least_one):
    count = hits(items, relevance)
    if normalizer == "clipped" and k is not None:
        count = min(count, k)
    return hits(ranked, relevance) / count if count else 0.0


def hit_rate(ranked, items, k, relevance=at_least_one):
    return float(hits(ranked, relevance) > 0)


def f1(ranked, items, k):
    return f_beta(ranked, items, k, beta=1.0)


def f_beta(ranked, items, k, beta=2.0, denominator="available", relevance=at_least_one):
    p = precision(ranked, items, k, denominator, relevance)
    r = recall(ranked, items, k, relevance=relevance)
    return (1 + beta**2) * p * r / (beta**2 * p + r) if p + r else 0.0


def r_precision(ranked, items, k, relevance=at_least_one):
    count = int(hits(items, relevance))
    count = count if k is None else min(count, k)
    return hits(ranked[:count], relevance) / count if count else 0.0


def average_precision_at_r(ranked, items, k, relevance=at_least_one):
    count = int(hits(items, relevance))
    count = count if k is None else min(count, k)
    precisions = [
        hits(ranked[:rank], relevance) / rank
        for rank, item in enumerate(ranked[:count], start=1)
        if relevance(item.label)
    ]
    return sum(precisions) / count if count else 0.0


def rank_biased_precision(
    ranked,
    items,
    k,
    persistence=0.8,
    normalized=False,
    max_grade=1,
    relevance=at_least_one,
):
    def discounted(ranked):
        return sum(
            relevance(item.label) / relevance(max_grade) * persistence ** (rank - 1)
            for rank, item in enumerate(ranked, start=1)
        )

    if not normalized:
        return (1 - persistence) * discounted(ranked)
    ideal = sorted(items, key=lambda item: relevance(item.label), reverse=True)
    best = discounted(ideal[:k])
    return discounted(ranked) / best if best else 0.0


def bpref(ranked, items, k, relevance=at_least_one):
    count = hits(items, relevance)
    most = min(count, len(items) - count)
    value = irrelevant_above = 0.0
    for item in ranked:
        if not relevance(item.label):
            irrelevant_above += 1
        elif irrelevant_above == 0:
            value += 1
        else:
            value += 1 - min(irrelevant_above, most) / most
    return value / count if count else 0.0


def fall_out(ranked, items, k):
    irrelevant = lambda label: label < 1  # noqa: E731
    count = hits(items, irrelevant)
    return hits(ranked, irrelevant) / count if count else 0.0


def expected_reciprocal_rank(ranked, items, k, max_grade=4, relevance_threshold=0):
    value, reached = 0.0, 1.0
    for rank, item in enumerate(ranked, start=1):
        counts = item.label >= relevance_threshold
        stop = (2**item.label - 1) / 2**max_grade if counts else 0.0
        value += reached * stop / rank
        reached *= 1 - stop
    return value


def average_relevance_position(ranked, items, k, relevance=at_least_one):
    last = len(items) if k is None else min(k + 1, len(items))
    ranks = {id(item): rank for rank, item in enumerate(ranked, start=1)}
    total = sum(item.label for item in items if relevance(item.label))
    position = sum(
        item.label * ranks.get(id(item), last)
        for item in items
        if relevance(item.label)
    )
    return position / total if total else 0.0


def pairwise_accuracy(ranked, items, k, tied_value=0.5):
    """Returns the share of pairs with different labels that are in the right order.

    The order of tied items has no influence.
    """
    best = sorted((item.score for item in items if item.retrieved), reverse=True)
    lowest = best[k - 1] if k is not None and k < len(best) else -math.inf
    pairs = credit = 0.0
    for better, worse in itertools.permutations(items, 2):
        if better.label > worse.label:
            pairs += better.weight
            high, low = (
                -1e300 if item.retrieved and item.score < lowest else item.score
                for item in (better, worse)
            )
            if better.retrieved:
                share = 1.0 if high > low else tied_value if high == low else 0.0
                credit += better.weight * share
    return credit / pairs if pairs else 0.0


def kendall_tau(ranked, items, k):
    """Returns Kendall's tau-b, for which items that were not retrieved are tied."""
    ordered = by_label = by_score = 0
    for x, y in itertools.combinations(items, 2):
        ordered += sign(x.label, y.label) * sign(x.score, y.score)
        by_label += x.label != y.label
        by_score += x.score != y.score
    product = by_label * by_score
    return ordered / math.sqrt(product) if product else 0.0


def spearman_correlation(ranked, items, k):
    labels, scores, _ = zip(*items, strict=True)
    if len(set(labels)) == 1 or len(set(scores)) == 1:
        return 0.0
    return statistics.correlation(mean_ranks(labels), mean_ranks(scores))


def sign(x, y) -> int:
    return (x > y) - (x < y)


def mean_ranks(values) -> list[float]:
    in_order = sorted(values)
    return [in_order.index(x) + (in_order.count(x) + 1) / 2 for x in values]


# Subtopics. A function maps the label of an item to the subtopics that it covers.


def one_topic(label: float) -> list[bool]:
    return [label >= 1]


def subtopics_in_digits(label: float) -> list[bool]:
    """Returns which of three subtopics an item covers, by its label's binary digits."""
    return [bool(int(label) >> topic & 1) for topic in range(3)]


def subtopic_labels(labels):
    """Adds an axis of three subtopics to labels. Padding is -1 or NaN in all three."""
    import numpy as np

    labels = np.asarray(labels, "float32")
    is_known = (labels >= 0) & (labels < 8)
    known = np.where(is_known, labels, 0).astype("int32")
    bits = np.stack([known >> topic & 1 for topic in range(3)], -1)
    return np.where(is_known[..., None], bits, labels[..., None]).astype("float32")


def novelties(ranked, alpha, topics) -> list[list[float]]:
    """Returns the gain of each item for each topic."""
    num_above = [0] * len(topics(0.0))
    gains = []
    for item in ranked:
        relevant = topics(item.label)
        gains.append(
            [r * (1 - alpha) ** n for r, n in zip(relevant, num_above, strict=True)]
        )
        num_above = [n + r for r, n in zip(relevant, num_above, strict=True)]
    return gains


def covered_topics(items, topics) -> list[bool]:
    """Returns for each topic whether an item is relevant to it."""
    labels = [item.label for item in items]
    return [any(column) for column in zip(*map(topics, labels), strict=True)]


def _novelty(ranked, alpha, rank_discount_fn, topics) -> float:
    discount = DISCOUNTS[rank_discount_fn]
    return math.fsum(
        item.weight * sum(gains) * discount(rank)
        for rank, (item, gains) in enumerate(
            zip(ranked, novelties(ranked, alpha, topics), strict=True), start=1
        )
    )


def _maximum_of_topic(items, k, alpha, rank_discount_fn) -> float:
    """Returns the value of one topic if all items are relevant to it."""
    discount = DISCOUNTS[rank_discount_fn]
    last = len(items) if k is None else k
    return sum((1 - alpha) ** (r - 1) * discount(r) for r in range(1, last + 1))


def alpha_dcg(ranked, items, k, alpha=0.5, normalizer=None, topics=one_topic) -> float:
    weight = list_weight(items, lambda label: float(any(topics(label))))
    if not weight:
        return 0.0
    value = _novelty(ranked, alpha, "log2", topics) / weight
    if normalizer is None:
        return value
    return (
        value
        / sum(covered_topics(items, topics))
        / _maximum_of_topic(items, k, alpha, "log2")
    )


def alpha_ndcg(
    ranked, items, k, alpha=0.5, rank_discount_fn="log2", topics=one_topic
) -> float:
    rest, ideal = list(items), []
    while rest and (k is None or len(ideal) < k):
        gains = [
            item.weight * sum(novelties([*ideal, item], alpha, topics)[-1])
            for item in rest
        ]
        # Equal gains may differ by rounding errors.
        best = next(i for i, g in enumerate(gains) if g >= max(gains) * (1 - 1e-6))
        ideal.append(rest.pop(best))
    best = _novelty(ideal, alpha, rank_discount_fn, topics)
    return _novelty(ranked, alpha, rank_discount_fn, topics) / best if best else 0.0


def _mean_over_topics(values, items, weights, topics) -> float:
    present = covered_topics(items, topics)
    weights = [
        w * p for w, p in zip(weights or [1] * len(present), present, strict=True)
    ]
    mean = sum(w * v for w, v in zip(weights, values, strict=True))
    return mean / sum(weights) if sum(weights) else 0.0


def expected_reciprocal_rank_ia(
    ranked,
    items,
    k,
    alpha=0.5,
    subtopic_weights=None,
    normalizer=None,
    topics=one_topic,
) -> float:
    values = [0.0] * len(topics(0.0))
    for rank, gains in enumerate(novelties(ranked, alpha, topics), start=1):
        values = [v + alpha * g / rank for v, g in zip(values, gains, strict=True)]
    value = _mean_over_topics(values, items, subtopic_weights, topics)
    if normalizer is None:
        return value
    return value / alpha / _maximum_of_topic(items, k, alpha, "reciprocal")


def precision_ia(
    ranked, items, k, denominator="available", subtopic_weights=None, topics=one_topic
) -> float:
    values = [
        precision(ranked, items, k, denominator, lambda label, t=t: topics(label)[t])
        for t in range(len(topics(0.0)))
    ]
    return _mean_over_topics(values, items, subtopic_weights, topics)


def subtopic_recall(ranked, items, k, topics=one_topic) -> float:
    values = [float(covered) for covered in covered_topics(ranked, topics)]
    values = values or [0.0] * len(topics(0.0))
    return _mean_over_topics(values, items, None, topics)


# The shuffle: a hash of the seed, the number of the list, and the number of the item.


def shuffle_key(seed: int, list_number: int, item_number: int) -> int:
    import hashlib

    digest = hashlib.blake2s(str(seed).encode(), digest_size=4).digest()
    folded_seed = int.from_bytes(digest, "little")
    list_key = mix(mix(list_number) ^ folded_seed)
    key = mix(mix(item_number + 1) ^ list_key)
    signed = key - INT32 if key >= INT32 // 2 else key
    return max(signed, -(2**31) + 1)


def mix(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) % INT32
    x = ((x ^ (x >> 15)) * 0x846CA68B) % INT32
    return x ^ (x >> 16)
