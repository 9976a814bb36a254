"""Weft: automatic differentiation and training for Python arrays.

>>> import weft as wf
>>> x = wf.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x**2).sum().backward()[x].tolist()
[2.0, 4.0, 6.0]
"""

from math import e, inf, nan, pi
from sys import modules as _modules

from . import backend, errors, optimize
from .array import memory as _memory
from .array import namespace as _namespace
from .array.parameter import Parameter, ParameterDict
from .array.tensor import Tensor, TrackedTensor
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
from .transform import implicit
from .transform.backward import (
    detect_anomaly,
    enable_grad,
    is_grad_enabled,
    no_grad,
    save_on_cpu,
    saved_tensors_hooks,
)
from .transform.bridges import to_jax, to_torch
from .transform.check import NumericalChecker, check_grads
from .transform.checkpoint import checkpoint
from .transform.control import cond, scan, while_loop
from .transform.control import map_ as map
from .transform.custom import CustomOp, custom_op
from .transform.custom_check import check_op
from .transform.dual import DualTensor
from .transform.engine import AutogradContext, AutogradEngine
from .transform.forward_context import ForwardADContext
from .transform.functional import grad, hvp, jvp, value_and_grad, vjp
from .transform.gradient_map import GradientMap
from .transform.gradient_tape import GradientTape
from .transform.inspect_ import clear_tape, explain_grad, graph_of, memory_stats
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
from .transform.plan import SchedulerConfig, SchedulingStrategy
from .transform.scheduler import HybridScheduler
from .transform.vmap import vmap

__version__ = "0.1.0"
__array_api_version__ = "2024.12"

_memory.keep_freed_memory()
globals().update(_namespace.FUNCTIONS | _namespace.CONSTANTS | _namespace.MODULES)
for _name in ("backward", "register_hook", "retain_grad"):
    setattr(Tensor, _name, getattr(_backward, _name))

for _name, _module in {
    **_namespace.MODULES,
    "implicit": implicit,
    "gradient_clipping": gradient_clipping,
}.items():
    _modules[f"{__name__}.{_name}"] = _module  # so that `from weft.linalg import solve` works

__all__ = sorted(n for n in globals() if not n.startswith("_"))
