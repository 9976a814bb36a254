"""002 TenfloweRS Autograd: Comprehensive Guide, "Core Concepts" and "Getting Started".

Sections: 1. Gradient Tape; 2. Tracked Tensors; Reverse Mode (Backpropagation);
4. Higher-Order Derivatives; Minimal Example; `GradientTape`; `TrackedTensor<T>`.
Of `GradientTape`, `with_checkpoint_config` is left to the capability it names. The document's
higher-order program cannot work as written: its second tape watches a value that was already
computed.
"""

from typing import Any

import numpy as np
from expect import refusal

import weft as wf
from weft import GradientTape, Tensor, TrackedTensor, errors


def gradient_tape():
    tape = GradientTape()
    x = tape.watch(wf.ones([2, 2]))
    y = x.mul(x)
    grads = tape.gradient([y], [x])
    assert grads[0].tolist() == [[2.0, 2.0], [2.0, 2.0]]

    with refusal(errors.TapeConsumed, "persistent=True"):
        tape.gradient([y], [x])


def tapes_coexist():
    first, second = GradientTape(), GradientTape()
    x, y = first.watch(wf.ones([2])), second.watch(wf.ones([2]))
    u, v = x.mul(x), y.mul(y).mul(y)
    assert second.gradient([v], [y])[0].tolist() == [3.0, 3.0]
    assert first.gradient([u], [x])[0].tolist() == [2.0, 2.0]


def tracked_tensors():
    tape = GradientTape()
    a = wf.ones([3, 3])
    assert not a.requires_grad

    b = tape.watch(a)
    assert isinstance(b, TrackedTensor) and b.requires_grad and b.mul(b).requires_grad

    c = b.tensor()
    assert not c.requires_grad and c.tolist() == [[1.0] * 3] * 3


def reverse_mode():
    """One backward pass serves a thousand parameters."""
    parameters = [wf.Parameter.randn((100,), 0.0, 1.0) for _ in range(10)]
    tape = GradientTape()
    total = wf.stack([p.square().sum() for p in parameters]).sum()
    passes = []
    total.register_hook(lambda g: passes.append(g.item()))
    loss = total.mul(Tensor.scalar(0.5))

    grads = tape.gradient([loss], parameters)
    assert [g.tolist() for g in grads] == [p.tolist() for p in parameters]
    assert passes == [0.5]


def higher_order_as_written():
    tape1 = GradientTape()
    x = tape1.watch(Tensor.scalar(2.0))
    y = x.pow(Tensor.scalar(3.0))
    dy_dx = tape1.gradient([y], [x])
    assert dy_dx[0].item() == 12.0

    tape2 = GradientTape()
    dy_dx_tracked = tape2.watch(dy_dx[0])
    assert tape2.gradient([dy_dx_tracked], [x]) == [None]


def higher_order_nested():
    """The second tape watches x too, before the first gradient is computed: 3x², then 6x."""
    tape2, tape1 = GradientTape(), GradientTape()
    x = tape1.watch(tape2.watch(Tensor.scalar(2.0)))
    y = x.pow(Tensor.scalar(3.0))
    dy_dx = tape1.gradient([y], [x])
    d2y_dx2 = tape2.gradient(dy_dx, [x])
    assert (dy_dx[0].item(), d2y_dx2[0].item()) == (12.0, 12.0)


def minimal_example():
    tape = GradientTape()
    x = tape.watch(Tensor.from_array(np.array([[1.0, 2.0], [3.0, 4.0]], "float32")))

    y = x.mul(x)
    loss = y.sum(None, False)

    grads = tape.gradient([loss], [x])
    assert f"Gradient: {grads[0].tolist()}" == "Gradient: [[2.0, 4.0], [6.0, 8.0]]"


def tracked_tensor_operations():
    tape = GradientTape()
    a, b = tape.watch(wf.ones([2, 2])), tape.watch(wf.full([2, 2], 3.0))
    c = a.add(b).mul(b).matmul(a)
    assert isinstance(c, TrackedTensor) and c.tensor().tolist() == [[24.0, 24.0], [24.0, 24.0]]
    grads = tape.gradient([c], [b])
    assert grads[0].tolist() == [[14.0, 14.0], [14.0, 14.0]]


def configured_constructors():
    """Every constructor gives a tape with the same methods; what a config changes shows inside."""
    x, drawn = wf.ones([2, 2]), []
    configured: list[tuple[Any, Any]] = [
        (GradientTape.with_amp_config, wf.AmpConfig(precision_mode="bfloat16")),
        (GradientTape.with_scheduler_config, wf.SchedulerConfig(strategy="forward")),
        (GradientTape.with_deterministic_config, wf.DeterministicConfig(global_seed=5)),
        (GradientTape.with_deterministic_config, wf.DeterministicConfig(global_seed=5)),
    ]
    for make, config in configured:
        tape = make(config)
        with tape:
            y = tape.watch(x).matmul(x)
            drawn.append((y.dtype, wf.rand(2).tolist()))
        grads = tape.gradient([y], [x])
        assert grads[0].tolist() == [[4.0, 4.0], [4.0, 4.0]] and grads[0].dtype == wf.float32
    assert [dtype for dtype, _ in drawn] == [wf.bfloat16, *[wf.float32] * 3]
    assert drawn[2] == drawn[3] != drawn[1]


def main():
    wf.random.seed(0)
    gradient_tape()
    tapes_coexist()
    tracked_tensors()
    reverse_mode()
    higher_order_as_written()
    higher_order_nested()
    minimal_example()
    tracked_tensor_operations()
    configured_constructors()


if __name__ == "__main__":
    main()
