"""The programs of the GPU's table, written once for PyTorch, JAX and Weft."""
