"""The arguments of metrics: what each accepts, and how it is saved."""

import difflib
import inspect
import numbers
from collections.abc import Callable, Collection, Iterable, Sequence
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
# Larger numbers become infinite in float32.
LARGEST_NUMBER = float(np.finfo("float32").max)
# The number of known names that the error for an unknown name lists.
LISTED_NAMES = 10

NORMALIZERS = ("total", "clipped", "retrieved")
RECALL_NORMALIZERS = ("total", "clipped")
DENOMINATORS = ("available", "k", "retrieved")
EMPTY_WEIGHTS = ("average", "own")


def adds_arguments(
    base: Callable[..., Any], without: Collection[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function that passes its `**arguments` to another function.

    The signature of the decorated function shows the keyword-only arguments of both
    functions. The call itself is unchanged: Python's error for an unknown argument is
    that of the other function.

    Args:
        base: the function that `**arguments` are passed to.
        without: names of arguments of `base` that the decorated function sets.
    """

    def decorate(call: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(call)
        parameters = dict(signature.parameters)
        del parameters["arguments"]
        inherited = [
            parameter
            for name, parameter in inspect.signature(base).parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
            and name not in parameters
            and name not in without
        ]
        vars(call)["__signature__"] = signature.replace(
            parameters=[*parameters.values(), *inherited]
        )
        return call

    return decorate


def suggestion(unknown: object, known: Iterable[str], form: str = '"{}"') -> str:
    """Returns the end of an error message about an unknown name.

    It suggests known names that are close to the unknown name, whatever their case. If
    there are none, it lists at most ten known names.

    Args:
        unknown: the unknown name.
        known: the names to choose from.
        form: the form of a suggested name, with `{}` for the name.
    """
    names = list(known)
    by_lower_case = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(str(unknown).lower(), by_lower_case)
    if close:
        suggested = [form.replace("{}", by_lower_case[each]) for each in close]
        return f". Did you mean {' or '.join(suggested)}?"
    others = " and others" * (len(names) > LISTED_NAMES)
    return f". Known names are {names[:LISTED_NAMES]}{others}" if names else ""


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
