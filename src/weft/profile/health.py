"""The health of gradients: norms, NaN and infinity, magnitudes, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from os import PathLike
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .. import errors
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.settings import refuse_while_staging
from ..core.value import TENSORS
from ..transform.modes.gradient_map import GradientMap
from .flow import draw_flow
from .magnitudes import LOWEST, Magnitudes, magnitudes

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..nn.module import Module

Gradients: TypeAlias = "GradientMap | Module | Tensor | Mapping[str, Any] | list[Any] | tuple"
Named: TypeAlias = "Module | Mapping[str, Tensor]"


@dataclass(frozen=True, eq=False)
class GradientStats:
    """Figures of one gradient, or of several together. All but the counts are of finite elements.

    name       of the parameter
    shape      of the gradient; None: of several
    dtype      of the gradient; None: of several
    size       how many elements there are
    nans       how many are NaN
    infs       how many are infinite
    zeros      how many are zero
    subnormal  how many are not zero, but below the smallest normal number of their dtype: float16
               and bfloat16 lose digits of them, and smaller ones altogether
    norm       √Σ|g|²
    smallest   the smallest magnitude that is not zero; NaN if there is none
    largest    the largest magnitude: the norm of order infinity
    mean       Σg / n, complex for complex gradients
    std        √(Σ|g − mean|² / n)
    histogram  how many elements are in each decade of |g|, without zeros
    edges      of the decades: `histogram[k]` counts edges[k] ≤ log₁₀|g| < edges[k + 1]

    >>> import weft as wf
    >>> stats = wf.profile.grad_stats({"w": wf.tensor([3.0, -4.0, 0.0, float("nan")])})["w"]
    >>> stats.norm, stats.largest, stats.zeros, stats.nans
    (5.0, 4.0, 1, 1)
    >>> stats.histogram.tolist(), stats.edges.tolist()
    ([2], [0, 1])
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: Any
    size: int
    nans: int
    infs: int
    zeros: int
    subnormal: int
    norm: float
    smallest: float
    largest: float
    mean: float | complex
    std: float
    histogram: np.ndarray
    edges: np.ndarray

    @property
    def is_finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return not (self.nans or self.infs)

    @property
    def rms(self) -> float:
        """√(Σ|g|² / n): the norm, comparable between sizes; NaN of no elements."""
        count = self.size - self.nans - self.infs
        return self.norm / sqrt(count) if count else nan

    @property
    def underflow(self) -> float:
        """The share of subnormal elements."""
        return self.subnormal / self.size if self.size else 0.0


def _stats_of(name: str, shape: tuple[int, ...] | None, dtype: Any, m: Magnitudes) -> GradientStats:
    there = np.flatnonzero(m.decades)
    first, last = (int(there[0]), int(there[-1]) + 1) if there.size else (0, 0)
    edges = np.arange(first, last + 1) + LOWEST
    some = m.moments.count > 0
    return GradientStats(
        *(name, shape, dtype, m.size, m.nans, m.infs, m.zeros, m.subnormal),
        norm=m.moments.norm if some or not m.size else nan,
        smallest=m.smallest if there.size else nan,
        largest=m.largest if some else nan,
        mean=m.moments.average if some else nan,
        std=m.moments.std if some else nan,
        histogram=m.decades[first:last],
        edges=edges if there.size else edges[:0],
    )


class GradientHealthReport(Mapping[str, GradientStats]):
    """The figures of gradients by the names of their parameters; printing it gives a table.

    entries  the figures, in the order of the parameters
    total    those of all gradients together
    missing  the parameters that have no gradient

    >>> import weft as wf
    >>> model = wf.nn.Linear(3, 1, bias=False)
    >>> model.set_weights([[1.0, 2.0, 3.0]])
    >>> loss = model(wf.ones((4, 3))).square().mean().backward()
    >>> report = wf.profile.grad_stats(model)
    >>> report["weight"].largest, report.vanishing(), report.exploding()
    (12.0, [], [])
    """

    def __init__(
        self, entries: Mapping[str, GradientStats], total: GradientStats, missing: tuple[str, ...]
    ):
        self.entries: dict[str, GradientStats] = dict(entries)
        self.total = total
        self.missing = missing

    def __getitem__(self, name: str) -> GradientStats:
        if name not in self.entries:
            raise errors.MissingGradient(
                f"grad_stats: no gradient of {name!r}, only of {', '.join(self.entries)}"
            )
        return self.entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def nonfinite(self) -> list[str]:
        """The names of gradients with NaN or infinity.

        >>> import weft as wf
        >>> wf.profile.grad_stats([wf.tensor([1.0]), wf.tensor([float("inf")])]).nonfinite()
        ['1']
        """
        return [name for name, s in self.entries.items() if not s.is_finite]

    def vanishing(self, rms: float = 1e-8, ratio: float = 1e-5) -> list[str]:
        """The names of gradients that are too small to train by.

        rms    their root mean square is this or less, zero included,
        ratio  or less than this share of the largest one among gradients that do not explode,
               or more than half of their elements are subnormal

        >>> import weft as wf
        >>> wf.profile.grad_stats([wf.tensor([1.0]), wf.tensor([1e-7])]).vanishing()
        ['1']
        """
        large = set(self.exploding())
        limit = ratio * max([s.rms for n, s in self.entries.items() if n not in large], default=0.0)
        return [
            name
            for name, s in self.entries.items()
            if s.rms <= rms or s.rms < limit or s.underflow > 0.5
        ]

    def exploding(self, rms: float = 1e3, ratio: float = 1e4) -> list[str]:
        """The names of gradients that are too large, or not finite.

        rms    their root mean square is more than this,
        ratio  or more than 1 and than so many times the median one of all gradients,
               or an element is NaN or infinite

        >>> import weft as wf
        >>> wf.profile.grad_stats([wf.tensor([1.0]), wf.tensor([1e5])]).exploding()
        ['1']
        """
        found = [s.rms for s in self.entries.values() if isfinite(s.rms) and s.rms > 0]
        limit = min(rms, max(1.0, ratio * median(found))) if found else rms
        return [n for n, s in self.entries.items() if not s.is_finite or s.rms > limit]

    def plot(self, path: str | PathLike[str]) -> Path:
        """Draw the flow of gradients over the layers as SVG; returns the path.

        path  the file, whose name ends in .svg

        A row for each parameter: its decades of |g|, the darker the more elements; the root mean
        square; the largest magnitude. Vanishing, exploding and missing ones are marked.

        >>> import weft as wf
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as here:
        ...     wf.profile.grad_stats([wf.ones(3)]).plot(f"{here}/flow.svg").name
        'flow.svg'
        """
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise errors.ArgumentError(
                f"plot: {path.name}, expected a name that ends in .svg, which is what it draws"
            )
        path.write_text(draw_flow(self), encoding="utf-8")
        return path

    def marks(self) -> dict[str, str]:
        """What is wrong with gradients, by name: "vanishing", "exploding" or "not finite".

        >>> import weft as wf
        >>> wf.profile.grad_stats([wf.zeros(3), wf.ones(3)]).marks()
        {'0': 'vanishing'}
        """
        found = dict.fromkeys(self.vanishing(), "vanishing")
        found |= dict.fromkeys(self.exploding(), "exploding")
        return found | dict.fromkeys(self.nonfinite(), "not finite")

    def __str__(self) -> str:
        width = max(len(n) for n in (*self.entries, *self.missing, "parameter", "total"))
        head = f"{'parameter':{width}}  {'elements':>12} {'norm':>9} {'rms':>9} {'largest':>9}"
        head += f" {'smallest':>9} {'mean':>10} {'std':>9} {'zeros':>6} {'subn.':>6} {'nan':>5}"
        rows = [f"{head} {'inf':>5}"]
        marks = self.marks()
        rows += [f"{_row(s, width)}  {marks.get(name, '')}" for name, s in self.entries.items()]
        rows += [f"{name:{width}}  no gradient" for name in self.missing]
        return "\n".join([r.rstrip() for r in (*rows, _row(self.total, width))])

    __repr__ = __str__


def _row(s: GradientStats, width: int) -> str:
    mean = abs(s.mean) if isinstance(s.mean, complex) else s.mean
    share = 100 / max(s.size, 1)
    return (
        f"{s.name:{width}}  {s.size:>12,} {s.norm:>9.2e} {s.rms:>9.2e} {s.largest:>9.2e}"
        f" {s.smallest:>9.2e} {mean:>10.2e} {s.std:>9.2e} {s.zeros * share:>5.1f}%"
        f" {s.subnormal * share:>5.1f}% {s.nans:>5} {s.infs:>5}"
    )


def grad_stats(grads: Gradients, names: Named | None = None) -> GradientHealthReport:
    """Figures of gradients: norms, NaN and infinity, magnitudes; what vanishes, what explodes.

    grads  a module, whose parameters' `.grad` are looked at; a `GradientMap`; a tensor; or
           dicts, lists and tuples of tensors, None where there is no gradient
    names  for a `GradientMap`: a module or a dict of tensors, which give its entries names

    Each gradient is read once, in parts: no copy of it is made.

    >>> import weft as wf
    >>> wf.random.seed(0)
    >>> model = wf.nn.Sequential(wf.nn.Linear(4, 8), wf.nn.Tanh(), wf.nn.Linear(8, 1))
    >>> grads = model(wf.rand((16, 4))).mean().backward()
    >>> list(wf.profile.grad_stats(model))
    ['0.weight', '0.bias', '2.weight', '2.bias']
    >>> wf.profile.grad_stats(grads, model)["2.bias"].norm
    1.0
    """
    refuse_while_staging("wf.profile.grad_stats")
    found = list(_named(grads, names))
    entries: dict[str, GradientStats] = {}
    total = Magnitudes()
    for name, g in found:
        if g is None:
            continue
        raw, dtype = _raw_of(name, g)
        own = magnitudes(raw, dtype)
        total.join(own)
        entries[name] = _stats_of(name, tuple(raw.shape), dtype, own)
    if not entries:
        raise errors.MissingGradient(
            f"grad_stats: {type(grads).__name__} has no gradients; run backward() first, and look "
            "before zero_grad()"
        )
    missing = tuple([name for name, g in found if g is None])
    return GradientHealthReport(entries, _stats_of("total", None, None, total), missing)


def _named(grads: Any, names: Any) -> Iterator[tuple[str, Any]]:
    """(name, gradient) pairs; the gradient may be None."""
    if isinstance(grads, GradientMap):
        yield from _from_map(grads, _parameters(names))
    elif names is not None:
        raise errors.ArgumentError(
            f"grad_stats: names= goes with a GradientMap, not with a {type(grads).__name__}"
        )
    elif hasattr(grads, "named_parameters"):
        for name, p in grads.named_parameters():
            if p.requires_grad:
                yield name, p.grad
    else:
        yield from _from_tree("", grads)


def _parameters(names: Any) -> dict[str, Any]:
    pairs = names.named_parameters() if hasattr(names, "named_parameters") else names
    return dict(pairs or {})


def _from_map(grads: GradientMap, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The gradients of what has a name, in that order, then the others by their ids."""
    for name, x in names.items():
        yield name, grads.get(x)
    known = {x.id for x in names.values()}
    for key in grads:
        if key not in known:
            yield f"id {key}", grads.get(key)


def _from_tree(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        pairs = list(tree.items())
    elif isinstance(tree, (list, tuple)):
        pairs = list(enumerate(tree))
    else:
        yield path or "gradient", tree
        return
    for key, part in pairs:
        yield from _from_tree(f"{path}.{key}" if path else str(key), part)


def _raw_of(name: str, g: Any) -> tuple[Any, Any]:
    """A gradient's array and dtype."""
    raw = g._data if type(g) in TENSORS else g
    if type(raw) not in BACKENDS:
        raise errors.DTypeError(
            f"grad_stats: {name} is a {type(g).__name__}, expected a tensor, or dicts and lists of "
            "tensors"
        )
    dtype = BACKENDS[type(raw)].dtype_of(raw)
    if not dtypes.is_inexact(dtype):
        raise errors.DTypeError(f"grad_stats: {name} has dtype {dtype}, expected floating point")
    return raw, dtype
