"""002 TenfloweRS Autograd: Comprehensive Guide, gradients against finite differences.

Sections: 2. Gradient Validation; Numerical Validation.
The checker makes its own tapes; it takes the function and the point.
"""

from expect import refusal

import weft as wf
from weft import errors


@wf.custom_op
def custom_op(x):
    return x.mul(x).mul(x)


@custom_op.def_vjp
def custom_op_gradient(grad_output, inputs):
    return grad_output.mul(inputs[0].square().mul_scalar(3.0))


def test_custom_operation_gradient():
    checker = wf.NumericalChecker()
    x = wf.ones(5)

    result = checker.check_gradient_central(custom_op, x)

    assert result.is_valid, f"Gradient check failed: {result.max_error}"
    assert result.analytical.shape == (5, 5) and result.analytical[2, 2].item() == 3.0


def test_wrong_gradient_is_not_valid():
    wrong = wf.custom_op(custom_op, vjp=lambda g, inputs: g.mul_scalar(3.03))

    result = wf.NumericalChecker().check_gradient_central(lambda x: wrong(x).sum(), wf.ones(5))

    assert not result.is_valid and result.worst_index == (0,)
    assert abs(result.max_error - 0.03) < 1e-6
    with refusal(
        errors.GradientCheckError, "argument 0", "analytical 3.03", "doc002_validation.py"
    ):
        wf.check_op(wrong, wf.ones(5))


def main():
    test_custom_operation_gradient()
    test_wrong_gradient_is_not_valid()


if __name__ == "__main__":
    main()
