"""Latents by diffusers' `AutoencoderKL`, from a folder on this machine."""

from __future__ import annotations

import os
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np

from ...errors import DatasetError
from ..digests import FileDigests
from .encoders import digest_settings
from .settings import DTYPES, check_choice
from .weights import WeightFolder, free_device_memory, load_library


class DiffusersVAE:
    """The mode of an `AutoencoderKL`'s distribution of latents.

    `encode` gives them as the model does; training takes (x − shift)·scale, by the config's
    `shift_factor` and `scaling_factor`. Weights are loaded at the first call of `encode`, from
    safetensors only; nothing is fetched.

    folder   with config.json and *.safetensors, as the folder `vae` of a model
    device   of PyTorch
    dtype    of the computation: "float32", "bfloat16" or "float16"
    digests  remembers digests of files; None: they are computed anew

    >>> from weft.diffusion.data import DiffusersVAE
    >>> DiffusersVAE("no/such/folder")
    Traceback (most recent call last):
        ...
    weft.errors.DatasetError: DiffusersVAE: no/such/folder is not a folder on this machine; …
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        device: str = "cpu",
        dtype: str = "float32",
        digests: FileDigests | None = None,
    ):
        kept = FileDigests() if digests is None else digests
        self._folder = WeightFolder(folder, "DiffusersVAE", ("config.json", ".safetensors"), kept)
        check_choice("DiffusersVAE: dtype", dtype, DTYPES)
        self.device: str = device
        self.dtype: str = dtype
        config = self._folder.config()
        self.channels: int = _whole(config, "latent_channels")
        blocks = config.get("block_out_channels")
        if not isinstance(blocks, list) or not 1 <= len(blocks) <= 8:
            raise DatasetError(
                f"DiffusersVAE: config.json has block_out_channels={blocks!r}, expected a list: "
                "each but the last halves width and height"
            )
        self.factor: int = 1 << (len(blocks) - 1)
        self.scale: float = _real(config, "scaling_factor", None)
        self.shift: float = _real(config, "shift_factor", 0.0)
        self._model: Any = None

    @cached_property
    def digest(self) -> str:
        """Of the folder's files and the precision."""
        kind, files = "AutoencoderKL", self._files
        return digest_settings(encoder=kind, version=1, files=files, dtype=self.dtype)

    @cached_property
    def _files(self) -> str:
        return self._folder.digest()

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        """Latents of pixels, neither shifted nor scaled.

        pixels  (N, 3, H, W) in [-1, 1]

        >>> from weft.diffusion.data import DiffusersVAE
        >>> DiffusersVAE("vae").encode(pixels)  # doctest: +SKIP
        """
        torch = load_library("torch", "DiffusersVAE")
        model = self._load(torch)
        with torch.no_grad():
            x = torch.from_numpy(pixels).to(self.device, getattr(torch, self.dtype))
            return model.encode(x).latent_dist.mode().float().cpu().numpy()

    def decode(self, latents: np.ndarray) -> np.ndarray:
        """Pixels of latents that are neither shifted nor scaled: (N, 3, H, W) in [-1, 1].

        latents  (N, C, h, w)

        >>> from weft.diffusion.data import DiffusersVAE
        >>> DiffusersVAE("vae").decode(latents)  # doctest: +SKIP
        """
        torch = load_library("torch", "DiffusersVAE")
        model = self._load(torch)
        with torch.no_grad():
            x = torch.from_numpy(latents).to(self.device, getattr(torch, self.dtype))
            return model.decode(x).sample.float().cpu().numpy()

    def _load(self, torch: Any) -> Any:
        if self._model is None:
            diffusers = load_library("diffusers", "DiffusersVAE")
            options = {"use_safetensors": True, "torch_dtype": getattr(torch, self.dtype)}
            model = self._folder.load(diffusers.AutoencoderKL, self._files, **options)
            self._model = model.to(self.device).eval()
        return self._model

    def release(self) -> None:
        """Free the weights.

        >>> from weft.diffusion.data import DiffusersVAE
        >>> DiffusersVAE("vae").release()  # doctest: +SKIP
        """
        if self._model is not None:
            self._model = None
            free_device_memory(load_library("torch", "DiffusersVAE"), self.device)


def _whole(config: dict[str, Any], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or value < 1:
        raise DatasetError(f"DiffusersVAE: config.json has {name}={value!r}, expected an integer")
    return value


def _real(config: dict[str, Any], name: str, default: float | None) -> float:
    found = config.get(name)
    value: Any = default if found is None else found
    if type(value) not in (int, float) or not isfinite(value):
        raise DatasetError(f"DiffusersVAE: config.json has {name}={value!r}, expected a number")
    return float(value)
