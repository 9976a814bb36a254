"""Whole training steps: parameters, moments, gradients and statistics change as in eager mode."""

import numpy as np
import pytest
from tests.optim.states import averages

import weft as wf
from weft import errors

nn, F = wf.nn, wf.nn.functional
STEPS = 20
OPTIMIZERS = {
    "SGD": ("SGD", {"lr": 0.1, "weight_decay": 0.01}),
    "momentum": ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.5}),
    "Nesterov": ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "Adam": ("Adam", {"lr": 0.01, "weight_decay": 0.1}),
    "AdamW": ("AdamW", {"lr": 0.01}),
    "AMSGrad": ("AdamW", {"lr": 0.01, "amsgrad": True}),
    "NAdam": ("NAdam", {"lr": 0.01}),
    "RAdam": ("RAdam", {"lr": 0.01}),
    "RMSprop": ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.9}),
    "Adagrad": ("Adagrad", {"lr": 0.1}),
    "LAMB": ("LAMB", {"lr": 0.01}),
    "Adafactor": ("Adafactor", {"lr": 0.01}),
    "Muon": ("Muon", {"lr": 0.01}),
}


DEVICES = ["cpu", "torch"]


def model(dtype="float64", device="cpu"):
    """Without biases before the batch norm: their gradients are rounding errors of zero."""
    wf.random.seed(0)
    layers = nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.3)
    return nn.Sequential(*layers, nn.Linear(16, 4, bias=False)).to(dtype=dtype, device=device)


def batches(count, dtype="float64", device="cpu"):
    rng = np.random.default_rng(1)
    for _ in range(count):
        x, y = rng.standard_normal((12, 8)).astype(dtype), rng.integers(0, 4, 12)
        yield wf.tensor(x, device=device), wf.tensor(y, device=device)


def training(which, zero="first", compiled=True, schedule=False, device="cpu"):
    """A model after some steps, its optimizer, the losses and the step."""
    m = model(device=device)
    name, options = OPTIMIZERS[which]
    matrices = [p for p in m.parameters() if p.ndim == 2]
    optimizer = getattr(wf.optim, name)(matrices if name == "Muon" else m.parameters(), **options)

    def step(x, y):
        if zero == "first":
            optimizer.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        optimizer.step()
        if zero == "last":
            optimizer.zero_grad()
        return loss

    run = wf.compile(step) if compiled else step
    wf.random.seed(7)
    losses = []
    for k, (x, y) in enumerate(batches(STEPS, device=device)):
        if schedule:
            optimizer.set_lr(0.1 / (k + 1))
        losses.append(run(x, y).item())
    return m, optimizer, losses, run


def same_state(one, other):
    """Parameters, statistics, gradients and the optimizer's state agree to rounding."""
    (a, s, losses, _), (b, t, others, _) = one, other
    np.testing.assert_allclose(others, losses, rtol=1e-11)
    for name, x in a.state_dict().items():
        y = b.state_dict()[name].numpy()
        np.testing.assert_allclose(y, x.numpy(), rtol=1e-8, atol=1e-10, err_msg=name)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            np.testing.assert_allclose(q.grad.numpy(), p.grad.numpy(), rtol=1e-7, atol=1e-10)
    assert s.state.keys() == t.state.keys()
    for key, own in s.state.items():
        have = averages(t.state[key])
        for name, want in averages(own).items():
            np.testing.assert_allclose(have[name], want, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("which", OPTIMIZERS)
def test_a_step_equals_eager(which, device):
    compiled = training(which, device=device)
    same_state(training(which, compiled=False, device=device), compiled)
    assert len(compiled[3].recompilations) <= 1  # where the first step is another one


@pytest.mark.parametrize("which", ["SGD", "AdamW", "Muon"])
def test_a_step_has_the_same_bits_on_memory_of_pytorch(which):
    """Draws, statistics, gradients and moments, too."""
    (m, s, losses, _), (n, t, others, _) = (training(which, device=d) for d in DEVICES)
    assert losses == others
    for name, x in m.state_dict().items():
        assert x.numpy().tobytes() == n.state_dict()[name].numpy().tobytes(), name
    for p, q in zip(m.parameters(), n.parameters(), strict=True):
        assert q.grad.device == "torch" and p.grad.numpy().tobytes() == q.grad.numpy().tobytes()
    for key, own in s.state.items():
        for name, value in own.items():
            assert np.all(np.asarray(value) == np.asarray(t.state[key][name])), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("zero", ["first", "last", "never"])
def test_gradients_are_kept_forgotten_and_added_up(zero, device):
    compiled = training("AdamW", zero, device=device)
    same_state(training("AdamW", zero, compiled=False, device=device), compiled)
    why = "whether parameters have a .grad: was False, is True"
    assert compiled[3].recompilations == ([why] if zero == "never" else [])


def test_a_schedule_does_not_recompile():
    compiled = training("AdamW", schedule=True)
    same_state(training("AdamW", compiled=False, schedule=True), compiled)
    assert compiled[3].recompilations == []


@pytest.mark.parametrize("device", DEVICES)
def test_the_memory_of_parameters_and_moments_is_used_again(device):
    m, optimizer, _, step = training("AdamW", device=device)
    before = [p._data for p in m.parameters()]
    moments = [own["exp_sum"] for own in optimizer.state.values()]
    step(*next(batches(1, device=device)))
    assert all(p._data is raw for p, raw in zip(m.parameters(), before, strict=True))
    assert all(o["exp_sum"] is r for o, r in zip(optimizer.state.values(), moments, strict=True))


def test_settings_of_an_optimizer_are_honoured():
    runs = []
    for compiled in (False, True):
        m, optimizer, losses, step = training("AdamW", compiled=compiled)
        optimizer.param_groups[0]["weight_decay"] = 0.5
        optimizer.param_groups[0]["betas"] = (0.5, 0.9)
        for x, y in batches(5):
            losses.append(step(x, y).item())
        runs.append((m, optimizer, losses, step))
    same_state(*runs)
    assert "AdamW's settings" in runs[1][3].recompilations[0]


def test_settings_that_are_changed_and_changed_back():
    """States are brought in line with them each time, by whatever program the step is."""

    def run(compiled):
        p = wf.Parameter(np.array([1.0, -2.0]))
        optimizer = wf.optim.Adam([p], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            ((p - x) ** 2).sum().backward()
            optimizer.step()

        f = wf.compile(step) if compiled else step
        for beta in (0.9, 0.9, 0.5, 0.5, 0.9, 0.9, 0.5, 0.9):
            optimizer.param_groups[0]["beta1"] = beta
            f(wf.tensor([3.0, 4.0]))
        f.__wrapped__(wf.tensor([3.0, 4.0])) if compiled else f(wf.tensor([3.0, 4.0]))
        f(wf.tensor([3.0, 4.0]))
        return [*p.tolist(), *optimizer.state["0"]["exp_sum"]], optimizer.state["0"]["step"]

    np.testing.assert_allclose(run(True)[0], run(False)[0], rtol=1e-13)
    assert run(True)[1] == 10


def test_states_that_are_changed_by_hand():
    """Parameters that are not equally far any more make their steps apart."""

    def run(compiled):
        a, b = wf.Parameter(np.ones(2)), wf.Parameter(np.full(2, 3.0))
        optimizer = wf.optim.NAdam([a, b], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            ((a - x) ** 2 + (b * x) ** 2).sum().backward()
            optimizer.step()

        f = wf.compile(step) if compiled else step
        x = wf.tensor([3.0, 4.0])
        for k in range(6):
            if k == 3:
                optimizer.state["1"]["step"] = 10
            if k == 5:
                optimizer.state["0"]["mu_product"] = 0.25
            f(x)
        return np.stack([a.detach().numpy(), b.detach().numpy()]), f

    (want, _), (got, f) = run(False), run(True)
    np.testing.assert_allclose(got, want, rtol=1e-13)
    assert "equally far" in f.recompilations[0]


def test_a_loaded_state_is_honoured():
    runs = []
    for compiled in (False, True):
        m, optimizer, losses, step = training("AdamW", compiled=compiled)
        saved, parameters = optimizer.state_dict(), m.state_dict()
        parameters = {k: v.clone() for k, v in parameters.items()}
        for x, y in batches(3):
            step(x, y)
        optimizer.load_state_dict(saved)
        m.load_state_dict(parameters)
        for x, y in batches(3):
            losses.append(step(x, y).item())
        runs.append((m, optimizer, losses, step))
    same_state(*runs)
    assert runs[1][3].recompilations == []


def test_a_reset_begins_anew():
    _, optimizer, _, step = training("AdamW")
    optimizer.reset()
    step(*next(batches(1)))
    assert {own["step"] for own in optimizer.state.values()} == {1}


def test_evaluation_is_another_program():
    m = model()
    f = wf.compile(lambda x: m(x))
    x, _ = next(batches(1))
    with wf.no_grad():
        f(x)
        m.eval()
        np.testing.assert_allclose(f(x).numpy(), m(x).numpy(), rtol=1e-12)
    assert f.recompilations == ["m.1.training: was True, is False"]


def test_two_steps_in_one_call():
    def run(compiled):
        p = wf.Parameter(np.array([1.0, -2.0]))
        optimizer = wf.optim.Adam([p], lr=0.1)

        def twice(x):
            for _ in range(2):
                optimizer.zero_grad()
                ((p - x) ** 2).sum().backward()
                optimizer.step()
            return p.detach()

        f = wf.compile(twice) if compiled else twice
        for _ in range(3):
            f(wf.tensor([3.0, 4.0]))
        return p.tolist(), optimizer.state["0"]["step"], optimizer.state["0"]["exp_sum"]

    want, got = run(False), run(True)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-14)
    assert got[1] == want[1] == 6
    np.testing.assert_allclose(got[2], want[2], rtol=1e-14)


def test_two_optimizers_and_groups_with_rates_of_their_own():
    def run(compiled):
        a, b, c = (wf.Parameter(np.full(3, k + 1.0)) for k in range(3))
        first = wf.optim.SGD([{"params": [a], "lr": 0.1}, {"params": [b], "lr": 0.2}], lr=0.1)
        second = wf.optim.AdamW([c], lr=0.01)

        def step(x):
            loss = ((a * b * c - x) ** 2).sum()
            loss.backward()
            for o in (first, second):
                o.step()
                o.zero_grad()
            return loss

        f = wf.compile(step) if compiled else step
        for k in range(6):
            first.param_groups[1]["lr"] = 0.2 / (k + 1)
            f(wf.tensor(np.ones(3)))
        return np.stack([p.detach().numpy() for p in (a, b, c)])

    np.testing.assert_allclose(run(True), run(False), rtol=1e-12)


def test_half_precision_parameters():
    def run(compiled):
        p = wf.Parameter(np.linspace(-1, 1, 7).astype(np.float16))
        optimizer = wf.optim.AdamW([p], lr=0.01)

        def step(x):
            loss = ((p * x) ** 2).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        f = wf.compile(step) if compiled else step
        for _ in range(5):
            f(wf.ones(7, dtype="float16"))
        return p.detach().numpy(), optimizer.state["0"]["exp_sum"]

    want, got = run(False), run(True)
    assert got[0].dtype == np.float16 and got[1].dtype == np.float32
    np.testing.assert_allclose(got[0], want[0], atol=2 * np.finfo(np.float16).eps)


def test_parameters_that_are_frozen_later():
    p, q = wf.Parameter(np.ones(2)), wf.Parameter(np.ones(2))

    @wf.compile
    def step(x):
        (p * q * x).sum().backward()
        for r in (p, q):
            if r.grad is not None:
                r.update(0.1)
                r.zero_grad()

    step(wf.tensor([1.0, 2.0]))
    assert q.tolist() == [0.9, 0.8]
    q.requires_grad_(False)
    step(wf.tensor([1.0, 2.0]))
    assert q.tolist() == [0.9, 0.8]
    assert "whether a gradient is wanted" in step.recompilations[0]


def test_buffers_and_updates_by_hand():
    mean, p = wf.zeros(3), wf.Parameter(np.ones(3, np.float32))

    @wf.compile
    def f(x):
        mean.copy_(mean * 0.5 + x * 0.5)
        p.apply_update(mean * 0.1)
        wf.add(mean, 1.0, out=mean)
        return mean * 2

    raw = mean._data
    x = wf.tensor([1.0, 2.0, 3.0])
    first = f(x).tolist()
    assert first == [3.0, 4.0, 5.0] and mean.tolist() == [1.5, 2.0, 2.5]
    np.testing.assert_allclose(p.detach().numpy(), [0.95, 0.9, 0.85], rtol=1e-6)
    f(x)
    assert mean._data is raw and mean.tolist() == [2.25, 3.0, 3.75]


def test_memory_that_native_code_cannot_use_is_changed_where_it_is():
    p = wf.Parameter(np.ones((2, 3)))
    optimizer = wf.optim.Adam([p], lr=0.1)

    @wf.compile
    def step(x):
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()

    x = wf.tensor(np.ones((2, 3)))
    step(x)
    memory = np.asfortranarray(p._data)
    p._data = memory
    moment = optimizer.state["0"]["exp_sum"] = np.asfortranarray(optimizer.state["0"]["exp_sum"])
    before, sums = memory.copy(), moment.copy()
    step(x)
    assert p._data is memory and (memory < before).all()
    assert optimizer.state["0"]["exp_sum"] is moment and (moment > sums).all()


def test_a_graph_from_before_notices_that_a_step_has_overwritten_what_it_saved():
    p = wf.Parameter(np.ones(2))
    step = wf.compile(lambda: p.apply_update(p.detach() * 0.5))
    for _ in range(2):
        y = (p * p).sum()
        step()
        with pytest.raises(errors.SavedValueOverwritten):
            y.backward()


def test_memory_that_is_put_under_a_captured_tensor():
    p = wf.Parameter(np.ones(2, np.float32))
    f = wf.compile(lambda x: (p * x).detach())
    x = wf.tensor([1.0, 2.0])
    f(x)
    p._data = np.array([3.0, 4.0], np.float32)
    assert f(x).tolist() == [3.0, 8.0]
    p._data = np.array([3.0, 4.0])
    assert f(x).dtype == wf.float64
    assert "the shape or dtype of the tensor of float32[2]" in f.recompilations[0]


def test_an_error_while_it_is_written_down_changes_nothing():
    m = model()
    optimizer = wf.optim.AdamW(m.parameters(), lr=0.1)
    before = {k: v.tolist() for k, v in m.state_dict().items()}
    state = wf.random.get_state()

    @wf.compile
    def step(x, y):
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        optimizer.step()
        if loss > 0:
            return loss

    with pytest.raises(errors.StagingError):
        step(*next(batches(1)))
    assert {k: v.tolist() for k, v in m.state_dict().items()} == before
    assert all(p.grad is None for p in m.parameters())
    assert optimizer.state == {} and wf.random.get_state() == state


def test_a_loss_whose_graph_was_freed_says_so():
    p = wf.Parameter([1.0])

    @wf.compile
    def step(x):
        loss = (p * x).sum()
        loss.backward()
        return loss

    with pytest.raises(errors.GraphFreed):
        step(wf.tensor([2.0])).backward()


def test_a_gradient_map_is_returned():
    p = wf.Parameter(np.array([1.0, 2.0]))
    f = wf.compile(lambda x: ((p * x).sum() ** 2).backward())
    for start in ([3.0, 4.0], [5.0, 6.0]):
        x = wf.tensor(np.array(start), requires_grad=True)
        grads = f(x)
        total = 2 * (start[0] + 2 * start[1])
        assert grads[p].tolist() == [total * start[0], total * start[1]]
        assert grads[x].tolist() == x.grad.tolist() == [total, 2 * total]
        p.grad = None


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_is_compiled_in(device):
    w = wf.Parameter(wf.ones((4, 4), dtype="float32", device=device))

    def f(x):
        with wf.amp.autocast("bfloat16"):
            return (x @ w).sum()

    x = wf.tensor(np.full((2, 4), 0.1, np.float32), device=device)
    compiled = wf.compile(f)
    assert compiled(x).item() == pytest.approx(f(x).item(), rel=2 * 2**-8)
    assert "matmul" in [e.op.name for e in compiled.graph.equations]
    assert wf.bfloat16 in {a.dtype for a in compiled.graph.avals}


@pytest.mark.parametrize("device", DEVICES)
def test_clipping_and_averages_in_a_step(device):
    def run(compiled, how):
        p = wf.Parameter(wf.tensor(np.linspace(-2.0, 3.0, 6).reshape(2, 3), device=device))
        optimizer = wf.optim.SGD([p], lr=0.1)
        ema = wf.optim.EMA([p], decay=0.5)
        norms = []

        def step(x):
            loss = ((p * x) ** 2).sum()
            loss.backward()
            norm = how([p])
            optimizer.step()
            optimizer.zero_grad()
            ema.update()
            return loss, norm

        f = wf.compile(step) if compiled else step
        for k in range(6):
            x = wf.tensor(np.full((2, 3), 1.5 - k / 4), device=device)
            norms.append(float(f(x)[1] or 0.0))
        return p.detach().numpy(), ema.average_of(p).numpy(), norms, ema.updates

    clippings = (
        lambda ps: wf.optim.clip_grad_norm(ps, 1.0),
        lambda ps: wf.optim.clip_grad_norm(ps, 1.0, norm_type=np.inf),
        lambda ps: wf.optim.clip_grad_norm(ps, 100.0, norm_type=3.0),
        lambda ps: wf.optim.clip_grad_value(ps, 0.5),
        lambda ps: wf.optim.clip_grad_adaptive(ps, 0.01),
    )
    for how in clippings:
        for want, got in zip(run(False, how), run(True, how), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12)


def test_an_average_that_goes_with_an_optimizer():
    def run(compiled):
        p = wf.Parameter(np.ones(3))
        optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([p], lr=0.1), decay=0.5)

        def step(x):
            ((p * x) ** 2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        x = wf.tensor(np.arange(3.0))
        f = wf.compile(step) if compiled else step
        if compiled:
            with pytest.raises(errors.StagingError, match="take that outside"):
                f(x)
        step(x)
        for _ in range(4):
            f(x)
        return optimizer.ema.average_of(p).numpy()

    np.testing.assert_allclose(run(True), run(False), rtol=1e-12)


def test_arguments_that_are_changed():
    @wf.compile
    def f(x, y):
        x.copy_(x + 1)
        y[0] = x[1]

    x, y = wf.tensor([1.0, 2.0]), wf.tensor([5.0, 6.0])
    memory, other = x._data, y.detach()
    for k in range(2):
        f(x, y)
        assert x.tolist() == [2.0 + k, 3.0 + k] and y.tolist() == [3.0 + k, 6.0]
    assert x._data is memory and other.tolist() == [5.0, 6.0]
