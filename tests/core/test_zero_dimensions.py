"""Whatever leaves a kernel is an array: no NumPy scalar is ever inside a tensor."""

import inspect

import numpy as np
import optree
import pytest
from tests.table.rows import EXEMPT, cases, load

import weft as wf
import weft.nn.functional as F
from weft.core.call import caller
from weft.core.value import TENSORS

TABLE = load()


def check(out, label: str) -> int:
    """How many tensors there are in a result, all of which hold arrays."""
    found = [v for v in optree.tree_leaves(out) if type(v) in TENSORS]
    for t in found:
        assert type(t._data) is np.ndarray, f"{label}: {type(t._data)}"
        held = getattr(t, "grad", None)
        assert held is None or type(held._data) is np.ndarray, f"{label}: .grad"
    return len(found)


def tried(f, *args):
    """What a call gives; None where it is refused."""
    with np.errstate(all="ignore"):
        try:
            return f(*args)
        except (wf.errors.WeftError, Warning, TypeError, ValueError, IndexError, AttributeError):
            return None


def pulled(f, args):
    """The gradients of a call, in the map and at the leaves."""
    leaves = [a.detach().requires_grad_() if _floats(a) else a for a in args]
    out = [y for y in optree.tree_leaves(f(*leaves)) if type(y) in TENSORS and y.requires_grad]
    if not out:
        return None
    total = sum(
        [wf.real(y * wf.conj(y)).sum() if y.dtype.kind == "c" else (y * y).sum() for y in out]
    )
    found = total.backward(create_graph=len(out) % 2 == 0)
    return [found[x] for x in leaves if _floats(x) and x in found], leaves


def _floats(x) -> bool:
    return type(x) in TENSORS and x.dtype.kind in "fcV"


MODES = {
    "eager": lambda f, args: f(*args),
    "unrecorded": lambda f, args: _unrecorded(f, args),
    "gradient": pulled,
    "tangent": lambda f, args: wf.jvp(f, args, [wf.ones_like(a) for a in args]),
    "batch": lambda f, args: wf.vmap(f)(*[wf.stack([a, a]) for a in args]),
    "compiled": lambda f, args: wf.compile(f)(*args),
    "autocast": lambda f, args: _autocast(f, args),
}


def _unrecorded(f, args):
    with wf.no_grad():
        return f(*args)


def _autocast(f, args):
    with wf.amp.autocast("bfloat16"):
        return f(*args)


def points(dtype: str) -> list:
    return [wf.tensor(v).to(dtype) for v in (0.5, 0.75, 0.25)]


@pytest.mark.parametrize("name", sorted(set(TABLE) - set(EXEMPT)))
def test_rows(name):
    op = TABLE[name]
    call = caller(op, True)
    statics = list(dict.fromkeys([str(c.static) for c in cases(op)]))
    statics = [c.static for c in cases(op) if str(c.static) in statics][:3] or [()]
    for dtype in ("float32", "float64", "bfloat16", "int32", "bool", "complex64"):
        for static in statics:
            args = points(dtype)[: op.arity or 2]

            def f(*args, static=static):
                return call(args, *static) if op.arity is None else call(*args, *static)

            for mode, run in MODES.items():
                if mode != "compiled" or dtype == "float32":
                    check(tried(run, f, args), f"{name} of {dtype}, {mode}")


PLACES = {"wf": wf, "F": F, "linalg": wf.linalg, "special": wf.special, "random": wf.random}
PUBLIC = {
    f"{place}.{name}": getattr(module, name)
    for place, module in PLACES.items()
    for name in dir(module)
    if not name.startswith("_") and inspect.isfunction(getattr(module, name))
    if place != "random" or getattr(module, name).__module__ == module.__name__
}
# They write files, compile, or change settings of the whole process.
LEFT_OUT = {n for n in PUBLIC if n.endswith(("_checkpoint", "_optimizer", "set_default_dtype"))}


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - LEFT_OUT))
def test_public_functions(name):
    f = PUBLIC[name]
    for dtype in ("float32", "int64", "bool"):
        for count in (1, 2, 3):
            args = points(dtype)[:count]
            if tried(f, *args) is None:
                continue
            for mode in ("eager", "unrecorded", "gradient", "batch"):
                check(tried(MODES[mode], f, args), f"{name} of {count} {dtype}, {mode}")


def test_methods_and_assignments():
    x = wf.tensor(0.5)
    for name in dir(x):
        if not name.startswith("_") and name not in ("backward",):
            found = tried(getattr, x, name)
            for args in ((), (wf.tensor(0.25),), (2,)):
                check(tried(found, *args) if callable(found) else found, name)
    for change in (
        "x += 1",
        "x *= 2.0",
        "x -= y",
        "x /= y",
        "x **= 2",
        "x[()] = y",
        "x[...] = 3.0",
    ):
        scope = {"x": wf.tensor(0.5), "y": wf.tensor(0.25)}
        exec(change, scope)
        assert check(scope["x"], change) == 1
    for f in (wf.add, wf.multiply, wf.maximum, wf.pow):
        out = wf.zeros(())
        assert check([f(wf.tensor(0.5), wf.tensor(0.25), out=out), out], f.__name__) == 2
    for value in (0.0, -200.0, -1000.0, 1000.0, np.inf, -np.inf, np.nan):
        for name in ("sigmoid", "silu", "gelu", "softplus", "relu", "tanh", "elu"):
            assert check(getattr(wf, name)(wf.tensor(value)), f"{name} of {value}") == 1
    check([wf.random.bernoulli(wf.tensor(0.5)), wf.random.bernoulli(0.5)], "bernoulli")


OPTIMIZERS = ("SGD", "Adam", "AdamW", "Lion", "RMSprop", "Adagrad", "NAdam", "RAdam", "LAMB")
OPTIMIZERS += ("Adafactor", "Adam8bit", "AdamW8bit")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, compiled):
    p = wf.Parameter(wf.tensor(0.5))
    optimizer = getattr(wf.optim, name)([p], lr=0.1)

    def step():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = wf.compile(step) if compiled else step
    for _ in range(2):
        check([run(), p, p.grad], name)
    check(optimizer.state_dict(), f"the state of {name}")


CLIPS = {
    "norm": lambda p: wf.optim.clip_grad_norm([p], 0.1),
    "value": lambda p: wf.optim.clip_grad_value([p], 0.1),
    "adaptive": lambda p: wf.optim.clip_grad_adaptive([p], 0.01),
    "known": lambda p: wf.optim.clip_grads_with_norm([p], 0.1, 5.0),
    "clipper": lambda p: wf.optim.GradientClipper(0.1).clip_grads([p.grad]),
    "functional": lambda p: wf.gradient_clipping.clip_by_global_norm([p.grad], 0.1),
    "functional value": lambda p: wf.gradient_clipping.clip_by_value([p.grad], 0.1),
    "scaler": lambda p: scaled(p),
    "update": lambda p: p.update(0.1),
    "apply_update": lambda p: p.apply_update(wf.tensor(0.1)),
    "set_grad": lambda p: p.set_grad(wf.tensor(3.0)),
    "average": lambda p: wf.optim.EMA([p], 0.9).update(),
}


def scaled(p):
    scaler = wf.amp.GradScaler()
    scaler.scale(p * p).backward()
    return scaler.unscale([p])


@pytest.mark.parametrize("name", CLIPS)
def test_what_goes_around_a_step(name):
    p = wf.Parameter(wf.tensor(3.0))
    grads = (p * p).backward()
    out = CLIPS[name](p)
    check([p, p.grad, out, grads[p]], name)
    grads.scale_(0.5)
    grads.add_(grads)
    check([v for _, v in grads.items()], f"{name}, map")
