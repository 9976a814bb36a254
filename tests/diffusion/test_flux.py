"""Our transformer beside diffusers': values and gradients, for random sizes and inputs."""

import functools

import numpy as np
import pytest
import torch
from diffusers import FluxTransformer2DModel

import weft as wf
from weft.diffusion import blocks, embeddings, flux

from .beside_diffusers import (
    BESIDE_SINUSOIDS,
    distance,
    errors,
    exact_run,
    ours,
    random_config,
    random_inputs,
    replaced,
    run_ours,
    run_theirs,
    theirs,
)

BOUND = 1e-4


def both(seed, device="cpu", **fixed):
    config = random_config(seed, **fixed)
    reference, inputs = theirs(config, seed), random_inputs(config, seed)
    model = ours(reference, config, device=device)
    return run_ours(model, inputs, device=device), run_theirs(reference, inputs)


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("seed", range(8))
def test_results_and_gradients_are_those_of_diffusers(seed, device):
    found, worst = distance(*both(seed, device))
    assert found <= BOUND, worst


@pytest.mark.parametrize("guided", [False, True])
def test_the_sizes_of_the_published_models_at_less_depth_and_width(guided):
    fixed = {"attention_head_dim": 128, "num_attention_heads": 1, "axes_dims_rope": (16, 56, 56)}
    fixed |= {"num_layers": 1, "num_single_layers": 1, "guidance_embeds": guided}
    found, worst = distance(*both(3, **fixed))
    assert found <= BOUND, worst


def errors_of_both(device: str) -> dict[str, np.ndarray]:
    """Beside sinusoids: our errors and those of diffusers, as norms over several models."""
    squares = {n: np.zeros(2) for n in BESIDE_SINUSOIDS}
    for seed in range(8):
        reference, exact, their = references(seed)
        config, inputs = random_guided(seed)
        found = run_ours(ours(reference, config, device=device), inputs, device=device)
        pair = [errors(found, exact), their]
        for name in squares:
            squares[name] += [e[name] ** 2 for e in pair]
    return {name: np.sqrt(x / 8) for name, x in squares.items()}


def random_guided(seed: int):
    config = random_config(seed, guidance_embeds=True)
    return config, random_inputs(config, seed)


@functools.cache
def references(seed: int):
    """A model of diffusers, its run in float64, and the errors of its run in float32."""
    config, inputs = random_guided(seed)
    reference = theirs(config, seed)
    exact = exact_run(reference, inputs)
    return reference, exact, errors(run_theirs(reference, inputs), exact)


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_gradients_beside_sinusoids_are_as_near_to_float64_as_those_of_diffusers(device):
    for name, (own, their) in errors_of_both(device).items():
        assert own <= 1.25 * their, name


def test_a_planted_error_of_frequencies_is_found():
    def sinusoid(t, right=embeddings.sinusoid):
        return right(t * (1 + 1e-6))

    with replaced(embeddings, "sinusoid", sinusoid):
        found = errors_of_both("cpu")
    assert any(own > 1.25 * their for own, their in found.values())


def swapped(x, shift, scale):
    return blocks.F.layer_norm(x, (x.shape[-1],), None, None, 1e-6) * (1 + shift) + scale


def halves(x, table):
    return blocks.F.rotate(x.to("float32"), table, interleaved=False).to(x.dtype)


def image_first(ids, dims, right=embeddings.turns):
    return right(wf.flip(ids, axis=0), dims)


def sines_first(t, right=embeddings.sinusoid):
    return wf.roll(right(t), 128, axis=1)


FAULTS = {
    "shift and scale": (blocks, "modulate", swapped),
    "shift and scale at the end": (flux, "modulate", swapped),
    "pairs of features": (blocks, "_turn", halves),
    "order of positions": (flux, "turns", image_first),
    "order of sinusoids": (embeddings, "sinusoid", sines_first),
    "epsilon of norms": (blocks, "EPS", 1e-2),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    fixed = {"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16}
    with replaced(*FAULTS[fault]):
        found, _ = distance(*both(1, **fixed, axes_dims_rope=(4, 4, 8)))
    assert found > 10 * BOUND


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize(("seed", "half"), [(0, "bfloat16"), (5, "bfloat16"), (0, "float16")])
def test_half_types_are_as_near_to_float32_as_those_of_diffusers(seed, half, device):
    dtype = getattr(torch, half)
    config = random_config(seed, num_layers=1, num_single_layers=1)
    reference, inputs = theirs(config, seed), random_inputs(config, seed)
    # Both start from numbers that the half type has.
    reference = reference.to(dtype).float()
    inputs = {n: torch.tensor(x).to(dtype).float().numpy() for n, x in inputs.items()}
    exact = run_theirs(reference, inputs)
    model = ours(reference, config, dtype=half, device=device)
    mine = run_ours(model, inputs, half, device)
    other = run_theirs(reference, inputs, dtype)
    for name, right in exact.items():
        own, their = (np.linalg.norm(x[name] - right) for x in (mine, other))
        assert own <= 1.5 * their + torch.finfo(dtype).eps * np.linalg.norm(right), name


def test_residuals_beyond_float16_are_its_largest_number():
    config = random_config(1, num_layers=1, num_single_layers=1)
    reference, inputs = theirs(config), random_inputs(config, 1)
    with torch.no_grad():
        reference.transformer_blocks[0].ff_context.net[2].bias.fill_(6e4)
        reference.transformer_blocks[0].norm1_context.linear.bias[-config.width :].fill_(9.0)
        reference.single_transformer_blocks[0].proj_out.bias.fill_(6e4)
    reference = reference.to(torch.float16)
    given = {n: torch.tensor(x).half() for n, x in inputs.items()}
    with torch.no_grad():
        expected = reference(**given, return_dict=False)[0].float().numpy()
    model = ours(reference, config, dtype="float16", device="torch")  # NumPy would warn
    given = {n: wf.asarray(x).to("torch").to("float16") for n, x in inputs.items()}
    found = model(**given).detach().to("cpu").to("float32").numpy()
    with replaced(blocks, "_clip_half", lambda x: x):
        assert not np.isfinite(model(**given).detach().to("cpu").numpy()).all()
    assert np.isfinite(expected).all()
    assert np.abs(found - expected).max() <= 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_compiled_step_gives_what_an_eager_one_does(seed):
    config = random_config(seed, num_layers=1, num_single_layers=1)
    model, inputs = ours(theirs(config, seed), config), random_inputs(config, seed, batch=2)
    given = {n: wf.asarray(x) for n, x in inputs.items()}

    def step(model, given):
        loss, grads = wf.value_and_grad(lambda m: (m(**given) ** 2).mean())(model)
        return {"loss": loss, **dict(grads.named_parameters())}

    pair = [
        {n: x.detach().numpy() for n, x in f(model, given).items()}
        for f in (wf.compile(step), step)
    ]
    found, worst = distance(*pair)
    assert found <= 2e-5, worst


def test_names_are_those_of_diffusers():
    for seed in range(6):
        config = random_config(seed)
        reference = theirs(config)
        assert {n: tuple(x.shape) for n, x in reference.state_dict().items()} == {
            n: x.shape for n, x in wf.diffusion.Flux(config).state_dict().items()
        }
        linear = [n for n, m in reference.named_modules() if isinstance(m, torch.nn.Linear)]
        made = wf.diffusion.Flux(config, empty=True)
        found = [n for n, m in made.named_modules() if type(m) is wf.nn.Linear]
        assert sorted(found) == sorted(linear)


def test_a_model_without_elements_takes_no_memory_and_no_random_numbers():
    before = wf.random.get_state()
    model = wf.diffusion.Flux(wf.diffusion.FluxConfig(guidance_embeds=True), empty=True)
    assert wf.random.get_state() == before
    assert sum(p.size for p in model.parameters()) < 1000
    sizes = wf.diffusion.making.shapes(model)
    with torch.device("meta"):
        reference = FluxTransformer2DModel(guidance_embeds=True)
    assert sizes == {n: tuple(x.shape) for n, x in reference.state_dict().items()}
    assert sum(int(np.prod(s)) for s in sizes.values()) == 11_901_408_320


SMALL = random_config(1, num_layers=1, num_single_layers=1, guidance_embeds=True)
CASES = {
    "hidden_states": (lambda x: x[0], wf.errors.ShapeError, "hidden_states of shape"),
    "encoder_hidden_states": (lambda x: x[:, :, :1], wf.errors.ShapeError, "encoder_hidden_states"),
    "pooled_projections": (lambda x: x.to("bfloat16"), wf.errors.DTypeError, "cast both"),
    "timestep": (lambda x: x[0], wf.errors.ShapeError, "one number for each image"),
    "guidance": (lambda x: None, wf.errors.ArgumentError, "pass guidance="),
    "img_ids": (lambda x: x[1:], wf.errors.ShapeError, "a position for each"),
    "txt_ids": (lambda x: x[None], wf.errors.ShapeError, "txt_ids"),
}


@pytest.mark.parametrize("name", CASES)
def test_inputs_that_do_not_fit_are_refused(name):
    change, error, said = CASES[name]
    given = {n: wf.asarray(x) for n, x in random_inputs(SMALL, 0, batch=2).items()}
    model = wf.diffusion.Flux(SMALL)
    model(**given)
    with pytest.raises(error, match=said):
        model(**given | {name: change(given[name])})


def test_guidance_that_the_model_does_not_take_is_refused():
    config = random_config(1, guidance_embeds=False)
    given = {n: wf.asarray(x) for n, x in random_inputs(config, 0, batch=1).items()}
    with pytest.raises(wf.errors.ArgumentError, match="leave guidance out"):
        wf.diffusion.Flux(config)(**given, guidance=wf.ones(1))


@pytest.mark.parametrize(
    "fields",
    [
        {"num_layer": 3},
        {"quantization_config": {}},
        {"_class_name": "SD3Transformer2DModel"},
        {"num_layers": -1},
        {"num_layers": True},
        {"in_channels": "64"},
        {"attention_head_dim": 64},
        {"axes_dims_rope": (17, 55, 56)},
        {"axes_dims_rope": 128},
        {"guidance_embeds": 1},
        {"joint_attention_dim": None},
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields):
    with pytest.raises(wf.errors.ArgumentError, match=r"FluxConfig: .*(expected|did you mean|has)"):
        wf.diffusion.FluxConfig.from_dict(fields)
