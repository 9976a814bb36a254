"""The sizes of a Flux transformer, under the names of diffusers' config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any, NamedTuple

from .. import errors

# The class that diffusers writes into config.json, and reads it for.
CLASS_NAME = "FluxTransformer2DModel"


class Published(NamedTuple):
    """What all published Flux transformers have in common, whatever their blocks and latents.

    key   width, width of a head, widths of a text's token and of the pooled text
    axes  of the positions (index, row, column), which no weight tells
    """

    key: tuple[int, int, int, int]
    axes: tuple[int, ...]


PUBLISHED = Published((3072, 128, 4096, 768), (16, 56, 56))


@dataclass(frozen=True)
class FluxConfig:
    """The sizes of a Flux transformer, with the names and defaults of diffusers' config.json.

    patch_size             the side of the square that one token of the result stands for
    in_channels            the width of an image's token
    out_channels           the width of a token of the result is patch_size²·out_channels; None:
                           in_channels
    num_layers             how many double blocks, with a stream of the image and one of the text
    num_single_layers      how many single blocks, in which both streams are one
    attention_head_dim     the width of a head
    num_attention_heads    the number of heads
    joint_attention_dim    the width of a token of the text
    pooled_projection_dim  the width of the pooled text
    guidance_embeds        whether the model is told the guidance, as FLUX.1-dev is
    axes_dims_rope         how many features of a head each axis of the positions turns: even
                           numbers, together attention_head_dim

    >>> import weft as wf
    >>> wf.diffusion.FluxConfig(num_layers=2, num_single_layers=4).width
    3072
    """

    patch_size: int = 1
    in_channels: int = 64
    out_channels: int | None = None
    num_layers: int = 19
    num_single_layers: int = 38
    attention_head_dim: int = 128
    num_attention_heads: int = 24
    joint_attention_dim: int = 4096
    pooled_projection_dim: int = 768
    guidance_embeds: bool = False
    axes_dims_rope: tuple[int, ...] = (16, 56, 56)

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, getattr(self, field.name))
        axes = tuple(self.axes_dims_rope)
        object.__setattr__(self, "axes_dims_rope", axes)
        if sum(axes) != self.attention_head_dim or any(n % 2 for n in axes):
            raise errors.ArgumentError(
                f"FluxConfig: axes_dims_rope={axes} for heads of attention_head_dim="
                f"{self.attention_head_dim}; expected even numbers whose sum is that"
            )

    @staticmethod
    def _check(name: str, value: Any) -> None:
        if name == "guidance_embeds":
            right, what = isinstance(value, bool), "True or False"
        elif name == "axes_dims_rope":
            right = isinstance(value, tuple | list) and all(_is_size(n, 2) for n in value)
            what = "a tuple of even numbers"
        else:
            least = 0 if name in ("num_layers", "num_single_layers") else 1
            right, what = _is_size(value, least), f"an integer of {least} or more"
            right = right or (name == "out_channels" and value is None)
        if not right:
            raise errors.ArgumentError(f"FluxConfig: {name}={value!r:.80}, expected {what}")

    @property
    def width(self) -> int:
        """The width of the blocks: num_attention_heads·attention_head_dim."""
        return self.num_attention_heads * self.attention_head_dim

    @property
    def result_width(self) -> int:
        """The width of a token of the result."""
        return self.patch_size**2 * (self.out_channels or self.in_channels)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FluxConfig:
        """The config in a mapping, as config.json has it.

        values  fields by name; names that begin with an underscore are diffusers' remarks. One
                that is not known is an error: it could change what the model computes

        >>> import weft as wf
        >>> read = {"_class_name": "FluxTransformer2DModel", "guidance_embeds": True}
        >>> wf.diffusion.FluxConfig.from_dict(read).guidance_embeds
        True
        """
        kind = values.get("_class_name", CLASS_NAME)
        if kind != CLASS_NAME:
            raise errors.ArgumentError(
                f"FluxConfig: the config of a {kind!r:.80}, expected a {CLASS_NAME}"
            )
        known = [field.name for field in fields(cls)]
        given = {name: v for name, v in values.items() if not name.startswith("_")}
        unknown = [name for name in given if name not in known]
        if unknown:
            near = get_close_matches(unknown[0], known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known)}"
            raise errors.ArgumentError(
                f"FluxConfig: no field {', '.join(f'{n!r:.80}' for n in unknown)}{hint}"
            )
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as config.json has them.

        >>> import weft as wf
        >>> wf.diffusion.FluxConfig().to_dict()["axes_dims_rope"]
        [16, 56, 56]
        """
        return (
            {"_class_name": CLASS_NAME}
            | asdict(self)
            | {"axes_dims_rope": list(self.axes_dims_rope)}
        )


def _is_size(n: Any, least: int) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and n >= least
