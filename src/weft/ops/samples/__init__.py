"""Inputs for the tests that are generated from the table."""
