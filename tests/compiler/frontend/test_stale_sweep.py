"""No class of Python's library, and none of Weft's, hides a change from a compiled function.

Where `test_stale.py` has a table of values, this module makes them: of every class that a few
arguments construct it makes two values, and a function for everything that can be read of one. The
compiled function must give what the function itself gives after the first value is replaced by the
second or becomes like it, or raise.
"""

import itertools
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import weft as wf
from weft import errors

from .stale import own, standard, tensors
from .test_stale import X, alike, outcome

SOAK = bool(os.environ.get("WEFT_SOAK"))
pytestmark = pytest.mark.filterwarnings("ignore")


class Holder:
    """Where the function finds the value."""

    held: Any


REFUSED = "refused"


def is_stale(*case: Any) -> str:
    """What is wrong; nothing for "". The function reads a value, which is changed then."""
    found = judge(*case)
    return "" if found == REFUSED else found


def judge(
    make: Callable[[], Any],
    read: Callable,
    change: Callable[[Holder], None],
    device: str = "cpu",
) -> str:
    """What is wrong, "" where compiled and eager are alike, or that it is refused."""
    holder = Holder()
    holder.held = make()

    def f(x):
        return read(holder.held, x)

    x, compiled = wf.tensor(X, device=device), wf.compile(f)
    for when in ("before", "after", "again"):
        if when == "after":
            change(holder)
        found, want = outcome(compiled, x), outcome(f, x)
        if isinstance(found, type) and (when == "before" or issubclass(found, errors.WeftError)):
            return REFUSED  # or there is no program yet
        if not alike(found, want):
            return f"{when}, compiled gave {found}, eager {want}"
    return ""


def replace(make: Callable[[], Any]) -> Callable[[Holder], None]:
    def change(holder: Holder) -> None:
        holder.held = make()

    return change


_MEMORY = ("data", "strides", "shape", "dtype")  # of arrays, which do not check them


def become(make: Callable[[], Any]) -> Callable[[Holder], None]:
    """All attributes of the value are assigned those of another one."""

    def change(holder: Holder) -> None:
        other = make()
        for name in dir(other):
            if not name.startswith("_") and name not in _MEMORY:
                try:
                    setattr(holder.held, name, getattr(other, name))
                except Exception:
                    continue

    return change


def exchange_dict(make: Callable[[], Any]) -> Callable[[Holder], None]:
    def change(holder: Holder) -> None:
        try:
            holder.held.__dict__ = {**vars(make()), "tag": 7.0}
        except (AttributeError, TypeError):
            return  # it has none that can be replaced

    return change


def combinations() -> Iterator[tuple[str, Callable[[], Any], Callable, Callable[[Holder], None]]]:
    for kind in standard.classes():
        heir = standard.heir(kind)
        for k in (kind, heir) if heir is not None else (kind,):
            for one, other in standard.pairs(k):
                # What the library shares, as `np.finfo(dtype)`, is everybody's: it is not changed.
                changes = (replace, *([become, exchange_dict] if one() is not one() else []))
                for r in standard.reads_of(one()):
                    for change in changes:
                        name = f"{kind.__module__}.{kind.__qualname__}"
                        label = f"{name}{' of a user' * (k is heir)}: {r.text}, {change.__name__}"
                        yield label, one, standard.reader(r), change(other)


def is_telling(
    make: Callable[[], Any],
    read: Callable,
    change: Callable[[Holder], None],
    device: str = "cpu",
) -> bool:
    """Whether the function itself gives another result after the change."""
    x, results = wf.tensor(X, device=device), []
    holder = Holder()
    holder.held = make()
    for k in range(2):
        if k:
            change(holder)
        results.append(outcome(lambda x: read(holder.held, x), x))
    return not alike(*results)


def _wrong(cases: list[tuple[str, Any, Any, Any]], refused: float = 1) -> list[str]:
    """What is wrong in each case; so many of them at most may be refused, as a share."""
    found = [(label, judge(*case)) for label, *case in cases]
    assert sum([why == REFUSED for _, why in found]) <= refused * len(cases)
    return [f"{label}: {why}" for label, why in found if why not in ("", REFUSED)]


def test_classes_of_the_standard_library():
    every = [*combinations()]
    random.Random(0).shuffle(every)
    telling = (c for c in every if is_telling(*c[1:]))
    cases = [*telling] if SOAK else [*itertools.islice(telling, 600)]
    assert len(cases) >= 600
    assert _wrong(cases, refused=0.2) == []


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("name", tensors.FACETS)
def test_what_is_read_of_a_tensor_that_is_replaced(name, device):
    before, after, facet = tensors.FACETS[name]

    def read(t, x):
        return x * facet(t)

    change = replace(partial(after, device))
    assert is_telling(partial(before, device), read, change, device)
    assert is_stale(partial(before, device), read, change, device) == ""


@pytest.mark.parametrize("name", own.OWN)
def test_objects_of_weft(name):
    """Everything public is read, and the expressions of the table; each change is made."""
    make, changes, further = own.OWN[name]
    attributes = [n for n in dir(make()) if n.isidentifier() and not n.startswith("_")]
    reads = [standard.Read(text, text) for text in (*further, *[f"v.{n}" for n in attributes])]
    every = [*map(_mutation, changes), replace(_after(make, changes))]
    cases = [
        (f"{r.text}, change {k}", make, standard.reader(r, KEY=own.KEY), change)
        for r in reads
        for k, change in enumerate(every)
    ]
    assert _wrong([c for c in cases if is_telling(*c[1:])]) == []


def _mutation(change: Callable[[Any], Any]) -> Callable[[Holder], None]:
    return lambda holder: change(holder.held)


def _after(make: Callable[[], Any], changes: list[Callable[[Any], Any]]) -> Callable[[], Any]:
    """Another object, which has been changed."""

    def changed() -> Any:
        other = make()
        changes[0](other)
        return other

    return changed


@pytest.mark.parametrize("reads", ["nothing", "parameters", "another setting"])
def test_a_learning_rate_that_only_the_step_reads_may_change(reads):
    def step(x):
        optimizer.zero_grad()
        if reads == "parameters":
            norms = [p.size for g in optimizer.param_groups for p in g["params"]]
        elif reads == "another setting":
            norms = [optimizer.param_groups[0]["momentum"]]
        else:
            norms = [1.0]
        ((p * x).sum() * sum(norms)).backward()
        optimizer.step()

    p = wf.Parameter(wf.tensor([1.0, 2.0]))
    optimizer = wf.optim.SGD([p], lr=0.5, momentum=0.5)
    compiled = wf.compile(step)
    for rate in (0.5, 0.25, 0.125):
        optimizer.set_lr(rate)
        compiled(wf.tensor(1.0))
        optimizer.param_groups[0]["lr"] = rate / 8
        compiled(wf.tensor(1.0))
    assert len(compiled.recompilations) == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda o: o.param_groups[0].update(lr=1.0),
        lambda o: o.param_groups[0].__setitem__("lr", 1.0),
        lambda o: o.param_groups.append({}),
        lambda o: o.set_lr(1.0),
        lambda o: o.add_param_group({"params": [wf.Parameter(1.0)]}),
    ],
)
def test_settings_are_not_changed_inside(write):
    optimizer = own.optimizer()

    def f(x):
        write(optimizer)
        return x

    with pytest.raises(errors.StagingError, match="once, not at each call"):
        wf.compile(f)(wf.tensor(1.0))
