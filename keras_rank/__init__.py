"""Ranking metrics for Keras 3: one number, on every backend."""

from typing import TYPE_CHECKING, Any

try:
    import keras as _keras  # noqa: F401
except ImportError as error:
    import importlib.util as _util
    import os as _os

    _advice = ', for NumPy by `pip install "jax>=0.6" scipy`'
    _installed = [x for x in ("jax", "torch", "tensorflow") if _util.find_spec(x)]
    if error.name != "keras" and _installed and "KERAS_BACKEND" not in _os.environ:
        # Keras uses TensorFlow, or the backend in its config file, without a check.
        _advice = f". It is not set: `export KERAS_BACKEND={_installed[0]}`"
    raise ImportError(
        "Keras could not import its backend, which the extra `numpy`, `jax`, "
        f"`tensorflow` or `torch` installs, and `KERAS_BACKEND` names{_advice}. "
        f"Received: {error}"
    ) from error

from keras_rank import (
    callbacks,
    catalogue,
    discounts,
    functional,
    gains,
    metrics,
    utils,
)
from keras_rank.model import RankingModel

__all__ = [
    "RankingModel",
    "callbacks",
    "catalogue",
    "discounts",
    "functional",
    "gains",
    "metrics",
    "utils",
]

__version__ = "0.7.0"


def __dir__() -> list[str]:
    return [*__all__, "__version__", "evaluation"]


if TYPE_CHECKING:
    from keras_rank import evaluation as evaluation
else:

    def __getattr__(name: str) -> Any:
        # `evaluation` needs an extra, so it is imported on first use and is not in
        # `__all__`. Without the extra, `hasattr` returns False.
        if name == "evaluation":
            try:
                import keras_rank.evaluation
            except ImportError as error:
                raise AttributeError(str(error)) from error
            return keras_rank.evaluation
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
