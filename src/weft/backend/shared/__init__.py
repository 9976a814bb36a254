"""What the backends share: tiled kernels, threads, random variates."""
