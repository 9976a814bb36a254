"""Low-rank adapters of linear layers (Hu et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from math import sqrt
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .. import errors
from ..arrays.arguments import as_tensor
from ..arrays.dtype_functions import finfo
from ..arrays.inplace import copy_
from ..core import dtypes, versions
from ..core.settings import current
from ..core.value import GROUND
from ..ops.complex_ import abs_
from ..ops.contract import matmul
from ..ops.logic import equal
from ..ops.structural import cast
from ..transform.modes.backward import no_grad
from . import functional as F
from . import init
from .linear import Linear
from .making import parameter, probability, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.parameter import Parameter
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike

# Of merged adapters, the arrays of A and B last found equal to the update in the weight, and their
# versions then.
_SEEN: WeakKeyDictionary[LoRALinear, tuple[list[tuple[int, int | None]], list[Any]]] = (
    WeakKeyDictionary()
)


class LoRALinear(Module):
    """x·Wᵀ + b + (alpha/rank)·(dropout(x)·Aᵀ)·Bᵀ: W and b stay as they are, A and B are trained.

    in_features, out_features  the width before and after
    rank, alpha                the rows of A, and the strength of the update
    dropout                    of what goes into A, in training
    bias                       whether there is a b
    base                       a `Linear` whose parameters are taken; else new ones of these
                               sizes are made
    device, dtype              of W and b

    `lora_A` (rank, in) and `lora_B` (out, rank) are float32 whatever the base is; A begins as the
    weight of a `Linear` does and B with zeros, so that the layer is its base at first.

    >>> import weft as wf
    >>> layer = wf.nn.LoRALinear(8, 4, rank=2, alpha=4.0)
    >>> [name for name, p in layer.named_parameters() if p.requires_grad]
    ['lora_A', 'lora_B']
    """

    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        rank: int = 8,
        alpha: float = 16.0,
        dropout: float = 0.0,
        bias: bool = True,
        base: Linear | None = None,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        sizes("LoRALinear", in_features=in_features, out_features=out_features, rank=rank)
        if base is None:
            base = Linear(in_features, out_features, bias, device, dtype)
        if base.weight.shape != (out_features, in_features):
            raise errors.ShapeError(
                f"LoRALinear: a base whose weight is {base.weight.shape}, expected "
                f"{(out_features, in_features)}"
            )
        self.in_features = in_features
        self.out_features = out_features
        self.rank = rank
        self.alpha = alpha
        self.dropout: float = probability("LoRALinear", dropout)
        self.weight: Parameter = base.weight
        self.register_parameter("bias", base.bias)
        for p in self.parameters(recurse=False):
            p.requires_grad_(False)
        device = base.weight.device
        self.lora_A: Parameter = parameter((rank, in_features), device, dtypes.float32)
        self.lora_B: Parameter = parameter((out_features, rank), device, dtypes.float32)
        # While the update is merged into `weight`: the base's weight, and the merged A and B. They
        # are buffers, so that they move with the layer.
        for name in ("_base", "_merged_A", "_merged_B"):
            self.register_buffer(name, None, persistent=False)
        self._merged_scaling = 0.0
        self.reset_lora_parameters()

    @classmethod
    def from_linear(
        cls, linear: Linear, rank: int = 8, alpha: float = 16.0, dropout: float = 0.0
    ) -> LoRALinear:
        """An adapter around a layer, whose own parameters it takes and freezes.

        linear                the layer
        rank, alpha, dropout  as of the class

        >>> import weft as wf
        >>> base = wf.nn.Linear(8, 4)
        >>> layer = wf.nn.LoRALinear.from_linear(base, rank=2)
        >>> layer.lora_A.shape, layer.lora_B.shape, base.weight.requires_grad
        ((2, 8), (4, 2), False)
        """
        made = cls(linear.in_features, linear.out_features, rank, alpha, dropout, base=linear)
        return made.train(linear.training)

    def reset_lora_parameters(self) -> None:
        """Draw a new A, and set B to 0.

        >>> import weft as wf
        >>> layer = wf.nn.LoRALinear(2, 1, rank=1)
        >>> layer.reset_lora_parameters()
        >>> layer.lora_B.tolist()
        [[0.0]]
        """
        bound = 1 / sqrt(self.in_features)
        init.uniform_(self.lora_A, -bound, bound)
        init.zeros_(self.lora_B)

    @property
    def scaling(self) -> float:
        """alpha/rank."""
        return self.alpha / self.rank

    @property
    def merged(self) -> bool:
        """Whether the update is in the weight."""
        return self._base is not None

    def forward(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        y = F.linear(x, self.weight, self.bias)
        if self.merged:
            self._refuse_changed_adapters()
            return y
        own = cast(F.dropout(x, self.dropout, self.training), self.lora_A.dtype)
        update = F.linear(F.linear(own, self.lora_A), self.lora_B) * self.scaling
        return y + cast(update, y.dtype)

    def merge(self) -> None:
        """Add the update to the weight, so that the layer is as quick as its base.

        A copy of the base's weight is kept until `unmerge()`, which restores it bit for bit. It
        is also what `state_dict()` gives meanwhile, and what `load_state_dict()` changes: a state
        is the same whether the update is in the weight or not, and a state that is loaded is
        merged anew.

        >>> import weft as wf
        >>> layer, x = wf.nn.LoRALinear(3, 2), wf.ones(3)
        >>> before = layer(x)
        >>> layer.merge()
        >>> wf.allclose(layer(x), before)
        True
        """
        if self.merged:
            raise errors.ArgumentError("merge: already merged; call unmerge() first")
        with no_grad():
            self._base = self.weight.detach().clone()
            self._merge_into_weight()

    def _merge_into_weight(self) -> None:
        self._merged_A, self._merged_B = self.lora_A.detach().clone(), self.lora_B.detach().clone()
        self._merged_scaling = self.scaling
        copy_(self.weight, self._merged_weight())

    def _merged_weight(self) -> Tensor:
        weight: Any = self._base
        update = matmul(self._merged_B, self._merged_A) * self._merged_scaling
        wide = dtypes.promote(weight.dtype, update.dtype)
        return cast(cast(weight, wide) + cast(update, wide), weight.dtype)

    def _is_stale(self) -> bool:
        """Whether A and B have changed since their update was merged into the weight."""
        if self.scaling != self._merged_scaling:
            return True
        now = self.lora_A, self.lora_B
        then: tuple[Any, Any] = self._merged_A, self._merged_B
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
        staging = current.get().staging
        if staging is None:
            stale = self._is_stale()
        else:
            name = staging.name_of(self, "LoRALinear")
            stale = staging.depends(f"whether {name}'s update is an old one", self._is_stale)
        if stale:
            raise errors.ArgumentError(
                "LoRALinear: lora_A, lora_B or alpha was changed while the update is in the "
                "weight, which has the old one; call unmerge() before the change, or "
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

    def _state(self) -> dict[str, Any]:
        own = super()._state()
        return own | {"weight": self._base} if self.merged else own

    def _state_loaded(self) -> None:
        if self.merged:
            self._merge_into_weight()

    def _check_replaced(self, names: set[str]) -> None:
        if self.merged and names & {"weight", "lora_A", "lora_B"}:
            raise errors.ArgumentError(
                f"functional_call: other tensors for {', '.join(sorted(names))} of an adapter "
                "whose update is in its weight; call unmerge() first"
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
        for name in ("_base", "_merged_A", "_merged_B"):
            setattr(self, name, None)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, rank={self.rank}, alpha={self.alpha}, "
            f"dropout={self.dropout}"
        )


def add_lora(
    model: Module,
    pattern: str | Sequence[str] = "*",
    rank: int = 8,
    alpha: float = 16.0,
    dropout: float = 0.0,
) -> list[str]:
    """Put adapters around the linear layers whose names match, freeze the rest; returns the names.

    model                 the module that is changed
    pattern               one, or several: `*` and `?` stand for any characters
    rank, alpha, dropout  as of `LoRALinear`

    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(4, 8), wf.nn.ReLU(), wf.nn.Linear(8, 2))
    >>> wf.nn.add_lora(model, "2", rank=2)
    ['2']
    >>> [name for name, _ in model.lora_parameters()]
    ['2.lora_A', '2.lora_B']
    """
    patterns = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    places = [
        (name, m)
        for name, m in model.named_modules(remove_duplicate=False)
        if name and type(m) is Linear and any(fnmatchcase(name, p) for p in patterns)
    ]
    if not places:
        linears = [n for n, m in model.named_modules() if n and type(m) is Linear]
        raise errors.ArgumentError(
            f"add_lora: {pattern!r} matches no Linear in the model; there are "
            f"{', '.join(linears[:10]) or 'none'}{', …' if len(linears) > 10 else ''}"
        )
    adapters: dict[int, LoRALinear] = {}
    for m in {id(m): m for _, m in places}.values():
        adapters[id(m)] = LoRALinear.from_linear(m, rank, alpha, dropout)
    for name, m in places:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, adapters[id(m)])
    model.requires_grad_(False)
    for _, p in model.lora_parameters():
        p.requires_grad_(True)
    return [name for name, _ in places]
