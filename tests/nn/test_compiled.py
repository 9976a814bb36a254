"""A compiled module is the module: the same state under the same names, read and written."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import weft as wf
from weft.errors import StagingError

rng = np.random.default_rng(0)


class Block(wf.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = wf.nn.Linear(4, 8), wf.nn.BatchNorm1d(8)
        self.last, self.drop = wf.nn.Linear(8, 2), wf.nn.Dropout(0.5)
        self.scale = wf.Parameter(wf.tensor(1.5))

    def forward(self, x):
        return self.last(self.drop(self.norm(self.first(x)).relu())) * self.scale

    def double(self, x):
        return 2 * self(x)


def normal(*shape):
    return wf.tensor(rng.standard_normal(shape).astype(np.float32))


def pair():
    """A module as it is, and an equal one compiled."""
    wf.random.seed(1)
    plain = Block()
    other = copy.deepcopy(plain)
    return plain, other, wf.compile(other)


def same(a, b) -> None:
    a, b = (v.detach().numpy() for v in (a, b))
    np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def both(plain, compiled, x) -> None:
    wf.random.seed(2)
    want = plain(x)
    wf.random.seed(2)
    same(want, compiled(x))


def test_it_is_a_module_with_the_same_state():
    plain, inner, compiled = pair()
    assert isinstance(compiled, wf.nn.Module) and isinstance(compiled, Block)
    assert repr(compiled) == repr(inner)
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in inner.parameters()]
    for name in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [n for n, _ in getattr(compiled, name)()] == [n for n, _ in getattr(plain, name)()]
    assert list(compiled.state_dict()) == list(plain.state_dict())
    assert compiled.__wrapped__ is inner
    both(plain, compiled, normal(5, 4))


# Changes of state, through the compiled module or the one inside.
CHANGES = {
    "eval": lambda m: m.eval(),
    "train": lambda m: m.eval().train(),
    "a parameter in place": lambda m: m.scale.apply_update(wf.tensor(2.5)),
    "another parameter": lambda m: setattr(m, "scale", wf.Parameter(wf.tensor(0.5))),
    "a parameter below": lambda m: setattr(m.first, "bias", wf.Parameter(wf.ones(8))),
    "loaded": lambda m: m.load_state_dict({k: v * 0 + 1 for k, v in m.state_dict().items()}),
    "zero_grad": lambda m: m.zero_grad(),
    "to": lambda m: m.to("float64"),
    "frozen": lambda m: m.requires_grad_(False),
    "apply": lambda m: m.apply(lambda k: k.eval()),
}


@pytest.mark.parametrize("through", ["compiled", "inner"])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen(change, through):
    plain, inner, compiled = pair()
    x = normal(5, 4)
    both(plain, compiled, x)
    CHANGES[change](plain)
    given = CHANGES[change](compiled if through == "compiled" else inner)
    assert not isinstance(given, wf.nn.Module) or given in (compiled, inner)
    x = x.to(plain.scale.dtype)
    both(plain, compiled, x)
    for a, b in zip(plain.state_dict().values(), compiled.state_dict().values(), strict=True):
        same(a, b)


def test_attributes_are_read_and_written():
    _, inner, compiled = pair()
    compiled.note = 3
    assert inner.note == 3
    inner.note = 4
    assert compiled.note == 4
    del compiled.note
    assert not hasattr(inner, "note")
    compiled.graph = "mine"  # a name that the programs have, too
    assert compiled.graph == inner.graph == "mine"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = compiled.nothing


def test_it_is_trained_as_the_module_is():
    plain, _, compiled = pair()
    plain.drop.p = compiled.drop.p = 0.0
    batches = [(normal(6, 4), normal(6, 2)) for _ in range(5)]
    for model in (plain, compiled):
        step = wf.optim.SGD(model.parameters(), lr=0.01)
        for x, y in batches:
            model.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            step.step()
    for a, b in zip(plain.state_dict().values(), compiled.state_dict().values(), strict=True):
        same(a, b)


def test_in_a_module_and_in_a_compiled_function():
    plain, _, compiled = pair()
    outer = wf.nn.Sequential(compiled, wf.nn.ReLU())
    assert next(n for n, _ in outer.named_parameters()) == "0.scale"
    assert len(list(outer.parameters())) == len(list(plain.parameters()))
    x = normal(5, 4)
    both(wf.nn.Sequential(plain, wf.nn.ReLU()), outer, x)
    both(lambda x: plain(x).sum(), wf.compile(lambda x: compiled(x).sum()), x)
    both(plain.double, compiled.double, x)
    outer.eval()
    assert not compiled.training


def test_transformations_take_it_as_the_module():
    plain, _, compiled = pair()
    x = normal(5, 4)
    plain.eval(), compiled.eval()
    want, got = (wf.grad(lambda m: m(x).sum())(m) for m in (plain, compiled))
    assert type(got) is Block
    for a, b in zip(want.parameters(), got.parameters(), strict=True):
        same(a, b)
    both(lambda x: wf.vmap(plain)(x), lambda x: wf.vmap(compiled)(x), normal(3, 5, 4))


def test_copies_have_programs_and_state_of_their_own():
    plain, _, compiled = pair()
    x = normal(5, 4)
    both(plain, compiled, x)
    for made in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert type(made) is type(compiled) and made.__wrapped__ is not compiled.__wrapped__
        before = compiled.scale.item()
        made.scale.apply_update(wf.tensor(9.0))
        assert compiled.scale.item() == before
        assert made.__wrapped__.scale is made.scale
        made.load_state_dict(plain.state_dict())
        both(copy.deepcopy(plain), made, x)


def test_what_the_programs_tell():
    _, _, compiled = pair()
    compiled(normal(5, 4))
    assert "Block" in compiled.explain() and compiled.recompilations == []
    assert compiled.graph.equations and compiled.kernels
    compiled.eval()
    compiled(normal(5, 4))
    assert len(compiled.recompilations) == 1
    assert list(inspect.signature(compiled.forward).parameters) == ["x"]
    assert type(wf.compile(compiled)) is type(compiled)


def test_a_trainer_takes_it():
    data = [(rng.standard_normal(4).astype(np.float32), np.float32(0.5)) for _ in range(16)]

    def trained(model, **options):
        wf.random.seed(3)
        loader = wf.train.DataLoader(data, batch_size=8)
        loss = lambda m, b: ((m(b[0])[:, 0] - b[1]) ** 2).mean()  # noqa: E731
        run = wf.train.Trainer(
            model, wf.optim.SGD(model.parameters(), lr=0.1), loss, progress=False, **options
        )
        run.fit(loader, epochs=2)
        return model.state_dict()

    plain, _, compiled = pair()
    want = trained(plain)
    for model in (compiled, pair()[2]):
        got = trained(model, compile=model is not compiled)
        for a, b in zip(want.values(), got.values(), strict=True):
            same(a, b)


def test_a_result_cannot_be_a_module_that_was_made_inside():
    def f(x):
        made = wf.nn.Identity()
        made.value = x * 2
        return made

    with pytest.raises(StagingError, match="returns a Identity"):
        wf.compile(f)(normal(3))
