"""001 FLAME Automatic Differentiation: Gradient Checkpointing.

The document writes the recomputation out by hand; `wf.checkpoint` does it.
"""

import weft as wf
from weft import nn


def layers():
    """The document's layer1, and what comes after it."""
    wf.random.seed(0)
    layer1 = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
    return layer1, nn.Linear(256, 1)


def plain(input):
    layer1, layer2 = layers()
    before = wf.memory_stats().bytes
    loss = layer2(layer1(input)).square().mean()
    saved = wf.memory_stats().bytes - before
    loss.backward()
    return [p.grad.tolist() for p in layer1.parameters()], saved


def by_hand(input):
    """No graph of layer1 is kept; it is made again for the backward pass."""
    layer1, layer2 = layers()
    before = wf.memory_stats().bytes
    with wf.no_grad():
        x1 = layer1(input).requires_grad_()
    loss = layer2(x1).square().mean()
    saved = wf.memory_stats().bytes - before
    grad_output = loss.backward()[x1]

    x1_recomputed = layer1(input)
    x1_recomputed.backward(grad_output)
    return [p.grad.tolist() for p in layer1.parameters()], saved


def by_checkpoint(input):
    layer1, layer2 = layers()
    before = wf.memory_stats().bytes
    x1 = wf.checkpoint(layer1, input)
    loss = layer2(x1).square().mean()
    saved = wf.memory_stats().bytes - before
    loss.backward()
    return [p.grad.tolist() for p in layer1.parameters()], saved


def main():
    input = wf.randn((64, 16))
    grads, saved = plain(input)
    for way in (by_hand, by_checkpoint):
        same, less = way(input)
        assert same == grads
        assert less < 0.6 * saved, (way.__name__, less, saved)


if __name__ == "__main__":
    main()
