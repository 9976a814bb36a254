"""Compressors with error feedback: what is not sent of a gradient is added to the next one."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .. import errors
from ..core import dtypes
from ..core.backends import BACKENDS
from .compression import PowerSGD, TopK, Uncompressed

if TYPE_CHECKING:
    from .buckets import Bucket
    from .member import Member


class ErrorFeedback(Uncompressed):
    """The base of compressors that remember, by parameter, the error of what was sent."""

    def __init__(self) -> None:
        self.state: dict[str, dict[int, Any]] = {"error": {}}

    def mean_by_rows(self, member: Member, flat: Any) -> NoReturn:
        raise errors.StagingError(
            f"backward(): {self} remembers what it has not sent, which a compiled function and a "
            "recorded pass do not; compile the model (wf.compile(model)) and call backward() "
            "outside, or use compression='bfloat16'"
        )

    def _add_errors(self, bucket: Bucket, flat: Any) -> None:
        """Add the errors of the last pass to a bucket's gradients."""
        for k, _, start, end in bucket.parts():
            error = self.state["error"].get(k)
            if error is not None:
                flat[start:end] += error

    def _keep_errors(self, bucket: Bucket, flat: Any) -> None:
        xp = BACKENDS[type(flat)]
        for k, _, start, end in bucket.parts():
            self.state["error"][k] = xp.copy(flat[start:end])


class LargestElements(ErrorFeedback):
    """Each rank's largest elements, with their places."""

    def __init__(self, how: TopK):
        super().__init__()
        self._how = how

    def __repr__(self) -> str:
        return repr(self._how)

    def reduce(self, member: Member, bucket: Bucket, flat: Any, step: int) -> Any:
        xp, n = BACKENDS[type(flat)], bucket.size
        given, tail = flat[:n], flat[n:]
        self._add_errors(bucket, flat)
        places = _largest(given, ceil(self._how.ratio * n)) if n else given[:0]
        sent = xp.concat([given[places] if n else given, tail], 0)
        every = member.perform("all_gather", sent)
        mean = xp.zeros_like(flat)
        if n:
            where = member.perform("all_gather", places)
            for r in range(member.size):
                mean[where[r]] += every[r][: len(places)]
        for r in range(member.size):
            mean[n:] += every[r][len(places) :]
        mean /= member.size
        if xp.all_finite(mean):  # else the step will not be made: the gradients are not sent yet
            given[places] = 0
            self._keep_errors(bucket, flat)
        return mean


def _largest(x: Any, k: int) -> Any:
    """The places of the k elements of x that are largest in modulus, or not finite, in order."""
    xp, size = BACKENDS[type(x)], abs(x)
    size = xp.cast(size, dtypes.float32) if xp.dtype_of(size) in dtypes.HALF else size
    if isinstance(x, np.ndarray):
        size[~np.isfinite(size)] = np.inf
        places = np.sort(np.argpartition(size, len(x) - k)[len(x) - k :])
        return places.astype(np.int32 if len(x) < 1 << 31 else np.int64)
    size[~size.isfinite()] = float("inf")
    places = size.topk(k, sorted=False).indices.sort().values
    return places.int() if len(x) < 1 << 31 else places


class LowRank(ErrorFeedback):
    """Matrices as P·Qᵀ; Q starts from that of the last pass."""

    def __init__(self, how: PowerSGD):
        super().__init__()
        self.state["q"] = {}
        self._how = how

    def __repr__(self) -> str:
        return repr(self._how)

    def reduce(self, member: Member, bucket: Bucket, flat: Any, step: int) -> Any:
        matrices = {} if step < self._how.begin else self._matrices(bucket)
        if not matrices:
            return super().reduce(member, bucket, flat, step)
        with BACKENDS[type(flat)].quiet():  # gradients that are not finite come out as NaN
            return self._reduce_matrices(member, bucket, flat, matrices)

    def _reduce_matrices(self, member: Member, bucket: Bucket, flat: Any, matrices: dict) -> Any:
        self._add_errors(bucket, flat)
        xp = BACKENDS[type(flat)]
        work = dtypes.float32 if bucket.dtype in dtypes.HALF else bucket.dtype
        mean = xp.zeros_like(flat)
        self._reduce_rest(member, bucket, matrices, flat, mean)
        given = {
            k: xp.cast(flat[start:end].reshape(shape), work)
            for k, (shape, start, end) in matrices.items()
        }
        qs = {k: self._q(k, m) for k, m in given.items()}
        ps = _reduced(member, {k: m @ qs[k] for k, m in given.items()})
        finite = bool(xp.all_finite(mean)) and all([xp.all_finite(p) for p in ps.values()])
        if not finite:  # on all ranks; the other half of the exchange goes on, as it must
            ps = {k: xp.zeros_like(p) for k, p in ps.items()}
        ps = {k: _orthonormal(p) for k, p in ps.items()}
        qs = _reduced(member, {k: m.T @ ps[k] for k, m in given.items()})
        finite = finite and all([xp.all_finite(q) for q in qs.values()])
        for k, (_, start, end) in matrices.items():
            whole = ps[k] @ (qs[k] / member.size).T
            mean[start:end] = xp.cast(whole.reshape(-1), bucket.dtype) if finite else float("nan")
        if finite:
            self.state["q"] |= qs
            for k, (_, start, end) in matrices.items():
                self.state["error"][k] = flat[start:end] - mean[start:end]
        return mean

    def _matrices(self, bucket: Bucket) -> dict[int, tuple[tuple[int, int], int, int]]:
        """The members that are compressed, with their shapes as matrices and their places."""
        found = {}
        for k, shape, start, end in bucket.parts():
            if len(shape) < 2 or dtypes.is_complex(bucket.dtype):
                continue
            m, n = shape[0], prod(shape[1:])
            if (m + n) * min(m, n, self._how.rank) < m * n:
                found[k] = (m, n), start, end
        return found

    def _reduce_rest(
        self, member: Member, bucket: Bucket, matrices: dict, flat: Any, mean: Any
    ) -> None:
        """The means of what is sent as it is, and of the counts."""
        spans = [(start, end) for k, _, start, end in bucket.parts() if k not in matrices]
        spans.append((bucket.size, bucket.length))
        sent = BACKENDS[type(flat)].concat([flat[a:b] for a, b in spans], 0)
        total = member.perform("all_reduce", sent, "sum", sent)
        total /= member.size
        at = 0
        for a, b in spans:
            mean[a:b] = total[at : at + b - a]
            at += b - a

    def _q(self, k: int, matrix: Any) -> Any:
        """Q of a parameter: the last one, or the same random one on all ranks."""
        have = self.state["q"].get(k)
        if have is None:
            columns = matrix.shape[1]
            rank = min(*matrix.shape, self._how.rank)
            drawn = np.random.default_rng(k).standard_normal((columns, rank))
            like = BACKENDS[type(matrix)]
            have = like.empty(drawn.shape, like.dtype_of(matrix), like.device_of(matrix))
            like.overwrite(have, _as(matrix, drawn))
        return _orthonormal(have)


def _as(like: Any, x: np.ndarray) -> Any:
    """An array of NumPy as one of the kind, dtype and device of another."""
    if isinstance(like, np.ndarray):
        return x.astype(like.dtype)
    return like.new_tensor(x)


def _orthonormal(x: Any) -> Any:
    """An orthonormal basis of the columns of x, which has no more columns than rows."""
    if isinstance(x, np.ndarray):
        return np.linalg.qr(x)[0]
    from torch.linalg import qr

    return qr(x)[0]


def _reduced(member: Member, parts: dict[int, Any]) -> dict[int, Any]:
    """The sums over ranks of several matrices, by one collective."""
    xp = BACKENDS[type(next(iter(parts.values())))]
    flat = xp.concat([x.reshape(-1) for x in parts.values()], 0)
    total = member.perform("all_reduce", flat, "sum", flat)
    found, at = {}, 0
    for k, x in parts.items():
        n = prod(x.shape)
        found[k] = total[at : at + n].reshape(x.shape)
        at += n
    return found
