"""Adapted linear layers: a frozen layer, and a trained update that merges into its weight."""

from __future__ import annotations

from math import isfinite
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard
from weakref import WeakKeyDictionary

from ... import errors
from ...arrays.arguments import as_tensor
from ...arrays.dtype_functions import finfo
from ...arrays.inplace import copy_
from ...core import dtypes, versions
from ...core.settings import current
from ...core.value import GROUND
from ...ops.complex_ import abs_
from ...ops.logic import equal
from ...ops.structural import cast
from ...transform.modes.backward import no_grad
from .. import functional as F
from ..linear import Linear
from ..making import parameter, probability, sizes
from ..module import Module

if TYPE_CHECKING:
    import numpy as np

    from ...arrays.parameter import Parameter
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike

# Of merged adapters, the arrays of their parameters last found equal to the update in the weight,
# and their versions then.
_SEEN: WeakKeyDictionary[AdaptedLinear, tuple[list[tuple[int, int | None]], list[Any]]] = (
    WeakKeyDictionary()
)


class BaseLayer(Protocol):
    """What an adapter needs of the layer under it: x·Wᵀ + b of known widths.

    A layer that holds W in another form than a floating-point parameter may also have
    `dense_weight()`, which gives W (out_features, in_features): DoRA needs it.
    """

    in_features: int
    out_features: int
    bias: Any

    def forward(self, input: ArrayLike) -> Tensor: ...


def is_base_layer(m: object) -> TypeGuard[Any]:
    """Whether a module can be adapted: it has what `BaseLayer` names, and no adapter yet."""
    widths = (getattr(m, "in_features", None), getattr(m, "out_features", None))
    return (
        isinstance(m, Module)
        and not isinstance(m, AdaptedLinear)
        and all(isinstance(n, Integral) for n in widths)
        and hasattr(m, "bias")
    )


class AdaptedLinear(Module):
    """x·Wᵀ + b with an update of W that is trained: the base of `LoRALinear` and its like.

    A subclass names its parameters in `adapters`, and defines `_updated_weight` and `_output`.
    """

    kind: str
    bias: Parameter | None
    adapters: tuple[str, ...]  # the names of the parameters that are trained

    def __init__(self, base: BaseLayer, rank: int, alpha: float, dropout: float):
        super().__init__()
        what = type(self).__name__
        sizes(what, in_features=base.in_features, out_features=base.out_features, rank=rank)
        if not isinstance(alpha, Real) or not isfinite(alpha) or alpha == 0:
            raise errors.ArgumentError(
                f"{what}: alpha={alpha!r}, expected a number other than 0, which would leave no "
                "update"
            )
        self.in_features = base.in_features
        self.out_features = base.out_features
        self.rank = rank
        self.alpha = alpha
        self.dropout: float = probability(what, dropout)
        self._hold(base)
        for p in self.parameters():
            p.requires_grad_(False)

    def _hold(self, base: BaseLayer) -> None:
        """Take the parameters of a `Linear`, so that names of states stay; else the layer.

        A subclass may compute something else of them.
        """
        if type(base) is Linear:
            self.weight: Parameter = base.weight
            self.register_parameter("bias", base.bias)
        else:
            self.add_module("base_layer", base)  # type: ignore[arg-type]

    def _add_adapters(self, **shapes: tuple[int, ...]) -> None:
        """Make the trained parameters: float32, or float64 on a base of that dtype.

        While the update is merged into `weight`, the base's weight and the merged parameters are
        kept in buffers, so that they move with the layer.
        """
        self.adapters = tuple(shapes)
        device, dtype = self._place()
        for name, shape in shapes.items():
            setattr(self, name, parameter(shape, device, dtype))
        for name in ("_base", *(f"_merged_{n}" for n in shapes)):
            self.register_buffer(name, None, persistent=False)
        self._merged_scaling = 0.0

    def _place(self) -> tuple[Any, np.dtype[Any]]:
        """Where the parameters of the adapter go, and of which dtype they are."""
        held = [*self.parameters(), *self.buffers()]
        wide = any(x.dtype == dtypes.float64 for x in held)
        return held[0].device if held else None, dtypes.float64 if wide else dtypes.float32

    @property
    def scaling(self) -> float:
        """The factor of the update: alpha/rank."""
        return self.alpha / self.rank

    @property
    def merged(self) -> bool:
        """Whether the update is in the weight."""
        return self._base is not None

    def _is_dense(self) -> bool:
        return "base_layer" not in self._modules

    def _base_output(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) if self._is_dense() else self.base_layer(x)

    def _base_bias(self) -> Any:
        return self.bias if self._is_dense() else self.base_layer.bias

    def base_weight(self) -> Tensor:
        """The weight without the update, detached.

        >>> import weft as wf
        >>> wf.nn.LoRALinear(3, 2).base_weight().shape
        (2, 3)
        """
        return self._dense_weight().detach()

    def _dense_weight(self) -> Tensor:
        if self._is_dense():
            return self._base if self.merged else self.weight
        dense = getattr(self.base_layer, "dense_weight", None)
        if dense is None:
            raise errors.ArgumentError(
                f"{type(self).__name__}: a {type(self.base_layer).__name__} does not give its "
                "weight; it needs a method dense_weight() for this"
            )
        return dense()

    def forward(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        if self.merged:
            self._refuse_changed_adapters()
            return self._base_output(x)
        return self._output(x)

    def _output(self, x: Tensor) -> Tensor:
        """The value of the layer, its update computed beside the base."""
        raise errors.ModuleError(f"{type(self).__name__} defines no _output")

    def _updated_weight(self, weight: Tensor, scaling: float, *given: Tensor) -> Tensor:
        """The weight with the update of these parameters, in their dtype or a wider one."""
        raise errors.ModuleError(f"{type(self).__name__} defines no _updated_weight")

    def effective_weight(self) -> Tensor:
        """W with the update in it, detached, in the adapter's dtype or a wider one.

        >>> import weft as wf
        >>> layer = wf.nn.LoRALinear(3, 2)
        >>> wf.allclose(layer.effective_weight(), layer.weight)
        True
        """
        given = [getattr(self, n).detach() for n in self.adapters]
        with no_grad():
            return self._updated_weight(self.base_weight(), self.scaling, *given)

    # Merging

    def merge(self) -> None:
        """Add the update to the weight, so that the layer is as quick as its base.

        A copy of the base's weight is kept until `unmerge()`, which restores it bit for bit. It
        is also what `state_dict()` gives meanwhile, and what `load_state_dict()` changes: a state
        is the same whether the update is in the weight or not, and a state that is loaded is
        merged anew. A base that is no plain `Linear`, such as one of 8 bits, is refused:
        rounding the sum again would change the base.

        >>> import weft as wf
        >>> layer, x = wf.nn.LoRALinear(3, 2), wf.ones(3)
        >>> before = layer(x)
        >>> layer.merge()
        >>> wf.allclose(layer(x), before)
        True
        """
        if not self._is_dense():
            raise errors.ArgumentError(
                f"merge: the base is a {type(self.base_layer).__name__}, not a plain Linear, and "
                "an update cannot be added to its weight. Merge before the model is quantised"
            )
        if self.merged:
            raise errors.ArgumentError("merge: already merged; call unmerge() first")
        with no_grad():
            self._base = self.weight.detach().clone()
            self._merge_into_weight()

    def _merge_into_weight(self) -> None:
        for n in self.adapters:
            setattr(self, f"_merged_{n}", getattr(self, n).detach().clone())
        self._merged_scaling = self.scaling
        copy_(self.weight, self._merged_weight())

    def _merged_weight(self) -> Tensor:
        weight: Any = self._base
        given = [getattr(self, f"_merged_{n}") for n in self.adapters]
        return cast(self._updated_weight(weight, self._merged_scaling, *given), weight.dtype)

    def _is_stale(self) -> bool:
        """Whether the adapter has changed since its update was merged into the weight."""
        if self.scaling != self._merged_scaling:
            return True
        now = [getattr(self, n) for n in self.adapters]
        then: list[Any] = [getattr(self, f"_merged_{n}") for n in self.adapters]
        if any([x.__class__ not in GROUND for x in (*now, *then)]):
            return False  # values of a transformation, which are not compared
        looked = [(id(x._data), versions.last_write(x._data)) for x in now]
        if _SEEN.get(self, (None,))[0] != looked:
            same = [equal(a._data, b._data).all() for a, b in zip(now, then, strict=True)]
            if not all(map(bool, same)):
                return True
            _SEEN[self] = looked, [x._data for x in now]  # alive, so that their ids stay unique
        return False

    def _refuse_changed_adapters(self) -> None:
        staging, what = current.get().staging, type(self).__name__
        if staging is None:
            stale = self._is_stale()
        else:
            name = staging.name_of(self, what)
            stale = staging.depends(f"whether {name}'s update is an old one", self._is_stale)
        if stale:
            raise errors.ArgumentError(
                f"{what}: {', '.join(self.adapters)} or alpha was changed while the update is in "
                "the weight, which has the old one; call unmerge() before the change, or "
                "unmerge() and merge() now"
            )

    def _refuse_changed_weight(self) -> None:
        now, then = self.weight.detach(), self._merged_weight()
        scale = abs_(then).max() if then.size else 0.0
        # Another device may have rounded the sum differently.
        bound = scale * (16 * finfo(then.dtype).eps)
        if then.size and not bool((abs_(now - then).max() <= bound).numpy()):
            raise errors.ArgumentError(
                "unmerge: the weight was changed while the update is in it, and the change would "
                "be lost; call unmerge() before the change. load_state_dict({'weight': base}, "
                "strict=False) sets another base and merges anew"
            )

    def unmerge(self) -> None:
        """Put the base's weight back.

        >>> import weft as wf
        >>> layer = wf.nn.LoRALinear(3, 2)
        >>> before = layer.weight.tolist()
        >>> layer.merge()
        >>> layer.unmerge()
        >>> layer.weight.tolist() == before
        True
        """
        if not self.merged:
            raise errors.ArgumentError("unmerge: the update is not in the weight; call merge()")
        with no_grad():
            self._refuse_changed_weight()
            base: Any = self._base
            copy_(self.weight, base)
        for name in ("_base", *(f"_merged_{n}" for n in self.adapters)):
            setattr(self, name, None)

    # State

    def _state(self) -> dict[str, Any]:
        own = super()._state()
        return own | {"weight": self._base} if self.merged else own

    def _state_loaded(self) -> None:
        if self.merged:
            self._merge_into_weight()

    def _check_replaced(self, names: set[str]) -> None:
        if self.merged and names & {"weight", *self.adapters}:
            raise errors.ArgumentError(
                f"functional_call: other tensors for {', '.join(sorted(names))} of an adapter "
                "whose update is in its weight; call unmerge() first"
            )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self._base_bias() is not None}, rank={self.rank}, alpha={self.alpha}, "
            f"dropout={self.dropout}"
        )
