"""Folders with random good and bad files, and what a scan must say of each."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

SIZES = [(96, 96), (128, 64), (64, 128), (100, 75), (301, 200), (64, 200)]


def picture(rng, size, mode="RGB") -> Image.Image:
    """Random pixels; smooth, so that JPEG has something to do."""
    w, h = size
    coarse = rng.integers(0, 256, (h // 8 + 1, w // 8 + 1, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert(mode)


def with_caption(path: Path, text="a thing") -> None:
    path.with_suffix(".txt").write_text(text, encoding="utf-8")


def png_header(width: int, height: int) -> bytes:
    """A small PNG file that announces a large image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(10_000)))
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


class Maker:
    """Writes files of many kinds; `expected` has what a scan must say of each path."""

    def __init__(self, root: Path, rng):
        self.root, self.rng, self.expected = root, rng, {}
        self.made = 0
        root.mkdir(parents=True)

    def name(self, extension: str, stem: str | None = None) -> Path:
        self.made += 1
        return self.root / f"{stem or 'f'}{self.made:03d}{extension}"

    def size(self):
        return SIZES[self.rng.integers(len(SIZES))]

    def expect(self, path, what, caption=True) -> None:
        self.expected[str(path)] = what
        if caption:
            with_caption(path)
            self.expected[str(path.with_suffix(".txt"))] = "caption"

    def good(self, extension=".png", mode="RGB", **options) -> Path:
        path = self.name(extension)
        picture(self.rng, self.size(), mode).save(path, **options)
        self.expect(path, "used")
        return path

    def jpeg(self):
        self.good(self.rng.choice([".jpg", ".JPEG", ".jfif"]), format="JPEG")

    def cmyk(self):
        self.good(".jpg", "CMYK")

    def lossless(self):
        self.good(self.rng.choice([".webp", ".bmp", ".tiff", ".PNG"]))

    def modes(self):
        self.good(".png", self.rng.choice(["1", "L", "P", "LA", "RGBA"]))

    def sixteen(self):
        path = self.name(".png")
        w, h = self.size()
        Image.fromarray(self.rng.integers(0, 65536, (h, w), dtype=np.uint16)).save(path)
        self.expect(path, "used")

    def single_gif(self):
        self.good(".gif", "P")

    def odd_name(self):
        stems = [
            b"line\nbreak",
            b"\x1b[31mred",
            b"\xff\xfe",
            b"[bold]",
            b"sp ace",
            b"..dots",
            b"-rf",
        ]
        stem = stems[self.rng.integers(len(stems))] + str(self.made).encode()
        self.made += 1
        if stem.startswith(b"."):
            stem = b"x" + stem
        path = Path(os.fsdecode(os.path.join(os.fsencode(self.root), stem + b".png")))
        picture(self.rng, self.size()).save(path)
        self.expect(path, "used")

    def masked(self):
        path = self.good()
        mask = path.with_name(f"{path.stem}-mask.png")
        with Image.open(path) as image:
            picture(self.rng, image.size, "L").save(mask)
        self.expected[str(mask)] = "mask"

    def black_mask(self):
        path = self.good()
        mask = path.with_name(f"{path.stem}-mask.png")
        with Image.open(path) as image:
            Image.new("L", image.size, 0).save(mask)
        self.expected |= {str(mask): "mask", str(path): "empty-mask"}

    def wrong_mask(self):
        path = self.good()
        mask = path.with_name(f"{path.stem}-mask.png")
        picture(self.rng, (31, 17), "L").save(mask)
        self.expected |= {str(mask): "mask", str(path): "mask-size"}

    def broken_mask(self):
        path = self.good()
        mask = path.with_name(f"{path.stem}-mask.png")
        mask.write_bytes(b"no mask")
        self.expected |= {str(mask): "mask", str(path): "mask-unreadable"}

    def two_masks(self):
        path = self.good()
        for extension in ("png", "bmp"):
            mask = path.with_name(f"{path.stem}-mask.{extension}")
            picture(self.rng, (8, 8), "L").save(mask)
            self.expected[str(mask)] = "mask"
        self.expected[str(path)] = "duplicate-mask"

    def lonely_mask(self):
        path = self.name("-mask.png")
        picture(self.rng, (64, 64)).save(path)
        self.expect(path, "orphan-mask", caption=False)

    def truncated(self):
        extension = self.rng.choice([".png", ".jpg", ".webp", ".bmp"])
        path = self.name(extension)
        picture(self.rng, (200, 200)).save(path)
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * self.rng.uniform(0.3, 0.7))])
        self.expect(path, {"truncated", "unreadable"})

    def flipped_bytes(self):
        """PNG's checksums see any changed byte of the pixels."""
        path = self.name(".png")
        picture(self.rng, (64, 64)).save(path)
        data = bytearray(path.read_bytes())
        data[self.rng.integers(60, len(data) - 20)] ^= 1 << self.rng.integers(8)
        path.write_bytes(data)
        self.expect(path, {"truncated", "unreadable"})

    def no_image(self):
        path = self.name(self.rng.choice([".png", ".jpg", ".tif"]))
        path.write_bytes(self.rng.bytes(self.rng.integers(0, 200)))
        self.expect(path, {"truncated", "unreadable"})

    def bomb(self):
        path = self.name(".png")
        sizes = [(30_000, 30_000), ((1 << 31) - 1, 9000), (9000, 60_000), (2500, 2000)]
        w, h = sizes[self.rng.integers(4)]
        path.write_bytes(png_header(w, h))
        self.expect(path, "huge")

    def animated(self):
        extension = self.rng.choice([".gif", ".webp", ".png"])
        path = self.name(extension)
        frames = [picture(self.rng, (96, 96)) for _ in range(3)]
        frames[0].save(path, save_all=True, append_images=frames[1:])
        self.expect(path, "animated")

    def phone(self):
        """A .jpg of two pictures, of which the first is the photograph."""
        path = self.name(".jpg")
        frames = [picture(self.rng, (96, 96)) for _ in range(2)]
        frames[0].save(path, format="MPO", save_all=True, append_images=frames[1:])
        self.expect(path, "used")

    def text_bomb(self):
        """A PNG with a text that takes a thousand times its file."""
        path = self.name(".png")
        picture(self.rng, (64, 64)).save(path)
        data = path.read_bytes()
        kind, text = b"zTXt", b"a\0\0" + zlib.compress(bytes(80_000_000))
        chunk = struct.pack(">I", len(text)) + kind + text
        path.write_bytes(data[:33] + chunk + struct.pack(">I", zlib.crc32(kind + text)) + data[33:])
        self.expect(path, "unreadable")

    def small(self):
        path = self.name(".png")
        picture(self.rng, (40, 40)).save(path)
        self.expect(path, "too-small")

    def thin(self):
        path = self.name(".png")
        picture(self.rng, [(1, 10_000), (10_000, 1)][self.rng.integers(2)]).save(path)
        self.expect(path, "too-small")

    def panorama(self):
        path = self.name(".png")
        picture(self.rng, (2000, 64)).save(path)
        self.expect(path, "aspect")

    def floats(self):
        path = self.name(".tif")
        Image.fromarray(np.ones((70, 70), np.float32)).save(path)
        self.expect(path, "unsupported-mode")

    def uncaptioned(self):
        path = self.name(".png")
        picture(self.rng, self.size()).save(path)
        self.expect(path, "missing-caption", caption=False)

    def captions(self):
        contents = {
            "empty-caption": b" \n\t\xef\xbb\xbf"[: self.rng.integers(4)],
            "caption-encoding": b"caf\xe9",
            "caption-too-long": b"word " * 300_000,
        }
        problem = list(contents)[self.rng.integers(3)]
        path = self.good()
        path.with_suffix(".txt").write_bytes(contents[problem])
        self.expected[str(path)] = problem

    def duplicate(self):
        path = self.good()
        other = path.with_suffix(".jpg")
        picture(self.rng, self.size()).save(other)
        self.expected |= {str(path): "duplicate-stem", str(other): "duplicate-stem"}

    def other_format(self):
        path = self.name(self.rng.choice([".heic", ".PSD", ".svg"]))
        path.write_bytes(b"whatever")
        self.expect(path, "unsupported-format")

    def misnamed(self):
        path = self.name(".dat")
        picture(self.rng, (64, 64)).save(path, format=self.rng.choice(["PNG", "JPEG", "WEBP"]))
        self.expect(path, "unsupported-format", caption=False)

    def stray(self):
        kind = self.rng.integers(4)
        path = self.name([".json", "", ".npz", ".md"][kind])
        path.write_bytes(b"{}")
        self.expected[str(path)] = "ignored"

    def hidden(self):
        path = self.root / f".hidden{self.made}.png"
        self.made += 1
        picture(self.rng, (64, 64)).save(path)
        self.expected[str(path)] = "ignored"

    def folder(self):
        path = self.name(self.rng.choice(["", ".png", ".txt"]))
        path.mkdir()
        picture(self.rng, (64, 64)).save(path / "inside.png")
        self.expected[str(path)] = "ignored"

    def link(self):
        outside = self.root.parent / f"outside{self.made}.png"
        picture(self.rng, (64, 64)).save(outside)
        path = self.name(".png")
        targets = {
            outside: "used",
            "/etc/passwd": {"unreadable", "truncated"},
            "/dev/zero": "unreadable",
            "nothing": "unreadable",
            path.name: "unreadable",
            self.root.parent: "ignored",
        }
        target = list(targets)[self.rng.integers(len(targets))]
        path.symlink_to(target)
        self.expect(path, targets[target], caption=targets[target] != "ignored")

    def linked_caption(self):
        """The text of another folder, or none that there is."""
        path = self.good()
        caption = path.with_suffix(".txt")
        caption.unlink()
        outside = self.root.parent / f"text{self.made}"
        outside.write_text("a thing from afar")
        there = self.rng.random() < 0.5
        caption.symlink_to(
            outside if there else ["nothing", caption.name, "/dev/zero"][self.made % 3]
        )
        self.expected[str(path)] = "used" if there else "caption-unreadable"

    def linked_mask(self):
        path = self.good()
        mask, outside = path.with_name(f"{path.stem}-mask.png"), self.root.parent / "mask.png"
        with Image.open(path) as image:
            picture(self.rng, image.size, "L").save(outside := outside.with_stem(f"m{self.made}"))
        there = self.rng.random() < 0.5
        mask.symlink_to(outside if there else ["nothing", mask.name, "/dev/zero"][self.made % 3])
        self.expected |= {str(mask): "mask", str(path): "used" if there else "mask-unreadable"}

    def loud_caption(self):
        path = self.good()
        path.with_suffix(".txt").rename(path.with_suffix(".TXT"))
        self.expected[str(path.with_suffix(".TXT"))] = self.expected.pop(
            str(path.with_suffix(".txt"))
        )

    def two_captions(self):
        path = self.good()
        path.with_suffix(".Txt").write_text("another")
        self.expected |= {str(path.with_suffix(".Txt")): "caption", str(path): "duplicate-caption"}

    def lonely_caption(self):
        path = self.name(str(self.rng.choice([".txt", ".TXT"])))
        path.write_text("a thing")
        self.expected[str(path)] = "orphan-caption"

    def inner_link(self):
        target = self.good()
        path = self.name(".png")
        path.symlink_to(target.name)
        self.expect(path, "used")

    def pipe(self):
        path = self.name(".png")
        os.mkfifo(path)
        self.expect(path, "unreadable")


KINDS = [name for name, f in vars(Maker).items() if callable(f) and not name.startswith("_")]
KINDS = [name for name in KINDS if name not in ("name", "size", "expect", "good")]


def random_folder(root: Path, seed: int, files: int) -> dict:
    """Fill a folder; what a scan must say of each path in it."""
    maker = Maker(root, np.random.default_rng(seed))
    for kind in maker.rng.choice(KINDS, files):
        getattr(maker, kind)()
    return maker.expected
