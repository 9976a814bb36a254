"""001 FLAME Automatic Differentiation, "Troubleshooting": gradients against finite differences.

Section: Common Issues, "Test with gradient checking".
"""

import numpy as np

import weft as wf


def check_gradients(f, x, eps):
    """The largest difference between backward() and central differences, over all elements."""
    y = f(x)
    analytical_grads = y.backward()

    differences = []
    for i in range(x.size):
        x_plus = x.add_at_index(i, eps)
        x_minus = x.sub_at_index(i, eps)

        y_plus = f(x_plus)
        y_minus = f(x_minus)

        numerical_grad = (y_plus - y_minus) / (2.0 * eps)
        differences.append(abs(numerical_grad.item() - analytical_grads[x].to_vec()[i]))
    return max(differences)


def main():
    x = wf.tensor(np.array([[-1.5, 0.25], [2.0, 0.75]]), requires_grad=True)
    eps = np.finfo(np.float64).eps ** (1 / 3)
    # Central differences err by eps²·f‴/6 and, rounding, unit·f/eps; |f|, |f‴| ≤ 12 here.
    bound = 1e-9

    assert check_gradients(lambda x: x.sigmoid().mul(x).tanh().sum(), x, eps) < bound
    assert check_gradients(lambda x: x.matmul(x.transpose()).square().mean(), x, eps) < bound

    wrong = check_gradients(lambda x: x.detach().mul(x).sum(), x, eps)
    assert abs(wrong - 2.0) < bound, "the check must see that x·x was differentiated as c·x"


if __name__ == "__main__":
    main()
