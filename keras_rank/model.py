"""A Keras model that accepts masks with labels, and lists of uneven length."""

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
    detect_form,
    is_array_of_lists,
    not_real_error,
    pad_ragged,
    read_array,
)
from keras_rank.lists.tensors import wide_or_none
from keras_rank.metrics import RankingMetrics
from keras_rank.utils import mask_labels

# The number of lists that are searched for padding.
_NUM_CHECKED_LISTS = 10_000
# The losses of Keras that count padding. The KL divergence clips -1 to almost 0.
_DIVERGENCE = keras.losses.KLDivergence, keras.losses.kl_divergence
_LOSSES = [
    loss
    for loss in vars(keras.losses).values()
    if callable(loss) and loss not in _DIVERGENCE
]


def find_losses_counting_padding(model: keras.Model) -> list[str]:
    """Returns the names of the losses of a model if all of them count padding.

    The result is empty if the model has already warned about its losses.
    """
    names = []
    for identifier in [] if model._has_warned else keras.tree.flatten(model.loss):
        try:
            loss = keras.losses.get(identifier)
        except ValueError:
            # Keras raises an error for this loss later.
            return []
        is_keras_loss = loss in _LOSSES or type(loss) in _LOSSES
        if not is_keras_loss or getattr(loss, "ignore_class", None) is not None:
            return []
        names.append(getattr(loss, "name", None) or loss.__name__)
    return [] if _creates_masks(model) else names


def has_padding(y: Any) -> bool:
    """Returns whether the first lists are known to have padding.

    Compiled code can't read values. There, a mask counts as padding, and labels do not.
    """

    def part_has_padding(path: tuple[Any, ...], labels: Any) -> bool:
        is_mask, is_tensor = path[-1:] == ("mask",), ops.is_tensor(labels)
        if isinstance(labels, keras.KerasTensor) or not getattr(labels, "shape", ()):
            return is_mask
        if is_tensor and not backend.is_concrete(labels):
            return is_mask
        first = labels[:_NUM_CHECKED_LISTS]
        first = ops.convert_to_numpy(first) if is_tensor else np.asarray(first)
        return bool(np.any(first == (0 if is_mask else -1)))

    return any(part_has_padding(*part) for part in keras.tree.flatten_with_path(y))


def has_item_weights(weights: Any) -> bool:
    """Returns whether weights have an entry for each item.

    Weights of items can be 0 for padding.
    """
    return len(getattr(weights, "shape", ())) > 1 and weights.shape[1] != 1


def _creates_masks(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer, or a layer inside it, creates a mask.

    The losses of Keras use the masks of outputs.
    """
    is_mask = isinstance(layer, keras.layers.Masking)
    is_mask = is_mask or getattr(layer, "mask_zero", False)
    return is_mask or any(map(_creates_masks, getattr(layer, "layers", ())))


def _fold_masks_first(
    method: Callable[..., Any], check: Callable[..., None] | None = None
) -> Callable[..., Any]:
    """Returns a method of `(x, y, ...)` that writes masks into labels first.

    On backends whose tensors can change, the method gets a copy of the weights: on
    torch, Keras's losses and metrics multiply weights by the masks of layers in place.

    Args:
        method: the original method.
        check: a function of the model, the labels and the weights. It is called before
            masks are written.
    """

    @functools.wraps(method)
    def fold_and_call(
        self: keras.Model,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        if check is not None:
            check(self, y, sample_weight)
        weights = keras.tree.map_structure(
            backend.copy_if_mutable, _select_list_weights(sample_weight)
        )
        if isinstance(y_pred, _OutputsAndMasks):
            y_pred = keras.tree.map_structure(backend.attach_layer_mask, *y_pred)
        return method(self, x, _fold_masks(y), y_pred, weights, *args, **kwargs)

    vars(fold_and_call)["takes_masks"] = True
    return fold_and_call


def _check_result_names(compute_metrics: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a `compute_metrics` that raises for two results of one name.

    Keras would keep only the last result. Keras renames metrics of equal names, but
    not the results of groups.
    """

    @functools.wraps(compute_metrics)
    def compute_and_check(
        self: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> Any:
        outputs = keras.tree.flatten(y_pred)
        if ops.is_tensor(sample_weight) and len(outputs) > 1:
            # Weights are multiplied by the mask of an output in place, so each output
            # needs a separate copy.
            sample_weight = [backend.copy_if_mutable(sample_weight) for _ in outputs]
        results = compute_metrics(self, x, y, y_pred, sample_weight)
        if self._should_check_names and not any(map(backend.has_no_data, outputs)):
            _check_unique_names(self.metrics, len(outputs) == 1)
            self._should_check_names = False
        return results

    return compute_and_check


def _check_unique_names(
    metrics: list[keras.metrics.Metric], has_one_output: bool
) -> None:
    """Raises `ValueError` if two results of metrics have equal names.

    The metrics may be containers that Keras created, which hold other metrics.
    """
    listed = [metric for x in metrics for metric in getattr(x, "metrics", [x])]
    # A metric may be listed twice.
    unique = {id(metric): metric for metric in listed}.values()
    taken: dict[str, keras.metrics.Metric] = {}
    groups = [x for x in unique if isinstance(x, RankingMetrics)]
    # With several outputs, Keras prefixes names of single metrics with their output.
    others = [x for x in unique if x not in groups] if has_one_output else []
    for metric in (*others, *groups):
        is_group = isinstance(metric, RankingMetrics)
        for name in metric._result_names() if is_group else [metric.name]:
            if name in taken and metric in groups:
                raise ValueError(
                    "`metrics` should have results with different names, as Keras "
                    "logs only the last of one name: give a group another `prefix`. "
                    f"Received twice: {name!r}, of {taken[name]!r} and {metric!r}, "
                    "compiled or attributes of the model"
                )
            taken[name] = metric


class _OutputsAndMasks(NamedTuple):
    """The outputs of a model, and the mask that layers have passed on to each."""

    outputs: Any
    masks: Any


def _keep_layer_masks(train_step: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a training step for JAX that passes masks of layers to all metrics.

    Keras stores masks by the addresses of tensors. JAX returns other tensors than those
    that it differentiates, so their masks are lost. The masks are therefore returned
    together with the outputs.
    """

    @functools.wraps(train_step)
    def train_with_masks(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        model_class, inherited = type(self), RankingModel.compute_loss_and_updates
        # An override may read the outputs, so it gets them without masks.
        is_overridden = model_class.compute_loss_and_updates is not inherited
        takes_masks = hasattr(model_class.compute_metrics, "takes_masks")
        self._should_return_masks = takes_masks and not is_overridden
        try:
            return train_step(self, *args, **kwargs)
        finally:
            self._should_return_masks = False

    return train_with_masks


def _return_layer_masks(
    compute_loss_and_updates: Callable[..., Any],
) -> Callable[..., Any]:
    """Returns a `compute_loss_and_updates` that adds masks to the outputs.

    It does so while `_should_return_masks` is set.
    """

    @functools.wraps(compute_loss_and_updates)
    def compute_with_masks(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        loss, (unscaled, outputs, *others) = compute_loss_and_updates(
            self, *args, **kwargs
        )
        if self._should_return_masks:
            masks = keras.tree.map_structure(backend.get_layer_mask, outputs)
            outputs = _OutputsAndMasks(outputs, masks)
        return loss, (unscaled, outputs, *others)

    return compute_with_masks


def _prepare_data(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method that first converts data to forms that Keras accepts."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def prepare_and_call(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        for name, prepare in _PREPARATIONS.items():
            if name in call.arguments:
                call.arguments[name] = prepare(call.arguments[name])
        # Labels are searched for padding here, as compiled code can't read them.
        model, y = call.arguments["self"], call.arguments.get("y")
        should_search = y is not None and bool(find_losses_counting_padding(model))
        model._has_padding = has_padding(y) if should_search else None
        model._should_check_names = True
        return method(*call.args, **call.kwargs)

    return prepare_and_call


def _warn_about_padding(model: keras.Model, y: Any, sample_weight: Any) -> None:
    """Warns, once for a model, if its losses count padding as labels of -1."""
    if model._has_padding is False or backend.is_compiling():
        return
    losses = find_losses_counting_padding(model)
    weights = keras.tree.flatten(sample_weight)
    if losses and model._has_padding is None:
        model._has_padding = has_padding(y)
    if losses and model._has_padding and not any(map(has_item_weights, weights)):
        model._has_warned = True
        warnings.warn(
            "Labels of -1 are padding to metrics, but labels to the losses of "
            "Keras, which count them. Use a loss that leaves padding out, such "
            "as those of keras-rs: see docs/masks.md. "
            f"Received: loss={', '.join(losses)}",
            stacklevel=3,
        )
    # The next batches of these data are not checked again.
    model._has_padding = False


def _inherited_method(name: str) -> Callable[..., Any]:
    """Returns the method of a name that `RankingModel` inherits."""

    @functools.wraps(getattr(keras.Model, name))
    def call_inherited(self: keras.Model, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(RankingModel, self), name)(*args, **kwargs)

    return call_inherited


@keras.saving.register_keras_serializable(package="keras_rank")
class RankingModel(keras.Model):
    """A `keras.Model` that accepts masks with labels, and ragged lists.

    `y` may be `{"labels": ..., "mask": ...}`. With a single output, `keras.Model` would
    drop the mask of such a `y`, or fail. This model first writes the mask into the
    labels: a label is -1 where the mask is False. The metrics of this package and the
    ranking losses of keras-rs treat -1 as padding. Keras's own losses count it as a
    label, and the model warns about this if it can read the labels. Masks are written
    in `fit`, `evaluate`, `train_on_batch` and `test_on_batch`, for the loss and all
    metrics, weighted or not. With several outputs, the `y` of each output may be such a
    dict, in a list or in a dict by output name.

    For metrics with `sparse_labels=True`, `y` may be `{"ids": ..., "labels": ...}`,
    optionally with `"mask"`: the graded targets of a whole catalog. The loss and the
    metrics receive the ids and their labels stacked in one tensor of shape
    `(batch, targets, 2)`, with an id of -1 where the mask is False.

    The data may be a `tf.data.Dataset`, a `keras.utils.PyDataset`, a generator or a
    torch `DataLoader` with ragged elements, or ragged tensors instead of arrays.
    `keras.Model` would pad them with 0, which is the label of an item, or fail. This
    model pads each batch to its longest list: labels with -1, features and weights with
    0. Its inputs must therefore accept any list size: `keras.Input((None, features))`.

    On JAX, layers may pass masks on to the outputs. In this model, all training metrics
    of `fit` use these masks, including Keras's own metrics, as on other backends and in
    `evaluate`. In `keras.Model` they don't. Two results with the same name are an
    error, as the logs would contain only the last one.

    Everything else is as in `keras.Model`: create the model from inputs and outputs, or
    subclass it, and pass inputs and outputs to `super().__init__` or define `call`. An
    override of `compute_loss` or `compute_metrics` receives only labels as `y` (a tuple
    of labels for a list), whatever the form of the data. An override of `train_step`
    receives the data unchanged.

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

    # `True` if the data have padding, `False` if not or if they need no more checks,
    # `None` if it is unknown.
    _has_padding: bool | None = None
    _has_warned = False
    # The names of results are checked once for each call of `fit` or another method.
    _should_check_names = True
    # If `True`, masks of layers are returned together with the outputs.
    _should_return_masks = False

    def __new__(cls, *args: Any, **kwargs: Any) -> "RankingModel":
        if cls is RankingModel and _is_functional(args, kwargs):
            cls = FunctionalRankingModel
        model: RankingModel = super().__new__(cls, *args, **kwargs)
        return model

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _is_functional(args, kwargs) and not isinstance(self, _Functional):
            # Keras would replace the base class `keras.Model` by this base class, also
            # that of `RankingModel`, and so of all its subclasses.
            type(self).__bases__ += (_Functional,)
        super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("compute_loss", "compute_metrics"):
            if name in vars(cls):
                setattr(cls, name, _fold_masks_first(vars(cls)[name]))

    fit = _prepare_data(_inherited_method("fit"))
    evaluate = _prepare_data(_inherited_method("evaluate"))
    predict = _prepare_data(_inherited_method("predict"))
    train_on_batch = _prepare_data(_inherited_method("train_on_batch"))
    test_on_batch = _prepare_data(_inherited_method("test_on_batch"))
    predict_on_batch = _prepare_data(_inherited_method("predict_on_batch"))
    if hasattr(keras.Model, "compute_loss_and_updates"):
        train_step = _keep_layer_masks(_inherited_method("train_step"))
        compute_loss_and_updates = _return_layer_masks(
            _inherited_method("compute_loss_and_updates")
        )
    compute_loss = _fold_masks_first(
        _inherited_method("compute_loss"), _warn_about_padding
    )
    compute_metrics = _fold_masks_first(
        _check_result_names(_inherited_method("compute_metrics"))
    )


# The class of models that are created from inputs and outputs. Keras does not export
# it, so it is taken from an instance.
_input = keras.Input((1,), name="input")
_identity = keras.layers.Identity(name="identity")
_Functional = type(keras.Model(_input, _identity(_input), name="functional"))


@keras.saving.register_keras_serializable(package="keras_rank")
class FunctionalRankingModel(RankingModel, _Functional):  # type: ignore[misc,valid-type]
    """A `RankingModel` that is created from inputs and outputs."""


def _is_functional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns whether the arguments of a model contain inputs and outputs."""
    return len(args) >= 2 or "outputs" in kwargs


def _prepare_features(x: Any) -> Any:
    """Returns data without ragged tensors: features, or a source of dense batches."""
    spec = getattr(x, "element_spec", None)
    if any(hasattr(part, "ragged_rank") for part in keras.tree.flatten(spec)):
        # -1 is `tf.data.AUTOTUNE`: TensorFlow chooses the number of threads.
        return x.map(_densify_batch, num_parallel_calls=-1)
    if isinstance(x, keras.utils.PyDataset):
        return _DenseBatches(x)
    if isinstance(x, types.GeneratorType):
        return (_densify_to_tuples(batch) for batch in x)
    if hasattr(x, "collate_fn"):
        x = copy.copy(x)
        x.collate_fn = functools.partial(_collate_to_tuples, x.collate_fn)
        return x
    return _densify("x", x)


def _densify_to_tuples(batch: Any, to_arrays: bool = True) -> Any:
    """Returns a batch without ragged tensors, in which lists are replaced by tuples.

    Keras on TensorFlow accepts no lists in batches, and PyTorch turns tuples into
    lists.
    """
    batch = keras.tree.lists_to_tuples(batch)
    batch = batch if isinstance(batch, tuple) else (batch,)
    dense = _densify_batch(*batch, to_arrays=to_arrays)
    # Keras's `pack_x_y_sample_weight` does not put a lone `x` into a tuple.
    return dense if isinstance(dense, tuple) else (dense,)


class _DenseBatches(keras.utils.PyDataset):
    """The batches of another `PyDataset`, converted by `_densify_to_tuples`."""

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
        return _densify_to_tuples(self._batches[index])


def _collate_to_tuples(collate: Callable[[Any], Any], samples: Any) -> Any:
    # Keras expects PyTorch tensors in the batches of a `DataLoader`.
    return _densify_to_tuples(collate(samples), to_arrays=False)


def _prepare_labels(y: Any) -> Any:
    """Writes masks into labels that are arrays, before Keras gets the labels.

    Keras would read a dict as the labels of several outputs, and would accept only
    weights of whole lists.
    """
    return _fold_masks(_densify("y_true", y), is_early=True)


def _prepare_validation_data(data: Any) -> Any:
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    return keras.utils.pack_x_y_sample_weight(
        _prepare_features(x),
        _prepare_labels(y),
        _densify("sample_weight", sample_weight),
    )


def _densify_batch(*batch: Any, to_arrays: bool = False) -> Any:
    names = ("x", "y_true", "sample_weight")
    parts = keras.utils.unpack_x_y_sample_weight(batch)
    return keras.utils.pack_x_y_sample_weight(
        *(_densify(*part, to_arrays) for part in zip(names, parts, strict=True))
    )


def _densify(name: str, structure: Any, to_arrays: bool = True) -> Any:
    """Pads ragged tensors with the padding value of their argument."""

    def densify(path: tuple[Any, ...], part: Any) -> Any:
        argument = "mask" if path[-1:] == ("mask",) else name
        padding = -1 if argument == "y_true" else 0
        if detect_form(part) == "ragged":
            part = pad_ragged(part, padding)
            return ops.convert_to_numpy(part) if to_arrays else part
        if not is_array_of_lists(part):
            is_array = argument != "x" and isinstance(part, np.ndarray)
            if is_array and part.dtype.kind in "mMV":
                # Keras's error for values such as dates would not name the argument.
                raise not_real_error(argument, part)
            return part
        # Items may have several features, and labels may have an axis of subtopics.
        deep = argument in ("x", "y_true")
        return read_array(argument, part, padding, deep=deep).numbers

    parts = [densify(*part) for part in keras.tree.flatten_with_path(structure)]
    return keras.tree.pack_sequence_as(structure, parts)


def _fold_masks(y: Any, is_early: bool = False) -> Any:
    """Writes each mask into the labels, and replaces lists by tuples.

    If `is_early` is `False`, it also stacks ids and labels. The stacked ids are floats,
    which Keras may cast to half precision, so they are stacked after Keras has
    converted the data.
    """

    def labels(part: Any) -> Any:
        """Returns the labels of a part, or `None` to traverse its elements."""
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
            return part if is_early else _stack_ids_and_labels(part)
        unmasked = part["ids" if "ids" in part else "labels"]
        if "mask" not in part:
            return unmasked
        masked = mask_labels(unmasked, part["mask"])
        return ops.convert_to_numpy(masked) if is_early else masked

    return keras.tree.lists_to_tuples(keras.tree.traverse(labels, y))


def _select_list_weights(sample_weight: Any) -> Any:
    """Returns the weights of lists once if `y` holds graded ids.

    Keras repeats the weights for each entry of such a dict.
    """

    def weights(part: Any) -> Any:
        return part["ids"] if isinstance(part, dict) and "ids" in part else None

    return keras.tree.traverse(weights, sample_weight)


def _stack_ids_and_labels(part: dict[str, Any]) -> Any:
    """Stacks ids and labels in one tensor. Ids are -1 where the mask is False."""
    ids = part["ids"]
    if "mask" in part:
        ids = mask_labels(ids, part["mask"])
    # Half precision is kept, so that the metric can detect that ids may be rounded.
    dtype = keras.backend.standardize_dtype(ids.dtype)
    if dtype not in ("bfloat16", "float16"):
        is_wide = wide_or_none(part["labels"], "float32") is not None
        dtype = "float64" if is_wide else "float32"
    pair = [ops.cast(x, dtype) for x in (ids, part["labels"])]
    if len(pair[0].shape) == 1:
        pair = [x[:, None] for x in pair]
    return ops.stack(pair, axis=-1)


# The function that converts each argument of Keras's methods.
_PREPARATIONS: dict[str, Callable[[Any], Any]] = {
    "x": _prepare_features,
    "y": _prepare_labels,
    "sample_weight": functools.partial(_densify, "sample_weight"),
    "validation_data": _prepare_validation_data,
}
