"""The arguments of metrics: what each accepts, and how it is saved."""

import difflib
import functools
import inspect
import numbers
import reprlib
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

import keras
import numpy as np

from keras_rank.arrays.hashing import default_seed, drawn_seed, key_of_seed
from keras_rank.backends import Tensor, backend
from keras_rank.ranking.tie_breaking import Ties

ShuffleTies: TypeAlias = bool | Literal["average"]
Seed: TypeAlias = int | keras.random.SeedGenerator | None
P = ParamSpec("P")
R = TypeVar("R")

# Shapes are counted in int32 on some backends.
LARGEST_K = 2**31 - 1
# As many ranks are added up to know the value of a list of relevant items only.
LARGEST_MAXIMUM = 2**20
# How Keras calls a function that it made a loss of.
_CALL_OF_LOSS = keras.losses.MeanSquaredError.call.__code__
# Larger numbers become infinite in float32.
LARGEST_NUMBER = float(np.finfo("float32").max)

NORMALIZERS = ("total", "clipped", "retrieved")
RECALL_NORMALIZERS = ("total", "clipped")
DENOMINATORS = ("available", "k", "retrieved")
EMPTY_WEIGHTS = ("average", "own")


def names_arguments(call: Callable[P, R]) -> Callable[P, R]:
    """Decorates a public function or method, so that errors of a call name arguments.

    Python's own errors name the class that defines a method, not the one that was
    called. They don't mention `k` if a cutoff is given by position or under another
    name, nor that a mask is part of `y_true`.
    """
    parameters = inspect.signature(call).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    required = [p.name for p in parameters if p.default is p.empty]
    is_method = positional[0] == "self"
    if is_method:
        del positional[0], required[0]
    names, needed = {*positional, *by_name}, set(required)

    @functools.wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        given = args[1:] if is_method else args
        found = {*positional[: len(given)], *kwargs}
        # Fewer were found if one is given twice, or too many by position.
        is_each_found = len(found) == len(given) + len(kwargs)
        if is_each_found and needed <= found <= names:
            if not is_method and not backend.is_compiling():
                check_no_loss(checked, sys._getframe(1))
            return call(*args, **kwargs)
        called = call.__name__
        if is_method:
            name = type(args[0]).__name__
            called = name if called == "__init__" else f"{name}.{called}"
        missing = ", ".join(name for name in required if name not in found)
        raise TypeError(
            _what_is_wrong(called, positional, by_name, given, kwargs, missing)
        )

    # Here, as every public call passes through.
    return backend.without_autograph(checked)


def check_no_loss(called: Any, caller: types.FrameType) -> None:
    """Raises for a metric or a function that `compile` got as a loss.

    JAX would train nothing, without a word. Keras does not tell what it calls something
    for, but a loss that it makes of a function is the caller.
    """
    if caller.f_code is not _CALL_OF_LOSS:
        # To look into a frame of a user's would keep all of its tensors.
        return
    if vars(caller.f_locals["self"])["fn"] is called:
        raise ValueError(
            "`loss` should have gradients, which ranks don't have: pass metrics to "
            "`compile` as `metrics`, and train by a loss such as those of keras-rs. "
            f"Received: loss={called!r}"
        )


def _what_is_wrong(
    called: str,
    positional: Sequence[str],
    by_name: Sequence[str],
    given: Sequence[Any],
    named: Mapping[str, Any],
    missing: str,
) -> str:
    """Describes why a call can't be made, the likeliest mistake first."""
    names = [*positional, *by_name]
    takes = f"`{called}` takes the arguments {', '.join(names)}"
    unknown = next((name for name in named if name not in names), None)
    if unknown is not None:
        received = f"Received: {unknown}={reprlib.repr(named[unknown])}"
        return f"{takes}{hint_for(unknown, names)} {received}"
    if len(given) > len(positional):
        received = f"{reprlib.repr(given[len(positional)])} by position"
        if not by_name:
            return f"{takes}. Received another one, {received}"
        example = ", ".join([*positional, *(f"{name}=..." for name in by_name[:2])])
        return (
            f"Arguments of `{called}` after `{positional[-1]}` should be given by "
            f"name: `{called}({example})`. Received: {received}"
        )
    if missing:
        return f"{takes}. Received: no {missing}"
    place, twice = next(x for x in enumerate(positional) if x[1] in named)
    return (
        f"`{called}` takes `{twice}` once. Received: {reprlib.repr(given[place])} by "
        f"position, and {twice}={reprlib.repr(named[twice])}"
    )


# What people write for arguments.
_MEANT = {
    **dict.fromkeys(("seen", "history"), "exclude"),
    **dict.fromkeys(("labels", "target", "targets"), "y_true"),
    **dict.fromkeys(("scores", "preds", "predictions"), "y_pred"),
    **dict.fromkeys(("weight", "weights"), "sample_weight"),
    **dict.fromkeys(("items", "item_embeddings"), "candidates"),
    **dict.fromkeys(("users", "query_embeddings"), "queries"),
    **dict.fromkeys(("gain", "gains"), "gain_fn"),
    **dict.fromkeys(("discount", "discounts"), "rank_discount_fn"),
    "threshold": "relevance_threshold",
    "ties": "shuffle_ties",
}
# What to do without an argument that people expect beside another one.
_MASK = '; a mask is part of `y_true`: {"labels": ..., "mask": ...}.'
_ROWS = "; `keras_rank.utils.pad_lists` makes lists of rows."
_ERRORS = "; `RankingMetrics(metrics, standard_errors=True)` computes them too."
_SLICES = "; keep the columns of slices, `keep=[...]`, then `summary(by=...)`."
_WAYS = {
    "by": ("keep", _SLICES),
    "mask": ("y_true", _MASK),
    **dict.fromkeys(("group_ids", "group_sizes", "indexes"), ("y_true", _ROWS)),
    **dict.fromkeys(("standard_error", "standard_errors"), ("metrics", _ERRORS)),
}


def hint_for(unknown: str, names: Sequence[str]) -> str:
    """What an unknown argument may mean, the likeliest first."""
    beside, way = _WAYS.get(unknown, (None, ""))
    if beside in names:
        return way
    close = [name for name in names if name == _MEANT.get(unknown)]
    close = close or difflib.get_close_matches(unknown, names, n=1, cutoff=0.7)
    if close:
        return f". Did you mean `{close[0]}`?"
    return "; `k` is the cutoff." if "k" in names else "."


def adds_arguments(
    base: Callable[..., Any],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function that passes its `**arguments` to another, its base.

    Its signature, and errors of a call, show the arguments of both.
    """

    def decorate(call: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(call)
        own = dict(signature.parameters)
        del own["arguments"]
        others = [
            parameter
            for name, parameter in inspect.signature(base).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY and name not in own
        ]
        both = signature.replace(parameters=[*own.values(), *others])
        vars(call)["__signature__"] = both
        return names_arguments(call)

    return decorate


def unaccepted(argument: str, accepted: str, value: Any, hint: str = "") -> ValueError:
    """The error for an argument that is not what is accepted."""
    return ValueError(
        f"`{argument}` should be {accepted}. Received: {argument}={value!r}{hint}"
    )


def check_k(k: Any) -> int | None:
    """Returns the cutoff as an int, or `None`."""
    if k is not None and check_positive("k", k) > LARGEST_K:
        raise unaccepted("k", f"at most {LARGEST_K}", k)
    return None if k is None else int(k)


def check_no_cutoff(k: Any) -> None:
    """Raises for a cutoff, for a metric of whole lists."""
    if k is not None:
        raise unaccepted("k", "None for a metric of whole lists", k)


def check_positive(
    argument: str, value: Any, accepted: str = "a positive integer"
) -> int:
    """Returns a positive integer as an int."""
    if _is_integer(value) and value > 0:
        return int(value)
    hint = ""
    has_size = isinstance(value, Collection) and getattr(value, "shape", None) != ()
    if argument == "k" and has_size and not isinstance(value, str) and len(value) > 1:
        hint = (
            ". Each cutoff is a metric of its own: `keras_rank.metrics.RankingMetrics` "
            'computes several as one, such as ["ndcg@1", "ndcg@3"]'
        )
    raise unaccepted(argument, accepted, value, hint)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_ties(shuffle_ties: Any) -> Ties:
    """Returns how tied items are ordered."""
    if isinstance(shuffle_ties, bool | np.bool_):
        return "shuffle" if shuffle_ties else "stable"
    if isinstance(shuffle_ties, str) and shuffle_ties == "average":
        return "average"
    raise unaccepted("shuffle_ties", 'True, False or "average"', shuffle_ties)


def check_ties_broken(shuffle_ties: Any) -> Ties:
    """Returns the same, but raises for averaged ties: each rank needs a single item."""
    ties = check_ties(shuffle_ties)
    if ties == "average":
        raise ValueError(
            "`shuffle_ties` should be True or False, as each rank needs a single item. "
            'Received: shuffle_ties="average"'
        )
    return ties


def check_seed(seed: Any) -> int | None:
    """Returns the seed as an int, or `None`."""
    if isinstance(seed, keras.random.SeedGenerator):
        seed = seed.get_config()["seed"]
    if seed is None or _is_integer(seed):
        return None if seed is None else int(seed)
    accepted = "an integer, a `keras.random.SeedGenerator` or None"
    raise unaccepted("seed", accepted, seed)


def shuffle_key(ties: Ties, seed: Any, *tensors: Tensor) -> int:
    """Returns the key of a shuffle, 0 where no ties are shuffled.

    Without a seed, the key is drawn from Keras's global generator, as seedless random
    operations of Keras are. Code that is traced would draw only once, or not at all:
    there, the seed follows from the state of Python's generator.

    Args:
        ties: how tied items are ordered.
        seed: the argument `seed` of a function.
        *tensors: the inputs of the function.
    """
    seed = check_seed(seed)
    if ties != "shuffle":
        return 0
    if seed is None:
        seed = default_seed() if backend.is_traced(*tensors) else drawn_seed()
    return key_of_seed(seed)


def _check_real(
    argument: str, value: Any, accepted: str, is_accepted: Callable[[Any], bool]
) -> float:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if is_number and is_accepted(value):
        return float(value)
    raise unaccepted(argument, accepted, value)


def check_number(argument: str, value: Any) -> float | None:
    """Returns a number that is finite in float32 as a float, or `None`."""
    if value is None:
        return None
    accepted = "a number that is finite in float32, or None"
    return _check_real(argument, value, accepted, lambda x: abs(x) <= LARGEST_NUMBER)


def check_fraction(argument: str, value: Any) -> float:
    """Returns a float between 0 and 1, both excluded."""
    accepted = "a number between 0 and 1, both excluded"
    return _check_real(argument, value, accepted, lambda x: 0.0 < x < 1.0)


def check_share(argument: str, value: Any) -> float:
    """Returns a float from 0 to 1, both included."""
    accepted = "a number from 0 to 1"
    return _check_real(argument, value, accepted, lambda x: 0.0 <= x <= 1.0)


def check_grade(argument: str, value: Any) -> float:
    """Returns a float above 0 of which the power of two is finite in float32."""
    accepted = "a number above 0 and below 128"
    return _check_real(argument, value, accepted, lambda x: 0.0 < x < 128.0)


def check_above_zero(argument: str, value: Any) -> float:
    """Returns a float above 0 that is finite in float32."""
    accepted = "a number above 0 that is finite in float32"
    return _check_real(argument, value, accepted, lambda x: 0.0 < x <= LARGEST_NUMBER)


def check_flag(argument: str, value: Any) -> bool:
    """Returns True or False."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise unaccepted(argument, "True or False", value)


def check_not_sparse(argument: str, value: Any) -> bool:
    """Returns False, or raises, for a metric that needs the labels of all items."""
    if check_flag(argument, value):
        accepted = "False for a metric that needs the labels of all items"
        raise unaccepted(argument, accepted, True)
    return False


def check_left_out(empty_value: Any, empty_weight: str = "average") -> None:
    """Raises unless both are the defaults, for a metric that leaves out empty lists."""
    always = "for a metric that always leaves out lists without relevant items"
    if empty_value is not None:
        raise unaccepted("empty_value", f"None {always}", empty_value)
    if empty_weight != "average":
        raise unaccepted("empty_weight", f'"average" {always}', empty_weight)


def check_subtopic_normalizer(value: Any, k: int | None) -> str | None:
    """Returns what divides values of subtopics, `None` or a string."""
    if value is None:
        return None
    if k is not None and k > LARGEST_MAXIMUM:
        raise unaccepted("k", f"at most {LARGEST_MAXIMUM} with a `normalizer`", k)
    return check_choice("normalizer", value, ("maximum",))


def check_subtopic_weights(value: Any) -> tuple[float, ...] | None:
    """Returns the weights of subtopics as a tuple of floats, or `None`."""
    if value is None:
        return None
    accepted = "None or a list of finite numbers of 0 or more, not all 0"
    weights = np.asarray(value)
    if weights.ndim == 1 and weights.dtype.kind in "iuf":
        are_weights = (weights >= 0) & (weights <= LARGEST_NUMBER)
        if np.all(are_weights) and np.any(weights > 0):
            return tuple(map(float, weights))
    raise unaccepted("subtopic_weights", accepted, value)


def check_choice(argument: str, value: Any, choices: Sequence[str]) -> str:
    """Returns one of the choices."""
    if isinstance(value, str) and value in choices:
        return value
    raise unaccepted(argument, f"one of {list(choices)}", value)


def check_dtype(dtype: Any) -> str:
    """Returns the dtype to compute in: float64, or float32 for any other or `None`."""
    if dtype is None:
        # Rather than Keras's default precision, which may be wider or narrower.
        return "float32"
    error = unaccepted("dtype", "the name of a dtype of real numbers or None", dtype)
    try:
        name = keras.backend.standardize_dtype(dtype)
    except ValueError as of_keras:
        raise error from of_keras
    if not keras.backend.is_float_dtype(name):
        raise error
    return "float64" if name == "float64" else "float32"
