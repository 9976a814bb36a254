"""The Flux transformer: from noisy latents, a text and a time to the velocity of the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import weft as wf

from .. import errors
from .blocks import DoubleBlock, Modulation, SingleBlock, modulate
from .config import FluxConfig
from .embeddings import Conditioning, turns
from .lora_names import FluxAdapterNames
from .making import Layers, shapes
from .saving import save
from .weights import load

if TYPE_CHECKING:
    from os import PathLike

    from ..arrays.tensor import Tensor
    from ..arrays.types import Device, DTypeLike

_TIMES = 1000  # times and guidance are told in thousandths


class Flux(wf.nn.Module):
    """A Flux transformer: double blocks, single blocks, and the velocity of each image token.

    config         the sizes
    device, dtype  of the parameters
    empty          whether the parameters have no elements, until they are assigned

    Modules and parameters have the names of diffusers' FluxTransformer2DModel, and `forward` its
    arguments:

    hidden_states          the image's tokens (batch, n, in_channels)
    encoder_hidden_states  the text's tokens (batch, m, joint_attention_dim)
    pooled_projections     the pooled text (batch, pooled_projection_dim)
    timestep               σ from 0 to 1 (batch,)
    img_ids, txt_ids       the tokens' positions (n, axes) and (m, axes)
    guidance               the guidance (batch,), of a model with guidance_embeds only

    The first three have the dtype of the parameters. The result is (batch, n, width of the
    result), the velocity noise − latents.

    >>> import weft as wf
    >>> config = wf.diffusion.FluxConfig(
    ...     in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
    ...     num_attention_heads=2, joint_attention_dim=8, pooled_projection_dim=8,
    ...     axes_dims_rope=(4, 4, 8),
    ... )
    >>> model = wf.diffusion.Flux(config)
    >>> image, text = wf.randn((1, 6, 4)), wf.randn((1, 3, 8))
    >>> ids = wf.diffusion.image_ids(4, 6), wf.diffusion.text_ids(3)
    >>> model(image, text, wf.randn((1, 8)), wf.tensor([0.5]), *ids).shape
    (1, 6, 4)
    """

    def __init__(
        self,
        config: FluxConfig,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
        *,
        empty: bool = False,
    ):
        super().__init__()
        layers, width, head = Layers(device, dtype, empty), config.width, config.attention_head_dim
        self.config = config
        self.time_text_embed = Conditioning(
            layers, width, config.pooled_projection_dim, config.guidance_embeds
        )
        self.context_embedder = layers.linear(config.joint_attention_dim, width)
        self.x_embedder = layers.linear(config.in_channels, width)
        self.transformer_blocks = wf.nn.ModuleList(
            [DoubleBlock(layers, width, head) for _ in range(config.num_layers)]
        )
        self.single_transformer_blocks = wf.nn.ModuleList(
            [SingleBlock(layers, width, head) for _ in range(config.num_single_layers)]
        )
        self.norm_out = Modulation(layers, width, 2)
        self.proj_out = layers.linear(width, config.result_width)

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        pooled_projections: Tensor,
        timestep: Tensor,
        img_ids: Tensor,
        txt_ids: Tensor,
        guidance: Tensor | None = None,
    ) -> Tensor:
        self._check(hidden_states, encoder_hidden_states, pooled_projections)
        self._check_conditions(hidden_states, timestep, guidance)
        for name, ids, x in (
            ("img_ids", img_ids, hidden_states),
            ("txt_ids", txt_ids, encoder_hidden_states),
        ):
            self._check_ids(name, ids, x)
        image = self.x_embedder(hidden_states)
        # In the dtype of the image, as the models were trained: in bfloat16 times are rounded.
        times = timestep.to(image.dtype) * _TIMES
        told = None if guidance is None else guidance.to(image.dtype) * _TIMES
        vector = self.time_text_embed(times, told, pooled_projections)
        text = self.context_embedder(encoder_hidden_states)
        table = turns(wf.concat([txt_ids, img_ids], axis=0), self.config.axes_dims_rope)
        for block in self.transformer_blocks:
            image, text = block(image, text, vector, table)
        x = wf.concat([text, image], axis=1)
        for block in self.single_transformer_blocks:
            x = block(x, vector, table)
        scale, shift = self.norm_out(vector)
        return self.proj_out(modulate(x[:, text.shape[1] :], shift, scale))

    def _check(self, image: Tensor, text: Tensor, pooled: Tensor) -> None:
        config, batch = self.config, image.shape[0] if image.ndim else 0
        for name, x, ndim, width in (
            ("hidden_states", image, 3, config.in_channels),
            ("encoder_hidden_states", text, 3, config.joint_attention_dim),
            ("pooled_projections", pooled, 2, config.pooled_projection_dim),
        ):
            if x.ndim != ndim or x.shape[-1] != width or x.shape[0] != batch:
                tokens = "tokens, " if ndim == 3 else ""
                raise errors.ShapeError(
                    f"Flux: {name} of shape {x.shape}, expected (batch, {tokens}{width}), the "
                    f"batch that of hidden_states {image.shape}"
                )
            if x.dtype != image.dtype:
                raise errors.DTypeError(
                    f"Flux: {name} in {x.dtype} beside hidden_states in {image.dtype}; cast both "
                    "to the dtype of the model's parameters"
                )

    def _check_conditions(self, image: Tensor, timestep: Tensor, guidance: Tensor | None) -> None:
        if (guidance is not None) != self.config.guidance_embeds:
            fix = "pass guidance=" if guidance is None else "leave guidance out"
            raise errors.ArgumentError(
                f"Flux: guidance {'is missing' if guidance is None else 'came'}, and the config "
                f"has guidance_embeds={self.config.guidance_embeds}; {fix}"
            )
        for name, x in (("timestep", timestep), ("guidance", guidance)):
            if x is not None and x.shape != (image.shape[0],):
                raise errors.ShapeError(
                    f"Flux: {name} of shape {x.shape}, expected ({image.shape[0]},): one number "
                    "for each image"
                )

    def _check_ids(self, name: str, ids: Tensor, x: Tensor) -> None:
        expected = x.shape[1], len(self.config.axes_dims_rope)
        if ids.shape != expected:
            raise errors.ShapeError(
                f"Flux: {name} of shape {ids.shape}, expected {expected}: a position for each of "
                f"the {x.shape[1]} tokens, the same for the whole batch"
            )

    def adapter_names(self) -> FluxAdapterNames:
        """How adapter files name the layers; `wf.nn.save_lora` and `load_lora` ask for it.

        >>> import weft as wf
        >>> config = wf.diffusion.FluxConfig(
        ...     in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
        ...     num_attention_heads=2, joint_attention_dim=8, pooled_projection_dim=8,
        ...     axes_dims_rope=(4, 4, 8),
        ... )
        >>> wf.diffusion.Flux(config, empty=True).adapter_names().groups[0].file
        'img_in'
        """
        return FluxAdapterNames.of(self)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        dtype: DTypeLike | None = None,
        device: Device | None = None,
        quantise: Literal["int8"] | None = None,
        *,
        config: FluxConfig | None = None,
        cache_dir: str | PathLike[str] | None = None,
    ) -> Flux:
        """The model in files: weights go to the device one after the other.

        path       a folder of diffusers with config.json (of the transformer, or of a pipeline
                   with a folder `transformer`), or one safetensors file with the names of
                   diffusers or of the original, with a config.json beside it unless it has the
                   widths of the published models; the prefixes `model.diffusion_model.`,
                   `diffusion_model.` and `transformer.` are taken off
        dtype      of the parameters; None: the files', if it is one
        device     where they are
        quantise   "int8": the weights of the blocks in 8 bits, see `wf.nn.Linear8bit`
        config     the sizes; None: those of config.json, or of a single file of a published
                   model's widths those that its shapes tell, and axes_dims_rope (16, 56, 56)
        cache_dir  where the 8-bit weights are kept, so that the next load finds them

        Missing, unexpected and wrong-shaped weights are one error, which lists all of them; so are
        weights that are not finite.

        >>> import tempfile
        >>> import weft as wf
        >>> config = wf.diffusion.FluxConfig(
        ...     in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
        ...     num_attention_heads=2, joint_attention_dim=8, pooled_projection_dim=8,
        ...     axes_dims_rope=(4, 4, 8),
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     wf.diffusion.Flux(config).save(f"{folder}/model")
        ...     model = wf.diffusion.Flux.load(f"{folder}/model", dtype="bfloat16")
        >>> model.config == config, model.proj_out.weight.dtype.name
        (True, 'bfloat16')
        """
        return load(
            lambda sizes: cls(sizes, empty=True), path, dtype, device, quantise, config, cache_dir
        )

    def save(
        self,
        path: str | PathLike[str],
        layout: Literal["diffusers", "original"] = "diffusers",
        *,
        shard_bytes: int = 10_000_000_000,
    ) -> None:
        """Save config and weights as diffusers does, or the weights in the original's layout.

        path         a new folder; of the original's layout a file
        layout       "diffusers" or "original"
        shard_bytes  weights beyond it are spread over several files of diffusers' layout

        >>> import os, tempfile
        >>> import weft as wf
        >>> config = wf.diffusion.FluxConfig(
        ...     in_channels=4, num_layers=1, num_single_layers=0, attention_head_dim=16,
        ...     num_attention_heads=2, joint_attention_dim=8, pooled_projection_dim=8,
        ...     axes_dims_rope=(4, 4, 8),
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     wf.diffusion.Flux(config).save(f"{folder}/model")
        ...     sorted(os.listdir(f"{folder}/model"))
        ['config.json', 'diffusion_pytorch_model.safetensors']
        """
        expected = shapes(type(self)(self.config, empty=True))
        save(self.state_dict(), expected, self.config, path, layout, shard_bytes)
