"""The problems in Weft: eager and compiled."""

import numpy as np

import weft as wf

from . import networks
from .sides import Makers, Side

F = wf.nn.functional


def _numpy(found) -> list[np.ndarray]:
    found = found if isinstance(found, tuple | list) else [found]
    return [t.detach().numpy().astype(np.float64) for t in found]


def _same(f):
    return f


def _gradient(loss, way, data, *names: str) -> Side:
    f = way(wf.grad(loss, argnums=tuple(range(len(names)))))
    arguments = [wf.tensor(data[name]) for name in names]
    return Side(lambda: f(*arguments), _numpy)


def _dispatch(data, way):
    f, x = way(wf.grad(lambda x: (x * wf.tanh(x)).sum())), wf.tensor(data["x"])
    return Side(lambda: f(x), _numpy)


def _chain(data, way):
    def loss(z):
        for _ in range(4):
            z = wf.tanh(z) * wf.exp(-z * z) + wf.log(1 + z * z)
        return z.sum()

    return _gradient(loss, way, data, "x")


def _norm(data, way):
    labels = wf.tensor(data["labels"])

    def loss(x, w, b):
        return F.cross_entropy(F.layer_norm(x, (x.shape[1],), w, b), labels)

    f = way(wf.value_and_grad(loss, argnums=(0, 1, 2)))
    arguments = [wf.tensor(data[name]) for name in ("x", "w", "b")]

    return Side(lambda: f(*arguments), lambda found: _numpy([found[0], *found[1]]))


def _training(logits, params: dict, data, way) -> Side:
    x, labels = wf.tensor(data["x"]), wf.tensor(data["labels"])
    optimizer = wf.optim.AdamW(list(params.values()), lr=1e-3, weight_decay=0.01)

    @way
    def step(x, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return Side(
        lambda: step(x, labels).item(),
        lambda v: [np.array(v)],
        lambda: _numpy(list(params.values())),
    )


def _functional(network):
    def make(data, way):
        params = {k: wf.Parameter(v.copy()) for k, v in data["params"].items()}
        return _training(lambda x: network(F, params, x), params, data, way)

    return make


def _gpt(data, way):
    model = networks.gpt(wf)
    model.load_state_dict({k: wf.tensor(v) for k, v in data["params"].items()})
    params = dict(model.named_parameters())
    return _training(model, {k: params[k] for k in data["params"]}, data, way)


def _scan(data, way):
    xs = wf.tensor(data["xs"])

    def loss(c, a, b):
        def step(c, x):
            return c + 0.1 * (wf.tanh(a * c + b * x) - c), None

        c, _ = wf.scan(step, c, xs)
        return (c * c).sum()

    return _gradient(loss, way, data, "start", "a", "b")


def _arm(data, way):
    lengths, twists = data["lengths"].tolist(), data["twists"]
    cosines, sines = np.cos(twists).tolist(), np.sin(twists).tolist()

    def pose(q):
        """The first three rows of the product of the joints' transforms."""
        t = wf.eye(4, dtype=wf.float64)
        for i, (r, ca, sa) in enumerate(zip(lengths, cosines, sines, strict=True)):
            c, s = wf.cos(q[i]), wf.sin(q[i])
            rows = [c, -s * ca, s * sa, r * c, s, c * ca, -c * sa, r * s]
            last = (0.0, sa, ca, r, 0.0, 0.0, 0.0, 1.0)
            fixed = [wf.tensor(v, dtype=wf.float64) for v in last]
            t = t @ wf.stack([*rows, *fixed]).reshape(4, 4)
        return t[:3].reshape(-1)

    jacobian, q = way(wf.jacobian(pose)), wf.tensor(data["q"])
    return Side(lambda: jacobian(q), _numpy)


def _bottleneck(data, way):
    inner, outer = wf.tensor(data["inner"]), wf.tensor(data["outer"])
    jacobian = way(wf.jacobian(lambda x: wf.tanh(outer @ wf.sin(inner @ x))))
    x = wf.tensor(data["x"])
    return Side(lambda: jacobian(x), _numpy)


def _adamw(data, way):
    p, g = wf.Parameter(data["p"].copy()), wf.tensor(data["g"])
    optimizer = wf.optim.AdamW([p], lr=1e-3, weight_decay=0.01)

    @way
    def step(g):
        optimizer.step([g])

    return Side(lambda: step(g), lambda _: [], lambda: _numpy(p))


def _logistic(data, way):
    x, y = wf.tensor(data["X"]), wf.tensor(data["y"])

    def loss(w):
        z = x @ w
        return (F.softplus(z) - y * z).mean()

    hessian, w = way(wf.hessian(loss)), wf.tensor(data["w"])
    return Side(lambda: hessian(w), _numpy)


MAKERS: Makers = {
    "dispatch": _dispatch,
    "chain": _chain,
    "norm": _norm,
    "mlp-small": _functional(networks.perceptron),
    "mlp-middle": _functional(networks.perceptron),
    "gpt": _gpt,
    "scan": _scan,
    "arm": _arm,
    "bottleneck": _bottleneck,
    "adamw": _adamw,
    "cnn": _functional(networks.cnn),
    "logistic": _logistic,
}


def side(name: str, contender: str, data) -> Side:
    """One of Weft's ways."""
    return MAKERS[name](data, wf.compile if contender == "weft.compile" else _same)
