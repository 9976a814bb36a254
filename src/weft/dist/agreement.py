"""The begin of data-parallel training: one model on all ranks, with the values of rank 0."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import groupby
from typing import Any

import numpy as np

from .. import errors
from ..core.backends import BACKENDS
from ..core.value import aval_of, wrap
from ..ops import collective as rows
from ..ops.slicing import narrow
from ..ops.structural import concat, reshape
from ..transform.modes.backward import no_grad
from .buckets import ParameterSpec
from .member import Member

_DIGEST, _TEXT = 16, 240  # bytes


def compare_models(member: Member, specs: Sequence[ParameterSpec], what: str) -> None:
    """Refuse models that are not the same on all ranks, with the first parameter that differs."""
    texts = [str(spec) for spec in specs]
    member.agree(f"compare {what}")
    found = member.run(lambda m: _differing(m, texts)).wait()
    if found is None:
        return
    number, rows = found
    listed = "; ".join(f"rank {r}: {text or 'none'}" for r, text in enumerate(rows))
    raise errors.RanksDiffer(
        f"the ranks have different models: parameter {number} is not the same on all of them "
        f"({listed}). Build the same model on all ranks, with the same parameters trained"
    )


def _differing(member: Member, texts: list[str]) -> tuple[int, list[str]] | None:
    """The first number at which texts differ between ranks, and the texts of all ranks."""
    counts = member.perform("all_gather", np.array([len(texts)]))[:, 0]
    most = int(counts.max())
    own = np.zeros((most + 1, _DIGEST), np.uint8)  # never empty
    for k, text in enumerate(texts):
        own[k] = np.frombuffer(blake2b(text.encode(), digest_size=_DIGEST).digest(), np.uint8)
    every = member.perform("all_gather", own)
    differs = (every != every[:1]).any((0, 2))
    if not differs.any():
        return None
    k = int(differs.argmax())
    return k, gather_texts(member, texts[k] if k < len(texts) else "")


def gather_texts(member: Member, text: str) -> list[str]:
    """The texts of all ranks, cut to their first bytes."""
    packed = np.frombuffer(text.encode()[:_TEXT].ljust(_TEXT, b"\0"), np.uint8)
    rows = member.perform("all_gather", packed)
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]


def broadcast_values(member: Member, tensors: Iterable[Any], what: str, nbytes: int) -> None:
    """Give tensors the values that they have on rank 0, in arrays of about `nbytes`.

    All ranks must have tensors of the same shapes and dtypes.
    """
    groups = _alike(tensors, nbytes)
    if not groups:
        return
    avals = "; ".join([f"{aval_of(x)}" for group in groups for x in group])
    header = member.agree(f"broadcast {what} {blake2b(avals.encode(), digest_size=6).hexdigest()}")
    jobs = [_send(member, group) for group in groups]
    header.wait()
    for group, job in zip(groups, jobs, strict=True):
        flat = job.wait()
        if member.rank:
            _take(group, flat)


def _alike(tensors: Iterable[Any], nbytes: int) -> list[list[Any]]:
    """Groups of one dtype and device, of about `nbytes` each."""
    found: list[list[Any]] = []
    kinds = sorted(tensors, key=lambda x: (x.dtype.name, x.device))
    for _, alike in groupby(kinds, key=lambda x: (x.dtype, x.device)):
        group: list[Any] = []
        for x in alike:
            group.append(x)
            if sum([t.nbytes for t in group]) >= nbytes:
                found.append(group)
                group = []
        found += [group] if group else []
    return found


def _send(member: Member, group: list[Any]) -> Any:
    raws = [x._data for x in group]
    xp = BACKENDS[type(raws[0])]
    flat = xp.concat([raw.reshape(-1) for raw in raws], 0)
    return member.run(lambda m: m.perform("broadcast", flat, 0))


def _take(group: list[Any], flat: Any) -> None:
    """Write what is not the same: graphs may have saved tensors that nothing has changed."""
    at = 0
    with no_grad():
        for x in group:
            new = wrap(flat[at : at + x.size].reshape(x.shape))
            if not (x.detach() == new).all().item():
                x.copy_(new)
            at += x.size


def broadcast_by_rows(member: Member, tensors: list[Any]) -> None:
    """`broadcast_values` as a part of the program that is being traced."""
    with no_grad():
        for group in _alike(tensors, 1 << 62):
            flat = concat([reshape(x.detach(), (x.size,)) for x in group], 0)
            flat = rows.broadcast_from(flat, member.name, member.size, 0)
            at = 0
            for x in group:
                x.copy_(reshape(narrow(flat, 0, at, at + x.size), x.shape))
                at += x.size
