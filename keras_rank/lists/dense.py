"""Lists with a label and a score for every item: which positions hold an item."""


@dataclasses.dataclass(frozen=True, eq=False)
class DenseLists(Lists):
    """A batch of lists with a label and a score for every item.

    On a CPU long lists are not copied to mask them, where nothing has to be masked.

    Attributes:
        given_labels: tensor of shape `(batch, list_size)`.
        given_scores: tensor of the same shape.
        given_mask: boolean tensor of the same shape, or `None`.
        given_weights: tensor of the same shape, or `None`.
    """

    given_labels: Tensor
    given_scores: Tensor
    given_mask: Tensor | None = None
    given_weights: Tensor | None = None

    @kept
    def mask(self) -> Tensor:
        # A comparison with NaN is False: a NaN label or weight makes padding.
        mask = self.given_labels >= 0.0
        if self.given_mask is not None:
            mask = ops.logical_and(mask, self.given_mask)
        if self.given_weights is not None:
            tiny = smallest_normal(self.given_weights)
            mask = ops.logical_and(mask, self.given_weights >= tiny)
        return mask

    @kept
    def labels(self) -> Tensor:
        return within_limits(self._labels_or_none)

    @kept
    def scores(self) -> Tensor:
        retrieved = ops.logical_and(self.mask, self.given_scores > -math.inf)
        return where(retrieved, self.given_scores, -math.inf)

    @kept
    def weights(self) -> Tensor | None:
        if self.given_weights is None:
            return None
        return where(self.mask, at_most(self.given_weights, LARGEST_WEIGHT), 0.0)

    @kept
    def sizes(self) -> Tensor:
        def items() -> Tensor:
            return ops.sum(ops.cast(self.mask, self.dtype), axis=1)

        if not is_long(self.given_labels):
            return items()
        nothing = ops.zeros_like(self.given_labels[:, 0])
        return shortcut(self._is_full, lambda: nothing + self.list_size, items)

    @kept
    def has_items(self) -> Tensor:
        return self._highest[:, 0] >= 0.0

    @kept
    def highest_labels(self) -> Tensor:
        return within_limits(self._highest)

    @kept
    def _highest(self) -> Tensor:
        """The highest label of each list, below 0 where there is no item."""
        return self._read_labels(lambda labels: highest(labels, keepdims=True))

    def count(
        self, is_counted: Callable[[Tensor], Tensor], only_relevant: bool
    ) -> Tensor:
        # A label below 0, or NaN, is not relevant.
        needs_no_mask = only_relevant and self._is_by_label
        labels = self.given_labels if needs_no_mask else self._labels_or_none
        return sum_by_row(lambda row: ops.cast(is_counted(row), self.dtype), labels)

    def labels_at(self, positions: Tensor) -> Tensor:
        return without_denormal(take(self.given_labels, positions))

    def highest_first(self, count: Tensor | int) -> Tensor:
        return self._read_labels(lambda labels: largest_values(labels, count))

    def highest_scores(self, count: Tensor | int) -> tuple[Tensor, Tensor]:
        """Returns the highest scores of each list, and their positions."""
        if not is_long(self.given_scores, _enough(count)):
            scores, positions = largest(self.scores, count)
            return as_ranked(scores), positions
        candidates = self.once(DenseLists._candidates, _enough(count))
        scores, places = top_k(candidates[0], count)
        return scores, take(candidates[1], places)

    def of_high_scores(
        self,
        lowest: Tensor,
        count: int,
        function: Callable[[Tensor, Tensor | None], Tensor],
    ) -> Tensor:
        """Returns a function of scores and their positions that asks for high ones.

        Args:
            lowest: tensor of shape `(batch, 1)`. The lowest score that matters.
            count: the number of scores that `highest_scores` was asked for.
            function: function of two tensors of shape `(batch, some)`; the positions
                are `None` where these are all scores.
        """

        def of_all() -> Tensor:
            return function(as_ranked(self.scores), None)

        if is_long(self.given_scores, _enough(count)):
            high = self.once(DenseLists._candidates, _enough(count))
        elif is_worth_a_look(self.scores, _enough(count)):
            high = self.once(DenseLists._highest_of_short, _enough(count))
        else:
            return of_all()
        scores, positions, highest_other = high
        # Are all that matter among the candidates?
        suffice = ops.logical_or(highest_other < lowest, lowest == -math.inf)
        return shortcut(ops.all(suffice), lambda: function(scores, positions), of_all)

    def _candidates(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """High scores, their positions, and the highest of all others."""

        def found(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            high = candidates(scores, count)
            return high.entries, high.positions, high.maxima

        def of_masked() -> tuple[Tensor, Tensor, Tensor]:
            return found(self.scores)

        if self._is_by_label:
            # Not in a branch of a graph, where XLA on CPU computes on one core.
            plain = found(self.given_scores)
            has_nan = may_have_nan(self.given_scores, plain[2])
            is_plain = ops.logical_and(self._is_full, ops.logical_not(has_nan))
            high = shortcut(is_plain, lambda: plain, of_masked)
        else:
            high = of_masked()
        scores, positions, maxima = high
        return as_ranked(scores), positions, as_ranked(maxima[:, -1:])

    def _highest_of_short(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The same of lists that are not cut into blocks."""
        scores, positions = top_k(self.scores, count + 1)
        scores = as_ranked(scores)
        return scores[:, :-1], positions[:, :-1], scores[:, -1:]

    def _read_labels(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns a function of the labels: they are below 0 where there is no item."""
        if not self._is_by_label or not is_long(self.given_labels):
            return function(self._labels_or_none)
        of_given = function(self.given_labels)
        return shortcut(
            ops.logical_not(self._has_nan_labels),
            lambda: of_given,
            lambda: function(self._labels_or_none),
        )

    @kept
    def _labels_or_none(self) -> Tensor:
        """The labels, `-inf` where there is no item."""
        return where(self.mask, self.given_labels, -math.inf)

    @property
    def _is_by_label(self) -> bool:
        """Whether the labels alone tell where there are items."""
        return self.given_mask is None and self.given_weights is None

    @kept
    def _is_full(self) -> Tensor | bool:
        """Whether it is seen that there is an item at every position."""
        if not self._is_by_label:
            return False
        return ops.logical_and(
            self._lowest_label >= 0.0, ops.logical_not(self._has_nan_labels)
        )

    @kept
    def _has_nan_labels(self) -> Tensor:
        return may_have_nan(self.given_labels, self._lowest_label)

    @kept
    def _lowest_label(self) -> Tensor:
        return ops.amin(self.given_labels)

    def item_numbers(self, positions: Tensor | None) -> Tensor:
        def counted_items() -> Tensor:
            numbers = ops.cumsum(ops.cast(self.mask, "int32"), axis=1)
            if positions is None:
                return numbers
            return take(numbers, positions)

        if not is_long(self.given_labels):
            return counted_items()
        shape = ops.shape(self.given_labels)
        return shortcut(
            self._is_full, lambda: _numbers(positions, shape), counted_items
        )

    @property
    def list_size(self) -> Tensor | int:
        """The size of the lists, an int where it is known."""
        return ops.shape(self.given_labels)[1]

    @kept
    def dtype(self) -> str:
        return str(keras.backend.standardize_dtype(self.given_labels.dtype))


def _numbers(positions: Tensor | None, shape: tuple[Tensor | int, ...]) -> Tensor:
    """The numbers of items at the positions, where there is one at every position."""
    if positions is not None:
        return ops.cast(positions, "int32") + 1
    numbers = ops.arange(1, shape[1] + 1, dtype="int32")
    return ops.broadcast_to(numbers, shape)
