"""The problems in JAX, by jax.jit."""

import os

import jax
import jax.numpy as jnp
import numpy as np

from .problems import HEADS, LAYERS, WIDTH
from .sides import Makers, Side

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _numpy(found) -> list[np.ndarray]:
    return [np.asarray(a, np.float64) for a in jax.tree.leaves(found)]


def _timed(f, *args) -> Side:
    args = jax.tree.map(jnp.asarray, args)
    return Side(lambda: jax.block_until_ready(f(*args)), _numpy)


def _dispatch(data):
    return _timed(jax.jit(jax.grad(lambda x: (x * jnp.tanh(x)).sum())), data["x"])


def _chain(data):
    def loss(z):
        for _ in range(4):
            z = jnp.tanh(z) * jnp.exp(-z * z) + jnp.log(1 + z * z)
        return z.sum()

    return _timed(jax.jit(jax.grad(loss)), data["x"])


def _layer_norm(x, w, b):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * w + b


def _cross_entropy(logits, labels):
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
    return -chosen.mean()


def _norm(data):
    def loss(x, w, b, labels):
        return _cross_entropy(_layer_norm(x, w, b), labels)

    f = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
    return _timed(f, data["x"], data["w"], data["b"], data["labels"])


def _adamw_update(p, g, m, v, t):
    """The decoupled weight decay of Loshchilov and Hutter."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    step = m / (1 - 0.9**t) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return p * (1 - 1e-3 * 0.01) - 1e-3 * step, m, v


def _updated(params, grads, state):
    t = state["t"] + 1
    keys = list(params)
    made = [_adamw_update(params[k], grads[k], state["m"][k], state["v"][k], t) for k in keys]
    new, m, v = (dict(zip(keys, part, strict=True)) for part in zip(*made, strict=True))
    return new, {"m": m, "v": v, "t": t}


def _training(logits):
    def make(data):
        params = {k: jnp.asarray(v) for k, v in data["params"].items()}
        zeros = {k: jnp.zeros_like(v) for k, v in params.items()}
        state = {"m": zeros, "v": jax.tree.map(jnp.copy, zeros), "t": jnp.float32(0)}
        held = {"params": params, "state": state}
        x, labels = jnp.asarray(data["x"]), jnp.asarray(data["labels"])

        def step(params, state, x, labels):
            def loss(params):
                return _cross_entropy(logits(params, x), labels)

            value, grads = jax.value_and_grad(loss)(params)
            return value, *_updated(params, grads, state)

        compiled = jax.jit(step, donate_argnums=(0, 1))

        def call():
            value, held["params"], held["state"] = compiled(
                held["params"], held["state"], x, labels
            )
            jax.block_until_ready(held)
            return float(value)

        keys = list(params)
        return Side(
            call,
            lambda v: [np.array(v)],
            lambda: [np.asarray(held["params"][k], np.float64) for k in keys],
        )

    return make


def _perceptron(p, x):
    count = len(p) // 2
    for k in range(count):
        x = x @ p[f"w{k}"].T + p[f"b{k}"]
        x = jax.nn.relu(x) if k < count - 1 else x
    return x


def _gpt(p, ids):
    def linear(name, x):
        y = x @ p[f"{name}.weight"].T
        return y + p[f"{name}.bias"] if f"{name}.bias" in p else y

    def norm(name, x):
        return _layer_norm(x, p[f"{name}.weight"], p[f"{name}.bias"])

    def attended(qkv):
        n, t, _ = qkv.shape
        q, k, v = jnp.moveaxis(qkv.reshape(n, t, 3, HEADS, WIDTH // HEADS), 2, 0)
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(n, t, WIDTH)

    x = p["tokens.weight"][ids] + p["positions.weight"]
    for at in [f"blocks.{i}" for i in range(LAYERS)]:
        x = x + linear(f"{at}.proj", attended(linear(f"{at}.qkv", norm(f"{at}.ln1", x))))
        up = jax.nn.gelu(linear(f"{at}.up", norm(f"{at}.ln2", x)), approximate=False)
        x = x + linear(f"{at}.down", up)
    x = linear("head", norm("ln", x))
    return x.reshape(-1, x.shape[-1])


def _cnn(p, x):
    def layer(x, w, b):
        y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME") + b[:, None, None]
        window = (1, 1, 2, 2)
        return jax.lax.reduce_window(jax.nn.relu(y), -jnp.inf, jax.lax.max, window, window, "VALID")

    h = layer(layer(x, p["w1"], p["b1"]), p["w2"], p["b2"])
    return h.reshape(h.shape[0], -1) @ p["w3"].T + p["b3"]


def _scan(data):
    xs = jnp.asarray(data["xs"])

    def loss(c, a, b):
        def step(c, x):
            return c + 0.1 * (jnp.tanh(a * c + b * x) - c), None

        c, _ = jax.lax.scan(step, c, xs)
        return (c * c).sum()

    f = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    return _timed(f, data["start"], data["a"], data["b"])


def _arm(data):
    lengths, twists = data["lengths"], data["twists"]

    def pose(q):
        t = jnp.eye(4)
        for i in range(len(lengths)):
            c, s = jnp.cos(q[i]), jnp.sin(q[i])
            ca, sa, r = np.cos(twists[i]), np.sin(twists[i]), lengths[i]
            rows = [c, -s * ca, s * sa, r * c, s, c * ca, -c * sa, r * s]
            step = jnp.stack([*rows, *map(jnp.asarray, (0.0, sa, ca, r, 0.0, 0.0, 0.0, 1.0))])
            t = t @ step.reshape(4, 4)
        return t[:3].reshape(-1)

    return _timed(jax.jit(jax.jacfwd(pose)), data["q"])


def _bottleneck(data):
    inner, outer = jnp.asarray(data["inner"]), jnp.asarray(data["outer"])
    f = jax.jit(jax.jacrev(lambda x: jnp.tanh(outer @ jnp.sin(inner @ x))))
    return _timed(f, data["x"])


def _adamw(data):
    p, g = jnp.asarray(data["p"]), jnp.asarray(data["g"])
    held = {"now": (p, jnp.zeros_like(p), jnp.zeros_like(p), jnp.float32(0))}

    def step(p, m, v, t, g):
        return *_adamw_update(p, g, m, v, t + 1), t + 1

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))

    def call():
        held["now"] = jax.block_until_ready(compiled(*held["now"], g))

    return Side(call, lambda _: [], lambda: [np.asarray(held["now"][0], np.float64)])


def _logistic(data):
    x, y = jnp.asarray(data["X"]), jnp.asarray(data["y"])

    def loss(w):
        z = x @ w
        return (jax.nn.softplus(z) - y * z).mean()

    return _timed(jax.jit(jax.hessian(loss)), data["w"])


MAKERS: Makers = {
    "dispatch": _dispatch,
    "chain": _chain,
    "norm": _norm,
    "mlp-small": _training(_perceptron),
    "mlp-middle": _training(_perceptron),
    "gpt": _training(_gpt),
    "scan": _scan,
    "arm": _arm,
    "bottleneck": _bottleneck,
    "adamw": _adamw,
    "cnn": _training(_cnn),
    "logistic": _logistic,
}


def side(name: str, contender: str, data) -> Side:
    """JAX's way."""
    return MAKERS[name](data)
