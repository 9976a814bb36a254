"""Calls that are run again in the backward pass in the place of being kept."""
