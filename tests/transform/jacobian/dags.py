"""Random programs whose Jacobians have structure: written as text, so that a failure can be read.

A `Dag` is a function of one or two vectors over wf's public names. Its statements share values,
pass through bottlenecks whose values depend on each other, are sparse in many ways (stencils,
blocks, arrowheads, index arrays), branch and loop, and have paths whose derivatives are zero at
the first point, where a Jacobian is planned, and not at the second.
"""

import numpy as np

import weft as wf

_LARGEST = 20.0  # of a value; what would grow further goes through tanh


@wf.custom_op
def turned(x):
    return wf.sin(x)


turned.def_vjp(lambda g, inputs: g * wf.cos(inputs[0]))
turned.def_jvp(lambda tangents, inputs: tangents[0] * wf.cos(inputs[0]))


class Dag:
    """The program of a seed.

    points  two arguments: that of the first call, and another one
    text    the function's source; `c` are its constants
    """

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.values: dict[str, wf.Tensor] = {}
        self.constants: list[wf.Tensor] = []
        count = int(self.rng.choice([1, 1, 2]))
        sizes = [int(self.rng.integers(9, 15)) for _ in range(count)]
        self.points = [[self._point(n, k) for n in sizes] for k in range(2)]
        self.names = [f"x{k}" for k in range(count)]
        self.values |= zip(self.names, self.points[0], strict=True)
        family = FAMILIES[int(self.rng.integers(len(FAMILIES)))]
        for _ in range(int(self.rng.integers(3, 12))):
            self._add(family[int(self.rng.integers(len(family)))])
        self._finish()

    def _point(self, n: int, k: int) -> wf.Tensor:
        x = self.rng.normal(size=n)
        if k == 0:  # zeros in some places, or everything alike: paths without a derivative here
            x = [x, x * (self.rng.uniform(size=n) < 0.6), np.ones(n), np.zeros(n)][
                int(self.rng.choice(4, p=[0.5, 0.3, 0.1, 0.1]))
            ]
        return wf.asarray(x)

    def pick(self, ndim: int) -> str:
        """A value with so many axes: any of them, the latest more often."""
        found = [v for v, x in self._floats() if x.ndim == ndim]
        if not found:
            return self.assign(f"{self.pick(1)}.sum()" if ndim == 0 else "x0[:8].reshape(2, 4)")
        latest = found[-3:] if self.rng.uniform() < 0.6 else found
        return latest[int(self.rng.integers(len(latest)))]

    def like(self, v: str) -> str:
        """A value that goes with v: of its shape, or a number."""
        found = [w for w, x in self._floats() if x.shape in (self.values[v].shape, ())]
        return found[int(self.rng.integers(len(found)))]

    def _floats(self) -> list[tuple[str, wf.Tensor]]:
        return [(v, x) for v, x in self.values.items() if x.dtype == wf.float64 and x.size]

    def size(self, v: str) -> int:
        return self.values[v].shape[0]

    def constant(self, array) -> str:
        self.constants.append(wf.asarray(array))
        return f"c[{len(self.constants) - 1}]"

    def weights(self, *shape: int) -> str:
        return self.constant(self.rng.normal(size=shape) / np.sqrt(shape[-1]))

    def assign(self, text: str, outputs: int = 1) -> str:
        """A statement; the name of its last result."""
        names = [f"v{len(self.values) + k}" for k in range(outputs)]
        self.lines.append(f"{', '.join(names)} = {text}")
        scope = {"wf": wf, "turned": turned, "c": self.constants, **self.values}
        with wf.no_grad():
            exec(self.lines[-1], scope)
        for name in names:
            self.values[name] = scope[name]
        if outputs == 1 and float(abs(self.values[names[0]].numpy()).max(initial=0)) > _LARGEST:
            return self.assign(f"wf.tanh({names[0]})")
        return names[-1]

    def _add(self, make) -> None:
        text = make(self)
        if text is not None:
            self.assign(*text) if isinstance(text, tuple) else self.assign(text)

    def _finish(self) -> None:
        """The results: some of the last values as vectors, widened to be worth planning."""
        floats = [v for v, _ in self._floats()]
        chosen = [floats[-1]]
        for _ in range(int(self.rng.choice([0, 0, 1, 2]))):
            chosen.append(floats[int(self.rng.integers(len(floats)))])
        if self.rng.uniform() < 0.5:  # numbers as vectors: the bottleneck is before them
            numbers = [v for v in floats if self.values[v].ndim == 0][-4:]
            terms = [f"{self.weights(12)} * {v}" for v in numbers]
            chosen[0] = self.assign(" + ".join(terms)) if terms else chosen[0]
        elif self.values[chosen[0]].ndim == 0:
            chosen[0] = self.assign(f"{self.weights(10)} * {chosen[0]}")
        form = self.rng.uniform()
        if len(chosen) == 1:
            self.result = chosen[0]
        elif form < 0.5:
            self.result = f"({', '.join(chosen)})"
        else:
            self.result = "{" + ", ".join(f"'{k}': {v}" for k, v in enumerate(chosen)) + "}"
        self.text = "\n    ".join([f"def f({', '.join(self.names)}):", *self.lines])
        self.text += f"\n    return {self.result}"

    def function(self):
        """The program as a new function."""
        scope = {"wf": wf, "turned": turned, "c": self.constants}
        exec(self.text, scope)
        return scope["f"]


# -- statements: from a dag to the text of one, and how many results it has ----------------------


def _unary(d: Dag):
    v = d.pick(int(d.rng.choice([0, 1, 1, 1, 2])))
    forms = ["wf.sin({})", "wf.tanh({})", "{} * {}", "wf.exp(0.1 * {})", "wf.sqrt(1 + {} ** 2)"]
    forms += ["wf.sigmoid({})", "{} / (2 + wf.cos({}))", "-{}", "wf.logaddexp({}, 0.5 * {})"]
    forms += ["turned({})", "wf.checkpoint(lambda a: a * wf.sin(a), {})", "wf.square({})"]
    return forms[int(d.rng.integers(len(forms)))].replace("{}", v)


def _binary(d: Dag):
    v = d.pick(int(d.rng.choice([0, 1, 1, 2])))
    w = d.like(v)
    forms = ["{} + {}", "{} * {}", "{} - {}", "wf.maximum({}, {})", "wf.hypot(1 + {}, {})"]
    forms += ["{} * wf.sin({})", "wf.where({} > {} + 0.1, wf.sin(A), B * B)", "A / (1.5 + B * B)"]
    text = forms[int(d.rng.integers(len(forms)))]
    return text.replace("A", v).replace("B", w).replace("{}", v, 1).replace("{}", w, 1)


def _idle(d: Dag):
    """A path whose derivative is zero at the first point, or at any."""
    v = d.pick(1)
    w = d.like(v)
    here = d.constant(d.values[v].numpy())
    zeros = d.constant(np.zeros(d.size(v)))
    forms = [
        f"({v} - {here}) * {w}",
        f"wf.square({v} - {here}) + {w}",
        f"{w} + wf.relu({v} - {here} - 0.3)",
        f"{w} + {zeros} * wf.sin({v})",
        f"{w} * 1.5 + 0.0 * {v}",
        f"wf.where({v} > {here} + 0.2, {v} * {w}, {w})",
        f"{w} + wf.floor({v}) * 0.1",
        f"{w} * wf.stop_gradient({v})",
        f"wf.clip({v}, -0.1, 0.1) + {w}",
    ]
    return forms[int(d.rng.integers(len(forms)))]


def _reduce(d: Dag):
    v = d.pick(1)
    w = d.like(v)
    forms = [f"{v}.sum()", f"({v} * {w}).sum()", f"{v}.mean()", f"wf.max({v})", f"wf.var({v})"]
    forms += [f"wf.sqrt(1 + ({v} * {v}).mean())", f"wf.logsumexp({v})", f"wf.sin({v}).sum() * 0.3"]
    forms += [f"{v} @ {d.weights(d.size(v))}", f"wf.prod(wf.sigmoid({v}[:4]))", f"{v}[0] * {v}[-1]"]
    return forms[int(d.rng.integers(len(forms)))]


def _chain(d: Dag):
    """Numbers that depend on each other, and on everything: cuts of dependent values."""
    v = d.pick(1)
    a = d.pick(0)
    forms = [f"({v} * {a}).sum()", f"({v} + {a}).mean()", f"wf.sin({v} * {a}).sum()"]
    forms += [f"({v} / (1 + {a} * {a})).sum() + {a}", f"{a} * wf.tanh({v}.sum())"]
    return forms[int(d.rng.integers(len(forms)))]


def _expand(d: Dag):
    a, n = d.pick(0), int(d.rng.integers(9, 14))
    return f"{d.weights(n)} * {a} + {d.weights(n)} * wf.sin({d.pick(0)})"


def _narrow(d: Dag):
    v, k = d.pick(1), int(d.rng.integers(1, 4))
    m = int(d.rng.integers(9, 14))
    if d.rng.uniform() < 0.5:
        return f"{d.weights(k, d.size(v))} @ {v}"
    return f"{d.weights(m, k)} @ wf.tanh({d.weights(k, d.size(v))} @ {v})"


def _product(d: Dag):
    v = d.pick(1)
    n = d.size(v)
    band = np.triu(np.tril(d.rng.normal(size=(n, n)), 1), -1)
    m = d.pick(2)
    forms = [f"{d.weights(n, n)} @ {v}", f"{d.constant(band)} @ {v}", f"{m} @ {m}.T"]
    forms += [f"wf.outer({v}[:3], {v}[-4:])", f"wf.einsum('ij,ij->i', {m}, {m})"]
    square = f"wf.outer({v}[:2], {v}[:2]) + 3 * wf.eye({min(n, 2)}, dtype='float64')"
    forms += [f"wf.linalg.slogdet({square})[1]", f"wf.linalg.solve({square}, {v}[:2])"]
    return forms[int(d.rng.integers(len(forms)))]


def _stencil(d: Dag):
    v = d.pick(1)
    if d.size(v) < 4:
        return None
    forms = [f"{v}[1:] * {v}[:-1]", f"wf.pad(wf.diff({v}), (1, 0))", f"wf.roll({v}, 1) * {v}"]
    forms += [f"{v}[2:] - 2 * {v}[1:-1] ** 2 + wf.sin({v}[:-2])", f"wf.flip({v}) + {v} * {v}"]
    return forms[int(d.rng.integers(len(forms)))]


def _arrow(d: Dag):
    v = d.pick(1)
    w = d.like(v)
    forms = [f"wf.concat([({v} * {v}).sum().reshape(1), {v}[1:] * {v}[0]])", f"{v} * {w}[..., :1]"]
    forms += [f"{v}.at[0].set({v}.sum())", f"wf.concat([{v}, {v}[:2] * {v}[-1]])"]
    return forms[0 if d.values[w].ndim == 0 else int(d.rng.integers(len(forms)))]


def _block(d: Dag):
    v = d.pick(1)
    k = 2 * (d.size(v) // 2)
    if k < 4:
        return None
    m = f"{v}[:{k}].reshape(-1, 2)"
    flat = ".reshape(-1)"
    forms = [f"wf.softmax({m}, axis=1){flat}", f"(({m} @ {d.weights(2, 2)}) ** 2){flat}"]
    forms += [f"{m}.sum(1)", f"wf.cumsum({m}, axis=1){flat}", f"wf.sort({m}, axis=1){flat}"]
    forms += [f"{m}.T", f"wf.max({m}, axis=1)", f"wf.vmap(lambda r: r * r.sum())({m}){flat}"]
    return forms[int(d.rng.integers(len(forms)))]


def _index(d: Dag):
    v = d.pick(1)
    n = d.size(v)
    at = d.constant(d.rng.integers(0, n, int(d.rng.integers(2, 13))))
    own = d.constant(d.rng.permutation(n)[:2])
    forms = [
        f"wf.take({v}, {at})",
        f"{v}[wf.argsort({v})]",
        f"{v}.at[{own}].set({v}[:2] * {v}[0])",
        f"wf.sort({v})",
        f"{v}.at[{at}].add({v}[0])",
        f"{v}[wf.argmax({v})] * {v}",
        f"{v}[::2]",
        f"{v}.at[{own}].multiply(2.0)",
        f"wf.cumsum({v})",
        f"wf.take({v}, wf.argsort(-{v})[:3])",
    ]
    if n > 3:
        forms += [(f"wf.topk({v}, 3)", 2), f"wf.take({v} * {v}, wf.topk({v}, 3)[1])"]
    return forms[int(d.rng.integers(len(forms)))]


def _branch(d: Dag):
    v, a = d.pick(1), d.pick(0)
    w = d.like(v)
    here = f"{float(d.values[a].numpy()) + 0.1!r}"
    forms = [f"wf.cond({a} > {here}, lambda a, b: a * b, lambda a, b: a + wf.sin(b), {v}, {w})"]
    forms += [f"wf.cond({a} < {here}, lambda a: a * 2, lambda a: wf.flip(a) * a, {v})"]
    return forms[int(d.rng.integers(len(forms)))]


def _loop(d: Dag):
    v, a = d.pick(1), d.pick(0)
    step = "lambda s, x: (wf.tanh(0.5 * s + x), s * x)"
    forms = [(f"wf.scan({step}, {a}, {v})", 2), f"wf.scan({step}, {a}, {v})[1]"]
    forms += [f"wf.map(lambda x: x * wf.sin(x) + {a}, {v})"]
    turn = "lambda s, x: (s * 0.9 + x[::-1] * s[0], None)"
    forms += [f"wf.scan({turn}, {v}, wf.stack([{v}, {v}]))[0]"]
    return forms[int(d.rng.integers(len(forms)))]


def _several(d: Dag):
    v = d.pick(1)
    k = d.size(v) // 2
    if k < 2:
        return None
    m = f"(wf.outer({v}[:2], {v}[:2]) + {d.constant(np.array([[2.0, 0.3], [0.1, 1.5]]))})"
    forms = [(f"wf.split({v}, [{k}])", 2), (f"wf.unstack({v}[:4].reshape(2, 2))", 2)]
    forms += [(f"wf.linalg.qr({m})", 2), (f"wf.linalg.slogdet({m})", 2)]
    return forms[int(d.rng.integers(len(forms)))]


def _complex(d: Dag):
    v = d.pick(1)
    forms = [f"wf.real(wf.fft.fft({v}))", f"wf.abs({v} * (1 + 2j) + 1.5j)"]
    forms += [f"wf.imag(({v} + 1j) * ({v} * 0.5j + 1))"]
    return forms[int(d.rng.integers(len(forms)))]


_ANY = [_unary, _binary, _idle, _reduce, _chain, _expand, _narrow, _product, _stencil, _arrow]
_ANY += [_block, _index, _branch, _loop, _several, _complex]
_LOCAL = [_unary, _binary, _idle, _stencil, _stencil, _arrow, _block, _index, _index]
_CUTS = [_reduce, _chain, _chain, _chain, _expand, _narrow, _unary, _binary, _idle]
FAMILIES = (_ANY, _ANY, _LOCAL, _LOCAL, _CUTS, _CUTS)
