"""LoKr against LyCORIS: factors, first values, updates, and files in both directions."""

import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import weft as wf
from weft.nn.lora.kronecker import factorize

from .twins import array, deltas, stir

nn = wf.nn

try:
    from lycoris.functional.general import factorization
    from lycoris.modules.locon import LoConModule
    from lycoris.modules.lokr import LokrModule
except ImportError:
    factorization = None

needs_lycoris = pytest.mark.skipif(factorization is None, reason="lycoris-lora is not installed")
FACTORS = (-1, 1, 2, 3, 4, 5, 7, 8, 16, 64)


def published(width, factor):
    """The table in the documentation of LyCORIS' factorization, (factor, width): result."""
    table = {
        (-1, 127): (1, 127), (2, 127): (1, 127), (16, 127): (1, 127),
        (-1, 128): (8, 16), (2, 128): (2, 64), (4, 128): (4, 32), (16, 128): (8, 16),
        (-1, 250): (10, 25), (4, 250): (2, 125), (8, 250): (5, 50), (16, 250): (10, 25),
        (-1, 512): (16, 32), (8, 512): (8, 64), (-1, 1024): (32, 32), (16, 1024): (16, 64),
    }  # fmt: skip
    return table.get((factor, width))


def test_widths_are_split_as_published():
    found = [(w, f) for w in range(1, 1100) for f in FACTORS if published(w, f)]
    assert len(found) == 15
    for width, factor in found:
        assert factorize(width, factor) == published(width, factor)


@needs_lycoris
def test_widths_are_split_as_in_lycoris():
    for width in [*range(1, 200), 768, 3072, 9216, 12288]:
        for factor in FACTORS:
            assert factorize(width, factor) == factorization(width, factor), (width, factor)


def pair(seed):
    """One layer here and there, with a LoKr of the same options."""
    draw = random.Random(seed)
    width, height = draw.choice([6, 12, 20]), draw.choice([8, 15, 36])
    rank, alpha, factor = draw.choice([1, 2, 5]), draw.choice([1.0, 3.0]), draw.choice(FACTORS)
    mine = nn.Sequential(nn.Linear(width, height))
    nn.add_lora(mine, kind="lokr", rank=rank, alpha=alpha, factor=factor)
    base = torch.nn.Linear(width, height)
    with torch.no_grad():
        base.weight.copy_(torch.tensor(array(mine[0].base_weight())))
    return mine, base, dict(lora_dim=rank, alpha=alpha, factor=factor)


@needs_lycoris
@pytest.mark.parametrize("seed", range(20))
def test_shapes_first_values_and_updates_are_those_of_lycoris(seed):
    mine, base, given = pair(seed)
    theirs = LokrModule("x", base, **given)
    assert {n: tuple(p.shape) for n, p in theirs.named_parameters()} == {
        n.removeprefix("0."): p.shape for n, p in mine.lora_parameters()
    }
    for n, p in theirs.named_parameters():
        bound, ours = p.abs().max().item(), np.abs(array(getattr(mine[0], n)))
        assert (bound == 0) == (ours.max() == 0)
        assert max(bound, ours.max()) <= p.shape[1] ** -0.5
    stir(mine)
    with torch.no_grad():
        for n, p in theirs.named_parameters():
            p.copy_(torch.tensor(array(getattr(mine[0], n))))
    x = np.random.default_rng(seed).standard_normal((3, base.in_features)).astype(np.float32)
    theirs.apply_to()
    want = base(torch.tensor(x)).detach().numpy() - base.bias.detach().numpy()
    got = mine(x).detach().numpy() - mine[0].bias.numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@needs_lycoris
@pytest.mark.parametrize("seed", range(10))
def test_files_go_both_ways(seed, tmp_path):
    mine, base, given = pair(seed)
    stir(mine)
    nn.save_lora(mine, tmp_path / "a", "kohya")
    state = {n.removeprefix("lycoris_0."): v for n, v in load_file(tmp_path / "a").items()}
    order = [state.get(n) for n in LokrModule.weight_list]
    with torch.no_grad():
        theirs = LokrModule.make_module_from_state_dict("x", base, *order)
        got = theirs.get_weight(theirs.shape).numpy()
    want = deltas(mine)["0"]
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())
    made = LokrModule("x", base, **given, decompose_both=True)
    with torch.no_grad():
        for p in made.parameters():
            p.normal_(std=0.4)
        kept = {f"lora_unet_0.{n}": v.contiguous() for n, v in made.custom_state_dict().items()}
        save_file(kept, tmp_path / "b")
        want = made.get_weight(made.shape).numpy()
    other = nn.Sequential(nn.Linear(base.in_features, base.out_features))
    nn.load_lora(other, tmp_path / "b")
    np.testing.assert_allclose(deltas(other)["0"], want, atol=1e-5 * np.abs(want).max())


@needs_lycoris
@pytest.mark.parametrize("seed", range(4))
def test_dora_of_our_file_is_that_of_lycoris(seed, tmp_path):
    wf.random.seed(seed)
    mine = nn.Sequential(nn.Linear(6, 5))
    nn.add_lora(mine, kind="dora", rank=2, alpha=3.0)
    stir(mine)
    nn.save_lora(mine, tmp_path / "a", "kohya")
    state = {n.removeprefix("lora_unet_0."): v for n, v in load_file(tmp_path / "a").items()}
    base = torch.nn.Linear(6, 5)
    with torch.no_grad():
        base.weight.copy_(torch.tensor(array(mine[0].base_weight())))
        theirs = LoConModule.make_module_from_state_dict(
            "x", base, state["lora_up.weight"], state["lora_down.weight"], None,
            state["alpha"], state["dora_scale"],
        )  # fmt: skip
        got = theirs.get_merged_weight()[0].numpy()
    np.testing.assert_allclose(got, array(mine[0].effective_weight()), rtol=1e-4, atol=1e-6)
