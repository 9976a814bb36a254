"""The composites of shape against NumPy's functions, and their transposes."""

import numpy as np
import pytest

import weft as wf
from weft.ops import arrange, structural

from .test_index import DEVICES, draw, leaf, linear_in

SINGLE = [
    ((2, 3, 4), lambda x: structural.mT(x), lambda x: np.swapaxes(x, -1, -2)),
    ((2, 3, 4), lambda x: structural.swapaxes(x, 0, 2), lambda x: np.swapaxes(x, 0, 2)),
    ((2, 3, 4), lambda x: structural.moveaxis(x, (0,), (2,)), lambda x: np.moveaxis(x, 0, 2)),
    (
        (2, 3, 4, 1),
        lambda x: structural.moveaxis(x, (3, 0), (0, 1)),
        lambda x: np.moveaxis(x, (3, 0), (0, 1)),
    ),
    ((1, 3, 1), lambda x: structural.squeeze(x, (0, 2)), lambda x: x[0, :, 0]),
    ((3,), lambda x: structural.expand_dims(x, (0, 2)), lambda x: np.expand_dims(x, (0, 2))),
    ((), lambda x: structural.expand_dims(x, (0,)), lambda x: x[None]),
    ((2, 3), lambda x: arrange.tile(x, (2,)), lambda x: np.tile(x, (2,))),
    ((2, 3), lambda x: arrange.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    ((), lambda x: arrange.tile(x, (3,)), lambda x: np.tile(x, 3)),
    ((2, 3), lambda x: arrange.tile(x, (0, 2)), lambda x: np.tile(x, (0, 2))),
    ((2, 3), lambda x: arrange.repeat(x, 2, 1), lambda x: np.repeat(x, 2, 1)),
    ((2, 3), lambda x: arrange.repeat(x, [2, 0], 0), lambda x: np.repeat(x, [2, 0], 0)),
    ((3, 4), lambda x: arrange.diagonal(x), np.diagonal),
    ((3, 4), lambda x: arrange.diagonal(x, 2), lambda x: np.diagonal(x, 2)),
    ((3, 4), lambda x: arrange.diagonal(x, -2), lambda x: np.diagonal(x, -2)),
    ((3, 4), lambda x: arrange.diagonal(x, 9), lambda x: np.diagonal(x, 9)),
    (
        (2, 3, 4),
        lambda x: arrange.diagonal(x, 1, 2, 0),
        lambda x: np.diagonal(x, 1, 2, 0),
    ),
    ((0, 3), lambda x: arrange.diagonal(x), np.diagonal),
    ((3,), lambda x: arrange.diag(x, -1), lambda x: np.diag(x, -1)),
    ((2, 3), lambda x: arrange.diag(x, 1), lambda x: np.diag(x, 1)),
    ((2, 2), lambda x: arrange.diagflat(x, 1), lambda x: np.diagflat(x, 1)),
    ((0,), lambda x: arrange.diag_embed(x), np.diag),
    (
        (2, 3),
        lambda x: arrange.diag_embed(x, 1),
        lambda x: np.stack([np.diag(r, 1) for r in x]),
    ),
]


@DEVICES
@pytest.mark.parametrize(("shape", "ours", "numpys"), SINGLE)
def test_composites(shape, ours, numpys, device):
    (x,) = draw(shape)
    np.testing.assert_array_equal(linear_in(ours, x, device=device), numpys(x))


@DEVICES
@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("widths", [((1, 2), (0, 1)), ((5, 0), (2, 7)), ((0, 0), (0, 0))])
def test_padding_by_mode(mode, widths, device):
    (x,) = draw((3, 2))
    got = linear_in(lambda x: arrange.pad_by(x, widths, mode), x, device=device)
    np.testing.assert_array_equal(got, np.pad(x, widths, mode))


@DEVICES
def test_cutting(device):
    (x,) = draw((5, 2))
    for k, expected in enumerate(np.split(x, [2, 2, 9])):
        got = linear_in(lambda x, k=k: structural.split(x, (2, 2, 9), 0)[k], x, device=device)
        np.testing.assert_array_equal(got, expected)
    t = wf.tensor(x, device=device)
    assert [c.shape for c in structural.chunk(t, 2, 0)] == [(3, 2), (2, 2)]
    assert [c.shape for c in structural.chunk(t, 4, 0)] == [(2, 2), (2, 2), (1, 2)]
    assert [c.shape for c in structural.unstack(t, 1)] == [(5,), (5,)]


@DEVICES
@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_grids(indexing, device):
    a, b, c = draw((3,), (2,), (4,))
    expected = np.meshgrid(a, b, c, indexing=indexing)
    got = arrange.meshgrid([wf.tensor(v, device=device) for v in (a, b, c)], indexing)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g.to("cpu").numpy(), e)


@DEVICES
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((64, 100), (0,)),
        ((64, 100), (1,)),
        ((8, 16, 64), (0, 1)),
        ((8, 16, 64), (1, 2)),
        ((8, 16, 64), (1,)),
        ((8, 16, 64), (0, 2)),
        ((3, 2000), (1,)),
        ((70000, 2), (0,)),
        ((5000,), (0,)),
    ],
)
def test_sums_of_every_layout(shape, axes, dtype, device):
    x = np.random.default_rng(0).random(shape).astype(dtype)
    expected = np.sum(x, axes, dtype=np.longdouble, keepdims=True)
    got = structural.sum_(wf.tensor(x, device=device), axes, True)
    assert got.dtype == dtype
    # At worst one rounding for each term of a sum of equal signs.
    bound = np.finfo(dtype).eps * (x.size // expected.size)
    np.testing.assert_allclose(got.to("cpu").numpy(), expected.astype(dtype), rtol=bound)
    apart = structural.sum_(wf.tensor(x, device=device), axes, False)
    np.testing.assert_array_equal(apart.to("cpu").numpy(), np.squeeze(got.to("cpu").numpy(), axes))


@DEVICES
def test_half_sums_accumulate_in_float32(device):
    for dtype in ("float16", "bfloat16"):
        x = wf.ones(4096, dtype=dtype, device=device)
        assert structural.sum_(x, (0,), False).item() == 4096.0


@DEVICES
def test_floats_become_integers_without_a_gradient(device):
    y = structural.cast(leaf([1.7, -2.4], device), np.dtype("int32"))
    assert y.tolist() == [1, -2]
    assert y._node is None


def _zeros(*shape):
    return wf.zeros(shape)


WRONG = [
    (lambda: structural.reshape(_zeros(2, 3), (4,)), "ShapeError", "6 elements"),
    (lambda: structural.permute(_zeros(2, 3), (0, 0)), "AxisError", "each of 2 axes once"),
    (lambda: structural.broadcast_to(_zeros(2, 3), (3,)), "ShapeError", "larger"),
    (lambda: structural.broadcast_to(_zeros(1, 3), (3,)), "ShapeError", "larger"),
    (lambda: structural.broadcast_to(_zeros(2), (3,)), "ShapeError", "2 ≠ 3"),
    (lambda: structural.sum_(_zeros(2), (1,), False), "AxisError", "axis 1"),
    (lambda: structural.squeeze(_zeros(2, 1), (0,)), "ShapeError", "length 2, expected 1"),
    (lambda: structural.flip(_zeros(2), (1,)), "AxisError", "axis 1"),
    (lambda: structural.roll(_zeros(2), (1, 2), (1,)), "ArgumentError", "2 shifts for 1"),
    (lambda: structural.concat([_zeros(2, 3), _zeros(2, 2)], 0), "ShapeError", "other than 0"),
    (lambda: structural.concat([_zeros(2), _zeros(2, 2)], 0), "ShapeError", "(2, 2)"),
    (lambda: structural.stack([_zeros(2), _zeros(3)], 0), "ShapeError", "(3,)"),
    (lambda: arrange.pad(_zeros(2), ((1, -1),), 0.0), "ArgumentError", "≥ 0"),
    (lambda: arrange.pad_by(_zeros(0), ((1, 1),), "edge"), "ShapeError", "empty"),
    (lambda: arrange.pad_by(_zeros(2), ((1, 1),), "mean"), "ArgumentError", "'mean'"),
    (lambda: arrange.repeat(_zeros(2), [1, 2, 3], 0), "ShapeError", "(3,) counts"),
    (lambda: arrange.diagonal(_zeros(2)), "ShapeError", "at least 2"),
    (lambda: arrange.diag(_zeros(2, 2, 2)), "ShapeError", "neither"),
    (lambda: arrange.tril(_zeros(2), 0), "ShapeError", "at least 2"),
    (lambda: arrange.windows(_zeros(3), 4, 1, 0), "ArgumentError", "size 4"),
    (lambda: arrange.windows(_zeros(3), 2, 0, 0), "ArgumentError", "step 0"),
    (lambda: arrange.overlap_add(_zeros(3, 2), 1, 0, 9), "ShapeError", "which has 8"),
    (lambda: arrange.meshgrid([_zeros(2)], "yx"), "ArgumentError", "'yx'"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_mistakes_are_explained(call, error, message):
    with pytest.raises(getattr(wf.errors, error)) as e:
        call()
    assert message in str(e.value)
    assert str(e.value).count("(at ") == 1
