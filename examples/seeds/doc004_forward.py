"""004 TenfloweRS Autograd, forward mode.

Section: Forward Mode Automatic Differentiation.
"""

import math

import weft as wf


def test_forward_mode():
    ctx = wf.ForwardADContext()

    x = wf.DualTensor(
        wf.Tensor.scalar(2.0),
        wf.Tensor.scalar(1.0),  # dx/dx = 1
    )

    y = ctx.sin(x)  # y = sin(x), dy/dx = cos(x)
    z = ctx.mul(y, x)  # z = y * x, dz/dx = sin(x) + x cos(x)

    assert math.isclose(z.value.item(), 2 * math.sin(2), rel_tol=1e-6)
    assert math.isclose(z.tangent.item(), math.sin(2) + 2 * math.cos(2), rel_tol=1e-5)


def main():
    test_forward_mode()


if __name__ == "__main__":
    main()
