"""From a graph to kernels: which equations fuse into one loop nest, and in which order they run."""
