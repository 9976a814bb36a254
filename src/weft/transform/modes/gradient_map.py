"""The gradients of one backward pass, by tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ... import errors
from ...core.backends import BACKENDS
from ...core.origin import Origin, line_of
from ...core.value import TENSORS, wrap

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor


def _key(x) -> int:
    return x.id if type(x) in TENSORS else x


def _private_copy(g):
    """A gradient in memory that only the map writes to: a copy, unless it is frozen."""
    if type(g) not in TENSORS:
        raise errors.DTypeError(f"GradientMap: expected a tensor, got {type(g).__name__}")
    xp = BACKENDS[type(g._data)]
    return wrap(g._data if xp.is_frozen(g._data) else xp.copy(g._data), g._node)


class GradientMap:
    """Gradients by tensor (or by a tensor's `id`); iterating gives ids.

    grads   gradients by tensor or id; None: none
    origin  where they come from, for messages

    >>> import weft as wf
    >>> x = wf.tensor([3.0], requires_grad=True)
    >>> grads = (x * x).sum().backward()
    >>> grads[x].tolist(), grads.get(x.id).tolist(), len(grads)
    ([6.0], [6.0], 1)
    """

    __slots__ = ("_grads", "_origin")

    def __init__(self, grads: dict[Any, Any] | None = None, origin: Origin | None = None):
        self._grads = {} if grads is None else grads
        self._origin = origin  # of the backward pass, for messages

    def __getitem__(self, x: Tensor | int) -> Tensor:
        """The gradient with respect to x; an error that explains if there is none."""
        found = self._grads.get(_key(x))
        if found is None:
            raise errors.MissingGradient(self._explain(x))
        return found

    def _explain(self, x) -> str:
        if type(x) not in TENSORS:
            why = f"no gradient under id {x}"
        elif not x.requires_grad:
            why = (
                "this tensor does not require a gradient: make it with requires_grad=True or "
                "call x.requires_grad_() before it is used"
            )
        elif not x.is_leaf:
            why = (
                f"this tensor is an intermediate value, made by {x._node.name} (at "
                f"{x._node.line}): call x.retain_grad() before backward()"
            )
        else:
            why = "this leaf took no part in the loss: see wf.explain_grad(loss, x)"
        made = f"; backward() was called at {line_of(*self._origin)}" if self._origin else ""
        return f"{why}{made}"

    def get(self, x: Tensor | int, default: Any = None) -> Tensor | Any:
        """The gradient with respect to a tensor or an id, or `default`.

        x        a tensor or an id
        default  what is returned if there is none

        >>> import weft as wf
        >>> wf.GradientMap().get(wf.tensor(1.0)) is None
        True
        """
        return self._grads.get(_key(x), default)

    def insert(self, x: Tensor | int, gradient: Tensor) -> None:
        """Set the gradient of a tensor or an id.

        x         a tensor or an id
        gradient  its gradient

        >>> import weft as wf
        >>> x, grads = wf.tensor([1.0]), wf.GradientMap()
        >>> grads.insert(x, wf.tensor([2.0]))
        >>> grads[x].tolist()
        [2.0]
        """
        self._grads[_key(x)] = _private_copy(gradient)

    __setitem__ = insert

    def accumulate(self, x: Tensor | int, gradient: Tensor) -> None:
        """Add to the gradient of a tensor or an id.

        x         a tensor or an id
        gradient  what is added

        >>> import weft as wf
        >>> x, grads = wf.tensor([1.0]), wf.GradientMap()
        >>> grads.accumulate(x, wf.tensor([2.0]))
        >>> grads.accumulate(x, wf.tensor([3.0]))
        >>> grads[x].tolist()
        [5.0]
        """
        have = self._grads.get(_key(x))
        self._grads[_key(x)] = _private_copy(gradient) if have is None else have + gradient

    def add_(self, other: GradientMap) -> GradientMap:
        """Accumulate all of another map.

        other  a `GradientMap`

        >>> import weft as wf
        >>> x = wf.tensor([3.0], requires_grad=True)
        >>> grads = (x * x).sum().backward()
        >>> grads.add_((2.0 * x).sum().backward())[x].tolist()
        [8.0]
        """
        for key, g in other.items():
            self.accumulate(key, g)
        return self

    def scale_(self, factor: float) -> GradientMap:
        """Multiply every gradient.

        factor  a number

        >>> import weft as wf
        >>> x = wf.tensor([3.0], requires_grad=True)
        >>> (x * x).sum().backward().scale_(0.5)[x].tolist()
        [3.0]
        """
        self._grads = {k: g * factor for k, g in self._grads.items()}
        return self

    def parts(self) -> tuple[list[Any], list[Any], Callable[[list[Any], list[Any]], GradientMap]]:
        """Ids, gradients, and a function that rebuilds a map, for compiled functions."""

        def make(ids: list, gradients: list) -> GradientMap:
            return GradientMap(dict(zip(ids, gradients, strict=True)), self._origin)

        return self.keys(), self.values(), make

    def items(self) -> list[tuple[int, Tensor]]:
        """(id, gradient) pairs; gradients may be replaced while looping over them.

        >>> import weft as wf
        >>> x = wf.tensor([3.0], requires_grad=True)
        >>> [(key == x.id, g.tolist()) for key, g in (x * x).sum().backward().items()]
        [(True, [6.0])]
        """
        return list(self._grads.items())

    def keys(self) -> list[int]:
        """The ids of the tensors.

        >>> import weft as wf
        >>> x = wf.tensor([3.0], requires_grad=True)
        >>> (x * x).sum().backward().keys() == [x.id]
        True
        """
        return list(self._grads)

    def values(self) -> list[Tensor]:
        """The gradients.

        >>> import weft as wf
        >>> x = wf.tensor([3.0], requires_grad=True)
        >>> [g.tolist() for g in (x * x).sum().backward().values()]
        [[6.0]]
        """
        return list(self._grads.values())

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._grads))

    def __len__(self) -> int:
        return len(self._grads)

    def __contains__(self, x: Tensor | int) -> bool:
        return _key(x) in self._grads

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}: {g.shape}" for k, g in self._grads.items())
        return f"GradientMap({{{inside}}})"
