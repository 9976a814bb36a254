"""001 FLAME Automatic Differentiation: looking at gradients and at what is saved for them.

Sections: Gradient Debugging; 1. Minimize Saved Tensors; 4. Profile Memory Usage.
Of the second, dropout and layer norm are left to the neural operations.
"""

import math

import weft as wf
from weft import AutogradContext


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


def minimize_saved_tensors():
    x = wf.ones(1000, requires_grad=True)
    before = wf.memory_stats().bytes
    y = x.relu()
    saved = wf.memory_stats().bytes - before
    assert y.requires_grad and saved <= 1000, "one byte an element: a mask, not the input"


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
