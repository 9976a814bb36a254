"""Rotations given by a vector: its direction is the axis, its length the angle."""

import weft as wf


def rotate(turn, x):
    """x, of shape (..., 3), turned: x cos θ + (n × x) sin θ + n (n·x)(1 − cos θ), by Rodrigues.

    At angle zero, where there is no axis n, it is x + turn × x, which has the same derivative.
    """
    square = wf.sum(turn * turn)
    angle = wf.sqrt(wf.where(square == 0, 1.0, square))
    axis = turn / angle
    along = wf.sum(axis * x, axis=-1, keepdims=True) * (1 - wf.cos(angle)) * axis
    turned = x * wf.cos(angle) + wf.cross(axis, x) * wf.sin(angle) + along
    return wf.where(square == 0, x + wf.cross(turn, x), turned)
