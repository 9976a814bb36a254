"""Kernel: one loop nest as data, from arrays in memory to arrays in memory.

Every element of `domain` computes the same steps. An operand or result has a stride, in elements,
for each axis: 0 broadcasts it along that axis. A `FoldStep` reduces a value over the `folded` axes.
Steps of folded values alone run once per fold; steps that combine a folded value with unfolded ones
need another sweep over the folded axes.

A kernel over rows can also fold its columns: each piece of `piece` rows has its own line of partial
folds.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any, overload

import numpy as np

from ...core import dtypes
from ...core.backends import PYTHON_SCALARS
from ...core.exact import exact
from ...core.op import TABLE
from ...core.record import record
from ...graph.graph import Literal

Strides = tuple[int, ...]
# The kinds of folds, each with the binary row that combines two elements.
FOLDS = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
FOLDS |= {"any": "logical_or", "all": "logical_and"}


class MalformedKernel(AssertionError):
    """A kernel that breaks a rule: always a bug of the compiler, never of the user."""


@record
class Operand:
    """An array that is read; its pointer is the address of its first element."""

    dtype: np.dtype
    strides: Strides


@record(eq=False)
class Step:
    """A row of the table applied to values, by their numbers, and Python scalars.

    Steps are equal only if their parameters are identical: 0.0 and -0.0 differ, and so do 1 and
    1.0.
    """

    row: str
    inputs: tuple["int | Literal", ...]
    dtype: np.dtype
    static: tuple[Any, ...] = ()

    @property
    def is_light(self) -> bool:
        """Whether it takes an instruction or two: light sums keep several accumulators busy."""
        return TABLE[self.row].cost == "light"

    def __eq__(self, other: Any) -> bool:
        if other.__class__ is not Step or self.row != other.row or self.inputs != other.inputs:
            return False
        return self.dtype == other.dtype and exact(self.static) == exact(other.static)

    def __hash__(self) -> int:
        return hash((self.row, self.inputs, self.dtype))


@record
class FoldStep:
    """A value reduced over the folded axes."""

    kind: str
    value: int
    dtype: np.dtype


@overload
def renumber(step: Step, number: Mapping[int, int]) -> Step: ...
@overload
def renumber(step: FoldStep, number: Mapping[int, int]) -> FoldStep: ...
@overload
def renumber(step: Step | FoldStep, number: Mapping[int, int]) -> Step | FoldStep: ...
def renumber(step: Step | FoldStep, number: Mapping[int, int]) -> Step | FoldStep:
    """The same step with its value numbers mapped to those of another kernel."""
    if isinstance(step, FoldStep):
        return FoldStep(step.kind, number[step.value], step.dtype)
    inputs = [i if isinstance(i, Literal) else number[i] for i in step.inputs]
    return Step(step.row, tuple(inputs), step.dtype, step.static)


@record
class Result:
    """A value that is stored; a folded value has stride 0 along folded axes.

    A result that is folded `over_rows`, by a kind of fold, moves from piece to piece.
    """

    value: int
    strides: Strides
    over_rows: str = ""


@record
class Kernel:
    """Values are numbered: the operands, then the steps. Pointers: operands, then results."""

    domain: tuple[int, ...]
    operands: tuple[Operand, ...]
    steps: tuple[Step | FoldStep, ...]
    results: tuple[Result, ...]
    folded: tuple[int, ...] = ()
    piece: int = 0

    @cached_property
    def _hash(self) -> int:
        return hash((self.domain, self.operands, self.steps, self.results, self.folded))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def dtypes(self) -> tuple[np.dtype, ...]:
        """The dtype of each value."""
        return tuple(v.dtype for v in (*self.operands, *self.steps))

    @cached_property
    def sound(self) -> bool:
        """True if every rule but those of memory holds; raises `MalformedKernel` otherwise."""
        _check(self)
        return True

    @cached_property
    def settled(self) -> tuple[int, ...]:
        """The depth of each value: 2k per element of sweep k, 2k − 1 once per fold before it."""
        depths: list[int] = []
        for v in self.operands:
            fixed = bool(self.folded) and not any(v.strides[a] for a in self.folded)
            depths.append(-1 if fixed else 0)
        for s in self.steps:
            if isinstance(s, FoldStep):
                depths.append(2 * ((depths[s.value] + 1) // 2) + 1)
                continue
            inputs = [depths[i] for i in s.inputs if not isinstance(i, Literal)]
            depths.append(_settled_depth(inputs) if self.folded else 0)
        return tuple(depths)

    @property
    def terms(self) -> int:
        """How many elements a fold combines."""
        return prod(self.domain[a] for a in self.folded)

    @cached_property
    def live(self) -> frozenset[int]:
        """The values that some result depends on."""
        base, live = len(self.operands), set()
        todo = [r.value for r in self.results]
        while todo:
            i = todo.pop()
            if i not in live and i >= base:
                step = self.steps[i - base]
                inputs = (step.value,) if isinstance(step, FoldStep) else step.inputs
                todo += [j for j in inputs if not isinstance(j, Literal)]
            live.add(i)
        return frozenset(live)

    @property
    def sweeps(self) -> int:
        """How many passes over the folded axes the kernel makes."""
        stored = [self.settled[r.value] for r in self.results]
        return max((d // 2 + 1 for d in stored), default=0)


def in_rows(kernel: Kernel, domain: tuple[int, int]) -> Kernel:
    """Split the one axis of a kernel into contiguous rows."""
    if kernel.domain == domain:
        return kernel

    def cut(access):
        (stride,) = access.strides
        return replace(access, strides=(stride * domain[1], stride))

    operands, results = map(cut, kernel.operands), map(cut, kernel.results)
    return replace(kernel, domain=domain, operands=(*operands,), results=(*results,))


def moving(kernel: Kernel, k: int) -> set[int]:
    """The values that sweep k computes for each element."""
    base, settled = len(kernel.operands), kernel.settled
    todo = [r.value for r in kernel.results if settled[r.value] == 2 * k]
    for i, step in enumerate(kernel.steps, base):
        if isinstance(step, FoldStep) and settled[i] == 2 * k + 1 and i in kernel.live:
            todo.append(step.value)
    found: set[int] = set()
    while todo:
        i = todo.pop()
        if i in found or settled[i] % 2:
            continue
        found.add(i)
        step = kernel.steps[i - base] if i >= base else None
        if isinstance(step, Step):
            todo += [j for j in step.inputs if not isinstance(j, Literal)]
    return found


def _settled_depth(depths: list[int]) -> int:
    """The depth of a step whose inputs are settled at these depths."""
    top = max(depths, default=-1)
    moving = any(d % 2 == 0 for d in depths)
    return top + 1 if moving and top % 2 else top


def verify(kernel: Kernel, extents: tuple[tuple[int, int], ...] = ()) -> None:
    """Raise `MalformedKernel` unless every rule holds.

    `extents` gives for each pointer how many elements of its array lie before it, and from it on;
    if given, every access must stay inside.
    """
    assert kernel.sound
    accesses: tuple[Any, ...] = (*kernel.operands, *kernel.results)
    if extents and len(extents) != len(accesses):
        raise MalformedKernel(f"{len(extents)} extents for {len(accesses)} arrays")
    idle = any(size == 0 and a not in kernel.folded for a, size in enumerate(kernel.domain))
    for i, (access, extent) in enumerate(zip(accesses, () if idle else extents, strict=False)):
        low, high = reach(_walk_domain(kernel, access), access.strides)
        if -low > extent[0] or high > extent[1]:
            raise MalformedKernel(f"array {i} is read from {low} to {high}, it has {extent}")


def _check(kernel: Kernel) -> None:
    n = len(kernel.domain)
    if any(size < 0 for size in kernel.domain):
        raise MalformedKernel(f"a domain of {kernel.domain}")
    if len(set(kernel.folded)) != len(kernel.folded) or any(not 0 <= a < n for a in kernel.folded):
        raise MalformedKernel(f"folded axes {kernel.folded} of {n}")
    for i, o in enumerate(kernel.operands):
        _check_access(kernel, f"operand {i}", o.dtype, o.strides)
    for k, s in enumerate(kernel.steps):
        _check_step(kernel, len(kernel.operands) + k, s)
    for i, r in enumerate(kernel.results):
        _check_result(kernel, i, r)
    if bool(kernel.piece) != any(r.over_rows for r in kernel.results) or kernel.piece < 0:
        raise MalformedKernel(f"pieces of {kernel.piece} rows for {kernel.results}")


def _walk_domain(kernel: Kernel, access: Operand | Result) -> tuple[int, ...]:
    """The part of the domain over which an access moves."""
    if isinstance(access, Result) and access.over_rows:
        return (-(-kernel.domain[0] // kernel.piece), *kernel.domain[1:])
    return kernel.domain


def reach(domain: tuple[int, ...], strides: Strides) -> tuple[int, int]:
    """The lowest offset accessed, and one more than the highest; both 0 if nothing is accessed.

    An access that is constant along an axis counts even if that axis is empty: where the axis is
    folded, the value may still be needed.
    """
    low, high = 0, 1
    for size, stride in zip(domain, strides, strict=True):
        if stride and not size:
            return 0, 0
        if stride < 0:
            low += (size - 1) * stride
        else:
            high += (size - 1) * stride
    return low, high


def _check_access(kernel: Kernel, what: str, dtype: np.dtype, strides: Strides) -> None:
    if len(strides) != len(kernel.domain):
        raise MalformedKernel(f"{what} has {len(strides)} strides for {len(kernel.domain)} axes")
    if dtype not in dtypes.KIND:
        raise MalformedKernel(f"{what} is {dtype!r}")


def _check_step(kernel: Kernel, number: int, step: Step | FoldStep) -> None:
    if isinstance(step, FoldStep):
        _check_fold(kernel, number, step)
        return
    if step.row not in TABLE:
        raise MalformedKernel(f"v{number}: no row {step.row!r}")
    arity = TABLE[step.row].arity
    if len(step.inputs) != arity:
        raise MalformedKernel(f"{step.row}: {len(step.inputs)} inputs, expected {arity}")
    for i in step.inputs:
        if isinstance(i, Literal):
            if type(i.value) not in PYTHON_SCALARS:
                raise MalformedKernel(f"{step.row}: a {type(i.value).__name__} as a literal")
        elif not 0 <= i < number:
            raise MalformedKernel(f"{step.row} uses v{i} before it is known")


def _check_fold(kernel: Kernel, number: int, fold: FoldStep) -> None:
    if not 0 <= fold.value < number:
        raise MalformedKernel(f"v{number} folds v{fold.value} before it is known")
    if fold.kind not in FOLDS or not kernel.folded:
        raise MalformedKernel(f"v{number}: fold {fold.kind!r} over {kernel.folded}")
    if kernel.terms == 0 and fold.kind in ("max", "min"):
        raise MalformedKernel(f"v{number}: {fold.kind} of nothing")


def _check_result(kernel: Kernel, i: int, r: Result) -> None:
    if not 0 <= r.value < len(kernel.dtypes):
        raise MalformedKernel(f"result {i} is v{r.value} of {len(kernel.dtypes)}")
    _check_access(kernel, f"result {i}", kernel.dtypes[r.value], r.strides)
    if r.over_rows:
        _check_columns(kernel, i, r)
    empty = 0 in kernel.domain
    still = [a for a, s in enumerate(r.strides) if s == 0 and kernel.domain[a] > 1 and not empty]
    folded = kernel.settled[r.value] % 2 == 1
    if folded and any(r.strides[a] for a in kernel.folded):
        raise MalformedKernel(f"result {i} is of folded values and moves along a folded axis")
    if any(a not in kernel.folded or not folded for a in still):
        raise MalformedKernel(f"result {i} is written more than once: strides {r.strides}")


def _check_columns(kernel: Kernel, i: int, r: Result) -> None:
    """Columns are folded over contiguous rows of real numbers."""
    rows = len(kernel.domain) == 2 and 0 not in kernel.folded and r.strides[1] == 1
    known = r.over_rows in FOLDS and r.over_rows != "mean"
    if not rows or not known or kernel.settled[r.value] % 2:
        raise MalformedKernel(f"result {i} folds v{r.value} over rows of {kernel.domain}: {r}")
