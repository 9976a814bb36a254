"""Loading a Flux transformer: weights are compared with the model, then read one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar

import numpy as np

import weft as wf

from .. import errors
from ..core import dtypes
from .config import PUBLISHED, FluxConfig
from .files import CONFIG, Weights, find_files
from .finite import is_finite
from .layout import Layout, Rows, Shape, layout_of, stored_rows, stored_shapes
from .making import shapes
from .quantised_base import Quantised

if TYPE_CHECKING:
    from os import PathLike

    from ..arrays.tensor import Tensor
    from ..arrays.types import Device, DTypeLike

Model = TypeVar("Model", bound=wf.nn.Module)

# The weights whose shapes tell the sizes, in either layout.
_TELLING = {
    "diffusers": {
        "image": "x_embedder.weight",
        "text": "context_embedder.weight",
        "pooled": "time_text_embed.text_embedder.linear_1.weight",
        "guidance": "time_text_embed.guidance_embedder.linear_1.weight",
        "result": "proj_out.weight",
        "double": "transformer_blocks.",
        "single": "single_transformer_blocks.",
        "norm": ".norm_q.weight",
    },
    "original": {
        "image": "img_in.weight",
        "text": "txt_in.weight",
        "pooled": "vector_in.in_layer.weight",
        "guidance": "guidance_in.in_layer.weight",
        "result": "final_layer.linear.weight",
        "double": "double_blocks.",
        "single": "single_blocks.",
        "norm": ".query_norm.scale",
    },
}


def load(
    build: Callable[[FluxConfig], Model],
    path: str | PathLike[str],
    dtype: DTypeLike | None,
    device: Device | None,
    quantise: Literal["int8"] | None,
    config: FluxConfig | None,
    cache_dir: str | PathLike[str] | None,
) -> Model:
    """The model of `Flux.load`.

    build  makes a model whose parameters have no elements
    """
    if quantise not in (None, "int8"):
        raise errors.ArgumentError(f"Flux.load: quantise={quantise!r}, expected 'int8' or None")
    if cache_dir is not None and quantise is None:
        raise errors.ArgumentError(
            "Flux.load: cache_dir is where quantised weights are kept; pass quantise='int8' too"
        )
    paths, stated = find_files(path)
    with Weights(paths) as weights:
        model, config, rows = _build_like(weights, config or stated, build)
        own = _common_dtype(weights, dtype)
        source = _Source(weights, rows, own, device)
        if quantise is None:
            fill(model, source)
            return model
        folder = None if cache_dir is None else Path(cache_dir)
        return Quantised(paths, config, own, folder).load(lambda: build(config), source, device)


def _build_like(
    weights: Weights, config: FluxConfig | None, build: Callable[[FluxConfig], Model]
) -> tuple[Model, FluxConfig, dict[str, list[Rows]]]:
    """A model without elements of the files' names and shapes, and where each weight is."""
    layout = layout_of(weights.entries, weights.where)
    found = {name: entry.shape for name, entry in weights.entries.items()}
    config = config or infer_config(found, layout, weights.where)
    _check_blocks(config, found, weights.where)
    model = build(config)
    expected = shapes(model)
    _compare(stored_shapes(expected, layout), found, weights.where)
    return model, config, stored_rows(expected, layout)


def check_weights(
    build: Callable[[FluxConfig], wf.nn.Module],
    path: str | PathLike[str],
    dtype: DTypeLike | None = None,
) -> FluxConfig:
    """Raise at what `load` refuses by the headers of the files; returns the model's sizes.

    build  makes a model whose parameters have no elements
    path   as of `Flux.load`
    dtype  of the parameters that are not quantised

    No weight is read: whether they are finite shows when they are loaded.
    """
    paths, stated = find_files(path)
    with Weights(paths) as weights:
        _, config, _ = _build_like(weights, stated, build)
        _common_dtype(weights, dtype)
        return config


def model_sizes(path: str | PathLike[str]) -> FluxConfig:
    """The sizes of the model in files, whose weights are not read.

    path  as of `Flux.load`
    """
    paths, stated = find_files(path)
    if stated is not None:
        return stated
    with Weights(paths) as weights:
        found = {name: entry.shape for name, entry in weights.entries.items()}
        return infer_config(found, layout_of(weights.entries, weights.where), weights.where)


class _Source:
    """The weights of a model by its own names, each read when it is asked for."""

    def __init__(
        self,
        weights: Weights,
        rows: Mapping[str, list],
        dtype: DTypeLike,
        device: Device | None,
    ):
        self._weights, self._rows, self._dtype = weights, rows, dtype
        self._device = "cpu" if device is None else device

    def __call__(self, name: str) -> Tensor:
        found = self._read(name)
        if not is_finite(found):
            self._refuse(name)
        return found

    def _refuse(self, first: str) -> NoReturn:
        """Raise with all weights from the first one on that are not finite."""
        names = list(self._rows)
        rest = names[names.index(first) + 1 :]
        bad = [first, *[name for name in rest if not is_finite(self._read(name))]]
        more = f" and {len(bad) - 20} more" if len(bad) > 20 else ""
        raise errors.CheckpointError(
            f"{self._weights.where}: weights that are NaN or infinite in {self._dtype}: "
            f"{', '.join(bad[:20])}{more}; get the file again, or take a dtype with a larger range"
        )

    def _read(self, name: str) -> Tensor:
        parts = [
            self._weights.read(part.source, (part.begin, part.end), self._device)
            for part in self._rows[name]
        ]
        whole = parts[0] if len(parts) == 1 else wf.concat(parts, axis=0)
        with np.errstate(over="ignore"):  # what overflows is refused
            return whole.to(self._dtype)


def fill(model: wf.nn.Module, source: Callable[[str], Tensor]) -> None:
    """Give a model without elements its parameters, one after the other."""
    for name in shapes(model):
        where, _, last = name.rpartition(".")
        setattr(model.get_submodule(where), last, wf.Parameter(source(name)))


def _common_dtype(weights: Weights, dtype: DTypeLike | None) -> DTypeLike:
    """The dtype of the parameters: what was asked for, or the one that all weights have."""
    found = {entry.dtype for entry in weights.entries.values()}
    wrong = [str(d) for d in found if not dtypes.is_inexact(d) or dtypes.is_complex(d)]
    if wrong:
        raise errors.StateMismatch(
            f"{weights.where}: weights in {', '.join(wrong)}, expected floating-point numbers"
        )
    if dtype is not None:
        return dtype
    if len(found) > 1:
        raise errors.ArgumentError(
            f"Flux.load: {weights.where} has weights in {', '.join(sorted(map(str, found)))}; say "
            "which the model is to have, as in dtype='bfloat16'"
        )
    return found.pop()


def _check_blocks(config: FluxConfig, found: Mapping[str, Shape], where: str) -> None:
    """Refuse a config of more blocks than there are weights, before any of them is built."""
    blocks = config.num_layers + config.num_single_layers
    if blocks > len(found):
        raise errors.StateMismatch(
            f"{where}: {len(found)} weights, and a config of {blocks} blocks, each with several"
        )


def _compare(expected: Mapping[str, Shape], found: Mapping[str, Shape], where: str) -> None:
    missing = [f"missing: {n} {s}" for n, s in expected.items() if n not in found]
    extra = [f"unexpected: {n} {s}" for n, s in found.items() if n not in expected]
    other = [
        f"wrong shape: {n} {found[n]}, the model has {s}"
        for n, s in expected.items()
        if n in found and found[n] != s
    ]
    if missing or extra or other:
        counts = f"{len(missing)} missing, {len(extra)} unexpected, {len(other)} of another shape"
        raise errors.StateMismatch(
            f"{where}: the weights are not those of the config: {counts}:\n  "
            + "\n  ".join(missing + extra + other)
        )


def infer_config(found: Mapping[str, Shape], layout: Layout, where: str) -> FluxConfig:
    """The sizes that the shapes of stored weights tell.

    found  the shapes by name
    """
    names = _TELLING[layout]
    norms = [shape for name, shape in found.items() if name.endswith(names["norm"])]
    needed = [found.get(names[n], ()) for n in ("image", "text", "pooled", "result")]
    if not norms or len(norms[0]) != 1 or any(len(shape) != 2 for shape in needed):
        told = ", ".join(names[n] for n in ("image", "text", "pooled", "result"))
        raise errors.StateMismatch(
            f"{where}: the sizes of the model are not to be seen: expected matrices {told} and a "
            f"vector …{names['norm']}; pass config=wf.diffusion.FluxConfig(…)"
        )
    (width, image), (_, text), (_, pooled), (result, _) = needed
    ((head,), *_) = norms
    if (width, head, text, pooled) != PUBLISHED.key:
        raise errors.ArgumentError(
            f"{where}: width {width}, heads of {head}, texts of {text} and {pooled}: weights do "
            "not tell how many features of a head each axis of the positions turns, and only that "
            "of the published Flux models is known (width 3072, heads of 128, texts of 4096 and "
            f"768). Put the model's {CONFIG} beside the file, or give in Python "
            "config=wf.diffusion.FluxConfig(…, axes_dims_rope=…)"
        )
    return FluxConfig(
        in_channels=image,
        out_channels=None if result == image else result,
        num_layers=_count(found, names["double"]),
        num_single_layers=_count(found, names["single"]),
        attention_head_dim=head,
        num_attention_heads=width // head,
        joint_attention_dim=text,
        pooled_projection_dim=pooled,
        guidance_embeds=names["guidance"] in found,
        axes_dims_rope=PUBLISHED.axes,
    )


def _count(found: Mapping[str, Shape], prefix: str) -> int:
    """How many numbers there are between a prefix and the next dot."""
    rest = (n.removeprefix(prefix).partition(".")[0] for n in found if n.startswith(prefix))
    return len({i for i in rest if i.isdigit()})
