"""Programs of users that one program of a bucket must do, with the axes of their arguments.

Each is (function, {argument: axis}, example): `example(n, rng)` makes the arguments of length n.
"""

import numpy as np

import weft as wf
import weft.nn.functional as F

WIDTH, CLASSES, HEADS = 4, 5, 2
_rng = np.random.default_rng(0)
W = wf.tensor(_rng.standard_normal((WIDTH, WIDTH)) * 0.5, requires_grad=True)
B = wf.tensor(_rng.standard_normal(WIDTH) * 0.5, requires_grad=True)
TABLE = wf.tensor(_rng.standard_normal((7, WIDTH)), requires_grad=True)
PLACES = wf.tensor(_rng.standard_normal((64, WIDTH)), requires_grad=True)
KERNEL = wf.tensor(_rng.standard_normal((WIDTH, WIDTH, 3)) * 0.3, requires_grad=True)

PROGRAMS: dict[str, tuple] = {}


def _lines(n, rng):
    return (wf.tensor(rng.uniform(0.5, 2.0, (n, WIDTH))),)


def _sequences(n, rng):
    return (wf.tensor(rng.uniform(0.5, 2.0, (2, n, WIDTH))),)


def _labelled(n, rng):
    return (*_lines(n, rng), wf.tensor(rng.integers(0, WIDTH, n)))


def _tokens(n, rng):
    return (wf.tensor(rng.integers(0, 7, (2, n))),)


def program(example, **axes):
    """Enter a program."""

    def enter(f):
        PROGRAMS[f.__name__] = (f, axes, example)
        return f

    return enter


@program(_lines, x=0)
def masked_mean(x, valid):
    return wf.where(valid, wf.tanh(x @ W).sum(1), 0.0).sum() / valid.sum()


@program(_lines, x=0)
def plain_mean(x):
    return F.gelu(F.linear(x, W, B)).mean()


@program(_lines, x=0)
def divided_by_its_length(x):
    return (x * x).sum() / x.shape[0]


@program(_labelled, x=0, classes=0)
def masked_cross_entropy(x, classes, valid):
    losses = F.cross_entropy(F.layer_norm(x, (WIDTH,), B, B) @ W, classes, reduction="none")
    return wf.where(valid, losses, 0.0).sum() / valid.sum()


@program(_labelled, x=0, classes=0)
def mean_cross_entropy(x, classes):
    return F.cross_entropy(F.linear(x, W, B), classes, label_smoothing=0.1)


@program(_lines, x=0)
def squared_error(x):
    return F.mse_loss(x @ W, x)


@program(_lines, x=0)
def normalised_batch(x):
    return F.batch_norm(x @ W, None, None, B, B, training=True)


@program(_lines, x=0)
def statistics(x):
    return x.mean(0), x.std(0, correction=1), x.max(0), x.min(0), wf.argmax(x, axis=0)


@program(_lines, x=0)
def shares(x):
    return wf.softmax(x, axis=0), F.log_softmax(x, 0), wf.logsumexp(x, axis=0)


@program(_lines, x=0)
def masked_softmax(x, valid):
    return wf.softmax(wf.where(valid[:, None], x, -np.inf), axis=0)


@program(_lines, x=0)
def infinite_padding(x):
    return wf.log(x).sum() + (1.0 / x).max() + (x.T @ wf.log(x)).sum()


@program(_lines, x=0)
def neighbours(x):
    return x[1:] - x[:-1], wf.diff(x, axis=0).sum(), x[-1], x[-2:], x[0], x[::-1], x[:2]


@program(_lines, x=0)
def running(x):
    return wf.cumulative_sum(x, axis=0), wf.cumulative_prod(wf.tanh(x), axis=0)


@program(_lines, x=0)
def turned(x):
    return wf.flip(x), wf.roll(x, (2, 1), axis=(0, 1)), wf.flip(x, axis=0).sum(0)


@program(_lines, x=0)
def with_a_first_line(x):
    return wf.concat([B[None], x], axis=0).mean(0), wf.concat([x, B[None]], axis=0)[-1]


@program(_lines, x=0)
def distances(x):
    return ((x[:, None] - x[None]) ** 2).sum(-1), wf.einsum("id,jd->ij", x, x).max(1)


@program(_sequences, x=1)
def joined_lines(x):
    flat = x.reshape(-1, WIDTH) @ W
    return flat.reshape(x.shape), flat.mean(), flat.reshape(2, -1).sum(1)


@program(_sequences, x=1)
def joined_top(x):
    return x.reshape(-1, WIDTH).max(0)


def _heads(x):
    return wf.swapaxes(x.reshape(*x.shape[:-1], HEADS, WIDTH // HEADS), 1, 2)


@program(_sequences, x=1)
def causal_attention(x):
    y = F.scaled_dot_product_attention(_heads(x), _heads(x @ W), _heads(x), is_causal=True)
    return wf.swapaxes(y, 1, 2).reshape(x.shape) @ W


@program(_sequences, x=1)
def full_attention(x):
    return F.scaled_dot_product_attention(_heads(x), _heads(x @ W), _heads(x))


@program(_sequences, x=1)
def masked_attention(x, valid):
    mask = valid[None, None, None, :]
    return F.scaled_dot_product_attention(_heads(x), _heads(x @ W), _heads(x), attn_mask=mask)


@program(_sequences, x=1)
def written_out_attention(x):
    n = x.shape[1]
    scores = x @ wf.swapaxes(x @ W, 1, 2) / WIDTH**0.5
    seen = wf.tril(wf.ones((n, n), dtype=bool))
    return wf.softmax(wf.where(seen, scores, -np.inf), axis=-1) @ x


@program(_tokens, tokens=1)
def embedded(tokens):
    x = TABLE[tokens] + PLACES[: tokens.shape[1]] + PLACES[wf.arange(tokens.shape[1])]
    return wf.tanh(x @ W)[:, -1]


@program(_tokens, tokens=1)
def one_hots(tokens):
    return F.one_hot(tokens, 7).sum(1), (tokens == 3).sum(1), wf.any(tokens == 2, axis=1)


@program(_sequences, x=1)
def recurrent(x):
    def step(h, row):
        h = wf.tanh(h @ W + row)
        return h, h

    last, ys = wf.scan(step, wf.zeros((2, WIDTH), dtype="float64"), wf.swapaxes(x, 0, 1))
    return last, ys.mean(0)


@program(lambda n, rng: (wf.tensor(rng.standard_normal((6, n, WIDTH))),), x=1)
def recurrent_batch(x):
    def step(h, row):
        h = wf.tanh(h @ W + row - row.mean(0))
        return h, h.sum()

    last, ys = wf.scan(step, wf.zeros(x.shape[1:], dtype="float64"), wf.cos(x), reverse=True)
    return last, ys


@program(_sequences, x=1)
def convolved(x):
    return wf.swapaxes(F.conv1d(wf.swapaxes(x, 1, 2), KERNEL, B, padding=1), 1, 2)


@program(_lines, x=0)
def branched(x):
    return wf.cond(x.sum() > 20.0, lambda x: x - x.mean(), lambda x: x + x.max(), x)


@program(_lines, x=0)
def assigned(x):
    y = x * 2.0
    y[:, 1] = x[:, 0]
    y[0] = 3.0
    return y.sum(0), y


@program(lambda n, rng: (wf.tensor(rng.standard_normal((n, n))), *_lines(n, rng)), a=(0, 1), x=0)
def square(a, x):
    return a @ x, (a * wf.eye(a.shape[0], dtype="float64")).sum(), wf.triu(a).sum(1)


@program(lambda n, rng: ({"a": _lines(n, rng)[0], "b": [_lines(n, rng)[0]]},), trees=0)
def of_trees(trees):
    return {"sum": trees["a"] + trees["b"][0], "top": trees["a"].max()}


@program(_lines, x=0)
def half_precision(x):
    y = x.astype("float16")
    return y.mean(), (y * 1000.0).sum(0), y.astype("bfloat16").max(0)
