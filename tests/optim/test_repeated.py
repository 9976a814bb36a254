"""Steps that repeat the last one on PyTorch's arrays, beside PyTorch's optimizers."""

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.optim import repeated

KINDS = {
    "sgd": (wf.optim.SGD, torch.optim.SGD, {"momentum": 0.9}),
    "plain sgd": (wf.optim.SGD, torch.optim.SGD, {}),
    "adam": (wf.optim.Adam, torch.optim.Adam, {"amsgrad": True}),
    "adamw": (wf.optim.AdamW, torch.optim.AdamW, {"weight_decay": 0.1}),
}
EVENTS = ("", "", "lr", "absent", "turned", "replaced", "loaded", "reset", "options")


@pytest.fixture
def taken(monkeypatch) -> list[bool]:
    """Whether each step was a repetition."""
    found: list[bool] = []
    take = repeated.RepeatedStep.take

    def spied(self, optimizer, pairs):
        found.append(take(self, optimizer, pairs))
        return found[-1]

    monkeypatch.setattr(repeated.RepeatedStep, "take", spied)
    return found


class Pair:
    """One optimizer of ours and one of PyTorch's on equal parameters, in two groups."""

    def __init__(self, kind: str, rng):
        ours, theirs, options = KINDS[kind]
        self.kind, self.rng = kind, rng
        values = [torch.from_numpy(rng.normal(size=s)).float() for s in ((3, 4), (5,), (2, 2))]
        self.mine = [wf.Parameter(wf.asarray(v.clone())) for v in values]
        self.yours = [v.clone().requires_grad_() for v in values]

        def groups(params):
            return [{"params": params[:2]}, {"params": params[2:], "lr": 0.02}]

        self.ours = ours(groups(self.mine), lr=0.05, **options)
        self.theirs = theirs(groups(self.yours), lr=0.05, foreach=False, **options)

    def step(self, event: str) -> None:
        grads = [torch.from_numpy(self.rng.normal(size=tuple(p.shape))).float() for p in self.yours]
        if event == "turned":
            grads[0] = grads[0].t().contiguous().t()
        for k, (p, q, g) in enumerate(zip(self.mine, self.yours, grads, strict=True)):
            absent = event == "absent" and k == 1
            p.grad = None if absent else wf.asarray(g.clone(memory_format=torch.preserve_format))
            q.grad = None if absent else g
        self.ours.step()
        self.theirs.step()
        for p, q in zip(self.mine, self.yours, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-5, atol=1e-6)

    def happen(self, event: str) -> None:
        if event == "lr":
            for group in (*self.ours.param_groups, *self.theirs.param_groups):
                group["lr"] = group["lr"] * 0.5
        elif event == "replaced":
            value = torch.from_numpy(self.rng.normal(size=(4, 3))).float().t()  # not contiguous
            self.mine[0]._data = value.clone(memory_format=torch.preserve_format)
            self.yours[0].data = value.clone()
        elif event == "loaded":
            self.ours.load_state_dict(self.ours.state_dict())
        elif event == "reset":
            self.ours.reset()
            self.theirs.state.clear()
        elif event == "options":
            for group in (*self.ours.param_groups, *self.theirs.param_groups):
                group["weight_decay"] = group["weight_decay"] + 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_steps_are_pytorchs_whatever_happens_between_them(kind, seed, taken):
    rng = np.random.default_rng([seed, len(kind)])
    pair = Pair(kind, rng)
    for _ in range(25):
        event = str(rng.choice(EVENTS))
        pair.happen(event)
        pair.step(event)
    assert not all(taken)
    for _ in range(3):  # after which nothing happens, on arrays that are contiguous again
        pair.mine[0]._data = pair.mine[0]._data.contiguous()
        pair.step("")
    assert taken[-1]


def test_a_repeated_step_marks_what_it_overwrites(taken):
    p = wf.Parameter(wf.asarray(torch.ones(3)))
    optimizer = wf.optim.AdamW([p], lr=0.1)
    for _ in range(2):
        optimizer.step([wf.asarray(torch.ones(3))])
    y = (p * p).sum()
    optimizer.step([wf.asarray(torch.ones(3))])
    assert taken == [True, True]
    with pytest.raises(errors.SavedValueOverwritten):
        y.backward()


def test_memory_that_others_share_is_copied_first(taken):
    p = wf.Parameter(wf.asarray(torch.ones(3)))
    optimizer = wf.optim.SGD([p], lr=0.1)
    for _ in range(3):
        optimizer.step([wf.asarray(torch.ones(3))])
    p._data.weft_shared = True
    before = p._data
    kept = before.clone()
    optimizer.step([wf.asarray(torch.ones(3))])
    assert not taken[-1] and p._data is not before
    assert torch.equal(before, kept) and not torch.equal(p._data, kept)


def test_a_count_that_was_changed_by_hand_is_read(taken):
    ps = [wf.Parameter(wf.asarray(torch.ones(3))) for _ in range(2)]
    optimizer = wf.optim.AdamW(ps, lr=0.1)
    for _ in range(3):
        optimizer.step([wf.asarray(torch.ones(3))] * 2)
    assert taken[-1]
    optimizer.state["1"]["step"] = 10
    optimizer.step([wf.asarray(torch.ones(3))] * 2)
    assert not taken[-1]
    assert [optimizer.state[key]["step"] for key in "01"] == [4, 11]


def test_a_gradient_of_another_shape_is_refused(taken):
    p = wf.Parameter(wf.asarray(torch.ones(3)))
    optimizer = wf.optim.SGD([p], lr=0.1)
    for _ in range(2):
        optimizer.step([wf.asarray(torch.ones(3))])
    with pytest.raises(errors.ShapeError):
        optimizer.step([wf.asarray(torch.ones(4))])
    assert optimizer.state["0"]["step"] == 2


def test_states_are_freed_while_the_last_step_is_known():
    from weakref import ref

    p = wf.Parameter(wf.asarray(torch.ones(3)))
    optimizer = wf.optim.AdamW([p], lr=0.1)
    for _ in range(2):
        optimizer.step([wf.asarray(torch.ones(3))])
    arrays = [ref(v) for v in optimizer.state["0"].values() if isinstance(v, torch.Tensor)]
    assert arrays
    optimizer.reset()
    assert [r() for r in arrays] == [None] * len(arrays)


def test_parameters_that_change_places_keep_their_gradients(taken):
    ps = [wf.Parameter(wf.asarray(torch.ones(3))) for _ in range(2)]
    optimizer = wf.optim.SGD(ps, lr=0.5)
    for reverse in (False, False, True):
        if reverse:
            optimizer.param_groups[0]["params"].reverse()
        ps[0].grad, ps[1].grad = wf.asarray(torch.ones(3)), wf.asarray(torch.zeros(3))
        optimizer.step()
    assert taken == [True, False]
    assert [p.tolist() for p in ps] == [[-0.5] * 3, [1.0] * 3]


@pytest.mark.parametrize("kind", [wf.optim.Adam, wf.optim.AdamW, wf.optim.AdamW8bit])
def test_a_compiled_step_leaves_sums_where_an_eager_one_has_averages(kind, taken):
    found = []
    for device in ("torch", "cpu"):
        p = wf.Parameter(wf.tensor([1.0, 2.0], device=device))
        optimizer = kind([p], lr=0.1)

        def step(p=p, optimizer=optimizer):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()

        compiled = wf.compile(step) if device == "torch" else step
        for one in (step, compiled, compiled, step, step):
            one()
        found.append(p.detach().to("cpu").numpy())
    np.testing.assert_allclose(*found, rtol=1e-5)
    assert taken == [False, True]
