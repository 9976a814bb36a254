"""Tests that are generated from the table: a new row brings its own."""
