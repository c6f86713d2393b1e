"""What keras.ops lacks, of plain tensors, the same on every backend."""
