"""002 TenfloweRS Autograd: Comprehensive Guide, "Best Practices" and "Troubleshooting".

Sections: 1. Tape Management; 3. Error Handling; 4. Resource Cleanup;
Issue 1: NaN/Inf in Gradients ("Numerical instability", "Mixed precision issues").
"""

import math
from weakref import ref

from expect import close, refusal

import weft as wf
from weft import GradientTape, errors


def a_new_tape_for_each_iteration():
    param, epochs = wf.Parameter(wf.tensor([4.0])), 3
    before = wf.memory_stats().bytes
    tape = loss = None
    for _ in range(epochs):
        tape = GradientTape()
        loss = param.square().sum()
        (grad,) = tape.gradient([loss], [param])
        param.apply_update(grad.mul_scalar(0.25))
    del loss, tape
    assert param.tolist() == [0.5]
    assert wf.memory_stats().bytes == before


def a_tape_is_not_reused():
    param = wf.Parameter(wf.tensor([4.0]))
    loss = param.square().sum()
    tape, grads = GradientTape(), []
    with refusal(errors.TapeConsumed, "persistent=True", "doc002_practice.py"):
        for _ in range(2):
            grads.append(tape.gradient([loss], [param])[0])
    assert [g.tolist() for g in grads] == [[8.0]]


def error_handling():
    weight = wf.Parameter(wf.tensor([[1.0], [2.0]]))

    def training_step(inputs):
        tape = GradientTape()
        output = inputs.matmul(weight)
        loss = output.sum()
        grads = tape.gradient([loss], [weight])
        return loss.to_scalar(), grads

    loss, grads = training_step(wf.ones([3, 2]))
    assert loss == 9.0 and grads[0].tolist() == [[3.0], [3.0]]

    with refusal(errors.ShapeError, "matmul", "(3, 5)", "(2, 1)", "doc002_practice.py"):
        training_step(wf.ones([3, 5]))


def resource_cleanup():
    param = wf.Parameter(wf.ones(1000))
    optimizer = wf.optim.Adam([param])
    before = wf.memory_stats().bytes

    def step():
        tape = GradientTape()
        loss = param.exp().sum()
        grads = tape.gradient([loss], [param])
        optimizer.step(grads)
        return wf.memory_stats().bytes

    step()
    assert wf.memory_stats().bytes == before

    large_tensor = param.exp()
    alive = ref(large_tensor)
    assert wf.memory_stats().bytes == before + 4000
    del large_tensor
    assert alive() is None and wf.memory_stats().bytes == before


def numerical_instability():
    logits = wf.tensor([1000.0, 0.0], requires_grad=True)

    log_probs = logits.log_softmax()
    loss = -log_probs.sum()
    assert log_probs.tolist() == [0.0, -1000.0] and loss.item() == 1000.0
    close(loss.backward()[logits], [1.0, -1.0])

    logits = wf.tensor([0.0, math.log(3.0)], requires_grad=True)
    close(-logits.log_softmax().sum(), math.log(4.0) + math.log(4.0 / 3.0))


def mixed_precision_issues():
    def warning(loss):
        if loss.to_scalar() > 1e10 or loss.to_scalar() < 1e-10:
            return "Warning: Loss scale may need adjustment"
        return ""

    loss = wf.tensor(3.0, requires_grad=True).square()
    assert not warning(loss)
    assert warning(loss.mul_scalar(1e12)) and warning(loss.mul_scalar(1e-12))


def main():
    a_new_tape_for_each_iteration()
    a_tape_is_not_reused()
    error_handling()
    resource_cleanup()
    numerical_instability()
    mixed_precision_issues()


if __name__ == "__main__":
    main()
