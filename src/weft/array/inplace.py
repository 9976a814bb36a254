"""Writing into a tensor's own memory: `out=`, `copy_` and parameter updates."""

from .. import errors
from ..core import versions
from ..core.backends import BACKENDS, KERNELS
from ..core.node import Leaf
from ..core.op import Op
from ..core.settings import current
from ..core.value import GROUND
from ..core import dispatch


def writable(x, what: str):
    """The raw memory of x for writing; a private copy first if another tensor shares it."""
    if type(x) not in GROUND:
        raise errors.DTypeError(
            f"{what}: expected a tensor to write into, got {type(x).__name__}"
        )
    if x.requires_grad and (current.get().grad or x._node.__class__ is not Leaf):
        raise errors.InPlaceOnTracked(
            f"{what}: the tensor is being differentiated, so its memory cannot be overwritten; "
            f"write into x.detach().clone(), or use wf.no_grad() for a leaf"
        )
    return own_memory(x)


def own_memory(x):
    """The raw memory of x, marked as overwritten now."""
    xp = BACKENDS[type(x._data)]
    if xp.frozen(x._data):
        x._data = xp.copy(x._data)
    else:
        versions.stamp(x._data)
    return x._data


def into(op: Op, args: tuple, out):
    """Compute an operation into the memory of `out`."""
    raw = writable(out, f"{op.name}(out=…)")
    boxed = [dispatch.above.adopt(a) if type(a) not in GROUND and not _is_number(a) else a for a in args]
    expected = dispatch.infer(op, boxed, ())
    if expected.shape != out.shape or expected.dtype != out.dtype:
        raise errors.ShapeError(
            f"{op.name}(out=…): the result is {expected.shape} {expected.dtype}, the buffer "
            f"{out.shape} {out.dtype}"
        )
    if current.get().grad and any(type(a) in GROUND and a.requires_grad for a in boxed):
        raise errors.InPlaceOnTracked(
            f"{op.name}(out=…): an argument is being differentiated, and a result in a buffer is "
            "not recorded; leave out=, or compute under wf.no_grad()"
        )
    raws = [a._data if type(a) in GROUND else a for a in boxed]
    kernel = KERNELS[op][type(raw)]
    if op.compute is None:
        kernel(*raws, out=raw)
    else:
        BACKENDS[type(raw)].overwrite(raw, kernel(*raws))
    out._node = None if out._node.__class__ is not Leaf else out._node
    return out


def _is_number(a) -> bool:
    return isinstance(a, bool | int | float | complex)


def copy_(self, source):
    """Overwrite this tensor's memory with the values of `source`; returns this tensor."""
    source = dispatch.above.adopt(source)
    raw = writable(self, "copy_")
    xp = BACKENDS[type(raw)]
    try:
        xp.overwrite(raw, source._data)
    except (ValueError, RuntimeError):
        raise errors.ShapeError(
            f"copy_: shape {source.shape} does not fit into {self.shape}"
        ) from None
    return self
