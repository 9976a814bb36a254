"""002 TenfloweRS Autograd: Comprehensive Guide, "Performance Optimization".

Sections: 1. Memory Bandwidth; 3. Tape Overhead; Pattern 1: Gradient Accumulation;
Pattern 2: Conditional Gradients; Issue 2: Out of Memory ("Reduce batch size").
"""

from typing import Any

from expect import close, refusal

import weft as wf
from weft import GradientTape, Tensor, errors


def memory_bandwidth():
    x, y = wf.tensor([1.0, 2.0, 3.0]), wf.tensor([4.0, 5.0, 6.0])

    temp = wf.zeros([3])
    memory = temp.numpy().ctypes.data
    for _ in range(1000):
        x.mul_into(y, temp)
    assert temp.tolist() == x.mul(y).tolist() == [4.0, 10.0, 18.0]
    assert temp.numpy().ctypes.data == memory

    tracked = wf.zeros([3], requires_grad=True)
    with refusal(errors.InPlaceOnTracked, "multiply"):
        x.mul_into(y, tracked)
    with refusal(errors.InPlaceOnTracked, "multiply"):
        tracked.mul_into(y, temp)


def tape_overhead():
    """`watch` marks the tensor itself, so what should stay untracked is computed first."""
    tape = GradientTape()
    x = tape.watch(wf.ones([2]))
    assert x.add(Tensor.scalar(1.0)).requires_grad

    inputs = wf.ones([2])
    y = inputs.add(Tensor.scalar(1.0))
    assert not y.requires_grad
    z = tape.watch(y)
    assert tape.gradient([z.mul(z)], [z])[0].tolist() == [4.0, 4.0]


def model_and_batches(accumulation_steps, batch_size):
    parameters = [wf.Parameter.randn((3, 2)), wf.Parameter.zeros((2,))]
    return parameters, [wf.randn((batch_size, 3)) for _ in range(accumulation_steps)]


def compute_loss(parameters, batch):
    weight, bias = parameters
    return batch.matmul(weight).add(bias).sub(wf.ones([2])).square().mean()


def gradient_accumulation():
    effective_batch = 64
    actual_batch = 16
    accumulation_steps = effective_batch // actual_batch
    assert accumulation_steps == 4

    parameters, batches = model_and_batches(accumulation_steps, actual_batch)
    accumulated_grads = [wf.zeros(p.shape) for p in parameters]

    for batch in batches:
        tape = GradientTape()
        loss = compute_loss(parameters, batch)
        grads = tape.gradient([loss], parameters)
        accumulated_grads = [
            accum.add(grad) for accum, grad in zip(accumulated_grads, grads, strict=True)
        ]
    accumulated_grads = [g.div(Tensor.scalar(float(accumulation_steps))) for g in accumulated_grads]

    whole = wf.concat(batches)
    loss = compute_loss(parameters, whole)
    big_batch = loss.backward()
    for param, grad in zip(parameters, accumulated_grads, strict=True):
        close(grad, big_batch[param].numpy(), ulps=64)
    optimizer = wf.optim.SGD(parameters, lr=0.1)
    optimizer.step(accumulated_grads)
    assert compute_loss(parameters, whole).item() < loss.item()


def conditional_gradients():
    weight = wf.tensor([[1.0], [2.0]])

    def forward(inputs, training) -> Any:
        if training:
            tape = GradientTape()
            input_tracked = tape.watch(inputs.clone())
            return input_tracked.matmul(weight).sum(), tape, input_tracked
        return inputs.matmul(weight).sum()

    inputs = wf.ones([1, 2])
    output, tape, input_tracked = forward(inputs, training=True)
    assert output.requires_grad and not inputs.requires_grad
    # The document's function drops the tape, and with it the way to ask for the gradient.
    assert tape.gradient([output], [input_tracked])[0].tolist() == [[1.0, 2.0]]

    output = forward(inputs, training=False)
    assert output.item() == 3.0 and not output.requires_grad and wf.graph_of(output) == []


def main():
    wf.random.seed(0)
    memory_bandwidth()
    tape_overhead()
    gradient_accumulation()
    conditional_gradients()


if __name__ == "__main__":
    main()
