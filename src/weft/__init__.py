"""Weft: automatic differentiation and training for Python arrays.

>>> import weft as wf
>>> x = wf.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x**2).sum().backward()[x].tolist()
[2.0, 4.0, 6.0]
"""

from importlib import import_module as _import_module
from math import e, inf, nan, pi
from sys import modules as _modules
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import backend, errors
from .array import einops_ as _einops
from .array import memory as _memory
from .array import namespace as _namespace
from .array.parameter import Parameter, ParameterDict
from .array.spellings import module_attribute as _module_attribute
from .array.tensor import Tensor, TrackedTensor
from .compile import eager as _eager
from .core import warned as _warned
from .core.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .errors import NotDifferentiable
from .transform import backward as _backward
from .transform import compiler as _compiler
from .transform.backward import (
    detect_anomaly,
    enable_grad,
    is_grad_enabled,
    no_grad,
    save_on_cpu,
    saved_tensors_hooks,
)
from .transform.dual import DualTensor
from .transform.functional import grad, hvp, jvp, value_and_grad, vjp
from .transform.gradient_map import GradientMap
from .transform.gradient_tape import GradientTape
from .transform.inspect_ import clear_tape, explain_grad, graph_of, memory_stats
from .transform.scheduling import SchedulerConfig, SchedulingStrategy
from .transform.vmap import vmap

if _TYPE_CHECKING:
    from . import amp, compile, gradient_clipping, implicit, io, nn, optim, optimize, train
    from .amp import AmpConfig, PrecisionMode
    from .array.determinism import deterministic
    from .backend.fingerprint import differences as fingerprint_differences
    from .backend.fingerprint import fingerprint
    from .compile.builder.graph import Graph
    from .core.determinism import DeterministicConfig, DeterministicMode
    from .io import Checkpoint, load_checkpoint, load_optimizer, save_checkpoint, save_optimizer
    from .transform.bridges import to_jax, to_torch
    from .transform.check import NumericalChecker, check_grads
    from .transform.checkpoint import checkpoint
    from .transform.control import cond, scan, while_loop
    from .transform.control import map_ as map
    from .transform.custom import CustomOp, custom_op
    from .transform.custom_check import check_op
    from .transform.engine import AutogradContext, AutogradEngine
    from .transform.forward_context import ForwardADContext
    from .transform.jacobian import (
        hessian,
        jacfwd,
        jacobian,
        jacrev,
        laplacian,
        plan_jacobian,
    )
    from .transform.linearize import linearize
    from .transform.ode import odeint
    from .transform.scheduler import HybridScheduler

__version__ = "0.1.0"
__array_api_version__ = "2025.12"

_memory.keep_freed_memory()
_eager.install()
_warned.install()
_einops.install()
_compiler.install(lambda f: _import_module(f"{__name__}.compile.jit").compile(f))
globals().update(_namespace.FUNCTIONS | _namespace.CONSTANTS | _namespace.MODULES)
for _name in ("backward", "register_hook", "retain_grad"):
    setattr(Tensor, _name, getattr(_backward, _name))

for _name, _module in _namespace.MODULES.items():
    _modules[f"{__name__}.{_name}"] = _module  # so that `from weft.linalg import solve` works

# What is loaded when it is first asked for, so that `import weft` stays quick: the names of each
# module. A name with a colon is called otherwise there.
_LATER = {
    "": (
        "amp",
        "compile",
        "gradient_clipping",
        "implicit",
        "io",
        "nn",
        "optim",
        "optimize",
        "train",
    ),
    "amp": ("AmpConfig", "PrecisionMode"),
    "array.determinism": ("deterministic",),
    "backend.fingerprint": ("fingerprint", "fingerprint_differences:differences"),
    "compile.builder.graph": ("Graph",),
    "core.determinism": ("DeterministicConfig", "DeterministicMode"),
    "io": ("Checkpoint", "load_checkpoint", "load_optimizer", "save_checkpoint", "save_optimizer"),
    "transform.bridges": ("to_jax", "to_torch"),
    "transform.check": ("NumericalChecker", "check_grads"),
    "transform.checkpoint": ("checkpoint",),
    "transform.control": ("cond", "map:map_", "scan", "while_loop"),
    "transform.custom": ("CustomOp", "custom_op"),
    "transform.custom_check": ("check_op",),
    "transform.engine": ("AutogradContext", "AutogradEngine"),
    "transform.forward_context": ("ForwardADContext",),
    "transform.jacobian": (
        "hessian",
        "jacfwd",
        "jacobian",
        "jacrev",
        "laplacian",
        "plan_jacobian",
    ),
    "transform.linearize": ("linearize",),
    "transform.ode": ("odeint",),
    "transform.scheduler": ("HybridScheduler",),
}
_HOMES = {
    name.partition(":")[0]: (module, name.partition(":")[2] or name)
    for module, names in _LATER.items()
    for name in names
}


def __getattr__(name: str):
    if name not in _HOMES:
        return _missing(name)
    module, inside = _HOMES[name]
    found = _import_module(f".{module or name}", __name__)
    globals()[name] = found = getattr(found, inside) if module else found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


_missing = _module_attribute(__name__, __dir__)


__all__ = sorted({n for n in globals() if not n.startswith("_")} | set(_HOMES))
