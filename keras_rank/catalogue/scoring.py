"""How queries score candidates: by products, cosines, or a user's function."""

from collections.abc import Callable
from typing import Any, TypeAlias

from keras import ops

from keras_rank.arrays.arithmetic import product, ratio, square_root, where
from keras_rank.arrays.backends import Tensor
from keras_rank.lists.tensors import ranked_as, shape_of

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def dot(queries: Tensor, candidates: Tensor) -> Tensor:
    """The products of embeddings, of shape `(queries, candidates)`."""
    return product(queries, ops.transpose(candidates))


def cosine(queries: Tensor, candidates: Tensor) -> Tensor:
    """The cosines between embeddings, 0 for an embedding of zeros."""
    return dot(_of_length_one(queries), _of_length_one(candidates))


def _of_length_one(embeddings: Tensor) -> Tensor:
    # Scaled, so that squares neither overflow nor vanish.
    largest = ops.amax(ops.abs(embeddings), axis=1, keepdims=True)
    embeddings = embeddings / where(largest > 0.0, largest, 1.0)
    squares = ops.sum(embeddings * embeddings, axis=1, keepdims=True)
    return embeddings * ratio(ops.ones_like(squares), square_root(squares))


def check_score(score: Any) -> Score:
    """Returns the function that `score` stands for."""
    if isinstance(score, str) and score in _BY_NAME:
        return _BY_NAME[score]
    if callable(score):
        return _checked(score)
    raise ValueError(
        '`score` should be "dot", "cosine", or a function of queries and candidates. '
        f"Received: score={score!r}"
    )


def _checked(score: Score) -> Score:
    def scores_of(queries: Tensor, candidates: Tensor) -> Tensor:
        scores = score(queries, candidates)
        expected = (queries.shape[0], candidates.shape[0])
        if shape_of(scores) != expected:
            raise ValueError(
                "`score` should return one number for each query and candidate, of "
                f"shape {expected}. Received: scores of shape {shape_of(scores)}"
            )
        return ranked_as(ops.stop_gradient(scores))

    return scores_of


_BY_NAME: dict[str, Score] = {"dot": dot, "cosine": cosine}
