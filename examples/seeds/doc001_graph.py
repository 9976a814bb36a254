"""001 FLAME Automatic Differentiation, "How Autograd Works" and "Implementation Details".

Sections: Computation Graph; Backward Pass; Operation Recording; Topological Sort.
"""

import numpy as np
from expect import close

import weft as wf


def computation_graph():
    x = wf.randn([10, 5], 0.0, 1.0).requires_grad_()
    w = wf.randn([5, 3], 0.0, 0.1).requires_grad_()
    b = wf.zeros([3]).requires_grad_()

    y = x.matmul(w)
    z = y.add(b)
    loss = z.sum()

    assert [entry.op for entry in wf.graph_of(loss)] == ["matmul", "add", "sum"]
    return x, w, b, y, z, loss


def backward_pass(x, w, b, loss):
    grads = loss.backward()

    x_grad = grads.get(x.id)
    w_grad = grads.get(w.id)
    b_grad = grads.get(b.id)

    ones = np.ones((10, 3), "float32")
    close(x_grad, ones @ w.detach().numpy().T)
    close(w_grad, x.detach().numpy().T @ ones)
    assert b_grad.tolist() == [10.0, 10.0, 10.0]


def operation_recording(x, w, b, y, z, loss):
    """Each entry holds the document's four fields: op, inputs, output, saved tensors."""
    matmul, add, total = wf.graph_of(loss)
    assert (matmul.inputs, matmul.output) == ((x.id, w.id), y.id)
    assert (add.inputs, add.output) == ((y.id, b.id), z.id)
    assert (total.inputs, total.output) == ((z.id,), loss.id)
    assert [entry.saved for entry in (matmul, add, total)] == [((10, 5), (5, 3)), (), ()]
    assert "doc001_graph.py" in matmul.line


def topological_sort():
    """A value used twice gets its whole gradient before it is passed on."""
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    square = x * x
    loss = (square * (square + x)).sum()

    entries = wf.graph_of(loss)
    order: dict[int | None, int] = {e.output: place for place, e in enumerate(entries)}
    for place, entry in enumerate(entries):
        assert all(order.get(i, -1) < place for i in entry.inputs)

    assert loss.backward()[x].tolist() == [4.0 + 3.0, 32.0 + 12.0]


def main():
    wf.random.seed(0)
    x, w, b, y, z, loss = computation_graph()
    operation_recording(x, w, b, y, z, loss)
    backward_pass(x, w, b, loss)
    topological_sort()


if __name__ == "__main__":
    main()
