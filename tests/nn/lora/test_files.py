"""Adapter files of every layout, kind, mix of ranks, choice of layers and dtype, there and back."""

import json
import random
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import weft as wf

from .twins import KINDS, NAMES, adapted, array, deltas, model, same_deltas, stir

nn = wf.nn
UNIT = {None: 1e-5, "float32": 1e-5, "bfloat16": 2**-5, "float16": 2**-8, "float64": 1e-5}
# Widths that PEFT would split otherwise; these files are for LyCORIS' programs.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*split widths by one factor")


@pytest.mark.parametrize("layout", ["peft", "kohya"])
@pytest.mark.parametrize("kind", [*KINDS, "all"])
@pytest.mark.parametrize("seed", range(12))
def test_a_file_gives_the_same_update_back(layout, kind, seed, tmp_path):
    draw = random.Random(seed)
    dtype, base = draw.choice([*UNIT]), draw.choice(["float32", "bfloat16", "float64"])
    if kind == "all":
        mine = model(seed, base)
        nn.add_lora(mine, {n: {"kind": k, "rank": 2} for n, k in zip(NAMES, KINDS, strict=False)})
        stir(mine)
    else:
        mine = adapted(seed, kind, mixed=draw.random() < 0.5, dtype=base)
    if draw.random() < 0.5:
        nn.merge_lora(mine)
    path = tmp_path / "a.safetensors"
    if kind == "all" and layout == "peft":
        with pytest.warns(wf.errors.AdapterWarning, match="files of its own only: 2.2"):
            nn.save_lora(mine, path, layout, dtype)
    else:
        nn.save_lora(mine, path, layout, dtype)
    fresh = model(seed, base)
    assert set(nn.load_lora(fresh, path)) == set(nn.lora.adapted_layers(mine))
    same_deltas(deltas(mine), deltas(fresh), UNIT[dtype])
    # Into adapters that are there, which keep their own alpha.
    for m in nn.lora.adapted_layers(mine).values():
        alpha = m.alpha
        if m.merged:
            m.unmerge()
        m.alpha = alpha * draw.choice([1.0, 2.0, 0.3])
    _load_or_list_ranks(mine, path, fresh, UNIT[dtype])
    found = nn.lora_summary(path)
    assert found.layout == layout and not found.faults and len(found.modules) == len(deltas(mine))


def _load_or_list_ranks(mine, path, fresh, unit):
    """Padded ranks (modules whose names end alike) are refused, and both shapes are named."""
    ranks = [{n: m.rank for n, m in nn.lora.adapted_layers(net).items()} for net in (mine, fresh)]
    if ranks[0] == ranks[1]:
        alphas = [m.alpha for m in nn.lora.adapted_layers(mine).values()]
        nn.load_lora(mine, path)
        same_deltas(deltas(fresh), deltas(mine), 1e-5)
        assert alphas == [m.alpha for m in nn.lora.adapted_layers(mine).values()]
    elif not any(m.kind == "lokr" for m in nn.lora.adapted_layers(mine).values()):
        with pytest.raises(wf.errors.StateMismatch, match=r"lora_A \(\d, \d+\).* the model has"):
            nn.load_lora(mine, path)


def test_strength_is_in_b_and_alphas_are_there_only_where_ranks_differ(tmp_path):
    path = tmp_path / "a.safetensors"
    mine = model()
    nn.add_lora(mine, ["2.?"], rank=2, alpha=6.0)
    stir(mine)
    nn.save_lora(mine, path)
    tensors = load_file(path)
    assert sorted(tensors) == [f"transformer.2.{k}.lora_{n}.weight" for k in "02" for n in "AB"]
    np.testing.assert_allclose(
        tensors["transformer.2.0.lora_B.weight"], 3.0 * array(mine[2][0].lora_B), rtol=1e-6
    )
    assert not wf.io.read_header(path).metadata
    nn.add_lora(mine, "3", rank=4, alpha=1.0)
    stir(mine)
    nn.save_lora(mine, path, prefix="")
    alphas = {n: float(x) for n, x in load_file(path).items() if n.endswith("alpha")}
    assert alphas == {"2.0.alpha": 2.0, "2.2.alpha": 2.0, "3.alpha": 4.0}
    other = model()
    nn.load_lora(other, path)
    same_deltas(deltas(mine), deltas(other))


def test_kohya_keys(tmp_path):
    mine = adapted(1, "dora", names=["2.0"])
    nn.save_lora(mine, tmp_path / "a", "kohya")
    shapes = {n: x.shape for n, x in load_file(tmp_path / "a").items()}
    rank = mine[2][0].rank
    assert shapes == {
        "lora_unet_2_0.lora_down.weight": (rank, 12),
        "lora_unet_2_0.lora_up.weight": (8, rank),
        "lora_unet_2_0.alpha": (),
        "lora_unet_2_0.dora_scale": (8, 1),
    }
    metadata = wf.io.read_header(tmp_path / "a").metadata
    assert metadata == {"ss_network_dim": str(rank), "ss_network_alpha": str(rank)}


PREFIXES = [
    *("", "transformer.", "diffusion_model.", "base_model.model.", "lora_unet_"),
    *("lora_transformer_", "lycoris_"),
]


@pytest.mark.parametrize("adapter", ["", "default"])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_names_are_found_behind_any_prefix(prefix, adapter, tmp_path):
    mine = adapted(3, "dora", names=["0", "2.2"])
    nn.save_lora(mine, tmp_path / "a", prefix="P")
    dot = "_" if prefix.endswith("_") else "."
    renamed = {}
    for n, x in load_file(tmp_path / "a").items():
        module, role = n.removeprefix("P.").rsplit(".lora_", 1)
        what, _, weight = role.partition(".")
        inner = ".".join(filter(None, (f"lora_{what}", adapter, weight)))
        renamed[f"{prefix}{module.replace('.', dot)}.{inner}"] = x
    save_file(renamed, tmp_path / "b")
    other = model(3)
    nn.load_lora(other, tmp_path / "b")
    same_deltas(deltas(mine), deltas(other))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_elsewhere_is_saved_loaded_and_merged(kind, tmp_path):
    mine = adapted(6, kind, names=["0", "2.2"])
    want = deltas(mine)
    mine.to("torch")
    nn.save_lora(mine, tmp_path / "a", "kohya")
    other = model(6).to("torch")
    nn.load_lora(other, tmp_path / "a")
    assert {p.device for _, p in other.lora_parameters()} == {mine[0].weight.device}
    nn.load_lora(other, tmp_path / "a")
    nn.merge_lora(other)
    same_deltas(deltas(other.to("cpu")), want)


def test_names_that_underscores_make_one_are_refused(tmp_path):
    mine = nn.ModuleDict({"a": nn.ModuleDict({"b": nn.Linear(2, 2)}), "a_b": nn.Linear(2, 2)})
    nn.add_lora(mine, "*", rank=1)
    stir(mine)
    with pytest.raises(wf.errors.ArgumentError, match="would both be lora_unet_a_b"):
        nn.save_lora(mine, tmp_path / "a", "kohya")
    nn.save_lora(mine, tmp_path / "a")


def test_a_config_of_peft_that_changes_the_base_is_refused(tmp_path):
    path = tmp_path / "adapter_model.safetensors"
    nn.save_lora(adapted(4, "lora", names=["0"]), path)
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1}
    for more, message in (({"init_lora_weights": "pissa"}, "'pissa', by which PEFT changes"),
                          ({"peft_type": "LOHA"}, "peft_type 'LOHA', expected")):  # fmt: skip
        (tmp_path / "adapter_config.json").write_text(json.dumps(config | more))
        with pytest.raises(wf.errors.CheckpointError, match=message):
            nn.load_lora(model(4), tmp_path)


def test_a_prefix_that_is_also_a_name_has_to_be_given(tmp_path):
    def net():
        wf.random.seed(0)
        return nn.ModuleDict(
            {"a": nn.Linear(2, 2), "transformer": nn.ModuleDict({"a": nn.Linear(2, 2)})}
        )

    mine = net()
    nn.add_lora(mine, "a", rank=1)
    stir(mine)
    nn.save_lora(mine, tmp_path / "x")
    with pytest.raises(wf.errors.ArgumentError, match=r"either prefix of '', 'transformer\.'"):
        nn.load_lora(net(), tmp_path / "x")
    other = net()
    assert nn.load_lora(other, tmp_path / "x", prefix="transformer") == ["a"]


@pytest.mark.parametrize("inner", [{}, {"use_rslora": True}, {"alpha_pattern": {"2.0": 5.0}}])
def test_metadata_of_diffusers_gives_the_strength(inner, tmp_path):
    mine = adapted(2, "lora", names=["2.0", "3"])
    nn.save_lora(mine, tmp_path / "a")
    rank = mine[3].rank
    config = {"r": rank, "lora_alpha": 7.0, "alpha_pattern": {}, "rank_pattern": {}, **inner}
    text = json.dumps({f"transformer.{k}": v for k, v in config.items()})
    save_file(load_file(tmp_path / "a"), tmp_path / "b", {"lora_adapter_metadata": text})
    plain, scaled = model(2), model(2)
    nn.load_lora(plain, tmp_path / "a")
    nn.load_lora(scaled, tmp_path / "b")
    below = np.sqrt(rank) if inner.get("use_rslora") else rank
    for name, x in deltas(plain).items():
        alpha = 5.0 if name == "2.0" and "alpha_pattern" in inner else 7.0
        want = x * alpha / below
        np.testing.assert_allclose(deltas(scaled)[name], want, atol=1e-5 * np.abs(want).max())


def broken(change, seed=4, metadata=None):
    """A file of two modules after a change of its tensors."""

    def write(path):
        nn.save_lora(adapted(seed, "lora", names=["0", "2.0"]), path)
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata)

    return write


A, B = "transformer.0.lora_A.weight", "transformer.0.lora_B.weight"


def put(name, value):
    """Set a tensor of module 0, perhaps to a function of its A."""
    return lambda t: t.update({f"transformer.0.{name}": value(t[A]) if callable(value) else value})


def rename(t, old, new):
    t.update({n.replace(old, new): t.pop(n) for n in (A, B)})


BAD = {
    "key": (put("hada_w1", lambda a: a), "unexpected keys: transformer.0.hada_w1"),
    "module": (lambda t: rename(t, ".0.", ".9."), "unexpected modules: transformer.9"),
    "half": (lambda t: t.pop(B), "transformer.0: a alone, expected both factors"),
    "rank": (put("lora_A.weight", lambda a: a[:0]), "expected one rank"),
    "width": (put("lora_A.weight", lambda a: a[:, 1:]), r"shape \(12, 5\), expected \(12, 6\)"),
    "axes": (put("lora_A.weight", lambda a: a[:, :, None]), "expected a matrix"),
    "integers": (put("lora_A.weight", lambda a: a.astype("i")), "int32, expected floating"),
    "alpha": (put("alpha", np.zeros(1, "f")), "other than 0"),
    "alphas": (put("alpha", np.ones(2, "f")), r"\[1.0, 1.0\]"),
    "two": (put("lora_down.weight", lambda a: a), "another key says the same"),
    "magnitude": (put("dora_scale", np.ones((1, 6), "f")), "12 outputs"),
    "nan": (put("lora_A.weight", lambda a: a * np.nan), "NaN or infinite: 0"),
    "magnitudes": (put("dora_scale", np.full(12, np.nan, "f")), "NaN or infinite: 0"),
    "kinds": (put("lokr_w1", lambda a: a), "nothing of lokr_w2"),
    "empty": (lambda t: t.clear() or t.update(x=np.ones(1)), "no adapter in it"),
    "several": (
        lambda t: t.update({A.replace("A.", "A.x."): t.pop(A), B.replace("B.", "B.y."): t.pop(B)}),
        "several adapters in one file: x, y",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_listed_and_changes_nothing(case, tmp_path):
    change, message = BAD[case]
    broken(change)(tmp_path / "a")
    net = model(4)
    before = {n: p.tolist() for n, p in net.named_parameters()}
    with pytest.raises(wf.errors.StateMismatch, match=message):
        nn.load_lora(net, tmp_path / "a")
    assert before == {n: p.tolist() for n, p in net.named_parameters()}
    assert all(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize("case", [*BAD, "zero", "good"])
def test_a_summary_tells_what_is_wrong(case, tmp_path):
    """What loading refuses, and updates of 0; but not what only a model can tell."""
    change = BAD[case][0] if case in BAD else lambda t: put("lora_B.weight", 0 * t[B])(t)
    broken((lambda t: None) if case == "good" else change)(tmp_path / "a")
    problems = nn.lora_summary(tmp_path / "a").problems
    if case in ("good", "module", "width"):
        assert problems == []
    else:
        said = "an update of 0, which" if case == "zero" else BAD[case][1]
        assert re.search(said.replace(": 0", ": transformer.0"), "\n".join(problems))


def test_all_faults_come_in_one_error(tmp_path):
    faults = ["key", "alpha"]
    other = "transformer.2.0.lora_A.weight"
    broken(lambda t: [BAD[f][0](t) for f in faults] + [t.update({other: t[other].astype("i")})])(
        tmp_path / "a"
    )
    with pytest.raises(wf.errors.StateMismatch) as raised:
        nn.load_lora(model(4), tmp_path / "a")
    for part in ("unexpected keys: transformer.0.hada_w1", "other than 0", "int32"):
        assert part in str(raised.value)


def test_other_adapters_than_the_models_are_listed(tmp_path):
    nn.save_lora(adapted(4, "lora", names=["0", "2.0"]), tmp_path / "a")
    other = adapted(4, "lora", names=["2.0", "3"])
    with pytest.raises(wf.errors.StateMismatch, match=r"file has not: 3\n.*model has not: 0"):
        nn.load_lora(other, tmp_path / "a")
    kind = adapted(4, "dora", names=["0", "2.0"])
    with pytest.raises(wf.errors.StateMismatch, match=r"the model has .* lora_magnitude_vector"):
        nn.load_lora(kind, tmp_path / "a")


def test_an_alpha_may_be_an_integer(tmp_path):
    broken(put("alpha", np.asarray(6)))(tmp_path / "a")
    mine, plain = model(4), model(4)
    nn.load_lora(mine, tmp_path / "a")
    broken(lambda t: None)(tmp_path / "b")
    nn.load_lora(plain, tmp_path / "b")
    want = deltas(plain)["0"] * 6 / plain[0].rank
    np.testing.assert_allclose(deltas(mine)["0"], want, rtol=1e-5, atol=1e-7)


def test_alpha_and_metadata_together_are_refused(tmp_path):
    text = json.dumps({"transformer.r": 1, "transformer.lora_alpha": 2})
    given = {"lora_adapter_metadata": text}
    alpha = {"transformer.0.alpha": np.asarray(1, "f")}
    broken(lambda t: t.update(alpha), metadata=given)(tmp_path / "a")
    with pytest.raises(
        wf.errors.StateMismatch, match="of its own, and another one in the metadata"
    ):
        nn.load_lora(model(4), tmp_path / "a")


@pytest.mark.parametrize("pattern", ["(a+)+$", "0|2"])
def test_patterns_in_metadata_are_not_run_as_expressions(pattern, tmp_path):
    config = {"transformer.r": 2, "transformer.lora_alpha": 2}
    text = json.dumps(config | {"transformer.rank_pattern": {pattern: 3}})
    broken(lambda t: None, metadata={"lora_adapter_metadata": text})(tmp_path / "a")
    with pytest.raises(wf.errors.StateMismatch, match="expected a name"):
        nn.load_lora(model(4), tmp_path / "a")


@pytest.mark.parametrize("layout", ["peft", "kohya"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_of_zero_is_warned_of_by_name(kind, layout, tmp_path):
    mine = model()
    nn.add_lora(mine, ["0", "3"], rank=1, kind=kind)
    with pytest.warns(wf.errors.AdapterWarning, match="update of 0, which changes nothing: 0, 3"):
        nn.save_lora(mine, tmp_path / "a", layout)
    stir(mine)
    with wf.no_grad():
        first = getattr(mine[3], mine[3].adapters[-1 if kind == "lokr" else 1])
        first[0, 0] = float("nan")
    with pytest.warns(wf.errors.AdapterWarning, match="not finite: 3$"):
        nn.save_lora(mine, tmp_path / "a", layout)


def test_values_that_a_dtype_loses_are_warned_of(tmp_path):
    mine = adapted(0, "lora", names=["0", "3"])
    with wf.no_grad():
        mine[0].lora_B *= 1e-9
    with pytest.warns(wf.errors.AdapterWarning, match="changes nothing: 0$"):
        nn.save_lora(mine, tmp_path / "a", dtype="float16")


def test_a_writer_that_forgets_a_layer_or_a_scale_is_caught(tmp_path, monkeypatch):
    """Faults planted in the writer."""
    from weft.nn.lora import saving

    mine = adapted(0, "lora", names=["0", "3"])
    good = saving._peft_arrays
    monkeypatch.setattr(
        saving,
        "_peft_arrays",
        lambda found, prefix: {n: x for n, x in good(found, prefix).items() if ".3." not in n},
    )
    with pytest.warns(wf.errors.AdapterWarning, match="not in the file: 3"):
        nn.save_lora(mine, tmp_path / "a")
    monkeypatch.setattr(
        saving,
        "_peft_arrays",
        lambda found, prefix: {n: x * 0.5 for n, x in good(found, prefix).items()},
    )
    with pytest.warns(wf.errors.AdapterWarning, match="another update in the file than .*: 0, 3"):
        nn.save_lora(mine, tmp_path / "a")


def test_shapes_of_lokr_that_peft_does_not_make_are_warned_of(tmp_path):
    mine = nn.Sequential(nn.Linear(64, 32))
    nn.add_lora(mine, kind="lokr", factor=16, rank=1)
    stir(mine)
    with pytest.warns(wf.errors.AdapterWarning, match="split widths by one factor"):
        nn.save_lora(mine, tmp_path / "a")


def test_summary(tmp_path):
    mine = adapted(7, "lora", mixed=True, names=["0", "2.2"])
    nn.save_lora(mine, tmp_path / "a", dtype="bfloat16")
    found = nn.lora_summary(tmp_path / "a")
    assert (found.layout, found.dtypes, found.metadata) == ("peft", ("bfloat16",), {})
    for name, delta in deltas(mine).items():
        module = found.modules[f"transformer.{name}"]
        assert module.kind == "lora" and module.alpha == module.rank
        assert module.shape == delta.shape
        np.testing.assert_allclose(module.norm, np.linalg.norm(delta), rtol=2**-5)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda p: nn.save_lora(model(), p), "no adapters; add some"),
        (lambda p: nn.save_lora(nn.LoRALinear(2, 2), p), "itself an adapter"),
        (lambda p: nn.save_lora(adapted(0), p, "xlabs"), "layout='xlabs', expected 'peft' or"),
        (lambda p: nn.save_lora(adapted(0), p, dtype="int8"), "expected a floating-point"),
        (lambda p: nn.load_lora(model(), p.parent), "neither of adapter_model.safetensors and"),
        (lambda p: nn.merge_lora(model()), "no adapters; add some"),
    ],
)
def test_bad_arguments(call, message, tmp_path):
    with pytest.raises(wf.errors.WeftError, match=message):
        call(tmp_path / "a.safetensors")
