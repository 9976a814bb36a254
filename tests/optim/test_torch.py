"""Trajectories beside torch.optim's, over the options that torch's own table of tests lists."""

import numpy as np
import pytest
import torch
from torch.testing._internal.common_optimizers import optim_db

import weft as wf
from weft.optim.whole_rules import orthogonal

STEPS = 100
OURS = "SGD Adam AdamW RMSprop Adagrad NAdam RAdam LBFGS Adafactor Muon".split()
# Ways to compute, not options of the mathematics.
IMPLEMENTATION = {"foreach", "fused", "capturable", "differentiable"}


def listed():
    """(name, keywords) of every input in torch's table, for the optimizers that we have too."""
    for info in optim_db:
        name = info.optim_cls.__name__
        if name in OURS:
            for given in info.optim_inputs_func(device="cpu"):
                if not IMPLEMENTATION & given.kwargs.keys():
                    yield pytest.param(name, precise(given.kwargs), id=f"{name}-{given.desc}")


def precise(options: dict) -> dict:
    """Tensors among the options in float64: torch computes with them in their own dtype."""
    return {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in options.items()}


CASES = list(listed())


def test_the_table_was_read():
    assert {case.values[0] for case in CASES} == set(OURS)
    assert len(CASES) >= 50


def starting_values(name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    shapes = [(6, 4), (3, 5)] if name == "Muon" else [(6, 4), (4,), (2, 3, 5), ()]
    return [rng.standard_normal(shape) for shape in shapes]


def gradient(p: np.ndarray, step: int, i: int) -> np.ndarray:
    """That of a loss with a minimum, and some noise."""
    noise = np.random.default_rng((step, i)).standard_normal(p.shape)
    return np.tanh(p - 0.5) + 0.3 * noise


def agree(ours, theirs) -> None:
    for p, q in zip(ours, theirs, strict=True):
        q = q.detach().numpy()
        error = np.max(np.abs(p.detach().numpy() - q), initial=0.0)
        assert error <= 1e-6 * np.max(np.abs(q))


def pairs(name, options, device):
    values = starting_values(name)
    theirs = [torch.tensor(v, requires_grad=True) for v in values]
    ours = [wf.Parameter(wf.tensor(v, device=device)) for v in values]
    return (
        ours,
        theirs,
        getattr(wf.optim, name)(ours, **options),
        getattr(torch.optim, name)(theirs, **options),
    )


def newton_schulz(grad, ns_coefficients, ns_steps, eps):
    """torch's iterations with NumPy's products: kernels differ in the order of their sums, and so
    now and then in the last of bfloat16's eight bits.
    """

    def rounded(x):
        return torch.from_numpy(np.asarray(x, np.float32)).bfloat16().float().numpy()

    a, b, c = ns_coefficients
    x = rounded(grad.numpy())
    x = x.T if x.shape[0] > x.shape[1] else x
    x = rounded(x / np.maximum(rounded(np.sqrt(np.sum(x * x))), eps))
    for _ in range(ns_steps):
        gram = rounded(x @ x.T)
        x = rounded(a * x + rounded(b * gram + c * (gram @ gram)) @ x)
    return torch.from_numpy(x.T if grad.shape[0] > grad.shape[1] else x).double()


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c.values[0] != "LBFGS"])
def test_trajectory(name, options, device, monkeypatch):
    if name == "Muon" and device == "cpu":
        monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", newton_schulz)
    ours, theirs, mine, yours = pairs(name, options, device)
    for step in range(STEPS):
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            p.grad = wf.tensor(gradient(np.asarray(p.tolist()), step, i), device=device)
            q.grad = torch.tensor(gradient(q.detach().numpy(), step, i))
        mine.step()
        yours.step()
        agree(ours, theirs)


def objective(xp, params):
    """A convex function of all parameters together that is not quadratic."""
    total = 0.0
    for i, p in enumerate(params):
        x = p.reshape((-1,)) - 0.1 * (i + 1)
        total = total + (i + 1) * xp.sum(x**2 + 0.3 * x**4)
    return total + 0.1 * (xp.sum(params[0]) + xp.sum(params[1])) ** 2


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize(("name", "options"), [c for c in CASES if c.values[0] == "LBFGS"])
def test_trajectory_of_a_line_search(name, options, device):
    ours, theirs, mine, yours = pairs(name, options, device)

    def closure(xp, params, optimizer):
        def evaluate():
            optimizer.zero_grad()
            loss = objective(xp, params)
            loss.backward()
            return loss

        return evaluate

    for step in range(STEPS // 4):  # of up to twenty iterations each
        loss = mine.step(closure(wf, ours, mine))
        expected = yours.step(closure(torch, theirs, yours))
        if step == 0:
            assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
        agree(ours, theirs)
    assert mine.memory["func_evals"] == yours.state[theirs[0]]["func_evals"]


def test_orthogonal_steps_seldom_differ_from_torch():
    rng = np.random.default_rng(0)
    coefficients = (3.4445, -4.775, 2.0315)
    differing = 0
    for shape in [(6, 4), (3, 5), (16, 16)] * 20:
        x = rng.standard_normal(shape)
        ours = orthogonal(x, coefficients, 5, 1e-7).astype(np.float64)
        yours = torch.optim._muon._zeropower_via_newtonschulz(
            torch.from_numpy(x), coefficients, 5, 1e-7
        )
        # A sum that is rounded the other way moves x by one of its 2⁸ parts, and each iteration
        # multiplies that by up to 3.4445 where singular values are small.
        error = np.abs(ours - yours.double().numpy()).max()
        differing += error > 0
        assert error <= 2.0**-8 * 3.4445
        assert torch.equal(orthogonal(torch.from_numpy(x), coefficients, 5, 1e-7), yours)
    assert differing <= 10


@pytest.mark.parametrize("name", [n for n in OURS if n not in ("LBFGS", "Muon", "Adafactor")])
def test_complex_parameters(name):
    rng = np.random.default_rng(3)
    value = rng.standard_normal(5) + 1j * rng.standard_normal(5)
    theirs, ours = torch.tensor(value, requires_grad=True), wf.Parameter(value)
    options = {"weight_decay": 0.1}
    mine = getattr(wf.optim, name)([ours], **options)
    yours = getattr(torch.optim, name)([theirs], **options)
    for _ in range(20):
        g = rng.standard_normal(5) + 1j * rng.standard_normal(5)
        theirs.grad = torch.tensor(g)
        mine.step([wf.tensor(g)])
        yours.step()
    agree([ours], [theirs])


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam"])
def test_betas_that_change(name):
    """As schedules of momentum do; our states are sums, torch's are averages."""
    options = {"amsgrad": True} if name.startswith("Adam") else {}
    ours, theirs, mine, yours = pairs(name, options, "cpu")
    for step in range(40):
        betas = 0.95 - 0.1 * (step % 7) / 7, 0.999 - 0.05 * (step // 10)
        yours.param_groups[0]["betas"] = betas
        mine.param_groups[0].update(beta1=betas[0], beta2=betas[1])
        grads = [gradient(q.detach().numpy(), step, i) for i, q in enumerate(theirs)]
        for q, g in zip(theirs, grads, strict=True):
            q.grad = torch.tensor(g)
        mine.step([wf.tensor(g) for g in grads])
        yours.step()
        agree(ours, theirs)
