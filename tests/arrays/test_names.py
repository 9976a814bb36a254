"""Every name that MISSION's sections 1 to 3 promise is there, as a function and as a method."""

import subprocess
import sys

import numpy as np
import pytest

import weft as wf
from weft import errors

ARITHMETIC = """
    add sub mul div floordiv mod pow neg abs sign square sqrt rsqrt cbrt exp exp2 expm1 log log2
    log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc erfinv
    lgamma digamma polygamma gamma beta betaln i0 i1 j0 j1 expit logit xlogy logaddexp maximum
    minimum clip where floor ceil round hypot real imag conj angle
"""
SHAPE = """
    reshape permute_dims transpose squeeze expand_dims broadcast_to flip roll tile repeat stack
    concat split chunk index_select gather take take_along_axis scatter scatter_add put pad diag
    tril triu astype clone sliding_window embedding one_hot
"""
REDUCTIONS = """
    sum mean prod max min amax amin argmax var std norm logsumexp cumsum cumprod cummax sort argsort
    topk median quantile max_with_indices searchsorted interp
"""
LINEAR_ALGEBRA = "matmul einsum tensordot outer cross dot vecdot trace"
ACTIVATIONS = """
    relu sigmoid tanh softplus silu swish gelu leaky_relu elu softmax log_softmax logsumexp one_hot
"""
MAKING = """
    tensor asarray from_dlpack randn rand randint permutation zeros ones full empty arange linspace
    eye zeros_like ones_like full_like empty_like set_default_dtype
"""
REVERSE = """
    GradientMap GradientTape Parameter ParameterDict Tensor TrackedTensor no_grad enable_grad
    stop_gradient clear_tape memory_stats AutogradContext AutogradEngine graph_of explain_grad
    detect_anomaly saved_tensors_hooks save_on_cpu NotDifferentiable errors
"""
TOP = f"{ARITHMETIC} {SHAPE} {REDUCTIONS} {LINEAR_ALGEBRA} {ACTIVATIONS} {MAKING} {REVERSE}".split()
LINALG = """
    det slogdet inv pinv solve lstsq cholesky qr lu eigh eigvalsh eig svd svdvals matrix_power
    matrix_norm expm logm sqrtm triangular_solve matmul einsum tensordot outer cross vecdot trace
    eigvals matrix_rank matrix_transpose vector_norm diagonal
""".split()
FFT = """
    fft ifft rfft irfft fft2 ifft2 fftn ifftn rfftn fftshift ifftshift irfftn hfft ihfft fftfreq
    rfftfreq
""".split()
SPECIAL = """
    erf erfc erfinv gammaln digamma polygamma gamma beta betaln i0 i1 j0 j1 expit logit xlogy
    logsumexp softmax log_softmax xlog1py entr rel_entr kl_div ndtr log_ndtr ndtri gammainc
    gammaincc betainc zeta psi i0e i1e sinc
""".split()
METHODS = """
    add sub mul div matmul square mul_scalar div_scalar add_scalar sum_dim transpose clamp clone
    copy_ to_scalar to_vec requires_grad_ add_at_index sub_at_index relu sigmoid tanh abs sqrt exp
    log sin cos pow neg sum mean prod max min var std norm argmax argmin reshape permute squeeze
    expand_dims flip roll repeat tile split chunk gather scatter scatter_add index_select take sort
    argsort topk median quantile cumsum cumprod softmax log_softmax logsumexp clip floor ceil round
    tril triu diag trace outer item numpy tolist to detach backward retain_grad register_hook
    mul_into add_into sub_into div_into astype to_device any all isnan flatten gelu silu softplus
    erf maximum minimum T mT at grad id shape dtype device ndim size requires_grad is_leaf tensor
    torch real imag view from_vec from_array scalar zeros ones randn amax amin broadcast_to
    count_nonzero cross cummax cummin diff digamma dot erfinv floor_divide greater greater_equal
    hypot isclose less less_equal lgamma logaddexp logical_and logical_not logical_or logical_xor
    logit not_equal remainder
""".split()
PROTOCOLS = """
    __array__ __array_ufunc__ __array_function__ __array_namespace__ __dlpack__ __dlpack_device__
    __buffer__ __reduce__ __setitem__ __getitem__ _repr_html_ __format__
""".split()


@pytest.mark.parametrize(
    ("module", "names"),
    [(wf, TOP), (wf.linalg, LINALG), (wf.fft, FFT), (wf.special, SPECIAL), (wf.Tensor, METHODS)],
    ids=["weft", "linalg", "fft", "special", "Tensor"],
)
def test_names_are_there(module, names):
    assert [n for n in names if not hasattr(module, n)] == []
    assert not hasattr(module, "nonsense")


def test_methods_compute_what_functions_do():
    x, y = wf.tensor([[0.5, 0.25], [0.75, 0.1]]), wf.tensor([[0.2, 0.9], [0.3, 0.4]])
    alone = "amax amin count_nonzero cummax cummin diff digamma erfinv lgamma logical_not logit"
    both = "dot floor_divide greater greater_equal hypot isclose less less_equal logaddexp "
    both += "logical_and logical_or logical_xor not_equal remainder"
    for name in alone.split():
        np.testing.assert_array_equal(getattr(x, name)(), getattr(wf, name)(x))
    for name in both.split():
        np.testing.assert_array_equal(getattr(x, name)(y), getattr(wf, name)(x, y))
    np.testing.assert_array_equal(x.broadcast_to((3, 2, 2)), wf.broadcast_to(x, (3, 2, 2)))
    z = wf.ones((2, 3))
    np.testing.assert_array_equal(z.cross(2 * z), wf.cross(z, 2 * z))


def test_protocols_are_there():
    assert [n for n in PROTOCOLS if not hasattr(wf.Tensor, n)] == []


def test_everything_announced_exists():
    assert len(wf.__all__) == len(set(wf.__all__)) == len([n for n in wf.__all__ if hasattr(wf, n)])
    for module in (wf.linalg, wf.special):
        assert [n for n in module.__all__ if not callable(getattr(module, n, None))] == []


BOTH = """
    abs sqrt exp log sin cos tanh square floor sum mean prod max min var std norm logsumexp softmax
    cumsum sort argsort argmax median flip reciprocal relu sigmoid silu gelu trace tril diag flatten
""".split()


@pytest.mark.parametrize("name", BOTH)
def test_functions_and_methods_are_the_same(name):
    x = wf.tensor(np.random.default_rng(0).uniform(0.5, 2, size=(3, 3)), requires_grad=True)
    f, method = getattr(wf, name), getattr(wf.Tensor, name)
    np.testing.assert_array_equal(f(x).detach().numpy(), method(x).detach().numpy())
    assert f(x).requires_grad == method(x).requires_grad == (name not in ("argsort", "argmax"))


def test_the_seeds_methods():
    x = wf.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert x.mul_scalar(2.0).tolist() == (x * 2).tolist()
    assert x.div_scalar(2.0).tolist() == (x / 2).tolist()
    assert x.add_scalar(2.0).tolist() == (x + 2).tolist()
    assert x.sum_dim(0).tolist() == [4.0, 6.0] and x.sum_dim(-1, True).shape == (2, 1)
    assert x.clamp(2.0, 3.0).tolist() == [[2.0, 2.0], [3.0, 3.0]]
    assert x.add(x).sub(x).mul(x).div(x).tolist() == x.tolist()
    assert x.matmul(x).tolist() == (x @ x).tolist() and x.square().tolist() == (x * x).tolist()
    assert x.transpose().tolist() == x.T.tolist() == x.permute(1, 0).tolist()
    with pytest.raises(errors.AxisError, match=r"wf\.swapaxes\(x, 0, 1\)"):
        x.transpose(0, 1)  # PyTorch's exchange, NumPy's identity
    assert x.clone().requires_grad and x.clone() is not x


def test_importing_does_not_load_torch_or_scipy():
    code = "import sys, weft; print([m for m in ('torch', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
