"""NumPy as a backend."""
