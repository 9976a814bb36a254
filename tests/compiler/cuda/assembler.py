"""NVIDIA's assembler, where it is installed: many kernels at once, since it is slow to start."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from weft.compiler.cuda.kernels import GridKernel

PTXAS = shutil.which("ptxas")
needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed")
_FIGURES = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)


@dataclass
class Figures:
    """What the assembler says of a kernel."""

    spilled: int
    registers: int


def assemble(kernels: Sequence[GridKernel], folder: Path, sm: int = 90) -> dict[str, Figures]:
    """Assemble kernels of different names; their figures by name."""
    parts = [_alone(k.name, k.ptx) for k in {k.name: k for k in kernels}.values()]
    head = kernels[0].ptx.partition(".address_size 64")
    source = folder / "kernels.ptx"
    source.write_text(head[0] + head[1] + "\n".join(parts))
    command = [str(PTXAS), "-v", f"-arch=sm_{sm}", str(source), "-o", str(folder / "kernels.cubin")]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[:2000]
    found = _FIGURES.findall(made.stderr)
    assert len(found) == len(parts)
    return {n: Figures(int(a) + int(b), int(used)) for n, a, b, used in found}


def _alone(name: str, ptx: str) -> str:
    """A kernel without the head, with names of its own."""
    body = ptx.partition(".address_size 64")[2]
    return re.sub(r"\b(shared\d+|data\d+)\b", rf"{name}_\1", body).replace("$L__BB", f"$L{name}_")
