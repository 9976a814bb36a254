"""What a function cannot do while it is compiled, and that nothing of it passes silently."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import weft as wf
from weft import errors

HERE = r"test_jit_errors\.py:\d+\)"
X = np.array([1.0, -2.0, 3.0])


def branches(x):
    if x.sum() > 0:
        return x
    return -x


READS = {
    "if": branches,
    "while": lambda x: [x for _ in iter(lambda: bool(x.any()), False)],
    "float": lambda x: x * float(x.sum()),
    "int": lambda x: x * int(x.sum()),
    "index": lambda x: [0, 1, 2][x.sum().to("int64")],
    "item": lambda x: x * x[0].item(),
    "tolist": lambda x: sum(x.tolist()),
    "numpy": lambda x: x * x.numpy().sum(),
    "asarray": lambda x: np.asarray(x),
    "in": lambda x: 3.0 in x,
    "format": lambda x: f"{x[0]:.3f}",
    "max": lambda x: max(x[0], x[1]),
    "a mask": lambda x: x[x > 0],
    "nonzero": lambda x: wf.nonzero(x),
    "unique": lambda x: wf.unique_values(x),
    "a size": lambda x: wf.zeros(x.sum().to("int64")),
}


@pytest.mark.parametrize("name", READS)
def test_values_are_not_known(name):
    with pytest.raises(errors.WeftError, match=HERE) as caught:
        wf.compile(READS[name])(wf.tensor(X))
    assert isinstance(caught.value, errors.StagingError | errors.InterchangeError)
    remedies = ("wf.cond", "wf.where", "wf.scan")
    assert any(r in str(caught.value) for r in remedies)


@pytest.mark.parametrize("name", ["item", "float", "numpy", "tolist", "if"])
def test_values_of_captured_tensors_are_not_constants(name):
    w = wf.tensor(X)
    with pytest.raises(errors.WeftError, match="is being compiled"):
        wf.compile(lambda x: x * 0 + READS[name](w))(wf.tensor(X))


def test_a_captured_index_is_read_at_each_call():
    i = wf.tensor(0)
    f = wf.compile(lambda x: x[i])
    assert f(wf.tensor(X)).item() == 1.0
    i.copy_(wf.tensor(2))
    assert f(wf.tensor(X)).item() == 3.0


def test_where_an_unknown_value_was_made():
    with pytest.raises(errors.StagingError, match=r"made by greater at test_jit_errors\.py:\d+"):
        wf.compile(branches)(wf.tensor(X))


def test_a_static_argument_is_the_remedy():
    def f(x, n):
        return x * 2 if n > 2 else x

    compiled = wf.compile(f, static_argnames="n")
    assert [compiled(wf.tensor(2.0), n).item() for n in (1, 3, 1)] == [2.0, 4.0, 2.0]


KEPT: list = []


def keeps(x):
    KEPT.append(x * 2)
    return x + 1


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t + 1,
        lambda t: t.item(),
        lambda t: t.sum().backward(),
        lambda t: t.numpy(),
        lambda t: wf.compile(lambda x: x + t)(wf.tensor(1.0)),
        lambda t: wf.compile(lambda: t)(),
    ],
    ids=["operation", "item", "backward", "numpy", "another function", "returned"],
)
def test_a_tensor_that_leaks(use):
    KEPT.clear()
    with pytest.warns(errors.SideEffectWarning, match=r"keeps: KEPT had 0 elements and has 1"):
        wf.compile(keeps)(wf.tensor(3.0))
    with pytest.raises(errors.WeftError, match=r"a tensor of keeps \(made by multiply at test_jit"):
        use(KEPT[0])


def test_a_tensor_that_leaks_into_a_module():
    class Keeper(wf.nn.Module):
        def forward(self, x):
            self.last = x * 2
            return x

    keeper = Keeper()
    with pytest.warns(errors.SideEffectWarning, match=r"keeper\.last was given a tensor"):
        wf.compile(lambda x: keeper(x))(wf.tensor(1.0))
    with pytest.raises(errors.LeakedTensor, match="return it from the function instead"):
        keeper.last + 1


COUNT, LOG, TABLE = 0, [], {}


def counts(x):
    global COUNT
    COUNT += 1
    return x * COUNT


def helper(x):
    LOG.append(3)
    return x


class Holder:
    def __init__(self):
        self.steps = 0
        self.inner = SimpleNamespace(rate=0.5)

    def __call__(self, x):
        self.steps += 1
        self.inner.rate *= 2
        return x

    def method(self, x):
        self.steps += 1
        return x


class Counting(wf.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = wf.nn.Sequential(Counted())

    def forward(self, x):
        return self.inside(x)


class Counted(wf.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x


def nested():
    n, seen = 0, {"last": 0}

    def f(x):
        nonlocal n
        n += 1
        seen["last"] = n
        return x

    return f


EFFECTS = {
    "a global": (lambda: counts, ["COUNT was"]),
    "by another function": (lambda: lambda x: helper(x), ["LOG had"]),
    "outer variables": (nested, ["n was 0 and is 1", r"seen\['last'\] was 0 and is 1"]),
    "attributes": (Holder, [r"Holder\.steps was 0", r"rate was 0\.5 and is 1\.0"]),
    "of a method": (lambda: Holder().method, [r"Holder\.steps was 0"]),
    "of modules": (Counting, [r"calls was 0 and is 1"]),
    "in a gradient": (lambda: wf.grad(lambda x: counts(x).sum()), ["COUNT was"]),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_side_effects_are_reported(name):
    make, expected = EFFECTS[name]
    f = wf.compile(make())
    with pytest.warns(errors.SideEffectWarning) as caught:
        f(wf.tensor(X))
    told = [str(w.message) for w in caught]
    assert len(told) == len(expected)
    for pattern in expected:
        assert any(re.search(pattern, t) and "not at each call" in t for t in told), told
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for w in caught:
        assert w.filename == __file__
        line = lines[w.lineno - 1]
        assert any(sign in line for sign in ("+=", "*=", ".append(", '["last"] =')), line
    f(wf.tensor(X))  # compiled before: nothing happens, and nothing is said


def lazily(x):
    if "table" not in TABLE:
        TABLE["table"] = 3.0
    local = [1]
    local.append(2)
    held = {"a": 1}
    held["a"] += 1
    return x * TABLE["table"] * local[1]


class Lazy(wf.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.table = None, {}
        self.norm = wf.nn.BatchNorm1d(3, dtype="float64")

    def forward(self, x):
        self.scale = 2.0 if self.scale is None else self.scale
        self.table[tuple(x.shape)] = "seen"
        return self.norm(x.reshape((1, 3)).repeat(2, axis=0)) * self.scale


def test_what_is_no_side_effect():
    wf.compile(lazily)(wf.tensor(X))
    wf.compile(Lazy())(wf.tensor(X))
    p = wf.Parameter(X)
    optimizer = wf.optim.Adam([p])

    @wf.compile
    def step(x):
        (p * x).sum().backward()
        optimizer.step()
        return p.grad

    step(wf.tensor(X))


def test_memory_that_is_shared():
    a = wf.zeros(3)
    b = a.detach()

    @wf.compile
    def f(x):
        a.copy_(b + x)

    with pytest.raises(errors.StagingError, match=r"changed in place and shares its memory"):
        f(wf.tensor(X, dtype="float32"))
    assert a.tolist() == [0.0, 0.0, 0.0]


def test_a_graph_from_outside():
    w = wf.tensor(X, requires_grad=True)
    h = w * 2
    with pytest.raises(errors.StagingError, match=r"was computed by multiply .* pass it as an"):
        wf.compile(lambda x: (x * h).sum())(wf.tensor(X))
    with wf.no_grad():
        assert wf.compile(lambda x: (x * h).sum())(wf.tensor(X)).item() == 28.0


def test_a_differentiated_value_is_not_assigned_to_what_was_found():
    buffer, w = wf.zeros(3, dtype="float64"), wf.tensor(X, requires_grad=True)

    @wf.compile
    def f(x):
        buffer[0] = (x * w).sum()

    with pytest.raises(errors.StagingError, match=r"assign value\.detach\(\)"):
        f(wf.tensor(X))


def test_what_is_made_once():
    with pytest.raises(errors.StagingError, match="make it outside"):
        wf.compile(lambda x: wf.Parameter(x))(wf.tensor(X))
    with pytest.raises(errors.StagingError, match="fork or split generators outside"):
        wf.compile(lambda x: x * len(wf.random.default_generator.split()))(wf.tensor(X))


def test_anomaly_detection_looks_at_values():
    f = wf.compile(lambda x: x + 1)
    with wf.detect_anomaly(), pytest.raises(errors.StagingError, match=r"fn\.__wrapped__"):
        f(wf.tensor(X))


def test_ordinary_mistakes_are_told_as_ever():
    with pytest.raises(errors.ShapeError, match=r"matmul.*test_jit_errors\.py"):
        wf.compile(lambda x: x @ wf.zeros((4, 4), dtype="float64"))(wf.tensor(X))
    with pytest.raises(errors.DTypeError, match="expected a function"):
        wf.compile(3)
    with pytest.raises(ZeroDivisionError):
        wf.compile(lambda x: 1 / 0)(wf.tensor(X))


def test_a_failing_library_call_says_where():
    f = wf.compile(lambda a: wf.linalg.inv(a))
    with pytest.raises(np.linalg.LinAlgError):
        f(wf.zeros((2, 2)))


def test_in_place_optimizers_without_a_pure_rule():
    p = wf.Parameter(X)
    optimizer = wf.optim.LBFGS([p], lr=0.1)

    @wf.compile
    def step():
        optimizer.step(lambda: (p * p).sum())

    with pytest.raises(errors.StagingError, match="compile the closure instead"):
        step()
    assert p.tolist() == X.tolist()
