"""004 TenfloweRS Autograd, "Usage" of the tape.

Sections: Basic Gradient Computation; Higher-order Derivatives.
"""

from weft import GradientTape, Tensor


def basic_gradient_computation():
    tape = GradientTape()

    x = tape.variable(Tensor.from_vec([2.0, 3.0], [2], "cpu"))
    w = tape.variable(Tensor.from_vec([1.0, 0.5], [2], "cpu"))

    y = x.mul(w)
    z = y.sum()
    assert z.item() == 3.5

    grads = tape.gradient(z, [x, w])
    assert grads[0].tolist() == w.tolist() == [1.0, 0.5]
    assert grads[1].tolist() == x.tolist() == [2.0, 3.0]


def higher_order_derivatives():
    tape = GradientTape().persistent()

    x = tape.variable(Tensor.scalar(2.0, "cpu"))

    y = x.pow(3)

    grad = tape.gradient(y, [x])[0]
    grad2 = tape.gradient(grad, [x])[0]
    assert (y.item(), grad.item(), grad2.item()) == (8.0, 12.0, 12.0)


def main():
    basic_gradient_computation()
    higher_order_derivatives()


if __name__ == "__main__":
    main()
