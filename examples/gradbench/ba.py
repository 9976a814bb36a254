"""Bundle adjustment: how far cameras and points are from the features seen, and its Jacobian.

Camera c = (r, C, f, u, k) sees the point X at

    v(1 + k₁|v|² + k₂|v|⁴) f + u,   v = (Y₁, Y₂)/Y₃,   Y = R(r)(X − C),

where R(r) turns by |r| about r. An observation is a camera, a point, a weight w and the feature
z ∈ ℝ² that was found; its errors are w(seen − z), two numbers, and 1 − w².

The Jacobian of the 2p + p errors by the 11n + 3m + p parameters is sparse. It is returned as rows
(where each row starts), columns and values. An observation's part is a block of 2 × 15, the
Jacobian of one small function, and `vmap` computes all blocks together.

Sizes: (n, m, p) cameras, points and observations, (49, 7776, 31843) first. GradBench repeats one
camera, one point and one feature; we draw them all at random.
Source: the eval `ba` of github.com/gradbench/gradbench, from github.com/microsoft/ADBench.
"""

from itertools import pairwise
from typing import Any

import numpy as np

import weft as wf

from .rotation import rotate

SIZES = (
    (49, 7776, 31843),
    (21, 11315, 36455),
    (161, 48126, 182072),
    (372, 47423, 204472),
    (257, 65132, 225911),
    (539, 65220, 277273),
    (93, 61203, 287451),
    (88, 64298, 383937),
    (810, 88814, 393775),
    (1197, 126327, 563734),
    (1723, 156502, 678718),
    (253, 163691, 899155),
    (245, 198739, 1091386),
    (356, 226730, 1255268),
)
CAMERA = (0, 3, 6, 7, 9, 11)  # where r, C, f, u and k begin, and the end
PART = CAMERA[-1] + 3 + 1


def inputs(size=SIZES[0], seed=31337):
    """Cameras that look down at a cloud of points, weights, observations and features."""
    n, m, p = size
    rng = np.random.default_rng(seed)
    turn = rng.normal(size=(n, 3), scale=0.2)
    centre = rng.normal(size=(n, 3)) + np.array([0.0, 0.0, -10.0])
    lens = np.array([500.0, 5.0, -8.0, 0.1, 0.01]) * rng.uniform(0.9, 1.1, (n, 5))
    cameras = np.concatenate([turn, centre, lens], axis=1)
    points, weights = rng.normal(size=(m, 3)), rng.random(p)
    features = rng.normal(size=(p, 2), scale=100.0)
    observed = np.stack([np.arange(p) % n, np.arange(p) % m], axis=1)
    return *map(wf.asarray, (cameras, points, weights)), observed, wf.asarray(features)


def reprojection(camera, point, weight, feature):
    """The weighted error of one observation."""
    turn, centre, focus, origin, bend = (camera[a:b] for a, b in pairwise(CAMERA))
    seen = rotate(turn, point - centre)
    flat = seen[:2] / seen[2]
    square = wf.sum(flat * flat)
    distorted = flat * (1 + bend[0] * square + bend[1] * square * square)
    return weight * (distorted * focus + origin - feature)


def weight_error(weight):
    """What keeps a weight at one."""
    return 1 - weight * weight


def objective(cameras, points, weights, observed, features):
    """The errors of all observations, two each, and of the weights."""
    which, what = observed.T
    errors = wf.vmap(reprojection)(cameras[which], points[what], weights, features)
    return wf.flatten(errors), weight_error(weights)


def jacobian(cameras, points, weights, observed, features):
    """The Jacobian of all errors by cameras, points and weights: rows, columns, values."""
    which, what = observed.T
    block = wf.jacrev(reprojection, argnums=(0, 1, 2))
    by_camera, by_point, by_weight = wf.vmap(block)(cameras[which], points[what], weights, features)
    parts = wf.concat([by_camera, by_point, by_weight[..., None]], axis=2)
    slopes = wf.vmap(wf.grad(weight_error))(weights)
    values = wf.concat([wf.flatten(parts), slopes])
    return *pattern(cameras.shape[0], points.shape[0], observed), values


def pattern(n, m, observed):
    """Where the rows start, and the column of each value."""
    p = len(observed)
    which, what = observed.T
    last = PART * 2 * p
    rows = np.concatenate([np.arange(0, last, PART), np.arange(last, last + p + 1)])
    own = CAMERA[-1] * n + 3 * m + np.arange(p)
    columns = np.concatenate(
        [
            CAMERA[-1] * which[:, None] + np.arange(CAMERA[-1]),
            CAMERA[-1] * n + 3 * what[:, None] + np.arange(3),
            own[:, None],
        ],
        axis=1,
    )
    return rows, np.concatenate([np.repeat(columns, 2, axis=0).ravel(), own])


FUNCTIONS = {"objective": objective, "jacobian": jacobian}


def main():
    given: Any = inputs()
    errors, weight_errors = objective(*given)
    print("errors", errors[:4].tolist(), "...", weight_errors[:2].tolist(), "...")
    rows, columns, values = jacobian(*given)
    print("Jacobian:", len(rows) - 1, "rows,", len(columns), "values,", values[:4].tolist(), "...")


if __name__ == "__main__":
    main()
