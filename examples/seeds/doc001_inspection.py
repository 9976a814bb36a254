"""001 FLAME Automatic Differentiation: looking at gradients and at what is saved for them.

Sections: Gradient Debugging; 1. Minimize Saved Tensors; 4. Profile Memory Usage.
"""

import math

import numpy as np

import weft as wf
from weft import AutogradContext
from weft.nn import functional as F


def gradient_debugging():
    x = wf.tensor([0.0, 4.0], requires_grad=True)
    y = wf.tensor([3.0, 4.0], requires_grad=True)
    grads = x.sqrt().sum().add(y.square().sum().mul_scalar(0.5)).backward()

    invalid = []
    for tensor_id, grad in grads.items():
        grad_data = grad.to_vec()
        if any(math.isnan(v) or math.isinf(v) for v in grad_data):
            invalid.append(tensor_id)
    assert invalid == [x.id] and grads[x].tolist() == [math.inf, 0.25]

    grad_norm = grads[y].square().sum().sqrt()
    assert f"Gradient norm: {grad_norm.to_vec()[0]}" == "Gradient norm: 5.0"


def saved_by(operation, x):
    """What an operation saves: the number of bytes, and the arrays themselves."""
    kept = []
    before = wf.memory_stats().bytes
    y = operation(x)
    bytes_ = wf.memory_stats().bytes - before
    assert y.requires_grad
    with wf.saved_tensors_hooks(lambda t: kept.append(t.numpy()) or t, lambda t: t):
        operation(x)
    return bytes_, kept


def minimize_saved_tensors():
    x = wf.randn((50, 20), requires_grad=True)

    size, _ = saved_by(wf.relu, x)
    assert size <= 1000, "one byte an element: a mask, not the input"

    size, kept = saved_by(lambda x: F.dropout(x, 0.5), x)
    assert size <= 1000 and [mask.dtype for mask in kept if mask.shape == x.shape] == [bool]

    size, kept = saved_by(lambda x: F.layer_norm(x, 20), x)
    assert size <= 4 * (1000 + 2 * 50), "one array, a mean and a deviation for each row"
    (normalized,) = [array for array in kept if array.shape == x.shape]
    plain = x.detach().numpy()
    expected = (plain - plain.mean(1, keepdims=True)) / plain.std(1, keepdims=True)
    np.testing.assert_allclose(normalized, expected, atol=1e-4)


def profile_memory_usage():
    x = wf.zeros(2**18, requires_grad=True)
    before = AutogradContext.memory_stats()
    y = x.exp()
    memory_stats = AutogradContext.memory_stats()
    assert memory_stats.saved_memory_mb - before.saved_memory_mb == 1.0

    grads = y.sum().backward()
    assert AutogradContext.memory_stats().bytes == before.bytes
    assert grads[x].shape == (2**18,)


def main():
    gradient_debugging()
    minimize_saved_tensors()
    profile_memory_usage()


if __name__ == "__main__":
    main()
