"""The memory and time of training steps under budgets of bytes, beside PyTorch's."""
