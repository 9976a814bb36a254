"""Any key that NumPy takes: reading, writing and adding, with their gradients."""

import random

import numpy as np
import pytest

import weft as wf
from weft.ops import along, index
from weft.transform.modes.reverse import sweep

DEVICES = pytest.mark.parametrize("device", ["cpu", "torch"])

KEYS = [
    ((3, 4), 1),
    ((3, 4), (-1, slice(None, None, -2))),
    ((3, 4), (slice(5, 0, -1), None, -2)),
    ((3, 4), Ellipsis),
    ((3, 4), (slice(2, 1), 0)),
    ((3, 4), [2, 0, 2, -1]),
    ((3, 4), []),
    ((3, 4), np.zeros((2, 0), int)),
    ((3, 4), (np.array([[0], [2]]), np.array([1, 1, -1]))),
    ((3, 4), (slice(None, None, -1), np.array([[0, 3], [3, 3]]))),
    ((3, 4), (np.array([True, False, True]), np.array([1, -1]))),
    ((3, 4), np.arange(12).reshape(3, 4) % 3 == 0),
    ((3, 4), np.zeros((3, 4), bool)),
    ((3, 4), True),
    ((3, 4), (False, 1)),
    ((3, 4), (None, np.array([1, 1]), None)),
    ((2, 3, 4), (0, slice(None), np.array([1, 2, 1]))),
    ((2, 3, 4), (slice(None), 0, np.array([1, 2, 1]))),
    ((2, 3, 4), (np.array([1, 0]), slice(1, None), np.array([3, 3]))),
    ((2, 3, 4), (np.array([1, 0]), Ellipsis, np.array([[0], [1]]))),
    ((2, 3, 4), (Ellipsis, np.arange(12).reshape(3, 4) % 2 == 0)),
    ((2, 3, 4), (1, np.ones((3, 4), bool))),
    ((2, 3, 4), (np.array(1), Ellipsis, np.int64(2))),
    ((4,), (np.array([1, 1]), Ellipsis)),
    ((), ()),
    ((), None),
    ((), True),
    ((0, 3), (slice(None), [0, 0])),
    ((0, 3), np.zeros((0, 3), bool)),
]


def random_keys(count):
    """Keys of up to four entries, with duplicates and negative indices."""
    rng = random.Random(0)
    for _ in range(count):
        shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 4)))
        common = rng.choice([(), (2,), (3, 2)])
        key, axis = [], 0
        while axis < len(shape) and rng.random() < 0.9:
            n = shape[axis]
            start, stop = (rng.choice([None, *range(-n, n + 1)]) for _ in range(2))
            key.append(
                rng.choice(
                    [
                        rng.randrange(-n, n),
                        slice(start, stop, rng.choice([None, 2, -1, -3])),
                        np.array([rng.randrange(-n, n) for _ in range(6)]).reshape(3, 2)[
                            : common[0] if common else 1, : len(common) or 1
                        ],
                        np.array([rng.random() < 0.5 for _ in range(n)]),
                    ]
                )
            )
            axis += 1
            if rng.random() < 0.2:
                key.append(None)
        if rng.random() < 0.3:
            key.insert(rng.randint(0, len(key)), Ellipsis)
        try:
            np.zeros(shape)[tuple(key)]
        except IndexError:  # after the Ellipsis axes are others; counts may not broadcast
            continue
        yield shape, tuple(key)


ALL = [*KEYS, *random_keys(150)]


def draw(*shapes):
    rng = np.random.default_rng(len(shapes[0]))
    return [np.asarray(rng.standard_normal(s)) for s in shapes]


def leaf(data, device):
    return wf.tensor(data, dtype="float64", device=device, requires_grad=True)


def gradients(y, u, *leaves):
    """The gradients of ⟨u, y⟩, as arrays."""
    grads = (y * wf.tensor(u, device=y.device)).sum().backward()
    return [grads[x].detach().to("cpu").numpy() for x in leaves]


def array(t):
    return t.detach().to("cpu").numpy()


@DEVICES
@pytest.mark.parametrize(("shape", "key"), ALL)
def test_get(shape, key, device):
    (x,) = draw(shape)
    expected = x[key]
    (u,) = draw(np.shape(expected))
    t = leaf(x, device)
    y = t[key]
    np.testing.assert_array_equal(array(y), expected)
    assert y.shape == np.shape(expected)
    spread = np.zeros(shape)
    np.add.at(spread, key, u)
    np.testing.assert_allclose(gradients(y, u, t)[0], spread, rtol=1e-14, atol=1e-14)


@DEVICES
@pytest.mark.parametrize(("shape", "key"), ALL)
def test_set(shape, key, device):
    x, u = draw(shape, shape)
    (v,) = draw(np.shape(x[key]))
    expected, untouched = x.copy(), np.ones(shape)
    expected[key], untouched[key] = v, 0
    # Which element of v, counted from 1, each place has in the end.
    holder = np.zeros(shape, int)
    holder[key] = np.arange(1, v.size + 1).reshape(v.shape)
    own = np.bincount(holder.ravel(), u.ravel(), v.size + 1)[1:].reshape(v.shape)
    t, s = leaf(x, device), leaf(v, device)
    y = t.at[key].set(s)
    np.testing.assert_array_equal(array(y), expected)
    gx, gv = gradients(y, u, t, s)
    np.testing.assert_array_equal(gx, u * untouched)
    np.testing.assert_array_equal(gv, own)
    raw = t.detach().clone()._data
    index.assign(raw, key, s._data)
    np.testing.assert_array_equal(np.asarray(raw), expected)


@DEVICES
@pytest.mark.parametrize(("shape", "key"), ALL)
def test_add(shape, key, device):
    x, u = draw(shape, shape)
    (v,) = draw(np.shape(x[key]))
    expected = x.copy()
    np.add.at(expected, key, v)
    t, s = leaf(x, device), leaf(v, device)
    y = t.at[key].add(s)
    np.testing.assert_allclose(array(y), expected, rtol=1e-14, atol=1e-14)
    gx, gv = gradients(y, u, t, s)
    np.testing.assert_array_equal(gx, u)
    np.testing.assert_array_equal(gv, u[key])


@DEVICES
def test_indices_may_be_tensors(device):
    t = leaf(np.arange(6.0).reshape(2, 3), device)
    i = wf.tensor([1, 1], device=device)
    assert t[wf.tensor(1, device=device), i].tolist() == [4.0, 4.0]
    assert t[t > 2].tolist() == [3.0, 4.0, 5.0]


@DEVICES
def test_a_value_is_broadcast_and_cast(device):
    x = wf.tensor(np.zeros((2, 3), np.float32), device=device)
    v = wf.tensor(np.array([[[1.5], [2.5]]]), device=device, requires_grad=True)
    y = index.set_(x, (slice(None), [0, 2]), v)
    assert y.dtype == np.float32
    assert y.tolist() == [[1.5, 0, 1.5], [2.5, 0, 2.5]]
    g = y.sum().backward()[v]
    assert g.dtype == np.float64
    assert g.tolist() == [[[2.0], [2.0]]]
    ints = index.set_(wf.tensor([1, 2], device=device), 0, 7.9)
    assert ints.tolist() == [7, 2]


@DEVICES
def test_overwritten_values_have_no_gradient_even_if_infinite(device):
    x, v = leaf([0.0, 0.0], device), leaf([1.0, 2.0, 3.0], device)
    y = index.index_put(x, wf.tensor([1, 0, 1], device=device), v, 0)
    seed = wf.tensor([1.0, np.inf], dtype="float64", device=device)
    grads = sweep({y._node: seed._data}, record=False, retain=True)
    assert np.asarray(grads[v._node]).tolist() == [0.0, 1.0, np.inf]
    assert np.asarray(grads[x._node]).tolist() == [0.0, 0.0]


WRONG = [
    (3, "3 is out of range for axis 0 of length 3"),
    ((0, -5), "-5 is out of range for axis 1 of length 4"),
    ((0, 0, 0), "3 indices for 2 axes"),
    ((Ellipsis, Ellipsis), "two ellipses"),
    ([0, 3], "3"),
    ((slice(None), [-5]), "-5"),
    (([0], [4]), "4 is out of range for length 4"),
    (np.array([0.0]), "float64, expected integers or booleans"),
    (np.array([True, False]), "a mask of shape (2,) over axes of lengths (3,)"),
]


@DEVICES
@pytest.mark.parametrize(("key", "message"), WRONG)
def test_wrong_keys(key, message, device):
    x = wf.tensor(np.zeros((3, 4)), device=device)
    for call in (
        lambda: index.get(x, key),
        lambda: index.set_(x, key, 1.0),
        lambda: index.add_at(x, key, 1.0),
    ):
        with pytest.raises(wf.errors.IndexingError) as e:
            call()
        assert message in str(e.value)
        assert "test_index.py" in str(e.value)


@DEVICES
def test_wrong_values(device):
    x = wf.tensor(np.zeros((3, 4)), device=device)
    with pytest.raises(wf.errors.ShapeError, match=r"\(2,\)"):
        index.set_(x, 0, wf.tensor([1.0, 2.0], device=device))
    with pytest.raises(wf.errors.ShapeError):
        index.set_(x, [0, 1], wf.tensor([1.0, 2.0], device=device))
    for key in (0, [0, 1], (slice(1), [0])):
        with pytest.raises(wf.errors.ShapeError, match=r"\(3, 2\)"):
            index.assign(x._data, key, wf.zeros((3, 2), device=device)._data)
    with pytest.raises(wf.errors.ShapeError):
        index.get(x, ([0, 1], [0, 1, 2]))
    with pytest.raises(wf.errors.DTypeError, match="imaginary"):
        index.set_(x, 0, 1j)
    for i in ([0.0], [True]):
        with pytest.raises(wf.errors.DTypeError, match="expected integers"):
            index.take(x, wf.tensor(i, device=device), 0)


def linear_in(f, *args, device):
    """Check that the pull-back of f, linear in its arguments, is the transpose of f."""
    leaves = [leaf(a, device) for a in args]
    y = f(*leaves)
    (u,) = draw(y.shape)
    for k, g in enumerate(gradients(y, u, *leaves)):
        (t,) = draw(np.shape(args[k]))
        moved = [np.zeros(np.shape(a)) for a in args]
        moved[k] = t
        out = f(*(wf.tensor(m, device=device) for m in moved))
        np.testing.assert_allclose(np.vdot(u, array(out)), np.vdot(g, t), atol=1e-12)
    return array(y)


@DEVICES
def test_along(device):
    x, v = draw((3, 4), (2, 4))
    i = np.array([[0, 2, 2, -1], [0, 1, 2, -1]])
    put, added = x.copy(), x.copy()
    np.put_along_axis(put, i, v, 0)
    np.add.at(added, (i, np.arange(4)), v)
    got = linear_in(lambda x: along.take_along_axis(x, i, 0), x, device=device)
    np.testing.assert_array_equal(got, np.take_along_axis(x, i, 0))
    got = linear_in(lambda x, v: along.put_along_axis(x, i, v, 0), x, v, device=device)
    np.testing.assert_array_equal(got, put)
    got = linear_in(lambda x, v: along.scatter_add(x, i, v, 0), x, v, device=device)
    np.testing.assert_allclose(got, added, rtol=1e-14)
    row = np.array([[1, 0, 1, 3]])
    got = linear_in(lambda x: along.take_along_axis(x, row, 1), x, device=device)
    np.testing.assert_array_equal(got, np.take_along_axis(x, row, 1))


@DEVICES
def test_gather_and_scatter_of_a_corner(device):
    torch = pytest.importorskip("torch")
    x, v = draw((3, 4), (3, 3))
    i = np.array([[2, 0, 1], [3, 3, 0]])
    t, source, at = torch.from_numpy(x), torch.from_numpy(v), torch.from_numpy(i)
    got = linear_in(lambda x: along.gather(x, i, 1), x, device=device)
    np.testing.assert_array_equal(got, t.gather(1, at))
    got = linear_in(lambda x, v: along.scatter_add(x, i, v, 1), x, v, device=device)
    np.testing.assert_allclose(got, t.scatter_add(1, at, source), rtol=1e-14)
    i = np.array([[2, 0, 1], [3, 1, 0]])
    got = linear_in(lambda x, v: along.scatter(x, i, v, 1), x, v, device=device)
    np.testing.assert_array_equal(got, t.scatter(1, torch.from_numpy(i), source))
    with pytest.raises(wf.errors.ShapeError):
        along.gather(wf.tensor(x, device=device), np.zeros((4, 1), int), 1)


@DEVICES
def test_put(device):
    x, v = draw((2, 3), (2,))
    i = np.array([[5, 0], [5, -2]])
    expected = x.copy()
    np.put(expected, i, v)
    got = linear_in(lambda x, v: along.put(x, i, v), x, v, device=device)
    np.testing.assert_array_equal(got, expected)


@DEVICES
def test_rows_of_a_table(device):
    w = draw((5, 3))[0]
    i = np.array([[4, 0], [4, 4]])
    got = linear_in(lambda w: index.embedding(w, index.index_like(w, i)), w, device=device)
    np.testing.assert_array_equal(got, w[i])
    many = np.random.default_rng(0).integers(0, 5, 4000)
    got = linear_in(lambda w: index.embedding(w, index.index_like(w, many)), w, device=device)
    np.testing.assert_array_equal(got, w[many])


@DEVICES
def test_nonzero_and_one_hot(device):
    x = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]])
    got = index.nonzero(wf.tensor(x, device=device))
    for a, b in zip(got, np.nonzero(x), strict=True):
        assert a.tolist() == b.tolist()
    i = wf.tensor([2, 0], device=device)
    assert index.one_hot(i, 3, np.dtype("float32")).tolist() == [[0, 0, 1], [1, 0, 0]]
    with pytest.raises(wf.errors.IndexingError):
        index.one_hot(i, 2, np.dtype("float32"))


@DEVICES
def test_half_types_accumulate_in_float32(device):
    ones = wf.ones(4096, dtype="float16", device=device)
    at = wf.tensor(np.zeros(4096, int), device=device)
    assert index.segment_sum(ones, at, 0, 1).tolist() == [4096.0]
    assert along.scatter_sum(ones, at, 0, 1).tolist() == [4096.0]


@DEVICES
def test_views_keep_nothing(device):
    x = leaf(np.zeros((3, 4)), device)
    for y in (x[1], x[:, ::-2], x[None], x.reshape(4, 3), x[1:, 0]):
        assert all(s is None for s in y._node.saved)
    assert x[[0, 1]]._node.saved[1] is None
