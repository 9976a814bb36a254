"""Random functions of an array whose axis has another length at each call.

A function is a list of steps, each of which makes a value of earlier ones. What a step does is
chosen by the names of axes ("n" for the dynamic one), so the same list is a function at all
lengths; some steps look at the length in Python, as users do. Values at a call's own positions
are positive at first, so that logarithms and reciprocals of padding are infinite where those of
values are not.
"""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import weft as wf
import weft.nn.functional as F

Axes = tuple  # of "n" and of lengths
D, H = 4, 2


class Value(NamedTuple):
    axes: Axes
    kind: str  # "float", "int" or "bool"


class Step(NamedTuple):
    text: str
    inputs: tuple[int, ...]
    apply: Callable[..., Any]


class Function(NamedTuple):
    """A random function of (x, k, valid): floats and small integers."""

    axes: Axes
    steps: list[Step]
    results: list[int]
    weights: dict[str, Any]

    def __call__(self, x, k, valid):
        values = [x, k, valid]
        for s in self.steps:
            values.append(s.apply(*[values[i] for i in s.inputs]))
        return tuple([values[i] for i in self.results])

    def __str__(self) -> str:
        lines = [f"x: {self.axes}, k: ints, valid"]
        lines += [f"v{i + 3} = {s.text} of {s.inputs}" for i, s in enumerate(self.steps)]
        return "\n".join([*lines, f"returns {self.results}"])


class Maker:
    """Draws a function."""

    def __init__(self, seed: int, steps: int):
        self.rng = random.Random(seed)
        rng = np.random.default_rng(seed)
        self.weights = {
            "square": wf.tensor(rng.standard_normal((D, D)) * 0.5, requires_grad=True),
            "line": wf.tensor(rng.standard_normal(D) * 0.5, requires_grad=True),
            "table": wf.tensor(rng.standard_normal((7, D)), requires_grad=True),
        }
        self.axes = self.rng.choice([("n", D), (3, "n", D), ("n", 3, D), ("n",)])
        self.values = [
            Value(self.axes, "float"),
            Value(self.axes[: 1 + self.axes.index("n")], "int"),
            Value(("n",), "bool"),
        ]
        self.steps: list[Step] = []
        for _ in range(steps):
            self.draw()

    def draw(self) -> None:
        for _ in range(50):
            make = self.rng.choice(MAKERS)
            made = make(self)
            if made is not None:
                text, inputs, value, apply = made
                self.steps.append(Step(text, inputs, apply))
                self.values.append(value)
                return

    def pick(self, kind: str = "float", test=lambda axes: True) -> int | None:
        """A value, rather a late one."""
        found = [i for i, v in enumerate(self.values) if v.kind == kind and test(v.axes)]
        if not found:
            return None
        return self.rng.choice(found[-3:] if self.rng.random() < 0.7 else found)

    def function(self) -> Function:
        used = {i for s in self.steps for i in s.inputs}
        ends = [i for i in range(3, len(self.values)) if i not in used]
        return Function(self.axes, self.steps, ends, self.weights)


def function(seed: int, steps: int) -> Function:
    """The function of a seed."""
    return Maker(seed, steps).function()


MAKERS: list[Callable] = []


def maker(weight: int = 1):
    def enter(f):
        MAKERS.extend([f] * weight)
        return f

    return enter


_UNARY = {
    "tanh": wf.tanh,
    "log": lambda x: wf.log(x * x + 0.0),
    "reciprocal": lambda x: 1.0 / x,
    "sqrt": lambda x: wf.sqrt(wf.abs(x)),
    "relu": F.relu,
    "gelu": F.gelu,
    "exp": lambda x: wf.exp(wf.tanh(x)),
    "square": lambda x: x * x,
    "shift": lambda x: x + 1.5,
}


@maker(4)
def unary(m: Maker):
    i = m.pick()
    name = m.rng.choice(list(_UNARY))
    return name, (i,), m.values[i], _UNARY[name]


_BINARY = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "subtract": lambda a, b: a - b,
    "divide": lambda a, b: a / (b * b + 0.5),
    "maximum": wf.maximum,
}


def _broadcast(a: Axes, b: Axes) -> Axes | None:
    out = []
    for k in range(-max(len(a), len(b)), 0):
        found = {s[k] for s in (a, b) if len(s) >= -k} - {1}
        if len(found) > 1:
            return None
        out.append(found.pop() if found else 1)
    return tuple(out)


@maker(4)
def binary(m: Maker):
    i, j = m.pick(), m.pick()
    axes = _broadcast(m.values[i].axes, m.values[j].axes)
    if axes is None or len(axes) > 4:
        return None
    name = m.rng.choice(list(_BINARY))
    return name, (i, j), Value(axes, "float"), _BINARY[name]


_REDUCTIONS = {
    "sum": wf.sum,
    "mean": wf.mean,
    "max": lambda x, axis, keepdims: wf.max(x - 4.0, axis=axis, keepdims=keepdims),
    "min": lambda x, axis, keepdims: wf.min(x + 4.0, axis=axis, keepdims=keepdims),
    "prod": lambda x, axis, keepdims: wf.prod(wf.tanh(x), axis=axis, keepdims=keepdims),
    "var": wf.var,
    "std": wf.std,
    "logsumexp": wf.logsumexp,
    "norm": lambda x, axis, keepdims: wf.linalg.vector_norm(x, axis=axis, keepdims=keepdims),
    "any": lambda x, axis, keepdims: wf.any(x > 0.7, axis=axis, keepdims=keepdims) * 1.0,
    "all": lambda x, axis, keepdims: wf.all(x > 0.1, axis=axis, keepdims=keepdims) * 1.0,
    "count": lambda x, axis, keepdims: (
        wf.count_nonzero(x > 0.7, axis=axis, keepdims=keepdims) * 1.0
    ),
}


@maker(5)
def reduction(m: Maker):
    i = m.pick(test=len)
    axes = m.values[i].axes
    over = tuple(sorted(m.rng.sample(range(len(axes)), m.rng.randint(1, min(2, len(axes))))))
    keep = m.rng.random() < 0.5
    name = m.rng.choice(list(_REDUCTIONS))
    f = _REDUCTIONS[name]
    made = tuple([1 if a in over else s for a, s in enumerate(axes) if keep or a not in over])
    return f"{name}{over}", (i,), Value(made, "float"), lambda x: f(x, axis=over, keepdims=keep)


@maker(1)
def argument(m: Maker):
    i = m.pick(test=len)
    axes = m.values[i].axes
    a = m.rng.randrange(len(axes))
    f = m.rng.choice([wf.argmax, wf.argmin])
    made = (*axes[:a], *axes[a + 1 :])
    return f"{f.__name__}({a})", (i,), Value(made, "int"), lambda x: f(x, axis=a)


_ALONG = {
    "softmax": lambda x, a: wf.softmax(x, axis=a),
    "log_softmax": lambda x, a: F.log_softmax(x, a),
    "cumsum": lambda x, a: wf.cumulative_sum(x, axis=a),
    "cumprod": lambda x, a: wf.cumulative_prod(wf.tanh(x), axis=a),
    "flip": lambda x, a: wf.flip(x, axis=a),
    "roll": lambda x, a: wf.roll(x, 2, axis=a),
    "sort": lambda x, a: wf.sort(x, axis=a),
    "logcumsumexp": lambda x, a: wf.logcumsumexp(x, axis=a),
}


@maker(4)
def along(m: Maker):
    i = m.pick(test=len)
    a = m.rng.randrange(len(m.values[i].axes))
    name = m.rng.choice(list(_ALONG))
    f = _ALONG[name]
    return f"{name}({a})", (i,), m.values[i], lambda x: f(x, a)


@maker(3)
def slices(m: Maker):
    """x[1:], x[:-1], x[-1], x[0], x[::-1]; of the dynamic axis those of its length only."""
    i = m.pick(test=len)
    axes = m.values[i].axes
    a = m.rng.randrange(len(axes))
    way = m.rng.choice(["last", "first", "back", "ends", "lasts"])
    entry = {
        "last": -1,
        "first": 0,
        "back": slice(None, None, -1),
        "lasts": slice(-1, None),
        "ends": slice(0, 1),
    }[way]
    made = (
        axes
        if way == "back"
        else (*axes[:a], *([1] if way in ("ends", "lasts") else []), *axes[a + 1 :])
    )
    key = (*[slice(None)] * a, entry)
    return f"x[{key}]", (i,), Value(made, "float"), lambda x: x[key]


@maker(2)
def shifted(m: Maker):
    """Neighbours: x[1:] - x[:-1], filled up to the length again."""
    i = m.pick(test=lambda axes: axes[:1] == ("n",) or "n" in axes)
    if i is None:
        return None
    a = m.values[i].axes.index("n")
    front, back = (*[slice(None)] * a, slice(1, None)), (*[slice(None)] * a, slice(None, -1))
    way = m.rng.choice(["difference", "moved", "behind", "pad", "cut"])
    one = (*[slice(None)] * a, slice(0, 1))

    def apply(x):
        if way == "difference":
            return wf.concat([x[one], x[front] - x[back]], axis=a)
        if way == "behind":
            return wf.concat([x[front], x[one]], axis=a)
        if way == "pad":
            return wf.pad(x[front], [(0, int(k == a)) for k in range(x.ndim)])
        if way == "cut":
            return wf.sum(x[front] * x[back], axis=a, keepdims=True) + x
        return wf.concat([x[one] * 0.5, x[back]], axis=a)

    return way, (i,), m.values[i], apply


@maker(3)
def shapes(m: Maker):
    i = m.pick(test=len)
    axes = m.values[i].axes
    way = m.rng.choice(["transpose", "expand", "flat", "there and back", "swap", "ravel"])
    if way == "transpose":
        return (
            way,
            (i,),
            Value(axes[::-1], "float"),
            lambda x: wf.permute_dims(x, tuple(range(x.ndim))[::-1]),
        )
    if way == "expand" and len(axes) < 4:
        a = m.rng.randint(0, len(axes))
        return (
            way,
            (i,),
            Value((*axes[:a], 1, *axes[a:]), "float"),
            lambda x: wf.expand_dims(x, axis=a),
        )
    if way == "flat" and len(axes) > 1:
        # joined and reduced by line, then apart again
        def apply(x):
            flat = x.reshape(-1, x.shape[-1])
            return (flat - flat.sum(-1, keepdims=True)).reshape(x.shape)

        return way, (i,), m.values[i], apply
    if way == "there and back":

        def back(x):
            flat = x.reshape(-1)
            return (flat * (1.0 + flat.mean())).reshape(x.shape)

        return way, (i,), m.values[i], back
    if way == "ravel":
        return way, (i,), Value((), "float"), lambda x: (x.reshape(-1) * x.reshape(-1)).sum()
    return None


@maker(3)
def products(m: Maker):
    i = m.pick(test=lambda axes: len(axes) > 1)
    if i is None:
        return None
    axes, w = m.values[i].axes, m.weights
    way = m.rng.choice(["weights", "linear", "gram", "pairs", "einsum", "norm"])
    if way in ("weights", "linear", "norm") and axes[-1] != D:
        return None
    if way == "weights":
        return way, (i,), m.values[i], lambda x: x @ w["square"]
    if way == "linear":
        return way, (i,), m.values[i], lambda x: F.linear(x, w["square"], w["line"])
    if way == "norm":
        return way, (i,), m.values[i], lambda x: F.layer_norm(x, (D,), w["line"], w["line"])
    if way == "gram":
        made = (*axes[:-2], axes[-1], axes[-1])
        return way, (i,), Value(made, "float"), lambda x: wf.swapaxes(x, -1, -2) @ x
    if way == "pairs":
        made = (*axes[:-2], axes[-2], axes[-2])
        return way, (i,), Value(made, "float"), lambda x: x @ wf.swapaxes(x, -1, -2)
    if len(axes) == 2:
        return way, (i,), Value((axes[1],), "float"), lambda x: wf.einsum("ij,ik->k", x, x)
    return None


@maker(1)
def branches(m: Maker):
    i = m.pick(test=len)
    return (
        "cond",
        (i,),
        m.values[i],
        lambda x: wf.cond(x.sum() > 3.0, lambda x: x * 2.0 - x.mean(), lambda x: x + x.max(), x),
    )


@maker(2)
def attention(m: Maker):
    i = m.pick(test=lambda axes: len(axes) > 1 and axes[-1] == D and "n" == axes[-2])
    if i is None:
        return None
    causal = m.rng.random() < 0.5

    def apply(x):
        shape = (*x.shape[:-1], H, D // H)
        heads = wf.swapaxes(x.reshape(shape), -3, -2)
        q, k, v = heads, wf.tanh(heads), heads * 0.5
        if heads.ndim == 3:
            q, k, v = q[None], k[None], v[None]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        y = y[0] if heads.ndim == 3 else y
        return wf.swapaxes(y, -3, -2).reshape(x.shape)

    return f"attention(causal={causal})", (i,), m.values[i], apply


@maker(2)
def masked(m: Maker):
    """What a careful user writes."""
    i = m.pick(test=lambda axes: "n" in axes)
    if i is None:
        return None
    axes = m.values[i].axes
    a = axes.index("n")
    way = m.rng.choice(["zero", "mean", "softmax"])

    def apply(x, valid):
        mask = valid.reshape([-1 if k == a else 1 for k in range(x.ndim)])
        if way == "softmax":
            return wf.softmax(wf.where(mask, x, -np.inf), axis=a)
        total = wf.where(mask, x, 0.0)
        return total if way == "zero" else total.sum(a, keepdims=True) / valid.sum()

    made = axes if way != "mean" else (*axes[:a], 1, *axes[a + 1 :])
    return f"masked {way}", (i, 2), Value(made, "float"), apply


@maker(2)
def picked(m: Maker):
    """Elements at positions of any axis, which integers of the program name."""
    i, j = m.pick(test=len), m.pick("int")
    axes = m.values[i].axes
    if len(axes) + len(m.values[j].axes) > 4:
        return None
    a = m.rng.randrange(len(axes))
    made = (*axes[:a], *m.values[j].axes, *axes[a + 1 :])

    def apply(x, k):
        return x[(*[slice(None)] * a, k % x.shape[a])]

    return f"picked({a})", (i, j), Value(made, "float"), apply


@maker(2)
def lookup(m: Maker):
    i = m.pick("int")
    axes = m.values[i].axes
    if len(axes) > 3:
        return None
    table = m.weights["table"]
    return "table", (i,), Value((*axes, D), "float"), lambda k: table[k % 7]


def _lined(y, x, a: int):
    """A line of numbers along one of the axes of x."""
    return y.reshape([-1 if k == a else 1 for k in range(x.ndim)])


def _first(a: int, start: int, stop: int) -> tuple:
    return (*[slice(None)] * a, slice(start, stop))


# What users do with the length of an axis: (x, axis, length).
_PYTHON = {
    "divide": lambda x, a, n: x / n,
    "branch": lambda x, a, n: x * 2.0 if n > 9 else x + 1.0,
    "positions": lambda x, a, n: x + _lined(wf.arange(n), x, a),
    "root": lambda x, a, n: x * n**-0.5,
    "loop": lambda x, a, n: sum([x[_first(a, j, j + 1)] for j in range(n)]) + x,
    "ones": lambda x, a, n: x + wf.ones((n + 1) // 2).sum() * 0.1,
    "half": lambda x, a, n: x - wf.max(x[_first(a, 0, (n + 1) // 2)]),
    "power": lambda x, a, n: wf.abs(x + 0.1) ** (1.0 / n),
    "causal": lambda x, a, n: x + _lined(wf.tril(wf.ones((n, n), dtype="float64")).sum(1), x, a),
    "reversed": lambda x, a, n: x * _lined(wf.tensor([float(n - j) for j in range(n)]), x, a),
    "grid": lambda x, a, n: x + (wf.arange(n)[:, None] >= wf.arange(n)).sum() * 0.1,
}


@maker(2)
def python(m: Maker):
    """The length, as Python sees it."""
    i = m.pick(test=lambda axes: "n" in axes)
    if i is None:
        return None
    a = m.values[i].axes.index("n")
    way = m.rng.choice(list(_PYTHON))
    f = _PYTHON[way]
    return f"python {way}", (i,), m.values[i], lambda x: f(x, a, x.shape[a])


@maker(1)
def windows(m: Maker):
    """A convolution along the dynamic axis, as long afterwards."""
    i = m.pick(test=lambda axes: len(axes) > 1 and axes[-2:] == ("n", D))
    if i is None or len(m.values[i].axes) > 3:
        return None
    wide = m.rng.choice([1, 2])

    def apply(x):
        y = wf.swapaxes(x, -1, -2)
        y = y[None] if x.ndim == 2 else y
        w = wf.stack([m.weights["square"]] * (2 * wide + 1), axis=2)
        y = F.conv1d(y, w, m.weights["line"], padding=wide)
        return wf.swapaxes(y[0] if x.ndim == 2 else y, -1, -2)

    return f"conv1d({wide})", (i,), m.values[i], apply


@maker(1)
def normal(m: Maker):
    """Normalised along any axes, as a batch is."""
    i = m.pick(test=lambda axes: len(axes) > 1)
    if i is None:
        return None
    axes = m.values[i].axes
    a = m.rng.randrange(len(axes))

    def apply(x):
        y = x.reshape(x.shape[0], -1) if a == 0 else x
        if a == 0:
            return F.batch_norm(y, None, None, training=True).reshape(x.shape)
        return (x - wf.mean(x, axis=a, keepdims=True)) / wf.sqrt(
            wf.var(x, axis=a, keepdims=True) + 0.1
        )

    if a == 0 and "n" in axes[1:]:
        return None
    return f"normal({a})", (i,), m.values[i], apply


@maker(1)
def noise(m: Maker):
    i = m.pick()
    p = m.rng.choice([0.3, 0.5])
    return "dropout", (i,), m.values[i], lambda x: F.dropout(x, p, training=True)


@maker(3)
def loop(m: Maker):
    i = m.pick(test=lambda axes: len(axes) > 1)
    if i is None:
        return None
    axes = m.values[i].axes
    last, mixed, back = [m.rng.random() < 0.5 for _ in range(3)]

    def apply(x):
        def step(h, row):
            h = wf.tanh(h * 0.7 + row)
            return h, h * row.sum() if mixed else h * row

        carry, ys = wf.scan(step, wf.zeros(x.shape[1:], dtype="float64"), x, reverse=back)
        return ys + carry if last else ys

    return f"scan(last={last}, mixed={mixed}, back={back})", (i,), Value(axes, "float"), apply
