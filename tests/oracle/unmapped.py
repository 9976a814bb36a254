"""The ops of torch's database that Weft does not have, or not under one name, and why."""

from fnmatch import fnmatchcase

from .database import OPS, takes

NO_SAMPLES = "takes integers, booleans or half precision only: no sample of float64 or complex128"

# Patterns of names for each reason; the first that fits is the one.
REASONS: dict[str, str] = {
    "a neural layer, activation, pool, normalisation or loss: of wf.nn.functional": """
        nn.functional.* native_*_norm _native_batch_norm_legit _batch_norm_with_update
        native_dropout_backward max_pool2d_with_indices_backward grid_sampler_* _upsample_*
    """,
    "torch.masked: reductions that know which elements count; ours is where()": """
        masked.argmax masked.argmin masked.logaddexp masked.median masked.norm masked.normalize
        masked.softmin masked.std masked.var
    """,
    "sparse tensors": "sparse.* to_sparse",
    "random numbers: torch's streams are not ours": """
        bernoulli cauchy exponential geometric log_normal multinomial normal normal/* uniform
        rand_like randint randint_like randn randn_like
    """,
    "uninitialised memory has no values to compare": """
        empty empty_like empty_permuted empty_strided new_empty new_empty_strided
    """,
    "writes into its argument; ours are values": "fill resize_ resize_as_ zero_",
    "the same function as a mapped one, on the same samples": """
        *_copy contiguous new_full new_ones new_zeros svd unsafe_chunk unsafe_split
    """,
    "torch's storage, or conjugation and negation kept as a flag": """
        as_strided as_strided/* as_strided_scatter resolve_conj resolve_neg
    """,
    "a private step of torch's own": """
        _chunk_cat _segment_reduce/* _softmax_backward_data _unsafe_masked_index*
        hash_tensor nonzero_static torch.ops.aten.*
    """,
    "kernels that torch compiles on CUDA": "jiterator_*",
    "a Python value, not a tensor": "equal item",
    "factors packed in LAPACK's layout, or what consumes them": """
        cholesky_inverse geqrf linalg.householder_product linalg.ldl_* linalg.lu_factor
        linalg.lu_factor_ex linalg.lu_solve lu lu_solve lu_unpack ormqr
    """,
    "a randomised factorisation": "pca_lowrank svd_lowrank",
    "torch's complex32": "chalf",
    "no such op in Weft: orthogonal polynomials, Airy and spherical Bessel functions": """
        special.*polynomial* special.airy_ai special.spherical_bessel_j0
    """,
    "no such op in Weft: signal processing": "istft signal.* stft",
    "no such op in Weft: Hermitian transforms of several axes": "fft.*hfft2 fft.*hfftn",
    "no such op in Weft: places whose duplicates reduce by other than a sum": """
        index_reduce/* scatter_reduce/amax scatter_reduce/amin scatter_reduce/mean
        scatter_reduce/prod
    """,
    "no such op in Weft: statistics": "corrcoef cov histogramdd histc mode",
    "no such op in Weft: NaN-skipping order statistics": "nanmedian nanquantile",
    "no such op in Weft": """
        cartesian_prod cdist combinations diagonal_scatter fmax fmin fmod frexp gradient heaviside
        isneginf isposinf ldexp linalg.tensorsolve linspace/tensor_overload logspace logspace/*
        renorm unique_consecutive
    """,
}


def reason(name: str) -> str | None:
    """Why an op is not mapped, or None if nothing says so."""
    if not takes(name, "float64") and not takes(name, "complex128"):
        return NO_SAMPLES
    for text, patterns in REASONS.items():
        if any(fnmatchcase(name, p) for p in patterns.split()):
            return text
    return None


def patterns() -> list[str]:
    """All patterns, for the test that none of them is idle."""
    return [p for some in REASONS.values() for p in some.split()]


def unmapped(mapped) -> dict[str, str | None]:
    """Every op that is not in the mapping, with its reason."""
    return {name: reason(name) for name in OPS if name not in mapped}
