"""GradScaler in a compiled function: steps, scales and what is left out, as without compiling."""

import numpy as np
import pytest
from tests.optim.states import averages

import weft as wf
from weft import errors

nn, F = wf.nn, wf.nn.functional
OPTIMIZERS = {
    "SGD": ("SGD", {"lr": 0.1, "weight_decay": 0.01}),
    "momentum": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.5}),
    "Adam": ("Adam", {"lr": 0.01}),
    "AMSGrad": ("AdamW", {"lr": 0.01, "amsgrad": True}),
    "NAdam": ("NAdam", {"lr": 0.01}),
    "RMSprop": ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.9}),
    "Adagrad": ("Adagrad", {"lr": 0.1}),
    "Adam8bit": ("Adam8bit", {"lr": 0.01}),
}
# Which batches overflow; the first one too, when there are no moments yet.
OVERFLOWS = (0, 3, 4, 8)


def _model(dtype="float32", device="cpu"):
    wf.random.seed(0)
    layers = nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)
    return nn.Sequential(*layers).to(dtype=dtype, device=device)


def _batches(count=12, overflows=OVERFLOWS, dtype="float32", device="cpu"):
    rng = np.random.default_rng(1)
    for k in range(count):
        x, y = rng.standard_normal((12, 8)).astype(dtype), rng.integers(0, 4, 12)
        if k in overflows:
            x[3, 2] = np.inf
        yield wf.tensor(x, device=device), wf.tensor(y, device=device)


class Run:
    """A model in training by a step of `parts`, which a test gives."""

    def __init__(self, which="Adam", dtype="float32", wrap=None, device="cpu", **options):
        self.model = _model(dtype, device)
        name, settings = OPTIMIZERS[which]
        self.optimizer = getattr(wf.optim, name)(self.model.parameters(), **settings)
        if wrap is not None:
            self.optimizer = wrap(self.optimizer)
        self.scaler = wf.amp.GradScaler(**({"init_scale": 64.0, "growth_interval": 3} | options))
        self.seen: list = []

    def loss(self, x, y):
        self.optimizer.zero_grad()
        return F.cross_entropy(self.model(x), y)

    def plain(self, x, y):
        loss = self.loss(x, y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def go(self, step, batches) -> "Run":
        for x, y in batches:
            with np.errstate(all="ignore"):
                step(x, y)
            s = self.scaler
            self.seen.append((s.get_scale(), s.skipped, s.running.steps))
        return self


def _same(one: Run, other: Run, rtol=2e-5) -> None:
    assert one.seen == other.seen
    assert one.scaler.state_dict() == other.scaler.state_dict()
    for p, q in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert np.isfinite(q.detach().numpy()).all()
        np.testing.assert_allclose(
            q.detach().numpy(), p.detach().numpy(), rtol=rtol, atol=rtol / 10
        )
    mine, others = (getattr(r.optimizer, "optimizer", r.optimizer).state for r in (one, other))
    assert mine.keys() == others.keys()
    for key, own in mine.items():
        assert own["step"] == others[key]["step"]
        have = averages(others[key])
        for name, want in averages(own).items():
            if want.dtype != np.uint8:
                np.testing.assert_allclose(have[name], want, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("which", OPTIMIZERS)
def test_a_compiled_step_is_that_of_eager_mode(which, device):
    eager, compiled = Run(which, device=device), Run(which, device=device)
    step = wf.compile(compiled.plain)
    given = [list(_batches(device=device)) for _ in range(2)]
    _same(eager.go(eager.plain, given[0]), compiled.go(step, given[1]))
    assert [s for _, s, _ in eager.seen] == [k in OVERFLOWS for k in range(12)]
    assert len({s for s, _, _ in eager.seen}) > 2  # it shrank, and it grew
    assert len(step.recompilations) <= 1  # where the first step is another one


def test_an_overflow_leaves_every_bit_as_it_was():
    run = Run("Adam")
    step = wf.compile(run.plain)
    run.go(step, _batches(4, ()))
    arrays = [p._data for p in run.model.parameters()]
    arrays += [a for own in run.optimizer.state.values() for a in own.values() if np.ndim(a)]
    before = [a.copy() for a in arrays]
    run.go(step, _batches(3, (0, 1, 2)))
    assert run.scaler.skipped and run.scaler.get_scale() == run.seen[3][0] / 8
    for a, b in zip(arrays, before, strict=True):
        assert a.tobytes() == b.tobytes()
    assert {own["step"] for own in run.optimizer.state.values()} == {4}


def test_a_first_step_that_is_left_out_begins_no_state():
    run = Run("Adam")
    run.go(wf.compile(run.plain), _batches(2, (0, 1)))
    assert run.optimizer.state == {} and run.scaler.skipped


def test_half_precision():
    def step_of(run):
        def step(x, y):
            run.optimizer.zero_grad()
            with wf.amp.autocast("float16"):
                loss = F.cross_entropy(run.model(x), y)
            run.scaler.scale(loss).backward()
            run.scaler.step(run.optimizer)
            run.scaler.update()

        return step

    # A scale that float16 holds the gradients of, until it has grown.
    eager, compiled = (Run("SGD", init_scale=2.0**17) for _ in range(2))
    eager.go(step_of(eager), _batches(20, ()))
    compiled.go(wf.compile(step_of(compiled)), _batches(20, ()))
    _same(eager, compiled, rtol=2e-3)
    assert any(s for _, s, _ in eager.seen) and not all(s for _, s, _ in eager.seen)


def _clipped(run):
    def step(x, y):
        run.scaler.scale(run.loss(x, y)).backward()
        norm = run.scaler.unscale_(run.optimizer)
        wf.optim.clip_grads_with_norm(run.model, 0.1, norm)
        run.scaler.step(run.optimizer)
        run.scaler.update()
        return norm

    return step


def _clipped_again(run):
    def step(x, y):
        run.scaler.scale(run.loss(x, y)).backward()
        run.scaler.unscale_(run.optimizer)
        wf.optim.clip_grad_norm(run.model, 0.1)
        run.scaler.step(run.optimizer)
        run.scaler.update()

    return step


def _by_map(run):
    def step(x, y):
        grads = run.scaler.scale(run.loss(x, y)).backward()
        run.scaler.step(run.optimizer, grads)
        run.scaler.update()

    return step


def _to_a_number(run):
    def step(x, y):
        run.scaler.scale(run.loss(x, y)).backward()
        run.scaler.step(run.optimizer)
        run.scaler.update(128.0)

    return step


@pytest.mark.parametrize("make", [_clipped, _clipped_again, _by_map, _to_a_number])
def test_what_else_a_step_does(make):
    eager, compiled = Run("SGD"), Run("SGD")
    _same(
        eager.go(make(eager), _batches()),
        compiled.go(wf.compile(make(compiled)), _batches()),
    )


def test_norms_are_those_of_eager_mode():
    eager, compiled = Run("SGD"), Run("SGD")
    f, g = _clipped(eager), wf.compile(_clipped(compiled))
    for x, y in _batches(4, (2,)):
        with np.errstate(all="ignore"):
            want, got = f(x, y), g(x, y).item()
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_averages_stay_where_a_step_is_left_out():
    def averaging(optimizer):
        return wf.optim.EMAOptimizer(optimizer, 0.5)

    eager, compiled = Run(wrap=averaging), Run(wrap=averaging)
    step = wf.compile(compiled.plain)
    for run in (eager, compiled):
        run.go(run.plain, _batches(1, ()))  # averages begin after a first step
    _same(eager.go(eager.plain, _batches()), compiled.go(step, _batches()))
    mine, others = eager.optimizer.ema, compiled.optimizer.ema
    assert mine.updates == others.updates == 9
    pairs = zip(eager.model.parameters(), compiled.model.parameters(), strict=True)
    for p, q in pairs:
        want, got = mine.average_of(p).numpy(), others.average_of(q).numpy()
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def test_one_scaler_for_two_optimizers():
    def made():
        run = Run("SGD")
        first, second = run.model[0], run.model[2]
        both = [wf.optim.SGD(m.parameters(), lr=0.1) for m in (first, second)]

        def step(x, y):
            loss = run.loss(x, y)
            run.scaler.scale(loss).backward()
            second.weight.grad = second.weight.grad * x[0, 0]
            for optimizer in both:
                run.scaler.step(optimizer)
            run.scaler.update()

        return run, step

    def batches():
        for k, (x, y) in enumerate(_batches(6, ())):
            if k in (1, 4):
                x[0, 0] = wf.tensor(3e38)  # times the gradient: of one optimizer only
            yield x, y

    (eager, f), (compiled, g) = made(), made()
    _same(eager.go(f, batches()), compiled.go(wf.compile(g), batches()))


def test_a_step_may_be_compiled_in_parts():
    """Gradients by one program, unscaled by another, and the step and the update outside."""
    eager, compiled = Run("Adam"), Run("Adam")
    gradient = wf.compile(lambda x, y: compiled.scaler.scale(compiled.loss(x, y)).backward())
    unscale = wf.compile(lambda: compiled.scaler.unscale(compiled.optimizer))

    def step(x, y):
        gradient(x, y)
        unscale()
        compiled.scaler.step(compiled.optimizer)
        compiled.scaler.update()

    _same(eager.go(eager.plain, _batches()), compiled.go(step, _batches()))


def test_eager_and_compiled_steps_take_turns():
    eager, mixed = Run("Adam"), Run("Adam")
    step = wf.compile(mixed.plain)
    eager.go(eager.plain, _batches())
    for k, batch in enumerate(_batches()):
        mixed.go(step if k % 2 else mixed.plain, [batch])
    _same(eager, mixed)
    assert len(step.recompilations) <= 1


def test_a_state_that_is_loaded_needs_no_other_program():
    run = Run("Adam")
    step = wf.compile(run.plain)
    run.go(step, _batches(3, ()))
    saved = run.scaler.state_dict()
    run.go(step, _batches(2, (0,)))
    run.scaler.load_state_dict(saved)
    run.go(step, _batches(1, ()))
    assert run.seen[-1] == (saved["scale"], False, saved["_growth_tracker"] + 1)
    assert step.recompilations == []


def test_other_settings_are_another_program():
    run = Run("SGD")
    step = wf.compile(run.plain)
    run.go(step, _batches(1, ()))
    run.scaler.load_state_dict(run.scaler.state_dict() | {"backoff_factor": 0.25})
    run.go(step, _batches(1, (0,)))
    assert run.scaler.get_scale() == 16.0
    assert len(step.recompilations) == 1 and "settings" in step.recompilations[0]


def test_a_scaler_that_is_not_enabled():
    eager, compiled = (Run("SGD", enabled=False) for _ in range(2))
    eager.go(_clipped(eager), _batches(5, ()))
    compiled.go(wf.compile(_clipped(compiled)), _batches(5, ()))
    _same(eager, compiled)


# -- what is refused -------------------------------------------------------------------------


def test_skipped_is_for_after_the_call():
    run = Run("SGD")

    def step(x, y):
        run.plain(x, y)
        return 1 if run.scaler.skipped else 0

    with pytest.raises(errors.StagingError, match="look at it after the call"):
        wf.compile(step)(*next(_batches()))


def test_a_second_step_after_one_that_may_be_left_out():
    run = Run("Adam")

    def step(x, y):
        run.plain(x, y)
        run.plain(x, y)

    with pytest.raises(errors.StagingError, match="compile one step, and call it twice"):
        wf.compile(step)(*next(_batches()))


def test_gradients_that_were_unscaled_outside():
    run = Run("Adam")
    x, y = next(_batches(1, ()))
    run.scaler.scale(run.loss(x, y)).backward()
    run.scaler.unscale(run.optimizer)
    with pytest.raises(errors.StagingError, match="unscale and step in one place"):
        wf.compile(lambda: run.scaler.step(run.optimizer))()


def test_mistakes_are_those_of_eager_mode():
    run = Run("SGD")
    x, y = next(_batches(1, ()))

    def twice(x, y):
        run.scaler.scale(run.loss(x, y)).backward()
        run.scaler.unscale(run.optimizer)
        run.scaler.unscale(run.optimizer)

    with pytest.raises(errors.ArgumentError, match=r"unscale\(\) was called with"):
        wf.compile(twice)(x, y)
    with pytest.raises(errors.ArgumentError, match="no gradients were unscaled"):
        wf.compile(lambda: run.scaler.update())()
    assert not run.scaler.is_waiting()


def test_a_scale_grows_no_further_than_float32():
    for compiled in (False, True):
        p = wf.Parameter(np.array([1.0], "float32"))
        optimizer = wf.optim.SGD([p], lr=1.0)
        scaler = wf.amp.GradScaler(init_scale=2.0**126, growth_interval=1)

        def step(p=p, optimizer=optimizer, scaler=scaler):
            optimizer.zero_grad()
            scaler.scale((p * 0.125).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

        step = wf.compile(step) if compiled else step
        for scale in (2.0**127, 2.0**127):
            step()
            assert scaler.get_scale() == scale and not scaler.skipped
        assert p.tolist() == [0.75]
