"""Nothing grows with the number of calls: no container of a module, no objects, no memory."""

import gc
import os
import subprocess
import sys
import threading
import types
from copy import deepcopy
from pathlib import Path
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np
import pytest

import weft as wf

SOAK = os.environ.get("WEFT_SOAK") == "1"
TIMES = 200 if SOAK else 12
CONTAINERS = (dict, list, set, WeakSet, WeakKeyDictionary, WeakValueDictionary)
nn, F = wf.nn, wf.nn.functional


def sizes() -> dict[str, int]:
    """How much each container and cache of our modules holds, also those of their classes."""
    found = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith("weft") or not isinstance(module, types.ModuleType):
            continue
        holders = [(name, module)]
        holders += [(f"{name}.{k}", v) for k, v in vars(module).items() if isinstance(v, type)]
        for where, holder in holders:
            for key, value in list(vars(holder).items()):
                if isinstance(value, CONTAINERS) and value is not sys.modules:
                    found[f"{where}.{key}"] = len(value)
                elif hasattr(value, "cache_info") and value.cache_info().maxsize is None:
                    found[f"{where}.{key}"] = value.cache_info().currsize
    return found


def vector(n: int = 3):
    return wf.tensor(np.linspace(0.5, 1.5, n), requires_grad=True)


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout(0.1))


def stepped(compiled: bool, scaled: bool = False):
    net = model()
    optimizer = wf.optim.AdamW(net.parameters(), lr=0.01)
    scaler = wf.amp.GradScaler() if scaled else None
    x = wf.ones((5, 3))

    def step(x):
        optimizer.zero_grad()
        loss = (net(x) ** 2).sum()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return loss

    call = wf.compile(step) if compiled else step
    call(x)
    call(x)


def trained(compiled: bool):
    net = nn.Linear(3, 1)
    data = wf.train.DataLoader((wf.ones((8, 3)), wf.ones((8, 1))), batch_size=4)
    optimizer = wf.optim.SGD(net.parameters(), lr=0.01)
    trainer = wf.train.Trainer(net, optimizer, nn.MSELoss(), compile=compiled, progress=False)
    trainer.fit(data, epochs=1)


def in_a_thread():
    other = threading.Thread(target=lambda: (vector() ** 2).sum().backward())
    other.start()
    other.join()


def custom():
    @wf.custom_op
    def double(x):
        return x * 2

    double.def_vjp(lambda g, inputs, output: (g * 2,))
    return wf.grad(lambda x: double(x).sum())(vector())


def written():
    buffer = wf.zeros((4, 3))
    wf.add(buffer, 1.0, out=buffer)
    buffer[0] = 2.0


def assigned():
    p = wf.tensor([1.0, 2.0])
    wf.compile(lambda x: p.copy_(p + x))(wf.ones((2,)))


ENTRIES = {
    "backward": lambda: (vector() ** 2).sum().backward(),
    "out=": written,
    "tape": lambda: _taped(),
    "grad": lambda: wf.grad(lambda x: (x**2).sum())(vector()),
    "grad of grad": lambda: wf.grad(lambda x: wf.grad(lambda y: (y**3).sum())(x).sum())(vector()),
    "jvp": lambda: wf.jvp(lambda x: wf.sin(x), (vector(),), (wf.ones((3,)),)),
    "vmap": lambda: wf.vmap(lambda x: wf.sin(x).sum())(wf.ones((4, 3))),
    "jacobian": lambda: wf.jacobian(lambda x: wf.sin(x) * x.sum())(vector()),
    "hessian": lambda: wf.hessian(lambda x: (x**3).sum())(vector()),
    "checkpoint": lambda: wf.checkpoint(lambda x: wf.sin(x))(vector()).sum().backward(),
    "scan": lambda: wf.scan(lambda c, x: (c + x, c), wf.zeros(()), wf.ones((3,))),
    "compile": lambda: wf.compile(lambda x: wf.sin(x) + 1)(wf.ones((3,))),
    "compile with found tensors": assigned,
    "compile, then differentiate": lambda: wf.compile(lambda x: (x**2).sum())(vector()).backward(),
    "compile a loop": lambda: wf.compile(
        lambda x: wf.while_loop(lambda s: s.sum() < 9, lambda s: s + 1, x)
    )(wf.ones((3,))),
    "compile other shapes": lambda: _shapes(),
    "a custom operation": custom,
    "an eager step": lambda: stepped(False),
    "a compiled step": lambda: stepped(True),
    "a scaled step": lambda: stepped(False, True),
    "a compiled scaled step": lambda: stepped(True, True),
    "a thread": in_a_thread,
    "draws": lambda: wf.randn((4,)),
    "deep copy": lambda: deepcopy(model()),
    "numpy": lambda: np.sin(wf.ones((3,))) + np.ones(3),
    "errors": lambda: _failed(),
}


def _taped():
    x = vector()
    with wf.GradientTape() as tape:
        tape.watch(x)
        y = (x * x).sum()
    return tape.gradient(y, x)


def _shapes():
    f = wf.compile(lambda x: x * 2)
    return [f(wf.ones((n,))) for n in (1, 2, 3)]


def _failed():
    f = wf.compile(lambda x: wf.ones((3,)) @ x)
    with pytest.raises(wf.errors.ShapeError):
        f(wf.ones((4,)))


def counted() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_leave_nothing(name):
    entry = ENTRIES[name]
    for _ in range(TIMES):  # modules are loaded, and caches filled, after some calls
        entry()
    sizes()  # looking around loads modules, too
    for _ in range(3):  # what grows by each call grows again; a cache that filled late does not
        grown, more = growth(entry)
        if not grown and more < TIMES:
            return
    assert not grown
    assert more < TIMES, f"{more} objects more after {TIMES} times"


def growth(entry) -> tuple[dict[str, tuple[int, int]], int]:
    """The containers that grew by half an item a call, and how many objects there are more."""
    objects, before = counted(), sizes()
    for _ in range(TIMES):
        entry()
    more, now = counted() - objects, sizes()
    few = TIMES // 2
    return {k: (before.get(k, 0), n) for k, n in now.items() if n - before.get(k, 0) >= few}, more


def test_what_each_call_leaves_is_found():
    kept = []
    _, more = growth(lambda: kept.append([[]]))
    assert more >= TIMES


DROPPING = """
import gc, os, sys
import weft as wf

def drop(count):
    for _ in range(count):
        wf.compile(lambda x: x * 2.0 + 1.0)(wf.ones((4,)))
    gc.collect()
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

times = int(sys.argv[1])
sizes = [drop(times // 2), *[drop(times) for _ in range(int(sys.argv[2]))]]
print(min(b - a for a, b in zip(sizes, sizes[1:])))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="a thing of Linux")
def test_compiled_functions_that_are_dropped_leave_no_memory():
    """Before, each left 9.4 kB in LLVM's linker.

    The heap grows by a MB or two at times; a leak shows in every stretch of so many functions.
    """
    times, stretches = (30_000, 1) if SOAK else (300, 3)
    program = [sys.executable, "-c", DROPPING, str(times), str(stretches)]  # its memory alone
    grown = int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)
    assert grown < times * 2048 + (1 << 20), f"{grown / times:.0f} bytes for each function"


def test_a_function_that_is_dropped_while_it_runs():
    """Its code stays until the call ends."""
    f = wf.compile(lambda n: wf.while_loop(lambda s: s < n, lambda s: s + 1.0, wf.zeros_like(n)))
    results = []
    call = threading.Thread(target=lambda f: results.append(f(wf.tensor(1e7)).item()), args=(f,))
    call.start()
    del f
    while call.is_alive():
        gc.collect()
    assert results == [1e7]
