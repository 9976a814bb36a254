"""What rows say of themselves beside rules: found again by running their kernels."""

from dataclasses import replace

import numpy as np
import pytest

import weft as wf
from weft.compiler.emit.scalar import has_emitter
from weft.compiler.ir.kernel import FOLDS
from weft.compiler.ir.views import LOOKS
from weft.core.backends import BACKENDS, KERNELS
from weft.core.call import caller
from weft.core.op import MOVES, LinearRule, Op

from .rows import EXEMPT, cases, load

TABLE = load()
ROWS = [op for op in TABLE.values() if op.name not in EXEMPT]
STATED = {
    "public": {"", "weft", "special"},
    "cost": {"light", "heavy"},
    "folds": {"", *FOLDS},
    "views": {"", "always", "sometimes", "unseen"},
    "moves": {"", *MOVES, "values", "sums"},
}
# Rows that give an operand back as it is, and yet compute.
GIVES_BACK = {"invertible": "it computes whether a matrix is singular"}
# Rows whose results are views to users, also where NumPy's kernel made a copy.
COPIES = {"broadcast_to": "copies of few elements are faster than views of them"}


def computed(op: Op, args, static) -> tuple[np.ndarray, ...]:
    """A row's results by NumPy's kernel."""
    xp = BACKENDS[np.ndarray]
    with xp.quiet():
        z = op.call(KERNELS[op][np.ndarray], list(args), static)
    return tuple(map(xp.whole, (z,) if op.outputs == 1 else z))


# -- moves -------------------------------------------------------------------------------------


def drawn(case, seed: int) -> tuple:
    """A case's arguments with other floats, all of them different, of both signs."""
    rng = np.random.default_rng(seed)
    return tuple(np.asarray(rng.normal(size=a.shape)) if _floats(a) else a for a in case.args)


def _floats(a) -> bool:
    return isinstance(a, np.ndarray) and a.dtype == np.float64


def sources(f, args) -> np.ndarray:
    """Which of the arguments' elements each of f's is, by their numbers; 0 for a constant.

    Constants are zero and Python's numbers. −1 is for what is neither: it was computed.
    """
    given = np.concatenate([a.ravel() for a in args if _floats(a)]).tolist()
    known = {0.0: 0} | {a: 0 for a in args if isinstance(a, int | float)}
    known |= {v: k + 1 for k, v in enumerate(given)}
    return np.array([known.get(v, -1) for v in np.asarray(f(args)).ravel().tolist()])


def fixed(f, case) -> bool | None:
    """Whether f moves elements to places that no values tell; None where a case does not say."""
    if not any(map(_floats, case.args)):
        return None
    found = [sources(f, drawn(case, seed)) for seed in (1, 2, 3)]
    if not found[0].size or not found[0].any():
        return None
    return found[0].min() >= 0 and all(np.array_equal(found[0], other) for other in found[1:])


def is_real(case) -> bool:
    return not any(isinstance(a, np.ndarray) and a.dtype.kind == "c" for a in case.args)


def moving_problems(op: Op) -> list[str]:
    """What is wrong about the column `moves`."""
    if op.outputs > 1 or op.rule is None or op.name in GIVES_BACK:
        return []
    if op.collective:  # a mask would have to be sent to the other ranks
        return ["moves masks between processes"] if op.moves else []
    found = []
    for case in filter(is_real, cases(op)):
        try:
            static = _without_fill(op, case.static)
            found.append(fixed(lambda args, s=static: computed(op, args, s)[0], case))
        except (wf.errors.WeftError, np.linalg.LinAlgError):
            continue  # other numbers than the sample's are refused
    known = [moved for moved in found if moved is not None]
    if op.moves in MOVES:
        return [] if known and all(known) else [f"moves {op.moves!r}, and does not"]
    if op.moves == "sums":
        return [] if _sums(op) else ["its transpose does not move elements"]
    computes = not known or not all(known)
    return [] if op.moves == "values" or computes else ["moves elements, and does not say it"]


def _without_fill(op: Op, static: tuple) -> tuple:
    """Parameters of `pad` with zero as the number to pad with, which counts as a constant."""
    return (static[0], 0, *static[2:]) if op.name == "pad" else static


def _sums(op: Op) -> bool:
    """Whether the transpose of a row moves elements."""
    assert isinstance(op.rule, LinearRule)
    (pull, *_), known = op.rule.transpose, []
    assert pull is not None
    for case in filter(is_real, cases(op)):
        x, *rest = case.args
        g = np.zeros(computed(op, case.args, case.static)[0].shape)
        seeds = replace(case, args=(g,))

        def back(args, x=x, rest=rest, static=case.static):
            return pull(args[0], x, *rest, *static)

        known.append(fixed(back, seeds))
    known = [moved for moved in known if moved is not None]
    return bool(known) and all(known)


# -- views -------------------------------------------------------------------------------------


def view_problems(op: Op) -> list[str]:
    """What is wrong about the column `views`."""
    found, shared = [], []
    for case in [c for c in cases(op) if c.args and isinstance(c.args[0], np.ndarray)]:
        for args in (case.args, [np.asarray(a, order="F") if _floats(a) else a for a in case.args]):
            results = [z for z in computed(op, args, case.static) if z.size and z.ndim]
            others = [a for a in args[1:] if isinstance(a, np.ndarray)]
            if any(np.may_share_memory(z, a) for z in results for a in others):
                found.append("a result is memory of another argument than the first")
            shared += [np.may_share_memory(z, args[0]) for z in results]
    if any(shared) and not op.views:
        found.append("a result is memory of the first argument, and the row does not say it")
    if op.name in COPIES:
        return found
    if op.views and not any(shared):
        found.append(f"views {op.views!r}: no result is memory of the first argument")
    if op.views == "always" and not all(shared):
        found.append("views 'always': a result is memory of its own")
    return found


# -- folds, comparisons, costs, names ----------------------------------------------------------


def folding_problems(op: Op) -> list[str]:
    """What is wrong about the column `folds`: elements are combined two by two."""
    if not op.folds:
        return []
    combine = KERNELS[TABLE[FOLDS[op.folds]]][np.ndarray]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 5)) * (rng.random((64, 5)) < 0.7)  # of numbers, some are zero
    want = x[:, 0]
    for k in range(1, 5):
        want = combine(want, x[:, k])
    want = want / 5 if op.folds == "mean" else want
    (got,) = computed(op, (x,), ((1,), False))
    return [] if np.allclose(got, want) else [f"folds {op.folds!r}, and computes something else"]


def comparing_problems(op: Op) -> list[str]:
    """What is wrong about the column `compares`."""
    able = op.arity == 2 and op.promote == (0, 1) and op.rule is None
    numbers = [c for c in cases(op) if able and all(map(_floats, c.args))]
    if not numbers or computed(op, numbers[0].args, numbers[0].static)[0].dtype != np.bool_:
        return ["compares, and is no comparison"] if op.compares else []
    if not op.compares:
        return ["is a comparison, and does not say it"]
    x = np.array([-3, 0, 5])
    small = wf.tensor(x.astype(np.int8))
    want = {v: computed(op, (x, np.array(v)), ())[0].tolist() for v in (300, -300)}
    got = {v: caller(op)(small, v).tolist() for v in want}
    return [] if got == want else [f"int8 and numbers beyond: {got}, expected {want}"]


def naming_problems(op: Op) -> list[str]:
    """What is wrong about what remains: costs, public names, looks."""
    found = [f"{c}={getattr(op, c)!r}" for c, able in STATED.items() if getattr(op, c) not in able]
    if op.cost == "light" and not has_emitter(op.name):
        found.append("light, and no kernel computes it")
    if op.public and op.public in STATED["public"]:
        home = wf if op.public == "weft" else wf.special
        names = (op.name, *op.spell) if op.public == "weft" else (op.name,)
        found += [f"no public function {n}" for n in names if not hasattr(home, n)]
    looks = op.moves == "strides" and op.name != "copy"  # whose purpose is memory of its own
    if looks != (op.name in LOOKS):
        found.append("strides tell where elements are, and ir/views.py does not know, or not")
    return found


CHECKS = {
    "moves": moving_problems,
    "views": view_problems,
    "folds": folding_problems,
    "compares": comparing_problems,
    "names": naming_problems,
}


@pytest.mark.parametrize("column", CHECKS)
def test_rows_say_what_they_do(column):
    check = CHECKS[column]
    assert {op.name: found for op in ROWS if (found := check(op))} == {}


# One column of a row changed: (row, column, what is said).
PLANTED = [
    *[(op.name, "moves", "") for op in ROWS if op.moves in MOVES],
    *[(op.name, "views", "") for op in ROWS if op.views and op.name not in COPIES],
    *[(op.name, "compares", False) for op in ROWS if op.compares],
    *[("tanh", "moves", "strides"), ("sort", "moves", "indices")],
    *[("mean", "moves", "sums"), ("tanh", "views", "sometimes"), ("reshape", "views", "always")],
    *[
        ("amax", "folds", "min"),
        ("sum", "folds", "mean"),
        ("any", "folds", "all"),
        ("logical_and", "compares", True),
    ],
    *[("matmul", "cost", "light"), ("tie_share", "public", "weft"), ("tril", "moves", "strides")],
    *[("add", "cost", "cheap"), ("logical_and", "compares", True)],
]


@pytest.mark.parametrize("row, column, said", PLANTED, ids=str)
def test_a_wrong_column_is_found(row, column, said):
    wrong = replace(TABLE[row], **{column: said})
    assert any(check(wrong) for check in CHECKS.values())
