"""Diffusion models: architecture, adapters, data and the trainer."""
