"""The frontend: from a call of a function to a graph and a variant."""
