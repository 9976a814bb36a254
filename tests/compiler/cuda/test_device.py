"""Kernels on their way to a GPU: by LLVM and the driver in threads, from the disk after that."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from weft.compiler.cuda import device, driver
from weft.compiler.cuda.device import NvidiaGpu
from weft.compiler.cuda.gpu import GridWork
from weft.compiler.cuda.kernels import build_kernel
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.compiler.raw.arrays import arrays_on
from weft.core import dtypes
from weft.errors import DeviceError

ROWS = ("exp", "sin", "log", "tanh", "sqrt", "negative", "abs", "expm1", "atan", "sinh")


def kernel_of(row: str, n: int) -> Kernel:
    operand, step = Operand(dtypes.float32, (1,)), Step(row, (0,), dtypes.float32)
    return Kernel((n,), (operand,), (step,), (Result(1, (1,)),))


KERNELS = [kernel_of(row, n) for row in ROWS for n in (1 << 6, 1000, 1 << 20)]


class Card(NvidiaGpu):
    """A card whose driver only counts; see `driven`."""

    def __init__(self):
        self._context = None
        self.name, self.index, self.sm = "torch", 0, 90
        self.arrays, self._loaded = arrays_on("torch"), {}

    def current(self):
        return nullcontext()


class Driver:
    """What the driver was asked for: texts that it assembled, and images that it loaded."""

    def __init__(self):
        self.assembled, self.loaded = [], []

    def assemble(self, kernel, within):
        self.assembled.append(kernel.ptx)
        return b"image of " + kernel.ptx.encode()

    def Function(self, image, name):
        self.loaded.append(image.removeprefix(b"image of ").decode())
        return object()


@pytest.fixture
def driven(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "objects"))
    found = Driver()
    monkeypatch.setattr(driver, "assemble", found.assemble)
    monkeypatch.setattr(driver, "Function", found.Function)
    monkeypatch.setattr(driver, "enter", lambda within: None)
    monkeypatch.setattr(driver, "version", lambda: 13000)
    return found


def test_threads_make_the_same_text_as_one():
    alone = [build_kernel(k) for k in KERNELS]
    for _ in range(3):
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(build_kernel, KERNELS)) == alone


def test_each_kernel_is_compiled_once_and_kept(driven):
    works = [GridWork(k, 16) for k in KERNELS]
    texts = [build_kernel(k).ptx for k in KERNELS]
    made = Card().functions([*works, *works])
    assert not made.from_disk and [*made.launches] == works
    assert sorted(driven.assembled) == sorted(texts) and driven.loaded == texts
    card = Card()
    assert card.functions(works).from_disk and card.functions(works[:3]).from_disk
    assert len(driven.assembled) == len(texts) and driven.loaded == texts * 2


def test_machine_code_that_is_lost_is_made_of_the_text(driven, monkeypatch):
    works = [GridWork(k, 16) for k in KERNELS[:4]]
    Card().functions(works)
    monkeypatch.setattr(driver, "version", lambda: 13010)
    monkeypatch.setattr(GridWork, "emit", lambda work: pytest.fail("the text is there"))
    assert not Card().functions(works).from_disk
    assert (
        len(driven.assembled) == 8
        and driven.loaded == [build_kernel(k).ptx for k in KERNELS[:4]] * 2
    )


def test_other_constants_are_other_kernels(driven, monkeypatch):
    works = [GridWork(k, 16) for k in KERNELS]
    Card().functions(works)
    monkeypatch.setattr("weft.compiler.cuda.flat.BLOCK", 64)
    assert not Card().functions(works).from_disk
    assert len(driven.assembled) > len(works)


def test_an_error_of_the_driver_ends_all(driven, monkeypatch):
    def refuse(kernel, within):
        raise DeviceError("compile: the driver does not assemble")

    monkeypatch.setattr(driver, "assemble", refuse)
    with pytest.raises(DeviceError, match="does not assemble"):
        Card().functions([GridWork(k, 16) for k in KERNELS])
    assert not driven.loaded and device._COMPILERS > 1
