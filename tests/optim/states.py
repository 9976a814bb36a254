"""States of optimizers in one form: eager steps on PyTorch's arrays keep averages, others sums."""

import weft as wf

DISCOUNTS = {"exp_sum": "beta1", "exp_sum_sq": "beta2", "max_exp_sum_sq": "beta2"}


def averages(state):
    """The arrays and numbers of a parameter's state, with averages in the place of sums."""
    found = {}
    for name, value in state.items():
        if name in DISCOUNTS.values() and name in state:
            continue
        beta = state.get(DISCOUNTS.get(name, ""), 0.0)
        x = wf.asarray(value).numpy()
        found[name] = x * (1 - beta) if name in DISCOUNTS else x
    return found
