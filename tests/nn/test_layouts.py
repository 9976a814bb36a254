"""No neural function depends on how its arguments and cotangents lie in memory.

Arrays are larger than the table's samples, so that libraries' quick kernels take them.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.table.layouts import Laid, Plain, difference, outcome
from tests.table.probe import raw, to_numpy

import weft as wf
from weft.core.dtypes import bfloat16, is_inexact

F = wf.nn.functional
ROUNDS = 40 if os.environ.get("WEFT_SOAK") else 2
# How far sums in another order may be apart, relative to the largest number.
CLOSE = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 0.06}


def whole(most: int, shape) -> Callable:
    return lambda rng: rng.integers(0, most, shape)


def positive(*shape: int) -> Callable:
    return lambda rng: rng.uniform(0.1, 0.9, shape)


def small(*shape: int) -> Callable:
    return lambda rng: rng.uniform(-0.2, 0.2, shape)


def signs(*shape: int) -> Callable:
    return lambda rng: rng.choice([-1.0, 1.0], shape)


def seen(*shape: int) -> Callable:
    return lambda rng: rng.random(shape) < 0.7


X, IMAGES = (6, 5, 8), (3, 4, 9, 7)
LINE, VOLUME = (3, 4, 12), (2, 3, 5, 6, 4)
# By name: (the function of arrays, what they are: shapes of normal numbers, or samplers)
CALLS: dict[str, list[tuple[Callable, tuple[Any, ...]]]] = {}


def put(name: str, f: Callable, *arrays) -> None:
    CALLS.setdefault(name, []).append((f, arrays))


def add(name: str, *arrays, **options) -> None:
    f: Any = getattr(F, name)
    put(name, lambda *args: f(*args, **options), *arrays)


for (
    name
) in """celu elu geglu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_softmax
logsigmoid mish normalize relu relu6 rope selu sigmoid silu softmax softmin softplus softshrink
softsign swiglu swish tanh tanhshrink""".split():
    add(name, X)
add("gelu", X, approximate="tanh")
add("softmax", X, dim=1)
add("log_softmax", X, dim=0)
add("threshold", X, threshold=0.1, value=0.5)
add("prelu", IMAGES, (4,))
for name in ("alpha_dropout", "dropout", "feature_alpha_dropout"):
    add(name, IMAGES, training=True)
for axes, shape in enumerate((LINE, IMAGES, VOLUME), 1):
    conv = (6, shape[1], *(3, 2, 2)[:axes])
    add(f"dropout{axes}d", shape)
    add(f"conv{axes}d", shape, conv, (6,))
    add(f"conv{axes}d", shape, conv, stride=2, padding=1, dilation=2)
    add(f"conv_transpose{axes}d", shape, (shape[1], 6, *conv[2:]), (6,), stride=2)
    add(f"adaptive_avg_pool{axes}d", shape, output_size=3)
    add(f"adaptive_max_pool{axes}d", shape, output_size=3, return_indices=True)
    for kind in ("avg", "max"):
        add(f"{kind}_pool{axes}d", shape, kernel_size=2)
        add(f"{kind}_pool{axes}d", shape, kernel_size=3, stride=2, padding=1, ceil_mode=True)
    weights = (shape[1],), (shape[1],)
    put(
        "batch_norm",
        lambda x, *wb: F.batch_norm(x, None, None, *wb, training=True),
        shape,
        *weights,
    )
    add("instance_norm", shape)
    add("interpolate", shape, scale_factor=2)
    add("upsample", shape, scale_factor=2)
add("conv2d", (3, 4, 9, 7), (8, 2, 3, 3), groups=2)
add("conv2d", (3, 4, 9, 7), (8, 1, 3, 3), groups=4, padding="same")
add("conv2d", (3, 4, 9, 7), (8, 4, 1, 1))
put("batch_norm", F.batch_norm, IMAGES, (4,), positive(4), (4,))
put("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), IMAGES, (4,), (4,))
add("interpolate", IMAGES, size=(5, 11), mode="bilinear")
add("global_avg_pool", IMAGES)
add("global_max_pool", IMAGES)
put("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), IMAGES, (4,), (4,))
put("group_norm", lambda x: F.group_norm(x, 4), IMAGES)
for core in ((8,), (5, 8)):
    put("layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b), X, core, core)
    put("rms_norm", lambda x, w: F.rms_norm(x, w.shape, w), X, core)
put("layer_norm", lambda x: F.layer_norm(x, (8,)), X)
add("linear", X, (7, 8), (7,))
add("linear", (9, 8), (7, 8))
add("fold", (2, 3 * 4, 20), output_size=(5, 6), kernel_size=2)
add("unfold", IMAGES, kernel_size=2, stride=2)
add("pad", IMAGES, pad=(1, 2, 0, 1))
add("pad", IMAGES, pad=(1, 2, 2, 1), mode="reflect")
add("pixel_shuffle", IMAGES, upscale_factor=2)
add("pixel_unshuffle", (3, 4, 6, 8), downscale_factor=2)
add("embedding", whole(11, (5, 6)), (11, 8))
add("embedding", whole(11, (30,)), (11, 8), padding_idx=2)
add("one_hot", whole(5, (4, 6)), num_classes=5)
add("rotary_table", whole(9, (5, 3)), dim=8)
add("rotate", X, (5, 8))
add("rotate", X, (5, 8), interleaved=True)
add("rope", X, interleaved=True)

for name in "l1_loss mse_loss huber_loss smooth_l1_loss kl_div poisson_nll_loss".split():
    for reduction in ("mean", "none"):
        add(name, X, X, reduction=reduction)
add("binary_cross_entropy", positive(*X), positive(*X))
add("binary_cross_entropy_with_logits", X, positive(*X))
put(
    "binary_cross_entropy_with_logits",
    lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, w, "sum", p),
    *(X, positive(*X), X, (8,)),
)
add("gaussian_nll_loss", X, X, positive(*X))
for name in ("hinge_embedding_loss", "hinge_loss", "soft_margin_loss"):
    add(name, X, signs(*X))
add("margin_ranking_loss", (40,), (40,), signs(40))
add("cosine_embedding_loss", (9, 8), (9, 8), signs(9))
add("cosine_similarity", X, X)
add("pairwise_distance", (9, 8), (9, 8))
add("triplet_margin_loss", (9, 8), (9, 8), (9, 8))
add("nll_loss", (20, 9), whole(9, (20,)))
add("nll_loss", (4, 9, 5), whole(9, (4, 5)), reduction="none")
add("nll_loss", (20, 9), whole(9, (20,)), positive(9))
for reduction in ("mean", "sum", "none"):
    add("cross_entropy", (20, 9), whole(9, (20,)), reduction=reduction, label_smoothing=0.1)
    add("cross_entropy", (4, 9, 5), whole(9, (4, 5)), reduction=reduction)
add("cross_entropy", (20, 9), whole(9, (20,)), positive(9))
add("cross_entropy", (20, 9), positive(20, 9))
add("softmax_cross_entropy", (20, 9), whole(9, (20,)))
put(
    "ctc_loss",
    lambda x, y: F.ctc_loss(wf.log_softmax(x, -1), y + 1, [12, 10, 9], [4, 3, 4]),
    *((12, 3, 6), whole(5, (3, 4))),
)

for h, g, t, s, d in ((4, 4, 9, 9, 16), (4, 2, 17, 40, 8), (2, 2, 33, 64, 32)):
    q, k = (2, h, t, d), (2, g, s, d)
    add("scaled_dot_product_attention", q, k, k, enable_gqa=True)
    add("scaled_dot_product_attention", q, k, k, (h, t, s), enable_gqa=True)
    add("scaled_dot_product_attention", q, k, k, seen(2, 1, 1, s), enable_gqa=True)
    add("scaled_dot_product_attention", q[1:], k[1:], k[1:], is_causal=True, enable_gqa=True)
add("scaled_dot_product_attention", (2, 2, 9, 8), (2, 2, 9, 8), (2, 2, 9, 4), dropout_p=0.3)


def add_recurrent(name: str, gates: int, states: int) -> None:
    layer, cell = getattr(F, name), getattr(F, f"{name}_cell")

    def state(h):
        return h if states == 2 else h[0]

    # Weights that contract: rounding is not amplified along the sequence.
    weights = [*(small(gates * 5, n) for n in (6, 5)), *((gates * 5,),) * 2]
    h, hs = ((3, 5),) * states, ((1, 3, 5),) * states
    put(name, lambda x, *args: layer(x, state(args[4:]), args[:4]), (7, 3, 6), *weights, *hs)
    put(f"{name}_cell", lambda x, *args: cell(x, state(args[4:]), *args[:4]), (3, 6), *weights, *h)


for name, gates, states in (("rnn_relu", 1, 1), ("rnn_tanh", 1, 1), ("gru", 3, 1), ("lstm", 4, 2)):
    add_recurrent(name, gates, states)


# With equal numbers the variance is 0, and the gradient mostly rounding.
NORMS = {"batch_norm", "group_norm", "instance_norm", "layer_norm"}


def computed(name: str, k: int, arrays: list[np.ndarray], vary: Callable) -> list[np.ndarray]:
    """Results, and a pull-back of all of them; vary(array) gives an array in some layout."""
    f = CALLS[name][k][0]

    def given(x: np.ndarray, keep: bool = False):
        return wf.asarray(raw(vary(x, keep), "torch"))

    args = [given(a, name in NORMS) for a in arrays]
    moving = [k for k, a in enumerate(args) if is_inexact(a.dtype)]

    def call(*tensors):
        own = list(args)
        for k, t in zip(moving, tensors, strict=True):
            own[k] = t
        wf.random.seed(3)
        y = f(*own)
        return tuple(y) if isinstance(y, tuple | list) else (y,)

    if not moving:
        return [to_numpy(y._data) for y in call()]
    y, pull = wf.vjp(call, *[args[k] for k in moving])
    rng = np.random.default_rng(5)
    seeds = [given(np.asarray(rng.standard_normal(t.shape)).astype(t.dtype)) for t in y]
    return [to_numpy(t._data) for t in (*y, *pull(tuple(seeds)))]


def test_every_function_has_a_call():
    assert set(CALLS) == set(dir(F)), set(CALLS) ^ set(dir(F))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("name", sorted(CALLS))
def test_layouts_do_not_matter(name, dtype):
    kind = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for draw in range(ROUNDS):
        for k, (_, given) in enumerate(CALLS[name]):
            rng = np.random.default_rng([draw, k])
            arrays = [np.asarray(a(rng) if callable(a) else rng.standard_normal(a)) for a in given]
            arrays = [a.astype(kind) if is_inexact(a.dtype) else a for a in arrays]
            laid = Laid([draw, k, 1], spread=draw % 2 == 1)
            got = outcome(computed, name, k, arrays, laid)
            want = outcome(computed, name, k, arrays, Plain(laid))
            found = difference(got, want, CLOSE[dtype])
            assert not found, f"{found} (call {k}, draw {draw}, {laid.strides()})"
            assert not isinstance(got, str), f"{got} (call {k})"
            assert laid.unchanged(), f"an argument was changed (call {k}, {laid.strides()})"


def in_memory(x):
    """A planted fault: the elements in the order in which they lie."""
    order = sorted(range(x.ndim), key=x._data.stride, reverse=True)
    return wf.asarray(x._data.permute(order).reshape(x.shape))


def test_a_function_that_ignores_strides_is_found(monkeypatch):
    monkeypatch.setitem(CALLS, "planted", [(in_memory, (whole(99, X),))])
    with pytest.raises(AssertionError, match="array 0: "):
        test_layouts_do_not_matter("planted", "float64")
