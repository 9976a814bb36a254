"""Tensors and the public Array API namespace."""
