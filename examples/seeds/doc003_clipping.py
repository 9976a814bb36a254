"""003 FLAME Optimizer API Documentation, "Gradient Clipping".

Sections: Clip by Norm; Clip by Value.
"""

from expect import close

import weft as wf
from weft.optim import SGD, SGDConfig, clip_grad_norm, clip_grad_value


def updates():
    """A parameter at zero with a gradient of norm 50, as the document collects them."""
    param = wf.Parameter.zeros((2,))
    return param, [(param.id, param, wf.tensor([30.0, -40.0]))]


def clip_by_norm():
    param, param_updates = updates()
    optimizer, messages = SGD(SGDConfig(lr=1.0)), []

    max_norm = 1.0
    total_norm = clip_grad_norm(param_updates, max_norm)
    if total_norm > max_norm:
        messages.append(f"Gradient norm clipped from {total_norm:.3f} to {max_norm:.3f}")
    optimizer.step(param_updates)

    assert messages == ["Gradient norm clipped from 50.000 to 1.000"]
    close(param, [-0.6, 0.8])


def clip_by_value():
    param, param_updates = updates()
    optimizer = SGD(SGDConfig(lr=1.0))

    clip_grad_value(param_updates, 5.0)
    optimizer.step(param_updates)
    assert param.tolist() == [-5.0, 5.0]


def main():
    clip_by_norm()
    clip_by_value()


if __name__ == "__main__":
    main()
