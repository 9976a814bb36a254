"""What a run leaves while it goes on: adapter files and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import weft as wf
from weft.io.durable import UNFINISHED, make_directories

from .pictures import Sampling, facts_of, sample_latents, to_bytes, write_grid

if TYPE_CHECKING:
    from weft.train import Trainer

    from .config import OutputSection

_SUFFIXES = {"peft": "", "kohya": "-kohya"}


class AdapterFiles(wf.train.Callback):
    """Adapter files beside the checkpoints; with averages of the parameters, these are saved.

    section  [output]
    """

    def __init__(self, section: OutputSection):
        self.section = section

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.section.directory / "adapters"

    def on_fit_start(self, trainer: Trainer) -> None:
        """Write what an interruption has cost of the checkpoint that the run goes on from."""
        remove_unfinished(self.section.directory)
        name = self._numbered(trainer)
        if trainer.step and not all(self._file(name, x).exists() for x in self.section.layouts):
            self._write(trainer, name)
        self._prune()

    def on_save(self, trainer: Trainer, path: Path) -> None:
        self._write(trainer, self._numbered(trainer))
        self._prune()

    def _prune(self) -> None:
        """Remove all but the newest files of steps."""
        for suffix in _SUFFIXES.values():
            pattern = f"{self.section.name}-{'[0-9]' * 8}{suffix}.safetensors"
            for old in sorted(self.folder.glob(pattern))[: -self.section.keep]:
                old.unlink()

    def on_fit_end(self, trainer: Trainer) -> None:
        self._write(trainer, self.section.name)

    def _numbered(self, trainer: Trainer) -> str:
        return f"{self.section.name}-{trainer.step:08d}"

    def _file(self, name: str, layout: str) -> Path:
        return self.folder / f"{name}{_SUFFIXES[layout]}.safetensors"

    def _write(self, trainer: Trainer, name: str) -> None:
        make_directories(self.folder)
        with trainer.averaged():
            for layout in self.section.layouts:
                file = self._file(name, layout)
                wf.nn.save_lora(trainer.model, file, layout, self.section.dtype)


def remove_unfinished(directory: Path) -> None:
    """Remove what killed writers have left of a run's pictures, curves and adapter files."""
    for folder in (directory, directory / "adapters", directory / "previews"):
        for file in folder.glob(".weft-*.tmp") if folder.is_dir() else ():
            if UNFINISHED.fullmatch(file.name):
                file.unlink()


class Prompt:
    """A prompt and its embeddings."""

    def __init__(self, text: str, prompt_embeds: np.ndarray, pooled: np.ndarray):
        self.text, self.prompt_embeds, self.pooled = text, prompt_embeds, pooled


class Previews(wf.train.Callback):
    """A grid of pictures before the first step, and every so many steps.

    prompts   with their embeddings
    how       steps, guidance, noise and size
    every     steps from one grid to the next
    folder    where the grids go
    encoder   of images, which decodes latents
    """

    def __init__(
        self, prompts: Sequence[Prompt], how: Sampling, every: int, folder: Path, encoder: Any
    ):
        self.prompts, self.how, self.every = tuple(prompts), how, every
        self.folder, self.encoder = folder, encoder

    def on_fit_start(self, trainer: Trainer) -> None:
        if trainer.step == 0:
            self.draw(trainer)

    def on_step_end(self, trainer: Trainer, row: dict[str, float]) -> None:
        if row["step"] % self.every == 0:
            self.draw(trainer)

    def draw(self, trainer: Trainer) -> Path:
        """Draw a grid now; returns its path."""
        model: Any = trainer.model
        training = model.training
        model.eval()
        try:
            with wf.no_grad(), trainer.averaged():
                latents = [
                    sample_latents(
                        model, p.prompt_embeds, p.pooled, self.how, self.encoder.channels
                    )
                    for p in self.prompts
                ]
        finally:
            model.train(training)
        shift, scale = np.float32(self.encoder.shift), np.float32(self.encoder.scale)
        pictures = [to_bytes(self.encoder.decode(x[None] / scale + shift)[0]) for x in latents]
        self.encoder.release()
        path = self.folder / f"step-{trainer.step:08d}.png"
        facts = {"step": trainer.step, **facts_of(model, self.how, [p.text for p in self.prompts])}
        write_grid(path, pictures, facts)
        return path
