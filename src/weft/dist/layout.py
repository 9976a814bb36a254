"""The layout of a model's gradients: what its parameters must be, and the buckets of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..core.backends import BACKENDS
from ..core.node import Leaf
from ..core.value import aval_of
from .buckets import Bucket, ParameterSpec, digest, plan_buckets

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..transform.modes.watch import LastUses

# Of how many parameters a value is compared between ranks at each step.
_COMPARED = 32


class Layout:
    """How gradients lie in buckets: from the parameters, those that are trained, and an order.

    specs  the parameters as they were when the model was wrapped
    order  in which gradients become final; None: not known yet
    """

    order: tuple[int, ...] | None = None

    def __init__(self, params: Mapping[str, Tensor], nbytes: int):
        self.nbytes = nbytes
        self._params = list(params.values())
        self._reversed = tuple(reversed(range(len(params))))
        self.specs = [
            ParameterSpec(name, aval_of(p), p._node.__class__ is Leaf) for name, p in params.items()
        ]
        self._planned: dict[tuple[Any, ...], tuple[tuple[Bucket, ...], str]] = {}

    def buckets(self, trained: tuple[bool, ...]) -> tuple[Bucket, ...]:
        """The buckets of the parameters that are trained."""
        return self._plan(trained, self.order or self._reversed)[0]

    def registered(self, trained: tuple[bool, ...]) -> tuple[Bucket, ...]:
        """The same, the other way round than parameters were registered."""
        return self._plan(trained, self._reversed)[0]

    def digest(self, trained: tuple[bool, ...]) -> str:
        """A digest of all that the buckets follow from."""
        return self._plan(trained, self.order or self._reversed)[1]

    def _plan(
        self, trained: tuple[bool, ...], order: tuple[int, ...]
    ) -> tuple[tuple[Bucket, ...], str]:
        key = trained, order
        if key not in self._planned:
            now = [
                ParameterSpec(s.name, s.aval, t) for s, t in zip(self.specs, trained, strict=True)
            ]
            buckets = plan_buckets(now, order, self.nbytes)
            self._planned[key] = buckets, digest(*now, order, self.nbytes)
        return self._planned[key]

    def empty(self, bucket: Bucket) -> Any:
        """A new flat array of a bucket."""
        own = self._params[bucket.members[0]]._data
        return BACKENDS[type(own)].empty((bucket.length,), bucket.dtype, bucket.device)

    def check_unmoved(self) -> None:
        """Refuse parameters that have another dtype or device than when the model was wrapped."""
        for spec, p in zip(self.specs, self._params, strict=True):
            if aval_of(p) != spec.aval:
                raise errors.DistributedError(
                    f"backward(): parameter {spec.name!r} is {_say(aval_of(p))} now, and was "
                    f"{_say(spec.aval)} when the model was wrapped; move and cast a model before "
                    "wf.dist.DataParallel(model)"
                )

    def sample(self, step: int) -> str:
        """A digest of some of the parameters' values, others at each step.

        Values on a GPU are left out: to read them would wait for it.
        """
        return sample([p._data for p in self._params], step)


def sample(arrays: Sequence[Any], step: int) -> str:
    """A digest of some of the values of arrays, others at each step; none on a GPU."""
    found = []
    for i in range(min(_COMPARED, len(arrays))):
        raw = arrays[(step * _COMPARED + i) % len(arrays)]
        xp, shape = BACKENDS[type(raw)], tuple(raw.shape)
        size = prod(shape)
        if xp.device_of(raw) in ("cpu", "torch") and size:
            at = np.unravel_index((step * 7919) % size, shape)
            found.append(xp.to_numpy(raw[at]).tobytes())
    return digest(*found)


def first_order(leaves: Sequence[Leaf | None], uses: LastUses) -> list[int]:
    """The numbers of leaves in the order in which their gradients become final.

    Those that are not used come last, the other way round than they were registered.
    """
    at = [1 if leaf is None else uses.get(leaf, 1) for leaf in leaves]
    return sorted(range(len(leaves)), key=lambda k: (at[k], -k))


def _say(aval: Any) -> str:
    return f"{aval.dtype.name} {aval.shape} on {aval.device!r}"
