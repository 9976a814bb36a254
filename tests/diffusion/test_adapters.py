"""Low-rank adapters on our transformer beside PEFT's on that of diffusers."""

import random

import numpy as np
import pytest
import torch
from peft import LoraConfig

import weft as wf

from .beside_diffusers import distance, ours, random_config, random_inputs, seed_of, theirs

NAMES = "attn.to_q attn.to_k attn.to_v attn.to_out.0 attn.add_k_proj attn.to_add_out ff.net.0.proj"
NAMES += " ff_context.net.2 norm1.linear norm.linear proj_mlp x_embedder context_embedder"


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("seed", range(4))
def test_results_and_gradients_are_those_of_peft(seed, device):
    r = random.Random(seed)
    config = random_config(seed, num_layers=1, num_single_layers=1)
    names, rank, alpha = r.sample(NAMES.split(), 5), r.randint(1, 4), r.choice((1.0, 3.0, 8.0))
    reference, inputs = theirs(config, seed), random_inputs(config, seed)
    model = ours(reference, config, device=device)
    added = LoraConfig(r=rank, lora_alpha=alpha, target_modules=names, init_lora_weights=False)
    reference.add_adapter(added)
    wf.nn.add_lora(model, [f"*{n}" for n in names], rank=rank, alpha=alpha)
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    their = {
        n.replace(".default.weight", ""): p
        for n, p in reference.named_parameters()
        if p.requires_grad
    }
    assert trained.keys() == their.keys()
    with wf.no_grad():
        for name, p in trained.items():
            p.copy_(wf.asarray(their[name].detach().numpy()).to(device))
    out = reference(**{n: torch.tensor(x) for n, x in inputs.items()}, return_dict=False)[0]
    out.backward(torch.tensor(seed_of(out.shape)))
    mine = model(**{n: wf.asarray(x).to(device) for n, x in inputs.items()})
    grads = mine.backward(wf.asarray(seed_of(out.shape)).to(device))
    found = {n: grads[p].to("cpu").numpy() for n, p in trained.items()}
    found["result"] = mine.detach().to("cpu").numpy()
    right = {n: p.grad.numpy() for n, p in their.items()} | {"result": out.detach().numpy()}
    error, worst = distance(found, right)
    assert error <= 1e-4, worst
    assert any(np.abs(g).max() > 0 for g in right.values())
