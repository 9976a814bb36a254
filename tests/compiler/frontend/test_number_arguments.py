"""Every public function that takes a Python number, given it as an argument of a program.

While a function is compiled its float arguments are no floats (`compile.host`). Wherever a number
goes, the program does what eager mode does, for the number of the first call and for others.
"""

import array
import ctypes
import datetime
import decimal
import fractions
import inspect
import json
import math
import statistics
import struct

import numpy as np
import pytest

import weft as wf
import weft.nn.functional as F

PLACES = {
    "wf": wf,
    "F": F,
    "linalg": wf.linalg,
    "special": wf.special,
    "fft": wf.fft,
    "random": wf.random,
    "optim": wf.optim,
    "gradient_clipping": wf.gradient_clipping,
    "init": wf.nn.init,
}
rng = np.random.default_rng(0)


def normal(*shape):
    return wf.tensor(rng.standard_normal(shape).astype(np.float32))


X, Y, POSITIVE, ROW = normal(4, 6), normal(4, 6), abs(normal(4, 6)) + 0.1, normal(6)
IMAGE, LABELS = normal(2, 4, 5), wf.tensor([0, 3, 1, 5])
SIGNS = wf.tensor([1.0, -1.0, 1.0, -1.0])
QUERY = normal(2, 3, 4, 8)
GRID = wf.tensor([0.0, 0.5, 1.5, 2.0])

# Function, then (parameter, values): a call of f(tensor, number) for each parameter.
CALLS = {
    "wf.arange": [
        (lambda x, v: wf.arange(v, 5.0, 0.5), (0.0, 1.0, -0.25)),
        (lambda x, v: wf.arange(0.0, v), (3.0, 2.5)),
        (lambda x, v: wf.arange(0.0, 3.0, v), (0.5, 1.0)),
    ],
    "wf.linspace": [
        (lambda x, v: wf.linspace(v, 2.0, 4), (0.0, 1.5)),
        (lambda x, v: wf.linspace(0.0, v, 4) * x[0, :4], (1.0, 3.0)),
    ],
    "wf.full": [(lambda x, v: wf.full((2, 3), v), (1.5, -0.0))],
    "wf.full_like": [(lambda x, v: wf.full_like(x, v), (1.5, 2.0))],
    "wf.tensor": [(lambda x, v: x * wf.tensor(v), (1.5, 2.0))],
    "wf.asarray": [(lambda x, v: x * wf.asarray(v), (1.5, 2.0))],
    "wf.where": [
        (lambda x, v: wf.where(x > 0, x, v), (1.5, 2.0)),
        (lambda x, v: wf.where(x > v, v, x), (0.5, 0.0)),
    ],
    "wf.clip": [
        (lambda x, v: wf.clip(x, -v, v), (0.5, 1.0)),
        (lambda x, v: wf.clip(x, v), (0.5, 0.0)),
    ],
    "wf.maximum": [(lambda x, v: wf.maximum(x, v), (0.5, 0.0))],
    "wf.pow": [(lambda x, v: wf.pow(abs(x), v), (0.5, 2.0, 3.0)), (lambda x, v: v**x, (0.5, 2.0))],
    "wf.pad": [(lambda x, v: wf.pad(x, 1, constant_values=v), (0.5, -0.0, 2.0))],
    "wf.std": [(lambda x, v: wf.std(x, 0, correction=v), (0.0, 1.0))],
    "wf.var": [(lambda x, v: wf.var(x, correction=v), (0.0, 1.0))],
    "wf.isclose": [
        (lambda x, v: wf.isclose(x, x * 1.01, rtol=v), (0.0, 0.001, 0.1)),
        (lambda x, v: wf.isclose(x, x + 0.01, atol=v), (0.0, 0.1)),
    ],
    "wf.elu": [(lambda x, v: wf.elu(x, v), (1.0, 0.5))],
    "wf.leaky_relu": [(lambda x, v: wf.leaky_relu(x, v), (0.1, 0.5))],
    "F.elu": [(lambda x, v: F.elu(x, v), (1.0, 0.5))],
    "F.leaky_relu": [(lambda x, v: F.leaky_relu(x, v), (0.1, 0.5))],
    "wf.norm": [(lambda x, v: wf.norm(x, v), (1.0, 2.0, 3.0, np.inf))],
    "wf.randn": [
        (lambda x, v: wf.randn((3,), v), (0.0, 2.0)),
        (lambda x, v: wf.randn((3,), 0.0, v), (1.0, 2.0)),
    ],
    "wf.quantile": [(lambda x, v: wf.quantile(x, v, axis=1), (0.5, 0.25))],
    "wf.index_add": [
        (lambda x, v: x.at[0].add(v), (1.5, 2.0)),
        (lambda x, v: x.at[1].set(v), (0.5, 1.0)),
    ],
    "wf.odeint": [
        (
            lambda x, v: wf.odeint(lambda y, t: -y, x[0], wf.linspace(0.0, 1.0, 3), rtol=v),
            (0.001, 0.0001),
        ),
        (
            lambda x, v: wf.odeint(lambda y, t: -y, x[0], wf.linspace(0.0, 1.0, 3), atol=v),
            (0.001, 0.0001),
        ),
    ],
    "F.alpha_dropout": [(lambda x, v: F.alpha_dropout(x, v), (0.5, 0.25))],
    "F.batch_norm": [
        (lambda x, v: F.batch_norm(x, None, None, training=True, eps=v), (1e-05, 0.1)),
        (lambda x, v: F.batch_norm(x, ROW * 0, ROW * 0 + 1, training=True, momentum=v), (0.1, 0.5)),
    ],
    "F.celu": [(lambda x, v: F.celu(x, v), (1.0, 0.5))],
    "F.cosine_embedding_loss": [(lambda x, v: F.cosine_embedding_loss(x, Y, SIGNS, v), (0.0, 0.5))],
    "F.cosine_similarity": [(lambda x, v: F.cosine_similarity(x, Y, eps=v), (1e-8, 10.0))],
    "F.cross_entropy": [
        (lambda x, v: F.cross_entropy(x, LABELS, label_smoothing=v), (0.0, 0.25, 0.5))
    ],
    "F.dropout": [(lambda x, v: F.dropout(x, v), (0.5, 0.25, 0.0, 1.0))],
    "F.dropout1d": [(lambda x, v: F.dropout1d(IMAGE * v, v), (0.5, 0.25))],
    "F.dropout2d": [(lambda x, v: F.dropout2d(QUERY, v), (0.5, 0.25))],
    "F.dropout3d": [(lambda x, v: F.dropout3d(QUERY[None], v), (0.5, 0.25))],
    "F.feature_alpha_dropout": [(lambda x, v: F.feature_alpha_dropout(IMAGE, v), (0.5, 0.25))],
    "F.gaussian_nll_loss": [(lambda x, v: F.gaussian_nll_loss(x, Y, POSITIVE, eps=v), (1e-6, 1.0))],
    "F.group_norm": [(lambda x, v: F.group_norm(IMAGE, 2, eps=v), (1e-5, 0.1))],
    "F.gru": [],
    "F.lstm": [],
    "F.rnn_relu": [],
    "F.rnn_tanh": [],
    "F.hardshrink": [(lambda x, v: F.hardshrink(x, v), (0.5, 1.0))],
    "F.hardtanh": [
        (lambda x, v: F.hardtanh(x, -v, 1.0), (0.5, 1.0)),
        (lambda x, v: F.hardtanh(x, -1.0, v), (0.5, 1.0)),
    ],
    "F.hinge_embedding_loss": [
        (lambda x, v: F.hinge_embedding_loss(x[:, 0], SIGNS, v), (1.0, 0.5))
    ],
    "F.hinge_loss": [(lambda x, v: F.hinge_loss(x[:, 0], SIGNS, v), (1.0, 0.5))],
    "F.huber_loss": [(lambda x, v: F.huber_loss(x, Y, delta=v), (1.0, 0.5))],
    "F.instance_norm": [
        (lambda x, v: F.instance_norm(IMAGE, eps=v), (1e-05, 0.1)),
        (lambda x, v: F.instance_norm(IMAGE, momentum=v), (0.1, 0.5)),
    ],
    "F.layer_norm": [(lambda x, v: F.layer_norm(x, 6, eps=v), (1e-5, 0.1))],
    "F.margin_ranking_loss": [
        (lambda x, v: F.margin_ranking_loss(x[:, 0], Y[:, 0], SIGNS, v), (0.0, 0.5))
    ],
    "F.normalize": [
        (lambda x, v: F.normalize(x, v), (2.0, 1.0, 3.0)),
        (lambda x, v: F.normalize(x, eps=v), (1e-12, 10.0)),
    ],
    "F.pad": [(lambda x, v: F.pad(x, (1, 1), value=v), (0.0, 2.5))],
    "F.pairwise_distance": [
        (lambda x, v: F.pairwise_distance(x, Y, v), (2.0, 1.0, 3.0)),
        (lambda x, v: F.pairwise_distance(x, Y, eps=v), (1e-06, 0.1)),
    ],
    "F.poisson_nll_loss": [
        (lambda x, v: F.poisson_nll_loss(POSITIVE, Y, False, eps=v), (1e-8, 0.1))
    ],
    "F.rms_norm": [(lambda x, v: F.rms_norm(x, 6, eps=v), (1e-5, 0.1))],
    "F.rope": [(lambda x, v: F.rope(QUERY, base=v), (10000.0, 100.0))],
    "F.rotary_table": [(lambda x, v: F.rotary_table(5, 4, base=v), (10000.0, 100.0))],
    "F.scaled_dot_product_attention": [
        (lambda x, v: F.scaled_dot_product_attention(QUERY, QUERY, QUERY, scale=v), (0.5, 1.0)),
        (lambda x, v: F.scaled_dot_product_attention(QUERY, QUERY, QUERY, dropout_p=v), (0.0, 0.5)),
    ],
    "F.smooth_l1_loss": [(lambda x, v: F.smooth_l1_loss(x, Y, beta=v), (1.0, 0.5, 0.0))],
    "F.softplus": [
        (lambda x, v: F.softplus(x, v), (1.0, 2.0)),
        (lambda x, v: F.softplus(x, 1.0, v), (20.0, 0.5)),
    ],
    "F.softshrink": [(lambda x, v: F.softshrink(x, v), (0.5, 1.0))],
    "F.threshold": [
        (lambda x, v: F.threshold(x, v, 0.0), (0.5, 0.0)),
        (lambda x, v: F.threshold(x, 0.0, v), (0.5, 0.0)),
    ],
    "F.triplet_margin_loss": [
        (lambda x, v: F.triplet_margin_loss(x, Y, POSITIVE, v), (1.0, 0.5)),
        (lambda x, v: F.triplet_margin_loss(x, Y, POSITIVE, p=v), (2.0, 1.0)),
        (lambda x, v: F.triplet_margin_loss(x, Y, POSITIVE, eps=v), (1e-06, 0.1)),
    ],
    "linalg.vector_norm": [
        (lambda x, v: wf.linalg.vector_norm(x, ord=v), (3.0, 2.0, 1.0, 0.0, np.inf))
    ],
    "linalg.norm": [(lambda x, v: wf.linalg.norm(x[0], ord=v), (3.0, 2.0, 1.0, 0.0, np.inf))],
    "linalg.lstsq": [(lambda x, v: wf.linalg.lstsq(x, x[:, 0], rcond=v)[0], (1e-6, 0.9))],
    "wf.interp": [(lambda x, v: wf.interp(x, GRID, GRID * GRID, period=v), (3.0, 2.5))],
    "F.upsample": [(lambda x, v: F.upsample(IMAGE, scale_factor=v), (2.0, 1.5))],
    "linalg.cond": [(lambda x, v: wf.linalg.cond(x[:, :4], ord=v), (2.0, 1.0, np.inf))],
    "linalg.matrix_norm": [(lambda x, v: wf.linalg.matrix_norm(x, ord=v), (2.0, 1.0, -np.inf))],
    "F.interpolate": [(lambda x, v: F.interpolate(IMAGE, scale_factor=v), (2.0, 1.5))],
    "linalg.pinv": [(lambda x, v: wf.linalg.pinv(x, rtol=v), (1e-6, 0.9))],
    "linalg.matrix_rank": [(lambda x, v: wf.linalg.matrix_rank(x, rtol=v), (1e-6, 0.9))],
    "fft.fftfreq": [(lambda x, v: wf.fft.fftfreq(4, d=v), (1.0, 0.5))],
    "fft.rfftfreq": [(lambda x, v: wf.fft.rfftfreq(4, d=v), (1.0, 0.5))],
    "random.bernoulli": [(lambda x, v: wf.random.bernoulli(v, (8,)), (0.5, 0.1, 1.0))],
    "random.normal": [
        (lambda x, v: wf.random.normal(v, 1.0, (3,)), (0.0, 2.0)),
        (lambda x, v: wf.random.normal(0.0, v, (3,)), (1.0, 2.0)),
    ],
    "random.uniform": [
        (lambda x, v: wf.random.uniform(v, 3.0, (3,)), (0.0, 2.0)),
        (lambda x, v: wf.random.uniform(-1.0, v, (3,)), (0.0, 2.0)),
    ],
    "optim.clip_grad_norm": [
        (lambda x, v: clipped(x, lambda p: wf.optim.clip_grad_norm([p], v)), (1.0, 100.0)),
        (
            lambda x, v: clipped(x, lambda p: wf.optim.clip_grad_norm([p], 1.0, v)),
            (2.0, 1.0, np.inf),
        ),
    ],
    "optim.clip_grad_value": [
        (lambda x, v: clipped(x, lambda p: wf.optim.clip_grad_value([p], v)), (1.0, 0.5))
    ],
    "optim.clip_grad_adaptive": [
        (lambda x, v: clipped(x, lambda p: wf.optim.clip_grad_adaptive([p], v)), (0.01, 0.5)),
        (
            lambda x, v: clipped(x, lambda p: wf.optim.clip_grad_adaptive([p], 0.01, v)),
            (0.001, 10.0),
        ),
    ],
    "optim.clip_grads_with_norm": [
        (
            lambda x, v: clipped(x, lambda p: wf.optim.clip_grads_with_norm([p], v, 5.0)),
            (1.0, 100.0),
        ),
        (lambda x, v: clipped(x, lambda p: wf.optim.clip_grads_with_norm([p], 1.0, v)), (1.0, 5.0)),
    ],
    "optim.global_norm": [(lambda x, v: wf.optim.global_norm([x], v), (2.0, 1.0, np.inf))],
    "optim.cosine_lr": [(lambda x, v: x * wf.optim.cosine_lr(v, 3, 10), (0.1, 0.5))],
    "gradient_clipping.clip_by_global_norm": [
        (lambda x, v: wf.gradient_clipping.clip_by_global_norm([x], v), (1.0, 100.0))
    ],
    "gradient_clipping.clip_by_value": [
        (lambda x, v: wf.gradient_clipping.clip_by_value([x], v), (1.0, 0.5))
    ],
}
# Parameters that are counts, axes, sizes or places, and functions that say how a program is made.
COUNTS = set(
    """
    axis axes axis1 axis2 dim n n_rows n_cols k offset num num_classes chunks minlength stride
    padding
    dilation groups output_padding divisor_override num_groups num_layers size a b shape low high
    in_axes out_axes argnums memory_limit order length segments batch_size max_steps blank
    ignore_index padding_idx upscale_factor downscale_factor max_variants keep_last current_step
    total_steps seed state shapes start
    """.split()
)
OTHERS = {"allclose", "save_checkpoint", "load_checkpoint", "wf.sliding_window"}


def clipped(x, clip):
    """The gradient of a leaf after it was clipped, and what clipping gives."""
    p = x.detach().requires_grad_()
    (p * p * 3).sum().backward()
    told = clip(p)
    return p.grad if told is None else (p.grad, told)


def leaves(out) -> list:
    out = out if isinstance(out, tuple | list) else [out]
    return [v.detach().numpy() if isinstance(v, wf.Tensor) else np.asarray(v) for v in out]


def alike(want, got, label, signs: bool = True) -> None:
    assert len(want) == len(got), label
    for a, b in zip(want, got, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), label
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6, err_msg=label)
        both = (a == 0) & (b == 0)
        assert not signs or (np.signbit(a[both]) == np.signbit(b[both])).all(), label


CASES = [(name, k) for name, calls in CALLS.items() for k in range(len(calls))]


@pytest.mark.parametrize(("name", "k"), CASES, ids=[f"{n}-{k}" for n, k in CASES])
def test_a_number_among_the_arguments(name, k):
    f, values = CALLS[name][k]
    compiled = wf.compile(f)
    for v in (*values, values[0]):
        wf.random.seed(3)
        want = leaves(f(X, v))
        wf.random.seed(3)
        alike(want, leaves(compiled(X, v)), f"{name} of {v}")


@pytest.mark.parametrize(("name", "k"), CASES, ids=[f"{n}-{k}" for n, k in CASES])
def test_its_gradient(name, k):
    f, values = CALLS[name][k]
    if name.startswith(("optim", "random", "gradient")):
        return

    def gradient(x, v):
        x = x.detach().requires_grad_()
        out = [y for y in leaves_of(f(x, v)) if y.requires_grad]
        if not out:
            return ()
        return (sum([(y * y).sum() for y in out]).backward()[x],)

    compiled = wf.compile(gradient)
    for v in values:
        wf.random.seed(3)
        want = leaves(gradient(X, v))
        wf.random.seed(3)
        alike(want, leaves(compiled(X, v)), f"gradient of {name} of {v}", False)


def leaves_of(out) -> list:
    return [
        v for v in (out if isinstance(out, tuple | list) else [out]) if isinstance(v, wf.Tensor)
    ]


def _numbers(f) -> list[str]:
    """The parameters of a function that are real numbers, as far as their defaults tell."""
    parameters = inspect.signature(f).parameters.values()
    real = [p for p in parameters if type(p.default) is float or "float" in str(p.annotation)]
    return [p.name for p in real if p.name not in COUNTS]


def test_every_public_function_with_a_number_is_here():
    known = {getattr(PLACES[p], n) for p, n in (name.split(".") for name in CALLS)}
    missing = []
    for place, module in PLACES.items():
        for name in dir(module):
            f = getattr(module, name)
            if name.startswith("_") or isinstance(f, type) or not callable(f) or f in known:
                continue
            if getattr(f, "__module__", "").startswith("weft") and place != "init":
                missing += [f"{place}.{name}({p})" for p in _numbers(f) if name not in OTHERS]
    assert not missing


# NumPy's ways to make an array of numbers, each with a number of each call among them.
ARRAYS = {
    "array": lambda s: np.array([s, 2.0]),
    "array of one": lambda s: np.array(s),
    "asarray": lambda s: np.asarray([[s, s * 2]]),
    "stack": lambda s: np.stack([s, s * 2]),
    "hstack": lambda s: np.hstack([s, 1.0]),
    "full": lambda s: np.full(2, s),
    "full_like": lambda s: np.full_like(np.zeros(2), s),
    "diag": lambda s: np.diag([s, s]),
    "repeat": lambda s: np.repeat(s, 2),
    "tile": lambda s: np.tile([s], 2),
    "append": lambda s: np.append([1.0], s),
    "outer": lambda s: np.outer([s, 1.0], [1.0, 2.0]),
    "assigned": lambda s: _assigned(s),
    "of floats": lambda s: np.array([s, 2.0], dtype=float),
    "float": lambda s: np.array([float(s), 2.0]),
    "sum": lambda s: np.sum([s, s]),
}


def _assigned(s):
    a = np.zeros(2)
    a[0] = s
    return a


@pytest.mark.parametrize("use", [lambda x, a: x * a, lambda x, a: x * wf.asarray(a)])
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_numbers_are_right_or_name_the_fix(name, use):
    f = wf.compile(lambda x, s: use(x, ARRAYS[name](s)))
    for s in (1.5, -2.0, 1.5):
        try:
            found = f(wf.ones(2, dtype="float64"), s)
        except wf.errors.StagingError as e:
            assert "wf.stack" in str(e) and "dtype=float" in str(e)
        else:
            np.testing.assert_array_equal(found.numpy(), np.ones(2) * ARRAYS[name](s))


BINARY = [
    name
    for name in dir(np)
    if isinstance(getattr(np, name), np.ufunc)
    and getattr(np, name).signature is None
    and (getattr(np, name).nin, getattr(np, name).nout) == (2, 1)
]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.filterwarnings("ignore")
def test_functions_of_an_array_and_a_number_are_those_of_numpy(name):
    """Every ufunc of two arguments, on both sides of an array; or an error of ours."""
    ufunc = getattr(np, name)
    for a in (np.array([0.5, 2.0]), np.array([0.5, 2.0], np.float32), np.array([1, 3])):
        for f in (lambda s, a=a: ufunc(a, s), lambda s, a=a: ufunc(s, a)):
            for s in (1.5, 0.25):
                try:
                    want = f(s)
                except TypeError:
                    continue
                try:
                    found = wf.compile(lambda x, s, f=f: f(s) + x * 0)(wf.zeros(2), s)
                except wf.errors.WeftError:
                    continue
                if want.dtype != bool:
                    np.testing.assert_allclose(found.numpy(), want, rtol=1e-6, err_msg=name)
                else:
                    np.testing.assert_array_equal(found.numpy() != 0, want)


TAKING = {
    "divmod": lambda s: divmod(s, 0.7)[0],
    "np.round": lambda s: np.round(s, 1),
    "Decimal": lambda s: float(decimal.Decimal(s) / 4),
    "json": lambda s: float(json.dumps(s)),
    "statistics": lambda s: statistics.mean([s, 1.0]),
    "struct": lambda s: struct.unpack("d", struct.pack("d", s))[0],
    "array": lambda s: array.array("d", [s])[0],
    "ctypes": lambda s: ctypes.c_double(s).value,
    "fractions": lambda s: float(fractions.Fraction(s) * 2),
    "datetime": lambda s: datetime.timedelta(seconds=s).total_seconds(),
    "format": lambda s: float(f"{s:.3f}"),
    "percent": lambda s: float("%.3f" % s),
    "hex": lambda s: float.fromhex(float.hex(s)),
    "fsum": lambda s: math.fsum([s, 1.0]),
    "numpy's scalar": lambda s: np.float32(s),
}


@pytest.mark.parametrize("name", TAKING)
def test_functions_that_take_only_numbers_get_the_value(name):
    """Python's library: what is not right at each value is refused by an error of ours."""
    compiled = wf.compile(lambda x, s: x * TAKING[name](s), max_variants=9)
    for s in (1.5, 2.25, 1.5, -3.0, 2.25):
        x = wf.ones(2, dtype="float64")
        np.testing.assert_allclose(compiled(x, s).numpy(), (x * TAKING[name](s)).numpy(), rtol=1e-6)


def test_an_error_of_the_function_is_its_own():
    with pytest.raises(TypeError, match="unsupported operand"):
        wf.compile(lambda x, s: x * (s + "a"))(wf.ones(2), 1.5)
