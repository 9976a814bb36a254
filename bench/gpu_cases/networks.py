"""Forward passes, written once: `lib` is a `Library`, `p` arrays by name."""

from typing import Any

from .sides import Library, Named


def chain(lib: Library, p: Named, _: Named) -> Any:
    """The sum of four times tanh(x)·exp(−x²) + sin(x)."""
    return chain_terms(lib.xp, p["x"]).sum()


def chain_terms(xp: Any, x: Any) -> Any:
    for _ in range(4):
        x = xp.tanh(x) * xp.exp(-(x * x)) + xp.sin(x)
    return x


def layer_norm(lib: Library, p: Named, _: Named) -> Any:
    return lib.f.layer_norm(p["x"], (p["x"].shape[-1],), p["w"], p["b"])


def linear(lib: Library, p: Named, _: Named) -> Any:
    return lib.f.linear(p["x"], p["w"], p["b"])


def products(lib: Library, _: Named, held: Named) -> Any:
    """The products of one input with several weights, as a decoding step has them."""
    weights = [w for name, w in held.items() if name.startswith("w")]
    return lib.xp.stack([lib.f.linear(held["x"], w) for w in weights])


def stack(lib: Library, p: Named, _: Named) -> Any:
    """Layers of layer norm, linear and GELU."""
    x = p["x"]
    for k in range(len(p) // 4):
        x = lib.f.layer_norm(x, (x.shape[-1],), p[f"{k}.scale"], p[f"{k}.shift"])
        x = lib.f.gelu(lib.f.linear(x, p[f"{k}.w"], p[f"{k}.b"]))
    return (x * x).mean()


def perceptron(lib: Library, p: Named, held: Named) -> Any:
    x, count = held["x"], len(p) // 2
    for k in range(count):
        x = lib.f.linear(x, p[f"w{k}"], p[f"b{k}"])
        x = lib.f.relu(x) if k < count - 1 else x
    return lib.f.cross_entropy(x, held["labels"])


def recurrent(lib: Library, p: Named, held: Named) -> Any:
    """The mean square of h after the steps h = tanh(h·Wᵀ + x·Uᵀ + b)."""
    w, u, b = p["w"].swapaxes(0, 1), p["u"].swapaxes(0, 1), p["b"]

    def step(h: Any, x: Any) -> Any:
        return lib.xp.tanh(h @ w + x @ u + b)

    h = lib.scan(step, held["h"], held["xs"])
    return (h * h).mean()


def recurrent_by_cudnn(lib: Library, p: Named, held: Named) -> Any:
    """The same by PyTorch's call of cuDNN, which has a second bias."""
    weights = [p["u"], p["w"], p["b"], lib.xp.zeros_like(p["b"])]
    h = lib.xp.rnn_tanh(held["xs"], held["h"][None], weights, True, 1, 0.0, False, False, False)[1]
    return (h * h).mean()


def gpt(heads: int) -> Any:
    """A GPT-2 whose head is its table of tokens."""

    def attend(lib: Library, qkv: Any) -> Any:
        n, t, width = qkv.shape
        parts = qkv.reshape(n, t, 3, heads, width // 3 // heads)
        q, k, v = (parts[:, :, i].swapaxes(1, 2) for i in range(3))
        y = lib.f.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.swapaxes(1, 2).reshape(n, t, width // 3)

    def loss(lib: Library, p: Named, held: Named) -> Any:
        def linear(name: str, x: Any) -> Any:
            return lib.f.linear(x, p[f"{name}.w"], p[f"{name}.b"])

        def norm(name: str, x: Any) -> Any:
            return lib.f.layer_norm(x, (x.shape[-1],), p[f"{name}.scale"], p[f"{name}.shift"])

        x = lib.f.embedding(held["ids"], p["tokens"]) + p["positions"]
        for k in range(sum(name.endswith("qkv.w") for name in p)):
            h = attend(lib, linear(f"{k}.qkv", norm(f"{k}.norm1", x)))
            x = x + linear(f"{k}.proj", h)
            h = lib.f.gelu(linear(f"{k}.up", norm(f"{k}.norm2", x)), approximate="tanh")
            x = x + linear(f"{k}.down", h)
        logits = lib.f.linear(norm("norm", x), p["tokens"])
        return lib.f.cross_entropy(logits.reshape(-1, logits.shape[-1]), held["targets"])

    return loss


def resnet(lib: Library, p: Named, held: Named) -> Any:
    """Bottlenecks of three convolutions with batch norm, as in ResNet-50."""

    def conv(name: str, x: Any, stride: int = 1) -> Any:
        w = p[f"{name}.w"]
        x = lib.f.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
        averages = held[f"{name}.mean"], held[f"{name}.variance"]
        affine = p[f"{name}.scale"], p[f"{name}.shift"]
        return lib.f.batch_norm(x, *averages, *affine, training=True)

    def bottleneck(name: str, x: Any, stride: int) -> Any:
        h = lib.f.relu(conv(f"{name}.a", x))
        h = lib.f.relu(conv(f"{name}.b", h, stride))
        short = conv(f"{name}.short", x, stride) if f"{name}.short.w" in p else x
        return lib.f.relu(conv(f"{name}.c", h) + short)

    x = lib.f.max_pool2d(lib.f.relu(conv("stem", held["x"], 2)), 3, stride=2, padding=1)
    names = [name.removesuffix(".a.w") for name in p if name.endswith(".a.w")]
    for name in names:
        stage, index = map(int, name.split("."))
        x = bottleneck(name, x, 2 if stage and not index else 1)
    x = lib.f.linear(x.mean((2, 3)), p["head.w"], p["head.b"])
    return lib.f.cross_entropy(x, held["labels"])
