"""Whether others hold the memory of a tensor: native code and PyTorch say the same."""

import pytest
import torch

from weft.compiler.raw import references, torch_arrays
from weft.compiler.raw.arrays import arrays_on

HOLDERS = {
    "nobody": lambda x: None,
    "Python": lambda x: [x, x],
    "a view": lambda x: x[1:],
    "a view of nothing": lambda x: x[:0],
    "detach": lambda x: x.detach(),
    "a storage": lambda x: x.untyped_storage(),
    "NumPy": lambda x: x.numpy(),
    "DLPack": lambda x: x.__dlpack__(),
    "autograd": lambda x: torch.ones(4, requires_grad=True) * x,
    "a buffer": lambda x: memoryview(x.numpy()),
}
FREE = ("nobody", "Python")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_that_others_hold_is_dropped(holder, native, monkeypatch):
    assert references.alone_check() is not None
    if not native:
        monkeypatch.setattr(torch_arrays, "alone_check", lambda: None)
    arrays = arrays_on("torch")
    for _ in range(3):
        given = [torch.empty(4), None, torch.empty(4), torch.empty(())]
        held = HOLDERS[holder](given[2])
        kept = [x is not None for x in arrays.drop_shared(given)]
        assert kept == [True, False, holder in FREE, True]
        del held
        assert [x is not None for x in arrays.drop_shared(given)] == [True, False, True, True]


def test_what_is_no_tensor_is_not_looked_into():
    check = references.alone_check()
    assert check is not None and check([torch.empty(2)]) and check([]) and check([None])
    for other in (1, "a", object(), torch.nn.Parameter(torch.empty(2))):
        assert not check([other])
