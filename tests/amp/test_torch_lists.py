"""The table's columns beside PyTorch's own lists of what autocast does.

The lists are those that PyTorch's tests go by. Its list for CUDA is the longer one, and ours; where
the list for the CPU says the same, `torch.autocast("cpu")` itself is asked.
"""

import inspect
import warnings

import pytest
import torch
from torch.testing._internal.autocast_test_lists import AutocastCPUTestLists, AutocastTestLists

import weft as wf

from .devices import DEVICES

SECTIONS = {
    "torch_fp16": "half",
    "torch_16": "half",
    "nn_fp16": "half",
    "nn_16": "half",
    "linalg_fp16": "half",
    "methods_fp16": "half",
    "torch_fp32": "single",
    "nn_fp32": "single",
    "methods_fp32": "single",
    "torch_need_autocast_promote": "widest",
    "torch_expect_builtin_promote": "widest",
    "methods_expect_builtin_promote": "widest",
}
# PyTorch's names of what has another one here, or goes by an operator.
NAMES = {
    "cat": lambda xs, *how: wf.concat(xs, *how),
    "mm": wf.matmul,
    "mv": wf.matmul,
    "bmm": wf.matmul,
    "chain_matmul": lambda *xs: wf.linalg.multi_dot(xs),
    "__matmul__": lambda a, b: a @ b,
    "__pow__": lambda a, b: a**b,
    "__add__": lambda a, b: a + b,
    "__mul__": lambda a, b: a * b,
    "norm": lambda x, p=None, dim=None: wf.linalg.vector_norm(x, axis=dim),
    "addmm": lambda c, a, b: wf.nn.functional.linear(a, b.T, c[0]),
}
# What is not the same, and why.
DIFFERENT = {
    "dot": "a sum of products like any other: in the half type",
    "vdot": "likewise",
    "tensordot": "likewise",
    "equal": "element by element here",
    "einsum": "the list gives its arguments in another form: below",
    "scatter_add": "a sum: in float32",
    "avg_pool3d": "in float32 on PyTorch's CPU only, where it has no kernel",
    "dist": "wf.dist joins processes",
    "poisson_nll_loss": "the list gives the C++ function's arguments: below",
    "hinge_embedding_loss": "the list's shapes broadcast: below",
    "margin_ranking_loss": "likewise",
}


def listed():
    """(list, section, name, arguments, keywords) of every operation that we have too."""
    for lists in (AutocastTestLists, AutocastCPUTestLists):
        for section, items in vars(lists(torch.device("cpu"))).items():
            for name, args, *more in items if section in SECTIONS else ():
                keywords = more[0] if more and isinstance(more[0], dict) else {}
                if ours(name) is not None and name not in DIFFERENT:
                    case = (lists.__name__, section, name, args, keywords)
                    yield pytest.param(*case, id=f"{lists.__name__}-{section}-{name}")


def ours(name: str):
    if name in NAMES:
        return NAMES[name]
    short = name.removeprefix("linalg_")
    for space in (wf.nn.functional, wf, wf.linalg):
        if short in space.__all__:
            return getattr(space, short)
    return None


CASES = list(listed())


def test_the_lists_were_read():
    names = {case.values[2] for case in CASES}
    assert len(names) >= 60
    assert {"matmul", "conv2d", "lstm_cell", "exp", "softmax", "layer_norm", "mse_loss"} <= names


def converted(x, device: str):
    if isinstance(x, torch.Tensor):
        return (
            wf.asarray(x.detach().numpy() if x.dtype != torch.bfloat16 else x.float().numpy())
            .to(str(x.dtype).removeprefix("torch."))
            .to(device)
        )
    return type(x)(converted(v, device) for v in x) if isinstance(x, list | tuple) else x


def expected(section: str, args) -> object:
    kind = SECTIONS[section]
    if kind == "widest":
        found = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
        return wf.float32 if torch.float32 in {x.dtype for x in found} else None
    return wf.bfloat16 if kind == "half" else wf.float32


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("lists", "section", "name", "args", "keywords"), CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_dtype_is_the_lists(lists, section, name, args, keywords, device):
    with wf.amp.autocast("bfloat16"):
        y = ours(name)(*converted(list(args), device), **keywords)
    y = y[0] if isinstance(y, tuple) else y
    assert y.dtype == expected(section, args)


# Where PyTorch's CPU does not do what its list for CUDA says.
ONLY_ON_CUDA = {
    *"acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow".split(),
    *"softmax log_softmax layer_norm rms_norm group_norm norm cosine_similarity cumprod".split(),
    *"cumsum sum logsumexp softplus lstm_cell gru_cell mv __pow__".split(),
}
SAME = [
    case for case in CASES if case.values[2] not in ONLY_ON_CUDA and "promote" not in case.values[1]
]


@pytest.mark.parametrize(("lists", "section", "name", "args", "keywords"), SAME)
def test_the_dtype_is_that_of_torch_on_the_cpu(lists, section, name, args, keywords):
    spaces = (torch._C._nn, torch, torch.linalg, torch.Tensor)
    short = name.removeprefix("linalg_")
    call = next(getattr(s, short) for s in spaces if hasattr(s, short))
    with torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        z = call(*args, **keywords)
    with wf.amp.autocast("bfloat16"):
        y = ours(name)(*converted(list(args), "cpu"), **keywords)
    y, z = (v[0] if isinstance(v, tuple) else v for v in (y, z))
    assert f"torch.{y.dtype.name}" == str(z.dtype)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch's list for CUDA needs a GPU")
@pytest.mark.parametrize(("lists", "section", "name", "args", "keywords"), CASES)
def test_the_dtype_is_that_of_torch_on_the_gpu(lists, section, name, args, keywords):
    if lists != "AutocastTestLists":
        pytest.skip("the list for the CPU")
    spaces = (torch._C._nn, torch, torch.linalg, torch.Tensor)
    short = name.removeprefix("linalg_")
    call = next(getattr(s, short) for s in spaces if hasattr(s, short))
    there = torch.utils._pytree.tree_map(
        lambda x: x.cuda() if isinstance(x, torch.Tensor) else x, list(args)
    )
    with torch.autocast("cuda", torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        z = call(*there, **keywords)
    with wf.amp.autocast("bfloat16"):
        y = ours(name)(*converted(list(args), "cuda"), **keywords)
    y, z = (v[0] if isinstance(v, tuple) else v for v in (y, z))
    assert f"torch.{y.dtype.name}" == str(z.dtype)


LOSSES = [
    name
    for name, f in vars(wf.nn.functional).items()
    if name.endswith("loss") and list(inspect.signature(f).parameters)[:2] == ["input", "target"]
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_half_types_are_computed_in_float32(name, reduction):
    x = wf.tensor([[0.5, 0.25], [0.75, 0.5]])
    t = wf.tensor([1, 0]) if name == "nll_loss" else wf.tensor([[0.25, 1.0], [1.0, 0.5]])
    more = (wf.ones((2, 2)),) if name == "gaussian_nll_loss" else ()
    loss = getattr(wf.nn.functional, name)
    exact = loss(x, t, *more, reduction=reduction)
    half = [v.to("float16") if v.dtype == wf.float32 else v for v in (x, t, *more)]
    with wf.amp.autocast("float16"):
        found = loss(*half, reduction=reduction)
    assert found.dtype == wf.float32
    assert found.tolist() == exact.tolist()  # the numbers are exact in float16


def test_a_loss_that_would_overflow_in_float16():
    x, t = wf.tensor([60000.0], dtype="float16"), wf.tensor([-60000.0], dtype="float16")
    with wf.amp.autocast("float16"):
        found = wf.nn.functional.huber_loss(x, t, delta=10.0)
    assert found.item() == 10.0 * (120000.0 - 5.0)


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"])
def test_a_bias_goes_with_its_convolution(name):
    axes = int(name[-2])
    args = [torch.ones((1, 2, *(4,) * axes)), torch.ones((2, 2, *(3,) * axes)), torch.ones(2)]
    with torch.autocast("cpu", torch.bfloat16):
        assert getattr(torch.nn.functional, name)(*args).dtype == torch.bfloat16
    with wf.amp.autocast("bfloat16"):
        y = getattr(wf.nn.functional, name)(*converted(args, "cpu"))
    assert y.dtype == wf.bfloat16


def test_einsum_and_attention():
    q = wf.ones((1, 1, 2, 4))
    with wf.amp.autocast("float16"):
        assert wf.einsum("ij,jk->ik", q[0, 0], q[0, 0].T).dtype == wf.float16
        assert wf.nn.functional.scaled_dot_product_attention(q, q, q).dtype == wf.float16
