"""The state of a model without its frozen parameters, which are told by a digest."""

from collections.abc import Mapping
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..arrays.parameter import Parameter
from ..core import dtypes
from . import arguments

if TYPE_CHECKING:
    from ..nn.module import Module
    from ..optim.groups import AnyOptimizer

SAMPLE = 4096  # how many elements of a parameter its digest is of, at most

FrozenTable = dict[str, dict[str, Any]]


def digest(x: Any) -> str:
    """The SHA-256 of the elements at every n-th place of a tensor, SAMPLE of them at most."""
    flat = x.detach().reshape(-1)
    sample = flat[:: max(ceil(flat.size / SAMPLE), 1)].to("cpu")
    if sample.dtype in dtypes.HALF:
        sample = sample.to(dtypes.float32)  # which holds them exactly
    return sha256(np.ascontiguousarray(sample.numpy()).tobytes()).hexdigest()


class FrozenParameters:
    """The parameters that a run does not change, by name.

    A parameter is frozen if it does not require gradients, and the optimizer has never changed
    it. So are the buffers that a module lists in `constant_buffers`, as 8-bit weights. Digests
    are computed once.
    """

    def __init__(self, model: "Module", optimizer: "AnyOptimizer"):
        self._model, self._optimizer = model, optimizer
        self._digests: dict[str, tuple[Any, str]] = {}

    def find(self) -> dict[str, Any]:
        """The frozen parameters as they are now."""
        base = arguments.base_of(self._optimizer)
        changed = {id(e.param) for e in base.entries() if e.key in base.state}
        constant = self._constant_buffers()
        return {
            name: x
            for name, x in self._model.state_dict(keep_vars=True).items()
            if name in constant
            or (isinstance(x, Parameter) and not x.requires_grad and id(x) not in changed)
        }

    def _constant_buffers(self) -> set[str]:
        return {
            f"{name}.{buffer}" if name else buffer
            for name, module in self._model.named_modules()
            for buffer in getattr(module, "constant_buffers", ())
        }

    def describe(self) -> FrozenTable:
        """Shape, dtype and digest of each."""
        return {name: self._describe_one(name, x) for name, x in self.find().items()}

    def _describe_one(self, name: str, x: Any) -> dict[str, Any]:
        known = self._digests.get(name)
        if known is None or known[0] is not x:
            known = self._digests[name] = (x, digest(x))
        return {"shape": list(x.shape), "dtype": str(x.dtype), "digest": known[1]}

    def differences(self, saved: FrozenTable) -> list[str]:
        """What differs from the frozen parameters of a checkpoint, by name."""
        own, problems = self._model.state_dict(keep_vars=True), []
        for name, before in saved.items():
            if name not in own:
                problems.append(f"base: {name} is not in the model")
                continue
            now = self._describe_one(name, own[name])
            for what in [w for w in ("shape", "dtype", "digest") if now[w] != before[w]]:
                came = f"the {what} {now[what]}, in the checkpoint {before[what]}"
                other = "other values than the base that was trained on"
                problems.append(f"base: {name} has {other if what == 'digest' else came}")
                break
        return problems


class TrainedState:
    """A model's state without its frozen parameters, as a part of a checkpoint."""

    def __init__(self, model: "Module", frozen: Mapping[str, Any]):
        self._model, self._frozen = model, frozen

    def state_dict(self) -> dict[str, Any]:
        """All parameters and buffers but the frozen ones."""
        whole = self._model.state_dict()
        return {name: x for name, x in whole.items() if name not in self._frozen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` gave; the frozen ones stay."""
        own = self.state_dict()
        problems = [f"missing: {name}" for name in own if name not in state]
        problems += [f"unexpected: {name}" for name in state if name not in own]
        if problems:
            raise errors.StateMismatch(
                "the state is not one of this model without its frozen parameters: "
                + "; ".join(problems)
            )
        self._model.load_state_dict(state, strict=False)
