"""Random tensors from counter-based streams: `wf.random`, `wf.rand`, `wf.randn` and so on."""

# Written by tools/stubs.py; do not edit.

from .arrays.tensor import Tensor
from .arrays.types import ArrayLike, Device, DTypeLike, Shape
from .core.counter import Generator as Generator

def bernoulli(
    p: ArrayLike = 0.5,
    shape: Shape | None = None,
    dtype: DTypeLike = bool,
    device: Device | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """True (or 1) with probability p, which is kept to 2⁻³²."""

default_generator: Generator

def get_state() -> dict[str, int]:
    """Where the default generator is: plain integers, to be saved with a run."""

def normal(
    mean: complex = 0.0,
    std: float = 1.0,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor: ...
def permutation(
    x: int | ArrayLike, device: Device | None = None, generator: Generator | None = None
) -> Tensor:
    """The numbers 0 … x − 1 in random order, or a tensor's slices along its first axis."""

def rand(
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
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
    mean: complex = 0.0,
    std: float = 1.0,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Normal with density exp(−(x − mean)²/(2·std²)) / (std·√(2π))."""

def seed(seed: int) -> None:
    """Begin the default generator's stream anew."""

def set_state(state: dict[str, int]) -> None: ...
def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: Shape = (),
    dtype: DTypeLike | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor: ...

__all__ = [
    "Generator",
    "bernoulli",
    "default_generator",
    "get_state",
    "normal",
    "permutation",
    "rand",
    "randint",
    "randn",
    "seed",
    "set_state",
    "uniform",
]
