"""What no graph can capture: refused before anything has run, and right step by step."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.compiler.cuda import captures
from weft.compiler.cuda.runtime import executable
from weft.compiler.ir.schedule import LibraryStep
from weft.core.op import TABLE


def _adjugate(a):
    return wf.grad(lambda t: wf.linalg.det(t))(a)


# A use of each row that waits.
USES = {
    "inv": wf.linalg.inv,
    "solve": lambda a: wf.linalg.solve(a, a + 1),
    "triangular_solve": lambda a: wf.linalg.solve_triangular(a, a + 1),
    "cholesky": lambda a: wf.linalg.cholesky(a @ a.mT + wf.eye(3, dtype=a.dtype, device=a.device)),
    "pinv": wf.linalg.pinv,
    "eigh": lambda a: wf.linalg.eigh(a + a.mT)[0],
    "eigvalsh": lambda a: wf.linalg.eigvalsh(a + a.mT),
    "eig": lambda a: wf.linalg.eig(a)[0].abs(),
    "eigvals": lambda a: wf.linalg.eigvals(a).abs(),
    "svd": lambda a: wf.linalg.svd(a)[1],
    "svdvals": wf.linalg.svdvals,
    "matrix_rank": lambda a: wf.linalg.matrix_rank(a),
    "adjugate": _adjugate,
    "bincount": lambda a: wf.histogram(a, wf.tensor([-1.0, 0.0, 0.5], device=a.device).to(a.dtype)),
    "sqrtm": lambda a: wf.linalg.sqrtm(a @ a.mT + wf.eye(3, dtype=a.dtype, device=a.device)),
}


def long_program(use, p):
    """More launches than are made one by one; it writes a tensor and draws numbers."""

    def program(x):
        for _ in range(6):
            x = wf.tanh(x @ x) + x
        p.copy_(p + x)
        return use(x), wf.random.normal(shape=x.shape, device="torch") + x

    return program


def square(seed: int = 0):
    values = np.random.default_rng(seed).normal(size=(3, 3)) * 0.3 + np.eye(3)
    return wf.tensor(values, device="torch")


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("row", USES)
def test_what_waits_is_refused_at_the_first_call(gpu, row):
    x, p = square(), square(1)
    program, before = long_program(USES[row], p), p.numpy().copy()
    compiled, drawn = wf.compile(program), repr(wf.random.get_state())
    for _ in range(2):
        with pytest.raises(errors.StagingError, match=f"{row} cannot be captured") as told:
            compiled(x)
        for part in ("test_uncaptured.py", "on the host", "capture=False", "move it out"):
            assert part in str(told.value)
    assert p.numpy().tobytes() == before.tobytes() and gpu.captured == 0
    assert repr(wf.random.get_state()) == drawn


@pytest.mark.parametrize("row", USES)
def test_what_waits_runs_step_by_step(gpu, row):
    x, p, q = square(), square(1), square(1)
    compiled = wf.compile(long_program(USES[row], p), capture=False)
    eager = long_program(USES[row], q)
    for _ in range(3):
        wf.random.seed(4)
        found = compiled(x)
        wf.random.seed(4)
        same([*found, p], [*eager(x), q])
    assert gpu.captured == 0 and "capture=False" in str(compiled.explain())
    assert "kernel" in str(compiled.explain(stage="build"))


@pytest.mark.parametrize("row", USES)
def test_few_launches_are_never_captured_and_never_refused(gpu, row):
    x, compiled = square(), wf.compile(USES[row])
    for _ in range(3):
        same([compiled(x)], [USES[row](x)])
    assert gpu.captured == 0


def test_the_rows_are_in_the_table():
    assert set(captures._WAITS) <= set(TABLE)


def scanned(body, x):
    return wf.scan(lambda c, _: (body(c), c.sum()), x, wf.zeros(3, device="torch"))[0]


LOOPS = {
    "scan": scanned,
    "cond": lambda body, x: wf.cond(x.sum() > 0, body, lambda t: t, x),
    "both": lambda body, x: wf.cond(x.sum() > 0, partial(scanned, body), lambda t: t, x),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_what_waits_in_a_body_is_found(gpu, loop, monkeypatch):
    monkeypatch.setattr(executable, "_FEW", 0)
    use = partial(LOOPS[loop], lambda t: wf.linalg.inv(t) * 0.5 + 0.1)
    with pytest.raises(errors.StagingError, match="inv cannot be captured"):
        wf.compile(use)(square())
    compiled = wf.compile(use, capture=False)
    for seed in range(3):
        same([compiled(square(seed))], [use(square(seed))])


def test_a_while_without_a_kernel_is_refused(gpu, monkeypatch):
    monkeypatch.setattr(executable, "_FEW", 0)

    def use(x):
        return wf.while_loop(lambda c: wf.sin(c).sum() < 5.0, lambda c: c + 0.1, x * 2)

    with pytest.raises(errors.StagingError, match=r"while cannot be captured.*no kernel"):
        wf.compile(use)(square())
    same([wf.compile(use, capture=False)(square())], [use(square())])


def test_empty_arrays_and_unit_diagonals_wait_for_nothing(gpu, monkeypatch):
    monkeypatch.setattr(executable, "_FEW", 0)
    empty, x = wf.zeros((2, 0, 0), dtype="float64", device="torch"), square()

    def use(a):
        unit = wf.linalg.solve_triangular(a, a + 1, unit_diagonal=True)
        return wf.linalg.inv(empty).sum() + unit * 2

    compiled = wf.compile(use)
    for _ in range(3):
        same([compiled(x)], [use(x)])
    assert gpu.captured == 1


# -- captures that fail ----------------------------------------------------------------------


def forbid(gpu, monkeypatch):
    """Captures of library calls fail, as those that wait do on a card; nothing is launched."""

    def capture(work):
        run = work.__self__
        actions = run._actions

        def fail():
            raise RuntimeError("operation not permitted when stream is capturing\nand more")

        kinds = [isinstance(s, LibraryStep) for s in run.schedule.steps]
        run._actions = [fail if k else lambda: None for k in kinds]
        try:
            work()
        finally:
            run._actions = actions

    monkeypatch.setattr(gpu, "capture", capture)


def training_step():
    """A step with a library call that nobody knows to wait, and what it changes."""
    p = wf.Parameter(square(2))
    optimizer = wf.optim.Adam([p], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (wf.fft.fft(wf.tanh(x @ p) @ wf.exp(p)).real * (x @ x)).sum()
        loss.backward()
        optimizer.step()
        return loss

    def state():
        own = [v for s in optimizer.state.values() for v in s.values()]
        return [np.asarray(v).copy() for v in (p.detach(), p.grad, *own)]

    return step, state


def test_a_capture_that_fails_changes_nothing(gpu, monkeypatch):
    forbid(gpu, monkeypatch)
    monkeypatch.setattr(executable, "_FEW", 0)
    step, state = training_step()
    eager, expected = training_step()
    compiled, x = wf.compile(step), square()
    same([compiled(x)], [eager(x)])
    before = state()
    for _ in range(2):
        with pytest.raises(errors.StagingError, match="cannot be captured") as told:
            compiled(x)
        assert "not permitted when stream is capturing (at" in str(told.value)
        assert "and more" not in str(told.value) and "capture=False" in str(told.value)
        for a, b in zip(state(), before, strict=True):
            assert a.tobytes() == b.tobytes()
    onward = wf.compile(step, capture=False)
    for _ in range(3):
        same([onward(x)], [eager(x)])
    for a, b in zip(state()[:2], expected()[:2], strict=True):  # moments have other factors
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


# -- the option ------------------------------------------------------------------------------


def tripled(x):
    return wf.tanh(x * 3).sum()


def test_the_option_is_part_of_copies(gpu):
    compiled = wf.compile(tripled, capture=False)
    for other in (copy.copy(compiled), pickle.loads(pickle.dumps(compiled)), compiled.alike(chain)):
        assert other.capture is False


def chain(x):
    for _ in range(20):
        x = wf.tanh(x @ x)
    return x


def test_pull_backs_run_step_by_step_too(gpu):
    for capture, captured in ((False, False), (True, True)):
        compiled = wf.compile(chain, capture=capture)
        for _ in range(3):
            x = square().requires_grad_()
            compiled(x).sum().backward()
        assert bool(gpu.captured) is captured


def test_the_option_has_no_effect_on_a_processor():
    x = wf.tensor([0.5])
    assert wf.compile(tripled, capture=False)(x).item() == wf.compile(tripled)(x).item()
    decorated = wf.compile(capture=False)(tripled)
    assert decorated.capture is False
    dynamic = wf.compile(tripled, dynamic={"x": 0}, capture=False)
    assert dynamic.capture is False and dynamic(x).item() == decorated(x).item()
    with pytest.raises(errors.DTypeError, match="capture is a int, expected True or False"):
        wf.compile(tripled, capture=0)
