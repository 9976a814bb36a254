"""Functions of arrays of many lengths."""
