"""The statements of random programs: each a function of the writer, giving text and a name."""

FLOAT = "fV"  # kinds of dtypes: floats, and those that NumPy does not know


def real(x) -> bool:
    return x.dtype.kind in FLOAT


def solid(x) -> bool:
    """In floating point, with axes and something along them."""
    return real(x) and x.ndim > 0 and x.size > 0


def short(x) -> bool:
    """With few steps along the first axis: eager loops take their time."""
    return solid(x) and x.shape[0] <= 8


def matrix(x) -> bool:
    return solid(x) and x.ndim >= 2


def anything(x) -> bool:
    return True


def ranked(x) -> bool:
    return x.ndim > 0 and x.size > 0


def whole(x) -> bool:
    return x.dtype.kind in "iu" and x.size > 0


def truth(x) -> bool:
    return x.dtype.kind == "b"


def expression(template: str, *fits):
    """`name = N(expression)`: {0}, {1} are values that fit, {c} a number, {axis} an axis of {0}."""

    def make(w):
        names = [w.pick(f) for f in fits]
        if None in names:
            return None
        first = w.names[names[0]]
        axis = int(w.rng.integers(-first.ndim, first.ndim)) if first.ndim else 0
        last = first.shape[-1] if first.ndim else 1
        name = w.new()
        text = template.format(*names, c=w.number(), axis=axis, s=scalar(w), last=last)
        return f"{name} = N({text})", name

    return make


def scalar(w) -> str:
    """A Python number: of the arguments if there is one."""
    able = [n for n in w.names if n.startswith("s")]
    return w.one_of(able) if able else str(abs(w.number()) + 0.25)


def many(templates: str, *fits) -> list:
    return [expression(t.strip(), *fits) for t in templates.strip().splitlines()]


UNARY = many(
    """
    wf.tanh({0})
    wf.sin({0})
    wf.exp(-{0} * {0})
    wf.log(1 + {0} ** 2)
    wf.sqrt({0} * {0} + 0.5)
    {c} * {0} - 1
    {0} * {s}
    {s} - {0}
    1 / (2 + {0} * {0})
    wf.abs({0}) ** 1.5
    wf.clip({0}, -0.5, 0.5)
    wf.where({0} > {c}, {0}, 0.1 * {0})
    F.gelu({0})
    F.silu({0})
    wf.sigmoid({0})
    F.softplus({0})
    wf.relu({0})
    wf.erf({0})
    wf.cos({0}) * {0}
    wf.expm1(wf.sin({0}))
    wf.log1p({0} * {0})
    wf.cbrt({0} + 3)
    wf.sign({0}) * {0}
    {0}.detach() * {0}
    {0}.to('float32')
    {0}.to('float64')
    {0}.to('float16')
    {0}.to('bfloat16')
    {0}.sum()
    {0}.mean()
    {0} ** 3
    {0} / {c}
    wf.checkpoint(lambda t: wf.tanh(t) * t, {0})
    wf.stop_gradient({0}) + {0}
    wf.lgamma({0} * {0} + 1)
    wf.real(wf.exp({0} * 1j))
    wf.nn.functional.dropout({0}, 0.4)
    """,
    real,
)
SHAPED = many(
    """
    {0}.reshape((-1,))
    wf.roll({0}, 1)
    wf.expand_dims({0}, axis=0)
    wf.expand_dims({0}, axis=-1)
    wf.broadcast_to({0}, (2, *{0}.shape))
    wf.permute_dims({0}, tuple(reversed(range({0}.ndim))))
    wf.flip({0})
    wf.stack([{0}, {0}], axis=-1)
    wf.tile({0}, 2)
    wf.squeeze({0}, axis=tuple(k for k, n in enumerate({0}.shape) if n == 1))
    wf.swapaxes({0}, 0, -1)
    wf.concat([{0}, {0}[:1]], axis=0)
    wf.repeat({0}, 2, axis={axis})
    wf.flip({0}, axis={axis})
    wf.moveaxis({0}, 0, -1).clone()
    {0}[None, ..., 0]
    {0}[..., ::-1]
    wf.take({0}, wf.tensor([0, 0, -1], device=D), axis={axis})
    {0}[I0 % {0}.shape[0]]
    """,
    ranked,
)
SOLID = many(
    """
    wf.softmax({0}, {axis})
    wf.log_softmax({0}, {axis})
    wf.logsumexp({0}, axis={axis})
    wf.cumsum({0}, {axis})
    wf.cumprod(wf.tanh({0}), {axis})
    {0}.sum({axis}, True)
    {0}.mean({axis})
    {0}.max({axis})
    {0}.min({axis}, keepdims=True)
    {0}.sum(tuple(range({0}.ndim - 1)))
    {0}.mean((0, -1)) if {0}.ndim > 1 else {0}.mean()
    {0}.prod({axis})
    wf.var({0}, axis={axis})
    wf.std({0} + wf.arange({last}, device=D), axis=-1)
    wf.sort({0}, axis={axis})
    wf.logcumsumexp({0}, {axis})
    wf.norm({0}, axis={axis})
    F.layer_norm({0}, {0}.shape[-1:])
    F.rms_norm({0}, {0}.shape[-1:])
    F.normalize({0}, dim=-1)
    {0} @ wf.ones(({last}, 2), dtype={0}.dtype, device=D)
    {0}.at[0].add({0}[-1] * 2)
    {0}.at[..., 0].set({c})
    wf.pad({0}, [(1, 2)] * {0}.ndim)
    wf.diff({0}, axis={axis})
    wf.take_along_axis({0}, wf.argsort({0}, axis={axis}), axis={axis})
    wf.topk({0}, 1, axis={axis})[0]
    wf.argmax({0}, axis={axis})
    F.cross_entropy({0}.reshape((-1, {last})), I0[:{0}.size // {last}] % {last})
    wf.scan(lambda c, r: (N(wf.tanh(c + r)), N(c * r)), {0}[0] * 0.5, {0})[1]
    wf.scan(lambda c, r: (N(c * 0.5) + r, c), {0}[0], {0}, reverse=True)[0]
    wf.scan(lambda c, r: (c + N(P1).sum() * r, r), {0}[0] * 0, {0})[0]
    wf.map(lambda r: wf.sin(r) * r.sum(), {0})
    wf.vmap(lambda r: r * r.sum())({0})
    wf.vmap(wf.grad(lambda r: (r ** 3).sum()))({0})
    wf.grad(lambda t: (wf.sin(t) * t).sum())({0})
    wf.jvp(lambda t: t * t.sum(), ({0},), ({0},))[1]
    wf.einsum('...i,...i->...', {0}, {0})
    wf.median({0})
    wf.interp({0}, wf.tensor([-1.0, 0.0, 1.0], device=D), wf.tensor([0.0, 2.0, 1.0], device=D))
    """,
    solid,
)
LOOPS = many(
    """
    wf.while_loop(lambda c: c[1] < 4, lambda c: (N(c[0]) / 2, c[1] + 1), ({0}, ZERO), 6)[0]
    wf.while_loop(lambda c: wf.abs(c).sum() > 1.0, lambda c: N(wf.sin(c) * 0.5), {0}, 40)
    wf.scan(lambda c, r: (wf.cond(r.sum() > 0, lambda: N(c * r), lambda: c - r), c), {0}[0], {0})[1]
    wf.scan(lambda c, r: (wf.scan(lambda d, q: (N(d * q), d), c, {0})[0] / 9, r), {0}[0], {0})[0]
    wf.cond({0}.sum() > 0, lambda: wf.scan(lambda c, r: (N(c * r), c), {0}[0], {0})[1], lambda: {0})
    wf.scan(lambda c, r: ((N(c[0] + c[1] * r), c[1] * 0.5), c[0]), ({0}[0], {0}[-1]), {0})[1]
    wf.scan(lambda c, r: (N(c + wf.randn(r.shape, dtype=r.dtype, device=D) * r), c), {0}[0], {0})[0]
    wf.scan(lambda c, r: (N(wf.tanh(c * r + B0.sum())), c), {0}[0], {0}, segments=2)[1]
    wf.checkpoint(lambda t: wf.scan(lambda c, r: (N(wf.tanh(c + r)), c), t[0], t)[1], {0})
    wf.scan(lambda c, k: (c + {0}[k % {0}.shape[0]], k * 2), {0}[0], wf.arange(4, device=D))[0]
    wf.scan(lambda c, _: (N(wf.softmax(c, -1)) + {0}, None), {0}, length=3)[0]
    wf.vmap(lambda r: wf.scan(lambda c, e: (N(c * e) + 1, c), r.sum(), r)[1])({0})
    wf.grad(lambda t: wf.scan(lambda c, r: (N(c * wf.sin(r)), c), t[0], t)[0].sum())({0})
    wf.jvp(lambda t: wf.scan(lambda c, r: (N(c * r), c), t[0], t)[1], ({0},), ({0} * 0.5,))[1]
    """,
    short,
)
MATRICES = many(
    """
    {0} @ wf.matrix_transpose({0})
    wf.matrix_transpose({0}) @ {0}
    {0} @ {0}[0, ...].reshape((-1,))[:{last}]
    wf.trace({0})
    wf.triu({0})
    wf.tril({0}, k=-1)
    wf.diagonal({0})
    F.linear({0}, {0}[..., :2, :].reshape((-1, {last})))
    F.scaled_dot_product_attention({0}, {0}, {0} * 0.5)
    wf.linalg.inv({0} @ wf.matrix_transpose({0}) + 2 * EYE({0}))
    """,
    matrix,
)
BINARY = many(
    """
    {0} * {1}
    {0} + {1}
    {0} - {1}
    {0} / (1 + {1} * {1})
    wf.atan2({0}, 1 + {1} * {1})
    wf.logaddexp({0}, {1})
    wf.where({0} > {1}, {0} * {1}, {1})
    wf.maximum({0}, {1})
    wf.hypot({0}, {1} + 3)
    wf.cond(({0} * {1}).sum() > 0, lambda: {0} * 2 + {1}, lambda: {1} - {0})
    wf.cond({0}.sum() > {c}, lambda t: wf.tanh(t), lambda t: t * t, {1})
    wf.outer({0}.reshape((-1,))[:6], {1}.reshape((-1,))[:6])
    {0} @ {1}
    {0}.sum() * {1}
    F.mse_loss({0}, {1})
    wf.cross({0}, {1})
    wf.copysign({0}, {1})
    {0} @ P0
    P0 @ {0}
    {0} * P1
    {0} + B0
    {0} * B1
    """,
    real,
    real,
)
MIXED = many(
    """
    {0} + {1}
    {0} * {1}
    {0} - 2
    wf.where({0} > 0, {1}, {0})
    ({0} > {1}).to('float32')
    ({0} == {1})
    {0}.sum()
    wf.any({0} > 0)
    wf.count_nonzero({1})
    {0} // 2
    {0} % 3
    """,
    anything,
    anything,
)
WHOLES = many(
    """
    {0} + 1
    {0} * {0}
    {0} // 2
    {0} % 3
    {0} > 1
    {0}.sum()
    {0}.max()
    {0}.to('float64') / 3
    wf.cumsum({0}.reshape((-1,)), 0)
    wf.sort({0}.reshape((-1,)))
    P0[{0} % 4]
    wf.embedding({0} % 4, P0)
    wf.one_hot({0} % 3, 3)
    {0} & 3
    {0} << 1
    B1[{0} % 4, {0} % 3]
    """,
    whole,
)
TRUTHS = many(
    """
    wf.where({0}, {1}, -{1})
    {1} * {0}
    ~{0}
    {0}.sum()
    wf.any({0})
    {0} & ({0} | {0})
    """,
    truth,
    real,
)
DRAWN = [
    lambda w: (f"{(n := w.new())} = N(wf.randn((3,), device=D) * {w.number()})", n),
    lambda w: (f"{(n := w.new())} = N(wf.rand((2, 3), dtype='float64', device=D))", n),
    lambda w: (f"{(n := w.new())} = wf.randint(0, 5, (4,), device=D)", n),
    lambda w: (f"{(n := w.new())} = wf.arange({int(w.rng.integers(1, 6))}, device=D)", n),
    lambda w: (f"{(n := w.new())} = wf.ones((3,), device=D) * {w.number()}", n),
    lambda w: (f"{(n := w.new())} = wf.tensor({[w.number() for _ in range(3)]}, device=D)", n),
]


def index_text(w, shape) -> str:
    """A basic index of an array of this shape."""
    parts = []
    for n in shape:
        start, stop = sorted(w.rng.integers(-1, n + 1, 2).tolist())
        kinds = [":", "::2", "::-1", f"{max(start, 0)}:{stop}", f"{n - 1}::-2", f"-{min(n, 2)}:"]
        parts.append(w.one_of([*kinds, str(int(w.rng.integers(-n, n)))] if n else [":"]))
    cut = int(w.rng.integers(0, len(parts) + 1))
    return ", ".join(parts[: max(cut, 1)]) if parts else "..."


def sliced(w):
    x = w.pick(ranked)
    if x is None:
        return None
    name = w.new()
    return f"{name} = {x}[{index_text(w, w.names[x].shape)}]", name


def reshaped(w):
    x = w.pick(ranked)
    if x is None:
        return None
    n, name = w.names[x].size, w.new()
    rows = w.one_of([k for k in range(1, n + 1) if n % k == 0])
    return f"{name} = {x}.reshape(({rows}, {n // rows}))", name


def assigned(w):
    """y[i] = v into a copy, which has its own memory or not."""
    x = w.pick(ranked)
    if x is None:
        return None
    y = w.new()
    where = w.one_of([index_text(w, w.names[x].shape), "I0 % 1", "..., 0"])
    value = w.one_of([str(w.number()), f"{x}.sum()", f"{x}.reshape((-1,))[0] * 2"])
    sign = w.one_of(["=", "=", "+=", "*="])
    if w.rng.random() < 0.2:
        where, sign, value = f"{y} > 0", "=", w.number()
    begin = w.one_of([f"{x} * 1", f"{x}.clone()", f"{x}.detach().clone()"])
    return f"{y} = {begin}\n{y}[{where}] {sign} {value}", y


def assigned_by(w):
    """y[i] = another value that fits."""
    x, v = w.pick(solid), w.pick(real)
    if x is None or v is None:
        return None
    y = w.new()
    index = index_text(w, w.names[x].shape)
    return f"{y} = {x} * 1\n{y}[{index}] = {v}", y


SIGNS = ("+=", "-=", "*=")


def written_into(w):
    """A change of memory: of an argument, or of a tensor that was found."""
    kept = [f"B0.copy_(B0 * 0.5 + {w.number()})", "B1.copy_(wf.tanh(B1) + P0)", "B1[1] = B0 * 2"]
    kept += [f"B0[0] = {w.number()}", f"P1.copy_(P1 * 0.9 + {w.number()})"]
    kept += [f"b = {n}; b {w.one_of(SIGNS)} {w.number()}" for n in ("B0", "B1", "P0", "P1")]
    kept += ["b = B1; b += P0 * 0.5", "b = P0; b *= wf.tanh(B1)"]
    x = w.pick(lambda x: real(x) and not x.requires_grad)
    if x is not None and x.startswith("x"):
        kept += [f"{x}.copy_({x} * 0.5 + 1)"] * 3
        kept += [f"{x}[...] = {w.number()}", f"{x}[0] = {x}[-1] * 2"]
        kept += [f"{x} {w.one_of(SIGNS)} {w.number()}", f"{x} += {x} * 0.25"] * 2
    return f"with wf.no_grad():\n    {w.one_of(kept)}", None


def updated(w):
    """y op= v: of a copy, or of a tensor itself: a value, an argument or one that was found."""
    x, v = w.pick(real), w.pick(real)
    if x is None or v is None:
        return None
    y, begin = w.new(), w.one_of([x, x, f"{x}.clone()"])
    v = f"{v}.detach()" if begin.startswith("B") else v  # found tensors stay untracked
    return f"{y} = {begin}\n{y} {w.one_of(SIGNS)} {v}\n{y} = N({y})", y


def branched(w):
    """What Python decides by a number of the call."""
    able = [n for n in w.names if n.startswith("s")]
    x = w.pick(real)
    if not able or x is None:
        return None
    y, s = w.new(), w.one_of(able)
    return f"{y} = N({x} * 2 if {s} > 1.0 else {x} - {s})", y


def differentiated(w):
    """A gradient by a backward pass in the middle."""
    x, v = w.pick(solid), w.pick(real)
    if x is None or v is None:
        return None
    y = w.new()
    leaf = f"{x}.detach().requires_grad_()"
    return f"t = {leaf}\n{y} = N((wf.sin(t) * {v}.sum()).sum().backward()[t])", y


def without_gradient(w):
    x = w.pick(real)
    if x is None:
        return None
    y = w.new()
    return f"with wf.no_grad():\n    {y} = N(wf.tanh({x}) * {x})", y


SPECIAL = [sliced, reshaped, assigned, assigned_by, written_into, updated, branched]
SPECIAL += [differentiated, without_gradient]
STATEMENTS = [*UNARY, *SHAPED, *SOLID, *LOOPS, *MATRICES, *BINARY, *MIXED, *WHOLES, *TRUTHS]
STATEMENTS += DRAWN
STATEMENTS += SPECIAL * 4
