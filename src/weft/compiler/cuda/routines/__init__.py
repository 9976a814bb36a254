"""Routines of a GPU: stages of a grid for rows that are not kernels."""
