"""Weft: automatic differentiation and training for Python arrays.

>>> import weft as wf
>>> x = wf.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x**2).sum().backward()[x].tolist()
[2.0, 4.0, 6.0]
"""

from importlib import import_module as _import_module
from math import e, inf, nan, pi
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _assemble, backend, errors
from .arrays.parameter import Parameter, ParameterDict
from .arrays.spellings import module_attribute as _module_attribute
from .arrays.tensor import Tensor, TrackedTensor
from .core.checkpointing import CheckpointConfig, CheckpointStrategy
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
from .transform.jacobian.scheduling import SchedulerConfig, SchedulingStrategy
from .transform.modes.backward import (
    detect_anomaly,
    enable_grad,
    is_grad_enabled,
    no_grad,
    saved_tensors_hooks,
)
from .transform.modes.dual import DualTensor
from .transform.modes.functional import grad, hvp, jvp, value_and_grad, vjp
from .transform.modes.gradient_map import GradientMap
from .transform.modes.inspect import clear_tape, explain_grad, graph_of, memory_stats
from .transform.modes.vmap import vmap
from .transform.tape.gradient_tape import GradientTape

if _TYPE_CHECKING:
    from . import (
        amp,
        cuda,
        diffusion,
        dist,
        gradient_clipping,
        implicit,
        io,
        nn,
        optim,
        optimize,
        profile,
        train,
    )
    from .amp import AmpConfig, PrecisionMode
    from .arrays.determinism import deterministic
    from .backend.fingerprint import differences as fingerprint_differences
    from .backend.fingerprint import fingerprint
    from .compiler.builder.graph import Graph
    from .compiler.jit import compile
    from .core.determinism import DeterministicConfig, DeterministicMode
    from .io import (
        Checkpoint,
        load_checkpoint,
        load_optimizer,
        save_checkpoint,
        save_optimizer,
    )
    from .transform.bridges import to_jax, to_torch
    from .transform.checking.check import NumericalChecker, check_grads
    from .transform.checking.custom_check import check_op
    from .transform.checkpoint.offload import save_on_cpu, save_on_disk
    from .transform.checkpoint.replayed import checkpoint
    from .transform.compat.engine import AutogradContext, AutogradEngine
    from .transform.compat.forward_context import ForwardADContext
    from .transform.compat.scheduler import HybridScheduler
    from .transform.control.loops import cond, scan, while_loop
    from .transform.control.loops import map_ as map
    from .transform.custom.custom_op import CustomOp, custom_op
    from .transform.jacobian.jacobians import (
        hessian,
        jacfwd,
        jacobian,
        jacrev,
        laplacian,
        plan_jacobian,
    )
    from .transform.modes.linearize import linearize
    from .transform.solve.ode import odeint

__version__ = "0.1.0"
__array_api_version__ = "2025.12"

globals().update(_assemble.assemble())

# What is loaded when it is first asked for, so that `import weft` stays quick: the names of each
# module. A name with a colon is called otherwise there.
_LATER = {
    "": (
        "amp",
        "cuda",
        "diffusion",
        "dist",
        "gradient_clipping",
        "implicit",
        "io",
        "nn",
        "optim",
        "optimize",
        "profile",
        "train",
    ),
    "amp": ("AmpConfig", "PrecisionMode"),
    "arrays.determinism": ("deterministic",),
    "backend.fingerprint": ("fingerprint", "fingerprint_differences:differences"),
    "compiler.builder.graph": ("Graph",),
    "compiler.jit": ("compile",),
    "core.determinism": ("DeterministicConfig", "DeterministicMode"),
    "io": ("Checkpoint", "load_checkpoint", "load_optimizer", "save_checkpoint", "save_optimizer"),
    "transform.bridges": ("to_jax", "to_torch"),
    "transform.checking.check": ("NumericalChecker", "check_grads"),
    "transform.checkpoint.offload": ("save_on_cpu", "save_on_disk"),
    "transform.checkpoint.replayed": ("checkpoint",),
    "transform.control.loops": ("cond", "map:map_", "scan", "while_loop"),
    "transform.custom.custom_op": ("CustomOp", "custom_op"),
    "transform.checking.custom_check": ("check_op",),
    "transform.compat.engine": ("AutogradContext", "AutogradEngine"),
    "transform.compat.forward_context": ("ForwardADContext",),
    "transform.jacobian.jacobians": (
        "hessian",
        "jacfwd",
        "jacobian",
        "jacrev",
        "laplacian",
        "plan_jacobian",
    ),
    "transform.modes.linearize": ("linearize",),
    "transform.solve.ode": ("odeint",),
    "transform.compat.scheduler": ("HybridScheduler",),
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


_FOLDERS = {"arrays", "backend", "compiler", "core", "graph", "ops", "transform"}

__all__ = sorted({n for n in (*globals(), *_HOMES) if not n.startswith("_")} - _FOLDERS)


def __dir__() -> list[str]:
    return list(__all__)


_missing = _module_attribute(__name__, __all__)
