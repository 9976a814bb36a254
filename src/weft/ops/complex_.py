"""Rows: complex numbers, their parts and their polar form."""

from ..core import dtypes
from ..core.aval import Aval
from ..core.backends import KERNELS
from ..core.op import Caller
from .batching import pointwise, spread
from .rows import elementwise_shape, general, linear, private
from .samples import elementwise as samples
from .samples.case import reals
from .strong import strong_quotient
from .structural import cast, unbroadcast


def _is_complex(x) -> bool:
    return dtypes.is_complex(x.dtype)


def _part(x: Aval) -> Aval:
    return x.like(dtype=dtypes.to_real(x.dtype))


conj: Caller = linear(
    "conj",
    compute=lambda xp, x: xp.conj(x) if _is_complex(x) else x,
    shape=lambda x: x,
    transpose=[lambda g, x: conj(g)],
    reads="",
    spell=("conjugate",),
    moves="values",
    views="unseen",
    public="weft",
    batch=pointwise,
    sample=samples.unary,
    doc="The complex conjugate x̄; of real numbers x itself.\n"
    "conj([1 + 2j, 3 - 1j]) = [(1-2j), (3+1j)]",
)
# A partial may be a Python scalar, as the 2 of ∂(2z)/∂z is.
KERNELS[conj.op] |= {int: int.conjugate, float: float.conjugate, complex: complex.conjugate}

real: Caller = linear(
    "real",
    shape=_part,
    transpose=[lambda g, x: cast(g, x.dtype)],
    reads="",
    recast=True,
    moves="values",
    views="sometimes",
    public="weft",
    batch=pointwise,
    sample=samples.unary,
    doc="The real part of x; of real numbers x itself.\nreal([1 + 2j, 3.0]) = [1.0, 3.0]",
)
imag: Caller = linear(
    "imag",
    shape=_part,
    transpose=[lambda g, x: g * -1j if _is_complex(x) else g * 0],
    reads="",
    recast=True,
    moves="values",
    views="sometimes",
    public="weft",
    batch=pointwise,
    sample=samples.unary,
    doc="The imaginary part of x; zeros for real numbers.\nimag([1 + 2j, 3.0]) = [2.0, 0.0]",
)


def _complex_shape(a: Aval, b: Aval) -> Aval:
    parts = elementwise_shape("complex_", floating=True)(a, b)
    return parts.like(dtype=dtypes.to_complex(parts.dtype))


complex_: Caller = linear(
    "complex_",
    shape=_complex_shape,
    transpose=[
        lambda g, a, b: unbroadcast(g, a.shape),
        lambda g, a, b: unbroadcast(g * 1j, b.shape),
    ],
    reads="",
    joint=True,
    promote=(0, 1),
    floating=True,
    recast=True,
    moves="values",
    batch=pointwise,
    sample=samples.chain(reals((-2, 2), (-2, 2)), samples.point([1.0, 2.0], 3.0)),
)


def _invert(z):
    """z/|z|², and 0 at z = 0."""
    return strong_quotient(sign(z), abs_(z))


def _turn(t, u, z):
    """How u = sgn z moves with z: i·u·Im(ūt)/|z|, and 0 at z = 0. The map is its own adjoint."""
    w = conj(u) * t
    return (w - real(w)) * _invert(z)


sign: Caller = general(
    "sign",
    shape=lambda x: x,
    arity=1,
    push=lambda t, y, x: _turn(t[0], y, x) if _is_complex(x) else t[0] * 0,
    pull=lambda g, y, x: (_turn(g, y, x) if _is_complex(x) else None,),
    spell=("sgn",),
    public="weft",
    batch=pointwise,
    sample=samples.polar,
    doc="x/|x|, and 0 at 0: −1, 0 or 1 for real numbers; their derivative is 0.\n"
    "sign([-2.0, 0.0, 3.0]) = [-1.0, 0.0, 1.0]",
)


def _sign_product_batch(call, size, mapped, args, static):
    """The result has the shape of t: t gets the batch axis if only |x| has it."""
    if not (mapped[0] or mapped[1]):
        args, mapped = [spread(args[0], size), *args[1:]], [True, *mapped[1:]]
    return pointwise(call, size, mapped, args, static)


# t·sgn x of real numbers, given |x|.
sign_product: Caller = private(
    "sign_product",
    [lambda y, t, x, size: sign(x), 0, 0],
    reads="x",
    batch=_sign_product_batch,
    sample=samples.sign_products,
)

abs_: Caller = general(
    "abs",
    shape=_part,
    arity=1,
    push=lambda t, y, x: real(t[0] * conj(sign(x))),
    pull=lambda g, y, x: (g * sign(x) if _is_complex(x) else sign_product(g, x, y),),
    spell=("absolute",),
    cost="light",
    public="weft",
    batch=pointwise,
    sample=samples.polar,
    doc="|x|; its derivative at 0 is 0.\nabs([-2.0, 3.0]) = [2.0, 3.0]",
)


angle: Caller = general(
    "angle",
    shape=elementwise_shape("angle", True, "real"),
    arity=1,
    push=lambda t, y, x: imag(conj(_invert(x)) * t[0]) if _is_complex(x) else t[0] * 0,
    pull=lambda g, y, x: (g * _invert(x) * 1j if _is_complex(x) else None,),
    reads="x",
    promote=(0,),
    floating=True,
    recast=True,
    public="weft",
    batch=pointwise,
    sample=samples.polar,
    doc="The angle of x in the complex plane, in [−π, π]; 0 or π for real numbers.\n"
    "angle([1j, -1.0]) ≈ [1.5708, 3.1416]",
)
