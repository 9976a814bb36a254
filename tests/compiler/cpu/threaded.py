"""Whole programs whose results are told bit by bit; run as a script with a number of threads."""

import hashlib
import sys

import numpy as np

import weft as wf

nn, F = wf.nn, wf.nn.functional
RNG = np.random.default_rng(0)


def array(*shape, dtype="float32"):
    return wf.tensor(RNG.standard_normal(shape).astype(dtype))


X, Y, W = array(300, 400), array(300, 400), array(400, 350)
LONG, IMAGE = array(700_001), array(4, 3, 40, 40)
SEQUENCE = array(2, 4, 200, 32)
PLACES = wf.tensor(RNG.integers(0, 300, 5000))


def trained(layers, x, y, loss, steps=3):
    """A model after some compiled steps."""
    wf.random.seed(0)
    model = nn.Sequential(*layers())
    optimizer = wf.optim.AdamW(model.parameters(), lr=0.01)

    @wf.compile
    def step(x, y):
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value

    losses = [step(x, y) for _ in range(steps)]
    return [*losses, *model.parameters()]


def dense():
    return nn.Linear(400, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 300)


def convolutional():
    yield from (nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    yield nn.Linear(8 * 400, 10)


def attend(q):
    return wf.grad(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True).sum())(q)


# Our own kernels and routines alone.
OWN = {
    "elementwise": lambda: wf.compile(lambda x, y: wf.tanh(x * y) + wf.exp(-x * x))(X, Y),
    "rows": lambda: wf.compile(lambda x: wf.softmax(x, -1) * F.layer_norm(x, (400,)))(X),
    "columns": lambda: wf.compile(lambda x: (x.sum(0), x.mean(0), wf.var(x, axis=0), x.max(0)))(X),
    "everything": lambda: wf.compile(lambda x: (x.sum(), (x * x).mean(), x.max(), x.min()))(LONG),
    "half": lambda: wf.compile(lambda x: (x.to("float16") * 2).mean())(LONG),
    "product": lambda: wf.compile(lambda x, w: wf.tanh(x @ w).sum(0))(X, W),
    "tall": lambda: wf.compile(lambda x, y: x.reshape(-1, 40).T @ y.reshape(-1, 40))(X, Y),
}
# And programs with calls of libraries between them.
WHOLE = {
    "dense": lambda: trained(dense, X, PLACES[:300] % 300, F.cross_entropy),
    "convolutional": lambda: trained(
        convolutional, IMAGE, wf.tensor([0, 1, 2, 3]), F.cross_entropy
    ),
    "attention": lambda: wf.compile(attend)(SEQUENCE),
    "gather": lambda: wf.compile(wf.grad(lambda x: (x[PLACES] ** 2).sum()))(X),
    "scan": lambda: wf.compile(lambda x: (wf.cumsum(x, 0), wf.sort(x, axis=1)))(X),
    "solve": lambda: wf.compile(lambda x: wf.linalg.solve(x @ x.T + 400 * wf.eye(300), x))(X),
    "double": lambda: wf.compile(lambda x: (x.to("float64") @ x.to("float64").T).sum(0))(X),
}


def digest(out) -> str:
    tensors = out if isinstance(out, tuple | list) else [out]
    found = hashlib.sha256()
    for t in tensors:
        found.update(t.detach().numpy().tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    for name, program in OWN.items():
        print(name, digest(program()))
    with wf.deterministic(0):
        for name, program in WHOLE.items():
            print(name, digest(program()))


if __name__ == "__main__":
    sys.exit(main())
