"""The general path of dispatch: an operation on any mixture of arguments, under any settings."""

from collections.abc import Callable, Sequence
from math import copysign, inf
from typing import Any

from numpy import generic

from .. import errors
from . import dtypes
from .backends import BACKENDS, KERNELS, PYTHON_SCALARS
from .box import BOXED, BOXES, check_levels, ground, level_of
from .explain import explain_at_level, explain_error
from .numbers import plain_in, unwrap_number
from .op import TABLE, Caller, Op
from .recording import inexact, mark, track
from .settings import GENERAL, Settings, current
from .share import LENT, lend
from .types import Array, Raw, Static
from .value import GROUND, TENSORS, wrap


class Above:
    """Functions that the layers above install.

    `cast`, `caller` (the quick form of `apply`), `adopt` (foreign data), sweeps and hooks.
    """

    cast: Caller
    caller: Callable[[Op, bool], Caller]
    adopt: Callable[..., Any]
    sweep: Callable[..., dict[Any, Any]]
    visit: Callable[[Any, Any], Any]


above: Above = Above()


def apply(op: Op, args: Sequence[Array], static: Static = (), public: bool = False) -> Any:
    """Compute `op`, wrap the result in a tensor and record it.

    Rules that pass raw arrays only get raw arrays back, unrecorded, unless `public`.
    """
    out = _apply_row(op, args, static, public)
    if op.views in LENT and out.__class__ in TENSORS:
        _lend(op, args, out)
    return out


def _lend(op: Op, args: Sequence[Array], out: Array) -> None:
    """Record that a result is a view of its argument; one element of an array is a copy."""
    x = args[0]
    if x.__class__ not in TENSORS or x is out or (op.name == "slice_" and not out.shape):
        return
    if op.views == "always" or (len(args) == 1 and _lies_in(ground(out), ground(x))):
        lend(x, out)


def _lies_in(raw: Raw, other: Raw) -> bool:
    return BACKENDS[raw.__class__].lies_in(raw, other)


def _apply_row(op: Op, args: Sequence[Array], static: Static, public: bool) -> Any:
    settings = current.get()
    casting = settings.autocast is not None
    if settings.staging is not None:
        args, static = settings.staging.lift_arguments(args), plain_in(static)
    # Arrays that need no conversion are not cast either, for a row that autocast leaves alone.
    leaves = not casting or (settings.way_uncast is not GENERAL and is_uncast(op))
    raws, cls = ready_arrays(op, args) if leaves else ((), None)
    if cls is None:
        if casting and (public or any([a.__class__ in TENSORS for a in args])):
            return apply_cast(op, args, static, public, settings)
        if any([a.__class__ in BOXED for a in args]):
            return _climb(op, args, static, public)
        if not public and not any(type(a) in GROUND for a in args):
            return _raw(op, args, static)
        args = harmonise(op, lift_foreign(op, args))
        raws = [a._data if type(a) in GROUND else a for a in args]
        cls = common_backend(op, raws)
        if cls is None:  # Python scalars only
            args = harmonise(op, [above.adopt(a) for a in args])
            if any([a.__class__ in BOXED for a in args]):  # traced
                return _climb(op, args, static, public)
            raws = [a._data for a in args]
            cls = type(raws[0])
    kernel = KERNELS[op][cls]
    try:
        z = kernel(raws, *static) if op.arity is None else kernel(*raws, *static)
    except Exception as e:
        if op.foreign:
            raise
        raise explain_error(op, args, static, e) from None
    return finish(op, args, raws, z, static, cls)


def is_uncast(op: Op) -> bool:
    """Whether autocast leaves the arguments as they are, unless its columns are overridden.

    Not so outside of the table: a custom operation must not see autocast at all.
    """
    return op.precision == "any" and TABLE.get(op.name) is op


def cast_ground(op: Op, args: Sequence[Array], settings: Settings) -> Sequence[Array] | None:
    """Arguments under autocast after its casts, for the quick path; None: it is for `apply_cast`.

    The quick path runs nothing but the row's kernel, which sees no settings, so that those need not
    change. A custom operation's kernel is the user's code.
    """
    if settings.way_uncast is GENERAL or TABLE.get(op.name) is not op:
        return None
    return settings.autocast.cast_ground(op, args)


def apply_cast(
    op: Op,
    args: Sequence[Array],
    static: Static,
    public: bool,
    settings: Settings,
    call: Callable[..., Any] | None = None,
) -> Any:
    """`apply` under autocast: cast the arguments, and run everything below without autocast.

    call  the row's caller; by default the one of its kind
    """
    for a in args:
        if a.__class__ not in TENSORS:
            args = lift_foreign(op, args)
            break
    autocast = settings.autocast
    token = current.set(settings.exact)
    try:
        wanted = autocast.casts(op, args)
        if wanted:
            args = list(args)
            cast = autocast.cast
            for i, dtype in wanted:
                args[i] = cast(args[i], dtype)
        if TABLE.get(op.name) is not op:  # its caller would be kept for ever
            return apply(op, args, static, public)
        call = call or above.caller(op, public)
        return call(args, *static) if op.arity is None else call(*args, *static)
    finally:
        current.reset(token)


def _climb(op: Op, args: Sequence[Array], static: Static, public: bool) -> Any:
    """Apply an operation to boxes: the highest level among them interprets it.

    Values from lower levels are constants to it. A tensor with a node is passed as it is, so that
    the lower level records it; other tensors are passed as their raw values.
    """
    raw = not public and not any([a.__class__ in TENSORS for a in args])
    if not raw and not _alike(op, args):
        args = harmonise(op, lift_foreign(op, args))
    top = max([level_of(a) for a in args])
    if not raw:
        check_levels(args, top)
    operands, parents, kind = _at_level(args, top)
    try:
        z = kind.interpret(op, top, operands, static)
    except Exception as e:
        if op.foreign:
            raise
        raise explain_at_level(op, args, static, e) from None
    if raw:
        return z
    zs = [z] if op.outputs == 1 else list(z)
    settings = current.get()
    if settings.anomaly:
        _check_finite(op, zs)
    outs = [r if r.__class__ in TENSORS else wrap(BACKENDS[r.__class__].whole(r)) for r in zs]
    if parents.count(None) != len(parents):
        if settings.grad:
            track(op, outs, tuple(parents), operands, static, settings)
        else:
            mark(op, outs, parents)
    return outs[0] if op.outputs == 1 else tuple(outs)


def _at_level(args, level: float) -> tuple[list, list, Any]:
    """The operands for the interpreter of a level, their nodes at that level, and its box class."""
    operands, parents, kind = [], [], None
    for a in args:
        parent = None
        if a.__class__ in BOXED and level_of(a) == level:
            if a.__class__ not in BOXES:
                a, parent = a._data, a._node
            kind = a.__class__
        elif a.__class__ in TENSORS and a._node is None:
            a = a._data
        operands.append(a)
        parents.append(parent)
    return operands, parents, kind


_FAR = 1 << 63  # beyond it, an integer may be beyond floats too


def _alike(op: Op, args) -> bool:
    """Whether the arguments are tensors of one dtype and real numbers: no conversion is needed."""
    dtype = None
    for i, a in enumerate(args):
        if a.__class__ in TENSORS:
            if op.promote is None or i in op.promote:
                own = a._data.dtype
                if own is not dtype and (dtype is not None or not inexact(a)):
                    return False
                dtype = own
        elif a.__class__ is not float and (a.__class__ is not int or not -_FAR < a < _FAR):
            return False
    return True


def ready_arrays(  # noqa: C901  (the hot path)
    op: Op, args: Sequence[Array]
) -> tuple[list[Raw], type | None]:
    """(raw arrays, their type) if the arguments are tensors that need no conversion.

    Python numbers need none where the row does not promote its argument: they stay as they are.
    """
    raws: list[Raw] = []
    promote = op.promote
    cls = device = dtype = None
    for a in args:
        promoted = promote is None or len(raws) in promote
        if a.__class__ not in GROUND:
            if promoted or a.__class__ not in PYTHON_SCALARS:
                return raws, None
            raws.append(a)
            continue
        raw = a._data
        raws.append(raw)
        if cls is None:
            cls, device = raw.__class__, raw.device
        elif raw.__class__ is not cls or raw.device != device:
            return raws, None
        if promoted:
            if dtype is None:
                dtype = raw.dtype
            elif raw.dtype is not dtype:
                return raws, None
    if dtype is not None:
        if op.floating and dtype not in dtypes.RAW_INEXACT:
            return raws, None
        if op.integral and dtype in dtypes.RAW_BOOLEANS:
            return raws, None
    return raws, cls


def _raw(op: Op, args, static):
    """Compute on raw arrays, for rules that run in a plain backward pass and for interpreters."""
    for a in args:
        if a is not None and type(a) not in PYTHON_SCALARS:
            kernel = KERNELS[op][type(a)]
            args = beside_bfloat16(op, args)
            return kernel(args, *static) if op.arity is None else kernel(*args, *static)
    raise errors.ArgumentError(f"{op.name}: no array among the arguments {args}")


def beside_bfloat16(op: Op, args: Sequence[Array]) -> Sequence[Array]:
    """Raw arguments, Python floats made bfloat16 beside such arrays, which NumPy would widen."""
    for a in args:
        if getattr(a, "dtype", None) is dtypes.bfloat16:
            xp = BACKENDS[type(a)]
            break
    else:
        return args
    picked = range(len(args)) if op.promote is None else op.promote
    return [
        xp.point(a, dtypes.bfloat16) if a.__class__ is float and i in picked else a
        for i, a in enumerate(args)
    ]


def lift_foreign(op: Op, args: Sequence[Array]) -> list[Array]:
    """Foreign arrays as untracked tensors; Python scalars stay.

    A NumPy scalar has a dtype but no device: it goes where the tensors are.
    """
    device = next((a.device for a in args if type(a) in TENSORS), None)
    try:
        return [_lift(a, device) for a in args]
    except errors.DTypeError as e:
        reason = e.message.removeprefix("asarray: ")
        raise errors.DTypeError(f"{op.name}: {reason}") from None


def _lift(x, device):
    if x is None or type(x) in TENSORS or type(x) in PYTHON_SCALARS:
        return x
    if type(x) in BOXES:
        return wrap(x)
    if isinstance(x, int | float | complex) and not isinstance(x, generic):
        return unwrap_number(x)
    return above.adopt(x, device=device) if isinstance(x, generic) else above.adopt(x)


def harmonise(op: Op, args: list[Array]) -> list[Array]:
    """Cast the promoted arguments to their common dtype with the recorded op `cast`."""
    picked = range(len(args)) if op.promote is None else op.promote
    arrays = [i for i in picked if type(args[i]) in TENSORS]
    if not arrays:
        return args
    try:
        common = dtypes.promote_all(args[i].dtype for i in arrays)
    except errors.DTypeError as e:
        raise errors.DTypeError(f"{op.name}: {e.message}") from None
    if op.compares and not dtypes.is_inexact(common):
        args = [a if dtypes.holds(common, a) else copysign(inf, a) for a in args]
    for i in picked:
        if type(args[i]) in PYTHON_SCALARS:
            common = dtypes.with_scalar(common, args[i])
    common = _least(op, common)
    backend = BACKENDS[type(args[arrays[0]]._data)]
    for i in picked:
        if type(args[i]) in PYTHON_SCALARS:
            args[i] = _number(op, backend, common, args[i])
        elif type(args[i]) in TENSORS and args[i].dtype != common:
            args[i] = above.cast(args[i], common)
    return args


# What each of two raw dtypes is cast to beside the other, None if it stays.
_PAIRS: dict[tuple[Any, Any], tuple[Any, Any]] = {}


def promote_pair(x: Array, y: Array) -> tuple[Array, Array] | None:
    """`harmonise` for two tensors in one place whose common dtype is inexact; None for others."""
    a, b = x._data, y._data
    found = _PAIRS.get((a.dtype, b.dtype))
    if found is None:
        own = x.dtype, y.dtype
        if not any(map(dtypes.is_inexact, own)):
            return None
        common = dtypes.promote(*own)
        to_x, to_y = (None if d == common else common for d in own)
        found = _PAIRS[a.dtype, b.dtype] = to_x, to_y
    if a.device != b.device:
        return None
    to_x, to_y = found
    if to_x is to_y is None:  # equal dtypes, but two objects, as of an array that was unpickled
        return None
    return (
        x if to_x is None else above.cast(x, to_x),
        y if to_y is None else above.cast(y, to_y),
    )


def _least(op: Op, dtype):
    """The dtype that a row computes in, for arguments of this dtype."""
    if op.floating and not dtypes.is_inexact(dtype):
        return dtypes.default_float()
    return dtypes.int8 if op.integral and dtype is dtypes.bool_ else dtype


def _number(op: Op, xp, common, value):
    """A Python number as an operand beside arrays of the common dtype, which must hold it."""
    dtypes.check_holds(op.name, common, value)
    if value.__class__ is int and not -_FAR < value < _FAR and dtypes.is_inexact(common):
        value = float(value)
    point = xp.point(value, xp.raw_dtype(common))
    return value if point is None else wrap(point)


def common_backend(op: Op, raws: Sequence[Raw]) -> type | None:
    """The one array type of `raws`, all of which must be on one device."""
    cls = device = None
    for r in raws:
        if r is None or type(r) in PYTHON_SCALARS:
            continue
        xp = BACKENDS[type(r)]
        here_on = xp.device_of(r)
        if device is not None and here_on != device:
            raise errors.DeviceError(
                f"{op.name}: arguments on {device!r} and {here_on!r}; move one of them with "
                f".to({device!r})"
            )
        cls, device = xp.array_type, here_on
    return cls


def finish(op: Op, boxed, raws, z, static, cls):
    """Wrap the result in a tensor, record it if a parent is tracked, check it under `anomaly`."""
    settings = current.get()
    single = op.outputs == 1
    zs = [z] if single else z
    zs = [r if r.__class__ is cls else as_whole(r, cls) for r in zs]
    if settings.anomaly:
        _check_finite(op, zs)
    outs = [wrap(r) for r in zs]
    parents = tuple([a._node if a.__class__ in GROUND else None for a in boxed])
    if parents.count(None) != len(parents):
        if settings.grad:
            track(op, outs, parents, raws, static, settings)
        else:
            mark(op, outs, parents)
    return outs[0] if single else tuple(outs)


def as_whole(r: Raw, cls: type) -> Raw:
    """A result whose type is not the arguments': a NumPy scalar, or an array of another backend."""
    return (BACKENDS.get(type(r)) or BACKENDS[cls]).whole(r)


def _check_finite(op: Op, zs) -> None:
    for r in zs:
        xp = BACKENDS[type(r)]
        if dtypes.is_inexact(xp.dtype_of(r)) and not xp.all_finite(r):
            raise errors.AnomalyError(
                f"{op.name} made the first NaN or infinity of the forward pass"
            )
