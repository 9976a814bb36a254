"""Checkpoints without frozen parameters: smaller, and tied to the base they were trained on."""

import numpy as np
import pytest
from tests.io.alike import same

import weft as wf
from weft import errors
from weft.train.frozen import SAMPLE, digest

from .runs import loader, same_state, squares


def model(seed=0, rank=2, dtype="float32"):
    wf.random.seed(seed)
    base = wf.nn.Sequential(wf.nn.Linear(3, 40), wf.nn.BatchNorm1d(40), wf.nn.Linear(40, 1))
    for p in base.parameters():
        p.requires_grad_(False)
    base[2].to(dtype=dtype)
    adapter = wf.nn.Linear(3, rank)
    return wf.nn.ModuleDict({"base": base, "down": adapter, "up": wf.nn.Linear(rank, 1)})


def loss(module, batch):
    x, y = batch
    hidden = module["base"][1](module["base"][0](x))
    last = module["base"][2]
    out = hidden.to(last.weight.dtype) @ last.weight.detach().mT
    return squares(lambda x: out.to("float32") + module["up"](module["down"](x)), (x, y))


def trainer(directory, made=None, save_frozen=False, **options):
    made = model() if made is None else made
    optimizer = wf.optim.AdamW([(n, p) for n, p in made.named_parameters() if p.requires_grad])
    return wf.train.Trainer(
        *(made, optimizer, loss),
        **{"directory": directory, "save_frozen": save_frozen, "progress": False, **options},
    )


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_resumes_to_the_bit_from_what_was_trained(tmp_path, compiled, dtype):
    whole = trainer(None, model(dtype=dtype), compile=compiled)
    whole.fit(loader(), steps=9)
    trainer(tmp_path, model(dtype=dtype), compile=compiled).fit(loader(), steps=4)
    second = trainer(tmp_path, model(dtype=dtype), compile=compiled)
    second.fit(loader(), steps=9, resume="auto")
    assert same_state(whole, second)
    saved = wf.load_checkpoint(tmp_path)
    frozen = {n for n, p in second.model.named_parameters() if not p.requires_grad}
    assert len(frozen) == 6 and set(saved.extra["frozen"]) == frozen
    assert set(saved.model_state) == set(second.model.state_dict()) - frozen
    assert "base.1.running_mean" in saved.model_state


@pytest.mark.parametrize("first", [False, True])
def test_either_kind_of_checkpoint_resumes(tmp_path, first):
    trainer(tmp_path, save_frozen=first).fit(loader(), steps=4)
    other = model()
    if first:  # which holds the base
        other["base"][0].weight.copy_(wf.zeros((40, 3)))
    second = trainer(tmp_path, other, save_frozen=not first)
    second.fit(loader(), steps=9, resume="auto")
    whole = trainer(None)
    whole.fit(loader(), steps=9)
    assert same_state(whole, second)


def change_value(made):
    made["base"][2].weight[0, 7] = 5.0
    return r"base\.2\.weight has other values"


def change_shape(made):
    made["base"][2] = wf.nn.Linear(40, 1, bias=False).requires_grad_(False)
    return r"base\.2\.bias is not in the model"


def change_dtype(made):
    made["base"][2].to(dtype="float64")
    return r"base\.2\.weight has the dtype float64, in the checkpoint float32"


@pytest.mark.parametrize("change", [change_value, change_shape, change_dtype])
def test_another_base_is_refused_by_name(tmp_path, change):
    trainer(tmp_path).fit(loader(), steps=4)
    other = model()
    said = change(other)
    before = {n: x.clone() for n, x in other.state_dict().items()}
    with pytest.raises(errors.StateMismatch, match=said):
        trainer(tmp_path, other).fit(loader(), steps=9, resume="auto")
    assert same(before, other.state_dict())


def test_what_was_trained_and_then_frozen_is_saved(tmp_path):
    first = trainer(tmp_path)
    first.fit(loader(), steps=3)
    first.model["down"].weight.requires_grad_(False)
    first.fit(loader(), steps=5)
    saved = wf.load_checkpoint(tmp_path)
    assert "down.weight" in saved.model_state and "down.weight" not in saved.extra["frozen"]


def test_best_weights_without_frozen_ones(tmp_path):
    def early():
        return [wf.train.EarlyStopping(patience=50, restore_best=True)]

    first = trainer(tmp_path, callbacks=early())
    first.fit(loader(), epochs=3, validation=loader(shuffle=False))
    kept = wf.load_checkpoint(tmp_path).extra["callbacks"]["EarlyStopping"]["kept"]
    assert not any(n.startswith("base.0") for n in kept["model"])
    other = trainer(None, save_frozen=True, callbacks=early())
    other.fit(loader(), epochs=3, validation=loader(shuffle=False))
    assert same(other.model.state_dict(), first.model.state_dict())


def test_a_digest_is_of_a_sample_of_the_elements():
    x = np.random.default_rng(0).standard_normal((300, 50)).astype(np.float32)
    stride = -(-x.size // SAMPLE)
    known = digest(wf.tensor(x))
    assert digest(wf.tensor(x, device="torch")) == known
    sampled, other = x.copy(), x.copy()
    sampled.reshape(-1)[stride * 3] += 1
    other.reshape(-1)[stride * 3 + 1] += 1
    assert digest(wf.tensor(sampled)) != known == digest(wf.tensor(other))
    assert digest(wf.zeros((0, 3))) and digest(wf.zeros(()))
