"""One step that several ranks compute together: what they sum, and what they decide as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..arrays.inplace import copy_
from ..arrays.make import zeros_like
from ..arrays.manipulation import concat, split
from ..core import dtypes
from ..ops import collective
from ..transform.modes.backward import no_grad

if TYPE_CHECKING:
    from .objective import Means
    from .ranks import Ranks
    from .step import Pairs


def first_problem(found: list[dict[str, Any]]) -> str | None:
    """Why a step is withheld on all ranks: the problem of the first rank that has one."""
    for r, facts in enumerate(found):
        if facts["problem"] is not None:
            return f"on rank {r}, {facts['problem']}"
    return None


def meet(ranks: Ranks, means: Means, problem: str | None) -> str | None:
    """The problem of a step on any rank; the means become those of all ranks."""
    if ranks.alone:
        return problem
    found = ranks.together("a step", lambda: {"problem": problem, "sums": means.sums()})
    means.replace([facts["sums"] for facts in found])
    return first_problem(found)


def sum_gradients(ranks: Ranks, pairs: Pairs) -> None:
    """Put the sum over ranks into the gradients of parameters, also where a step is traced.

    A rank's gradients are of its share of the mean loss, so that their sum is the batch's gradient.
    """
    group = ranks.group
    if group is None:
        return
    kinds: dict[tuple[Any, str], list[Any]] = {}
    for _, p in pairs:
        kinds.setdefault((p.grad.dtype, p.grad.device), []).append(p)
    with no_grad():
        for params in kinds.values():
            flat = concat([p.grad.detach().reshape(-1) for p in params])
            total = collective.all_reduce(flat, group.name, group.size)
            ends, end = [], 0
            for p in params[:-1]:
                end += p.size
                ends.append(end)
            for p, part in zip(params, split(total, ends), strict=True):
                p.grad = part.reshape(p.shape)


def multiply_gradients(pairs: Pairs, factor: int) -> None:
    """Multiply the gradients that there are."""
    with no_grad():
        for _, p in pairs:
            if p.grad is not None:
                p.grad = p.grad.detach() * factor


def fill_gradients(pairs: Pairs, missing: Iterable[int]) -> None:
    """Give parameters zeros as gradients that only the losses of other ranks depend on.

    missing  the numbers of the parameters that have no gradient on any rank
    """
    nowhere = set(missing)
    with no_grad():
        for i, (_, p) in enumerate(pairs):
            if p.grad is None and i not in nowhere:
                p.grad = zeros_like(p.detach())


def changed(buffers: list[Any], before: list[Any]) -> list[int]:
    """The numbers of the buffers that are not what they were."""
    with no_grad():
        pairs = enumerate(zip(buffers, before, strict=True))
        return [k for k, (b, was) in pairs if (b.detach() != was).any().item()]


def take_first_ranks(ranks: Ranks, buffers: Iterable[Any]) -> None:
    """Put what rank 0 has into buffers, also where a step is traced."""
    group = ranks.group
    if group is None:
        return
    with no_grad():
        for b in buffers:
            plain = b.detach().to(dtypes.uint8) if b.dtype == dtypes.bool_ else b.detach()
            first = collective.broadcast_from(plain, group.name, group.size, 0)
            copy_(b, first.to(b.dtype))


def on_all_ranks(ranks: Ranks, flag: Any) -> Any:
    """Whether a flag, a scalar that may be traced, is true on all ranks."""
    group = ranks.group
    if group is None:
        return flag
    number = flag.to(dtypes.float32)
    return collective.all_extreme(number, group.name, group.size, "min") > 0
