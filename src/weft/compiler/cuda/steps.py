"""The steps of a grid kernel at one place, from the values of its operands there."""

from collections.abc import Callable
from itertools import accumulate

from ...graph.graph import Literal
from ..emit.code import Code, LLValue
from ..emit.scalar import TypedValue, emit
from ..emit.sums import round_product
from ..ir.kernel import FoldStep, Kernel, Step


def emit_step(code: Code, kernel: Kernel, i: int, get: Callable[[int], LLValue]) -> LLValue:
    """Emit the step that computes value i, of values that `get` returns."""
    step = kernel.steps[i - len(kernel.operands)]
    assert isinstance(step, Step)
    operands = [
        j.value if isinstance(j, Literal) else TypedValue(get(j), kernel.dtypes[j])
        for j in step.inputs
    ]
    y = emit(code, step.row, operands, step.static, step.dtype)
    if _readers(kernel, i) > 1:
        round_product(y)
    return y


def _readers(kernel: Kernel, i: int) -> int:
    """How many steps and results read value i."""
    steps = [(s.value,) if isinstance(s, FoldStep) else s.inputs for s in kernel.steps]
    read = [j for inputs in steps for j in inputs if not isinstance(j, Literal)]
    return (read + [r.value for r in kernel.results]).count(i)


def fold_of(kernel: Kernel, i: int) -> FoldStep | None:
    """The fold that gives value i; None if it is no fold."""
    step = kernel.steps[i - len(kernel.operands)] if i >= len(kernel.operands) else None
    return step if isinstance(step, FoldStep) else None


def fold_rounds(kernel: Kernel) -> int:
    """How many sweeps end with folds across threads."""
    return len({kernel.settled[i] for i in kernel.live if fold_of(kernel, i)})


def heavy_steps(kernel: Kernel, of_elements: bool = False) -> int:
    """How many steps take more than an instruction or two; of each element, if so."""
    settled = kernel.settled[len(kernel.operands) :]
    pairs = zip(kernel.steps, settled, strict=True)
    counted = [s for s, depth in pairs if depth % 2 == 0 or not of_elements]
    return sum(isinstance(s, Step) and not s.is_light for s in counted)


def words_alive(kernel: Kernel) -> int:
    """The most words of an element's values that later steps read, while steps run in order."""
    base, end = len(kernel.operands), len(kernel.dtypes)
    last = {r.value: end for r in kernel.results}
    for i in range(end - 1, base - 1, -1):
        step = kernel.steps[i - base]
        for j in (step.value,) if isinstance(step, FoldStep) else step.inputs:
            if not isinstance(j, Literal):
                last.setdefault(j, i)
    # A value is alive from the step after its own to the last one that reads it.
    change = [0] * (end + 2)
    for i, until in last.items():
        words = max(kernel.dtypes[i].itemsize // 4, 1)
        change[max(i + 1, base)] += words
        change[until + 1] -= words
    return max(accumulate(change))
