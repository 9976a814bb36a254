"""The files of a source: found in one order everywhere, and sorted into images, captions, masks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...errors import DatasetError
from ...io import disk
from .settings import Source

READABLE = frozenset(".png .apng .jpg .jpeg .jpe .jfif .webp .bmp .dib .tif .tiff .gif".split())
OTHER_IMAGES = frozenset(
    ".avif .heic .heif .jxl .jp2 .j2k .psd .svg .tga .ico .icns .exr .hdr .dng .cr2 .nef .arw "
    ".eps .pcx .dds .qoi .ppm .pgm .pbm .pnm".split()
)
_MAGIC = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"BM", b"II*\0", b"MM\0*")


class FoundFile(NamedTuple):
    """A file of a source."""

    path: str  # to open it by
    name: str  # below the source's folder, with slashes
    stem: str  # the name without its extension
    extension: str


class Ignored(NamedTuple):
    """Something in a folder that is no image, caption or mask in use, with the reason."""

    path: str
    reason: str


@dataclass
class SourceFiles:
    """What a source's folders hold; every file and folder in them is in exactly one list.

    images        by stem; several under one stem are a problem
    others        images that are not read, with the reason
    captions      by the images' stems; several under one stem are a problem
    masks         by the images' stems
    orphan_masks  images that are masks of no image by their names or their folder
    orphan_captions  captions of no image
    ignored       everything else
    entries       how many files and folders there are
    """

    images: dict[str, list[FoundFile]] = field(default_factory=dict)
    others: list[tuple[FoundFile, str]] = field(default_factory=list)
    captions: dict[str, list[FoundFile]] = field(default_factory=dict)
    masks: dict[str, list[FoundFile]] = field(default_factory=dict)
    orphan_masks: list[FoundFile] = field(default_factory=list)
    orphan_captions: list[FoundFile] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    entries: int = 0


def printable(path: str) -> str:
    """A path on one line: control characters and undecodable bytes are written as escapes."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in path
    )


def find_files(source: Source) -> SourceFiles:
    """The files of a source, sorted by what they are."""
    root = _folder("folder", source.folder)
    masks = None if source.mask_folder is None else _folder("mask_folder", source.mask_folder)
    if masks == root:
        raise DatasetError(
            f"Source: {printable(root)} is the folder and the mask_folder; for masks beside their "
            "images give mask_suffix, such as '-mask'"
        )
    extension = source.caption_extension
    ending = extension.lower()
    if ending in READABLE | OTHER_IMAGES:
        raise DatasetError(
            f"Source: caption_extension={extension!r} is that of images; give '.txt'"
        )
    found = SourceFiles()
    files = list(_walk(root, root, source.recursive, masks, found))
    captions = [f for f in files if f.extension.lower() == ending]
    others = [f for f in files if f.extension.lower() != ending]
    _sort_images(others, found, source.mask_suffix)
    _sort_captions(captions, found)
    if masks is not None:
        _sort_masks(list(_walk(masks, masks, False, None, found)), found)
    return found


def _folder(what: str, path: str | os.PathLike[str]) -> str:
    if not os.path.isdir(path):
        raise DatasetError(
            f"Source: {what} {printable(os.fspath(path))!r} is not a folder; give one that exists"
        )
    return os.path.realpath(path)


def _walk(
    root: str, folder: str, recursive: bool, masks: str | None, found: SourceFiles
) -> Iterator[FoundFile]:
    """The files below a folder, by the bytes of their names; folders and hidden ones are noted.

    Links to files are as these. Whether a file can be read shows when it is.
    """
    for entry in sorted(os.scandir(folder), key=lambda e: os.fsencode(e.name)):
        if entry.is_dir(follow_symlinks=False):
            if masks is not None and os.path.realpath(entry.path) == masks:
                continue  # its files are found later
            if recursive and not entry.name.startswith("."):
                yield from _walk(root, entry.path, recursive, masks, found)
                continue
        found.entries += 1
        reason = _why_ignored(entry)
        if reason is not None:
            found.ignored.append(Ignored(entry.path, reason))
            continue
        name = os.path.relpath(entry.path, root).replace(os.sep, "/")
        stem, extension = os.path.splitext(name)
        yield FoundFile(entry.path, name, stem, extension)


def _why_ignored(entry: os.DirEntry[str]) -> str | None:
    if entry.name.startswith("."):
        return "hidden"
    if entry.is_dir(follow_symlinks=False):
        return "a folder inside, which is not searched; make it a source, or set recursive"
    if entry.is_symlink() and os.path.isdir(entry.path):
        return "a link to a folder"
    return None


def _sort_images(files: list[FoundFile], found: SourceFiles, suffix: str | None) -> None:
    """Images, and the masks beside them: those whose stems end with the suffix."""
    readable = [f for f in files if f.extension.lower() in READABLE]
    masks = [] if suffix is None else [f for f in readable if f.stem.endswith(suffix)]
    for file in readable:
        if file not in masks:
            found.images.setdefault(file.stem, []).append(file)
    for file in masks:
        stem = file.stem.removesuffix(suffix or "")
        if stem in found.images:
            found.masks.setdefault(stem, []).append(file)
        else:
            found.orphan_masks.append(file)
    for file in files:
        if file.extension.lower() in READABLE:
            continue
        if file.extension.lower() in OTHER_IMAGES:
            found.others.append((file, f"{printable(file.extension)} is not read here"))
        elif _begins_as_image(file.path):
            found.others.append((file, f"an image under the extension {file.extension!r}"))
        else:
            found.ignored.append(Ignored(file.path, "no image"))


def _begins_as_image(path: str) -> bool:
    try:
        with disk.open_to_read(path) as file:
            first = file.read(12)
    except OSError:
        return False  # and so it is listed as no image
    return first.startswith(_MAGIC) or (first[:4] == b"RIFF" and first[8:] == b"WEBP")


def _sort_captions(files: list[FoundFile], found: SourceFiles) -> None:
    stems = {*found.images, *(other.stem for other, _ in found.others)}
    for file in files:
        if file.stem in stems:
            found.captions.setdefault(file.stem, []).append(file)
        else:
            found.orphan_captions.append(file)


def _sort_masks(files: list[FoundFile], found: SourceFiles) -> None:
    """The files of a mask folder."""
    for file in files:
        if file.extension.lower() not in READABLE:
            found.ignored.append(Ignored(file.path, "in the mask folder, but no image"))
        elif file.stem in found.images:
            found.masks.setdefault(file.stem, []).append(file)
        else:
            found.orphan_masks.append(file)


def check_apart(sources: list[Source]) -> None:
    """Raise if an image would be found by two sources."""
    roots = [Path(_folder("folder", s.folder)) for s in sources]
    for i, (outer, source) in enumerate(zip(roots, sources, strict=True)):
        for j, inner in enumerate(roots):
            if i != j and (inner == outer or (source.recursive and outer in inner.parents)):
                raise DatasetError(
                    f"Source: the images in {printable(str(inner))} would be found twice, by "
                    f"sources {min(i, j)} and {max(i, j)}; give each folder once (repeats counts "
                    "images several times), or leave out recursive"
                )
