"""004 TenfloweRS Autograd, "Usage" of static graphs.

Sections: Integration with Static Graphs.
"""

import numpy as np
from expect import close

import weft as wf


def integration_with_static_graphs():
    wf.random.seed(0)
    first = wf.randn((784, 10))
    labels_of_batch = np.array([3, 1, 4, 1, 5])
    batch = np.random.default_rng(0).standard_normal((5, 784)).astype(np.float32)
    optimizer = wf.optim.SGD(lr=0.1)

    graph = wf.Graph()
    x = graph.placeholder("x", (None, 784))
    labels = graph.placeholder("labels", (None,), "int64")
    w = graph.variable("w", first)

    logits = graph.matmul(x, w)
    assert logits.shape == (None, 10)
    loss = graph.softmax_cross_entropy(logits, labels)
    assert loss.shape == ()

    grads = graph.gradients(loss, [w])
    assert grads[0].shape == (784, 10)

    step = optimizer.apply_gradients([(w, grads[0])])

    # The document stops here; a graph computes when it is run.
    run = graph.compile([loss, grads[0], step])
    value, grad, _ = run(x=batch, labels=labels_of_batch)

    # d loss / d logits = (softmax(logits) - one_hot(labels)) / batch
    z = batch.astype(np.float64) @ first.numpy().astype(np.float64)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    expected = batch.T.astype(np.float64) @ (p - np.eye(10)[labels_of_batch]) / 5
    rows = np.arange(5)
    close(value, -np.log(p[rows, labels_of_batch]).mean(), ulps=256)
    close(grad, expected, ulps=256)
    close(w.value, first.numpy() - 0.1 * expected, ulps=256)

    # None: another number of lines makes another program.
    run(x=batch[:2], labels=labels_of_batch[:2])
    assert run.recompilations == ["argument 'x': float32[5, 784] became float32[2, 784]"]


def main():
    integration_with_static_graphs()


if __name__ == "__main__":
    main()
