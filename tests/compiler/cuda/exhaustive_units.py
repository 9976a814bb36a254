"""Every float32 through each function of the GPU's units, compiled, beside torch's float64.

Run on a card: python tests/compiler/cuda/exhaustive_units.py [--device cuda] [--every 1] [names]

Takes some seconds per function; `--device cpu --every 99991` tries the script itself. Prints the
worst error in units in the last place, where it is, and how many infinities, NaN and signed zeros
differ; exits with 1 if an error is beyond two units or anything differs.
"""

import argparse
import sys

import torch

import weft as wf

CHUNK = 1 << 26
LIMIT = 2.0
FUNCTIONS = {
    "exp": (wf.exp, torch.exp),
    "tanh": (wf.tanh, torch.tanh),
    "sigmoid": (wf.sigmoid, torch.sigmoid),
    "softplus": (wf.softplus, lambda x: torch.logaddexp(x, torch.zeros_like(x))),
    "sin": (wf.sin, torch.sin),
    "cos": (wf.cos, torch.cos),
    "tan": (wf.tan, torch.tan),
}


def errors(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """The errors in units in the last place of the right result, with those of denormal numbers."""
    exponent = torch.frexp(want.abs()).exponent - 1
    unit = torch.ldexp(torch.ones_like(want), exponent.clamp(min=-126) - 23)
    return (got.double() - want).abs() / unit


def kinds_differ(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Where one is NaN, infinite, or a zero of another sign, and the other is not."""
    near = want.float()
    zero = (got == 0) & (near == 0) & (torch.signbit(got) != torch.signbit(near))
    return (got.isnan() != near.isnan()) | ((got.isinf() | near.isinf()) & (got != near)) | zero


def check(name: str, device: str, every: int) -> bool:
    """Print the worst result of a function; whether it is good enough."""
    function, reference = FUNCTIONS[name]
    compiled = wf.compile(function)
    worst, place, strange, example = 0.0, 0.0, 0, 0.0
    for start in range(-(2**31), 2**31, CHUNK * every):
        stop = min(start + CHUNK * every, 2**31)
        bits = torch.arange(start, stop, every, dtype=torch.int64, device=device)
        x = bits.to(torch.int32).view(torch.float32)
        got = torch.from_dlpack(compiled(wf.from_dlpack(x)))
        want = reference(x.double())
        odd = kinds_differ(got, want)
        finite = want.float().isfinite() & got.isfinite()
        off = torch.where(finite, errors(got, torch.where(finite, want, 1.0)), 0.0)
        most, at = off.max(0)
        if most > worst:
            worst, place = float(most), float(x[at])
        if odd.any():
            strange, example = strange + int(odd.sum()), float(x[odd][0])
    print(f"{name:9} {worst:.3f} units at {place!r}; {strange} of another kind {example!r}")
    return worst <= LIMIT and not strange


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--every", type=int, default=1, help="check one number of so many")
    parser.add_argument("names", nargs="*", default=list(FUNCTIONS))
    chosen = parser.parse_args()
    sys.exit(not all([check(name, chosen.device, chosen.every) for name in chosen.names]))
