"""What to write in place of names that NumPy or PyTorch has, and Weft has not."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Never

from .. import errors

# By PyTorch's or NumPy's name; x is the tensor.
SPELLINGS = {
    "H": "x.mH",
    "adjoint": "x.mH",
    "addmm": "a + x @ y",
    "addbmm": "a + (x @ y).sum(0)",
    "addcdiv": "a + value * x / y",
    "addcmul": "a + value * x * y",
    "addmv": "a + x @ v",
    "addr": "a + wf.outer(x, y)",
    "aminmax": "x.min(), x.max()",
    "around": "wf.round(x)",
    "as_tensor": "wf.asarray(data)",
    "baddbmm": "a + x @ y",
    "bernoulli": "wf.random.bernoulli(p)",
    "bmm": "x @ y",
    "byte": "x.to('uint8')",
    "cat": "wf.concat(tensors, axis=0)",
    "cdouble": "x.to('complex128')",
    "cfloat": "x.to('complex64')",
    "char": "x.to('int8')",
    "clamp_max": "x.clamp(max=v)",
    "clamp_min": "x.clamp(min=v)",
    "concatenate": "wf.concat(tensors, axis=0)",
    "conjugate": "x.conj()",
    "contiguous": "x (memory is in order where it has to be)",
    "copy": "x.clone()",
    "cpu": "x.to('cpu')",
    "cuda": "x.to('cuda')",
    "data": "x.detach()",
    "degrees": "x * (180 / wf.pi)",
    "deg2rad": "x * (wf.pi / 180)",
    "radians": "x * (wf.pi / 180)",
    "rad2deg": "x * (180 / wf.pi)",
    "detach_": "x = x.detach()",
    "dim": "x.ndim",
    "ndimension": "x.ndim",
    "dist": "wf.norm(x - y)",
    "double": "x.to('float64')",
    "element_size": "x.itemsize",
    "eq": "x == y",
    "ne": "x != y",
    "lt": "x < y",
    "le": "x <= y",
    "gt": "x > y",
    "ge": "x >= y",
    "expand": "wf.broadcast_to(x, shape)",
    "expand_as": "wf.broadcast_to(x, y.shape)",
    "fill": "x[...] = v",
    "fill_": "x[...] = v",
    "flat": "x.flatten()",
    "float": "x.to('float32')",
    "float_power": "x.to('float64') ** y",
    "fmax": "wf.where(wf.isnan(x), y, wf.maximum(x, y))",
    "fmin": "wf.where(wf.isnan(x), y, wf.minimum(x, y))",
    "frac": "x - wf.trunc(x)",
    "from_numpy": "wf.asarray(array)",
    "ger": "wf.outer(x, y)",
    "grad_fn": "wf.graph_of(x)",
    "half": "x.to('float16')",
    "identity": "wf.eye(n)",
    "index_copy": "x.at[i].set(v)",
    "index_fill": "x.at[i].set(v)",
    "index_put": "x.at[i].set(v)",
    "index_put_": "x[i] = v",
    "index_add_": "x = x.at[i].add(v)",
    "int": "x.to('int32')",
    "inverse": "wf.linalg.inv(x)",
    "is_cuda": "x.device.startswith('cuda')",
    "is_complex": "wf.isdtype(x.dtype, 'complex floating')",
    "is_floating_point": "wf.isdtype(x.dtype, 'real floating')",
    "is_nonzero": "bool(x)",
    "isreal": "wf.imag(x) == 0",
    "iscomplex": "wf.imag(x) != 0",
    "kthvalue": "wf.sort(x)[..., k - 1]",
    "lerp": "x + w * (y - x)",
    "logdet": "wf.linalg.slogdet(x)[1]",
    "logspace": "base ** wf.linspace(start, stop, n)",
    "long": "x.to('int64')",
    "lr_scheduler": "wf.optim.schedulers",
    "manual_seed": "wf.random.seed(n)",
    "masked_fill": "wf.where(mask, v, x)",
    "masked_fill_": "x[mask] = v",
    "masked_scatter": "x.at[mask].set(v)",
    "masked_select": "x[mask]",
    "matrix_exp": "wf.linalg.expm(x)",
    "mm": "x @ y",
    "movedim": "wf.moveaxis(x, source, destination)",
    "msort": "wf.sort(x, axis=0)",
    "multi_dot": "a @ b @ c",
    "mv": "x @ v",
    "narrow": "x[start:start + length]",
    "nelement": "x.size",
    "numel": "x.size",
    "new_zeros": "wf.zeros(shape, dtype=x.dtype, device=x.device)",
    "new_ones": "wf.ones(shape, dtype=x.dtype, device=x.device)",
    "new_full": "wf.full(shape, v, dtype=x.dtype, device=x.device)",
    "new_empty": "wf.empty(shape, dtype=x.dtype, device=x.device)",
    "new_tensor": "wf.tensor(data, dtype=x.dtype, device=x.device)",
    "normal": "wf.randn(shape, mean=0.0, std=1.0)",
    "normal_": "x[...] = wf.randn(x.shape)",
    "pinverse": "wf.linalg.pinv(x)",
    "power": "x ** y",
    "promote_types": "wf.result_type(a, b)",
    "ptp": "x.max() - x.min()",
    "rand_like": "wf.rand(x.shape, dtype=x.dtype)",
    "randn_like": "wf.randn(x.shape, dtype=x.dtype)",
    "randint_like": "wf.randint(low, high, x.shape)",
    "random_": "x[...] = wf.randint(low, high, x.shape)",
    "randperm": "wf.permutation(n)",
    "range": "wf.arange(start, stop)",
    "ravel": "x.reshape(-1)",
    "repeat_interleave": "wf.repeat(x, n, axis=axis)",
    "reshape_as": "x.reshape(y.shape)",
    "view_as": "x.reshape(y.shape)",
    "resize": "x.reshape(shape), or wf.pad",
    "select": "x[..., i]",
    "short": "x.to('int16')",
    "split_with_sizes": "wf.split(x, positions, axis)",
    "std_mean": "wf.std(x), wf.mean(x)",
    "var_mean": "wf.var(x), wf.mean(x)",
    "strides": "x.numpy().strides",
    "stride": "x.numpy().strides",
    "svd": "wf.linalg.svd(x)",
    "swapdims": "wf.swapaxes(x, a, b)",
    "t": "x.T",
    "take_along_dim": "wf.take_along_axis(x, i, axis=axis)",
    "tensor_split": "wf.split(x, positions, axis)",
    "tobytes": "x.numpy().tobytes()",
    "type": "x.dtype, or x.to(dtype)",
    "type_as": "x.to(y.dtype)",
    "unbind": "wf.unstack(x, axis=axis)",
    "unflatten": "x.reshape(shape)",
    "uniform_": "x[...] = wf.rand(x.shape)",
    "unique": "wf.unique_values(x)",
    "unsqueeze": "wf.expand_dims(x, axis)",
    "view_as_complex": "wf.complex(x[..., 0], x[..., 1])",
    "view_as_real": "wf.stack([x.real, x.imag], axis=-1)",
    "zero_": "x[...] = 0",
    "vstack": "np.vstack(tensors)",
    "hstack": "np.hstack(tensors)",
    "dstack": "np.dstack(tensors)",
    "CosineAnnealingLR": "wf.optim.schedulers.CosineScheduler",
    "CosineAnnealingWarmRestarts": "wf.optim.schedulers.CosineScheduler, once for each period",
    "ExponentialLR": "wf.optim.schedulers.ExponentialScheduler",
    "LinearLR": "wf.optim.schedulers.LinearScheduler",
    "OneCycleLR": "wf.optim.schedulers.OneCycleScheduler",
    "PolynomialLR": "wf.optim.schedulers.PolynomialScheduler",
    "ReduceLROnPlateau": "wf.optim.PlateauScheduler",
    "StepLR": "wf.optim.schedulers.StepScheduler",
    "Adamax": "wf.optim.Adam",
    "Adadelta": "wf.optim.RMSprop",
    "Parameter": "wf.Parameter",
    "Transformer": "wf.nn.TransformerBlock",
    "TransformerDecoderLayer": "wf.nn.TransformerBlock",
}
_OPERATORS = {"add": "+", "sub": "-", "subtract": "-", "mul": "*", "multiply": "*", "div": "/"}
_OPERATORS |= {"divide": "/", "true_divide": "/", "pow": "**", "floor_divide": "//"}
_OPERATORS |= {"remainder": "%", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_MODULES = ("linalg", "nn.functional", "special", "fft", "random")


def nearest(name: str, owner: str, known: list[str]) -> str:
    """What to write in place of a name, in words."""
    from difflib import get_close_matches  # only for messages

    found = instead_of(name, owner)
    if found is not None:
        return f"use {found}"
    near = get_close_matches(name, known, n=1, cutoff=0.75)
    return f"the nearest name is {near[0]!r}" if near else "there is no such name"


def instead_of(name: str, owner: str) -> str | None:
    """What to write in place of a name of NumPy's or PyTorch's, or None."""
    if name in SPELLINGS:
        return SPELLINGS[name]
    if name.endswith("_"):
        return _in_place(name.rstrip("_"))
    return _elsewhere(name, owner)


def _in_place(name: str) -> str | None:
    if name in _OPERATORS:
        return f"x {_OPERATORS[name]}= v"
    found = _elsewhere(name, "")
    return found and f"x[...] = {found}"


def _elsewhere(name: str, owner: str) -> str | None:
    """The qualified name, if another module of this package has it."""
    import weft

    if owner != "weft" and name in weft.__all__:
        return f"wf.{name}(x)" if callable(getattr(weft, name)) else f"wf.{name}"
    for place in _MODULES:
        module: Any = weft
        for part in place.split("."):
            module = getattr(module, part)
        if f"weft.{place}" != owner and name in module.__all__:
            return f"wf.{place}.{name}"
    return None


def attribute(self: object, name: str) -> Never:
    """What a tensor says when it has no such attribute."""
    if name[:1] == "_":
        raise AttributeError(f"'Tensor' object has no attribute {name!r}")
    known = dir(type(self))
    raise errors.UnknownName("Tensor", name, lambda: nearest(name, "Tensor", known))


def module_attribute(module: ModuleType | str, names: Any) -> Callable[[str], Any]:
    """`__getattr__` of a public module."""
    owner = module if isinstance(module, str) else module.__name__

    def missing(name: str) -> Any:
        if name[:1] == "_":
            raise AttributeError(f"module {owner!r} has no attribute {name!r}")
        given: Any = names() if callable(names) else names
        known = list(given)
        raise errors.UnknownName(owner, name, lambda: nearest(name, owner, known))

    return missing
