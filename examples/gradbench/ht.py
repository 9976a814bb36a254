"""Hand tracking: how far the surface of a bent hand model is from measured points.

The hand is a tree of 22 bones: a wrist, five fingers of four bones, a forearm. Bone j has a 4 × 4
transformation relative to its parent, which the pose multiplies by Rz(βⱼ) Rx(αⱼ); the product along
the way from the root is its absolute transformation Aⱼ, at rest Bⱼ. Vertex i of the surface, at pᵢ
when the hand is at rest, moves to Σⱼ wᵢⱼ Aⱼ Bⱼ⁻¹ pᵢ; then the whole hand is turned and shifted. The
26 parameters θ are the turn, the shift and, for each finger, α and β of its second bone and α of
its third and fourth.

In the simple problem each measured point belongs to a vertex, and its errors are the three
coordinates of point − vertex. In the complicated one it belongs to a triangle, and to the place
there with the coordinates (u₁, u₂, 1 − u₁ − u₂), which are parameters too. A point's errors
depend on its own u only, so that one column each is enough for the u₁ and the u₂ of all points: the
Jacobian has two columns for u and 26 for θ, one forward sweep each.

Sizes: numbers of points, 100 first; the model has 10000 vertices and 1084 triangles. GradBench
reads a hand from files; ours is drawn at random in the same form.
Source: the eval `ht` of github.com/gradbench/gradbench, from github.com/microsoft/ADBench.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

import weft as wf

from .rotation import rotate

SIZES = (100, 192, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 100000)
FINGERS, VERTICES, TRIANGLES = 5, 10000, 1084
PARENTS = (-1, *(0 if j == 0 else 4 * f + j for f in range(FINGERS) for j in range(4)), 0)
BONES, THETA = len(PARENTS), 6 + 4 * FINGERS
# Where in θ a bone has its angles α and β; STILL, one beyond the end, is an angle of zero.
STILL = THETA
ALPHA = (STILL, *(i for f in range(6, THETA, 4) for i in (STILL, f, f + 2, f + 3)), STILL)
BETA = (STILL, *(i for f in range(6, THETA, 4) for i in (STILL, f + 1, STILL, STILL)), STILL)


class Model(NamedTuple):
    """A hand at rest."""

    parents: tuple
    base_relatives: wf.Tensor
    inverse_base_absolutes: wf.Tensor
    base_positions: wf.Tensor
    weights: wf.Tensor
    triangles: np.ndarray
    is_mirrored: bool


def inputs(size=SIZES[0], seed=31337, complicated=True):
    """θ, the model, the correspondences, the points and u, which is empty if simple."""
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    correspondences = rng.integers(0, TRIANGLES if complicated else VERTICES, size)
    points, theta = rng.normal(size=(size, 3)), rng.normal(size=THETA)
    u = rng.dirichlet(np.ones(3), size)[:, :2] if complicated else np.zeros((0, 2))
    return wf.asarray(theta), model, correspondences, wf.asarray(points), wf.asarray(u)


def random_model(rng):
    """Bones turned and shifted at random, vertices around them that follow up to four of them."""
    relatives = np.tile(np.eye(4), (BONES, 1, 1))
    relatives[:, :3, :3] = Rotation.from_rotvec(rng.normal(size=(BONES, 3))).as_matrix()
    relatives[:, :3, 3] = rng.normal(size=(BONES, 3), scale=0.03)
    absolutes = []
    for parent, relative in zip(PARENTS, relatives, strict=True):
        absolutes.append(relative if parent < 0 else absolutes[parent] @ relative)
    positions = np.ones((VERTICES, 4))
    positions[:, :3] = rng.normal(size=(VERTICES, 3), scale=0.05)
    weights = np.zeros((VERTICES, BONES))
    followed = rng.integers(0, BONES, (VERTICES, 4))
    np.put_along_axis(weights, followed, rng.random((VERTICES, 4)), axis=1)
    weights /= weights.sum(axis=1, keepdims=True)
    arrays: Any = map(wf.asarray, (relatives, np.linalg.inv(absolutes), positions, weights))
    relative, inverse, base, weight = arrays
    return Model(
        PARENTS, relative, inverse, base, weight, rng.integers(0, VERTICES, (TRIANGLES, 3)), False
    )


def bends(theta):
    """The bones' rotations Rz(β) Rx(α), as 4 × 4 matrices."""
    padded = wf.concat([theta, wf.zeros(1, dtype=theta.dtype)])
    alpha, beta = padded[np.array(ALPHA)], padded[np.array(BETA)]
    ca, sa, cb, sb = wf.cos(alpha), wf.sin(alpha), wf.cos(beta), wf.sin(beta)
    zero, one = wf.zeros_like(ca), wf.ones_like(ca)
    rows = [
        [cb, -sb * ca, sb * sa, zero],
        [sb, cb * ca, -cb * sa, zero],
        [zero, sa, ca, zero],
        [zero, zero, zero, one],
    ]
    return wf.stack([wf.stack(row, axis=1) for row in rows], axis=1)


def surface(theta, model):
    """The vertices of the hand in the pose θ."""
    relatives = model.base_relatives @ bends(theta)
    absolutes = []
    for b, parent in enumerate(model.parents):
        absolutes.append(relatives[b] if parent < 0 else absolutes[parent] @ relatives[b])
    moves = (wf.stack(absolutes) @ model.inverse_base_absolutes)[:, :3]
    weighted = model.weights[:, :, None] * model.base_positions[:, None, :]
    flat = wf.reshape(weighted, (-1, 4 * len(model.parents)))
    positions = flat @ wf.reshape(moves.mT, (-1, 3))
    if model.is_mirrored:
        positions = positions * wf.asarray([-1.0, 1.0, 1.0], dtype=theta.dtype)
    return rotate(theta[:3], positions) + theta[3:6]


def objective(theta, model, correspondences, points, u):
    """The errors, three for each point."""
    vertices = surface(theta, model)
    if u.shape[0] == 0:
        return wf.flatten(points - vertices[correspondences])
    corners = vertices[model.triangles[correspondences]]
    shares = wf.concat([u, 1 - wf.sum(u, axis=1, keepdims=True)], axis=1)
    return wf.flatten(points - wf.sum(shares[:, :, None] * corners, axis=1))


def jacobian(theta, model, correspondences, points, u):
    """The Jacobian: two columns for each point's own u (none if simple), then 26 for θ."""
    if u.shape[0] == 0:
        return wf.jacfwd(objective)(theta, model, correspondences, points, u)

    def moved(step):
        return objective(theta + step[2:], model, correspondences, points, u + step[:2])

    return wf.jacfwd(moved)(wf.zeros(2 + THETA, dtype=theta.dtype))


FUNCTIONS = {"objective": objective, "jacobian": jacobian}


def main():
    given = inputs()
    print("errors", objective(*given)[:3].tolist(), "...")
    matrix = jacobian(*given)
    print("Jacobian", matrix.shape, matrix[0, :4].tolist(), "...")


if __name__ == "__main__":
    main()
