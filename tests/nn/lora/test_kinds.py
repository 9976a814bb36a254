"""Adapters of every kind: formulas, merging, states, compiled steps, mixed precision, any base."""

import copy
import pickle
import random

import numpy as np
import pytest

import weft as wf

from .twins import KINDS, NAMES, adapted, array, deltas, model, options, same_deltas, stir, updated

nn = wf.nn


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_values_are_those_of_the_formula_apart_merged_and_compiled(kind, seed):
    mine = adapted(seed, kind, mixed=True, dtype="float64", names=NAMES)
    x = np.random.default_rng(seed).standard_normal((2, 3, 6))
    expected = x
    for k in (0, None, 2, 3):
        if k is None:
            expected = np.tanh(expected)
        elif k == 2:
            for j in (0, None, 2):
                if j is None:
                    expected = np.tanh(expected)
                else:
                    expected = expected @ updated(mine[2][j]).T + mine[2][j].bias.numpy()
        else:
            bias = mine[k].bias
            expected = expected @ updated(mine[k]).T + (0.0 if bias is None else bias.numpy())
    step = wf.compile(lambda x: mine(x))
    assert all(p.dtype == wf.float64 for _, p in mine.lora_parameters())
    for forward in (mine, step):
        np.testing.assert_allclose(forward(wf.tensor(x)).detach().numpy(), expected, rtol=1e-10)
    base = {n: p.tolist() for n, p in mine.named_parameters()}
    assert nn.merge_lora(mine) == NAMES and nn.merge_lora(mine) == []
    for forward in (mine, step):
        np.testing.assert_allclose(forward(wf.tensor(x)).detach().numpy(), expected, rtol=1e-10)
    assert nn.unmerge_lora(mine) == NAMES
    assert base == {n: p.tolist() for n, p in mine.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_its_base_at_first(kind):
    plain, mine = model(1, "bfloat16"), model(1, "bfloat16")
    nn.add_lora(mine, "*", rank=1, kind=kind)
    x = wf.randn((4, 6), dtype="bfloat16")
    assert mine(x).tolist() == plain(x).tolist() and mine(x).dtype == wf.bfloat16
    assert {p.dtype for _, p in mine.lora_parameters()} == {wf.float32}
    assert not [n for n, p in mine.named_parameters() if p.requires_grad != ("lo" in n)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind, compiled):
    mine = adapted(2, kind, dtype="float64", names=["0"])[0]
    x = wf.tensor(np.random.default_rng(0).standard_normal((3, 6)))
    trained = {n: getattr(mine, n).detach() for n in mine.adapters}
    if kind == "dora":  # its norm is a constant to gradients
        norms = mine._norms(mine.base_weight()).detach()
        mine._norms = lambda weight: norms

    def loss(*values):
        return (nn.functional_call(mine, dict(zip(trained, values, strict=True)), x) ** 3).sum()

    wf.check_grads(wf.compile(loss) if compiled else loss, tuple(trained.values()), 1)


def test_a_row_of_zeros_stays_finite_in_dora():
    layer = nn.Linear(4, 3)
    with wf.no_grad():
        layer.weight[1] = 0.0
    mine = nn.Sequential(layer)
    nn.add_lora(mine, kind="dora", rank=1)
    y = mine(wf.ones((2, 4)))
    grads = y.sum().backward()
    assert np.isfinite(y.tolist()).all() and grads[mine[0].lora_B].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["state", "file", "deepcopy", "pickle"])
@pytest.mark.parametrize("seed", range(3))
def test_a_state_means_the_same_merged_or_not(kind, way, seed, tmp_path):
    draw = random.Random(seed)
    mine, other = (adapted(seed, kind, mixed=True) for _ in range(2))
    stir(other)
    x = wf.randn((3, 6))
    expected = mine(x).tolist()
    for net in (mine, other):
        for m in nn.lora.adapted_layers(net).values():
            if draw.random() < 0.5:
                m.merge()
    if way == "state":
        other.load_state_dict(mine.state_dict())
    elif way == "file":
        wf.save_checkpoint(tmp_path / "m", wf.Checkpoint(mine.state_dict(), {}, 0, 0))
        other.load_state_dict(wf.load_checkpoint(tmp_path / "m").model_state)
    else:
        other = copy.deepcopy(mine) if way == "deepcopy" else pickle.loads(pickle.dumps(mine))
    np.testing.assert_allclose(other(x).tolist(), expected, rtol=1e-4, atol=1e-5)
    nn.unmerge_lora(other)
    assert other(x).tolist() == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_while_merged_is_refused(kind):
    mine = adapted(0, kind, names=["0"])
    nn.merge_lora(mine)
    for name in mine[0].adapters:
        p = getattr(mine[0], name)
        before = p.detach().clone()
        with wf.no_grad():
            p += 1.0
        with pytest.raises(wf.errors.ArgumentError, match="call unmerge"):
            mine(wf.ones((1, 6)))
        with wf.no_grad():
            p.copy_(before)
        mine(wf.ones((1, 6)))


@pytest.mark.parametrize("kind", KINDS)
def test_training_compiled_and_eager_agree_and_leave_the_base(kind):
    x = np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32)
    losses = []
    for compiled in (False, True):
        mine = adapted(4, kind, names=NAMES)
        frozen = {n: p.tolist() for n, p in mine.named_parameters() if not p.requires_grad}
        optimizer = wf.optim.AdamW(mine.lora_parameters(), lr=3e-2)
        loss_of = lambda x, net=mine: ((net(x) - 1.0) ** 2).mean()  # noqa: E731
        loss_of = wf.compile(loss_of) if compiled else loss_of
        losses.append([])
        for _ in range(20):
            loss = loss_of(wf.tensor(x))
            losses[-1].append(loss.item())
            optimizer.step(loss.backward())
        after = dict(mine.named_parameters())
        assert all(after[n].tolist() == v for n, v in frozen.items())
    assert losses[0][-1] < 0.8 * losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_is_the_same_function_rounded(kind):
    mine = adapted(5, kind, names=NAMES)
    x = wf.randn((8, 6))
    exact = mine(x)
    with wf.amp.autocast("bfloat16"):
        y = mine(x)
        grads = (y.to("float32") ** 2).sum().backward()
    scale = np.abs(exact.tolist()).max()
    np.testing.assert_allclose(array(y), array(exact), atol=2**-4 * scale)
    for _, p in mine.lora_parameters():
        assert grads[p].dtype == wf.float32 and bool(grads[p].isfinite().all())


class Stored(nn.Module):
    """A linear layer of 8 bits with one scale for each row, as a base of another kind."""

    def __init__(self, linear, dense=True):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        w = linear.weight.detach()
        scale = wf.abs(w).max(axis=1, keepdims=True) / 127.0
        self.register_buffer("codes", wf.round(w / scale).to("int8"))
        self.register_buffer("scale", scale)
        self.register_parameter("bias", linear.bias)
        if dense:
            self.dense_weight = lambda: self.codes.to(self.scale.dtype) * self.scale

    def forward(self, input):
        w = self.codes.to(self.scale.dtype) * self.scale
        return nn.functional.linear(input, w, self.bias)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_base_of_another_kind_is_adapted_saved_and_not_merged(kind, dropout, tmp_path):
    def stored():
        wf.random.seed(0)
        return nn.Sequential(Stored(nn.Linear(6, 8)), nn.Linear(8, 4))

    mine = stored()
    assert nn.add_lora(mine, "*", rank=2, kind=kind, dropout=dropout) == ["0", "1"]
    stir(mine)
    assert [n for n, p in mine.named_parameters() if p.requires_grad] == [
        n for n, _ in mine.lora_parameters()
    ]
    x = wf.randn((3, 6))
    got = mine.eval()(x)
    h = x.numpy() @ updated(mine[0]).T + mine[0].base_layer.bias.numpy()
    want = h @ updated(mine[1]).T + mine[1].bias.numpy()
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-4, atol=1e-5)
    step = wf.compile(lambda x: mine(x))
    np.testing.assert_allclose(step(x).detach().numpy(), want, rtol=1e-4, atol=1e-5)
    mine.train()
    assert (mine(x).tolist() == got.tolist()) == (dropout == 0)
    with pytest.raises(wf.errors.ArgumentError, match="is a Stored, not a plain Linear"):
        nn.merge_lora(mine)
    assert not mine[1].merged  # nothing was done
    nn.save_lora(mine, tmp_path / "a")
    other = stored()
    nn.load_lora(other, tmp_path / "a")
    same_deltas(deltas(mine), deltas(other))
    again = stored()
    nn.add_lora(again, "*", rank=2, kind=kind)
    again.load_state_dict(mine.state_dict())
    assert again.eval()(x).tolist() == mine.eval()(x).tolist()


class Doubled(nn.Linear):
    def forward(self, input):
        return 2.0 * super().forward(input)


def test_a_subclass_of_linear_keeps_its_own_forward():
    plain = nn.Sequential(Doubled(4, 3))
    x = wf.randn((2, 4))
    before = plain(x).tolist()
    nn.add_lora(plain, "*", rank=1)
    assert plain(x).tolist() == before and not plain[0].base_layer.weight.requires_grad


def test_dora_needs_the_weight():
    mine = nn.Sequential(Stored(nn.Linear(6, 8), dense=False))
    with pytest.raises(wf.errors.ArgumentError, match="a Stored does not give its weight"):
        nn.add_lora(mine, kind="dora")
    nn.add_lora(mine, kind="lora")


@pytest.mark.parametrize("seed", range(10))
def test_patterns_give_each_layer_its_own_options(seed):
    """Against a plain reading of the rules: the first pattern that fits counts."""
    draw = random.Random(seed)
    patterns = draw.sample(["0", "2.*", "2.2", "*", "?", "2.0"], draw.randint(1, 4))
    given = {p: options(draw, draw.choice(KINDS)) for p in patterns}
    mine = model(seed)
    spelled = given if draw.random() < 0.5 else list(given.items())
    fits = {"0": "0 * ?", "2.0": "2.* * 2.0", "2.2": "2.* 2.2 *", "3": "* ?"}
    expected = {
        n: next(given[p] for p in patterns if p in fits[n].split())
        for n in NAMES
        if set(patterns) & set(fits[n].split())
    }
    assert nn.add_lora(mine, spelled, dropout=0.25) == list(expected)
    found = nn.lora.adapted_layers(mine)
    assert list(found) == list(expected)
    for n, m in found.items():
        got = {"rank": m.rank, "alpha": m.alpha, "kind": m.kind}
        assert got == {k: v for k, v in expected[n].items() if k != "factor"}
        assert m.dropout == 0.25


def test_another_call_adds_and_leaves_the_rest_as_it_is():
    mine = model()
    assert nn.add_lora(mine, "0", rank=1) == ["0"]
    mine[0].lora_A.requires_grad_(False)
    mine[3].weight.requires_grad_(True)
    before = mine[0].lora_A.tolist()
    assert nn.add_lora(mine, ["*"], rank=2, kind="lokr") == ["2.0", "2.2", "3"]
    assert mine[0].rank == 1 and mine[0].lora_A.tolist() == before
    trained = {n for n, p in mine.named_parameters() if p.requires_grad}
    assert "0.lora_A" not in trained and "0.lora_B" in trained and "2.0.lokr_w1" in trained
    assert not [n for n in trained if n.endswith(("weight", "bias"))]
    with pytest.raises(wf.errors.ArgumentError, match="matches have an adapter already"):
        nn.add_lora(mine, "2.*")


BAD = [
    (lambda: nn.add_lora(model(), ["2.*", "2.4"]), r"'2.4' matches no Linear .* are 2.2, 2.0"),
    (lambda: nn.add_lora(model(), {"0": {"ranks": 3}}), "'ranks' for '0', expected of rank"),
    (lambda: nn.add_lora(model(), [("0", {}, 1)]), "expected a string, or a pair"),
    (lambda: nn.add_lora(model(), kind="loha"), "kind='loha', expected 'lora' or 'dora'"),
    (lambda: nn.add_lora(model(), factor=4), "only 'lokr' has one"),
    (lambda: nn.add_lora(model(), kind="lokr", factor=0), "factor=0, expected an integer"),
    (lambda: nn.add_lora(model(), alpha=0.0), "alpha=0.0, expected a number other than 0"),
    (lambda: nn.add_lora(model(), alpha=float("nan")), "alpha=nan"),
    (lambda: nn.add_lora(model(), {"0": {"rank": 0}}), "rank=0, expected an integer of 1"),
]


@pytest.mark.parametrize("call, message", BAD, ids=[m for _, m in BAD])
def test_bad_arguments(call, message):
    with pytest.raises(wf.errors.WeftError, match=message):
        call()


def test_a_call_that_is_refused_changes_nothing():
    mine = model()
    with pytest.raises(wf.errors.WeftError):
        nn.add_lora(mine, [("0", {}), ("3", {"rank": 0})])
    assert not nn.lora.adapted_layers(mine)
