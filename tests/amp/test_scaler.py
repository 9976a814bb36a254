"""GradScaler: beside PyTorch's, step by step; steps left out without a trace; misuse."""

import inspect

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.amp import AmpConfig, Dynamic, GradScaler, Static
from weft.optim.optimizer import Optimizer

from .devices import DEVICES, host


def pair(**options):
    """The same parameter and scaler, here and in PyTorch."""
    p, q = wf.Parameter([1.0, -2.0]), torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    ours, theirs = GradScaler(**options), torch.amp.GradScaler("cpu", **options)
    return (p, wf.optim.Adam([p], lr=0.1), ours), (q, torch.optim.Adam([q], lr=0.1), theirs)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"init_scale": 4.0, "growth_interval": 2},
        {"init_scale": 3.3, "growth_factor": 1.7, "backoff_factor": 0.3, "growth_interval": 1},
        {"init_scale": 2.0**126, "growth_interval": 1},
        {"enabled": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("clipped", [False, True])
def test_the_same_steps_as_torch(options, clipped):
    """Losses with now and then an infinite or a NaN gradient."""
    (p, ours, scaler), (q, theirs, reference) = pair(**options)
    rng = np.random.default_rng(3)
    broken = {3: np.inf, 4: -np.inf, 11: np.nan, 12: np.inf, 13: np.inf}
    enabled = options.get("enabled", True)
    for step in range(30):
        slopes = rng.standard_normal(2).astype(np.float32)
        if enabled and step in broken:
            slopes[step % 2] = broken[step]
        ours.zero_grad()
        theirs.zero_grad()
        scaler.scale((p * wf.tensor(slopes)).sum()).backward()
        reference.scale((q * torch.tensor(slopes)).sum()).backward()
        if clipped:
            scaler.unscale_(ours)
            reference.unscale_(theirs)
            wf.optim.clip_grad_norm([p], 0.5)
            torch.nn.utils.clip_grad_norm_([q], 0.5)
        scaler.step(ours)
        reference.step(theirs)
        assert scaler.skipped == (enabled and not_finite(reference))
        scaler.update()
        reference.update()
        assert scaler.get_scale() == reference.get_scale()
        assert scaler.state_dict() == reference.state_dict()
        np.testing.assert_allclose(host(p), host(q), rtol=1e-5)


def not_finite(reference) -> bool:
    """Whether PyTorch's scaler has met an overflow of its own since the last update."""
    states = reference._per_optimizer_states.values()
    return any(v.item() for s in states for v in s["found_inf_per_device"].values())


def test_states_are_exchanged_with_torch():
    (p, ours, scaler), (q, theirs, reference) = pair(init_scale=8.0, growth_interval=3)
    for _ in range(2):
        scaler.scale(p.sum()).backward()
        scaler.step(ours)
        scaler.update()
    reference.load_state_dict(scaler.state_dict())
    assert reference.state_dict() == scaler.state_dict()
    again = GradScaler()
    again.load_state_dict(reference.state_dict())
    reference.scale(q.sum()).backward()
    reference.step(theirs)
    reference.update()
    again.scale(p.sum()).backward()
    again.step(ours)
    again.update()
    assert again.get_scale() == reference.get_scale() == 16.0


def test_states_of_others_are_refused():
    with pytest.raises(errors.StateMismatch, match="empty state"):
        GradScaler().load_state_dict({})
    with pytest.raises(errors.StateMismatch, match=r"missing: .*growth_interval"):
        GradScaler().load_state_dict({"scale": 2.0})
    off = GradScaler(enabled=False)
    assert off.state_dict() == {}
    off.load_state_dict({})


# -- a step that is left out leaves no trace ----------------------------------------------------

OPTIMIZERS = sorted(
    name
    for name, cls in vars(wf.optim).items()
    if inspect.isclass(cls) and issubclass(cls, Optimizer) and cls is not Optimizer
)


def trained(name: str, device: str, dtype="float32"):
    """An optimizer after a step, with large parameters too: 8-bit states are for those."""
    rng = np.random.default_rng(5)
    shapes = [(64, 96), (3, 2)] if name == "Muon" else [(64, 96), (7,), ()]
    params = [
        wf.Parameter(wf.tensor(rng.standard_normal(s), dtype=dtype, device=device)) for s in shapes
    ]
    optimizer = getattr(wf.optim, name)(params)
    return params, optimizer


def bits(tree) -> object:
    """All numbers and arrays of a state, as bytes."""
    if isinstance(tree, dict):
        return {k: bits(v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return [bits(v) for v in tree]
    return host(tree).tobytes() if isinstance(tree, wf.Tensor) else tree


def scaled_gradients(params, scaler, broken: float | None):
    slopes = [wf.ones_like(p).detach() for p in params]
    if broken is not None:
        slopes[-1] = slopes[-1] * broken
    total = sum(((p * s).sum() for p, s in zip(params, slopes, strict=True)), start=0.0)
    return scaler.scale(total).backward()


@pytest.mark.filterwarnings("ignore:invalid value encountered in dot")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("broken", [np.inf, np.nan])
@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "LBFGS"])
def test_an_overflow_changes_nothing(name, averaged, broken, device):
    params, optimizer = trained(name, device)
    optimizer = wf.optim.EMAOptimizer(optimizer, 0.9) if averaged else optimizer
    scaler = GradScaler(init_scale=1024.0)
    for _ in range(2):
        scaler.step(optimizer, scaled_gradients(params, scaler, None))
        scaler.update()
        assert not scaler.skipped
    before = bits([params, optimizer.state_dict()])
    scaler.step(optimizer, scaled_gradients(params, scaler, broken))
    scaler.update()
    assert scaler.skipped and scaler.get_scale() == 512.0
    assert bits([params, optimizer.state_dict()]) == before
    scaler.step(optimizer, scaled_gradients(params, scaler, None))
    scaler.update()
    assert not scaler.skipped and bits([params, optimizer.state_dict()]) != before


def test_all_optimizers_were_met():
    assert {"SGD", "Adam", "AdamW8bit", "Adafactor", "Muon", "LBFGS"} <= set(OPTIMIZERS)
    assert len(OPTIMIZERS) >= 14


def test_an_average_of_its_own_and_groups():
    p, q = wf.Parameter([1.0]), wf.Parameter([2.0])
    groups = [wf.optim.ParameterGroup([p]), wf.optim.ParameterGroup([q], lr_scale=0.5)]
    optimizer = wf.optim.MultiGroupOptimizer(wf.optim.Adam(lr=0.1), groups)
    ema, scaler = wf.optim.EMA([p, q], 0.5), GradScaler()
    for broken in (1.0, np.inf):
        before = bits([[p, q], optimizer.state_dict(), ema.state_dict()])
        scaler.scale((p * broken + q).sum()).backward()
        scaler.step(optimizer)
        if not scaler.skipped:
            ema.update()
        scaler.update()
        after = bits([[p, q], optimizer.state_dict(), ema.state_dict()])
        assert (before == after) == (broken == np.inf)


# -- unscaling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
class TestUnscale:
    def gradients(self, device, dtype):
        rng = np.random.default_rng(1)
        shapes = [(70001,), (3, 4), (), (0,)]
        return [wf.tensor(rng.standard_normal(s), dtype=dtype, device=device) for s in shapes]

    def test_the_norm_is_that_of_the_gradients_afterwards(self, device, dtype):
        scaler = GradScaler(init_scale=256.0)
        scaler.scale(wf.ones(()))
        given = self.gradients(device, dtype)
        grads = [g * 256.0 for g in given]
        norm = float(scaler.unscale(grads))  # a GPU's is a tensor
        assert [g.tolist() for g in grads] == [g.tolist() for g in given]
        assert all(g.dtype.name == dtype for g in grads)
        expected = float(wf.optim.global_norm(given))
        if (device, dtype) == ("cpu", "float32"):
            assert norm == expected
        assert norm == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
    def test_it_is_not_finite_if_a_gradient_is_not(self, device, dtype, bad):
        scaler = GradScaler(init_scale=2.0)
        scaler.scale(wf.ones(()))
        grads = self.gradients(device, dtype)
        grads[0][70000] = bad
        assert not np.isfinite(float(scaler.unscale(grads)))

    def test_squares_that_overflow_do_not_count(self, device, dtype):
        scaler = GradScaler(init_scale=2.0)
        scaler.scale(wf.ones(()))
        grads = [wf.full((5,), 2e30, dtype=dtype, device=device)]
        assert float(scaler.unscale(grads)) == pytest.approx(5**0.5 * 1e30, rel=2**-7)


def test_every_form_of_gradients():
    def parts():
        p = wf.Parameter([3.0, 4.0])
        return p, wf.optim.SGD([p], lr=1.0), GradScaler(init_scale=4.0)

    expected = [2.0, 3.0]
    p, optimizer, scaler = parts()
    scaler.scale(p.sum()).backward()
    assert scaler.unscale(optimizer) == pytest.approx(2**0.5)
    scaler.step(optimizer)
    assert p.tolist() == expected
    for form in (lambda p, g: g, lambda p, g: [g[p]], lambda p, g: [(p, g[p])]):
        p, optimizer, scaler = parts()
        grads = form(p, scaler.scale(p.sum()).backward())
        scaler.step(optimizer, grads)
        assert p.tolist() == expected


def test_a_map_is_unscaled_for_itself():
    """The running sums in `.grad` stay scaled: the step is by the map."""
    p = wf.Parameter([1.0])
    scaler = GradScaler(init_scale=4.0)
    grads = scaler.scale(p.sum()).backward()
    scaler.unscale(grads)
    assert grads[p].tolist() == [1.0] and p.grad.tolist() == [4.0]


def test_unscale_then_clip():
    p = wf.Parameter([3.0, 4.0])
    scaler = GradScaler(init_scale=1024.0)
    grads = scaler.scale((p * p).sum()).backward()
    norm = scaler.unscale(grads)
    assert norm == 10.0
    wf.optim.clip_grads_with_norm(grads, 1.0, norm)
    np.testing.assert_allclose(host(grads[p]), [0.6, 0.8], rtol=1e-6)
    for broken in (np.inf, np.nan):
        wf.optim.clip_grads_with_norm(grads, 0.1, broken)
    np.testing.assert_allclose(host(grads[p]), [0.6, 0.8], rtol=1e-6)


def test_scale_takes_lists_and_tuples():
    scaler = GradScaler(init_scale=8.0)
    one, (two, [three]) = scaler.scale((wf.ones(()), [wf.ones(()), [wf.ones(())]]))
    assert one.item() == two.item() == three.item() == 8.0
    with pytest.raises(errors.DTypeError, match="got a float, expected a tensor or a list"):
        scaler.scale(2.0)


def test_several_optimizers_share_an_overflow():
    p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
    first, second = wf.optim.SGD([p], lr=1.0), wf.optim.SGD([q], lr=1.0)
    scaler = GradScaler(init_scale=4.0)
    scaler.scale((p * np.inf).sum() + q.sum()).backward()
    scaler.step(first)
    assert scaler.skipped
    scaler.step(second)
    assert not scaler.skipped
    scaler.update()
    assert (p.item(), q.item(), scaler.get_scale()) == (1.0, 0.0, 2.0)


def test_a_scale_of_ones_own():
    scaler = GradScaler()
    scaler.update(new_scale=64)
    assert scaler.get_scale() == 64.0
    with pytest.raises(errors.ArgumentError, match="expected a number > 0"):
        scaler.update(new_scale=-1.0)


def test_from_a_config():
    dynamic = GradScaler.from_config(AmpConfig(loss_scaler=Dynamic(8.0, growth_interval=1)))
    static = GradScaler.from_config(AmpConfig(loss_scaler=Static(8.0)))
    for scaler, after in ((dynamic, 16.0), (static, 8.0)):
        p = wf.Parameter([1.0])
        scaler.scale(p.sum()).backward()
        scaler.step(wf.optim.SGD([p], lr=1.0))
        scaler.update()
        assert (p.item(), scaler.get_scale()) == (0.0, after)
        scaler.load_state_dict(scaler.state_dict())
    for config in (AmpConfig(loss_scaler=None), AmpConfig(enabled=False)):
        assert not GradScaler.from_config(config).is_enabled()


def test_not_enabled():
    p = wf.Parameter([3.0, 4.0])
    optimizer, scaler = wf.optim.SGD([p], lr=1.0), GradScaler(enabled=False)
    loss = (p * p).sum()
    assert scaler.scale(loss) is loss
    grads = loss.backward()
    assert scaler.unscale(grads) == 10.0 and grads[p].tolist() == [6.0, 8.0]
    scaler.step(optimizer, grads)
    scaler.update()
    assert p.tolist() == [-3.0, -4.0] and scaler.get_scale() == 1.0
    assert GradScaler().is_enabled() and not scaler.is_enabled()


# -- misuse, where PyTorch raises too -----------------------------------------------------------


class TestMisuse:
    def setup_method(self):
        self.p, self.q = wf.Parameter([1.0]), torch.nn.Parameter(torch.ones(1))
        self.ours = wf.optim.SGD([self.p], lr=0.1), GradScaler()
        self.theirs = torch.optim.SGD([self.q], lr=0.1), torch.amp.GradScaler("cpu")

    def backward(self):
        self.ours[1].scale(self.p.sum()).backward()
        self.theirs[1].scale(self.q.sum()).backward()

    def both(self, call, message):
        for optimizer, scaler in (self.ours, self.theirs):
            kinds = errors.WeftError if scaler is self.ours[1] else (RuntimeError, AssertionError)
            with pytest.raises(kinds) as e:
                call(scaler, optimizer)
            if scaler is self.ours[1]:
                assert message in str(e.value)

    def each(self, call):
        for optimizer, scaler in (self.ours, self.theirs):
            call(scaler, optimizer)

    def test_without_scale(self):
        self.p.sum().backward()
        self.q.sum().backward()
        for call in (lambda s, o: s.unscale_(o), lambda s, o: s.step(o)):
            self.both(call, "call scaler.scale(loss).backward()")

    def test_unscale_twice(self):
        self.backward()
        self.each(lambda s, o: s.unscale_(o))
        self.both(lambda s, o: s.unscale_(o), "unscale() was called with these gradients")

    def test_unscale_after_step(self):
        self.backward()
        self.each(lambda s, o: s.step(o))
        self.both(lambda s, o: s.unscale_(o), "step() was taken with these gradients")

    def test_step_twice(self):
        self.backward()
        self.each(lambda s, o: s.step(o))
        self.both(lambda s, o: s.step(o), "call update() after every step")
        self.each(lambda s, o: s.update())
        self.backward()
        self.each(lambda s, o: s.step(o))

    def test_update_without_a_step(self):
        self.backward()
        self.both(lambda s, o: s.update(), "no gradients were unscaled since the last update()")

    def test_no_gradients(self):
        self.backward()
        self.each(lambda s, o: o.zero_grad())
        self.both(lambda s, o: s.step(o), "there are no gradients")

    def test_closures(self):
        self.backward()

        def closure():
            raise AssertionError("not to be called")

        with pytest.raises(RuntimeError):
            self.theirs[1].step(self.theirs[0], closure=closure)
        with pytest.raises(errors.ArgumentError, match="cannot be scaled from outside"):
            self.ours[1].step(self.ours[0], closure)
        p = wf.Parameter([1.0])
        with pytest.raises(errors.ArgumentError, match="cannot be scaled from outside"):
            self.ours[1].step(wf.optim.LBFGS([p]), closure)

    def test_float16_parameters(self):
        p = wf.Parameter(wf.ones(1, dtype="float16"))
        scaler = GradScaler(init_scale=2.0)
        scaler.scale(p.sum()).backward()
        with pytest.raises(errors.DTypeError, match="keep the parameters in float32"):
            scaler.unscale(wf.optim.SGD([p], lr=1.0))
