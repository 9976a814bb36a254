"""Rows as LLVM IR, at any number of lanes."""
