"""Whether a contender's results are those of float64, to what its dtype allows."""

import torch

# The largest error of any array, PyTorch's too. Each ReLU whose sign half precision changes takes a
# gradient away: of ResNet-50's early layers half remains. A gradient that is missing has error 1.
LARGEST = 0.75


class Wrong(Exception):
    """A result that is not what it should be."""


def errors(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> dict[str, float]:
    """The error of each array relative to its norm; changes of parameters count as one array."""
    sums: dict[str, tuple[float, float]] = {}
    for name, x in found.items():
        place = "changes" if name.startswith("change of ") else name
        off, size = sums.get(place, (0.0, 0.0))
        y = exact[name]
        if x.shape != y.shape:
            raise Wrong(f"{name}: {tuple(x.shape)}, not {tuple(y.shape)}")
        difference = (x.to(y.device, torch.float64) - y).norm().item()
        sums[place] = off + difference**2, size + y.norm().item() ** 2
    return {name: (off / max(size, 1e-300)) ** 0.5 for name, (off, size) in sums.items()}


def rounding_of_sum(terms: torch.Tensor) -> float:
    """How far the sum of float32 terms may be off if every rounding is off by chance.

    Each term is off by 2⁻²⁴ of it, and so is each partial sum: of m terms added one after another
    they are √(m/2) as large together. A GPU's thread adds hundreds, so 2⁻²⁰ of the terms' norm.
    """
    return (2**-20 * terms.norm() / terms.sum().abs()).item()


def judge(
    mine: dict[str, float],
    torchs: dict[str, float] | None,
    tolerance: float,
    rounding: dict[str, float] | None = None,
) -> float:
    """The largest error; raises `Wrong` if one is larger than allowed.

    Twice the error that PyTorch makes in the same precision is allowed, too: it tells how well the
    numbers are determined at all. So is what the rounding of terms makes of a sum that cancels.
    """
    for name, error in mine.items():
        peer = torchs[name] if torchs else 0.0
        own = (rounding or {}).get(name, 0.0)
        allowed = min(max(tolerance, 2 * peer, own), LARGEST) if torchs else LARGEST
        if not error <= allowed:
            raise Wrong(f"{name}: error {error:.1e}, allowed {allowed:.1e}")
    return max(mine.values())
