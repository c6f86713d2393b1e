"""What `keras.ops` lacks, on plain tensors, the same on every backend."""
