"""Writing into a tensor's own memory: `out=`, `copy_` and parameter updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .. import errors
from ..backend.device import place
from ..core import dispatch, dtypes, explain, share, versions
from ..core.aval import broadcast
from ..core.backends import BACKENDS, KERNELS
from ..core.box import BOXED, Box
from ..core.node import Leaf
from ..core.op import Op
from ..core.settings import current
from ..core.value import TENSORS
from ..ops import structural
from .foreign import refuse_imaginary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .tensor import Tensor
    from .types import ArrayLike

_T = TypeVar("_T", bound="Tensor")


def refuse_levels(args: Any, what: str) -> None:
    """Refuse to write what is at a level, or into it: memory holds plain arrays."""
    if any(a.__class__ in BOXED and not _is_staged(a) for a in args):
        raise errors.InPlaceOnTracked(
            f"{what}: inside jvp or vmap, and with a DualTensor, nothing is written into memory; "
            "leave the buffer out, or assign with y[i] = v"
        )


def _is_staged(x) -> bool:
    """Whether x is a staged value, which has no memory."""
    raw = x if isinstance(x, Box) else x._data
    return raw.staged


def refuse_staging(what: str, fix: str) -> None:
    """Refuse what looks at values in a function that is being compiled."""
    if current.get().staging is not None:
        raise errors.StagingError(
            f"{what}: this looks at values, which a function that is being compiled does not "
            f"have; {fix}"
        )


def check_writable(x: Any, what: str) -> None:
    """Refuse what is no tensor, and a tensor whose memory a gradient depends on."""
    if type(x) not in TENSORS:
        raise errors.DTypeError(f"{what}: expected a tensor to write into, got {type(x).__name__}")
    refuse_levels((x,), what)
    share.refuse_left(x, what)
    if x.requires_grad and (current.get().grad or x._node.__class__ is not Leaf):
        raise errors.InPlaceOnTracked(
            f"{what}: the tensor is being differentiated, so its memory cannot be overwritten; "
            "write into x.detach().clone(), or use wf.no_grad() for a leaf"
        )


def check_untracked(args: Any, what: str) -> None:
    """Refuse to compute from tracked tensors what will not be recorded."""
    refuse_levels(args, what)
    if current.get().grad and any(type(a) in TENSORS and a.requires_grad for a in args):
        raise errors.InPlaceOnTracked(
            f"{what}: an argument is being differentiated, and a result in a buffer is not "
            "recorded; leave the buffer out, or compute under wf.no_grad()"
        )


def own_memory(x: Any) -> Any:
    """The raw memory of x, marked as overwritten now; frozen memory is copied first."""
    return own_memories((x,))[0]


def own_memories(tensors: Iterable[Any]) -> list[Any]:
    """`own_memory` of several tensors."""
    settings = current.get()
    if settings.staging is not None:
        raise errors.StagingError(
            "in a function that is being compiled, this cannot change a tensor in place; use "
            "copy_(), or do it outside of the function"
        )
    raws, written = [], []
    for x in tensors:
        if settings.saving is not None:
            settings.saving.before_write(x)
        raw = x._data
        xp = BACKENDS[raw.__class__]
        if xp.is_frozen(raw):
            share.refuse_view(x, "writing into a tensor")
            share.leave(x)
            x._data = raw = xp.copy(raw)
        else:
            written.append(versions.watch_memory(raw))
        raws.append(raw)
    if written:
        versions.stamp_all(written)
    return raws


def into(op: Op, args: Any, out: Tensor, name: str = "") -> Tensor:
    """Compute an operation into the memory of `out`; name: the public function's, in messages."""
    what = f"{name or op.name}(out=…)"
    check_writable(out, what)
    check_untracked(args, what)
    args = dispatch.lift_foreign(op, args)
    if not any(type(a) in TENSORS for a in args):
        args = [dispatch.above.adopt(a, device=out.device) for a in args]
    args = dispatch.harmonise(op, args)
    raws = [a._data if type(a) in TENSORS else a for a in args]
    cls = dispatch.common_backend(op, [*raws, out._data])
    _check_fit(what, explain.infer(op, args, ()), out)
    staging = current.get().staging
    if staging is not None:
        staging.assign(out, dispatch.apply(op, args))
        return out
    kernel, raw = KERNELS[op][cls], own_memory(out)
    try:
        BACKENDS[cls].into(kernel, raws, raw)
    except Exception as e:
        raise explain.explain_error(op, args, (), e) from None
    out._node = None if out._node.__class__ is not Leaf else out._node
    return out


def _check_fit(what: str, expected, out) -> None:
    if expected.shape != out.shape:
        raise errors.ShapeError(
            f"{what}: the result has the shape {expected.shape}, the buffer {out.shape}"
        )
    if expected.dtype != out.dtype:
        raise errors.DTypeError(
            f"{what}: the result is {expected.dtype}, the buffer {out.dtype}; cast one"
        )


def _adopt(source: ArrayLike) -> Tensor:
    return dispatch.above.adopt(source)


def copy_(self: _T, source: ArrayLike) -> _T:
    """Overwrite this tensor's memory with the values of `source`; returns this tensor.

    source  an array that broadcasts to this tensor

    >>> import weft as wf
    >>> x = wf.zeros(2)
    >>> x.copy_([1.0, 2.0]).tolist(), x.tolist()
    ([1.0, 2.0], [1.0, 2.0])
    """
    check_writable(self, "copy_")
    source = _adopt(source)
    check_untracked((source,), "copy_")
    if broadcast("copy_", source.shape, self.shape) != self.shape:
        raise errors.ShapeError(
            f"copy_: shape {source.shape}, expected one that broadcasts to {self.shape}"
        )
    refuse_imaginary("copy_", source.dtype, self.dtype)
    if dtypes.is_inexact(source.dtype) and not dtypes.is_inexact(self.dtype):
        raise errors.DTypeError(
            f"copy_: {source.dtype} into {self.dtype} would cut fractions off; cast it with .to()"
        )
    staging = current.get().staging
    if staging is not None:
        staging.assign(self, structural.broadcast_to(source.to(self.dtype), self.shape))
        return self
    raw = own_memory(self)
    BACKENDS[type(raw)].overwrite(raw, place(source._data, self.device))
    return self
