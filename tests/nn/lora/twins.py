"""Models of Weft beside models of PyTorch of the same weights, and adapters drawn at random."""

import random
import warnings

import numpy as np
import torch

import weft as wf

nn = wf.nn

with warnings.catch_warnings():  # of libraries that they load
    warnings.simplefilter("ignore")
    import peft

KINDS = ("lora", "dora", "lokr")


def model(seed=0, dtype="float32"):
    """A chain whose layers have names of several depths, one the end of another's."""
    wf.random.seed(seed)
    inner = nn.Sequential(nn.Linear(12, 8, dtype=dtype), nn.Tanh(), nn.Linear(8, 12, dtype=dtype))
    first, last = nn.Linear(6, 12, dtype=dtype), nn.Linear(12, 10, bias=False, dtype=dtype)
    return nn.Sequential(first, nn.Tanh(), inner, last)


NAMES = ["0", "2.0", "2.2", "3"]


def twin(mine):
    """The same chain of PyTorch, with the base weights of ours."""
    inner = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.Tanh(), torch.nn.Linear(8, 12))
    last = torch.nn.Linear(12, 10, bias=False)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), inner, last)
    state = {
        n: array(v) for n, v in mine.state_dict().items() if "lora" not in n and "lokr" not in n
    }
    net.load_state_dict({n: torch.tensor(v) for n, v in state.items()})
    return net.requires_grad_(False)


def array(x):
    return np.array(x.detach().to("float32").numpy())


def options(draw, kind):
    """Rank, alpha and the like for one pattern."""
    found = {"rank": draw.choice([1, 2, 3, 4]), "alpha": draw.choice([0.5, 2.0, 3.0, 16.0])}
    if kind == "lokr":
        found["factor"] = draw.choice([-1, 2, 3])
    return found | {"kind": kind}


def adapted(seed, kind="lora", mixed=False, dtype="float32", names=None):
    """A model with trained-looking adapters, in some of its layers."""
    draw = random.Random(seed)
    net = model(seed, dtype)
    names = names or draw.sample(NAMES, draw.randint(1, len(NAMES)))
    common = options(draw, kind)
    nn.add_lora(net, {n: options(draw, kind) if mixed else common for n in names})
    stir(net)
    return net


def stir(net):
    """Values for the adapters other than those they begin with."""
    for name, p in net.lora_parameters():
        if "magnitude" in name:
            with wf.no_grad():
                p *= wf.tensor(np.linspace(0.7, 1.4, p.shape[0]), dtype=p.dtype)
        else:
            nn.init.normal_(p, std=0.4)


def updated(layer):
    """W with the update, from the published formulas."""
    w = layer.base_weight().numpy().astype(np.float64)
    given = [getattr(layer, n).detach().numpy().astype(np.float64) for n in layer.adapters]
    if layer.kind == "lokr":
        w1, *w2 = given
        scale = layer.alpha / layer.rank if len(w2) == 2 else 1.0
        return w + scale * np.kron(w1, w2[0] @ w2[1] if len(w2) == 2 else w2[0])
    total = w + layer.alpha / layer.rank * given[1] @ given[0]
    if layer.kind == "lora":
        return total
    return given[2][:, None] * total / np.linalg.norm(total, axis=1, keepdims=True)


def deltas(net):
    """By name, how much the weight of each adapted layer is changed."""
    found = nn.lora.adapted_layers(net)
    return {n: updated(m) - m.base_weight().numpy().astype(np.float64) for n, m in found.items()}


def same_deltas(a, b, rtol=1e-5):
    assert a.keys() == b.keys()
    for n in a:
        np.testing.assert_allclose(a[n], b[n], atol=rtol * np.abs(a[n]).max(), rtol=0, err_msg=n)


def config(state):
    """The config by which PEFT makes adapters for the tensors of a file: alpha is the rank."""
    ends = ".lora_A.weight"
    ranks = {f"^{n.removesuffix(ends)}": v.shape[0] for n, v in state.items() if n.endswith(ends)}
    dora = any("magnitude" in n for n in state)
    given = dict(r=1, lora_alpha=1, rank_pattern=ranks, alpha_pattern=ranks, use_dora=dora)
    return peft.LoraConfig(target_modules=[n[1:] for n in ranks], **given)
