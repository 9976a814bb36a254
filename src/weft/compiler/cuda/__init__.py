"""NVIDIA's GPUs as a target: kernels as grids of threads, in PTX."""
