"""Utilities to prepare lists for metrics, and to export and merge metric states."""

from keras_rank.utils.list_inputs import (
    exclude_items,
    mask_labels,
    pad_lists,
    targets_from_qrels,
    unpad_lists,
)
from keras_rank.utils.metric_state import export_state, merge_state

__all__ = [
    "exclude_items",
    "export_state",
    "mask_labels",
    "merge_state",
    "pad_lists",
    "targets_from_qrels",
    "unpad_lists",
]
