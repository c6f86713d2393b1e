"""What labels and ranks are worth: gains and discounts by name, or a user's own."""

import base64
import binascii
import contextlib
import difflib
import functools
import inspect
import math
import numbers
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

import keras
import numpy as np
from keras import ops

from keras_rank import discounts, gains
from keras_rank.arrays.hashing import default_seed, drawn_seed, key_of_seed
from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.input_arrays import is_dict, refused
from keras_rank.ranking.base import Ties

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


# The dtype of the arrays that metrics hold, in little-endian byte order.
_DTYPE, _BYTES = "float32", np.dtype("<f4")


def array_config(array: Any) -> dict[str, Any]:
    """Returns a float32 array as base64 of its bytes, with its shape and its dtype."""
    array = np.asarray(array, _BYTES)
    text = base64.b64encode(array.tobytes()).decode("ascii")
    return {"base64": text, "shape": list(array.shape), "dtype": _DTYPE}


def array_from_config(argument: str, value: Any) -> Any:
    """Returns the array of `array_config`, and any other value as it is.

    Args:
        argument: the name of the argument, for errors.
        value: what was passed, or found in a config.
    """
    if not is_dict(value):
        return value
    if set(value) != {"base64", "shape", "dtype"}:
        raise _malformed(argument, f"the keys {[*value]}")
    text, shape, dtype = value["base64"], value["shape"], value["dtype"]
    if dtype != _DTYPE:
        raise _malformed(argument, f"dtype={dtype!r}")
    is_shape = isinstance(shape, list | tuple)
    if not is_shape or not all(type(size) is int and size >= 0 for size in shape):
        raise _malformed(argument, f"shape={shape!r}")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise _malformed(argument, "no base64") from error
    if len(data) != _BYTES.itemsize * math.prod(shape):
        raise _malformed(argument, f"{len(data)} bytes for the shape {tuple(shape)}")
    return np.frombuffer(data, _BYTES).reshape(shape).astype(_DTYPE)


def with_array(config: dict[str, Any], argument: str) -> dict[str, Any]:
    """Returns a config with the array of an argument instead of its bytes.

    A subclass may compute with the argument before it passes the array on.
    """
    if argument not in config:
        return config
    return {**config, argument: array_from_config(argument, config[argument])}


def _malformed(argument: str, received: str) -> ValueError:
    expected = "be an array, or a dict of its bytes as in `get_config`: "
    expected += f'{{"base64": ..., "shape": [...], "dtype": "{_DTYPE}"}}'
    return refused(argument, expected, f"a dict with {received}")


Function: TypeAlias = Callable[[Tensor], Tensor]
# On so many ranks a discount is looked at, if there is no cutoff.
MANY_RANKS = 1024
GAINS: Mapping[str, Function] = {
    "exponential": gains.exponential,
    "linear": gains.linear,
}
DISCOUNTS: Mapping[str, Function] = {
    "log2": discounts.log2,
    "clipped_log2": discounts.clipped_log2,
    "reciprocal": discounts.reciprocal,
}


def check_graded(gain_fn: Any, max_grade: Any) -> tuple[Function | None, float | None]:
    """Returns a gain, and the highest grade, by whose gain others are divided."""
    if gain_fn is None and max_grade is None:
        return None, None
    if gain_fn is None or max_grade is None:
        raise unaccepted("max_grade", "given with `gain_fn`, and only then", max_grade)
    gain = resolve("gain_fn", gain_fn, GAINS)
    grade = check_above_zero("max_grade", max_grade)
    if gain is gains.exponential and grade > 64.0:
        accepted = "at most 64 with exponential gains, which are cut at 2**64"
        raise unaccepted("max_grade", accepted, max_grade)
    if gain not in GAINS.values() and not backend.is_compiling():
        _check_highest_gain(gain, grade)
    return gain, grade


def _check_highest_gain(gain: Function, max_grade: float) -> None:
    """Raises for a highest grade whose gain is seen not to be the highest, above 0."""
    higher = _if_it_works(_higher_gains, gain, max_grade)
    if higher is not None:
        accepted = "the grade with the highest gain, which is above 0"
        raise unaccepted("max_grade", accepted, max_grade, higher)


def _if_it_works(look: Callable[..., str | None], *arguments: Any) -> str | None:
    """What a look at a user's function finds.

    The function may fail for numbers that no list has, and a GPU then for good.
    """
    with contextlib.suppress(Exception), backend.quiet(), keras.device("cpu"):
        return look(*arguments)
    return None


def _values(function: Function, numbers: Tensor) -> Array:
    """The values of a user's function, which may be a constant."""
    return np.broadcast_to(ops.convert_to_numpy(function(numbers)), numbers.shape)


def _higher_gains(gain: Function, max_grade: float) -> str | None:
    """How gains exceed that of the highest grade, `None` if none does."""
    values = _values(gain, ops.linspace(0.0, max_grade, 65, dtype="float32"))
    highest = np.fmax.reduce(values)
    if 0.0 < values[-1] >= highest * (1.0 - 1e-5):
        return None
    return f", with gains of up to {highest:.4g}, and {values[-1]:.4g} there"


def resolve(
    argument: str,
    identifier: str | Function | dict[str, Any],
    functions: Mapping[str, Function],
) -> Function:
    """Returns the function that a name, a config or a function stands for."""
    if isinstance(identifier, str) and identifier in functions:
        return functions[identifier]
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if callable(identifier):
        return identifier
    accepted = f"a function or one of {sorted(functions)}"
    raise unaccepted(argument, accepted, identifier)


def discount_of(identifier: str | Function | dict[str, Any], k: int | None) -> Function:
    """Returns a discount, and raises if it is seen to grow with the rank."""
    function = resolve("rank_discount_fn", identifier, DISCOUNTS)
    is_known = getattr(function, "__module__", None) == discounts.__name__
    if is_known or backend.is_compiling():
        return function
    find = _growth if isinstance(function, Hashable) else _growth.__wrapped__
    ranks = MANY_RANKS if k is None else min(k, LARGEST_MAXIMUM)
    growth = _if_it_works(find, function, ranks)
    if growth is not None:
        raise ValueError(
            "`rank_discount_fn` should be a function that is finite and does not grow "
            f"from rank to rank: discounts multiply gains. Received: {growth}"
        )
    return function


@functools.lru_cache(256)
def _growth(discount: Function, k: int) -> str | None:
    """Where a discount is larger than at a rank above, `None` where it is nowhere."""
    values = _values(discount, ops.arange(1, k + 1, dtype="float32"))
    if not np.isfinite(values[0]):
        return f"{values[0]} at rank 1"
    lowest = np.minimum.accumulate(values)
    # Logarithms are rounded.
    grows = values[1:] > lowest[:-1] + 1e-5 * np.abs(lowest[:-1])
    if not grows.any():
        return None
    rank = int(grows.argmax()) + 1
    before = int(values[:rank].argmin())
    return (
        f"{values[before]:.4g} at rank {before + 1}, {values[rank]:.4g} at rank "
        f"{rank + 1}"
    )


def serialize(
    argument: str, function: Function, functions: Mapping[str, Function]
) -> str | dict[str, Any]:
    """Returns a name or a config that `resolve` turns back into the function."""
    for name, named_function in functions.items():
        if function is named_function:
            return name
    if getattr(function, "__name__", "") == "<lambda>":
        # Keras would save a lambda as byte code, and then refuse to load it.
        raise ValueError(
            f"`{argument}` should be a named function in a metric that is saved: "
            "write it with `def` and decorate it with "
            "`@keras.saving.register_keras_serializable()`. "
            f"Received: {argument}={function}"
        )
    config: dict[str, Any] = keras.saving.serialize_keras_object(function)
    return config
