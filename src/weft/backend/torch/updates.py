"""Optimizers' rules as ATen's multi-tensor kernels, which update many arrays in one pass.

An update gets the columns of a rule (p, g and the state), each as a list of arrays of one dtype,
and the rule's numbers. It writes all columns but g. Moments are averages here, as ATen has them.
The arrays of a parameter are contiguous with the same strides (`with_strides`): the kernels go
through the memory from its first number on, whatever the strides are, and those of CUDA refuse
strides that differ, also along an axis of length 1.
With `taken`, a flag of the device's, it writes nothing where that is false; then the count of steps
is an array without axes, too.
"""

from math import inf
from typing import Any

import torch

from .types import Array

Column = list[Array]

_aten = torch.ops.aten


def with_strides(x: Array, strides: tuple[int, ...]) -> Array:
    """x, or a copy that has these strides."""
    if x.stride() == strides:
        return x
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)


def update_sgd(
    p: Column,
    g: Column,
    b: Column = [],  # noqa: B006 (read)
    taken: Array | None = None,
    **given: Any,
) -> None:
    """`rules.sgd`; with `taken` not dampened: only then is a first step like all others."""
    names = ("lr", "weight_decay", "dampening", "maximize")
    _aten._fused_sgd_.default(
        p,
        g,
        b,
        **{name: given[name] for name in names},
        momentum=given["momentum"] if b else 0.0,
        nesterov=bool(given["nesterov"] and b),
        is_first_step=taken is None and given["t"] == 1,
        **_found_inf(taken),
    )


def update_adam(p: Column, g: Column, m: Column, v: Column, *u: Column, **given: Any) -> None:
    """`rules.adam`, on averages."""
    _aten._fused_adam_.default(*_adam_columns(p, g, m, v, u, given["t"]), **_adam_numbers(u, given))


def update_adamw(p: Column, g: Column, m: Column, v: Column, *u: Column, **given: Any) -> None:
    """`rules.adamw`, on averages."""
    t = given["t"] if given["correct_bias"] else inf  # 1 − β^∞ is 1
    _aten._fused_adamw_.default(*_adam_columns(p, g, m, v, u, t), **_adam_numbers(u, given))


def _adam_columns(
    p: Column, g: Column, m: Column, v: Column, u: tuple[Column, ...], t: Any
) -> tuple[Column, ...]:
    if isinstance(t, torch.Tensor):
        steps = t.to(torch.float32)
    else:
        steps = torch.full((), t, dtype=torch.float32, device=p[0].device)
    return p, g, m, v, u[0] if u else [], [steps] * len(p)


def _adam_numbers(u: tuple[Column, ...], given: dict[str, Any]) -> dict[str, Any]:
    names = ("lr", "beta1", "beta2", "weight_decay", "eps", "maximize")
    numbers = {name: given[name] for name in names} | {"amsgrad": bool(u)}
    return numbers | _found_inf(given.get("taken"))


def _found_inf(taken: Array | None) -> dict[str, Array]:
    """The flag as ATen's kernels take it: 1 where nothing is written."""
    return {} if taken is None else {"found_inf": taken.logical_not().to(torch.float32)}


def update_average(s: Column, p: Column, *, decay: float, taken: Array | None = None) -> None:
    """`rules.average`."""
    if taken is None:
        _aten._foreach_lerp_.Scalar(s, p, 1.0 - decay)
        return
    for x, y in zip(s, p, strict=True):
        x.copy_(torch.where(taken, torch.lerp(x, y, 1.0 - decay), x))
