"""001 FLAME Automatic Differentiation, "Gradient Computation Rules".

Sections: Basic Operations; Matrix Operations; Activation Functions; Reduction Operations.
Each rule is asserted as the document's comment states it.
"""

import numpy as np
from expect import close

import weft as wf


def leaf(data):
    return wf.tensor(np.array(data), requires_grad=True)


def basic_operations():
    a, b = leaf([3.0, -4.0]), leaf([2.0, 0.5])
    grad_output = wf.tensor(np.array([1.0, 10.0]))
    g, u, v = grad_output.numpy(), a.detach().numpy(), b.detach().numpy()

    for c, grad_a, grad_b in (
        (a.add(b), g, g),
        (a.sub(b), g, -g),
        (a.mul(b), g * v, g * u),
        (a.div(b), g / v, -g * u / v**2),
    ):
        grads = c.backward(grad_output)
        close(grads[a], grad_a)
        close(grads[b], grad_b)


def matrix_operations():
    a, b = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), leaf([[1.0, 0.0], [2.0, -1.0], [0.0, 3.0]])
    grad_c = wf.tensor(np.array([[1.0, 2.0], [3.0, 5.0]]))
    g = grad_c.numpy()

    c = a.matmul(b)
    grads = c.backward(grad_c)
    close(grads[a], g @ b.detach().numpy().T)
    close(grads[b], a.detach().numpy().T @ g)

    t = a.transpose()
    grad_output = wf.tensor(np.arange(6.0).reshape(3, 2))
    assert t.shape == (3, 2)
    close(t.backward(grad_output)[a], grad_output.numpy().T)


def activation_functions():
    x = leaf([-2.0, 0.0, 0.5, 3.0])
    grad_output = wf.tensor(np.array([1.0, 10.0, 100.0, 1000.0]))
    g, v = grad_output.numpy(), x.detach().numpy()
    sigmoid = 1.0 / (1.0 + np.exp(-v))

    close(x.relu().backward(grad_output)[x], g * (v > 0))
    close(x.sigmoid().backward(grad_output)[x], g * sigmoid * (1.0 - sigmoid))
    close(x.tanh().backward(grad_output)[x], g * (1.0 - np.tanh(v) ** 2))


def reduction_operations():
    x = leaf([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])

    y = x.sum()
    assert y.item() == 21.0
    close(y.backward()[x], np.ones((2, 3)))

    y = x.mean()
    assert y.item() == 3.5
    close(y.backward()[x], np.full((2, 3), 1.0 / 6.0))

    y = x.sum_dim(1, False)
    assert y.tolist() == [6.0, 15.0]
    grads = y.backward(wf.tensor(np.array([7.0, 8.0])))
    close(grads[x], [[7.0] * 3, [8.0] * 3])


def main():
    basic_operations()
    matrix_operations()
    activation_functions()
    reduction_operations()


if __name__ == "__main__":
    main()
