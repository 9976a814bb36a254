"""The forms of loops' carries and results: every step must return what the first one got."""

from collections.abc import Callable, Iterable
from inspect import unwrap
from typing import Any

import numpy as np

from ... import errors
from ...arrays.tensor import Tensor
from ...core.aval import Shape
from ...core.origin import line_of
from ...core.record import field, record
from ...core.value import TENSORS
from ..modes import trees


class TreeForm:
    """The structure of a tree, and the shapes and dtypes of its tensors."""

    structure: Any  # optree's
    kinds: list[tuple[Shape, np.dtype]]

    def __init__(self, leaves: list[Tensor], tree: Any):
        self.structure = structure_of(tree)
        self.kinds = [_kind(x) for x in leaves]
        # Of a tensor alone, how its array gives both: what most steps are recognised by.
        alone = leaves and leaves[0] is tree
        self._array = (tree._data.shape, tree._data.dtype) if alone else None

    def is_of(self, tree: Any) -> bool:
        """Whether another tree is a tensor like the one that this form is of, at the first look."""
        if self._array is None or tree.__class__ not in TENSORS:
            return False
        return (tree._data.shape, tree._data.dtype) == self._array

    def difference(self, leaves: list[Tensor], tree: Any, name: str) -> str:
        """How another tree differs, in words; empty if it does not."""
        if (structure := structure_of(tree)) != self.structure:
            was, now = spell_structure(self.structure), spell_structure(structure)
            return f"{name} was {was} and became {now}"
        for k, (had, x) in enumerate(zip(self.kinds, leaves, strict=True)):
            if (got := _kind(x)) != had:
                path = "".join(f"[{key!r}]" for key in self.structure.paths()[k])
                was, became = (f"{dtype} of shape {shape}" for shape, dtype in (had, got))
                return f"{name}{path} was {was} and became {became}"
        return ""


def structure_of(tree: Any) -> Any:
    import optree  # at first use, as in trees

    return optree.tree_structure(tree)


def spell_structure(structure: Any) -> str:
    """`PyTreeSpec((*, *))` as (tensor, tensor)."""
    return str(structure)[len("PyTreeSpec(") : -1].replace("*", "tensor")


def _kind(x: Tensor) -> tuple[Shape, np.dtype]:
    return x.shape, x.dtype


def describe_function(f: Callable[..., Any]) -> str:
    """A function and the line it starts on, for messages."""
    code = getattr(unwrap(f), "__code__", None)
    name = getattr(f, "__name__", type(f).__name__)
    return name if code is None else f"{name} ({line_of(code, -1)})"


@record(frozen=False, eq=False)
class LoopBody:
    """A loop's step as a function of flat carries and elements; checks the form of its results."""

    what: str
    f: Callable[..., Any]
    form: TreeForm
    rebuild_carry: trees.Rebuild
    rebuild: trees.Rebuild
    results: trees.Rebuild = field(init=False)  # of the ys; known after the first step
    _form_of_y: TreeForm | None = field(init=False, default=None)
    _empty: bool = field(init=False, default=False)  # whether the first y was None

    def __call__(
        self, carry: list[Tensor], x: Iterable[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        out = self.f(self.rebuild_carry(carry), self.rebuild(list(x)))
        if not isinstance(out, tuple | list) or len(out) != 2:
            raise errors.ArgumentError(
                f"{self.what}: {describe_function(self.f)} must return (carry, y), it returned "
                f"{type(out).__name__}"
            )
        carry, _ = trees.tensors(self.what, out[0])
        if not self.form.is_of(out[0]):
            self._check(self.form, carry, out[0], "carry")
        if self._empty and out[1] is None:
            return carry, []
        ys, rebuild = trees.tensors(self.what, out[1])
        if self._form_of_y is None:
            self._form_of_y, self.results = TreeForm(ys, out[1]), rebuild
            self._empty = out[1] is None
        elif not self._form_of_y.is_of(out[1]):
            self._check(self._form_of_y, ys, out[1], "y")
        return carry, ys

    def _check(self, form: TreeForm, leaves: list[Tensor], tree: Any, name: str) -> None:
        difference = form.difference(leaves, tree, name)
        if difference:
            raise changed_form(self.what, self.f, difference)


def changed_form(what: str, f: Callable[..., Any], difference: str) -> errors.ShapeError:
    return errors.ShapeError(
        f"{what}: in {describe_function(f)} {difference}; every step must give the same structure, "
        "shapes and dtypes (cast with .to(), or start with what the steps make)"
    )
