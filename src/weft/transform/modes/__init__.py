"""Reverse mode, forward mode, batching and tracing: the interpreters of the table."""
