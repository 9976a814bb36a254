"""The loss of a recurrent network with long short-term memory that predicts characters.

A character is a vector of b bits. All weight matrices are diagonal: with layer input u, hidden
state h and cell c, of b numbers each, and the layer's weights W and biases V in four parts,

    f = σ(W₁u + V₁),  i = σ(W₂h + V₂),  o = σ(W₃u + V₃),  g = tanh(W₄h + V₄),
    c ← c f + i g,    h ← o tanh(c),

h being the next layer's input. The first input is the character times E₁, the prediction from the
last layer y = hE₂ + E₃, and the loss −Σ z·(y − log(2 + Σ exp y)) over the characters z that really
follow, divided by the number of their bits. (The 2 is part of the problem.)

Sizes: (layers, characters), (2, 1024) first, and b = 14. GradBench takes the characters from a
text; we draw as many bits at random.
Source: the eval `lstm` of github.com/gradbench/gradbench, from github.com/microsoft/ADBench.
"""

from math import prod

import numpy as np

import weft as wf

SIZES = tuple(sorted(((n, c) for n in (2, 4, 6) for c in (1024, 4096, 8192)), key=prod))
BITS = 14


def inputs(size=SIZES[0], seed=31337):
    """Main parameters (W, V by layer), extra parameters E, states (h, c by layer), characters."""
    layers, characters = size
    rng = np.random.default_rng(seed)
    main, extra = rng.random((2 * layers, 4 * BITS)), rng.random((3, BITS))
    state = rng.random((2 * layers, BITS))
    sequence = rng.integers(0, 2, (characters, BITS)).astype(np.float64)
    return tuple(map(wf.asarray, (main, extra, state, sequence)))


def cell(weight, bias, hidden, memory, u):
    """The layer's next hidden state and cell."""
    forget, ingate, outgate, change = wf.split(wf.concat([u, hidden, u, hidden]) * weight + bias, 4)
    memory = memory * wf.sigmoid(forget) + wf.sigmoid(ingate) * wf.tanh(change)
    return wf.sigmoid(outgate) * wf.tanh(memory), memory


def objective(main, extra, state, sequence):
    """The mean loss."""
    layers = list(zip(main[::2], main[1::2], strict=True))
    states = list(zip(state[::2], state[1::2], strict=True))

    def read(states, u):
        following = []
        for layer, before in zip(layers, states, strict=True):
            following.append(cell(layer[0], layer[1], before[0], before[1], u))
            u = following[-1][0]
        return following, u

    _, last = wf.scan(read, states, sequence[:-1] * extra[0])
    predicted = last * extra[1] + extra[2]
    scale = wf.log(2 + wf.sum(wf.exp(predicted), axis=1, keepdims=True))
    return -wf.mean(sequence[1:] * (predicted - scale))


def jacobian(*given):
    """The gradient with respect to main and extra parameters, one after the other."""
    gradients = wf.grad(objective, argnums=(0, 1))(*given)
    return wf.concat([wf.flatten(g) for g in gradients])


FUNCTIONS = {"objective": objective, "jacobian": jacobian}


def main():
    given = inputs()
    print("loss", objective(*given).item())
    print("gradient", jacobian(*given)[:4].tolist(), "...")


if __name__ == "__main__":
    main()
