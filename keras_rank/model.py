"""A Keras model that takes masks with labels, and lists of uneven length."""

import copy
import functools
import inspect
import types
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import keras
import numpy as np
from keras import ops

from keras_rank.backends import backend
from keras_rank.lists.input_arrays import (
    are_lists,
    form_of,
    in_full,
    look,
    not_real_error,
)
from keras_rank.lists.tensors import wide_or_none
from keras_rank.metrics import RankingMetrics
from keras_rank.utils import mask_labels

# How many lists are searched for padding.
_LOOKED_AT = 10_000
# The losses of Keras that count padding. To the divergence, -1 is almost 0.
_DIVERGENCE = keras.losses.KLDivergence, keras.losses.kl_divergence
_LOSSES = [
    loss
    for loss in vars(keras.losses).values()
    if callable(loss) and loss not in _DIVERGENCE
]


def losses_that_count(model: keras.Model) -> list[str]:
    """The losses, if all count padding and the model did not warn of it."""
    names = []
    for each in [] if model._has_warned else keras.tree.flatten(model.loss):
        try:
            loss = keras.losses.get(each)
        except ValueError:
            # Keras raises its own error.
            return []
        is_of_keras = loss in _LOSSES or type(loss) in _LOSSES
        if not is_of_keras or getattr(loss, "ignore_class", None) is not None:
            return []
        names.append(getattr(loss, "name", None) or loss.__name__)
    return [] if _masks(model) else names


def have_padding(y: Any) -> bool:
    """Whether labels have padding, as far as can be seen of the first lists.

    Compiled code sees none, but a mask is there for padding.
    """

    def has_padding(path: tuple[Any, ...], labels: Any) -> bool:
        is_mask, is_tensor = path[-1:] == ("mask",), ops.is_tensor(labels)
        if isinstance(labels, keras.KerasTensor) or not getattr(labels, "shape", ()):
            return is_mask
        if is_tensor and not backend.is_concrete(labels):
            return is_mask
        first = labels[:_LOOKED_AT]
        first = ops.convert_to_numpy(first) if is_tensor else np.asarray(first)
        return bool(np.any(first == (0 if is_mask else -1)))

    return any(has_padding(*each) for each in keras.tree.flatten_with_path(y))


def are_of_items(weights: Any) -> bool:
    """Whether weights are those of items, which can be 0 for padding."""
    return len(getattr(weights, "shape", ())) > 1 and weights.shape[1] != 1


def _masks(layer: keras.layers.Layer) -> bool:
    """Whether a model masks the items of its outputs, and with them Keras's losses."""
    is_mask = isinstance(layer, keras.layers.Masking)
    is_mask = is_mask or getattr(layer, "mask_zero", False)
    return is_mask or any(map(_masks, getattr(layer, "layers", ())))


def _with_folded_labels(
    method: Callable[..., Any], look: Callable[..., None] | None = None
) -> Callable[..., Any]:
    """Writes masks into labels before a method that takes `(x, y, ...)` is called.

    The method gets a copy of the weights where tensors can change: on torch, Keras's
    losses and metrics multiply weights by the masks of layers in place.

    Args:
        method: the method.
        look: what sees the labels before that, with the model and the weights.
    """

    @functools.wraps(method)
    def with_folded_labels(
        self: keras.Model,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if look is not None:
            look(self, y, sample_weight)
        weights = keras.tree.map_structure(backend.own_copy, _once(sample_weight))
        if isinstance(y_pred, _BesideMasks):
            y_pred = keras.tree.map_structure(backend.with_layer_mask, *y_pred)
        return method(self, x, _folded(y), y_pred, weights, *args, **kwargs)

    vars(with_folded_labels)["takes_masks"] = True
    return with_folded_labels


def _with_own_names(compute_metrics: Callable[..., Any]) -> Callable[..., Any]:
    """Raises for results of one name, of which Keras would keep the last.

    It renames metrics of one name, but not the results of groups.
    """

    @functools.wraps(compute_metrics)
    def with_own_names(
        self: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> Any:
        outputs = keras.tree.flatten(y_pred)
        if ops.is_tensor(sample_weight) and len(outputs) > 1:
            # Each output has a mask of its own, so that each needs its own copy.
            sample_weight = [backend.own_copy(sample_weight) for _ in outputs]
        results = compute_metrics(self, x, y, y_pred, sample_weight)
        if self._checks_names and not any(map(backend.has_no_data, outputs)):
            _require_own_names(self.metrics, len(outputs) == 1)
            self._checks_names = False
        return results

    return with_own_names


def _require_own_names(
    metrics: list[keras.metrics.Metric], has_one_output: bool
) -> None:
    """Raises for results of one name, of metrics or of what Keras made of these."""
    listed = [each for x in metrics for each in getattr(x, "metrics", [x])]
    # One may be listed twice.
    found = {id(metric): metric for metric in listed}.values()
    taken: dict[str, keras.metrics.Metric] = {}
    groups = [x for x in found if isinstance(x, RankingMetrics)]
    # Of several outputs, others have the name of theirs in front.
    others = [x for x in found if x not in groups] if has_one_output else []
    for metric in (*others, *groups):
        is_group = isinstance(metric, RankingMetrics)
        for name in metric._result_names() if is_group else [metric.name]:
            if name in taken and metric in groups:
                raise ValueError(
                    "`metrics` should have results with names of their own, as Keras "
                    "logs only the last of one name: give a group another `prefix`. "
                    f"Received twice: {name!r}, of {taken[name]!r} and {metric!r}, "
                    "compiled or attributes of the model"
                )
            taken[name] = metric


class _BesideMasks(NamedTuple):
    """Outputs of a model, and the mask that layers have passed on to each."""

    outputs: Any
    masks: Any


def _with_layer_masks(train_step: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps masks of layers in a training step of JAX, for all metrics.

    JAX returns other tensors than it differentiates, without the masks, which Keras
    keeps by the addresses of tensors. So masks are returned beside the outputs.
    """

    @functools.wraps(train_step)
    def with_layer_masks(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        kind, inherited = type(self), RankingModel.compute_loss_and_updates
        # Methods of a user's may look at the outputs.
        is_own = kind.compute_loss_and_updates is not inherited
        takes_masks = hasattr(kind.compute_metrics, "takes_masks")
        self._keeps_masks = takes_masks and not is_own
        try:
            return train_step(self, *args, **kwargs)
        finally:
            self._keeps_masks = False

    return with_layer_masks


def _beside_layer_masks(
    compute_loss_and_updates: Callable[..., Any],
) -> Callable[..., Any]:
    """Returns outputs beside their masks while a training step keeps these."""

    @functools.wraps(compute_loss_and_updates)
    def beside_layer_masks(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        loss, (unscaled, outputs, *others) = compute_loss_and_updates(
            self, *args, **kwargs
        )
        if self._keeps_masks:
            masks = keras.tree.map_structure(backend.layer_mask, outputs)
            outputs = _BesideMasks(outputs, masks)
        return loss, (unscaled, outputs, *others)

    return beside_layer_masks


def _with_prepared_data(method: Callable[..., Any]) -> Callable[..., Any]:
    """Brings data into a form that Keras accepts before its method is called."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def with_prepared_data(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        for name, prepare in _PREPARE.items():
            if name in call.arguments:
                call.arguments[name] = prepare(call.arguments[name])
        # Compiled code can't see the labels.
        model, y = call.arguments["self"], call.arguments.get("y")
        looks = y is not None and bool(losses_that_count(model))
        model._has_padding = have_padding(y) if looks else None
        model._checks_names = True
        return method(*call.args, **call.kwargs)

    return with_prepared_data


def _warn_of_padding(model: keras.Model, y: Any, sample_weight: Any) -> None:
    """Warns, once for a model, of a loss that takes padding for labels of -1."""
    if model._has_padding is False or backend.is_compiling():
        return
    losses = losses_that_count(model)
    weights = keras.tree.flatten(sample_weight)
    if losses and model._has_padding is None:
        model._has_padding = have_padding(y)
    if losses and model._has_padding and not any(map(are_of_items, weights)):
        model._has_warned = True
        warnings.warn(
            "Labels of -1 are padding to metrics, but labels to the losses of "
            "Keras, which count them. Use a loss that leaves padding out, such "
            "as those of keras-rs: see docs/masks.md. "
            f"Received: loss={', '.join(losses)}",
            stacklevel=3,
        )
    # Nothing more is to be said of these data.
    model._has_padding = False


def _of_keras(name: str) -> Callable[..., Any]:
    """The method that `RankingModel` inherits."""

    @functools.wraps(getattr(keras.Model, name))
    def of_keras(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(RankingModel, self), name)(*args, **kwargs)

    return of_keras


@keras.saving.register_keras_serializable(package="keras_rank")
class RankingModel(keras.Model):
    """A `keras.Model` that takes masks with labels, and ragged lists.

    `y` may be `{"labels": ..., "mask": ...}`. With a single output, `keras.Model` would
    drop the mask of such a `y`, or fail. This model writes it into the labels first: -1
    where the mask is False, which means padding to the metrics here and to the ranking
    losses of keras-rs. Keras's own losses count it as a label, of which the model warns
    where it can see it. It does so in `fit`, `evaluate`, `train_on_batch` and
    `test_on_batch`, for the loss and all metrics, weighted or not. With several
    outputs, the `y` of each may be such a dict, in a list or in a dict by output name.

    For metrics with `sparse_labels=True`, `y` may be `{"ids": ..., "labels": ...}`,
    optionally with `"mask"`: the graded targets of a whole catalogue. The loss and the
    metrics receive the ids and their labels stacked in one tensor of shape
    `(batch, targets, 2)`, with an id of -1 where the mask is False.

    The data may be a `tf.data.Dataset`, a `keras.utils.PyDataset`, a generator or a
    torch `DataLoader` with ragged elements, or ragged tensors instead of arrays.
    `keras.Model` would pad them with 0, which is the label of an item, or fail. This
    model pads each batch to its longest list: labels with -1, features and weights with
    0. So its inputs must accept any list size: `keras.Input((None, features))`.

    On JAX, the training metrics of `fit` see masks that layers have passed on to the
    outputs, Keras's own metrics too, as everywhere else. In `keras.Model` they don't.
    Two results of one name are an error, as the logs would have the last one only.

    Everything else is as in `keras.Model`: create it from inputs and outputs, or
    subclass it, and pass inputs and outputs to `super().__init__` or define `call`. An
    override of `compute_loss` or `compute_metrics` receives a `y` of labels only (a
    tuple of labels for a list), whatever the form of the data. An override of
    `train_step` receives the data unchanged.

    Args:
        inputs: as for `keras.Model`.
        outputs: as for `keras.Model`.
        name: as for `keras.Model`.

    Raises:
        ValueError: if `y` has keys other than `"labels"`, `"mask"` and `"ids"`, or two
            results have the same name.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> inputs = keras.Input((3, 2))
    >>> outputs = keras.layers.Reshape((3,))(keras.layers.Dense(1)(inputs))
    >>> model = keras_rank.RankingModel(inputs, outputs)
    >>> def loss(labels, scores):  # It leaves out padding, which has labels of -1.
    ...     errors = keras.ops.where(labels >= 0, labels - scores, 0.0)
    ...     return keras.ops.mean(errors**2, axis=1)
    >>> model.compile(loss=loss, metrics=[keras_rank.metrics.NDCG(k=2)])
    >>> x = np.ones((4, 3, 2), "float32")
    >>> y = {"labels": np.eye(4, 3), "mask": np.ones((4, 3), bool)}
    >>> sorted(model.evaluate(x, y, return_dict=True, verbose=0))
    ['loss', 'ndcg_at_2']
    """

    # Whether there is padding to warn of, `None` if that is not known.
    _has_padding: bool | None = None
    _has_warned = False
    # Whether the names of results are yet to be checked, once for each call.
    _checks_names = True
    # Whether masks of layers are returned beside the outputs.
    _keeps_masks = False

    def __new__(cls, *args: Any, **kwargs: Any) -> "RankingModel":
        if cls is RankingModel and _is_of_tensors(args, kwargs):
            cls = FunctionalRankingModel
        model: RankingModel = super().__new__(cls, *args, **kwargs)
        return model

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _is_of_tensors(args, kwargs) and not isinstance(self, _Functional):
            # Keras would put this base in the place of `keras.Model`, also under
            # `RankingModel`, and so under all of its subclasses.
            type(self).__bases__ += (_Functional,)
        super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("compute_loss", "compute_metrics"):
            if name in vars(cls):
                setattr(cls, name, _with_folded_labels(vars(cls)[name]))

    fit = _with_prepared_data(_of_keras("fit"))
    evaluate = _with_prepared_data(_of_keras("evaluate"))
    predict = _with_prepared_data(_of_keras("predict"))
    train_on_batch = _with_prepared_data(_of_keras("train_on_batch"))
    test_on_batch = _with_prepared_data(_of_keras("test_on_batch"))
    predict_on_batch = _with_prepared_data(_of_keras("predict_on_batch"))
    if hasattr(keras.Model, "compute_loss_and_updates"):
        train_step = _with_layer_masks(_of_keras("train_step"))
        compute_loss_and_updates = _beside_layer_masks(
            _of_keras("compute_loss_and_updates")
        )
    compute_loss = _with_folded_labels(_of_keras("compute_loss"), _warn_of_padding)
    compute_metrics = _with_folded_labels(_with_own_names(_of_keras("compute_metrics")))


# What Keras makes of inputs and outputs. It does not export the class, but tells it.
_input = keras.Input((1,), name="input")
_identity = keras.layers.Identity(name="identity")
_Functional = type(keras.Model(_input, _identity(_input), name="functional"))


@keras.saving.register_keras_serializable(package="keras_rank")
class FunctionalRankingModel(RankingModel, _Functional):  # type: ignore[misc,valid-type]
    """The class of `RankingModel(inputs, outputs)`."""


def _is_of_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a model is created from inputs and outputs."""
    return len(args) >= 2 or "outputs" in kwargs


def _features(x: Any) -> Any:
    """Returns features without ragged tensors, or a source of batches for Keras."""
    spec = getattr(x, "element_spec", None)
    if any(hasattr(part, "ragged_rank") for part in keras.tree.flatten(spec)):
        # TensorFlow chooses the number of threads.
        return x.map(_dense_batch, num_parallel_calls=-1)
    if isinstance(x, keras.utils.PyDataset):
        return _DenseBatches(x)
    if isinstance(x, types.GeneratorType):
        return (_dense_tuples(batch) for batch in x)
    if hasattr(x, "collate_fn"):
        x = copy.copy(x)
        x.collate_fn = functools.partial(_collate_to_tuples, x.collate_fn)
        return x
    return _dense("x", x)


def _dense_tuples(batch: Any, to_arrays: bool = True) -> Any:
    """A batch without ragged tensors, and with tuples for lists.

    Keras on TensorFlow accepts no lists in batches, and PyTorch turns tuples into
    lists.
    """
    batch = keras.tree.lists_to_tuples(batch)
    batch = batch if isinstance(batch, tuple) else (batch,)
    dense = _dense_batch(*batch, to_arrays=to_arrays)
    # Keras's `pack` returns features alone as they are.
    return dense if isinstance(dense, tuple) else (dense,)


class _DenseBatches(keras.utils.PyDataset):
    """The batches of another `PyDataset`, as `_dense_tuples`."""

    def __init__(self, batches: keras.utils.PyDataset) -> None:
        super().__init__(
            batches.workers, batches.use_multiprocessing, batches.max_queue_size
        )
        self._batches = batches
        self.on_epoch_begin = batches.on_epoch_begin
        self.on_epoch_end = batches.on_epoch_end

    @property
    def num_batches(self) -> int | None:
        return cast(int | None, self._batches.num_batches)

    def __getitem__(self, index: int) -> Any:
        return _dense_tuples(self._batches[index])


def _collate_to_tuples(collate: Callable[[Any], Any], samples: Any) -> Any:
    # Keras expects tensors of PyTorch here.
    return _dense_tuples(collate(samples), to_arrays=False)


def _labels(y: Any) -> Any:
    """Folds arrays before Keras reads a dict as the labels of several outputs.

    With a dict, it would accept only weights of whole lists.
    """
    return _folded(_dense("y_true", y), is_early=True)


def _validation_data(data: Any) -> Any:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    return keras.utils.pack_x_y_sample_weight(
        _features(x), _labels(y), _dense("sample_weight", sample_weight)
    )


def _dense_batch(*batch: Any, to_arrays: bool = False) -> Any:
    names = ("x", "y_true", "sample_weight")
    parts = keras.utils.unpack_x_y_sample_weight(batch)
    return keras.utils.pack_x_y_sample_weight(
        *(_dense(*each, to_arrays) for each in zip(names, parts, strict=True))
    )


def _dense(name: str, structure: Any, to_arrays: bool = True) -> Any:
    """Pads ragged tensors with the padding value of their argument."""

    def dense(path: tuple[Any, ...], part: Any) -> Any:
        argument = "mask" if path[-1:] == ("mask",) else name
        padding = -1 if argument == "y_true" else 0
        if form_of(part) == "ragged":
            part = in_full(part, padding)
            return ops.convert_to_numpy(part) if to_arrays else part
        if not are_lists(part):
            is_array = argument != "x" and isinstance(part, np.ndarray)
            if is_array and part.dtype.kind in "mMV":
                # Keras does not name the argument, such as that of dates.
                raise not_real_error(argument, part)
            return part
        # Items may have several features, and labels for subtopics.
        deep = argument in ("x", "y_true")
        return look(argument, part, padding, deep=deep).numbers

    parts = [dense(*each) for each in keras.tree.flatten_with_path(structure)]
    return keras.tree.pack_sequence_as(structure, parts)


def _folded(y: Any, is_early: bool = False) -> Any:
    """Writes each mask into its labels, and turns lists into tuples.

    It also stacks ids and labels, unless `is_early`. That has to wait until Keras has
    the data: it may cast floats, which the stacked ids are, to half precision.
    """

    def labels(part: Any) -> Any:
        """Returns labels, or `None` to descend into a part."""
        if not isinstance(part, dict) or not {"ids", "labels", "mask"} & set(part):
            return None
        part = {name: x for name, x in part.items() if x is not None}
        unknown = sorted(set(part) - {"ids", "labels", "mask"})
        if unknown or not {"ids", "labels"} & set(part):
            raise ValueError(
                '`y` should be labels, or a dict with the keys "labels" or "ids" (or '
                'both) and "mask" (optional). '
                f"Received: y with the keys {sorted(part)}"
            )
        if {"ids", "labels"} <= set(part):
            return part if is_early else _side_by_side(part)
        only = part["ids" if "ids" in part else "labels"]
        if "mask" not in part:
            return only
        masked = mask_labels(only, part["mask"])
        return ops.convert_to_numpy(masked) if is_early else masked

    return keras.tree.lists_to_tuples(keras.tree.traverse(labels, y))


def _once(sample_weight: Any) -> Any:
    """Weights of lists, which Keras repeats for each part of what grades ids."""

    def weights(part: Any) -> Any:
        return part["ids"] if isinstance(part, dict) and "ids" in part else None

    return keras.tree.traverse(weights, sample_weight)


def _side_by_side(part: dict[str, Any]) -> Any:
    """Stacks ids, -1 where the mask is False, with their labels."""
    ids = part["ids"]
    if "mask" in part:
        ids = mask_labels(ids, part["mask"])
    # A metric has to see a precision that may have rounded ids.
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if dtype not in ("bfloat16", "float16"):
        is_wide = wide_or_none(part["labels"], "float32") is not None
        dtype = "float64" if is_wide else "float32"
    pair = [ops.cast(x, dtype) for x in (ids, part["labels"])]
    if len(pair[0].shape) == 1:
        pair = [x[:, None] for x in pair]
    return ops.stack(pair, axis=-1)


# How each argument of Keras is converted.
_PREPARE: dict[str, Callable[[Any], Any]] = {
    "x": _features,
    "y": _labels,
    "sample_weight": functools.partial(_dense, "sample_weight"),
    "validation_data": _validation_data,
}
