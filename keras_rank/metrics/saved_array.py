"""Arrays in configs of metrics: Keras saves compiled metrics as JSON only."""

import base64
import binascii
import math
from typing import Any

import numpy as np

from keras_rank.lists.given import is_dict, refused

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
