"""Tensor operations that `keras.ops` lacks, with equal results on all backends."""
