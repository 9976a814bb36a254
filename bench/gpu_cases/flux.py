"""The blocks of Flux with low-rank adapters, written once for every library."""

from typing import Any

from .sides import Library, Named

EPS = 1e-6


class Blocks:
    """The forward pass: double blocks of two streams, then single blocks of both joined.

    lib, p, held  the library, the adapters A and B by name, and all that is frozen or given
    """

    def __init__(self, lib: Library, p: Named, held: Named):
        self.lib, self.p, self.held = lib, p, held

    def linear(self, name: str, x: Any) -> Any:
        """x·Wᵀ + b, and (x·Aᵀ)·Bᵀ if the layer has an adapter."""
        f, cast = self.lib.f, self.lib.cast
        y = f.linear(x, self.held[f"{name}.w"], self.held[f"{name}.b"])
        if f"{name}.A" not in self.p:
            return y
        a, b = cast(self.p[f"{name}.A"], x), cast(self.p[f"{name}.B"], x)
        return y + f.linear(f.linear(x, a), b)

    def modulation(self, name: str, parts: int) -> list[Any]:
        """Shift, scale, gate, once or twice."""
        y = self.linear(name, self.lib.f.silu(self.held["vec"]))
        y = y.reshape(y.shape[0], 1, parts, y.shape[-1] // parts)
        return [y[:, :, i] for i in range(parts)]

    def modulated(self, x: Any, shift: Any, scale: Any) -> Any:
        return self.lib.f.layer_norm(x, (x.shape[-1],), None, None, EPS) * (1 + scale) + shift

    def heads(self, name: str, qkv: Any) -> list[Any]:
        """Queries, keys and values (batch, heads, tokens, head); the first two of norm 1."""
        n, t, width = qkv.shape
        head = self.held[f"{name}.query"].shape[0]
        parts = qkv.reshape(n, t, 3, width // 3 // head, head)
        q, k, v = (parts[:, :, i].swapaxes(1, 2) for i in range(3))
        norm = self.lib.f.rms_norm
        q = norm(q, (head,), self.held[f"{name}.query"], EPS)
        return [q, norm(k, (head,), self.held[f"{name}.key"], EPS), v]

    def rotated(self, x: Any) -> Any:
        """Features 2i and 2i + 1 turned by the angles of their position, in float32."""
        cosine, sine = self.held["cosine"], self.held["sine"]
        wide = self.lib.cast(x, cosine).reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
        a, b = wide[..., 0], wide[..., 1]
        y = self.lib.xp.stack([a * cosine - b * sine, a * sine + b * cosine], axis=-1)
        return self.lib.cast(y.reshape(*x.shape), x)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        attend = self.lib.f.scaled_dot_product_attention
        y = attend(self.rotated(q), self.rotated(k), v).swapaxes(1, 2)
        return y.reshape(y.shape[0], y.shape[1], -1)

    def double(self, name: str, img: Any, txt: Any) -> tuple[Any, Any]:
        streams, mods, parts = {"img": img, "txt": txt}, {}, {}
        for s, x in streams.items():
            mods[s] = self.modulation(f"{name}.{s}.mod", 6)
            qkv = self.linear(f"{name}.{s}.qkv", self.modulated(x, *mods[s][:2]))
            parts[s] = self.heads(f"{name}.{s}", qkv)
        both = zip(parts["txt"], parts["img"], strict=True)
        y = self.attention(*[self.lib.xp.concat(pair, axis=2) for pair in both])
        count = txt.shape[1]
        attended = {"img": y[:, count:], "txt": y[:, :count]}
        for s, x in streams.items():
            shift, scale, gate = mods[s][3:]
            x = x + mods[s][2] * self.linear(f"{name}.{s}.proj", attended[s])
            h = self.linear(f"{name}.{s}.up", self.modulated(x, shift, scale))
            h = self.linear(f"{name}.{s}.down", self.lib.f.gelu(h, approximate="tanh"))
            streams[s] = x + gate * h
        return streams["img"], streams["txt"]

    def single(self, name: str, x: Any) -> Any:
        shift, scale, gate = self.modulation(f"{name}.mod", 3)
        h = self.linear(f"{name}.linear1", self.modulated(x, shift, scale))
        width = x.shape[-1]
        y = self.attention(*self.heads(name, h[:, :, : 3 * width]))
        mlp = self.lib.f.gelu(h[:, :, 3 * width :], approximate="tanh")
        return x + gate * self.linear(f"{name}.linear2", self.lib.xp.concat([y, mlp], axis=2))


def loss(lib: Library, p: Named, held: Named) -> Any:
    """The mean squared error of the image's tokens."""
    blocks, img, txt = Blocks(lib, p, held), held["img"], held["txt"]
    for k in range(sum(name.endswith("img.qkv.w") for name in held)):
        img, txt = blocks.double(f"double{k}", img, txt)
    x, count = lib.xp.concat([txt, img], axis=1), txt.shape[1]
    for k in range(sum(name.endswith("linear1.w") for name in held)):
        x = blocks.single(f"single{k}", x)
    target = held["target"]
    return lib.f.mse_loss(lib.cast(x[:, count:], target), target)
