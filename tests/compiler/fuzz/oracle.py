"""Compiled beside eager: the same values to what roundings can do, and the same side effects."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

import weft as wf
from weft.core.late import raise_late

from .world import WHOLE, World
from .writer import Text, written

MODES = ("plain", "plain", "inside", "outside", "of grad", "step", "vmap", "jvp", "grad of")
CALLS = 3
# How many times as far as eager runs with a rounding more in each statement compiled ones may be:
# a statement is several operations, and a sum many roundings.
FACTOR = 64
NOISES = (3, 24)  # noisy runs: few, and many if those do not explain a difference
# What a compiled function refuses and an eager one does not: memory that two names share, and
# backward passes that would go on outside of it.
DOCUMENTED = (
    "which was computed from something outside, and would have to go on there",
    "lies in memory that was written into after that",
    "is changed in place and shares its memory with",
    "is assigned a value that is being differentiated",
    "as it was before the call, which has written into it",
    "the body of a loop or branch is written into one from outside",
)
# On a GPU, what reads values on the host is refused unless it runs step by step.
UNCAPTURED = ("while cannot be captured in a graph", "inv cannot be captured in a graph")


class Mismatch(AssertionError):
    """Compiled differs from eager."""


@dataclass
class Run:
    """What is seen of a program: the leaves after each call, or the error that ended it."""

    leaves: list[list[Any]]
    error: Exception | None = None


def total(out):
    """One number of everything that is in floating point."""
    leaves = [x for x in optree.tree_leaves(out) if isinstance(x, wf.Tensor)]
    able = [x for x in leaves if x.dtype.kind in "fV" and x.size]
    zero = wf.tensor(0.0, device=leaves[0].device if leaves else "cpu")
    return sum([x.to("float64").sum() * (1 + k / 8) for k, x in enumerate(able)], zero)


def shaped(mode: str, f, world: World, jit):
    """The function of a call, as the mode uses the program."""
    if mode == "plain":
        return jit(f)
    if mode == "inside":

        def inside(*args):
            loss = total(f(*args))
            grads = loss.backward() if loss.requires_grad else {}
            tensors = [a for a in args if isinstance(a, wf.Tensor)]
            return loss, [grads.get(a) for a in tensors]

        return jit(inside)
    if mode == "outside":
        compiled = jit(f)

        def outside(*args):
            out = compiled(*args)
            loss = total(out)
            grads = loss.backward() if loss.requires_grad else {}
            return out, [grads.get(a) for a in args if isinstance(a, wf.Tensor)]

        return outside
    if mode == "step":

        def step(*args):
            world.optimizer.zero_grad()
            own = world.noisy((world.P0 * world.P0).sum()) + world.noisy(wf.sin(world.P1).sum())
            loss = total(f(*args)) + own
            loss.backward()
            world.optimizer.step()
            return loss

        return jit(step)
    return _transformed(mode, f, jit)


def _transformed(mode: str, f, jit):
    def value(*args):
        return total(f(*args))

    if mode == "of grad":
        return jit(wf.grad(value))
    if mode == "grad of":
        return wf.grad(jit(value))
    if mode == "jvp":
        return jit(lambda x, *rest: wf.jvp(lambda t: f(t, *rest), (x,), (wf.ones_like(x),)))

    def batched(x, *rest):
        return wf.vmap(jit(lambda t: total(f(t, *rest))))(wf.stack([x, x * 0.5], axis=0))

    return batched


def mode_of(text: Text) -> str:
    """How a program is used; derivatives are of its first argument, which must have one."""
    mode, first = MODES[text.seed % len(MODES)], text.given[0]
    differentiates = mode in ("of grad", "grad of", "jvp")
    if differentiates and (first.dtype in WHOLE or text.shape == "mixed"):
        return "inside"
    return mode


def outcome(text: Text, mode: str, jit, **noise) -> Run:
    """Run a program some times in a world of its own."""
    world = World(text.given, text.seed, **noise)
    scope = world.scope()
    exec(compile(text.source(), f"program {text.seed}", "exec"), scope)
    call = shaped(mode, scope["program"], world, jit)
    wf.random.seed(text.seed)
    run = Run([])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(CALLS):
            given = world.arguments(k)
            args = list(given.values())
            try:
                out = call(*args)
                settle(world.device)
                seen = _seen(out, args, world)  # a gradient may be of a transformation that ended
            except Exception as e:
                run.error = e
                forget_late()
                return run
            run.leaves.append(seen)
            world.changes(k + 1)
            scope["B0"] = world.B0
    return run


def settle(device: str) -> None:
    """Wait for a call, and raise what a device tells of only then."""
    if device.startswith("cuda"):
        wf.cuda.synchronize(device)
    raise_late()


def forget_late() -> None:
    """Let no error of this program come at a later one."""
    while True:
        try:
            raise_late()
        except wf.errors.WeftError:
            continue
        return


def _seen(out, args, world: World) -> list[Any]:
    """Everything that a call has made and changed, as arrays."""
    tensors = [a for a in args if isinstance(a, wf.Tensor)]
    grads = [a.grad for a in tensors if a.requires_grad and a.is_leaf]
    around = list(world.tensors().values())
    held = [world.P0.grad, world.P1.grad]
    leaves = [*optree.tree_leaves((out, None), none_is_leaf=True), *tensors, *grads, *around, *held]
    state = [repr(wf.random.get_state())]
    tensor = wf.Tensor
    seen = [x.detach().to("cpu").numpy().copy() if isinstance(x, tensor) else x for x in leaves]
    return [*seen, *state]


def plain(f):
    """The eager function."""
    return f


def step_by_step(f):
    """The compiled function, never as a captured graph."""
    return wf.compile(f, capture=False)


def compiled_run(text: Text, mode: str, device: str) -> Run:
    """A compiled program; step by step if no graph can capture it."""
    run = outcome(text, mode, wf.compile, device=device)
    if any(told in str(run.error) for told in UNCAPTURED):
        assert not run.leaves, "it is refused at the first call"
        run = outcome(text, mode, step_by_step, device=device)
    return run


class Reference:
    """A program run eagerly on one device, also with a rounding more in each statement."""

    def __init__(self, text: Text, mode: str, device: str):
        self._program = text, mode, plain
        self.device = device
        self.run = outcome(*self._program, device=device)
        self.noisy: list[Run] = []

    def is_near(self, found: np.ndarray, call: int, leaf: int) -> bool:
        """Whether a leaf of a call is as near to the eager one as noisy runs are."""
        if self.run.error is not None:
            return False
        want = self.run.leaves[call][leaf]
        return any(_close(want, found, self._noisy(call, leaf, n)) for n in NOISES)

    def _noisy(self, call: int, leaf: int, count: int) -> list[np.ndarray]:
        for n in range(len(self.noisy), count):
            noise = {"noise": 1, "noises": n, "device": self.device}
            self.noisy.append(outcome(*self._program, **noise))
        return [r.leaves[call][leaf] for r in self.noisy[:count] if r.error is None]


def check(text: Text, mode: str, device: str = "cpu") -> str:
    """Compare compiled with eager: 'same', or 'refused' by eager or as is documented.

    On other devices eager runs take the kernels of a library, and some of these have formulas of
    their own: the variance of equal numbers is 0 in some, and rounded in others. What differs from
    eager there has to be what eager is on the CPU.
    """
    here = Reference(text, mode, device)
    want, got = here.run, compiled_run(text, mode, device)
    if want.error is not None:
        elsewhere = device != "cpu" and outcome(text, mode, plain).error is None
        return "refused by the device's kernels" if elsewhere else _both_refuse(want, got)
    if got.error is not None and any(told in str(got.error) for told in DOCUMENTED):
        return "refused by the compiler"
    if got.error is not None:
        raise Mismatch(f"compiled: {type(got.error).__name__}: {got.error}") from got.error
    references, verdict = [here], "same"
    for call in range(CALLS):
        pairs = zip(want.leaves[call], got.leaves[call], strict=True)
        for k, (a, b) in enumerate(pairs):
            if _identical(a, b):
                continue
            _kinds_agree(a, b, call, k)
            if here.is_near(b, call, k):
                continue
            if device != "cpu" and len(references) == 1:
                references.append(Reference(text, mode, "cpu"))
            if not any(r.is_near(b, call, k) for r in references[1:]):
                others = [r.run.leaves[call][k] for r in references[1:] if r.run.error is None]
                told = "".join(f"eager on the CPU\n{x}\n" for x in others)
                raise Mismatch(f"call {call}, leaf {k}: eager\n{a}\n{told}compiled\n{b}")
            verdict = "same as on the CPU"
    return verdict


def _both_refuse(want: Run, got: Run) -> str:
    if isinstance(want.error, wf.errors.SavedValueOverwritten) and got.error is None:
        return "refused"  # programs keep what they have read of an array before it is overwritten
    if len(got.leaves) > len(want.leaves):
        told = f"eager: {type(want.error).__name__}: {want.error} at call {len(want.leaves)}"
        raise Mismatch(f"{told}; compiled: none")
    return "refused"


def _identical(a, b) -> bool:
    if not isinstance(a, np.ndarray):
        return type(a) is type(b) and a == b
    same = isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
    return same and a.tobytes() == b.tobytes()


def _kinds_agree(a, b, call: int, k: int) -> None:
    kinds = [
        (type(x).__name__, getattr(x, "shape", x), str(getattr(x, "dtype", ""))) for x in (a, b)
    ]
    if not isinstance(a, np.ndarray) or kinds[0] != kinds[1]:
        raise Mismatch(f"call {call}, leaf {k}: eager {kinds[0]}, compiled {kinds[1]}")


def _close(a: np.ndarray, b: np.ndarray, noisy: list[np.ndarray]) -> bool:
    """Whether b is as near to a as eager runs with other roundings are."""
    exact = a.dtype.kind in "biu"
    unit = 0.0 if exact else float(wf.finfo(a.dtype).eps)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b, *noisy = (x.astype(wide) for x in (a, b, *noisy))
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(n - a) for n in noisy], axis=0, initial=0.0)
        size = np.abs(a).max(initial=0.0, where=np.isfinite(a))
        unsettled = np.any([np.isfinite(n) != np.isfinite(a) for n in noisy], axis=0)
        spread = np.where(np.isfinite(spread), spread, 0)
        allowed = FACTOR * (spread + spread.max(initial=0.0) / 8) + 8 * unit * (np.abs(a) + size)
        near = np.abs(a - b) <= allowed
        alike = (a == b) | (np.isnan(a) & np.isnan(b))
    return bool(np.all(near | alike | unsettled))


def shrunk(text: Text, mode: str, device: str = "cpu") -> Text:
    """The program with everything taken away that its failure does not need."""
    text = _shorter(text, mode, device)
    for name in dict.fromkeys(text.results):
        if _fails(text.returning((name,)), mode, device):
            return _shorter(text.returning((name,)), mode, device)
    return text


def _shorter(text: Text, mode: str, device: str) -> Text:
    for k in reversed(range(len(text.statements))):
        if _fails(text.without(k), mode, device):
            text = text.without(k)
    return text


def _fails(text: Text, mode: str, device: str) -> bool:
    try:
        check(text, mode, device=device)
    except Mismatch:
        return True
    return False


def examined(seed: int, device: str = "cpu") -> str:
    """Check the program of a seed; a failure is told with the shortest program that fails."""
    text = written(seed)
    mode = mode_of(text)
    try:
        return check(text, mode, device=device)
    except Mismatch:
        small = shrunk(text, mode, device)
        try:
            check(small, mode, device=device)
        except Mismatch as e:
            told = f"seed {seed}, mode {mode!r}, given {small.given}\n{small.source()}\n{e}"
            raise Mismatch(told) from e
        raise
