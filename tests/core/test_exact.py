"""Values that Python finds equal and that are not the same: no cache mistakes one for the other."""

import dataclasses
import math
import sys
from itertools import permutations

import numpy as np
import pytest

import weft as wf
from weft.core.exact import Exact, exact
from weft.transform.jacobian import native

NAN = float("nan")
# Of each group all members are equal, or are NaN.
GROUPS = [
    [1, True, 1.0, 1 + 0j],
    [0, False, 0.0, -0.0, complex(0.0, -0.0), complex(-0.0, 0.0)],
    [2, 2.0],
    [NAN, -NAN, float("nan")],
]
PAIRS = [pair for group in GROUPS for pair in permutations(group, 2)]


@dataclasses.dataclass(frozen=True)
class Config:
    v: object


def bits(x):
    x = np.asarray(x.detach() if isinstance(x, wf.Tensor) else x)
    return str(x.dtype), x.shape, x.tobytes()


def same(a, b) -> bool:
    """Whether two numbers of Python's are one: their type, their sign, NaN as well."""
    parts = [(z.real, z.imag) if isinstance(z, complex) else (z,) for z in (a, b)]
    signs = [[(math.isnan(v), math.copysign(1, v)) for v in p] for p in parts]
    return type(a) is type(b) and (a == b or (a != a and b != b)) and signs[0] == signs[1]


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: (v,), lambda v: ((1, v), "a"), Exact])
def test_keys_are_equal_for_the_same_values_only(wrap):
    values = [v for group in GROUPS for v in group]
    values += [np.float32(0.0), np.float32(-0.0), np.float64(1.0), np.int64(1), np.True_]
    for a in values:
        for b in values:
            alike = exact(wrap(a)) == exact(wrap(b))
            assert alike == (type(a) is type(b) and same(a, b)), (a, b)
            assert not alike or hash(exact(wrap(a))) == hash(exact(wrap(b)))


# What a program can do with a number so that another type or sign shows.
USES = {
    "product": lambda x, v: wf.asarray([3, 4]) * v + x.sum() * 0,
    "sign": lambda x, v: x * math.copysign(1.0, v.real if isinstance(v, complex) else v),
    "text": lambda x, v: x * len(repr(v)) + x * len(type(v).__name__),
    "truth of its class": lambda x, v: x if isinstance(v, bool) else x * 2,
}


def _key(f):
    g = wf.compile(lambda x, d: f(x, next(iter(d))))
    return lambda x, v: g(x, {v: wf.asarray(1.0)})


def _items(f):
    g = wf.compile(lambda d: f(*((x, k) for k, x in d.items()).__next__()))
    return lambda x, v: g({v: x})


def _static(shape):
    """A compiled function that gets the value as a static argument, in a container."""

    def way(f):
        unpack = {"value": lambda v: v, "tuple": lambda v: v[0][0], "dataclass": lambda v: v.v}
        pack = {"value": lambda v: v, "tuple": lambda v: ((v, 1),), "dataclass": Config}
        g = wf.compile(lambda x, v: f(x, unpack[shape](v)), static_argnums=1, max_variants=64)
        return lambda x, v: g(x, pack[shape](v))

    return way


def _leaf(f):
    """The value is an argument like others: a float is a number of each call."""
    g = wf.compile(f, max_variants=64)
    return lambda x, v: g(x, v)


def _planned(f):
    at = []
    jacobian = wf.jacobian(lambda x: f(x, at[-1]) * x.sum() ** 2)

    def way(x, v):
        at.append(v)
        with wf.no_grad():
            return [jacobian(x) for _ in range(3)][-1]

    return way


def _dense(f, v):
    return wf.jacrev(lambda x: f(x, v) * x.sum() ** 2)


COMPILED = {
    "a static argument": _static("value"),
    "in a tuple": _static("tuple"),
    "in a frozen dataclass": _static("dataclass"),
    "an argument": _leaf,
    "the key of a dict beside": _key,
    "the key of a dict of tensors": _items,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("way", COMPILED)
def test_programs_are_made_for_one_of_equal_values(way, use):
    x = wf.asarray([0.5, -1.5])
    wrong = []
    for a, b in PAIRS:
        if use == "product" and (a != a or isinstance(a, complex) or isinstance(b, complex)):
            continue  # a NaN's own sign is not kept by products
        g = COMPILED[way](USES[use])
        for v in (a, b, a):
            try:
                want = bits(USES[use](x, v))
            except Exception as e:
                with pytest.raises(type(e)):
                    g(x, v)
                continue
            if bits(g(x, v)) != want:
                wrong.append((a, b, v))
    assert not wrong


def test_a_static_nan_is_one_value():
    g = wf.compile(lambda x, v: x * v, static_argnums=1)
    for _ in range(5):
        g(wf.asarray([1.0]), float("nan"))
    assert not g.recompilations


# Functions with numbers among the parameters of their rows.
PARAMETERS = {
    "pad": lambda x, v: wf.copysign(x, wf.pad(x[:1], (0, 1), constant_values=v)),
    "clip": lambda x, v: wf.copysign(x, wf.clip(-abs(x), v, None)),
    "where": lambda x, v: wf.copysign(x, wf.where(x > 5, x, v)),
    "full": lambda x, v: wf.copysign(x, wf.full(2, v, dtype=x.dtype)),
    "text": lambda x, v: x * len(repr(v)),
}


@pytest.mark.parametrize("use", PARAMETERS)
def test_plans_and_their_code_are_made_for_one_of_equal_values(use, monkeypatch):
    monkeypatch.setattr(native, "_COMPILING", 0.0)  # plans are compiled at their second call
    monkeypatch.setattr(native, "_PER_EQUATION", 0.0)
    x, f = wf.asarray([0.5, -1.5], dtype="float64"), PARAMETERS[use]
    wrong = []
    for a, b in PAIRS:
        if a != a or isinstance(a, complex) or isinstance(b, complex):
            continue
        planned = _planned(f)
        for v in (a, b, a):
            if bits(planned(x, v)) != bits(_dense(f, v)(x)):
                wrong.append((a, b, v))
    assert not wrong


def test_rules_are_tested_to_be_linear_for_each_parameter():
    for a, b in [(1, True), (0.0, -0.0), ((0.0, 1), (-0.0, 1)), ((1,), (2,))]:
        calls = []

        @wf.custom_op
        def op(x, *, v):
            return x * 1.0

        @op.def_jvp
        def _(tangents, inputs, output, *, v, calls=calls):
            calls.append(v)
            return tangents[0] * 1.0

        counts = []
        for v in (a, b, b):
            wf.grad(lambda x, v=v, op=op: op(x, v=v))(wf.asarray(2.0))
            counts.append(len(calls) - sum(counts))
        assert counts[0] == counts[1] > counts[2]


def test_steps_are_made_for_the_settings_of_an_optimizer():
    p = wf.Parameter(wf.ones(3))
    optimizer = wf.optim.SGD([p], lr=0.1, weight_decay=0.0)

    @wf.compile
    def step(x):
        (p * x).sum().backward()
        optimizer.step()

    for name, value, new in [("lr", 0.2, 0), ("weight_decay", -0.0, 1), ("weight_decay", -0.0, 1)]:
        step(wf.ones(3))
        optimizer.param_groups[0][name] = value
        step(wf.ones(3))
        assert len(step.recompilations) == new + 1, step.recompilations  # the first has no .grad


# Calls with an integer that another number of the same value may stand for.
CALLS = {
    "reshape": lambda x, n: wf.reshape(x, (n, -1)),
    "permute": lambda x, n: wf.permute_dims(x, (n, 1 - n)),
    "sum": lambda x, n: wf.sum(x, axis=(n,)),
    "mean": lambda x, n: wf.mean(x, axis=n, keepdims=True),
    "var": lambda x, n: wf.var(x, axis=n),
    "amax": lambda x, n: wf.amax(x, axis=n),
    "cumsum": lambda x, n: wf.cumulative_sum(x, axis=n),
    "pad": lambda x, n: wf.pad(x, (n, n)),
    "reflect": lambda x, n: wf.pad(x, ((n, n), (n, n)), mode="reflect"),
    "roll": lambda x, n: wf.roll(x, n, axis=n),
    "flip": lambda x, n: wf.flip(x, axis=n),
    "tile": lambda x, n: wf.tile(x, (n, 2)),
    "repeat": lambda x, n: wf.repeat(x, n, axis=0),
    "stack": lambda x, n: wf.stack([x, x], axis=n),
    "concat": lambda x, n: wf.concat([x, x], axis=n),
    "expand_dims": lambda x, n: wf.expand_dims(x, axis=n),
    "moveaxis": lambda x, n: wf.moveaxis(x, n, 1 - n),
    "take": lambda x, n: wf.take(x, wf.asarray([0]), axis=n),
    "index": lambda x, n: x[n],
    "index of a tuple": lambda x, n: x[:, n],
    "slice": lambda x, n: x[n:, : 2 * n],
    "broadcast": lambda x, n: wf.broadcast_to(x, (n, *x.shape)),
    "tril": lambda x, n: wf.tril(x, k=n),
    "softmax": lambda x, n: wf.softmax(x, axis=n),
    "norm": lambda x, n: wf.linalg.vector_norm(x, axis=n, ord=n),
    "diff": lambda x, n: wf.diff(x, n=n, axis=n),
    "sort": lambda x, n: wf.sort(x, axis=n),
    "fft": lambda x, n: wf.fft.rfft(x, axis=n),
    "conv": lambda x, n: wf.nn.functional.conv1d(x[None], x[None], stride=n, padding=n),
    "pool": lambda x, n: wf.nn.functional.max_pool1d(x[None], 2, stride=n, padding=n),
    "zeros": lambda x, n: wf.zeros((n, 2)),
    "one_hot": lambda x, n: wf.one_hot(wf.asarray([0, 0]), n + 1),
}


def _forget() -> None:
    """Empty what the table, the backends and the public functions keep for values they met."""
    layers = ("weft.ops", "weft.backend", "weft.arrays", "weft.core.aval", "weft.core.dtypes")
    for name, module in list(sys.modules.items()):
        if name.startswith(layers):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and value.__module__.startswith(layers):
                    value.cache_clear()


def _outcome(f, x, n):
    try:
        return bits(f(x, n))
    except Exception as e:
        return type(e).__name__


@pytest.mark.parametrize("name", CALLS)
def test_what_was_called_before_decides_nothing(name):
    f, x = CALLS[name], wf.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for n in (0, 1, 2):
        for other in (float(n), bool(n), np.float32(n), complex(n)):
            _forget()
            cold = _outcome(f, x, other)
            _outcome(f, x, n)
            assert _outcome(f, x, other) == cold, (n, other)
