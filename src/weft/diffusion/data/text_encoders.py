"""Embeddings of captions by transformers' T5 and CLIP, from folders on this machine."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ..digests import FileDigests
from .encoders import digest_settings
from .settings import DTYPES, check_choice
from .weights import WeightFolder, free_device_memory, load_library

CLIP_TOKENS = 77


class TransformersTextEncoder:
    """T5's last hidden state and CLIP's pooled output, as Flux takes them.

    Captions are padded to the length, and cut there; padding is not masked. Weights are loaded at
    the first call of `encode`, from safetensors only; nothing is fetched.

    t5              folder of T5's encoder, as `text_encoder_2` of a model
    t5_tokenizer    folder of its tokenizer, as `tokenizer_2`
    clip            folder of CLIP's text model, as `text_encoder`
    clip_tokenizer  folder of its tokenizer, as `tokenizer`
    max_length      tokens for T5: 512 for Flux dev, 256 for schnell
    device          of PyTorch
    dtype           of the computation: "float32", "bfloat16" or "float16"
    digests         remembers digests of files; None: they are computed anew

    >>> from weft.diffusion.data import TransformersTextEncoder
    >>> TransformersTextEncoder("no", "such", "folders", "here")
    Traceback (most recent call last):
        ...
    weft.errors.DatasetError: TransformersTextEncoder: t5: no is not a folder on this machine; …
    """

    def __init__(
        self,
        t5: str | os.PathLike[str],
        t5_tokenizer: str | os.PathLike[str],
        clip: str | os.PathLike[str],
        clip_tokenizer: str | os.PathLike[str],
        max_length: int = 512,
        device: str = "cpu",
        dtype: str = "float32",
        digests: FileDigests | None = None,
    ):
        if type(max_length) is not int or max_length < 1:
            raise ArgumentError(
                f"TransformersTextEncoder: max_length={max_length!r}, expected an integer ≥ 1"
            )
        check_choice("TransformersTextEncoder: dtype", dtype, DTYPES)
        weights, tokens = ("config.json", ".safetensors"), (".json",)
        kept = FileDigests() if digests is None else digests
        given = {"t5": (t5, weights), "t5_tokenizer": (t5_tokenizer, tokens)}
        given |= {"clip": (clip, weights), "clip_tokenizer": (clip_tokenizer, tokens)}
        self._folders = {
            name: WeightFolder(path, f"TransformersTextEncoder: {name}", needs, kept)
            for name, (path, needs) in given.items()
        }
        self.max_length: int = max_length
        self.device: str = device
        self.dtype: str = dtype
        self._parts: dict[str, Any] = {}

    @cached_property
    def _files(self) -> dict[str, str]:
        return {name: folder.digest() for name, folder in self._folders.items()}

    @cached_property
    def digest(self) -> str:
        """Of the folders' files, the lengths and the precision."""
        lengths = [self.max_length, CLIP_TOKENS]
        return digest_settings(
            encoder="T5+CLIP", version=1, files=self._files, lengths=lengths, dtype=self.dtype
        )

    def encode(self, captions: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The embeddings of captions.

        captions  texts

        >>> from weft.diffusion.data import TransformersTextEncoder
        >>> encoder = TransformersTextEncoder(*folders)  # doctest: +SKIP
        >>> encoder.encode(["a cat"])[0].shape  # doctest: +SKIP
        (1, 512, 4096)
        """
        torch = load_library("torch", "TransformersTextEncoder")
        with torch.no_grad():
            t5 = self._model("t5", "T5EncoderModel", torch)
            clip = self._model("clip", "CLIPTextModel", torch)
            embeds = t5(self._ids("t5_tokenizer", captions, self.max_length))[0]
            pooled = clip(self._ids("clip_tokenizer", captions, CLIP_TOKENS)).pooler_output
            return embeds.float().cpu().numpy(), pooled.float().cpu().numpy()

    def _ids(self, name: str, captions: list[str], length: int) -> Any:
        """The numbers of the tokens, padded and cut to a length."""
        tokenizer = self._tokenizer(name)
        found = tokenizer(
            captions, padding="max_length", max_length=length, truncation=True, return_tensors="pt"
        )
        return found.input_ids.to(self.device)

    def _tokenizer(self, name: str) -> Any:
        if name not in self._parts:
            library = load_library("transformers", "TransformersTextEncoder")
            before = self._files[name]
            self._parts[name] = self._folders[name].load(library.AutoTokenizer, before)
        return self._parts[name]

    def _model(self, name: str, kind: str, torch: Any) -> Any:
        if name not in self._parts:
            library = load_library("transformers", "TransformersTextEncoder")
            # The loader keeps parts of T5 in float32 that overflow in float16.
            spelled = "dtype" if int(library.__version__.split(".")[0]) >= 5 else "torch_dtype"
            options = {"use_safetensors": True, spelled: getattr(torch, self.dtype)}
            loader, before = getattr(library, kind), self._files[name]
            model = self._folders[name].load(loader, before, **options)
            self._parts[name] = model.to(self.device).eval()
        return self._parts[name]

    def truncation(self, caption: str) -> str | None:
        """What of a caption is cut off.

        caption  a text

        >>> from weft.diffusion.data import TransformersTextEncoder
        >>> TransformersTextEncoder(*folders).truncation("a cat")  # doctest: +SKIP
        """
        lengths = {"t5": self.max_length, "clip": CLIP_TOKENS}
        cut = []
        for name, length in lengths.items():
            found = len(self._tokenizer(f"{name}_tokenizer")(caption, verbose=False).input_ids)
            if found > length:
                cut.append(f"{name} keeps {length} of {found} tokens")
        return ", ".join(cut) or None

    def release(self) -> None:
        """Free the weights; tokenizers stay.

        >>> from weft.diffusion.data import TransformersTextEncoder
        >>> TransformersTextEncoder(*folders).release()  # doctest: +SKIP
        """
        loaded = [self._parts.pop(name, None) for name in ("t5", "clip")]
        if any(part is not None for part in loaded):
            del loaded
            free_device_memory(load_library("torch", "TransformersTextEncoder"), self.device)
