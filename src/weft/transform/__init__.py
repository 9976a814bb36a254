"""Interpreters of the table: each differentiation mode is one of them."""
