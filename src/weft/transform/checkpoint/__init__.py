"""Checkpoints: calls that are rematerialised in the backward pass instead of saved."""
