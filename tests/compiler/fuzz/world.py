"""What a random program finds: its arguments, and the tensors around it."""

from dataclasses import dataclass

import numpy as np

import weft as wf

FLOATS = ("float32", "float32", "float64", "float64", "float16", "bfloat16")
WHOLE = ("int64", "int32", "uint8", "bool")
SHAPES = ((), (1,), (3,), (5,), (4, 3), (3, 4), (1, 3), (4, 1), (2, 3, 4), (3, 3), (0, 3), (17, 5))
# Of more elements than a line of lanes, or a piece of a thread, in many remainders.
LARGE = ((130,), (1000,), (33, 65), (5, 257), (2, 3, 70), (64, 16), (1, 65), (33, 1), (65, 65))


@dataclass(frozen=True)
class Given:
    """One argument: 'tensor', 'float', 'same' as an earlier one, 'view' of its memory, 'flag'."""

    name: str
    kind: str
    dtype: str = "float32"
    shape: tuple[int, ...] = ()
    layout: str = "rows"
    grad: bool = False
    of: str = ""


def draw_given(rng) -> tuple[Given, ...]:
    """The arguments of a program."""
    found: list[Given] = []
    shapes = LARGE if rng.random() < 0.2 else SHAPES
    for k in range(int(rng.integers(1, 5))):
        name, chance = f"x{k}", rng.random()
        tensors = [g for g in found if g.kind == "tensor"]
        if tensors and chance < 0.1:
            found.append(Given(name, "same", of=tensors[0].name))
        elif tensors and chance < 0.18:
            found.append(Given(name, "view", of=tensors[-1].name))
        elif found and chance < 0.26:
            found.append(Given(f"s{k}", "float"))
        elif found and chance < 0.3:
            found.append(Given(f"s{k}", "flag"))
        else:
            found.append(_tensor(rng, name, shapes))
    return tuple(found)


def _tensor(rng, name: str, shapes) -> Given:
    floats = rng.random() < 0.8
    dtype = str(rng.choice(FLOATS if floats else WHOLE))
    shape = shapes[int(rng.integers(len(shapes)))]
    layout = str(rng.choice(["rows", "rows", "turned", "steps", "backwards", "spread"]))
    return Given(name, "tensor", dtype, shape, layout, floats and rng.random() < 0.5)


def numbers(rng, shape, dtype) -> np.ndarray:
    """An array of a dtype: ordinary floats, small integers."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in WHOLE:
        return rng.integers(0, 4, shape).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(wf.canonical_dtype(dtype))


def laid_out(rng, g: Given) -> np.ndarray:
    """Numbers in memory as the layout says."""
    shape = g.shape
    if not shape:
        return numbers(rng, shape, g.dtype)
    if g.layout == "turned":
        return numbers(rng, shape[::-1], g.dtype).T
    if g.layout == "steps":
        return numbers(rng, (*shape[:-1], 2 * shape[-1]), g.dtype)[..., ::2]
    if g.layout == "backwards":
        return numbers(rng, shape, g.dtype)[::-1]
    if g.layout == "spread":
        return np.broadcast_to(numbers(rng, (1, *shape[1:]), g.dtype), shape)
    return numbers(rng, shape, g.dtype)


def _identity(x):
    """The identity that can be added to x xᵀ."""
    return wf.eye(x.shape[-2], dtype=x.dtype, device=x.device)


def placed(raw: np.ndarray, device: str):
    """The array on a device, laid out there as it was; PyTorch has no steps backwards."""
    if device == "cpu":
        return raw
    import torch

    forwards = np.asarray(raw if min(raw.strides, default=0) >= 0 else raw.copy())
    half = raw.dtype == wf.bfloat16
    made = torch.from_numpy(forwards.view(np.int16) if half else forwards)
    made = made.view(torch.bfloat16) if half else made
    if not device.startswith("cuda"):
        return made
    steps = sum((n - 1) * s for n, s in zip(made.shape, made.stride(), strict=True))
    memory = made.as_strided((1 + steps if made.numel() else 0,), (1,)).to(device)
    return memory.as_strided(made.shape, made.stride())


class World:
    """The arguments and the tensors of one run; every world of a seed is the same.

    noise   how many roundings every value that is made is wrong by, at most
    device  where all of them are; programs know it as D
    """

    def __init__(
        self,
        given: tuple[Given, ...],
        seed: int,
        noise: float = 0,
        noises: int = 0,
        device: str = "cpu",
    ):
        self.given, self.seed, self.device = given, seed, device
        self.noise, self.noises = noise, np.random.default_rng(noises)
        rng = np.random.default_rng([seed, 99])
        self.P0 = wf.Parameter(self._tensor(numbers(rng, (4, 3), "float64")))
        self.P1 = wf.Parameter(self._tensor(numbers(rng, (3,), "float32")))
        self.B0 = self._tensor(numbers(rng, (3,), "float32"))
        self.B1 = self._tensor(numbers(rng, (4, 3), "float64"))
        self.I0 = wf.tensor(rng.integers(0, 3, 5), device=device)
        self.optimizer = wf.optim.AdamW([self.P0, self.P1], lr=0.05)

    def tensors(self) -> dict:
        """The tensors that a program may find by itself."""
        return {n: getattr(self, n) for n in ("P0", "P1", "B0", "B1", "I0")}

    def scope(self) -> dict:
        """The names around a program."""
        around = {"wf": wf, "F": wf.nn.functional, "np": np, "N": self.noisy, "D": self.device}
        around |= {"ZERO": wf.tensor(0, device=self.device), "EYE": _identity}
        return around | self.tensors() | {"optimizer": self.optimizer}

    def noisy(self, x):
        """x, in a noisy world with roundings of its own."""
        if not self.noise or x.dtype.kind in "biu":
            return x
        return x * wf.asarray(self._roundings(x.shape, x.dtype), device=x.device)

    def _roundings(self, shape, dtype) -> np.ndarray:
        unit = float(wf.finfo(dtype).eps) * self.noise
        return np.asarray(1 + unit * self.noises.choice([-1, -0.5, 0, 0.5, 1], shape)).astype(dtype)

    def _tensor(self, raw: np.ndarray):
        return wf.tensor(self._wrong(raw), device=self.device)

    def _wrong(self, raw: np.ndarray) -> np.ndarray:
        """Numbers as they are given in a noisy world; where they lie stays the same."""
        if not self.noise or raw.dtype.kind in "biu":
            return raw
        made = np.empty_like(raw)
        made[...] = raw * self._roundings(raw.shape, raw.dtype)
        return made

    def arguments(self, call: int) -> dict:
        """The arguments of a call by name; other numbers in each."""
        rng = np.random.default_rng([self.seed, call])
        made: dict = {}
        for g in self.given:
            if g.kind == "same":
                made[g.name] = made[g.of]
            elif g.kind == "view":
                made[g.name] = made[g.of].detach()[..., :] if made[g.of].ndim else made[g.of] * 1
            elif g.kind == "float":
                made[g.name] = float(rng.uniform(0.5, 1.5))
            elif g.kind == "flag":
                made[g.name] = True
            else:
                raw = self._wrong(laid_out(rng, g))
                x = wf.asarray(placed(raw, self.device))
                made[g.name] = x.requires_grad_() if g.grad else x
        return made

    def changes(self, call: int) -> None:
        """What happens to the tensors around between two calls."""
        rng = np.random.default_rng([self.seed, call, 7])
        with wf.no_grad():
            self.B0.copy_(self._tensor(numbers(rng, (3,), "float32")))
            self.P1.copy_(self._tensor(numbers(rng, (3,), "float32")))
        self.B1[0] = float(rng.uniform(-1, 1))
        if call == 2:
            self.P0.grad = None
            if self.seed % 5 == 0:  # another tensor under the same name
                self.B0 = self._tensor(numbers(rng, (3,), "float32"))
