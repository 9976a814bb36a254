"""002 TenfloweRS Autograd: Comprehensive Guide, "Basic Usage".

Sections: Single Input, Single Output; Multiple Inputs; Multiple Outputs.
The last program takes two gradients from one tape, which the document itself calls single-use:
its second call is refused, and a persistent tape gives both.
"""

from expect import refusal

import weft as wf
from weft import GradientTape, Tensor, errors


def single_input_single_output():
    tape = GradientTape()
    x = tape.watch(Tensor.from_scalar(3.0))

    x_squared = x.mul(x)
    two_x = x.mul(Tensor.scalar(2.0))
    y = x_squared.add(two_x).add(Tensor.scalar(1.0))
    assert y.to_scalar() == 16.0

    grad = tape.gradient([y], [x])
    assert f"dy/dx at x=3: {grad[0].to_scalar()}" == "dy/dx at x=3: 8.0"


def multiple_inputs():
    tape = GradientTape()
    x = tape.watch(wf.ones([2, 2]))
    y = tape.watch(wf.ones([2, 2]))

    z = x.mul(x).add(y.mul(y))
    loss = z.sum(None, False)

    grads = tape.gradient([loss], [x, y])
    dx, dy = grads[0], grads[1]
    assert dx.tolist() == (2 * x).tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert dy.tolist() == (2 * y).tolist() == [[2.0, 2.0], [2.0, 2.0]]


def multiple_outputs_as_written():
    tape = GradientTape()
    x = tape.watch(wf.ones([3]))

    y1 = x.mul(Tensor.scalar(2.0))
    y2 = x.mul(x)

    grad_y1 = tape.gradient([y1], [x])
    assert grad_y1[0].tolist() == [2.0, 2.0, 2.0]
    with refusal(errors.TapeConsumed, "persistent=True", "doc002_basic_usage.py"):
        tape.gradient([y2], [x])


def multiple_outputs_persistent():
    tape = GradientTape().persistent()
    x = tape.watch(wf.ones([3]))

    y1 = x.mul(Tensor.scalar(2.0))
    y2 = x.mul(x)

    grad_y1 = tape.gradient([y1], [x])
    grad_y2 = tape.gradient([y2], [x])
    assert grad_y1[0].tolist() == [2.0, 2.0, 2.0]
    assert grad_y2[0].tolist() == (2 * x).tolist() == [2.0, 2.0, 2.0]


def main():
    single_input_single_output()
    multiple_inputs()
    multiple_outputs_as_written()
    multiple_outputs_persistent()


if __name__ == "__main__":
    main()
