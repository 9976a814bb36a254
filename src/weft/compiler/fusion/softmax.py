"""Softmax by the exponentials that the kernel has already.

A softmax divides each exponential by their sum; the gradient of a cross-entropy computes the same
quotients as exp(x − l − r), where l + r is log-sum-exp x in two numbers. Where a kernel computes
the sum itself, both become a product with its reciprocal, computed once per row.
"""

from dataclasses import replace

from ...graph.graph import Literal
from ..ir.kernel import FoldStep, Kernel, Step, renumber


def by_products(kernel: Kernel) -> Kernel:
    """The same kernel with quotients e/Σe as products with 1/Σe."""
    found = {i: f for i in range(len(kernel.dtypes)) if (f := _share(kernel, i)) is not None}
    if not found:
        return kernel
    base = len(kernel.operands)
    number = {i: i for i in range(base)}
    inverses: dict[int, int] = {}  # by the sums
    steps: list[Step | FoldStep] = []

    def put(step: Step | FoldStep) -> int:
        steps.append(step)
        return base + len(steps) - 1

    for i, step in enumerate(kernel.steps, base):
        if i in found:
            total = found[i]
            if total not in inverses:
                inverse = Step("divide", (Literal(1.0), number[total]), kernel.dtypes[total])
                inverses[total] = put(inverse)
            exponential = number[_terms(kernel, total)]
            made = Step("multiply", (exponential, inverses[total]), kernel.dtypes[i])
            number[i] = put(made)
        else:
            number[i] = put(renumber(step, number))
    results = [replace(r, value=number[r.value]) for r in kernel.results]
    return replace(kernel, steps=tuple(steps), results=tuple(results))


def _step(kernel: Kernel, i: object, *rows: str) -> Step | None:
    """The step that computes a value, if it is of one of these rows."""
    if isinstance(i, Literal) or not isinstance(i, int) or i < len(kernel.operands):
        return None
    step = kernel.steps[i - len(kernel.operands)]
    return step if isinstance(step, Step) and step.row in rows else None


def _terms(kernel: Kernel, total: int) -> int:
    """The value that a fold reduces."""
    fold = kernel.steps[total - len(kernel.operands)]
    assert isinstance(fold, FoldStep)
    return fold.value


def _share(kernel: Kernel, i: int) -> int | None:
    """The sum whose quotient value i is, if it is one."""
    step = _step(kernel, i, "divide", "exp")
    if step is None:
        return None
    total = (
        _match_division(kernel, step)
        if step.row == "divide"
        else _match_normalisation(kernel, step)
    )
    if total is None:
        return None
    same = {kernel.dtypes[i], kernel.dtypes[total], kernel.dtypes[_terms(kernel, total)]}
    return total if len(same) == 1 and step.dtype.itemsize >= 4 else None


def _sum_of_exponentials(kernel: Kernel, i: object) -> int | None:
    """i itself, if it is a sum of exponentials."""
    if isinstance(i, Literal) or not isinstance(i, int) or i < len(kernel.operands):
        return None
    fold = kernel.steps[i - len(kernel.operands)]
    if not isinstance(fold, FoldStep) or fold.kind != "sum":
        return None
    return None if _step(kernel, fold.value, "exp") is None else i


def _match_division(kernel: Kernel, step: Step) -> int | None:
    """e/Σe."""
    total = _sum_of_exponentials(kernel, step.inputs[1])
    return total if total is not None and step.inputs[0] == _terms(kernel, total) else None


def _match_normalisation(kernel: Kernel, step: Step) -> int | None:
    """exp(x − l − r) with l = log Σ exp(x − m) + m, and r = log Σ exp(x − m) − (l − m)."""
    whole = _step(kernel, step.inputs[0], "subtract")
    difference = None if whole is None else _step(kernel, whole.inputs[0], "subtract")
    rest = None if whole is None else _step(kernel, whole.inputs[1], "subtract")
    back = None if rest is None else _step(kernel, rest.inputs[1], "subtract")
    level = None if difference is None else _step(kernel, difference.inputs[1], "add")
    if difference is None or rest is None or back is None or level is None:
        return None
    for logarithm, top in (level.inputs, level.inputs[::-1]):
        total = _total(kernel, logarithm)
        if (
            total is not None
            and _match_shift(kernel, total) == (difference.inputs[0], top)
            and (rest.inputs[0], back.inputs) == (logarithm, (difference.inputs[1], top))
        ):
            return total
    return None


def _total(kernel: Kernel, i: object) -> int | None:
    """The sum of exponentials that a value is the logarithm of."""
    logarithm = _step(kernel, i, "log")
    return None if logarithm is None else _sum_of_exponentials(kernel, logarithm.inputs[0])


def _match_shift(kernel: Kernel, total: int) -> tuple | None:
    """x and m in Σ exp(x − m)."""
    exponential = _step(kernel, _terms(kernel, total), "exp")
    assert exponential is not None
    difference = _step(kernel, exponential.inputs[0], "subtract")
    return None if difference is None else difference.inputs
