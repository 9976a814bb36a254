"""004 TenfloweRS Autograd, "Usage" of a gradient that is not the derivative.

Section: Custom Gradient Functions.
"""

from expect import refusal

import weft as wf
from weft import CustomOp, GradientTape, errors


class ClipGradient(CustomOp):
    def forward(self, inputs):
        # Forward pass: identity
        return inputs[0].clone()

    def backward(self, grad_output, inputs):
        # Backward pass: clip gradients to [-1, 1]
        clipped = grad_output.clamp(-1.0, 1.0)
        return [clipped]


def use_in_computation():
    tape = GradientTape()
    x = tape.variable(wf.tensor([1.0, 2.0, 3.0]))
    y = tape.custom_op(ClipGradient(), [x])
    assert y.tolist() == [1.0, 2.0, 3.0]

    loss = (y * wf.tensor([0.25, 40.0, -40.0])).sum()
    assert tape.gradient(loss, [x])[0].tolist() == [0.25, 1.0, -1.0]


def clipping_has_no_forward_mode():
    x = wf.ones(3)
    with refusal(errors.NotDifferentiable, "ClipGradient", "forward mode", "not linear", "jvp"):
        wf.jvp(ClipGradient(), (x,), (x,))
    with refusal(errors.GradientCheckError, "ClipGradient", "not linear"):
        wf.check_op(ClipGradient(), x)


def main():
    use_in_computation()
    clipping_has_no_forward_mode()


if __name__ == "__main__":
    main()
