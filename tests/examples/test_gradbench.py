"""GradBench's problems at their first sizes: values and derivatives beside closed forms, and
beside finite differences where there are none."""

import os
from itertools import pairwise, product
from math import factorial, prod

import numpy as np
import pytest
from examples.gradbench import (
    __main__,
    ba,
    descent,
    det,
    gmm,
    hello,
    ht,
    kmeans,
    llsq,
    lse,
    lstm,
    ode,
    particle,
    rotation,
    saddle,
)
from numpy.polynomial import polynomial
from scipy.sparse import csr_array
from scipy.spatial.transform import Rotation
from scipy.special import expit, logsumexp, softmax
from scipy.stats import multivariate_normal, wishart

import weft as wf
from weft.transform.checking.ridders import ridders

EPS = np.finfo(np.float64).eps
SOAK = os.environ.get("WEFT_SOAK") == "1"
MODES = {"f": descent.forward, "r": descent.reverse}
PAIRS = list(product("fr", "fr"))


def agrees_with_differences(f, x, along, reach, noise, count=2):
    """J·v is the extrapolated difference of f for random v of length `reach`.

    `along` gives J·v; `noise` is the size of rounding errors in the elements of f.
    """
    directions = np.random.default_rng(1).normal(size=(count, x.size))
    directions *= reach / np.linalg.norm(directions, axis=1, keepdims=True)
    estimate = ridders(f, x, directions, noise)
    found = np.stack([along(v) for v in directions], axis=1)
    assert (np.abs(found - estimate.value) <= estimate.bound).all()
    # A difference with a large bound proves nothing.
    assert np.median(estimate.bound) <= 1e-6 * np.abs(estimate.value).max()


def parts(x, like):
    """The elements of x as tensors of the shapes of `like`."""
    ends = np.cumsum([a.size for a in like])
    pieces = np.split(x, ends)
    return [wf.asarray(p.reshape(a.shape)) for p, a in zip(pieces, like, strict=False)]


def joined(tensors):
    return np.concatenate([a.numpy().ravel() for a in tensors])


def test_hello():
    assert hello.conversation(*hello.inputs()) == [1, 2, 4, 8, 64, 128, 16384, 32768]


# gmm


@pytest.mark.parametrize("m, gamma", [(0, 1.0), (3, 0.7)])
def test_gmm_is_the_sum_of_the_densities(m, gamma):
    given = gmm.inputs()[:5]
    alpha, mu, q, below, x = (a.numpy() for a in given)
    matrices = np.array(
        [[[np.exp(a), 0], [b, np.exp(c)]] for (a, c), (b,) in zip(q, below, strict=True)]
    )
    precisions = matrices.transpose(0, 2, 1) @ matrices
    logs = [
        multivariate_normal(centre, np.linalg.inv(p)).logpdf(x)
        for centre, p in zip(mu, precisions, strict=True)
    ]
    likelihood = logsumexp(np.array(logs) + np.log(softmax(alpha))[:, None], axis=0)
    prior = [wishart(2 + m + 1, np.eye(2) / gamma**2).logpdf(p) for p in precisions]
    expected = likelihood.sum() + np.sum(prior)
    size = np.abs(logs).sum() * np.linalg.cond(precisions).max()
    assert abs(gmm.objective(*given, m, gamma).item() - expected) <= 8 * EPS * size


def test_gmm_gradient():
    *given, points, m, gamma = gmm.inputs()
    gradient = joined(gmm.jacobian(*given, points, m, gamma).values())

    def f(x):
        return gmm.objective(*parts(x, given), points, m, gamma).numpy()[None]

    x = joined(given)
    size = 10.0 * len(points)  # a thousand terms of size ten
    agrees_with_differences(f, x, lambda v: [gradient @ v], 0.1, np.array([8 * EPS * size]), 5)


# ba


def test_ba_errors():
    given = ba.inputs()
    cameras, points, weights, observed, features = (np.asarray(a) for a in given)
    camera, w = cameras[observed[:, 0]], weights[:, None]
    seen = Rotation.from_rotvec(camera[:, :3]).apply(points[observed[:, 1]] - camera[:, 3:6])
    flat = seen[:, :2] / seen[:, 2:]
    square = (flat**2).sum(axis=1, keepdims=True)
    bent = flat * (1 + camera[:, 9:10] * square + camera[:, 10:] * square**2)
    places = bent * camera[:, 6:7] + camera[:, 7:9]
    errors, weight_errors = ba.objective(*given)
    bound = 32 * EPS * w * (np.abs(places) + np.abs(features) + camera[:, 6:7])
    assert (np.abs(errors.numpy() - (w * (places - features)).ravel()) <= bound.ravel()).all()
    np.testing.assert_array_equal(weight_errors.numpy(), 1 - weights * weights)


def test_ba_jacobian():
    *given, observed, features = ba.inputs()
    x = joined(given)

    def f(x):
        return joined(ba.objective(*parts(x, given), observed, features))

    rows, columns, values = ba.jacobian(*given, observed, features)
    matrix = csr_array((values.numpy(), columns, rows), (3 * len(observed), x.size))
    noise = np.full(3 * len(observed), 32 * EPS * 1000.0)  # pixels up to a thousand
    agrees_with_differences(f, x, lambda v: matrix @ v, 1.0, noise)


def test_ba_jacobian_beside_the_planned_one():
    *given, observed, features = ba.inputs((3, 7, 25))
    rows, columns, values = ba.jacobian(*given, observed, features)
    planned = wf.jacobian(
        lambda *parameters: ba.objective(*parameters, observed, features),
        argnums=(0, 1, 2),
        format="csr",
    )(*given)
    ours = csr_array((values.numpy(), columns, rows), planned.shape).toarray()
    np.testing.assert_allclose(ours, planned.toarray(), rtol=0, atol=64 * EPS * np.abs(ours).max())


def test_rotation_by_nothing():
    x = wf.asarray([1.0, 2.0, 3.0], dtype="float64")
    turn = wf.zeros(3, dtype="float64")
    assert rotation.rotate(turn, x).tolist() == x.tolist()
    by_turn = wf.jacrev(rotation.rotate)(turn, x)
    np.testing.assert_array_equal(by_turn.numpy(), np.cross(np.eye(3), x.numpy()).T)


# kmeans


def test_kmeans():
    points, centroids = (a.numpy() for a in kmeans.inputs())
    squares = ((points[:, None] - centroids) ** 2).sum(axis=2)
    nearest = squares.argmin(axis=1)
    means = np.stack([points[nearest == j].mean(axis=0) for j in range(len(centroids))])
    n = len(points)
    assert abs(kmeans.cost(*kmeans.inputs()).item() - squares.min(axis=1).sum()) <= 8 * n * EPS
    found = kmeans.direction(*kmeans.inputs()).numpy()
    np.testing.assert_allclose(found, centroids - means, rtol=0, atol=n * EPS)


# lstm


def test_lstm_loss():
    given = lstm.inputs()
    weights, extra, state, sequence = (a.numpy() for a in given)
    weights, state = weights.reshape(2, 2, 4, -1), state.reshape(2, 2, -1).copy()
    total = 0.0
    for character, following in pairwise(sequence):
        u = character * extra[0]
        for (w, v), kept in zip(weights, state, strict=True):
            hidden, memory = kept
            forget, take, give, new = w * np.stack([u, hidden, u, hidden]) + v
            memory = memory * expit(forget) + expit(take) * np.tanh(new)
            kept[:] = u, _ = expit(give) * np.tanh(memory), memory
        y = u * extra[1] + extra[2]
        total -= following @ (y - np.log(2 + np.exp(y).sum()))
    expected = total / sequence[1:].size
    rounding = len(sequence) * EPS  # the terms have one sign, and states forget what was rounded
    assert lstm.objective(*given).item() == pytest.approx(expected, rel=rounding)


def test_lstm_gradient():
    *given, state, sequence = lstm.inputs()
    gradient = lstm.jacobian(*given, state, sequence).numpy()

    def f(x):
        return lstm.objective(*parts(x, given), state, sequence).numpy()[None]

    agrees_with_differences(f, joined(given), lambda v: [gradient @ v], 1.0, np.array([64 * EPS]))


# ht


def test_hand_at_rest():
    _, model, correspondences, points, u = ht.inputs(complicated=False)
    still = wf.zeros(ht.THETA, dtype="float64")
    found = ht.objective(still, model, correspondences, points, u).numpy()
    expected = points.numpy() - model.base_positions.numpy()[correspondences, :3]
    np.testing.assert_allclose(found, expected.ravel(), rtol=0, atol=64 * EPS)


def posed(theta, model):
    """The vertices in the pose θ, bone by bone."""
    angles = np.zeros((ht.BONES, 2))
    for finger, (second, sideways, third, fourth) in enumerate(theta[6:].reshape(5, 4)):
        bone = 1 + 4 * finger
        angles[bone + 1 : bone + 4] = (second, sideways), (third, 0), (fourth, 0)
    bends = np.tile(np.eye(4), (ht.BONES, 1, 1))
    bends[:, :3, :3] = Rotation.from_euler("xz", angles).as_matrix()
    relatives, absolutes = model.base_relatives.numpy() @ bends, []
    for parent, relative in zip(model.parents, relatives, strict=True):
        absolutes.append(relative if parent < 0 else absolutes[parent] @ relative)
    moves = np.array(absolutes) @ model.inverse_base_absolutes.numpy()
    arrays = model.weights.numpy(), moves, model.base_positions.numpy()
    positions = np.einsum("vb,bij,vj->vi", *arrays, optimize=True)[:, :3]
    positions[:, 0] *= -1 if model.is_mirrored else 1
    return Rotation.from_rotvec(theta[:3]).apply(positions) + theta[3:6]


@pytest.mark.parametrize("mirrored", [False, True])
def test_ht_errors(mirrored):
    theta, model, correspondences, points, u = ht.inputs()
    model = model._replace(is_mirrored=mirrored)
    vertices = posed(np.array(theta.tolist()), model)
    shares = np.column_stack([u.numpy(), 1 - u.numpy().sum(axis=1)])
    corners = vertices[model.triangles[correspondences]]
    expected = points.numpy() - np.einsum("pc,pci->pi", shares, corners)
    found = ht.objective(theta, model, correspondences, points, u).numpy()
    size = np.abs(points.numpy()).max()
    np.testing.assert_allclose(found, expected.ravel(), rtol=0, atol=64 * EPS * size)


@pytest.mark.parametrize("complicated", [True, False])
def test_ht_jacobian(complicated):
    theta, model, correspondences, points, u = ht.inputs(complicated=complicated)
    matrix = ht.jacobian(theta, model, correspondences, points, u).numpy()
    assert matrix.shape == (3 * len(points), (2 if complicated else 0) + ht.THETA)

    def f(x):
        angles, places = parts(x, [theta, u])
        return ht.objective(angles, model, correspondences, points, places).numpy()

    def along(v):
        by_theta = matrix[:, -ht.THETA :] @ v[: ht.THETA]
        if not complicated:
            return by_theta
        own = np.repeat(v[ht.THETA :].reshape(-1, 2), 3, axis=0)
        return by_theta + (matrix[:, :2] * own).sum(axis=1)

    noise = np.full(3 * len(points), 64 * EPS * np.abs(points.numpy()).max())
    agrees_with_differences(f, joined([theta, u]), along, 1.0, noise)


# llsq, lse, ode, det


def test_llsq():
    x, n = llsq.inputs()
    t = -1 + 2 * np.arange(n) / (n - 1)
    powers = np.vander(t, len(x), increasing=True)
    residual = np.sign(t) - powers @ x.numpy()
    size = np.abs(powers) @ np.abs(x.numpy()) + 1
    terms = n + len(x)
    bound = terms * EPS * (size @ size)
    assert abs(llsq.primal(x, n).item() - residual @ residual / 2) <= bound
    found = llsq.gradient(x, n).numpy()
    bounds = terms * EPS * (np.abs(powers).T @ size)
    assert (np.abs(found + powers.T @ residual) <= bounds).all()


def test_lse():
    (x,) = lse.inputs()
    assert lse.primal(x).item() == pytest.approx(logsumexp(x.numpy()), rel=32 * EPS)
    # At the maximum 1 − Σ softmax(x), which is all rounding, comes on top.
    found = lse.gradient(x).numpy()
    np.testing.assert_allclose(found, softmax(x.numpy()), rtol=32 * EPS, atol=16 * EPS)


def last_of_the_ode(x, steps):
    """∏x · hⁿ times the coefficient of zⁿ in the s-th power of 1 + z + z²/2 + z³/6 + z⁴/24."""
    n = len(x)
    powers = polynomial.polypow([1 / factorial(i) for i in range(5)], steps)
    return prod(x.tolist()) * (ode.END / steps) ** n * powers[n] if n < len(powers) else 0.0


@pytest.mark.parametrize("size", [ode.SIZES[0], (1000, 10), (3, 1), (12, 5), (30, 10)])
def test_ode(size):
    x, steps = ode.inputs(size)
    found = ode.primal(x, steps).numpy()
    exact = (
        np.cumprod(x.numpy())[:4] * [2 ** (i + 1) / factorial(i + 1) for i in range(4)][: len(x)]
    )
    rounding = 16 * (size[1] + len(x)) * EPS  # all terms are positive: nothing cancels
    np.testing.assert_allclose(found[:4], exact, rtol=rounding)
    last = last_of_the_ode(x.numpy(), steps)
    assert found[-1] == pytest.approx(last, rel=rounding, abs=0)
    np.testing.assert_allclose(ode.gradient(x, steps).numpy(), last / x.numpy(), rtol=rounding)


@pytest.mark.parametrize("size", det.SIZES)
def test_det(size):
    a, n = det.inputs(size)
    matrix = a.numpy().reshape(n, n)
    value, cofactors = det.primal(a, n).item(), det.gradient(a, n).numpy().reshape(n, n)
    # The terms of the expansion are positive and negative parts of the product of the row sums.
    bound = n * n * EPS * matrix.sum(axis=1).prod()
    assert abs(value - np.linalg.det(matrix)) <= bound
    np.testing.assert_allclose(matrix @ cofactors.T, value * np.eye(n), rtol=0, atol=bound)


# particle and saddle: gradients in all pairs of modes, then the searches


def path(w):
    """The particle's squared abscissa on the axis, and its derivative carried along by hand."""
    charges, moved = np.array([[10.0, 10.0 - w], [10.0, 0.0]]), np.array([[0.0, -1.0], [0.0, 0.0]])
    x, v = np.array([[0.0, 8.0], [0.0, 0.0]]), np.array([[0.75, 0.0], [0.0, 0.0]])
    while (x + particle.TIME_STEP * v)[0, 1] > 0:
        away, shift = x[0] - charges, x[1] - moved
        r = np.linalg.norm(away, axis=1, keepdims=True)
        turned = shift / r**3 - 3 * away * (away * shift).sum(axis=1, keepdims=True) / r**5
        push = np.stack([(away / r**3).sum(axis=0), turned.sum(axis=0)])
        x, v = x + particle.TIME_STEP * v, v + particle.TIME_STEP * push
    slope = v[0, 0] / v[0, 1]
    change = (v[1, 0] - slope * v[1, 1]) / v[0, 1]
    abscissa = x[0, 0] - slope * x[0, 1]
    return abscissa**2, 2 * abscissa * (x[1, 0] - slope * x[1, 1] - change * x[0, 1])


# About 350 steps round coordinates of size ten; what comes of it grows like what comes of moving a
# charge, and the first two derivatives by that are below a hundred.
PATH_ROUNDING = 350 * 10 * 100 * EPS


def by_hand(_):
    """`path` in the place of a mode."""

    def value_and_gradient(w):
        value, slope = path(w.item())
        return wf.asarray(value, dtype="float64"), wf.asarray([slope], dtype="float64")

    return value_and_gradient


@pytest.mark.parametrize("outer, inner", PAIRS)
def test_particle_gradient(outer, inner):
    (w,) = particle.inputs()
    value, slope = MODES[outer](lambda w: particle.crossing(MODES[inner], w))(w)
    expected = path(w.item())
    assert value.item() == pytest.approx(expected[0], abs=PATH_ROUNDING)
    assert slope.item() == pytest.approx(expected[1], abs=PATH_ROUNDING)


def test_particle_search_by_hand():
    (w,) = particle.inputs()
    found = descent.argmin(None, w, by_hand).item()
    assert found == pytest.approx(0.2071918746486116, abs=PATH_ROUNDING)  # GradBench's answer


@pytest.mark.parametrize("name", ["ff", "fr", "rf", "rr"])
def test_particle_search(name, monkeypatch):
    if not SOAK:  # a first step of the right size, and an early end, make the search short
        monkeypatch.setattr(descent, "FIRST_STEP", 0.016)
        monkeypatch.setattr(descent, "TOLERANCE", 1e-3)
    (w,) = particle.inputs()
    expected = descent.argmin(None, w, by_hand).item()
    assert particle.FUNCTIONS[name](w).item() == pytest.approx(expected, abs=PATH_ROUNDING)


@pytest.mark.parametrize("outer, inner", PAIRS)
def test_saddle_gradient(outer, inner):
    (start,) = saddle.inputs()
    value, slope = MODES[outer](lambda p: saddle.greatest(MODES[inner], start, p))(start)
    assert value.item() == pytest.approx(2.0, abs=1e-9)  # less |q|², where q is nearly zero
    np.testing.assert_allclose(slope.numpy(), 2 * start.numpy(), rtol=0, atol=EPS)


def bowl(_):
    """|p|² and its gradient, in the place of a mode: what both searches go down."""
    return lambda p: (wf.sum(p * p), 2 * p)


def test_saddle_search_by_hand():
    found = descent.argmin(None, *saddle.inputs(), bowl).tolist()
    assert found == pytest.approx([8.246324826140356e-06] * 2, rel=1e-12)  # GradBench's answer


@pytest.mark.parametrize("name", saddle.FUNCTIONS)
def test_saddle_search(name, monkeypatch):
    if not SOAK:
        monkeypatch.setattr(descent, "FIRST_STEP", 0.1)
    (start,) = saddle.inputs()
    expected = descent.argmin(None, start, bowl).tolist()
    assert saddle.FUNCTIONS[name](start).tolist() == pytest.approx(expected * 2, rel=1e-12)


def test_table(monkeypatch, capsys):
    monkeypatch.setattr(__main__, "ENOUGH", EPS)
    __main__.main(["hello", "det"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["hello", "square"],
        ["hello", "double"],
        ["det", "primal"],
        ["det", "gradient"],
    ]
