"""Loading object code where memory is torn: code and constants stay in each other's reach."""

import subprocess
import sys

import pytest

# Fills the gaps of the address space, but for single pages that are 3 GiB apart: who asks for one
# page after the other gets pages that no 32-bit distance joins.
TORN = """
import ctypes, mmap
import numpy as np
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.compiler.cpu.emit_kernel import build, link

PAGE, APART, HOLES = mmap.PAGESIZE, 3 << 30, 40
NO_ACCESS, NO_RESERVE = 0, 0x4000
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def reserve(size):
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
    at = libc.mmap(None, size, NO_ACCESS, flags, -1, 0)
    assert at != ctypes.c_void_p(-1).value, ctypes.get_errno()
    return at

def tear():
    start, size = reserve(HOLES * APART), 1 << 36
    while size >= PAGE:  # what is above, from large gaps to single pages
        if reserve(size) < start:
            size //= 2
    for i in range(HOLES):
        assert libc.munmap(start + i * APART, PAGE) == 0

x = np.linspace(-3, 3, 64)
y = np.empty_like(x)
operand, step, result = Operand(x.dtype, (1,)), Step("tanh", (0,), x.dtype), Result(1, (1,))
image = build(Kernel((64,), (operand,), (step,), (result,)))
link(image)([x, y])
tear()
if abs(reserve(PAGE) - reserve(PAGE)) < APART:
    raise SystemExit("gaps are not filled from above")
y[:] = 0
link(image)([x, y])
np.testing.assert_allclose(y, np.tanh(x), rtol=1e-15)
print("linked")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's order of mappings")
def test_code_reaches_its_constants_where_free_pages_are_far_apart():
    done = subprocess.run([sys.executable, "-c", TORN], capture_output=True, text=True, timeout=120)
    if "gaps are not filled" in done.stderr:  # as without a limit of the stack
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout) == (0, "linked\n"), done.stderr
