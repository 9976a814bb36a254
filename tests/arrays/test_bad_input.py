"""Mistakes raise before any work: the op, what came, what was expected, and the user's line."""

import re

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    IndexingError,
    IntegerOutOfRange,
    LinAlgError,
    ShapeError,
)


class Maker:
    """Makes the arguments on one device, tracked or not."""

    def __init__(self, device: str, tracked: bool):
        self.device, self.tracked = device, tracked

    def __call__(self, *shape):
        return wf.ones(shape, device=self.device, requires_grad=self.tracked)

    def of(self, values, dtype=None):
        return wf.asarray(values, dtype=dtype, device=self.device)


@pytest.fixture(params=["cpu", "cpu tracked", "torch"])
def t(request):
    device, _, tracked = request.param.partition(" ")
    return Maker(device, bool(tracked))


# op, error, what its message must contain besides the op's name, and the mistake.
ELEMENTWISE = [
    ("add", ShapeError, "(3,), (4,)", lambda t: t(3) + t(4)),
    ("multiply", ShapeError, "(2, 3), (3, 2)", lambda t: wf.mul(t(2, 3), t(3, 2))),
    ("where", ShapeError, "(3,), (4,)", lambda t: wf.where(t(3) > 0, t(3), t(4))),
    ("where", DTypeError, "float32, expected bool", lambda t: wf.where(t(3), t(3), t(3))),
    ("clip", ShapeError, "(3,), (4,)", lambda t: wf.clip(t(3), t(4), None)),
    ("add", DTypeError, "NoneType", lambda t: t(3) + None),
    ("add", DTypeError, "str", lambda t: t(3) + "a"),
    ("add", DTypeError, "dict", lambda t: {} + t(3)),
    ("multiply", DTypeError, "object", lambda t: t(3) * object()),
    ("sin", DTypeError, "str", lambda t: wf.sin("a")),
    ("bitwise_and", DTypeError, "float32, float32", lambda t: t(3) & t(3)),
    ("bitwise_invert", DTypeError, "float32", lambda t: ~t(3)),
    ("bitwise_left_shift", DTypeError, "float32", lambda t: t(3) << 1),
    ("floor", DTypeError, "complex64", lambda t: wf.floor(t.of([1j]))),
    ("atan2", DTypeError, "complex64", lambda t: wf.atan2(t.of([1j]), 1.0)),
    ("logaddexp", DTypeError, "complex64", lambda t: wf.logaddexp(t.of([1j]), 1.0)),
    ("negative", DTypeError, "bool", lambda t: -t.of([True])),
    ("subtract", DTypeError, "bool, bool", lambda t: t.of([True]) - t.of([True])),
    ("polygamma", ArgumentError, "-1", lambda t: wf.polygamma(-1, t(2))),
    ("polygamma", DTypeError, "0.5, expected an integer", lambda t: wf.polygamma(0.5, t(2))),
    ("add", IntegerOutOfRange, "300 ", lambda t: t.of([1], "int8") + 300),
    ("multiply", IntegerOutOfRange, "-1 ", lambda t: t.of([1], "uint8") * -1),
    ("pow", ArgumentError, "int64 to the power -1", lambda t: t.of([2]) ** -1),
    ("gelu", ArgumentError, "'erf'", lambda t: wf.gelu(t(1), approximate="erf")),
    ("complex", ShapeError, "(2,), (3,)", lambda t: wf.complex(t(2), t(3))),
]
SHAPES = [
    ("reshape", ShapeError, "(6,) has 6 elements, (4, 2) has 8", lambda t: t(6).reshape(4, 2)),
    ("reshape", ShapeError, "(4, -1)", lambda t: t(6).reshape(4, -1)),
    ("reshape", ShapeError, "(-1, -1)", lambda t: t(6).reshape(-1, -1)),
    ("reshape", ShapeError, "(-2, -3)", lambda t: t(6).reshape(-2, -3)),
    ("reshape", DTypeError, "2.0, expected an integer", lambda t: t(6).reshape(2.0, 3)),
    ("broadcast_to", ShapeError, "(3,), (2, 4)", lambda t: wf.broadcast_to(t(3), (2, 4))),
    ("broadcast_to", ShapeError, "(2, 3)", lambda t: wf.broadcast_to(t(2, 3), (3,))),
    ("broadcast_to", ShapeError, "(-1, 3)", lambda t: wf.broadcast_to(t(3), (-1, 3))),
    ("broadcast_arrays", ShapeError, "(2,), (3,)", lambda t: wf.broadcast_arrays(t(2), t(3))),
    ("concat", ShapeError, "(2, 3) and (2, 4)", lambda t: wf.concat([t(2, 3), t(2, 4)])),
    ("concat", ShapeError, "(2, 3) and (2,)", lambda t: wf.concat([t(2, 3), t(2)])),
    ("concat", AxisError, "axis 2", lambda t: wf.concat([t(2, 3)], axis=2)),
    ("concat", AxisError, "0 dimensions", lambda t: wf.concat([t(), t()])),
    ("concat", ArgumentError, "at least one", lambda t: wf.concat([])),
    ("stack", ShapeError, "(2,) and (3,)", lambda t: wf.stack([t(2), t(3)])),
    ("stack", AxisError, "axis 3", lambda t: wf.stack([t(2), t(2)], axis=3)),
    ("stack", ArgumentError, "at least one", lambda t: wf.stack([])),
    ("concat", DTypeError, "int, expected a sequence", lambda t: wf.concat(5)),
    ("stack", DTypeError, "NoneType", lambda t: wf.stack(None)),
    ("squeeze", ShapeError, "length 2, expected 1", lambda t: wf.squeeze(t(2, 3), axis=0)),
    ("squeeze", AxisError, "axis 5", lambda t: wf.squeeze(t(2, 3), axis=5)),
    ("expand_dims", AxisError, "axis 4", lambda t: wf.expand_dims(t(2), axis=4)),
    ("expand_dims", AxisError, "twice", lambda t: wf.expand_dims(t(2), axis=(0, 0))),
    ("permute_dims", AxisError, "twice", lambda t: wf.permute_dims(t(2, 3), (0, 0))),
    ("permute", AxisError, "(0,)", lambda t: wf.permute_dims(t(2, 3), (0,))),
    ("moveaxis", AxisError, "axis 5", lambda t: wf.moveaxis(t(2, 3), 0, 5)),
    ("moveaxis", AxisError, "(0, 1) to (0,)", lambda t: wf.moveaxis(t(2, 3), (0, 1), 0)),
    ("swapaxes", AxisError, "axis 5", lambda t: wf.swapaxes(t(2, 3), 0, 5)),
    ("matrix_transpose", ShapeError, "(3,)", lambda t: t(3).mT),
    ("split", ArgumentError, "5 elements", lambda t: wf.split(t(5), 2)),
    ("split", ArgumentError, "0 equal", lambda t: wf.split(t(5), 0)),
    ("split", AxisError, "axis 1", lambda t: wf.split(t(5), 5, axis=1)),
    ("chunk", ArgumentError, "0 chunks", lambda t: wf.chunk(t(5), 0)),
    ("flip", AxisError, "axis 1", lambda t: wf.flip(t(3), axis=1)),
    ("roll", AxisError, "axis 2", lambda t: wf.roll(t(3), 1, axis=2)),
    ("roll", DTypeError, "0.5", lambda t: wf.roll(t(3), 0.5, axis=0)),
    ("tile", ArgumentError, "-1", lambda t: wf.tile(t(3), (-1,))),
    ("repeat", ArgumentError, "-1", lambda t: wf.repeat(t(3), -1)),
    ("repeat", ShapeError, "(2,) counts", lambda t: wf.repeat(t(3), [1, 2], axis=0)),
    ("pad", ArgumentError, "(2, 3)", lambda t: wf.pad(t(2, 3), ((1, 1), (1, 1), (1, 1)))),
    ("pad", ArgumentError, "-5", lambda t: wf.pad(t(3), -5)),
    ("pad", ArgumentError, "1.5", lambda t: wf.pad(t(3), 1.5)),
    ("pad", ArgumentError, "'middle'", lambda t: wf.pad(t(3), 1, mode="middle")),
    ("meshgrid", ArgumentError, "'zz'", lambda t: wf.meshgrid(t(2), t(3), indexing="zz")),
    ("diag", ShapeError, "(2, 2, 2)", lambda t: wf.diag(t(2, 2, 2))),
    ("diagonal", AxisError, "twice", lambda t: wf.diagonal(t(3, 3), axis1=0, axis2=0)),
    ("tril", ShapeError, "(3,)", lambda t: wf.tril(t(3))),
    ("tril", DTypeError, "1.5", lambda t: wf.tril(t(3, 3), k=1.5)),
    ("diag", DTypeError, "1.5", lambda t: wf.diag(t(3), 1.5)),
    ("windows", ArgumentError, "size 5", lambda t: wf.sliding_window(t(3), 5)),
    ("sliding_window", ArgumentError, "size 0", lambda t: wf.sliding_window(t(3), 0)),
    ("unstack", AxisError, "axis 2", lambda t: wf.unstack(t(2), axis=2)),
]
INDICES = [
    ("index", IndexingError, "5 is out of range", lambda t: t(3)[5]),
    ("index", IndexingError, "2 indices for 1 axes", lambda t: t(3)[0, 0]),
    ("index", IndexingError, "float64", lambda t: t(3)[1.0]),
    ("index", IndexingError, "U1", lambda t: t(3)["a"]),
    ("index", IndexingError, "(2,)", lambda t: t(3)[t.of([True, False])]),
    ("index", ShapeError, "(2,), (3,)", lambda t: t(3, 3)[[0, 1], [0, 1, 2]]),
    ("index", IndexingError, "different lengths", lambda t: t(3)[[[0, 1], [0]]]),
    ("index", IndexingError, "ellipses", lambda t: t(3)[..., ...]),
    ("index", IndexingError, "step", lambda t: t(3)[::0]),
    ("take", IndexingError, "index 9", lambda t: t(3)[[0, 9]]),
    ("take", IndexingError, "index -5", lambda t: wf.take(t(3), [-5])),
    ("take", DTypeError, "float32, expected integers", lambda t: wf.take(t(3), t(1))),
    ("take", AxisError, "axis 2", lambda t: wf.take(t(3), [0], axis=2)),
    ("take_along_axis", ShapeError, "2 axes", lambda t: wf.take_along_axis(t(3, 3), [0], axis=0)),
    ("take_along_axis", IndexingError, "7", lambda t: wf.take_along_axis(t(3), [7], axis=0)),
    ("gather", ShapeError, "(4, 4)", lambda t: wf.gather(t(3, 3), 0, np.zeros((4, 4), int))),
    ("scatter", IndexingError, "9", lambda t: wf.scatter(t(3, 3), 0, [[9]], t(1, 1))),
    ("scatter", IndexingError, "9", lambda t: wf.scatter_add(t(3, 3), 0, [[9]], t(1, 1))),
    ("index", IndexingError, "9", lambda t: wf.index_add(t(3), 0, [9], t(1))),
    ("index", IndexingError, "9", lambda t: wf.put(t(3), [9], t(1))),
    ("index", IndexingError, "7", lambda t: t(3).at[7].add(1.0)),
    ("index", ShapeError, "(3,)", lambda t: t(3).at[0:2].set(t(3))),
    ("take", IndexingError, "9", lambda t: wf.embedding([9], t(3, 2))),
    ("one_hot", IndexingError, "0 to 5", lambda t: wf.one_hot(t.of([0, 5]), 3)),
    ("one_hot", DTypeError, "float32", lambda t: wf.one_hot(t(2), 3)),
    ("one_hot", ArgumentError, "-1", lambda t: wf.one_hot(t.of([0]), -1)),
    ("nonzero", ShapeError, "0-d", lambda t: wf.nonzero(t())),
    ("bincount", ArgumentError, "-1", lambda t: wf.bincount(t.of([-1]))),
    ("bincount", DTypeError, "float32", lambda t: wf.bincount(t(2))),
    ("searchsorted", ShapeError, "(2, 2)", lambda t: wf.searchsorted(t(2, 2), t(2))),
    ("searchsorted", ArgumentError, "'up'", lambda t: wf.searchsorted(t(2), t(2), side="up")),
]
REDUCTIONS = [
    ("sum", AxisError, "axis 1", lambda t: t(3).sum(axis=1)),
    ("sum", AxisError, "twice", lambda t: t(2, 3).sum(axis=(0, -2))),
    ("sum", DTypeError, "1.0, expected an integer", lambda t: t(2, 3).sum(axis=1.0)),
    ("sum", DTypeError, "'rows'", lambda t: wf.sum(t(2, 3), axis="rows")),
    ("dtype", DTypeError, "'foo'", lambda t: wf.sum(t(2), dtype="foo")),
    ("mean", AxisError, "axis -3", lambda t: t(2, 3).mean(axis=-3)),
    ("amax", ShapeError, "(0,)", lambda t: wf.max(t(0))),
    ("argmax", ShapeError, "(0,)", lambda t: wf.argmax(t(0))),
    ("amax", DTypeError, "complex64", lambda t: wf.max(t.of([1j]))),
    ("norm", ArgumentError, "'fro'", lambda t: wf.norm(t(3), ord="fro")),
    ("softmax", AxisError, "axis 3", lambda t: wf.softmax(t(2), axis=3)),
    ("logsumexp", AxisError, "axis 2", lambda t: wf.logsumexp(t(3), axis=2)),
    ("cumsum", AxisError, "axis 4", lambda t: wf.cumsum(t(3), axis=4)),
    ("cummax", AxisError, "axis 1", lambda t: wf.cummax(t(3), axis=1)),
    ("diff", ArgumentError, "-1", lambda t: wf.diff(t(3), n=-1)),
    ("sort", AxisError, "axis 1", lambda t: wf.sort(t(3), axis=1)),
    ("sort", DTypeError, "complex64", lambda t: wf.sort(t.of([1j]))),
    ("argsort", AxisError, "axis -2", lambda t: wf.argsort(t(3), axis=-2)),
    ("topk", ArgumentError, "k = 5", lambda t: wf.topk(t(3), 5)),
    ("topk", DTypeError, "1.5", lambda t: wf.topk(t(3), 1.5)),
    ("quantile", ArgumentError, "1.5", lambda t: wf.quantile(t(3), 1.5)),
    ("quantile", ArgumentError, "'mode'", lambda t: wf.quantile(t(3), 0.5, method="mode")),
    ("quantile", DTypeError, "'half'", lambda t: wf.quantile(t(3), "half")),
    ("median", AxisError, "axis 3", lambda t: wf.median(t(3), axis=3)),
    ("interp", ShapeError, "(4,) and fp (5,)", lambda t: wf.interp(t(3), t(4), t(5))),
]
LINEAR_ALGEBRA = [
    ("matmul", ShapeError, "(3, 4) @ (5, 6): 4 ≠ 5", lambda t: t(3, 4) @ t(5, 6)),
    ("matmul", ShapeError, "() @ (3,)", lambda t: wf.matmul(t(), t(3))),
    ("matmul", ShapeError, "2 ≠ 5", lambda t: t(2, 3, 4) @ t(5, 4, 3)),
    ("einsum", ShapeError, "label j: 3 ≠ 4", lambda t: wf.einsum("ij,jk->ik", t(2, 3), t(4, 5))),
    ("einsum", ShapeError, "'ijk'", lambda t: wf.einsum("ijk->i", t(2, 3))),
    ("einsum", ArgumentError, "2 terms", lambda t: wf.einsum("ij,jk->ik", t(2, 3))),
    ("einsum", ArgumentError, "'ij->k'", lambda t: wf.einsum("ij->k", t(2, 3))),
    ("einsum", ArgumentError, "'ij->ii'", lambda t: wf.einsum("ij->ii", t(2, 3))),
    ("einsum", DTypeError, "int, expected a string", lambda t: wf.einsum(1, t(2))),
    ("tensordot", DTypeError, "'a'", lambda t: wf.tensordot(t(2), t(2), axes="a")),
    ("tensordot", ShapeError, "(2, 3)", lambda t: wf.tensordot(t(2, 3), t(4, 5), axes=1)),
    ("cross", ShapeError, "(4,) × (4,)", lambda t: wf.cross(t(4), t(4))),
    ("vecdot", ShapeError, "(3,) and (4,)", lambda t: wf.vecdot(t(3), t(4))),
    ("solve", ShapeError, "3 ≠ 4", lambda t: wf.linalg.solve(t(3, 3), t(4, 2))),
    ("solve", ShapeError, "not square", lambda t: wf.linalg.solve(t(3, 4), t(3))),
    ("solve", LinAlgError, "singular", lambda t: wf.linalg.solve(t(2, 2) * 0, t(2))),
    ("inv", ShapeError, "(3,)", lambda t: wf.linalg.inv(t(3))),
    ("inv", LinAlgError, "singular", lambda t: wf.linalg.inv(t(2, 2) * 0)),
    ("cholesky", ShapeError, "(3, 4) is not square", lambda t: wf.linalg.cholesky(t(3, 4))),
    ("cholesky", LinAlgError, "definite", lambda t: wf.linalg.cholesky(-t(1, 1))),
    ("det", ShapeError, "(3, 4)", lambda t: wf.linalg.det(t(3, 4))),
    ("eigh", ShapeError, "(3, 4)", lambda t: wf.linalg.eigh(t(3, 4))),
    ("svd", ShapeError, "(3,)", lambda t: wf.linalg.svd(t(3))),
    ("qr", ArgumentError, "'raw'", lambda t: wf.linalg.qr(t(3, 4), mode="raw")),
    ("lstsq", ShapeError, "(3, 2)", lambda t: wf.linalg.lstsq(t(3, 2), t(4))),
    ("expm", ShapeError, "(3, 4)", lambda t: wf.linalg.expm(t(3, 4))),
    ("matrix_power", DTypeError, "0.5", lambda t: wf.linalg.matrix_power(t(3, 3), 0.5)),
    ("matrix_norm", ArgumentError, "'l1'", lambda t: wf.linalg.matrix_norm(t(3, 3), ord="l1")),
    ("norm", AxisError, "3 axes", lambda t: wf.linalg.norm(t(2, 2, 2), axis=(0, 1, 2))),
    ("triangular_solve", ShapeError, "4", lambda t: wf.linalg.triangular_solve(t(3, 3), t(4, 1))),
    ("fft", AxisError, "axis 1", lambda t: wf.fft.fft(t(3), axis=1)),
    ("fft", ArgumentError, "0", lambda t: wf.fft.fft(t(3), n=0)),
    ("fft", DTypeError, "'x'", lambda t: wf.fft.fft(t(3), axis="x")),
    ("fftfreq", ArgumentError, "0", lambda t: wf.fft.fftfreq(0)),
    ("fft", ArgumentError, "'loud'", lambda t: wf.fft.fft(t(3), norm="loud")),
    ("rfft", DTypeError, "complex64", lambda t: wf.fft.rfft(t.of([1j]))),
    ("fftn", ArgumentError, "1 lengths for 2", lambda t: wf.fft.fftn(t(3, 3), s=(2,), axes=(0, 1))),
]
TABLE = [*ELEMENTWISE, *SHAPES, *INDICES, *REDUCTIONS, *LINEAR_ALGEBRA]


@pytest.mark.parametrize("k", range(len(TABLE)), ids=lambda k: f"{k}-{TABLE[k][0]}")
def test_mistakes(t, k):
    op, error, words, call = TABLE[k]
    with pytest.raises(error) as e:
        call(t)
    assert type(e.value) is error and (not op or re.match(rf"{op}\w*: ", e.value.message))
    assert words in e.value.message
    assert str(e.value).endswith(f" (at test_bad_input.py:{call.__code__.co_firstlineno})")


def test_the_errors_are_python_s_own_too():
    kinds = {
        ShapeError: ValueError,
        AxisError: IndexError,
        DTypeError: TypeError,
        ArgumentError: ValueError,
        IndexingError: IndexError,
        LinAlgError: np.linalg.LinAlgError,
        errors.DeviceError: ValueError,
        errors.NotDifferentiable: TypeError,
        errors.MissingGradient: KeyError,
        errors.InterchangeError: TypeError,
        errors.AnomalyError: FloatingPointError,
    }
    for ours, python in kinds.items():
        assert issubclass(ours, python) and issubclass(ours, errors.WeftError)


def leaf(values=(1.0, 2.0, 3.0)):
    return wf.tensor(list(values), dtype="float64", requires_grad=True)


def freed():
    y = (leaf() ** 2).sum()
    y.backward()
    y.backward()


def consumed():
    tape = wf.GradientTape()
    x = tape.watch(wf.tensor(3.0))
    y = x * x
    tape.gradient(y, x)
    tape.gradient(y, x)


def severed():
    x = leaf()
    g = (x * x).sum().backward()[x]
    (g * g).sum().backward()


def overwritten():
    x, w = leaf(), wf.ones(3, dtype="float64")
    y = (x * w).sum()
    w.copy_(wf.zeros(3))
    y.backward()


def unused():
    (leaf() * 2).sum().backward()[leaf()]


# Each misuse of differentiation is an exception of its own, with the fix in its message.
MISUSES = {
    "an integer": (
        errors.NotDifferentiable,
        "x.to('float32')",
        lambda: wf.tensor([1]).requires_grad_(),
    ),
    "an integer loss": (
        errors.NotDifferentiable,
        "floating point",
        lambda: wf.tensor(1).backward(),
    ),
    "a freed graph": (errors.GraphFreed, "retain_graph=True", freed),
    "a consumed tape": (errors.TapeConsumed, "persistent=True", consumed),
    "no seed": (errors.NonScalarBackward, "grad=", lambda: (leaf() * 2).backward()),
    "a seed's shape": (ShapeError, "(2,)", lambda: (leaf() * 2).backward(wf.ones(2))),
    "a seed's type": (DTypeError, "wf.tensor(…)", lambda: (leaf() * 2).backward([1.0, 1.0, 1.0])),
    "a seed's device": (
        errors.DeviceError,
        "'torch'",
        lambda: (leaf() * 2).backward(wf.ones(3, device="torch")),
    ),
    "never took part": (errors.MissingGradient, "took no part", unused),
    "nothing recorded": (errors.NoGraph, "requires_grad=True", lambda: wf.ones(1).backward()),
    "a severed gradient": (errors.GradientNotRecorded, "create_graph=True", severed),
    "an overwritten value": (errors.SavedValueOverwritten, ".clone()", overwritten),
    "a hook on a constant": (
        errors.NoGraph,
        "register_hook",
        lambda: wf.ones(1).register_hook(print),
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuses_of_differentiation(name):
    error, fix, call = MISUSES[name]
    with pytest.raises(error) as e:
        call()
    assert type(e.value) is error and fix in e.value.message
    lines = [number for *_, number in call.__code__.co_lines() if number]
    found = re.search(r"\(at test_bad_input.py:(\d+)\)$", str(e.value))
    assert found and int(found[1]) == max(lines)


def test_each_misuse_has_its_own_exception():
    named = ["an integer", "a freed graph", "a consumed tape", "no seed", "never took part"]
    assert len({MISUSES[name][0] for name in named}) == len(named)
    assert all(issubclass(MISUSES[name][0], errors.GradientError) for name in named)


def test_the_line_of_the_forward_call_is_named_too():
    x = leaf()
    y = (x * x).sum()
    y.backward()
    line = y._node.line
    with pytest.raises(errors.GraphFreed, match=re.escape(line)):
        y.backward()
