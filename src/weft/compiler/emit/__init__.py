"""Rows as LLVM's intermediate language, at any number of lanes."""
