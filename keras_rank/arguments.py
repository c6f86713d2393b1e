"""Checks and conversions of arguments: cutoffs, seeds, numbers, gains and discounts."""

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
from keras_rank.arrays.hashing import default_seed, draw_seed, fold_seed
from keras_rank.backends import Array, Tensor, backend
from keras_rank.lists.input_arrays import is_dict, value_error
from keras_rank.ranking.base import COUNTED_TIES, TIE_BOUNDS, Ties

ShuffleTies: TypeAlias = bool | Literal["average", "worst", "best"]
Seed: TypeAlias = int | keras.random.SeedGenerator | None
P = ParamSpec("P")
R = TypeVar("R")

# The largest cutoff: some backends hold shapes in int32.
LARGEST_K = 2**31 - 1
# The largest cutoff of metrics whose normalizer is a sum over all ranks. Discounts are
# also checked on at most this many ranks.
LARGEST_SUMMED_RANK = 2**20
# The largest finite float32 number.
LARGEST_NUMBER = float(np.finfo("float32").max)
# The number of known names that the error for an unknown name lists.
LISTED_NAMES = 10

NORMALIZERS = ("total", "clipped", "retrieved")
RECALL_NORMALIZERS = ("total", "clipped")
DENOMINATORS = ("available", "k", "retrieved")
EMPTY_WEIGHTS = ("average", "own")
LIST_WEIGHTS = ("mean", "sum", "one")


def adds_arguments(
    base: Callable[..., Any], without: Collection[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Returns a decorator for a function that passes its `**arguments` to `base`.

    The signature of the decorated function shows the keyword-only arguments of both
    functions. The call itself is unchanged, so Python's error for an unknown argument
    names `base`.

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

    The text suggests known names that are close to the unknown name, regardless of
    case. If no name is close, it lists at most ten known names.

    Args:
        unknown: the unknown name.
        known: the names to choose from.
        form: the form of a suggested name, with `{}` for the name.
    """
    names = list(known)
    by_lower_case = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(str(unknown).lower(), by_lower_case)
    if close:
        suggested = [form.replace("{}", by_lower_case[name]) for name in close]
        return f". Did you mean {' or '.join(suggested)}?"
    others = " and others" * (len(names) > LISTED_NAMES)
    return f". Known names are {names[:LISTED_NAMES]}{others}" if names else ""


def argument_error(
    argument: str, accepted: str, value: Any, hint: str = ""
) -> ValueError:
    """Returns the error for an argument with an invalid value.

    Args:
        argument: the name of the argument.
        accepted: a description of valid values.
        value: the invalid value.
        hint: text to append to the message.
    """
    return ValueError(
        f"`{argument}` should be {accepted}. Received: {argument}={value!r}{hint}"
    )


def check_k(k: Any) -> int | None:
    """Returns the cutoff as an int, or `None` if there is no cutoff."""
    if k is not None and check_positive("k", k) > LARGEST_K:
        raise argument_error("k", f"at most {LARGEST_K}", k)
    return None if k is None else int(k)


def check_no_cutoff(k: Any) -> None:
    """Raises `ValueError` if a metric of whole lists is given a cutoff."""
    if k is not None:
        raise argument_error("k", "None for a metric of whole lists", k)


def check_positive(
    argument: str, value: Any, accepted: str = "a positive integer"
) -> int:
    """Returns a positive integer as an int. Raises `ValueError` for other values."""
    if _is_integer(value) and value > 0:
        return int(value)
    hint = ""
    has_size = isinstance(value, Collection) and getattr(value, "shape", None) != ()
    if argument == "k" and has_size and not isinstance(value, str) and len(value) > 1:
        hint = (
            ". Each cutoff is a metric of its own: `keras_rank.metrics.RankingMetrics` "
            'computes several as one, such as ["ndcg@1", "ndcg@3"]'
        )
    raise argument_error(argument, accepted, value, hint)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_ties(shuffle_ties: Any) -> Ties:
    """Returns the treatment of ties: a boolean becomes `"shuffle"` or `"stable"`."""
    if isinstance(shuffle_ties, bool | np.bool_):
        return "shuffle" if shuffle_ties else "stable"
    for ties in COUNTED_TIES:
        if isinstance(shuffle_ties, str) and shuffle_ties == ties:
            return ties
    accepted = 'True, False, "average", "worst" or "best"'
    raise argument_error("shuffle_ties", accepted, shuffle_ties)


def check_ties_without_bounds(shuffle_ties: Any) -> Ties:
    """Returns the treatment of ties. Raises `ValueError` for `"worst"` and `"best"`.

    It is for metrics whose lowest and highest values over the orders of tied items are
    not those of the orders by label.
    """
    ties = check_ties(shuffle_ties)
    if ties in TIE_BOUNDS:
        accepted = 'True, False or "average" for a metric without bounds over ties'
        raise argument_error("shuffle_ties", accepted, shuffle_ties)
    return ties


def check_ties_broken(shuffle_ties: Any) -> Ties:
    """Returns the treatment of ties, and raises `ValueError` for a string.

    It is for functions and metrics that don't use labels and need a single item at each
    rank.
    """
    ties = check_ties(shuffle_ties)
    if ties in COUNTED_TIES:
        raise ValueError(
            "`shuffle_ties` should be True or False, as each rank needs a single item. "
            f'Received: shuffle_ties="{ties}"'
        )
    return ties


def check_seed(seed: Any) -> int | None:
    """Returns the seed as an int, or `None`."""
    if isinstance(seed, keras.random.SeedGenerator):
        seed = seed.get_config()["seed"]
    if seed is None or _is_integer(seed):
        return None if seed is None else int(seed)
    accepted = "an integer, a `keras.random.SeedGenerator` or None"
    raise argument_error("seed", accepted, seed)


def shuffle_key(ties: Ties, seed: Any, *tensors: Tensor) -> int:
    """Returns the key that shuffles tied items, or 0 if ties are not shuffled.

    Without a seed, the key is drawn from Keras's global generator, as in Keras's random
    operations. Traced code would draw a key only once, or never. The key of traced code
    is therefore derived from the state of Python's generator.

    Args:
        ties: the treatment of ties.
        seed: the argument `seed` of a function.
        *tensors: the inputs of the function, which show whether it is traced.
    """
    seed = check_seed(seed)
    if ties != "shuffle":
        return 0
    if seed is None:
        seed = default_seed() if backend.is_traced(*tensors) else draw_seed()
    return fold_seed(seed)


def _check_real_number(
    argument: str, value: Any, accepted: str, is_valid: Callable[[Any], bool]
) -> float:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if is_number and is_valid(value):
        return float(value)
    raise argument_error(argument, accepted, value)


def check_number(argument: str, value: Any) -> float | None:
    """Returns a number that is finite in float32 as a float, or `None`."""
    if value is None:
        return None
    accepted = "a number that is finite in float32, or None"
    return _check_real_number(
        argument, value, accepted, lambda x: abs(x) <= LARGEST_NUMBER
    )


def check_fraction(argument: str, value: Any) -> float:
    """Returns a float between 0 and 1, both excluded."""
    accepted = "a number between 0 and 1, both excluded"
    return _check_real_number(argument, value, accepted, lambda x: 0.0 < x < 1.0)


def check_share(argument: str, value: Any) -> float:
    """Returns a float from 0 to 1, both included."""
    accepted = "a number from 0 to 1"
    return _check_real_number(argument, value, accepted, lambda x: 0.0 <= x <= 1.0)


def check_grade(argument: str, value: Any) -> float:
    """Returns a grade as a float above 0 and below 128.

    2 to the power of the grade is then finite in float32.
    """
    accepted = "a number above 0 and below 128"
    return _check_real_number(argument, value, accepted, lambda x: 0.0 < x < 128.0)


def check_above_zero(argument: str, value: Any) -> float:
    """Returns a float above 0 that is finite in float32."""
    accepted = "a number above 0 that is finite in float32"
    return _check_real_number(
        argument, value, accepted, lambda x: 0.0 < x <= LARGEST_NUMBER
    )


def check_flag(argument: str, value: Any) -> bool:
    """Returns a Python or NumPy bool as a bool, and raises for other values."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise argument_error(argument, "True or False", value)


def check_not_sparse(argument: str, value: Any) -> bool:
    """Returns False, and raises `ValueError` for True.

    It checks `sparse_labels` of a metric that needs the labels of all items.
    """
    if check_flag(argument, value):
        accepted = "False for a metric that needs the labels of all items"
        raise argument_error(argument, accepted, True)
    return False


def check_no_empty_value(empty_value: Any, empty_weight: str = "average") -> None:
    """Raises `ValueError` if an argument for empty lists differs from its default.

    It is for metrics that always leave out lists without relevant items.
    """
    always = "for a metric that always leaves out lists without relevant items"
    if empty_value is not None:
        raise argument_error("empty_value", f"None {always}", empty_value)
    if empty_weight != "average":
        raise argument_error("empty_weight", f'"average" {always}', empty_weight)


def check_subtopic_normalizer(value: Any, k: int | None) -> str | None:
    """Returns the `normalizer` of a subtopic metric: `"maximum"` or `None`."""
    if value is None:
        return None
    if k is not None and k > LARGEST_SUMMED_RANK:
        raise argument_error(
            "k", f"at most {LARGEST_SUMMED_RANK} with a `normalizer`", k
        )
    return check_choice("normalizer", value, ("maximum",))


def check_subtopic_weights(value: Any) -> tuple[float, ...] | None:
    """Returns the weights of subtopics as a tuple of floats, or `None`."""
    if value is None:
        return None
    accepted = "None or a list of finite numbers of 0 or more, not all 0"
    weights = np.asarray(value)
    if weights.ndim == 1 and weights.dtype.kind in "iuf":
        in_range = (weights >= 0) & (weights <= LARGEST_NUMBER)
        if np.all(in_range) and np.any(weights > 0):
            return tuple(map(float, weights))
    raise argument_error("subtopic_weights", accepted, value)


def check_choice(argument: str, value: Any, choices: Sequence[str]) -> str:
    """Returns the value if it is one of the choices, and raises otherwise."""
    if isinstance(value, str) and value in choices:
        return value
    raise argument_error(argument, f"one of {list(choices)}", value)


def check_dtype(dtype: Any) -> str:
    """Returns the dtype to compute in.

    It is float64 if the argument is float64, and float32 for `None` and for any other
    floating-point dtype.
    """
    if dtype is None:
        # Keras's default float dtype may be wider or narrower than float32.
        return "float32"
    error = argument_error(
        "dtype", "the name of a dtype of real numbers or None", dtype
    )
    try:
        name = keras.backend.standardize_dtype(dtype)
    except ValueError as keras_error:
        raise error from keras_error
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
    """Returns the array that `array_config` encoded. Other values are unchanged.

    Args:
        argument: the name of the argument, for error messages.
        value: the value that a user passed, or that a config holds.
    """
    if not is_dict(value):
        return value
    if set(value) != {"base64", "shape", "dtype"}:
        raise _array_config_error(argument, f"the keys {[*value]}")
    text, shape, dtype = value["base64"], value["shape"], value["dtype"]
    if dtype != _DTYPE:
        raise _array_config_error(argument, f"dtype={dtype!r}")
    is_shape = isinstance(shape, list | tuple)
    if not is_shape or not all(type(size) is int and size >= 0 for size in shape):
        raise _array_config_error(argument, f"shape={shape!r}")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise _array_config_error(argument, "no base64") from error
    if len(data) != _BYTES.itemsize * math.prod(shape):
        raise _array_config_error(
            argument, f"{len(data)} bytes for the shape {tuple(shape)}"
        )
    return np.frombuffer(data, _BYTES).reshape(shape).astype(_DTYPE)


def restore_array(config: dict[str, Any], argument: str) -> dict[str, Any]:
    """Returns a config in which the value of an argument is decoded to an array.

    The constructor of a subclass may use the argument before it calls the constructor
    of the base class, so it has to receive an array.
    """
    if argument not in config:
        return config
    return {**config, argument: array_from_config(argument, config[argument])}


def _array_config_error(argument: str, received: str) -> ValueError:
    expected = "be an array, or a dict of its bytes as in `get_config`: "
    expected += f'{{"base64": ..., "shape": [...], "dtype": "{_DTYPE}"}}'
    return value_error(argument, expected, f"a dict with {received}")


Function: TypeAlias = Callable[[Tensor], Tensor]
# The number of ranks on which a discount is checked if there is no cutoff.
NUM_CHECKED_RANKS = 1024
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
    """Returns a gain function and the highest grade, or `None` for both.

    Gains are divided by the gain of the highest grade.
    """
    if gain_fn is None and max_grade is None:
        return None, None
    if gain_fn is None or max_grade is None:
        raise argument_error(
            "max_grade", "given with `gain_fn`, and only then", max_grade
        )
    gain = resolve("gain_fn", gain_fn, GAINS)
    grade = check_above_zero("max_grade", max_grade)
    if gain is gains.exponential and grade > 64.0:
        accepted = "at most 64 with exponential gains, which are cut at 2**64"
        raise argument_error("max_grade", accepted, max_grade)
    if gain not in GAINS.values() and not backend.is_compiling():
        _check_highest_gain(gain, grade)
    return gain, grade


def _check_highest_gain(gain: Function, max_grade: float) -> None:
    """Raises `ValueError` if `max_grade` does not have the highest gain, above 0.

    A gain function that can't be evaluated is accepted.
    """
    problem = _call_safely(_describe_higher_gain, gain, max_grade)
    if problem is not None:
        accepted = "the grade with the highest gain, which is above 0"
        raise argument_error("max_grade", accepted, max_grade, problem)


def _call_safely(check: Callable[..., str | None], *arguments: Any) -> str | None:
    """Returns the result of a check of a user's function, or `None` if it fails.

    The user's function may fail for numbers that no list has. The check runs on the
    CPU, as a failure could leave a GPU unusable.
    """
    with (
        contextlib.suppress(Exception),
        backend.suppress_float_warnings(),
        keras.device("cpu"),
    ):
        return check(*arguments)
    return None


def _evaluate(function: Function, numbers: Tensor) -> Array:
    """Returns the values of a user's function, which may return a single constant."""
    return np.broadcast_to(ops.convert_to_numpy(function(numbers)), numbers.shape)


def _describe_higher_gain(gain: Function, max_grade: float) -> str | None:
    """Returns a description of the gains if the highest grade lacks the highest gain.

    The result is `None` if the highest grade has the highest gain, and that is above 0.
    """
    values = _evaluate(gain, ops.linspace(0.0, max_grade, 65, dtype="float32"))
    highest = np.fmax.reduce(values)
    if 0.0 < values[-1] >= highest * (1.0 - 1e-5):
        return None
    return f", whose gain is {values[-1]:.4g}, while gains are up to {highest:.4g}"


def resolve(
    argument: str,
    identifier: str | Function | dict[str, Any],
    functions: Mapping[str, Function],
) -> Function:
    """Returns the function for an identifier: a name, a config, or a function."""
    if isinstance(identifier, str) and identifier in functions:
        return functions[identifier]
    if isinstance(identifier, dict):
        identifier = keras.saving.deserialize_keras_object(identifier)
    if callable(identifier):
        return identifier
    accepted = f"a function or one of {sorted(functions)}"
    raise argument_error(argument, accepted, identifier)


def resolve_discount(
    identifier: str | Function | dict[str, Any], k: int | None
) -> Function:
    """Returns a discount function, and raises `ValueError` if it grows with the rank.

    Discounts of this package, and all discounts in code that is being compiled, are not
    checked.
    """
    function = resolve("rank_discount_fn", identifier, DISCOUNTS)
    is_known = getattr(function, "__module__", None) == discounts.__name__
    if is_known or backend.is_compiling():
        return function
    check = (
        _describe_growth
        if isinstance(function, Hashable)
        else _describe_growth.__wrapped__
    )
    ranks = NUM_CHECKED_RANKS if k is None else min(k, LARGEST_SUMMED_RANK)
    growth = _call_safely(check, function, ranks)
    if growth is not None:
        raise ValueError(
            "`rank_discount_fn` should be a function that is finite and does not grow "
            f"from rank to rank: discounts multiply gains. Received: {growth}"
        )
    return function


@functools.lru_cache(256)
def _describe_growth(discount: Function, k: int) -> str | None:
    """Returns a description of two ranks between which a discount grows.

    The result is `None` if the discount does not grow within the first `k` ranks.
    """
    values = _evaluate(discount, ops.arange(1, k + 1, dtype="float32"))
    if not np.isfinite(values[0]):
        return f"{values[0]} at rank 1"
    lowest = np.minimum.accumulate(values)
    # The tolerance covers the rounding of logarithms.
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
    """Returns a name or a config from which `resolve` restores the function."""
    for name, named_function in functions.items():
        if function is named_function:
            return name
    if getattr(function, "__name__", "") == "<lambda>":
        # Keras saves a lambda as byte code, and refuses to load it.
        raise ValueError(
            f"`{argument}` should be a named function in a metric that is saved: "
            "write it with `def` and decorate it with "
            "`@keras.saving.register_keras_serializable()`. "
            f"Received: {argument}={function}"
        )
    config: dict[str, Any] = keras.saving.serialize_keras_object(function)
    return config
