"""Weft: automatic differentiation and training for Python arrays."""

# Written by tools/stubs.py; do not edit.

from builtins import bool as _bool
from builtins import complex as _complex
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from . import amp as amp
from . import cuda as cuda
from . import diffusion as diffusion
from . import dist as dist
from . import errors as errors
from . import fft as fft
from . import gradient_clipping as gradient_clipping
from . import implicit as implicit
from . import io as io
from . import linalg as linalg
from . import nn as nn
from . import optim as optim
from . import optimize as optimize
from . import profile as profile
from . import random as random
from . import special as special
from . import train as train
from .amp import AmpConfig as AmpConfig
from .amp import PrecisionMode as PrecisionMode
from .arrays.determinism import deterministic as deterministic
from .arrays.dtype_functions import Kind, NamespaceInfo
from .arrays.padding import Mode
from .arrays.parameter import Parameter as Parameter
from .arrays.parameter import ParameterDict as ParameterDict
from .arrays.selection import Ordered, UniqueAll, UniqueCounts, UniqueInverse
from .arrays.tensor import Tensor as Tensor
from .arrays.tensor import Tensor as TrackedTensor
from .arrays.types import ArrayLike, Axes, Device, DTypeLike, Shape, SupportsDLPack
from .backend.fingerprint import differences as fingerprint_differences
from .backend.fingerprint import fingerprint as fingerprint
from .compiler.builder.graph import Graph as Graph
from .compiler.jit import compile as compile
from .core.checkpointing import CheckpointConfig as CheckpointConfig
from .core.checkpointing import CheckpointStrategy as CheckpointStrategy
from .core.counter import Generator
from .core.determinism import DeterministicConfig as DeterministicConfig
from .core.determinism import DeterministicMode as DeterministicMode
from .core.dtypes import set_default_dtype as set_default_dtype
from .errors import NotDifferentiable as NotDifferentiable
from .io import Checkpoint as Checkpoint
from .io import load_checkpoint as load_checkpoint
from .io import load_optimizer as load_optimizer
from .io import save_checkpoint as save_checkpoint
from .io import save_optimizer as save_optimizer
from .transform.bridges import to_jax as to_jax
from .transform.bridges import to_torch as to_torch
from .transform.checking.check import NumericalChecker as NumericalChecker
from .transform.checking.check import check_grads as check_grads
from .transform.checking.custom_check import check_op as check_op
from .transform.checkpoint.offload import save_on_cpu as save_on_cpu
from .transform.checkpoint.offload import save_on_disk as save_on_disk
from .transform.checkpoint.replayed import checkpoint as checkpoint
from .transform.compat.engine import AutogradContext as AutogradContext
from .transform.compat.engine import AutogradEngine as AutogradEngine
from .transform.compat.forward_context import ForwardADContext as ForwardADContext
from .transform.compat.scheduler import HybridScheduler as HybridScheduler
from .transform.control.loops import cond as cond
from .transform.control.loops import map_ as map
from .transform.control.loops import scan as scan
from .transform.control.loops import while_loop as while_loop
from .transform.custom.custom_op import CustomOp as CustomOp
from .transform.custom.custom_op import custom_op as custom_op
from .transform.jacobian.jacobians import hessian as hessian
from .transform.jacobian.jacobians import jacfwd as jacfwd
from .transform.jacobian.jacobians import jacobian as jacobian
from .transform.jacobian.jacobians import jacrev as jacrev
from .transform.jacobian.jacobians import laplacian as laplacian
from .transform.jacobian.jacobians import plan_jacobian as plan_jacobian
from .transform.jacobian.scheduling import SchedulerConfig as SchedulerConfig
from .transform.jacobian.scheduling import SchedulingStrategy as SchedulingStrategy
from .transform.modes.backward import detect_anomaly as detect_anomaly
from .transform.modes.backward import enable_grad as enable_grad
from .transform.modes.backward import is_grad_enabled as is_grad_enabled
from .transform.modes.backward import no_grad as no_grad
from .transform.modes.backward import saved_tensors_hooks as saved_tensors_hooks
from .transform.modes.dual import DualTensor as DualTensor
from .transform.modes.functional import grad as grad
from .transform.modes.functional import hvp as hvp
from .transform.modes.functional import jvp as jvp
from .transform.modes.functional import value_and_grad as value_and_grad
from .transform.modes.functional import vjp as vjp
from .transform.modes.gradient_map import GradientMap as GradientMap
from .transform.modes.inspect import clear_tape as clear_tape
from .transform.modes.inspect import explain_grad as explain_grad
from .transform.modes.inspect import graph_of as graph_of
from .transform.modes.inspect import memory_stats as memory_stats
from .transform.modes.linearize import linearize as linearize
from .transform.modes.vmap import vmap as vmap
from .transform.solve.ode import odeint as odeint
from .transform.tape.gradient_tape import GradientTape as GradientTape

bfloat16: np.dtype[Any]
bool: np.dtype[np.bool]
complex128: np.dtype[np.complex128]
complex64: np.dtype[np.complex64]
e: float
float16: np.dtype[np.float16]
float32: np.dtype[np.float32]
float64: np.dtype[np.float64]
inf: float
int16: np.dtype[np.int16]
int32: np.dtype[np.int32]
int64: np.dtype[np.int64]
int8: np.dtype[np.int8]
nan: float
newaxis: None
pi: float
uint16: np.dtype[np.uint16]
uint32: np.dtype[np.uint32]
uint64: np.dtype[np.uint64]
uint8: np.dtype[np.uint8]
__version__: str
__array_api_version__: str

def abs(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """|x|; its derivative at 0 is 0."""

def absolute(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """|x|; its derivative at 0 is 0."""

def acos(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The angle in [0, π] whose cosine is x; NaN where |x| > 1."""

def acosh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic cosine log(x + √(x² − 1)); NaN for x < 1."""

def add(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The sum x + y."""

def all(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """Whether every element over `axis` is not zero; True over none."""

def allclose(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: _bool = False,
) -> _bool:
    """Whether |a − b| ≤ atol + rtol·|b| for all elements, as a Python bool."""

def amax(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The largest element over `axis`; NaN if there is one. Also spelled amax."""

def amin(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The smallest element over `axis`; NaN if there is one. Also spelled amin."""

def angle(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The angle of x in the complex plane, in [−π, π]; 0 or π for real numbers."""

def any(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """Whether some element over `axis` is not zero; False over none."""

def arange(
    start: _complex | Tensor,
    /,
    stop: _complex | Tensor | None = None,
    step: _complex | Tensor = 1,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """The values start, start + step, start + 2·step, … before `stop`."""

def arccos(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The angle in [0, π] whose cosine is x; NaN where |x| > 1."""

def arccosh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic cosine log(x + √(x² − 1)); NaN for x < 1."""

def arcsin(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The angle in [−π/2, π/2] whose sine is x; NaN where |x| > 1."""

def arcsinh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic sine log(x + √(x² + 1))."""

def arctan(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The angle in (−π/2, π/2) whose tangent is x."""

def arctan2(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The angle in [−π, π] of the point with ordinate x and abscissa y."""

def arctanh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic tangent ½ log((1 + x)/(1 − x)); NaN where |x| > 1."""

def argmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: _bool = False) -> Tensor:
    """The index of the largest element, the first of equal ones; it has no gradient."""

def argmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: _bool = False) -> Tensor:
    """The index of the smallest element, the first of equal ones; it has no gradient."""

def argsort(
    x: ArrayLike, /, *, axis: int = -1, descending: _bool = False, stable: _bool = True
) -> Tensor:
    """The indices that put x in ascending order along `axis`; NaN counts as the largest."""

def argwhere(x: ArrayLike, /) -> Tensor:
    """Where x is not zero: one row of indices for each such element."""

def array(
    object: Any,
    dtype: DTypeLike | None = None,
    *,
    copy: _bool | None = True,
    ndmin: int = 0,
    device: Device | None = None,
) -> Tensor:
    """A tensor of `object`, copied: NumPy's and MLX's spelling."""

def asarray(
    obj: Any,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    copy: _bool | None = None,
) -> Tensor:
    """`obj` as a tensor, sharing memory where possible."""

def asin(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The angle in [−π/2, π/2] whose sine is x; NaN where |x| > 1."""

def asinh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic sine log(x + √(x² + 1))."""

def astype(
    x: ArrayLike, dtype: DTypeLike, /, *, copy: _bool = True, device: Device | None = None
) -> Tensor:
    """x in another dtype; float to float keeps the gradient."""

def atan(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The angle in (−π/2, π/2) whose tangent is x."""

def atan2(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The angle in [−π, π] of the point with ordinate x and abscissa y."""

def atanh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The inverse hyperbolic tangent ½ log((1 + x)/(1 − x)); NaN where |x| > 1."""

def beta(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """B(x, y) = Γ(x)Γ(y)/Γ(x + y)."""

def betaln(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log |B(x, y)|, accurate for large arguments."""

def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, *, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2, … occurs in x, or the sum of its weights."""

def bitwise_and(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The bits that are set in both x and y."""

def bitwise_invert(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Every bit of x inverted: −x − 1 of signed integers, `not x` of booleans."""

def bitwise_left_shift(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The bits of x moved up by y places: x·2ʸ, as far as the dtype holds it."""

def bitwise_not(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Every bit of x inverted: −x − 1 of signed integers, `not x` of booleans."""

def bitwise_or(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The bits that are set in x or y."""

def bitwise_right_shift(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The bits of x moved down by y places: ⌊x/2ʸ⌋."""

def bitwise_xor(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The bits that are set in exactly one of x and y."""

def broadcast_arrays(*arrays: ArrayLike) -> tuple[Tensor, ...]:
    """The tensors, each broadcast to their common shape, without copies."""

def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these shapes broadcast to."""

def broadcast_to(x: ArrayLike, /, shape: Shape) -> Tensor: ...
def can_cast(from_: DTypeLike | Tensor, to: DTypeLike, /) -> _bool:
    """Whether type promotion leads from one dtype to the other."""

def canonical_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype that a name or another library's dtype stands for."""

def cbrt(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The real cube root of x, also of negative numbers."""

def ceil(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """⌈x⌉, the smallest integer not below x; its derivative is 0."""

def chunk(x: ArrayLike, /, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """x in at most `chunks` parts of length ⌈n/chunks⌉, of which the last may be shorter."""

def clamp(
    x: ArrayLike,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """min(max(x, min), max): x limited to [min, max]. Also spelled clamp."""

def clip(
    x: ArrayLike,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """min(max(x, min), max): x limited to [min, max]. Also spelled clamp."""

def clone(x: ArrayLike, /) -> Tensor:
    """A copy of x with memory of its own, through which gradients flow."""

def complex(re: ArrayLike, im: ArrayLike, /) -> Tensor:
    """The complex numbers re + i·im."""

def concat(arrays: Iterable[ArrayLike] | Tensor, /, *, axis: int | None = 0) -> Tensor:
    """Tensors one after the other along an axis that they have."""

def conj(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The complex conjugate x̄; of real numbers x itself."""

def conjugate(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The complex conjugate x̄; of real numbers x itself."""

def copysign(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """|x| with the sign of y."""

def cos(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The cosine of x, in radians."""

def cosh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic cosine (eˣ + e⁻ˣ)/2."""

def count_nonzero(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """How many elements over `axis` are not zero."""

def cross(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product a × b of vectors in three dimensions."""

def cummax(x: ArrayLike, axis: int = 0) -> Tensor: ...
def cummin(x: ArrayLike, axis: int = 0) -> Tensor: ...
def cumprod(x: ArrayLike, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor: ...
def cumsum(x: ArrayLike, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Running sums x₀ + … + xᵢ along `axis`."""

def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: _bool = False,
) -> Tensor:
    """Running products x₀·…·xᵢ along `axis`: the Array API's `cumprod`."""

def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: _bool = False,
) -> Tensor:
    """Running sums x₀ + … + xᵢ along `axis`: the Array API's `cumsum`."""

def diag(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """A matrix's diagonal, or the matrix that has a vector as its diagonal."""

def diag_embed(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """Matrices with the last axis of x on a diagonal and zeros elsewhere."""

def diagflat(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """The matrix with all elements of x on a diagonal and zeros elsewhere."""

def diagonal(x: ArrayLike, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonals xᵢᵢ over two axes, along a new last axis."""

def diff(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tensor:
    """Differences xᵢ₊₁ − xᵢ of neighbours along `axis`, n times."""

def digamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """ψ(x) = Γ′(x)/Γ(x), the derivative of `gammaln`."""

def div(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The quotient x/y; of integers too it is a float."""

def divide(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The quotient x/y; of integers too it is a float."""

def dot(a: ArrayLike, b: ArrayLike, /) -> Tensor: ...
def einsum(subscripts: str, /, *operands: ArrayLike) -> Tensor:
    """Sums of products by Einstein's notation, contracted in a cheap order."""

def elu(x: ArrayLike, /, alpha: float = 1.0) -> Tensor:
    """x where it is positive, alpha·(eˣ − 1) elsewhere."""

def embedding(indices: ArrayLike, weight: ArrayLike, /) -> Tensor:
    """The rows weight[i] of a table, for each index."""

def empty(
    shape: Shape,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor:
    """A tensor whose elements are not set: whatever the memory holds."""

def empty_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """A tensor with the shape of x, whose elements are not set."""

def equal(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x = y."""

def erf(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The error function 2/√π ∫₀ˣ exp(−t²) dt."""

def erfc(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """1 − erf(x), accurate where that is small."""

def erfinv(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The y with erf(y) = x; ±∞ at ±1, NaN beyond."""

def exp(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """eˣ."""

def exp2(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """2ˣ."""

def expand_dims(x: ArrayLike, /, axis: int | tuple[int, ...] | list[int] = 0) -> Tensor:
    """x with new axes of length 1."""

def expit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The logistic function 1/(1 + e⁻ˣ)."""

def expm1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """eˣ − 1, accurate near 0."""

def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """A matrix with ones on the k-th diagonal and zeros elsewhere."""

def finfo(type_: DTypeLike | ArrayLike, /) -> SimpleNamespace:
    """The limits of a floating dtype: bits, eps, max, min, smallest_normal and others."""

def fix(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x without its fraction: rounded towards 0; its derivative is 0."""

def flatten(x: ArrayLike, /) -> Tensor:
    """x along one axis, row by row."""

def flip(x: ArrayLike, /, *, axis: Axes = None) -> Tensor:
    """x with the order along `axis` reversed."""

def floor(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """⌊x⌋, the largest integer not above x; its derivative is 0."""

def floor_divide(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """⌊x/y⌋, rounded towards −∞; its derivative is 0."""

def floordiv(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """⌊x/y⌋, rounded towards −∞; its derivative is 0."""

def from_dlpack(
    x: SupportsDLPack, /, *, device: Device | None = None, copy: _bool | None = None
) -> Tensor:
    """A tensor over memory that another library exports by DLPack."""

def full(
    shape: Shape,
    fill_value: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor:
    """A tensor with one value everywhere."""

def full_like(
    x: ArrayLike,
    /,
    fill_value: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """A tensor with the shape of x and one value everywhere."""

def gamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Γ(x) = ∫₀^∞ tˣ⁻¹ e⁻ᵗ dt, which is (x − 1)! for whole numbers."""

def gather(x: ArrayLike, /, axis: int, indices: ArrayLike) -> Tensor:
    """PyTorch's gather: out[i, j] = x[indices[i, j], j] for axis 0."""

def gelu(x: ArrayLike, /, approximate: str = "none") -> Tensor:
    """x·Φ(x) with the normal distribution function Φ."""

def greater(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x > y."""

def greater_equal(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x ≥ y."""

def histogram(x: ArrayLike, edges: ArrayLike, /, weights: ArrayLike | None = None) -> Tensor:
    """How many elements of x, or which sum of weights, fall into [edges[i], edges[i + 1])."""

def hypot(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """√(x² + y²), without overflow on the way; at (0, 0) the gradient is 0."""

def i0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function I₀(x) of the first kind."""

def i1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function I₁(x) of the first kind."""

def iinfo(type_: DTypeLike | ArrayLike, /) -> SimpleNamespace:
    """The limits of an integer dtype: bits, max and min."""

def imag(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The imaginary part of x; zeros for real numbers."""

def index_add(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor: ...
def index_select(x: ArrayLike, /, axis: int, indices: ArrayLike) -> Tensor: ...
def inner(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """Σₖ a…ₖ·b…ₖ over the last axes, for all pairs of what is before them."""

def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    /,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: float | None = None,
) -> Tensor:
    """The piecewise linear function through the points (xp, fp), at x."""

def invert(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Every bit of x inverted: −x − 1 of signed integers, `not x` of booleans."""

def isclose(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: _bool = False,
) -> Tensor:
    """Whether |a − b| ≤ atol + rtol·|b|, element by element."""

def isdtype(dtype: DTypeLike, kind: Kind) -> _bool:
    """Whether a dtype is of a kind."""

def isfinite(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x is neither infinite nor NaN."""

def isin(x1: ArrayLike, x2: ArrayLike, /, *, invert: _bool = False) -> Tensor:
    """Whether each element of x1 is among those of x2."""

def isinf(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x is ∞ or −∞."""

def isnan(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x is NaN."""

def j0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function J₀(x) of the first kind."""

def j1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function J₁(x) of the first kind."""

def kron(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The Kronecker product: b multiplied by each element of a, as blocks of one matrix."""

def leaky_relu(x: ArrayLike, /, negative_slope: float = 0.01) -> Tensor:
    """x where it is positive, negative_slope·x elsewhere."""

def left_shift(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The bits of x moved up by y places: x·2ʸ, as far as the dtype holds it."""

def less(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x < y."""

def less_equal(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x ≤ y."""

def lgamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log |Γ(x)|."""

def linspace(
    start: _complex | Tensor,
    stop: _complex | Tensor,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    endpoint: _bool = True,
) -> Tensor:
    """`num` evenly spaced values start + i·(stop − start)/(num − 1)."""

def log(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The natural logarithm of x; −∞ at 0, NaN below."""

def log10(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of x to the base 10."""

def log1p(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log(1 + x), accurate near 0."""

def log2(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of x to the base 2."""

def log_softmax(x: ArrayLike, /, axis: int = -1) -> Tensor:
    """xᵢ − log Σ exp(xⱼ) along `axis`: log(softmax(x)), accurate where that is small."""

def logaddexp(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log(eˣ + eʸ), without overflow."""

def logcumsumexp(x: ArrayLike, axis: int = 0) -> Tensor:
    """Running log(exp(x₀) + … + exp(xᵢ)) along `axis`, without overflow."""

def logical_and(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x and y both differ from 0."""

def logical_not(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x is 0."""

def logical_or(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x or y differs from 0."""

def logical_xor(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether exactly one of x and y differs from 0."""

def logit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log(x/(1 − x)), the inverse of `expit`; NaN outside [0, 1]."""

def logsumexp(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """log Σ exp(xᵢ) over `axis`, without overflow; its gradient is `softmax`."""

def matmul(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The matrix product Σₖ aᵢₖ·bₖⱼ, batched over leading axes, which broadcast."""

def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """x with its last two axes exchanged: xᵀ for each matrix."""

def max(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The largest element over `axis`; NaN if there is one. Also spelled amax."""

def max_with_indices(x: ArrayLike, /, axis: int = -1, *, keepdims: _bool = False) -> Ordered:
    """The largest element along `axis` and its index, the first of equal ones."""

def maximum(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The larger of x and y; equal ones share the gradient, and NaN wins."""

def mean(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The arithmetic mean Σ xᵢ/n over `axis`."""

def median(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The middle element in order, or the mean of the middle two, as in NumPy."""

def meshgrid(*arrays: ArrayLike, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid: array k holds the k-th coordinate of each point."""

def min(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The smallest element over `axis`; NaN if there is one. Also spelled amin."""

def min_with_indices(x: ArrayLike, /, axis: int = -1, *, keepdims: _bool = False) -> Ordered:
    """The smallest element along `axis` and its index, the first of equal ones."""

def minimum(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The smaller of x and y; equal ones share the gradient, and NaN wins."""

def mod(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x − y·⌊x/y⌋, which has the sign of y."""

def moveaxis(
    x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int], /
) -> Tensor:
    """x with some axes moved, the others in their order."""

def mul(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The product x·y."""

def multiply(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The product x·y."""

def neg(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """−x."""

def negative(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """−x."""

def nextafter(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The next floating-point number after x towards y; no derivative."""

def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Where x is not zero: for each axis an array of indices."""

def norm(x: ArrayLike, /, ord: float = 2, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The vector norm (Σ |xᵢ|^ord)^(1/ord) over `axis`; at 0 its gradient is 0."""

def not_equal(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether x ≠ y."""

def one_hot(indices: ArrayLike, num_classes: int, /, *, dtype: DTypeLike | None = None) -> Tensor:
    """1 at the place of each index and 0 elsewhere, along a new last axis."""

def ones(
    shape: Shape,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor:
    """A tensor of ones."""

def ones_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """A tensor of ones with the shape of x."""

def outer(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The products aᵢ·bⱼ of all pairs of elements of two vectors."""

def pad(
    x: ArrayLike,
    pad_width: int | Sequence[Any],
    /,
    mode: Mode = "constant",
    *,
    constant_values: ArrayLike = 0.0,
    end_values: ArrayLike = 0.0,
    stat_length: int | Sequence[Any] | None = None,
    reflect_type: Literal["even", "odd"] = "even",
) -> Tensor:
    """x with margins at its ends."""

def percentile(
    x: ArrayLike,
    /,
    q: ArrayLike,
    axis: Axes = None,
    *,
    keepdims: _bool = False,
    method: str = "linear",
) -> Tensor: ...
def permutation(
    x: int | ArrayLike, device: Device | None = None, generator: Generator | None = None
) -> Tensor:
    """The numbers 0 … x − 1 in random order, or a tensor's slices along its first axis."""

def permute_dims(x: ArrayLike, /, axes: Axes = None, *more: int) -> Tensor:
    """x with its axes in another order: axis k of the result is axis axes[k] of x."""

def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """ψ⁽ⁿ⁾(x), the n-th derivative of `digamma`."""

def positive(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x itself."""

def pow(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """xʸ; NaN for negative x and a y that is not whole."""

def prod(
    x: ArrayLike, /, axis: Axes = None, *, dtype: DTypeLike | None = None, keepdims: _bool = False
) -> Tensor:
    """The product Π xᵢ over `axis`; its derivative is exact where elements are zero."""

def put(x: ArrayLike, indices: ArrayLike, values: ArrayLike, /) -> Tensor:
    """A copy of x with values at positions counted in its flat order."""

def put_along_axis(
    x: ArrayLike, /, indices: ArrayLike, values: ArrayLike, *, axis: int | None = -1
) -> Tensor:
    """A copy of x with out[i, indices[i, j]] = values[i, j] for the last axis."""

def quantile(
    x: ArrayLike,
    /,
    q: ArrayLike,
    axis: Axes = None,
    *,
    keepdims: _bool = False,
    method: str = "linear",
) -> Tensor:
    """The value below which a share q of the elements over `axis` lies."""

def rand(
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Uniform in [0, 1): multiples of 2⁻²⁴, in double precision of 2⁻⁵³."""

def randint(
    low: int,
    high: int,
    shape: Shape = (),
    dtype: DTypeLike = "int64",
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor: ...
def randn(
    shape: Shape = (),
    mean: _complex = 0.0,
    std: float = 1.0,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal with density exp(−(x − mean)²/(2·std²)) / (std·√(2π))."""

def real(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The real part of x; of real numbers x itself."""

def reciprocal(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """1/x."""

def relu(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """max(x, 0); its derivative at 0 is 0."""

def remainder(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x − y·⌊x/y⌋, which has the sign of y."""

def repeat(x: ArrayLike, /, repeats: int | ArrayLike, *, axis: int | None = None) -> Tensor:
    """Each element of x, or each slice along `axis`, several times."""

def reshape(x: ArrayLike, /, shape: Shape, *more: int, copy: _bool | None = None) -> Tensor:
    """x with another shape, its elements in the same order, row by row."""

def result_type(*arrays_and_dtypes: DTypeLike | ArrayLike) -> np.dtype[Any]:
    """The dtype that an operation on these has, by the Array API's promotion."""

def right_shift(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The bits of x moved down by y places: ⌊x/2ʸ⌋."""

def rint(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The nearest integer, halves to the even one; its derivative is 0."""

def roll(x: ArrayLike, /, shift: int | tuple[int, ...] | list[int], *, axis: Axes = None) -> Tensor:
    """x shifted circularly: out[(i + shift) mod n] = x[i]."""

def round(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The nearest integer, halves to the even one; its derivative is 0."""

def rsqrt(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """1/√x."""

def scatter(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """PyTorch's scatter: a copy of x with out[indices[i, j], j] = source[i, j] for axis 0."""

def scatter_add(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor: ...
def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, *, side: str = "left", sorter: ArrayLike | None = None
) -> Tensor:
    """The index before which each element of x2 would be put into the sorted x1."""

def sgn(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x/|x|, and 0 at 0: −1, 0 or 1 for real numbers; their derivative is 0."""

def sigmoid(x: ArrayLike, /) -> Tensor:
    """The logistic function σ(x) = 1/(1 + e⁻ˣ), from 0 to 1."""

def sign(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x/|x|, and 0 at 0: −1, 0 or 1 for real numbers; their derivative is 0."""

def signbit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Whether the sign bit of x is set: negative numbers and −0."""

def silu(x: ArrayLike, /) -> Tensor:
    """x·σ(x) with σ(x) = 1/(1 + e⁻ˣ). Also spelled swish."""

def sin(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The sine of x, in radians."""

def sinh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic sine (eˣ − e⁻ˣ)/2."""

def sliding_window(x: ArrayLike, /, size: int, *, step: int = 1, axis: int = -1) -> Tensor: ...
def softmax(x: ArrayLike, /, axis: int = -1) -> Tensor:
    """exp(xᵢ)/Σ exp(xⱼ) along `axis`, without overflow: positive numbers whose sum is 1."""

def softplus(x: ArrayLike, /) -> Tensor:
    """log(1 + eˣ), without overflow: a smooth max(x, 0)."""

def sort(
    x: ArrayLike, /, *, axis: int = -1, descending: _bool = False, stable: _bool = True
) -> Tensor:
    """x in ascending order along `axis`; NaN counts as the largest."""

def split(x: ArrayLike, /, sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """x cut into parts along an axis, as a tuple."""

def sqrt(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """√x, NaN for negative real x; its slope at 0 is infinite."""

def square(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x²."""

def squeeze(x: ArrayLike, /, axis: Axes = None) -> Tensor:
    """x without axes of length 1."""

def stack(arrays: Iterable[ArrayLike] | Tensor, /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""

def std(
    x: ArrayLike, /, axis: Axes = None, *, correction: float = 0.0, keepdims: _bool = False
) -> Tensor:
    """The standard deviation √(Σ |xᵢ − mean|²/(n − correction)) over `axis`."""

def stop_gradient(x: ArrayLike) -> Tensor:
    """x as a constant: the same value, through which no gradient flows."""

def sub(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The difference x − y."""

def subtract(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The difference x − y."""

def sum(
    x: ArrayLike, /, axis: Axes = None, *, dtype: DTypeLike | None = None, keepdims: _bool = False
) -> Tensor:
    """The sum Σ xᵢ over `axis`."""

def swapaxes(x: ArrayLike, a: int, b: int, /) -> Tensor:
    """x with the axes a and b exchanged."""

def swish(x: ArrayLike, /) -> Tensor:
    """x·σ(x) with σ(x) = 1/(1 + e⁻ˣ). Also spelled swish."""

def take(x: ArrayLike, /, indices: ArrayLike, *, axis: int | None = None) -> Tensor:
    """The elements, or slices along `axis`, that the indices name."""

def take_along_axis(x: ArrayLike, /, indices: ArrayLike, *, axis: int | None = -1) -> Tensor: ...
def tan(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The tangent of x, in radians."""

def tanh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic tangent (eˣ − e⁻ˣ)/(eˣ + e⁻ˣ)."""

def tensor(
    data: ArrayLike,
    requires_grad: _bool = False,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """A new tensor with a copy of `data`, cut off from any graph."""

def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    axes: int | Sequence[int] | tuple[Sequence[int], Sequence[int]] = 2,
) -> Tensor:
    """The sum of products over pairs of axes."""

def tile(x: ArrayLike, repetitions: int | tuple[int, ...] | list[int], /) -> Tensor:
    """x repeated as a whole along each axis."""

def topk(x: ArrayLike, /, k: int, *, axis: int = -1, largest: _bool = True) -> Ordered:
    """The k largest elements along `axis`, in descending order, and their indices."""

def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sum Σ xᵢᵢ of a diagonal over the last two axes."""

def transpose(x: ArrayLike, /, axes: Axes = None, *more: int) -> Tensor: ...
def tril(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """The lower triangle of x: zeros above the k-th diagonal."""

def triu(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """The upper triangle of x: zeros below the k-th diagonal."""

def true_divide(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The quotient x/y; of integers too it is a float."""

def trunc(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x without its fraction: rounded towards 0; its derivative is 0."""

def unique_all(x: ArrayLike, /) -> UniqueAll: ...
def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct elements, in ascending order, and how often each occurs."""

def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct elements, in ascending order, and which of them each element of x is."""

def unique_values(x: ArrayLike, /) -> Tensor:
    """The distinct elements, in ascending order."""

def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, as a tuple."""

def var(
    x: ArrayLike, /, axis: Axes = None, *, correction: float = 0.0, keepdims: _bool = False
) -> Tensor:
    """The variance Σ |xᵢ − mean|²/(n − correction) over `axis`."""

def vdot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """Σ conj(aᵢ)·bᵢ over all elements."""

def vecdot(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Σ conj(aᵢ)·bᵢ along an axis."""

def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """x1 where the condition holds, x2 elsewhere."""

def xlogy(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x·log(y), and 0 where x = 0."""

def zeros(
    shape: Shape,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor:
    """A tensor of zeros."""

def zeros_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """A tensor of zeros with the shape of x."""

def __array_namespace_info__() -> NamespaceInfo:
    """The Array API's inspection object: its default dtypes, devices and capabilities."""

__all__ = [
    "AmpConfig",
    "AutogradContext",
    "AutogradEngine",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointStrategy",
    "CustomOp",
    "DeterministicConfig",
    "DeterministicMode",
    "DualTensor",
    "ForwardADContext",
    "GradientMap",
    "GradientTape",
    "Graph",
    "HybridScheduler",
    "NotDifferentiable",
    "NumericalChecker",
    "Parameter",
    "ParameterDict",
    "PrecisionMode",
    "SchedulerConfig",
    "SchedulingStrategy",
    "Tensor",
    "TrackedTensor",
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "all",
    "allclose",
    "amax",
    "amin",
    "amp",
    "angle",
    "any",
    "arange",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "array",
    "asarray",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "beta",
    "betaln",
    "bfloat16",
    "bincount",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "can_cast",
    "canonical_dtype",
    "cbrt",
    "ceil",
    "check_grads",
    "check_op",
    "checkpoint",
    "chunk",
    "clamp",
    "clear_tape",
    "clip",
    "clone",
    "compile",
    "complex",
    "complex64",
    "complex128",
    "concat",
    "cond",
    "conj",
    "conjugate",
    "copysign",
    "cos",
    "cosh",
    "count_nonzero",
    "cross",
    "cuda",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "custom_op",
    "detect_anomaly",
    "deterministic",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "diff",
    "diffusion",
    "digamma",
    "dist",
    "div",
    "divide",
    "dot",
    "e",
    "einsum",
    "elu",
    "embedding",
    "empty",
    "empty_like",
    "enable_grad",
    "equal",
    "erf",
    "erfc",
    "erfinv",
    "errors",
    "exp",
    "exp2",
    "expand_dims",
    "expit",
    "explain_grad",
    "expm1",
    "eye",
    "fft",
    "finfo",
    "fingerprint",
    "fingerprint_differences",
    "fix",
    "flatten",
    "flip",
    "float16",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "floordiv",
    "from_dlpack",
    "full",
    "full_like",
    "gamma",
    "gather",
    "gelu",
    "grad",
    "gradient_clipping",
    "graph_of",
    "greater",
    "greater_equal",
    "hessian",
    "histogram",
    "hvp",
    "hypot",
    "i0",
    "i1",
    "iinfo",
    "imag",
    "implicit",
    "index_add",
    "index_select",
    "inf",
    "inner",
    "int8",
    "int16",
    "int32",
    "int64",
    "interp",
    "invert",
    "io",
    "is_grad_enabled",
    "isclose",
    "isdtype",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "j0",
    "j1",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jvp",
    "kron",
    "laplacian",
    "leaky_relu",
    "left_shift",
    "less",
    "less_equal",
    "lgamma",
    "linalg",
    "linearize",
    "linspace",
    "load_checkpoint",
    "load_optimizer",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_softmax",
    "logaddexp",
    "logcumsumexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsumexp",
    "map",
    "matmul",
    "matrix_transpose",
    "max",
    "max_with_indices",
    "maximum",
    "mean",
    "median",
    "memory_stats",
    "meshgrid",
    "min",
    "min_with_indices",
    "minimum",
    "mod",
    "moveaxis",
    "mul",
    "multiply",
    "nan",
    "neg",
    "negative",
    "newaxis",
    "nextafter",
    "nn",
    "no_grad",
    "nonzero",
    "norm",
    "not_equal",
    "odeint",
    "one_hot",
    "ones",
    "ones_like",
    "optim",
    "optimize",
    "outer",
    "pad",
    "percentile",
    "permutation",
    "permute_dims",
    "pi",
    "plan_jacobian",
    "polygamma",
    "positive",
    "pow",
    "prod",
    "profile",
    "put",
    "put_along_axis",
    "quantile",
    "rand",
    "randint",
    "randn",
    "random",
    "real",
    "reciprocal",
    "relu",
    "remainder",
    "repeat",
    "reshape",
    "result_type",
    "right_shift",
    "rint",
    "roll",
    "round",
    "rsqrt",
    "save_checkpoint",
    "save_on_cpu",
    "save_on_disk",
    "save_optimizer",
    "saved_tensors_hooks",
    "scan",
    "scatter",
    "scatter_add",
    "searchsorted",
    "set_default_dtype",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinh",
    "sliding_window",
    "softmax",
    "softplus",
    "sort",
    "special",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "stop_gradient",
    "sub",
    "subtract",
    "sum",
    "swapaxes",
    "swish",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensor",
    "tensordot",
    "tile",
    "to_jax",
    "to_torch",
    "topk",
    "trace",
    "train",
    "transpose",
    "tril",
    "triu",
    "true_divide",
    "trunc",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "value_and_grad",
    "var",
    "vdot",
    "vecdot",
    "vjp",
    "vmap",
    "where",
    "while_loop",
    "xlogy",
    "zeros",
    "zeros_like",
]
