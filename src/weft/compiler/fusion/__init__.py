"""From a graph to kernels: which equations become one loop nest, and in which order."""
