"""Whether a configuration fits what it names: files, sizes, and what a run does until it saves."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from re import sub
from typing import TYPE_CHECKING, Any

import weft as wf
from weft.nn.lora.inject import linear_layers
from weft.nn.lora.names import names_of

from ..data import CachedDataset
from ..data.caching import missing_there
from ..flux import Flux
from ..read_only import why_read_only
from . import build
from .base import base_sizes
from .blaming import blaming
from .config import refuse
from .contradictions import schedule_misfits
from .footprint import PREVIEWS, Footprint, RunBytes, budget_text
from .identity import check_resume
from .kinds import RunKinds, kinds_of_report
from .throwaway import make_model

if TYPE_CHECKING:
    from ..config import FluxConfig
    from ..data import Encoders, ScanReport
    from ..data.encoders import ImageEncoder
    from .config import TrainConfig
    from .contradictions import Place


def check_fit(config: TrainConfig, writes: bool = True) -> tuple[FluxConfig, Encoders]:
    """Raise at whatever a run would refuse of a configuration, without its images.

    config  the configuration
    writes  whether the device, and folders that are written, are tried out; without it the base
            may have its config.json alone

    Returns the model's sizes, and the encoders, of which nothing is loaded yet.
    """
    check_paths(config)
    check_folders(config)
    check_validation(config)
    if writes:
        check_writable(config)
        with blaming(config, ("train", "device")):
            wf.zeros(0, device=config.train.device)
    sizes = base_sizes(config, needed=writes)
    with blaming(config, ("encoders",)):
        encoders = build.make_encoders(config.encoders, sizes)
    check_channels(config, encoders.image, sizes)
    check_sizes(config, encoders.image)
    check_layers(config, sizes)
    return sizes, encoders


def check_data(
    config: TrainConfig,
    sizes: FluxConfig,
    encoders: Encoders,
    report: ScanReport,
    from_step: int | None = None,
) -> RunKinds:
    """Raise at whatever a run would refuse of its images; returns its batches.

    config     the configuration
    sizes      of the model
    encoders   of the run
    report     of the folders
    from_step  the step that it goes on from, if that is said
    """
    check_masks(config, report)
    kinds = kinds_of_report(config, encoders, report)
    refuse(config, schedule_misfits(config, build.run_length(config, kinds.batches)))
    settings = build.make_settings(config)

    def compared() -> CachedDataset:  # which reads all files of the encoders
        return CachedDataset(kinds.samples[0], encoders, settings, ".")

    check_resume(config, compared, from_step)
    check_cache(config, encoders, report)
    if config.train.memory_budget_mb is not None:
        check_budget(config, Footprint(config, sizes, kinds).find())
    return kinds


def check_masks(config: TrainConfig, report: ScanReport) -> None:
    """Raise if a folder's images are to have masks, and none has one.

    config  the configuration
    report  of the folders
    """
    for i, folder in enumerate(config.data):
        found = [s.mask is not None for s in report.samples if s.source == i]
        if found and not any(found) and (folder.masks or folder.mask_suffix) is not None:
            key = "masks" if folder.mask_suffix is None else "mask_suffix"
            given = folder.masks if folder.mask_suffix is None else repr(folder.mask_suffix)
            text = (
                f"{given}: there is no mask of any image in {folder.path}, which would be trained "
                f"on as a whole; name the masks after their images, or leave {key} out"
            )
            refuse(config, [(("data", i, key), text)])


def check_cache(config: TrainConfig, encoders: Encoders, report: ScanReport) -> None:
    """Raise if the cache lacks entries, and is where nothing can be written.

    config    the configuration
    encoders  of the run
    report    of the folders
    """
    folder = config.encoders.cache
    reason = why_read_only(folder)
    if reason is None:
        return
    settings, prompts = build.make_settings(config), config.preview.prompts
    needed = CachedDataset(report.samples, encoders, settings, folder, prompts).needed()
    missing = sum([not (folder / entry.path).is_file() for entry in needed])
    if missing:
        text = missing_there(folder, reason, missing)
        refuse(config, [(("encoders", "cache"), text)])


def check_budget(config: TrainConfig, memory: RunBytes) -> None:
    """Raise if a run takes more than its budget.

    config  the configuration
    memory  what it takes
    """
    text = over_budget(config, memory)
    if text:
        try:
            refuse(config, [(("train", "memory_budget_mb"), text)])
        except wf.errors.ConfigError as e:
            failure = wf.errors.BudgetExceeded(e.message)
            failure.smallest = needed_budget(memory)
            raise failure from None


def over_budget(config: TrainConfig, memory: RunBytes) -> str:
    """Why the budget of a run is refused; "" if it is not, or if there is none."""
    budget = config.train.memory_budget_mb
    if budget is None or (memory.smallest is None and memory.peak <= budget * (1 << 20)):
        return ""
    least = budget_text(needed_budget(memory))
    if PREVIEWS in memory.parts:
        return (
            f"{budget:g} is refused: previews take {least} MiB, with weights and moments; give "
            f"{least}, or a smaller preview.width and preview.height"
        )
    what = "a step takes" if memory.smallest is not None else "the run takes"
    return (
        f"{budget:g} is refused: {what} {least} MiB at least, with weights, moments and data; give "
        f"{least}, or a smaller train.batch"
    )


def needed_budget(memory: RunBytes) -> int:
    """The smallest budget in bytes that is not refused."""
    return memory.peak if memory.smallest is None else memory.smallest


def check_paths(config: TrainConfig) -> None:
    """Raise if files or folders that a configuration names are not there; all of them are listed.

    config  the configuration
    """
    found = [(place, path) for place, path in _paths(config) if not path.exists()]
    beside = "; relative paths are beside the file"
    refuse(config, [(place, f"{path} does not exist{beside}") for place, path in found])
    folders = [(place, path) for place, path in _paths(config) if place[0] in _FOLDERS]
    refuse(config, [(p, f"{path} is not a folder") for p, path in folders if not path.is_dir()])


_FOLDERS = ("data", "validation", "encoders")


def _paths(config: TrainConfig) -> Iterator[tuple[Place, Path]]:
    """What is read, by its key."""
    named: dict[Place, Any] = {("model", "path"): config.model.path}
    named["adapter", "start"] = config.adapter.start
    for i, folder in enumerate(config.data):
        named |= {("data", i, "path"): folder.path, ("data", i, "masks"): folder.masks}
    named["validation", "folder"] = config.validation.folder
    for name in ("vae", "clip", "t5", "clip_tokenizer", "t5_tokenizer"):
        named["encoders", name] = getattr(config.encoders, name)
    return ((key, path) for key, path in named.items() if isinstance(path, Path))


def _written(config: TrainConfig) -> Iterator[tuple[Place, Path]]:
    """The folders that are written, by their keys."""
    yield ("output", "directory"), config.output.directory
    yield ("encoders", "cache"), config.encoders.cache
    if config.model.cache is not None:
        yield ("model", "cache"), config.model.cache


def check_folders(config: TrainConfig) -> None:
    """Raise if what a run writes would lie among what it reads, or images would be found twice.

    config  the configuration
    """
    for key, written in _written(config):
        place = written.resolve()
        for i, folder in enumerate(config.data):
            read = folder.path.resolve()
            if place == read or (folder.recursive and place.is_relative_to(read)):
                text = f"{written} is in the folder data[{i}].path, whose pictures are trained on"
                refuse(config, [(key, f"{text}; give a folder beside it")])
        if place == config.model.path.resolve():
            refuse(config, [(key, f"{written} is model.path; give a folder of its own")])
    _check_apart(config)


def _check_apart(config: TrainConfig) -> None:
    """Raise if an image would be found twice, or as its own mask."""
    read: list[tuple[Place, Path, bool]] = [
        (("data", i, "path"), f.path.resolve(), f.recursive) for i, f in enumerate(config.data)
    ]
    if config.validation.folder is not None:
        read.append((("validation", "folder"), config.validation.folder.resolve(), False))
    for i, (_, outer, recursive) in enumerate(read):
        for j, (key, inner, _) in enumerate(read):
            if i != j and (inner == outer or (recursive and outer in inner.parents)):
                name = "validation.folder" if read[i][0][0] == "validation" else f"data[{i}].path"
                text = f"its images would be found twice, here and by {name}; give each folder once"
                refuse(config, [(key, f"{text} (repeats counts images several times)")])
    for i, folder in enumerate(config.data):
        if folder.masks is not None and folder.masks.resolve() == folder.path.resolve():
            text = "the folder of the images; give data.mask_suffix for masks beside them"
            refuse(config, [(("data", i, "masks"), text)])


def check_writable(config: TrainConfig) -> None:
    """Raise if a folder cannot be made or written into; all is afterwards as it was.

    config  the configuration

    Caches that are there are only read if nothing is missing: that is looked at later.
    """
    for key, folder in _written(config):
        if key[0] != "output" and why_read_only(folder) is not None:
            continue
        with blaming(config, key), _made(folder):
            for name in _INSIDE if key[0] == "output" else ():
                if (folder / name).exists() and not (folder / name).is_dir():
                    refuse(config, [(key, f"{folder / name} is not a folder")])
            with tempfile.TemporaryFile(dir=folder):
                pass


_INSIDE = ("adapters", "previews", "events")


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A block in which a folder is there."""
    missing = [p for p in (folder, *folder.parents) if not os.path.lexists(p)]
    made: list[Path] = []
    try:
        for path in reversed(missing):
            path.mkdir()
            made.append(path)
        if not folder.is_dir():
            raise NotADirectoryError(20, "is a file, expected a folder", str(folder))
        yield
    finally:
        for path in reversed(made):
            path.rmdir()


def check_channels(config: TrainConfig, image: ImageEncoder, sizes: FluxConfig) -> None:
    """Raise if latents have not the channels that the model takes."""
    if 4 * image.channels != sizes.in_channels:
        text = (
            f"the encoder of images gives {image.channels} channels, four of which in a token are "
            f"{4 * image.channels}, and the model takes {sizes.in_channels}: give the autoencoder "
            "that the model was trained with"
        )
        own = config.encoders.vae == "pixels" and config.encoders.pixels != 2
        refuse(config, [(("encoders", "pixels" if own else "vae"), text)])


def check_validation(config: TrainConfig) -> None:
    """Raise if a share of the images is to be validated on, and none of them may be.

    config  the configuration
    """
    if config.validation.share and all([folder.regularisation for folder in config.data]):
        text = (
            "all folders have regularisation = true, whose images are not validated on; give "
            "validation.folder, or leave share out"
        )
        refuse(config, [(("validation", "share"), text)])


def check_sizes(config: TrainConfig, image: ImageEncoder) -> None:
    """Raise if sizes in pixels are not whole tokens of the model.

    config  the configuration
    image   the encoder of images: a token is 2 × 2 of its latents
    """
    side = 2 * image.factor
    sizes: dict[Place, int] = {("images", "step"): config.images.step}
    if config.preview.prompts:
        names = ("width", "height")
        sizes |= {("preview", n): getattr(config.preview, n) for n in names}
    why = f"a token is {side} × {side} pixels, two by two latents of {image.factor} each"
    wrong = [(key, size) for key, size in sizes.items() if size % side]
    refuse(config, [(k, f"{size}, expected a multiple of {side}: {why}") for k, size in wrong])


# -- adapters --------------------------------------------------------------------------------------


def check_layers(config: TrainConfig, sizes: FluxConfig) -> None:
    """Raise if adapters cannot be put on, trained or saved as a configuration says.

    config  the configuration
    sizes   of the model
    """
    check_patterns(config, linear_names(sizes))
    plain = replace(config, adapter=replace(config.adapter, start=None))
    with blaming(config, ("adapter",)):
        model: Any = make_model(plain, sizes, "cpu")
    layers = dict(linear_layers(model))
    _check_layouts(config, names_of(model, layers).groups, build.adapted(model))
    if config.adapter.start is not None:
        with blaming(config, ("adapter", "start")):
            wf.nn.load_lora(model, config.adapter.start)
    with blaming(config, ("optimizer",)):
        build.make_optimizer(model, config)


def _check_layouts(config: TrainConfig, groups: Any, adapted: set[str]) -> None:
    """Raise if a layer of kohya's layout would be of a DoRA in parts only."""
    if config.adapter.kind != "dora":
        return
    for i, layout in enumerate(config.output.layouts):
        for group in groups if layout == "kohya" else ():
            parts = [p for p in group.parts if p in adapted]
            if parts and len(parts) < len(group.parts):
                without = sorted({*group.parts} - adapted)
                text = (
                    f"'kohya' has {', '.join(group.parts)} as one layer, whose magnitudes are for "
                    f"all of it, and adapter.targets leave out {', '.join(without)}; add them, or "
                    "leave 'kohya' out"
                )
                refuse(config, [(("output", "layouts", i), text)])


def linear_names(sizes: FluxConfig) -> list[str]:
    """The names of a model's linear layers."""
    model = Flux(sizes, empty=True)
    return [name for name, m in model.named_modules() if isinstance(m, wf.nn.Linear)]


def check_patterns(config: TrainConfig, names: list[str]) -> None:
    """Raise if a pattern of layers matches none.

    config  the configuration
    names   of the model's linear layers
    """
    section = config.adapter
    places: list[tuple[Place, str]] = [
        (("adapter", "rules", i, "pattern"), rule.pattern) for i, rule in enumerate(section.rules)
    ]
    places += [(("adapter", "targets", i), pattern) for i, pattern in enumerate(section.targets)]
    found = []
    for place, pattern in places:
        if not any(fnmatchcase(name, pattern) for name in names):
            kinds = dict.fromkeys(sub(r"\.\d+\.", ".*.", name) for name in names)
            near = get_close_matches(pattern, kinds, 4, 0.0)
            text = f"{pattern!r} matches none of the {len(names)} linear layers; among them are "
            found.append((place, text + ", ".join(near)))
    refuse(config, found or _shadowed(config, names))


def _shadowed(config: TrainConfig, names: list[str]) -> list[tuple[Place, str]]:
    """The rules whose layers all belong to earlier ones."""
    found: list[tuple[Place, str]] = []
    left = set(names)
    for i, rule in enumerate(config.adapter.rules):
        own = {name for name in names if fnmatchcase(name, rule.pattern)}
        if not own & left:
            text = (
                f"{rule.pattern!r} matches {len(own)} layers, all of which earlier rules match, "
                "and the first that matches counts: put it before them, or leave it out"
            )
            found.append((("adapter", "rules", i, "pattern"), text))
        left -= own
    return found


def chosen_layers(config: TrainConfig, names: list[str]) -> list[str]:
    """The layers that get adapters."""
    section = config.adapter
    patterns = [*[rule.pattern for rule in section.rules], *section.targets]
    return [name for name in names if any(fnmatchcase(name, p) for p in patterns)]
