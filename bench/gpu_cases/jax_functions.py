"""JAX's functions under the names that PyTorch and Weft have for them."""

from typing import Any, Literal

import jax
import jax.numpy as jnp


class Functions:
    """The functions of one problem.

    half   whether products are in bfloat16, as in PyTorch's autocast
    cudnn  whether attention is cuDNN's
    """

    relu, silu = staticmethod(jax.nn.relu), staticmethod(jax.nn.silu)

    def __init__(self, half: bool, cudnn: bool):
        self.half, self.cudnn = half, cudnn

    def _narrow(self, *arrays: Any) -> list[Any]:
        return [a.astype(jnp.bfloat16) if self.half else a for a in arrays]

    def linear(self, x: Any, w: Any, b: Any = None) -> Any:
        x, w = self._narrow(x, w)
        y = x @ w.T
        return y if b is None else y + b.astype(y.dtype)

    def layer_norm(self, x: Any, shape: Any, w: Any, b: Any, eps: float = 1e-5) -> Any:
        wide = x.astype(jnp.float32)
        mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
        y = (wide - mean) * jax.lax.rsqrt(variance + eps)
        y = y if w is None else y * w + b
        return y if self.half else y.astype(x.dtype)

    def rms_norm(self, x: Any, shape: Any, w: Any, eps: float) -> Any:
        wide = x.astype(jnp.float32)
        y = wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + eps)
        return (y * w).astype(x.dtype)

    def gelu(self, x: Any, approximate: str = "none") -> Any:
        return jax.nn.gelu(x, approximate=approximate == "tanh")

    def scaled_dot_product_attention(self, q: Any, k: Any, v: Any, is_causal: bool = False) -> Any:
        q, k, v = (a.swapaxes(1, 2) for a in self._narrow(q, k, v))
        way: Literal["cudnn", "xla"] = "cudnn" if self.cudnn else "xla"
        y = jax.nn.dot_product_attention(q, k, v, is_causal=is_causal, implementation=way)
        return y.swapaxes(1, 2)

    def embedding(self, ids: Any, w: Any) -> Any:
        return w[ids]

    def cross_entropy(self, x: Any, labels: Any) -> Any:
        logs = jax.nn.log_softmax(x.astype(jnp.float32))
        return -jnp.take_along_axis(logs, labels[:, None], 1).mean()

    def mse_loss(self, x: Any, target: Any) -> Any:
        return ((x - target) ** 2).mean()

    def conv2d(self, x: Any, w: Any, stride: int = 1, padding: int = 0) -> Any:
        x, w = self._narrow(x, w)
        return jax.lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2)

    def batch_norm(
        self, x: Any, mean: Any, variance: Any, w: Any, b: Any, training: bool = True
    ) -> Any:
        """By the batch's own averages; those of earlier batches are left out."""
        wide = x.astype(jnp.float32)
        y = (wide - wide.mean((0, 2, 3), keepdims=True)) * jax.lax.rsqrt(
            wide.var((0, 2, 3), keepdims=True) + 1e-5
        )
        return (y * w[:, None, None] + b[:, None, None]).astype(x.dtype)

    def max_pool2d(self, x: Any, size: int, stride: int, padding: int) -> Any:
        around = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        window, strides = (1, 1, size, size), (1, 1, stride, stride)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, around)
