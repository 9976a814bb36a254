"""Derivatives beside finite differences."""
