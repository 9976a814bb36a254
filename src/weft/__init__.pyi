"""Weft: automatic differentiation and training for Python arrays."""

# Written by tools/stubs.py; do not edit.

from builtins import bool as _bool
from builtins import complex as _complex
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from . import amp as amp
from . import arrays as arrays
from . import backend as backend
from . import compiler as compiler
from . import core as core
from . import errors as errors
from . import fft as fft
from . import gradient_clipping as gradient_clipping
from . import graph as graph
from . import implicit as implicit
from . import io as io
from . import linalg as linalg
from . import nn as nn
from . import ops as ops
from . import optim as optim
from . import optimize as optimize
from . import random as random
from . import special as special
from . import train as train
from . import transform as transform
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
from .transform.modes.backward import save_on_cpu as save_on_cpu
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
    """`abs`, element by element; `out=` writes into a tensor's memory."""

def abs_(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`abs`, element by element; `out=` writes into a tensor's memory."""

def absolute(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`abs`, element by element; `out=` writes into a tensor's memory."""

def acos(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`acos`, element by element; `out=` writes into a tensor's memory."""

def acosh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`acosh`, element by element; `out=` writes into a tensor's memory."""

def add(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`add`, element by element; `out=` writes into a tensor's memory."""

def all(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """Whether every element over `axis` is not zero."""

def allclose(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: _bool = False,
) -> _bool:
    """Whether all elements are close."""

def amax(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The largest element over `axis`; equal ones share the gradient."""

def amin(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The smallest element over `axis`; equal ones share the gradient."""

def angle(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`angle`, element by element; `out=` writes into a tensor's memory."""

def any(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """Whether some element over `axis` is not zero."""

def arange(
    start: _complex | Tensor,
    /,
    stop: _complex | Tensor | None = None,
    step: _complex | Tensor = 1,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """Evenly spaced values from `start` (or 0) up to but not including `stop`."""

def arccos(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`acos`, element by element; `out=` writes into a tensor's memory."""

def arccosh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`acosh`, element by element; `out=` writes into a tensor's memory."""

def arcsin(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`asin`, element by element; `out=` writes into a tensor's memory."""

def arcsinh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`asinh`, element by element; `out=` writes into a tensor's memory."""

def arctan(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`atan`, element by element; `out=` writes into a tensor's memory."""

def arctan2(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`atan2`, element by element; `out=` writes into a tensor's memory."""

def arctanh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`atanh`, element by element; `out=` writes into a tensor's memory."""

def argmax(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """Where the (first) largest element is."""

def argmin(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """Where the (first) smallest element is."""

def argsort(
    x: ArrayLike, /, *, axis: int = -1, descending: _bool = False, stable: _bool = True
) -> Tensor:
    """The indices that sort x along `axis`; always stable."""

def argwhere(x: ArrayLike, /) -> Tensor:
    """Where x is not zero: one row of indices for each element."""

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
    """`asin`, element by element; `out=` writes into a tensor's memory."""

def asinh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`asinh`, element by element; `out=` writes into a tensor's memory."""

def astype(
    x: ArrayLike, dtype: DTypeLike, /, *, copy: _bool = True, device: Device | None = None
) -> Tensor:
    """x in another dtype; float to float keeps the gradient."""

def atan(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`atan`, element by element; `out=` writes into a tensor's memory."""

def atan2(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`atan2`, element by element; `out=` writes into a tensor's memory."""

def atanh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`atanh`, element by element; `out=` writes into a tensor's memory."""

def beta(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`beta`, element by element; `out=` writes into a tensor's memory."""

def betaln(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`betaln`, element by element; `out=` writes into a tensor's memory."""

def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, *, minlength: int = 0) -> Tensor:
    """How often each nonnegative integer occurs, or the sum of its weights."""

def bitwise_and(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_and`, element by element; `out=` writes into a tensor's memory."""

def bitwise_invert(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_invert`, element by element; `out=` writes into a tensor's memory."""

def bitwise_left_shift(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_left_shift`, element by element; `out=` writes into a tensor's memory."""

def bitwise_not(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_invert`, element by element; `out=` writes into a tensor's memory."""

def bitwise_or(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_or`, element by element; `out=` writes into a tensor's memory."""

def bitwise_right_shift(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_right_shift`, element by element; `out=` writes into a tensor's memory."""

def bitwise_xor(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_xor`, element by element; `out=` writes into a tensor's memory."""

def broadcast_arrays(*arrays: ArrayLike) -> tuple[Tensor, ...]:
    """The tensors, each broadcast to their common shape."""

def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these shapes broadcast to."""

def broadcast_to(x: ArrayLike, /, shape: Shape) -> Tensor:
    """x repeated, without a copy, to a larger shape."""

def can_cast(from_: DTypeLike | Tensor, to: DTypeLike, /) -> _bool:
    """Whether promotion leads from one dtype to the other."""

def canonical_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype that a name, a Python type, a NumPy or a torch dtype stands for."""

def cbrt(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`cbrt`, element by element; `out=` writes into a tensor's memory."""

def ceil(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`ceil`, element by element; `out=` writes into a tensor's memory."""

def chunk(x: ArrayLike, /, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """x in at most `chunks` parts of one length, the last of which may be shorter."""

def clamp(
    x: ArrayLike,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """x limited to [min, max]; at a bound the gradient passes."""

def clip(
    x: ArrayLike,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """x limited to [min, max]; at a bound the gradient passes."""

def clone(x: ArrayLike, /) -> Tensor:
    """A copy that stays connected."""

def complex(re: ArrayLike, im: ArrayLike, /) -> Tensor:
    """The complex tensor re + i·im."""

def concat(arrays: Iterable[ArrayLike] | Tensor, /, *, axis: int | None = 0) -> Tensor:
    """Tensors one after the other along an axis (None: flattened first)."""

def conj(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`conj`, element by element; `out=` writes into a tensor's memory."""

def conjugate(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`conj`, element by element; `out=` writes into a tensor's memory."""

def copysign(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`copysign`, element by element; `out=` writes into a tensor's memory."""

def cos(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`cos`, element by element; `out=` writes into a tensor's memory."""

def cosh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`cosh`, element by element; `out=` writes into a tensor's memory."""

def count_nonzero(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """How many elements over `axis` are not zero."""

def cross(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors in three dimensions."""

def cummax(x: ArrayLike, axis: int = 0) -> Tensor:
    """Running maxima along `axis`; the gradient goes to where each was attained."""

def cummin(x: ArrayLike, axis: int = 0) -> Tensor:
    """Running minima along `axis`; the gradient goes to where each was attained."""

def cumprod(x: ArrayLike, axis: Axes = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Running products along `axis` (None: of the flattened tensor)."""

def cumsum(x: ArrayLike, axis: Axes = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """Running sums along `axis` (None: of the flattened tensor)."""

def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    include_initial: _bool = False,
) -> Tensor:
    """Running products along `axis`."""

def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    include_initial: _bool = False,
) -> Tensor:
    """Running sums along `axis`."""

def diag(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """A matrix's diagonal, or the matrix that has a vector as its diagonal."""

def diag_embed(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """Matrices with the last axis of x on a diagonal."""

def diagflat(x: ArrayLike, /, offset: int = 0) -> Tensor:
    """The matrix with all elements of x on a diagonal."""

def diagonal(x: ArrayLike, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonals over two axes, along a new last axis."""

def diff(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tensor:
    """n-th differences of neighbours along `axis`."""

def digamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`digamma`, element by element; `out=` writes into a tensor's memory."""

def div(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`divide`, element by element; `out=` writes into a tensor's memory."""

def divide(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`divide`, element by element; `out=` writes into a tensor's memory."""

def dot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """NumPy's dot."""

def einsum(subscripts: str, /, *operands: ArrayLike) -> Tensor:
    """Sums of products by Einstein's notation."""

def elu(x: ArrayLike, /, alpha: float = 1.0) -> Tensor:
    """x where it is positive, alpha·(exp(x) − 1) elsewhere."""

def embedding(indices: ArrayLike, weight: ArrayLike, /) -> Tensor:
    """The rows of a table that the indices name."""

def empty(
    shape: Shape,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor:
    """A tensor whose elements are not set."""

def empty_like(
    x: ArrayLike, /, *, dtype: DTypeLike | None = None, device: Device | None = None
) -> Tensor:
    """`empty` with the shape, dtype and device of x."""

def equal(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`equal`, element by element; `out=` writes into a tensor's memory."""

def erf(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`erf`, element by element; `out=` writes into a tensor's memory."""

def erfc(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`erfc`, element by element; `out=` writes into a tensor's memory."""

def erfinv(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`erfinv`, element by element; `out=` writes into a tensor's memory."""

def exp(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`exp`, element by element; `out=` writes into a tensor's memory."""

def exp2(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`exp2`, element by element; `out=` writes into a tensor's memory."""

def expand_dims(x: ArrayLike, /, axis: int | tuple[int, ...] | list[int] = 0) -> Tensor:
    """x with a new axis of length 1."""

def expit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`expit`, element by element; `out=` writes into a tensor's memory."""

def expm1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`expm1`, element by element; `out=` writes into a tensor's memory."""

def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere."""

def finfo(type_: DTypeLike | ArrayLike, /) -> SimpleNamespace:
    """Limits of a floating dtype."""

def fix(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`trunc`, element by element; `out=` writes into a tensor's memory."""

def flatten(x: ArrayLike, /) -> Tensor:
    """x in one dimension."""

def flip(x: ArrayLike, /, *, axis: Axes = None) -> Tensor:
    """x with the order along `axis` reversed (None: all axes)."""

def floor(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`floor`, element by element; `out=` writes into a tensor's memory."""

def floor_divide(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`floor_divide`, element by element; `out=` writes into a tensor's memory."""

def floordiv(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`floor_divide`, element by element; `out=` writes into a tensor's memory."""

def from_dlpack(
    x: SupportsDLPack, /, *, device: Device | None = None, copy: _bool | None = None
) -> Tensor:
    """A tensor over memory another library exports; CPU memory lands on `cpu`."""

def full(
    shape: Shape,
    fill_value: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor:
    """A tensor with one value everywhere; the gradient of a tensor's value is kept."""

def full_like(
    x: ArrayLike,
    /,
    fill_value: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """`full` with the shape, dtype and device of x."""

def gamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`gamma`, element by element; `out=` writes into a tensor's memory."""

def gather(x: ArrayLike, /, axis: int, indices: ArrayLike) -> Tensor:
    """PyTorch's gather: out[i, j] = x[indices[i, j], j] for axis 0."""

def gelu(x: ArrayLike, /, approximate: str = "none") -> Tensor:
    """x·Φ(x) with the normal distribution function Φ; or its tanh approximation."""

def greater(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`greater`, element by element; `out=` writes into a tensor's memory."""

def greater_equal(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`greater_equal`, element by element; `out=` writes into a tensor's memory."""

def histogram(x: ArrayLike, edges: ArrayLike, /, weights: ArrayLike | None = None) -> Tensor:
    """How many elements fall between neighbouring edges."""

def hypot(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`hypot`, element by element; `out=` writes into a tensor's memory."""

def i0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`i0`, element by element; `out=` writes into a tensor's memory."""

def i1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`i1`, element by element; `out=` writes into a tensor's memory."""

def iinfo(type_: DTypeLike | ArrayLike, /) -> SimpleNamespace:
    """Limits of an integer dtype."""

def imag(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`imag`, element by element; `out=` writes into a tensor's memory."""

def index_add(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """x with slices of `source` added where the indices say; duplicates add up."""

def index_select(x: ArrayLike, /, axis: int, indices: ArrayLike) -> Tensor:
    """`take` with PyTorch's order of arguments."""

def inner(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The sum of products over the last axes."""

def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    /,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: float | None = None,
) -> Tensor: ...
def invert(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_invert`, element by element; `out=` writes into a tensor's memory."""

def isclose(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: _bool = False,
) -> Tensor:
    """|a − b| ≤ atol + rtol·|b|, element by element."""

def isdtype(dtype: DTypeLike, kind: Kind) -> _bool:
    """Whether a dtype is of a kind: a dtype, a kind's name, or a tuple of these."""

def isfinite(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`isfinite`, element by element; `out=` writes into a tensor's memory."""

def isin(x1: ArrayLike, x2: ArrayLike, /, *, invert: _bool = False) -> Tensor:
    """Whether each element of x1 is among those of x2."""

def isinf(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`isinf`, element by element; `out=` writes into a tensor's memory."""

def isnan(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`isnan`, element by element; `out=` writes into a tensor's memory."""

def j0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`j0`, element by element; `out=` writes into a tensor's memory."""

def j1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`j1`, element by element; `out=` writes into a tensor's memory."""

def kron(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The Kronecker product."""

def leaky_relu(x: ArrayLike, /, negative_slope: float = 0.01) -> Tensor:
    """x where it is positive, negative_slope·x elsewhere."""

def left_shift(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_left_shift`, element by element; `out=` writes into a tensor's memory."""

def less(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`less`, element by element; `out=` writes into a tensor's memory."""

def less_equal(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`less_equal`, element by element; `out=` writes into a tensor's memory."""

def lgamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`gammaln`, element by element; `out=` writes into a tensor's memory."""

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
    """`num` evenly spaced values from `start` to `stop`; differentiable in both."""

def log(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`log`, element by element; `out=` writes into a tensor's memory."""

def log10(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`log10`, element by element; `out=` writes into a tensor's memory."""

def log1p(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`log1p`, element by element; `out=` writes into a tensor's memory."""

def log2(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`log2`, element by element; `out=` writes into a tensor's memory."""

def log_softmax(x: ArrayLike, /, axis: int = -1) -> Tensor:
    """x − log Σ exp(x) along `axis`."""

def logaddexp(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`logaddexp`, element by element; `out=` writes into a tensor's memory."""

def logcumsumexp(x: ArrayLike, axis: int = 0) -> Tensor:
    """Running `logsumexp` along `axis`."""

def logical_and(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`logical_and`, element by element; `out=` writes into a tensor's memory."""

def logical_not(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`logical_not`, element by element; `out=` writes into a tensor's memory."""

def logical_or(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`logical_or`, element by element; `out=` writes into a tensor's memory."""

def logical_xor(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`logical_xor`, element by element; `out=` writes into a tensor's memory."""

def logit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`logit`, element by element; `out=` writes into a tensor's memory."""

def logsumexp(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """log Σ exp(x) over `axis`, without overflow."""

def matmul(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The matrix product, batched over leading axes."""

def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """x with its last two axes exchanged."""

def max(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The largest element over `axis`; equal ones share the gradient."""

def max_with_indices(x: ArrayLike, /, axis: int = -1, *, keepdims: _bool = False) -> Ordered:
    """The largest along `axis` and where it is; the gradient goes there."""

def maximum(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`maximum`, element by element; `out=` writes into a tensor's memory."""

def mean(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The arithmetic mean over `axis`."""

def median(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The middle element, or the mean of the middle two."""

def meshgrid(*arrays: ArrayLike, indexing: Literal["xy", "ij"] = "xy") -> tuple[Tensor, ...]:
    """Coordinate grids of one-dimensional coordinates."""

def min(x: ArrayLike, /, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The smallest element over `axis`; equal ones share the gradient."""

def min_with_indices(x: ArrayLike, /, axis: int = -1, *, keepdims: _bool = False) -> Ordered:
    """The smallest along `axis` and where it is; the gradient goes there."""

def minimum(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`minimum`, element by element; `out=` writes into a tensor's memory."""

def mod(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`remainder`, element by element; `out=` writes into a tensor's memory."""

def moveaxis(
    x: ArrayLike, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
) -> Tensor:
    """x with some axes moved, the others in their order."""

def mul(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`multiply`, element by element; `out=` writes into a tensor's memory."""

def multiply(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`multiply`, element by element; `out=` writes into a tensor's memory."""

def neg(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`negative`, element by element; `out=` writes into a tensor's memory."""

def negative(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`negative`, element by element; `out=` writes into a tensor's memory."""

def nextafter(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`nextafter`, element by element; `out=` writes into a tensor's memory."""

def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Where x is not zero: for each axis an array of indices."""

def norm(x: ArrayLike, /, ord: float = 2, axis: Axes = None, *, keepdims: _bool = False) -> Tensor:
    """The vector norm (Σ|x|^ord)^(1/ord) over `axis`; at 0 its gradient is 0."""

def not_equal(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`not_equal`, element by element; `out=` writes into a tensor's memory."""

def one_hot(indices: ArrayLike, num_classes: int, /, *, dtype: DTypeLike | None = None) -> Tensor:
    """A vector with a single one for each index, along a new last axis."""

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
    """`ones` with the shape, dtype and device of x."""

def outer(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The products of all pairs of elements of two vectors."""

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
    """x with margins: a number, (before, after), or one such pair for each axis."""

def percentile(
    x: ArrayLike,
    /,
    q: ArrayLike,
    axis: Axes = None,
    *,
    keepdims: _bool = False,
    method: str = "linear",
) -> Tensor:
    """The q-th percentile(s) over `axis`."""

def permutation(
    x: int | ArrayLike, device: Device | None = None, generator: Generator | None = None
) -> Tensor:
    """The numbers 0 … x-1 in random order, or a tensor's slices along its first axis."""

def permute_dims(x: ArrayLike, /, axes: Axes = None, *more: int) -> Tensor:
    """x with its axes in another order (None: reversed)."""

def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """The n-th derivative of `digamma`; n is a nonnegative integer."""

def positive(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`positive`, element by element; `out=` writes into a tensor's memory."""

def pow(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """xʸ; the derivative of x⁰ at 0 is 0, and x² has the second derivative 2 there."""

def prod(
    x: ArrayLike, /, axis: Axes = None, *, dtype: DTypeLike | None = None, keepdims: _bool = False
) -> Tensor:
    """The product over `axis`; its derivative is exact where elements are zero."""

def put(x: ArrayLike, indices: ArrayLike, values: ArrayLike, /) -> Tensor:
    """A copy of x with values at flat positions."""

def put_along_axis(
    x: ArrayLike, /, indices: ArrayLike, values: ArrayLike, *, axis: int = -1
) -> Tensor:
    """x with values written where the indices say, along one axis."""

def quantile(
    x: ArrayLike,
    /,
    q: ArrayLike,
    axis: Axes = None,
    *,
    keepdims: _bool = False,
    method: str = "linear",
) -> Tensor:
    """The q-quantile(s) over `axis`."""

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
    """Normal with density exp(-(x-mean)²/(2 std²)) / (std √(2π))."""

def real(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`real`, element by element; `out=` writes into a tensor's memory."""

def reciprocal(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`reciprocal`, element by element; `out=` writes into a tensor's memory."""

def relu(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`relu`, element by element; `out=` writes into a tensor's memory."""

def remainder(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`remainder`, element by element; `out=` writes into a tensor's memory."""

def repeat(x: ArrayLike, /, repeats: int | ArrayLike, *, axis: int | None = None) -> Tensor:
    """Each element repeated along `axis` (None: of the flattened tensor)."""

def reshape(x: ArrayLike, /, shape: Shape, *more: int, copy: _bool | None = None) -> Tensor:
    """x with another shape; one size may be −1."""

def result_type(*arrays_and_dtypes: DTypeLike | ArrayLike) -> np.dtype[Any]:
    """The dtype of an operation on these arrays, dtypes and Python scalars."""

def right_shift(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`bitwise_right_shift`, element by element; `out=` writes into a tensor's memory."""

def rint(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`round`, element by element; `out=` writes into a tensor's memory."""

def roll(x: ArrayLike, /, shift: int | tuple[int, ...] | list[int], *, axis: Axes = None) -> Tensor:
    """x shifted around along `axis` (None: as if flattened)."""

def round(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`round`, element by element; `out=` writes into a tensor's memory."""

def rsqrt(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`rsqrt`, element by element; `out=` writes into a tensor's memory."""

def scatter(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """PyTorch's scatter: a copy of x with out[indices[i, j], j] = source[i, j] for axis 0."""

def scatter_add(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """`scatter` that adds; duplicates add up."""

def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, *, side: str = "left", sorter: ArrayLike | None = None
) -> Tensor:
    """Where the elements of x2 belong in the sorted x1."""

def sgn(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`sign`, element by element; `out=` writes into a tensor's memory."""

def sigmoid(x: ArrayLike, /) -> Tensor:
    """1 / (1 + exp(−x))."""

def sign(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`sign`, element by element; `out=` writes into a tensor's memory."""

def signbit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`signbit`, element by element; `out=` writes into a tensor's memory."""

def silu(x: ArrayLike, /) -> Tensor:
    """x·sigmoid(x), also called swish."""

def sin(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`sin`, element by element; `out=` writes into a tensor's memory."""

def sinh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`sinh`, element by element; `out=` writes into a tensor's memory."""

def sliding_window(x: ArrayLike, /, size: int, *, step: int = 1, axis: int = -1) -> Tensor: ...
def softmax(x: ArrayLike, /, axis: int = -1) -> Tensor:
    """exp(x) / Σ exp(x) along `axis`."""

def softplus(x: ArrayLike, /) -> Tensor:
    """log(1 + exp(x)), without overflow."""

def sort(
    x: ArrayLike, /, *, axis: int = -1, descending: _bool = False, stable: _bool = True
) -> Tensor:
    """x in order along `axis`; always stable."""

def split(x: ArrayLike, /, sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """x in equal parts (an integer), or cut at positions (a sequence)."""

def sqrt(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`sqrt`, element by element; `out=` writes into a tensor's memory."""

def square(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`square`, element by element; `out=` writes into a tensor's memory."""

def squeeze(x: ArrayLike, /, axis: Axes = None) -> Tensor:
    """x without axes of length 1 (None: all of them)."""

def stack(arrays: Iterable[ArrayLike] | Tensor, /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""

def std(
    x: ArrayLike, /, axis: Axes = None, *, correction: float = 0.0, keepdims: _bool = False
) -> Tensor:
    """The square root of `var`; where that is 0, so is the gradient."""

def stop_gradient(x: ArrayLike) -> Tensor:
    """x as a constant: no gradient flows through the result."""

def sub(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`subtract`, element by element; `out=` writes into a tensor's memory."""

def subtract(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`subtract`, element by element; `out=` writes into a tensor's memory."""

def sum(
    x: ArrayLike, /, axis: Axes = None, *, dtype: DTypeLike | None = None, keepdims: _bool = False
) -> Tensor:
    """The sum over `axis` (None: all; an integer; a tuple)."""

def swapaxes(x: ArrayLike, a: int, b: int, /) -> Tensor:
    """x with two axes exchanged."""

def swish(x: ArrayLike, /) -> Tensor:
    """x·sigmoid(x), also called swish."""

def take(x: ArrayLike, /, indices: ArrayLike, *, axis: int | None = None) -> Tensor:
    """The elements (or slices along `axis`) that the indices name."""

def take_along_axis(x: ArrayLike, /, indices: ArrayLike, *, axis: int = -1) -> Tensor:
    """The elements that an array of indices names, along one axis."""

def tan(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`tan`, element by element; `out=` writes into a tensor's memory."""

def tanh(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`tanh`, element by element; `out=` writes into a tensor's memory."""

def tensor(
    data: ArrayLike,
    requires_grad: _bool = False,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """A new tensor with a copy of `data`."""

def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    axes: int | Sequence[int] | tuple[Sequence[int], Sequence[int]] = 2,
) -> Tensor:
    """The sum over paired axes: a number of them, or one sequence for each tensor."""

def tile(x: ArrayLike, repetitions: int | tuple[int, ...] | list[int], /) -> Tensor:
    """x repeated as a whole along each axis."""

def topk(x: ArrayLike, /, k: int, *, axis: int = -1, largest: _bool = True) -> Ordered:
    """The k largest (or smallest) along `axis`, in order, and where they were."""

def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sum of a diagonal over the last two axes."""

def transpose(x: ArrayLike, /, axes: Axes = None, *more: int) -> Tensor: ...
def tril(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """x with zeros above the k-th diagonal."""

def triu(x: ArrayLike, /, *, k: int = 0) -> Tensor:
    """x with zeros below the k-th diagonal."""

def true_divide(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`divide`, element by element; `out=` writes into a tensor's memory."""

def trunc(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`trunc`, element by element; `out=` writes into a tensor's memory."""

def unique_all(x: ArrayLike, /) -> UniqueAll:
    """The distinct elements, where each occurs first, how to rebuild x, and the counts."""

def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct elements and how often each occurs."""

def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct elements and how to rebuild x from them."""

def unique_values(x: ArrayLike, /) -> Tensor:
    """The distinct elements."""

def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis."""

def var(
    x: ArrayLike, /, axis: Axes = None, *, correction: float = 0.0, keepdims: _bool = False
) -> Tensor:
    """The variance over `axis`: squared deviations over (n − correction)."""

def vdot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """Σ conj(aᵢ)·bᵢ over all elements."""

def vecdot(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Σ conj(aᵢ)·bᵢ along an axis."""

def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """x1 where the condition holds, x2 elsewhere; the branch not taken gets an exact zero."""

def xlogy(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`xlogy`, element by element; `out=` writes into a tensor's memory."""

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
    """`zeros` with the shape, dtype and device of x."""

def __array_namespace_info__() -> NamespaceInfo:
    """The Array API's inspection object."""

__all__ = [
    "AmpConfig",
    "AutogradContext",
    "AutogradEngine",
    "Checkpoint",
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
    "abs_",
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
    "arrays",
    "asarray",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "backend",
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
    "compiler",
    "complex",
    "complex64",
    "complex128",
    "concat",
    "cond",
    "conj",
    "conjugate",
    "copysign",
    "core",
    "cos",
    "cosh",
    "count_nonzero",
    "cross",
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
    "digamma",
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
    "graph",
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
    "ops",
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
    "transform",
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
