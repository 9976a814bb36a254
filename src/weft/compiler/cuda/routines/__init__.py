"""Routines on a GPU: work that no kernel describes, as stages of grids."""
