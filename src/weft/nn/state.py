"""Copying a state, names and arrays, into the memory of a module."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import errors
from ..arrays.foreign import is_torch
from ..arrays.inplace import copy_
from ..arrays.make import asarray
from ..core import dtypes
from ..core.value import TENSORS
from ..transform.modes.backward import no_grad

if TYPE_CHECKING:
    from ..arrays.types import ArrayLike
    from .module import Module


class LoadedKeys(NamedTuple):
    """What a state and a module did not have in common."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def load(module: "Module", state: "Mapping[str, ArrayLike]", strict: bool) -> LoadedKeys:
    """Overwrite the values of `module` by those of `state`, all of them or, on an error, none."""
    own = module.state_dict(keep_vars=True)
    missing = [name for name in own if name not in state]
    unexpected = [str(name) for name in state if name not in own]
    found, faults = {}, []
    for name, target in own.items():
        if name in state:
            found[name] = value = _array(state[name])
            fault = _misfit(target, value, state[name])
            faults += [f"{name}: {fault}"] if fault else []
    if strict:
        faults = _list_names("missing", missing) + _list_names("unexpected", unexpected) + faults
    if faults:
        raise errors.StateMismatch(
            f"load_state_dict: the state is not one of {type(module).__name__}, nothing was "
            "copied:\n  " + "\n  ".join(faults)
        )
    with no_grad():
        for name, value in found.items():
            copy_(own[name], value)
        for part in module.modules():
            part._state_loaded()
    return LoadedKeys(missing, unexpected)


def _list_names(what: str, names: list[str]) -> list[str]:
    return [f"{what}: {', '.join(names)}"] if names else []


def _array(value):
    """A value as a plain tensor; None if it is no array."""
    if is_torch(value) or type(value) in TENSORS:
        return asarray(value.detach())
    try:
        return asarray(value)
    except errors.WeftError:  # reported with the other misfits
        return None


def _misfit(target, value, given) -> str:
    """Why a value cannot be copied into a tensor; empty if it can."""
    if value is None:
        return f"a {type(given).__name__}, expected an array"
    if value.shape != target.shape:
        return f"shape {value.shape}, the module has {target.shape}"
    narrow = dtypes.is_inexact(value.dtype) and not dtypes.is_inexact(target.dtype)
    if narrow or (dtypes.is_complex(value.dtype) and not dtypes.is_complex(target.dtype)):
        return f"{value.dtype}, which {target.dtype} cannot hold"
    return ""


def changing_buffers(model: "Module") -> list[Any]:
    """The buffers of a model but those that stay as they are, as 8-bit weights do."""
    constant = {
        id(getattr(module, name))
        for module in model.modules()
        for name in getattr(module, "constant_buffers", ())
    }
    return [b for b in model.buffers() if id(b) not in constant]
