"""Several independent kernels in one launch: the number of a block says whose work it does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

from ....core.record import record
from ...emit.code import LLValue, Type
from ...ir.flops import kernel_flops
from ...ir.kernel import FoldStep, Kernel, Operand, Result, reach
from ...ir.routine import RoutineArray
from ..arrays import dtypes_of
from ..flat import BLOCK, FlatPlan, emit_flat
from ..folds import FoldPlan
from ..kernels import GridPlan, emit_grid, plan_grid
from ..machine import POINTER, WORD, Machine
from .routine import GridRoutine, RoutineStage


@lru_cache(maxsize=1 << 14)
def access_of(kernel: Kernel, number: int) -> RoutineArray:
    """What a kernel accesses of one of its arrays: operands, then results."""
    accesses: tuple[Operand | Result, ...] = (*kernel.operands, *kernel.results)
    sizes, access = list(kernel.domain), accesses[number]
    if isinstance(access, Result) and access.over_rows:
        sizes[0] = -(-sizes[0] // kernel.piece)
    moves = [(n, s) for n, s in zip(sizes, access.strides, strict=True) if s and n != 1]
    shape, strides = tuple([n for n, _ in moves]), tuple([s for _, s in moves])
    return RoutineArray(dtypes_of(kernel)[number], shape, strides)


def accesses_of(
    kernels: tuple[Kernel, ...], members: tuple[tuple[int, ...], ...]
) -> list[RoutineArray]:
    """What members access of the arrays of a launch, all of them in the same way."""
    found: dict[int, RoutineArray] = {}
    for kernel, *places in members:
        for number, at in enumerate(places):
            found.setdefault(at, access_of(kernels[kernel], number))
    return [found[at] for at in range(len(found))]


def reach_of(kernel: Kernel, number: int) -> tuple[int, int]:
    """The lowest element that a kernel accesses of an array, and one more than the highest."""
    found = access_of(kernel, number)
    return reach(found.shape, found.strides)


@lru_cache(maxsize=4096)
def plan_part(kernel: Kernel, aligned: int) -> tuple[Kernel, GridPlan]:
    """The plan of a kernel in a launch with others: flat ones have blocks of one size."""
    form, plan = plan_grid(kernel, aligned)
    if isinstance(plan, FlatPlan):
        plan = replace(plan, block=BLOCK, spread=1)
    elif isinstance(plan, FoldPlan) and plan.held:
        plan = replace(plan, held=False)
    return form, plan


def body_key(kernel: Kernel, aligned: int) -> tuple:
    """Equal for kernels that have one body: also for lines of different lengths."""
    _, plan = plan_part(kernel, aligned)
    if not isinstance(plan, FlatPlan) or plan.outer:
        return (kernel,)
    kinds = tuple([o.dtype for o in kernel.operands])
    stored = tuple([r.value for r in kernel.results])
    return kinds, kernel.steps, stored, plan.lane.strides, plan.lanes


@record
class ManyKernels(GridRoutine):
    """Kernels, none of which reads or writes what another one writes.

    members  for each: its kernel, and where its arrays are among those of the routine
    aligned  what all arrays are multiples of, in bytes
    """

    kernels: tuple[Kernel, ...]
    members: tuple[tuple[int, ...], ...]
    reads: int
    aligned: int

    noun = "kernels"

    @cached_property
    def _accesses(self) -> list[RoutineArray]:
        return accesses_of(self.kernels, self.members)

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return tuple(self._accesses[: self.reads])

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return tuple(self._accesses[self.reads :])

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        every = tuple(range(len(self._accesses)))
        return (ManyStage(every, self.kernels, self.members, aligned=self.aligned),)

    @property
    def flops(self) -> int | None:
        return sum([kernel_flops(self.kernels[m[0]]) for m in self.members])

    def describe(self) -> list[str]:
        counts = [sum(m[0] == k for m in self.members) for k in range(len(self.kernels))]
        pairs = zip(counts, self.kernels, strict=True)
        lines = [f"{n} of {_sizes(kernel)}: {_rows(kernel)}" for n, kernel in pairs]
        rows = list(dict.fromkeys(map(_rows, self.kernels)))
        return [f"{len(self.members)} of {'; '.join(rows)}", *lines]


def _sizes(kernel: Kernel) -> str:
    sizes = enumerate(kernel.domain)
    return "×".join([f"({n})" if a in kernel.folded else str(n) for a, n in sizes]) or "1"


def _rows(kernel: Kernel) -> str:
    rows = [f"fold {s.kind}" if isinstance(s, FoldStep) else s.row for s in kernel.steps]
    return ", ".join(rows) or "copy"


@record
class _Member:
    """A kernel of a launch: its first block, its parameters, and the length of its lane."""

    first: int
    places: tuple[int, ...]
    length: int


@record
class _Body:
    """Code for some members; `sized` if they are lines of different lengths."""

    kernel: Kernel
    plan: GridPlan
    members: tuple[_Member, ...]
    sized: bool


@record
class ManyStage(RoutineStage):
    """The grids of several kernels, one behind the other."""

    kernels: tuple[Kernel, ...]
    members: tuple[tuple[int, ...], ...]

    @property
    def wide(self) -> tuple[int, ...]:
        pairs = zip(self.arrays, accesses_of(self.kernels, self.members), strict=True)
        return tuple([at for at, access in pairs if access.size > 1])

    @property
    def grid(self) -> int:
        return sum([plan_part(self.kernels[m[0]], self.aligned)[1].grid for m in self.members])

    @property
    def block(self) -> int:
        (block,) = {plan_part(kernel, self.aligned)[1].block for kernel in self.kernels}
        return block

    def _bodies(self) -> Iterator[_Body]:
        classes: dict[tuple, list[tuple[int, ...]]] = {}
        for m in self.members:
            classes.setdefault(body_key(self.kernels[m[0]], self.aligned), []).append(m)
        first = 0
        for found in classes.values():
            members, plans = [], []
            for kernel, *places in found:
                form, plan = plan_part(self.kernels[kernel], self.aligned)
                length = plan.lane.size if isinstance(plan, FlatPlan) else 0
                members.append(_Member(first, tuple(places), length))
                plans.append((form, plan))
                first += plan.grid
            # The longest decides whether indices have 64 bits.
            longest = max(range(len(members)), key=lambda n: members[n].length)
            sized = len({m.length for m in members}) > 1
            form, plan = plans[longest]
            yield _Body(form, plan, tuple(members), sized)

    def emit(self, machine: Machine) -> None:
        code, end, block = machine.code, machine.code.label(), machine.block()
        bodies = list(self._bodies())
        starts = [body.members[0].first for body in bodies]

        def emit_body(n: int) -> None:
            part = _choose_member(machine, block, bodies[n], end)
            if bodies[n].sized:
                plan = bodies[n].plan
                assert isinstance(plan, FlatPlan)
                emit_flat(bodies[n].kernel, plan, part, self.aligned, part.length)
            else:
                emit_grid(bodies[n].kernel, bodies[n].plan, part, self.aligned)

        _branch(machine, block, starts, emit_body)
        code.start(end)
        machine.finish()


def _branch(
    machine: Machine, block: LLValue, starts: Sequence[int], leaf: Callable[[int], None]
) -> None:
    """Branch to leaf(n) for the last n with starts[n] ≤ block; each leaf ends its own block."""
    code = machine.code

    def split(low: int, high: int) -> None:
        if high - low == 1:
            leaf(low)
            return
        middle = (low + high) // 2
        before, after = code.label(), code.label()
        code.go_if(block < starts[middle], before, after)
        code.start(before)
        split(low, middle)
        code.start(after)
        split(middle, high)

    split(0, len(starts))


def _choose_member(machine: Machine, block: LLValue, body: _Body, end: str) -> "_Part":
    """The machine of a body, whose arrays are those of the member that a block belongs to."""
    members = body.members
    columns = list(zip(*[m.places for m in members], strict=True))
    pointers = [machine.pointers[column[0]] for column in columns]
    numbers: list[int | LLValue] = [column[0] for column in columns]
    if len(members) == 1:
        length = machine.code.constant(WORD, members[0].length)
        return _Part(machine, pointers, numbers, block - members[0].first, length, end)
    chosen = _Choice(machine, block, [m.first for m in members])
    for k, column in enumerate(columns):
        if len(set(column)) > 1:
            pointers[k] = chosen.of(POINTER, [machine.pointers[at] for at in column])
            numbers[k] = chosen.of(WORD, [block.same(at) for at in column])
    first = chosen.of(WORD, [block.same(m.first) for m in members])
    length = chosen.of(WORD, [block.same(m.length) for m in members])
    return _Part(machine, pointers, numbers, block - first, length, end)


class _Choice:
    """Values by the member that a block belongs to."""

    def __init__(self, machine: Machine, block: LLValue, starts: Sequence[int]):
        code = self._code = machine.code
        join, self._ways = code.label(), list[str]()

        def leaf(n: int) -> None:
            way = code.label()
            code.go(way)
            code.start(way)
            self._ways.append(way)
            code.go(join)

        _branch(machine, block, starts, leaf)
        code.start(join)

    def of(self, kind: Type, values: Sequence[LLValue]) -> LLValue:
        """One of these; before any other code."""
        phi = self._code.phi(kind)
        for value, way in zip(values, self._ways, strict=True):
            phi.add(value, way)
        return phi.value


class _Part:
    """The machine of one member: its arrays and its blocks, from 0 on."""

    def __init__(
        self,
        machine: Machine,
        pointers: list[LLValue],
        numbers: list[int | LLValue],
        block: LLValue,
        length: LLValue,
        end: str,
    ):
        self._machine, self.pointers, self._numbers = machine, pointers, numbers
        self._block, self.length, self._end = block, length, end

    @property
    def code(self):
        return self._machine.code

    def thread(self) -> LLValue:
        return self._machine.thread()

    def block(self) -> LLValue:
        return self._block

    def barrier(self) -> None:
        self._machine.barrier()

    def exchange(self, word: LLValue, distance: int) -> LLValue:
        return self._machine.exchange(word, distance)

    def shared(self, kind: Type, count: int) -> LLValue:
        return self._machine.shared(kind, count)

    def access(self, array: int | LLValue, pointer: LLValue, size: int, align: int) -> None:
        assert isinstance(array, int)
        self._machine.access(self._numbers[array], pointer, size, align)

    def finish(self) -> None:
        self.code.go(self._end)
