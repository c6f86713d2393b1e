"""Data sets of each library that Keras accepts, with equal batches."""

import keras
import pytest


class Batches(keras.utils.PyDataset):
    """A data set of slices of nested arrays. `number=None` makes it infinite."""

    def __init__(self, *parts, size=16, number=0):
        super().__init__()
        self.parts, self.size, self.number = parts, size, number
        if number == 0:
            self.number = -(-len(keras.tree.flatten(parts)[0]) // size)

    def __len__(self):
        return self.number

    @property
    def num_batches(self):
        return self.number

    def __getitem__(self, index):
        part = slice(index * self.size, (index + 1) * self.size)
        return keras.tree.map_structure(lambda each: each[part], self.parts)


def tf_data(*parts, size=16):
    tf = pytest.importorskip("tensorflow")
    # `from_tensor_slices` would convert a list to one tensor.
    parts = keras.tree.lists_to_tuples(parts)
    return tf.data.Dataset.from_tensor_slices(parts).batch(size)


class Items:
    """A map-style data set of PyTorch that returns single rows."""

    def __init__(self, parts):
        self.parts = parts

    def __len__(self):
        return len(keras.tree.flatten(self.parts)[0])

    def __getitem__(self, index):
        return keras.tree.map_structure(lambda each: each[index], self.parts)


def data_loader(*parts, size=16, **arguments):
    torch = pytest.importorskip("torch")
    return torch.utils.data.DataLoader(Items(parts), size, **arguments)


SOURCES = [Batches, tf_data, data_loader]
