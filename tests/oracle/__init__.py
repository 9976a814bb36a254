"""Tests against PyTorch's own sample inputs: values and gradients of every op we share with it."""
