"""PyTorch's database of ops: their names, their samples, and the tensors inside a sample."""

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

with warnings.catch_warnings():
    # Torch's own deprecations, raised by importing its test tree; none of ours are made here.
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

DTYPES = {"float64": torch.float64, "complex128": torch.complex128}
SEED = 20


def identifier(op: OpInfo) -> str:
    """`name` or `name/variant`, unique in the database."""
    return f"{op.name}/{op.variant_test_name}" if op.variant_test_name else op.name


OPS: dict[str, OpInfo] = {identifier(op): op for op in op_db}


def takes(name: str, dtype: str) -> bool:
    """Whether an op has samples of a dtype."""
    return DTYPES[dtype] in OPS[name].dtypes


def differentiates(name: str, dtype: str) -> bool:
    """Whether torch has a gradient of the op at a dtype."""
    op = OPS[name]
    return op.supports_autograd and DTYPES[dtype] in op.supported_backward_dtypes("cpu")


@contextmanager
def own_randomness() -> Iterator[None]:
    """Generators seeded the same every time, and put back afterwards."""
    python, numpy, own = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    yield
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(own)


def samples(name: str, dtype: str) -> list[SampleInput]:
    """All samples of an op, the same ones in every run."""
    tracked = differentiates(name, dtype)
    with warnings.catch_warnings(), own_randomness():
        warnings.simplefilter("ignore")
        return list(OPS[name].sample_inputs("cpu", DTYPES[dtype], requires_grad=tracked))


def parts(sample: SampleInput) -> tuple:
    """A sample as one tree: (input, args, kwargs)."""
    return sample.input, tuple(sample.args), dict(sample.kwargs)


def replaced(tree, kind: type, change: Callable):
    """The tree with `change` applied to every leaf of a kind."""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, list | tuple):
        return type(tree)(replaced(t, kind, change) for t in tree)
    if isinstance(tree, dict):
        return {k: replaced(t, kind, change) for k, t in tree.items()}
    if isinstance(tree, slice):
        bounds = (tree.start, tree.stop, tree.step)
        return slice(*(replaced(t, kind, change) for t in bounds))
    return tree


def tensors(tree) -> Iterator[torch.Tensor]:
    """The tensors of a tree, in order, each once."""
    found: dict[int, torch.Tensor] = {}
    replaced(tree, torch.Tensor, lambda t: found.setdefault(id(t), t))
    yield from found.values()


def described(sample: SampleInput) -> str:
    """A sample in a line: shapes for tensors, values for the rest."""

    def shape(t):
        short = "" if t.dtype in DTYPES.values() else str(t.dtype).removeprefix("torch.")
        return _Shown(f"{short}{tuple(t.shape)}")

    first, args, kwargs = replaced(parts(sample), torch.Tensor, shape)
    shown = [*map(repr, (first, *args)), *(f"{k}={v!r}" for k, v in kwargs.items())]
    return f"({', '.join(shown)})"


class _Shown(str):
    """Text whose repr has no quotes."""

    def __repr__(self) -> str:
        return str(self)
