"""002 TenfloweRS Autograd: Comprehensive Guide, "Utility Functions" and "Troubleshooting".

Sections: Gradient Clipping; Issue 1: NaN/Inf in Gradients ("Exploding gradients").
"""

import math

from expect import close

import weft as wf
from weft import GradientTape, gradient_clipping


def exploding_gradients():
    params = [wf.Parameter(wf.tensor([1.0, 2.0])), wf.Parameter(wf.tensor([2.0]))]
    tape = GradientTape()
    loss = sum((p.square().sum() for p in params), wf.tensor(0.0)).exp()
    grads = tape.gradient([loss], params)

    clipped = gradient_clipping.clip_by_global_norm(grads, 1.0)
    # The gradients of exp(Σp²) point along p, which has the norm 3.
    close(clipped[0], [1 / 3, 2 / 3])
    close(clipped[1], [2 / 3])
    close(grads[1], [4.0 * math.exp(9.0)])


def gradient_clipping_functions():
    gradients = [wf.tensor([3.0, -4.0]), wf.tensor([0.5])]
    limited = gradient_clipping.clip_by_value(gradients, 1.0)
    assert [g.tolist() for g in limited] == [[1.0, -1.0], [0.5]]

    below = gradient_clipping.clip_by_global_norm(gradients, 10.0)
    assert [g.tolist() for g in below] == [[3.0, -4.0], [0.5]]
    assert [g.tolist() for g in gradients] == [[3.0, -4.0], [0.5]]


def what_is_not_finite_is_not_spread():
    spoilt = [wf.tensor([math.nan]), wf.tensor([2.0])]
    assert gradient_clipping.clip_by_global_norm(spoilt, 1.0)[1].tolist() == [2.0]


def main():
    exploding_gradients()
    gradient_clipping_functions()
    what_is_not_finite_is_not_spread()


if __name__ == "__main__":
    main()
