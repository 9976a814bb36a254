"""Looking through the sources: every image becomes a sample or is listed with its problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.record import record
from ...errors import DatasetError
from .augment import crop_places
from .buckets import Box, Size, Unfit, assign_bucket, crop_box
from .folders import FoundFile, SourceFiles, check_apart, find_files, printable
from .images import Refused, decode_image, decode_mask, digest_of, read_bytes
from .report import Refusal, Sample, ScanReport
from .settings import Augmentation, BucketSettings, ScanSettings, Source

CAPTION_BYTES = 1 << 20
_LISTED = 20


@record
class Measured:
    """What a scan needs to know of an image or a mask.

    size   width and height
    shown  the smallest box with all of a mask that is not black; of images all, of black masks
           nothing
    """

    size: Size
    shown: tuple[int, int, int, int]


# (bytes, digest, whether it is a mask) -> sizes; raises Refused. A cache remembers the answers.
Measure = Callable[[bytes, str, bool], Measured]


def measure_with(settings: ScanSettings) -> Measure:
    """The function that decodes an image or a mask in order to measure it."""

    def measure(data: bytes, digest: str, is_mask: bool) -> Measured:
        image = (decode_mask if is_mask else decode_image)(data, settings)
        shown = image.getbbox() if is_mask else (0, 0, *image.size)
        return Measured(image.size, shown or (0, 0, 0, 0))

    return measure


def scan(
    sources: Sequence[Source],
    settings: ScanSettings | None = None,
    buckets: BucketSettings | None = None,
    progress: Callable[[str, int, int], Any] | None = None,
    measure: Measure | None = None,
    augmentation: Augmentation | None = None,
    stop: bool = True,
) -> ScanReport:
    """Look through folders of images; every image is used, or refused with its reason.

    sources       the folders
    settings      which images are taken; None: the defaults
    buckets       the sizes that images are given; None: the defaults
    progress      called with "scan", how many images were looked at, and how many there are
    measure       decodes an image and measures it; None: it is decoded here
    augmentation  where images are cropped, for masks; None: in the centre
    stop          whether problems at which to stop raise a `DatasetError` that lists them

    >>> import tempfile
    >>> from weft.diffusion.data import Source, scan
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     scan([Source(folder)]).images
    0
    """
    settings = ScanSettings() if settings is None else settings
    buckets = BucketSettings() if buckets is None else buckets
    measure = measure_with(settings) if measure is None else measure
    augmentation = Augmentation() if augmentation is None else augmentation
    check_apart(list(sources))
    found = [find_files(source) for source in sources]
    images = [
        (file, why, Pairing(sources[n], n, files, settings, buckets, measure, augmentation))
        for n, files in enumerate(found)
        for file, why in _images(files)
    ]
    outcomes: list[Sample | Refusal] = []
    for file, why, pairing in images:
        outcomes.append(_judge(file, why, pairing))
        if progress is not None:
            progress("scan", len(outcomes), len(images))
    report = ScanReport(
        tuple([outcome for outcome in outcomes if isinstance(outcome, Sample)]),
        tuple([outcome for outcome in outcomes if isinstance(outcome, Refusal)]),
        tuple([ignored for files in found for ignored in files.ignored]),
        captions=sum(_captions(files) for files in found),
        masks=sum(len(masks) for files in found for masks in files.masks.values()),
        entries=sum(files.entries for files in found),
    )
    if not report.adds_up():
        raise DatasetError(f"scan: files were not accounted for, which is a defect here:\n{report}")
    if stop:
        _stop(report)
    return report


def _images(files: SourceFiles) -> list[tuple[FoundFile, Refused | None]]:
    """All images of a source by name, with the problems that their names show."""
    found: list[tuple[FoundFile, Refused | None]] = []
    for stem, same in files.images.items():
        others = ", ".join(printable(f.name) for f in same)
        twice = Refused("duplicate-stem", f"{others} have one stem") if same[1:] else None
        texts = ", ".join(printable(f.name) for f in files.captions.get(stem, ()))
        if len(files.captions.get(stem, ())) > 1:
            twice = twice or Refused("duplicate-caption", f"{texts} are captions of it")
        masks = ", ".join(printable(f.name) for f in files.masks.get(stem, ()))
        if len(files.masks.get(stem, ())) > 1:
            twice = twice or Refused("duplicate-mask", f"{masks} are masks of it")
        found += [(file, twice) for file in same]
    found += [(file, Refused("unsupported-format", why)) for file, why in files.others]
    why = "a mask, but there is no image of that name"
    found += [(file, Refused("orphan-mask", why)) for file in files.orphan_masks]
    why = "a caption, but there is no image of that name"
    found += [(file, Refused("orphan-caption", why)) for file in files.orphan_captions]
    return sorted(found, key=lambda pair: pair[0].name.encode("utf-8", "surrogateescape"))


def _captions(files: SourceFiles) -> int:
    """How many files are captions, of an image or of none."""
    return sum(len(same) for same in files.captions.values()) + len(files.orphan_captions)


@record
class Pairing:
    """Where an image's caption and mask are looked for, and by what it is judged."""

    source: Source
    number: int
    files: SourceFiles
    settings: ScanSettings
    buckets: BucketSettings
    measure: Measure
    augmentation: Augmentation


def _judge(file: FoundFile, why: Refused | None, among: Pairing) -> Sample | Refusal:
    """An image as a sample, or as a refusal with what is to be done about it."""
    try:
        if why is None:
            return examine_image(file, among)
    except Refused as e:
        why = e
    action = among.settings.action(why.problem)
    return Refusal(file.path, why.problem, why.detail, among.number, action)


def examine_image(file: FoundFile, among: Pairing) -> Sample:
    """The sample of an image; raises `Refused` at its first problem."""
    data = read_bytes(file.path, among.settings.max_bytes, "unreadable", "huge")
    digest = digest_of(data)
    size = among.measure(data, digest, False).size
    bucket = assign_bucket(size, among.buckets)
    if isinstance(bucket, Unfit):
        raise Refused(*bucket)
    caption, caption_file = _caption(file, among)
    boxes = [crop_box(size, bucket, at) for at in crop_places(among.augmentation, digest)]
    mask, mask_digest = _mask(file, size, boxes, among)
    return Sample(
        *(file.path, file.name, among.number, digest, size, bucket, caption),
        caption_file=caption_file,
        mask=mask,
        mask_digest=mask_digest,
        repeats=among.source.repeats,
        weight=float(among.source.loss_weight),
        regularisation=among.source.regularisation,
    )


def _caption(file: FoundFile, among: Pairing) -> tuple[str, str | None]:
    """The caption of an image, and the file that it is from; None: the source's default."""
    files, default = among.files.captions.get(file.stem), among.source.default_caption
    if files is None:
        if default is None:
            raise Refused("missing-caption", f"no {file.stem}{among.source.caption_extension}")
        return default, None
    found = files[0]
    data = read_bytes(found.path, CAPTION_BYTES, "caption-unreadable", "caption-too-long")
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as e:
        raise Refused("caption-encoding", f"{found.name}: byte {e.start} is not UTF-8") from None
    if text:
        return text, found.path
    if default is None:
        raise Refused("empty-caption", f"{found.name} holds no text")
    return default, None


def _mask(
    file: FoundFile, size: Size, boxes: list[Box], among: Pairing
) -> tuple[str | None, str | None]:
    """The path and the digest of an image's mask, of which every crop has something."""
    masks = among.files.masks.get(file.stem)
    if not masks:
        return None, None
    path = masks[0].path
    data = read_bytes(path, among.settings.max_bytes, "mask-unreadable", "mask-unreadable")
    digest = digest_of(data)
    try:
        found = among.measure(data, digest, True)
    except Refused as e:
        raise Refused("mask-unreadable", f"{masks[0].name}: {e.detail}") from None
    if found.size != size:
        wide, high = found.size
        raise Refused("mask-size", f"{size[0]}×{size[1]}, but {masks[0].name} is {wide}×{high}")
    if found.shown == (0, 0, 0, 0):
        raise Refused("empty-mask", f"{masks[0].name} is black: nothing of the image would count")
    empty = sum(not _overlap(box, found.shown) for box in boxes)
    if empty:
        which = "the crop" if len(boxes) == 1 else f"{empty} of {len(boxes)} crops"
        raise Refused("empty-mask", f"{masks[0].name} is black in all of {which}")
    return path, digest


def _overlap(a: Box, b: Box) -> bool:
    return max(a[0], b[0]) < min(a[2], b[2]) and max(a[1], b[1]) < min(a[3], b[3])


def _stop(report: ScanReport) -> None:
    stops = [r for r in report.refused if r.action == "stop"]
    if stops:
        more = (
            f"\n  … and {len(stops) - _LISTED} more: `weft train --check`"
            if len(stops) > _LISTED
            else ""
        )
        listed = "\n  ".join(str(r) for r in stops[:_LISTED])
        raise DatasetError(
            f"scan: {len(stops)} files have problems at which to stop:\n  "
            f"{listed}{more}\nMend them, or set these problems to 'skip' (TOML: images.problems)"
        )
