"""Gradients of functions keep no graph that nobody can use, and cost no walk over older ones."""

import numpy as np

import weft as wf
from weft.transform.modes import paths


def test_an_inner_gradient_leaves_the_outer_result_untracked():
    found = wf.grad(lambda w: wf.grad(lambda x: w * x * x)(wf.tensor(3.0)))(wf.tensor(2.0))
    assert found.item() == 6.0 and not found.requires_grad


def test_a_tracked_parameter_keeps_the_result_tracked():
    p = wf.tensor(2.0, requires_grad=True)
    found = wf.grad(lambda x: p * x * x)(wf.tensor(3.0))
    assert found.backward()[p].item() == 6.0


def test_inner_gradients_do_not_walk_the_outer_graph(monkeypatch):
    """The nodes that are looked at grow in proportion to the steps, not to their square."""
    seen = []
    real = paths.nodes_between

    def counted(starts, goals, **options):
        useful, outside = real(starts, goals, **options)
        seen.append(len(useful))
        return useful, outside

    monkeypatch.setattr("weft.transform.modes.functional.nodes_between", counted)

    def looked_at(steps: int) -> int:
        seen.clear()

        def descend(x):
            for _ in range(steps):
                x = x - 0.01 * wf.grad(lambda z: (z * z).sum())(x)
            return x.sum()

        got = wf.grad(descend)(wf.ones(3))
        np.testing.assert_allclose(got.numpy(), 0.98**steps, rtol=1e-5)
        return sum(seen)

    assert looked_at(80) < 2.5 * looked_at(40)
