"""Kernels for single operations on large arrays in eager mode."""
