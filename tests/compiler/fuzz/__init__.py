"""Random programs as Python text, run compiled and eager."""
