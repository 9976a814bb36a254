"""Tests of the table's composites and of what its rows say of wrong arguments."""
