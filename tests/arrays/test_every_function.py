"""Every public function of NumPy and `scipy.special` on a dual, a batch and a recorded tensor.

Each gives the right derivative (or batch), by finite differences in float64 (or a loop), or
refuses with an error of Weft's that says why. A float that has lost its derivative is a failure.
"""

import os
import warnings

import numpy as np
import pytest
import scipy
from every_function import REASONS, calls_of, functions, leaves_of

import weft as wf
from weft import errors

MOST = 40 if os.environ.get("WEFT_SOAK") == "1" else 3
FOUND = {name: f for name, f in functions() if name.rpartition(".")[2] not in REASONS}
MODES = ("jvp", "grad", "recorded", "vmap")


THEIRS = tuple(os.path.dirname(module.__file__) + os.sep for module in (np, scipy))


class Refused(Exception):
    """A named error: of Weft's, or of the function itself, which looks at its arguments."""


def is_named(e: BaseException | None) -> bool:
    """Whether an error of Weft's is behind this one: NumPy wraps what conversions raise."""
    while e is not None:
        if isinstance(e, errors.WeftError):
            return True
        e = e.__cause__ or e.__context__
    return False


def is_theirs(e: Exception) -> bool:
    """Whether a function of SciPy's or NumPy's refused: `isscalar(x)` and the like."""
    frame = e.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    code = frame.tb_frame.f_code  # of the function, or of where its C code was called
    theirs = code.co_filename.startswith(THEIRS) or code.co_filename == "<string>"
    return theirs and isinstance(e, TypeError | ValueError)


def called(f, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return f(*args)
        except Exception as e:
            if is_named(e) or is_theirs(e):
                raise Refused(str(e)) from None
            raise


def parts(leaf) -> list:
    """The real and the imaginary part: some results are complex here and real there."""
    real, imag = (wf.real, wf.imag) if isinstance(leaf, wf.Tensor) else (np.real, np.imag)
    return [real(leaf), imag(leaf) if leaf.dtype.kind == "c" else 0 * real(leaf)]


def floats(result) -> list:
    return [p for leaf in leaves_of(result) if leaf.dtype.kind in "fc" for p in parts(leaf)]


def slopes(call, direction) -> list | None:
    """The derivatives of all results along a direction; None where differences do not settle."""
    found = []
    for h in (1e-3, 5e-4):
        sides = [floats(called(call.f, call.x + k * h * direction)) for k in (1, -1, 2, -2)]
        if len({tuple(p.shape for p in side) for side in sides}) != 1:
            return None
        found.append(
            [(8 * (a - b) - (c - d)) / (12 * h) for a, b, c, d in zip(*sides, strict=True)]
        )
    ok = all(
        np.allclose(a, b, rtol=1e-6, atol=1e-7, equal_nan=True) for a, b in zip(*found, strict=True)
    )
    return found[1] if ok else None


def weights(results) -> list:
    rng = np.random.default_rng(1)
    return [rng.normal(size=r.shape) for r in results]


def total(results, ws):
    """A tensor: the weighted sum of those results that carry something."""
    out = wf.zeros((), dtype="float64")
    for r, w in zip(results, ws, strict=True):
        r = r if isinstance(r, wf.Tensor) else wf.asarray(np.asarray(r, dtype=float))
        out = out + (r.to("float64") * w).sum()
    return out


def by_jvp(call, direction, ws):
    x, d = wf.asarray(call.x), wf.asarray(direction)
    return wf.jvp(lambda x: total(floats(call.f(x)), ws), (x,), (d,))[1].item()


def by_grad(call, direction, ws):
    g = wf.grad(lambda x: total(floats(call.f(x)), ws))(wf.asarray(call.x))
    return float((g.numpy() * direction).sum())


def by_backward(call, direction, ws):
    x = wf.tensor(call.x, requires_grad=True)
    y = total(floats(call.f(x)), ws)
    if not y.requires_grad:
        return 0.0
    g = y.backward().get(x)
    return 0.0 if g is None else float((g.numpy() * direction).sum())


DERIVATIVES = {"jvp": by_jvp, "grad": by_grad, "recorded": by_backward}


def check_derivative(mode, call):
    direction = np.random.default_rng(2).normal(size=call.x.shape)
    expected = slopes(call, direction)
    ws = weights(floats(called(call.f, call.x)))
    got = called(DERIVATIVES[mode], call, direction, ws)
    if expected is None or not all(np.isfinite(s).all() for s in expected):
        return
    want = sum((w * s).sum() for w, s in zip(ws, expected, strict=True))
    scale = sum(abs(w * s).sum() for w, s in zip(ws, expected, strict=True))
    assert abs(got - want) <= 1e-5 * (scale + 1e-2), f"{mode}: {got}, by differences {want}"


def check_batch(call):
    xs = [call.x + 0.003 * k for k in range(3)]
    each = [leaves_of(called(call.f, x)) for x in xs]
    shapes = {tuple(leaf.shape for leaf in leaves) for leaves in each}
    if len(shapes) > 1:
        return  # the shape depends on the values

    def mapped(x):
        leaves = leaves_of(call.f(x))
        return [wf.asarray(leaf) for leaf in leaves]

    got = called(wf.vmap(mapped), wf.asarray(np.stack(xs)))
    for k, leaf in enumerate(got):
        want = np.stack([np.asarray(leaves[k]) for leaves in each])
        np.testing.assert_allclose(leaf.numpy(), want, rtol=1e-7, atol=1e-9)


def outcome(mode, call) -> str:
    try:
        check_batch(call) if mode == "vmap" else check_derivative(mode, call)
    except Refused:
        return "refused"
    return "right"


@pytest.mark.filterwarnings("ignore")  # of differences at poles
@pytest.mark.parametrize("name", FOUND)
def test_right_or_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = calls_of(name, FOUND[name], MOST)
    if not calls:
        pytest.skip(f"{name}: no call with floats was found")
    for call in calls:
        for mode in MODES:
            if mode == "recorded" and isinstance(FOUND[name], type):
                continue  # np.float64(x): outside of transformations, x may become a number
            try:
                outcome(mode, call)
            except Exception as e:
                pytest.fail(f"{call.label}: {mode}: {type(e).__name__}: {e}")
