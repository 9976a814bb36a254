"""What a run leaves while it goes on: adapter files and pictures."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft as wf
from weft.io import disk
from weft.io.directory import remove_unfinished
from weft.io.durable import make_directories
from weft.nn.lora.saving import as_saved
from weft.train.rewind import ASIDE

from .pictures import Prompt, Sampling, draw, facts_of, write_grid

if TYPE_CHECKING:
    from weft.train import Trainer

    from .config import OutputSection

_SUFFIXES = {"peft": "", "kohya": "-kohya"}


def _make_room(trainer: Trainer) -> None:
    """Free the programs' memory where there is a budget, for what takes memory by itself."""
    if trainer.checkpoint is not None:
        trainer.release()


class AdapterFiles(wf.train.Callback):
    """Adapter files beside the checkpoints; with averages of the parameters, these are saved.

    section  [output]
    """

    every_rank = False

    def __init__(self, section: OutputSection):
        self.section = section
        self._warned: set[tuple[str, str]] = set()

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.section.directory / "adapters"

    def on_fit_start(self, trainer: Trainer) -> None:
        """Write what an interruption has cost of the checkpoint that the run goes on from."""
        here = self.section.directory
        remove_unfinished(*[p for p in (here, self.folder, here / "previews") if p.is_dir()])
        self._set_aside(trainer.step)
        name = self._numbered(trainer)
        if trainer.step and not all(self._file(name, x).exists() for x in self.section.layouts):
            self._write(trainer, name)
        self._prune()

    def on_save_start(self, trainer: Trainer) -> None:
        _make_room(trainer)  # checkpoints copy moments, adapter files adapters

    def on_save(self, trainer: Trainer, path: Path) -> None:
        self._write(trainer, self._numbered(trainer))
        self._prune()

    def _prune(self) -> None:
        """Remove all but the newest files of steps, and those whose checkpoints stay."""
        kept = wf.io.steps(self.section.directory)
        for suffix in _SUFFIXES.values():
            found = self._found(suffix)
            for step in sorted(found)[: -self.section.keep]:
                if step not in kept:
                    found[step].unlink()

    def _found(self, suffix: str) -> dict[int, Path]:
        """The files of steps."""
        name, end = f"{self.section.name}-", f"{suffix}.safetensors"
        numbers = {p: p.name[len(name) : -len(end)] for p in self.folder.glob(f"*{end}")}
        return {
            int(n): p
            for p, n in numbers.items()
            if p.name.startswith(name) and n.isdecimal() and n == f"{int(n):08d}"
        }

    def on_error(self, trainer: Trainer, error: BaseException) -> None:
        if isinstance(error, wf.errors.AnomalyError):
            self._set_aside(max(wf.io.steps(self.section.directory), default=0))

    def _set_aside(self, step: int) -> None:
        """Move the files of steps that the run has gone back behind."""
        aside = self.section.directory / ASIDE
        for suffix in _SUFFIXES.values():
            for later, path in self._found(suffix).items():
                if later > step:
                    make_directories(aside)
                    disk.rename(path, aside / path.name)

    def on_fit_end(self, trainer: Trainer) -> None:
        if trainer.idle is not None:
            trainer.idle = (
                f"nothing to do: the run in {self.section.directory} is at step {trainer.step}, "
                f"epoch {trainer.epoch}, and train.steps and train.epochs count from its "
                "beginning; raise them to go on, or give another output.directory"
            )
        _make_room(trainer)
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
                with warnings.catch_warnings(record=True) as caught:
                    wf.nn.save_lora(trainer.model, file, layout, self.section.dtype)
                for one in caught:
                    self._warn_once(layout, str(one.message).replace(str(file), ""), one)

    def _warn_once(self, layout: str, text: str, warning: warnings.WarningMessage) -> None:
        """Pass a warning on, unless it is that of an earlier file."""
        if (layout, text) not in self._warned:
            self._warned.add((layout, text))
            warnings.warn(warning.message, stacklevel=2)


def newest_adapter(section: OutputSection) -> Path:
    """The newest adapter file of a run: the finished one, unless the run went on after it.

    section  [output]
    """
    folder, layouts = section.directory / "adapters", section.layouts
    named = re.compile(re.escape(section.name) + r"(-\d{8,19})?")
    saves: dict[str, list[Path]] = {}
    for layout in layouts:
        end = f"{_SUFFIXES[layout]}.safetensors"
        for file in folder.iterdir() if folder.is_dir() else ():
            name = file.name.removesuffix(end)
            if name != file.name and named.fullmatch(name):
                saves.setdefault(name, []).append(file)
    if not saves:
        raise wf.errors.CheckpointNotFound(
            f"{folder} has no adapter file {section.name}.safetensors, nor one of a step; train "
            "first, give another adapter file, or sample the base alone"
        )

    def age(name: str) -> tuple[int, bool]:
        return min(file.stat().st_mtime_ns for file in saves[name]), name == section.name

    return saves[max(saves, key=age)][0]


class Previews(wf.train.Callback):
    """A grid of pictures before the first step, and every so many steps.

    prompts   with their embeddings
    how       steps, guidance, noise and size
    every     steps from one grid to the next
    folder    where the grids go
    encoder   of images, which decodes latents
    dtype     of the adapter files: pictures are those that a file of the same step gives
    """

    every_rank = False

    def __init__(
        self,
        prompts: Sequence[Prompt],
        how: Sampling,
        every: int,
        folder: Path,
        encoder: Any,
        dtype: str,
    ):
        self.prompts, self.how, self.every = tuple(prompts), how, every
        self.folder, self.encoder, self.dtype = folder, encoder, dtype

    def on_fit_start(self, trainer: Trainer) -> None:
        if trainer.step == 0:
            self.draw(trainer)

    def on_step_end(self, trainer: Trainer, row: dict[str, float]) -> None:
        if row["step"] % self.every == 0:
            self.draw(trainer)

    def draw(self, trainer: Trainer) -> Path:
        """Draw a grid now; returns its path."""
        model: Any = trainer.model
        _make_room(trainer)  # previews are drawn in eager mode
        with trainer.averaged(), as_saved(model, self.dtype):
            pictures = draw(model, self.prompts, self.how, self.encoder)
        path = self.folder / f"step-{trainer.step:08d}.png"
        texts = [p.text for p in self.prompts]
        facts = {"step": trainer.step, **facts_of(model, self.how, texts, self.encoder.factor)}
        write_grid(path, pictures, facts)
        return path
