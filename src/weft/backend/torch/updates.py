"""Optimizers' rules as ATen's multi-tensor kernels, which update many arrays in one pass.

An update gets the columns of a rule (p, g and the state), each as a list of arrays of one dtype,
and the rule's numbers. It writes all columns but g. Moments are averages here, as ATen has them.
"""

from math import inf
from typing import Any

import torch

from .types import Array

Column = list[Array]

_aten = torch.ops.aten


def update_sgd(p: Column, g: Column, b: Column = [], **given: Any) -> None:  # noqa: B006 (read)
    """`rules.sgd`."""
    names = ("lr", "weight_decay", "dampening", "maximize")
    _aten._fused_sgd_.default(
        p,
        g,
        b,
        **{name: given[name] for name in names},
        momentum=given["momentum"] if b else 0.0,
        nesterov=bool(given["nesterov"] and b),
        is_first_step=given["t"] == 1,
    )


def update_adam(p: Column, g: Column, m: Column, v: Column, *u: Column, **given: Any) -> None:
    """`rules.adam`, on averages."""
    _aten._fused_adam_.default(*_adam_columns(p, g, m, v, u, given["t"]), **_adam_numbers(u, given))


def update_adamw(p: Column, g: Column, m: Column, v: Column, *u: Column, **given: Any) -> None:
    """`rules.adamw`, on averages."""
    t = given["t"] if given["correct_bias"] else inf  # 1 − β^∞ is 1
    _aten._fused_adamw_.default(*_adam_columns(p, g, m, v, u, t), **_adam_numbers(u, given))


def _adam_columns(
    p: Column, g: Column, m: Column, v: Column, u: tuple[Column, ...], t: float
) -> tuple[Column, ...]:
    steps = torch.full((), t, dtype=torch.float32, device=p[0].device)
    return p, g, m, v, u[0] if u else [], [steps] * len(p)


def _adam_numbers(u: tuple[Column, ...], given: dict[str, Any]) -> dict[str, Any]:
    names = ("lr", "beta1", "beta2", "weight_decay", "eps", "maximize")
    return {name: given[name] for name in names} | {"amsgrad": bool(u)}


def update_average(s: Column, p: Column, *, decay: float) -> None:
    """`rules.average`."""
    _aten._foreach_lerp_.Scalar(s, p, 1.0 - decay)
