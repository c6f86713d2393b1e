"""How queries score candidates: by products, cosines, or a user's function."""

from collections.abc import Callable
from typing import Any, TypeAlias

from keras import ops

from keras_rank.arguments import unaccepted
from keras_rank.arrays.arithmetic import in_one_dtype, product
from keras_rank.backends import Tensor, backend
from keras_rank.catalogue.candidates import are_alike
from keras_rank.lists.given import refused
from keras_rank.lists.tensors import ranked_as, shape_of

Score: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def dot(queries: Tensor, candidates: Tensor) -> Tensor:
    """The products of embeddings, of shape `(queries, candidates)`."""
    return product(queries, ops.transpose(candidates))


def cosine(queries: Tensor, candidates: Tensor) -> Tensor:
    """The cosines between queries of length one and candidates, 0 for zeros."""
    return dot(queries, _of_length_one(candidates))


def prepared(score: Any, queries: Tensor) -> Tensor:
    """Queries as they are scored, which is done once."""
    is_cosine = isinstance(score, str) and score == "cosine"
    return backend.enter(_of_length_one, queries) if is_cosine else queries


def _of_length_one(embeddings: Tensor) -> Tensor:
    # Scaled, so that squares neither overflow nor vanish.
    largest = backend.largest_size(embeddings)
    embeddings = embeddings / backend.where(largest > 0.0, largest, 1.0)
    # The largest is 1 now, unless all are 0.
    return embeddings / backend.maximum(backend.lengths(embeddings), 1.0)


def check_score(score: Any) -> Score:
    """Returns the function that `score` stands for."""
    if isinstance(score, str) and score in _BY_NAME:
        return _BY_NAME[score]
    if callable(score):
        return _checked(score)
    accepted = '"dot", "cosine", or a function of queries and candidates'
    raise unaccepted("score", accepted, score)


def _checked(score: Score) -> Score:
    def scores_of(queries: Tensor, candidates: Tensor) -> Tensor:
        scores = score(*in_one_dtype(queries, candidates))
        shape = (queries.shape[0], candidates.shape[0])
        if shape_of(scores) != shape:
            expected = "return one number for each query and candidate, of shape "
            received = f"scores of shape {shape_of(scores)}"
            raise refused("score", f"{expected}{shape}", received)
        return ranked_as(ops.stop_gradient(scores))

    return scores_of


def check_pairs(score: Score, queries: Tensor, candidates: Tensor) -> None:
    """Raises if a user's function gives a pair a score that changes with the others."""
    # Compiled, as it is in the pass.
    scores_of = backend.compiled(check_score(score), is_ours=False)
    given = queries, candidates
    # The first half of each, and others in the place of the second.
    scores, beside_others = (
        ops.convert_to_numpy(scores_of(*pair))
        for pair in (given, map(_beside_others, given))
    )
    rows, columns = (-(-x.shape[0] // 2) for x in given)
    scores, beside_others = (x[:rows, :columns] for x in (scores, beside_others))
    if not are_alike(scores, beside_others):
        expected = "give each pair of a query and a candidate a score of its own, "
        expected += "whatever the other pairs are"
        received = "a function whose scores change with the other pairs"
        raise refused("score", expected, received)


def _beside_others(x: Tensor) -> Tensor:
    """Rows of which those of the second half are replaced by the first one."""
    half = -(-x.shape[0] // 2)
    others = ops.repeat(x[:1], x.shape[0] - half, axis=0)
    return ops.concatenate([x[:half], others], axis=0)


_BY_NAME: dict[str, Score] = {"dot": dot, "cosine": cosine}
