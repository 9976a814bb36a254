"""From a call of a function to a graph and a variant: what it reads, changes and returns."""
