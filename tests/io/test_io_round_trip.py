"""What is loaded is what was saved, to the bit."""

import dataclasses
import math
import struct
from collections import OrderedDict

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from alike import every_dtype, raw, same

import weft as wf
from weft import errors
from weft.optim import AdamW

NAN_WITH_PAYLOAD = struct.unpack(">d", bytes.fromhex("fff4000000000123"))[0]
TREES = {
    "nothing": None,
    "numbers": [True, False, 0, -1, 2**53 + 1, -(2**200), 0.1, -0.0, 5e-324, 1e308],
    "special floats": [math.inf, -math.inf, math.nan, NAN_WITH_PAYLOAD],
    "complex": [1 + 2j, complex(-0.0, math.inf), complex(NAN_WITH_PAYLOAD, 0.0)],
    "strings": ["", "a\x00b", "\ud800", "naïve ∂", "$tensor"],
    "containers": {"": [], "b": {}, "a": (), "nested": [(1, [2]), {"x": {"y": (None,)}}]},
    "keys like tags": {"$tensor": 1, "$$": {"$items": 2}, "$": 3},
    "one key like a tag": {"$tuple": [1]},
    "integer keys": {0: "a", 1: {"exp_avg": 2.0}, "0": "b", -(2**70): None},
    "dtypes": every_dtype(),
    "empty": {"none": wf.zeros((0, 3)), "bytes": wf.zeros((2, 0), dtype="bfloat16")},
    "scalars": [wf.tensor(1.5), wf.tensor(True), wf.tensor(1 - 2j), wf.tensor(2**62 + 1)],
    "numpy": {"array": np.arange(6.0).reshape(2, 3), "scalar": np.float32(0.1), "int": np.int8(3)},
    "names that clash": {"a": {"b": wf.ones(1)}, "a.b": wf.zeros(1), "~2": wf.ones(2)},
    "unfit names": {"a\nb": wf.ones(1), "": wf.zeros(1), "__metadata__": wf.ones(2)},
    "a tensor": wf.tensor([1.0, 2.0]),
}


@pytest.fixture(params=TREES)
def tree(request):
    return TREES[request.param]


def test_trees(tmp_path, tree):
    wf.save_checkpoint(tmp_path, wf.Checkpoint(extra=tree), step=1)
    assert same(wf.load_checkpoint(tmp_path).extra, tree)


class Keeper:
    """An optimizer as far as saving goes."""

    def __init__(self, state=None):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


class OtherKeeper(Keeper):
    pass


def test_optimizers(tmp_path, tree):
    wf.save_optimizer(tmp_path / "a.pt", Keeper(tree))
    keeper = Keeper()
    assert wf.load_optimizer(tmp_path / "a.pt", keeper) is keeper
    assert same(keeper.state, tree)


def test_an_optimizer_goes_on_exactly(tmp_path):
    def trained(optimizer, p, steps):
        for _ in range(steps):
            p.zero_grad()
            (p**4).sum().backward()
            optimizer.step()
        return p

    p = wf.Parameter(wf.randn((20, 3)))
    optimizer = AdamW([p], lr=0.1)
    trained(optimizer, p, 3)
    wf.save_optimizer(tmp_path / "adamw", optimizer)
    copies = [wf.Parameter(p.detach()) for _ in range(2)]
    resumed = wf.load_optimizer(tmp_path / "adamw", AdamW([copies[0]]))
    assert same(resumed.state_dict(), optimizer.state_dict())
    assert wf.load_optimizer(tmp_path / "adamw", AdamW).config == optimizer.config
    expected = trained(optimizer, p, 3)
    assert same(trained(resumed, copies[0], 3), expected)
    assert not same(trained(AdamW([copies[1]], lr=0.1), copies[1], 3), expected)


def test_the_other_order_of_arguments(tmp_path):
    wf.save_optimizer(Keeper({"lr": 0.1}), str(tmp_path / "a.pt"))
    loaded = wf.load_optimizer(Keeper, str(tmp_path / "a.pt"))
    assert type(loaded) is Keeper and loaded.state == {"lr": 0.1}
    wf.save_checkpoint(wf.Checkpoint(step=3), str(tmp_path / "run"))
    assert wf.load_checkpoint(str(tmp_path / "run")).step == 3
    wf.io.save_safetensors({"x": wf.ones(2)}, tmp_path / "x")
    assert same(wf.io.load_safetensors(tmp_path / "x"), {"x": wf.ones(2)})


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(wf.Checkpoint)])
def test_every_field_is_kept(tmp_path, field):
    numbers = {"epoch": 7, "step": 8}
    value = numbers.get(field, {"x": wf.tensor([1.0, -0.0]), "n": 2**70})
    saved = wf.Checkpoint(**{"step": 1, field: value})
    wf.save_checkpoint(tmp_path, saved)
    loaded = wf.load_checkpoint(tmp_path)
    assert same(getattr(loaded, field), value)
    others = {f.name for f in dataclasses.fields(saved)} - {field}
    assert all(getattr(loaded, n) == getattr(saved, n) for n in others)


def test_steps_and_epochs_are_integers(tmp_path):
    wf.save_checkpoint(tmp_path, wf.Checkpoint(step=np.int64(3), epoch=wf.tensor(2)))
    loaded = wf.load_checkpoint(tmp_path)
    assert (type(loaded.step), type(loaded.epoch)) == (int, int)
    assert (loaded.step, loaded.epoch) == (3, 2)
    for bad in ({"step": 1.5}, {"step": 1, "epoch": 0.5}, {"step": 1, "epoch": None}):
        with pytest.raises(errors.DTypeError, match="expected an integer"):
            wf.save_checkpoint(tmp_path, wf.Checkpoint(**bad))


def test_unknown_fields_are_errors():
    with pytest.raises(TypeError):
        wf.Checkpoint(model={})  # type: ignore[call-arg]


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_memory_of_every_layout_and_device(tmp_path, device):
    x = wf.tensor(np.arange(24.0).reshape(2, 3, 4), device=device)
    views = {"transposed": x.T, "strided": x[:, ::2], "broadcast": wf.broadcast_to(x[0, 0], (5, 4))}
    views |= every_dtype(device)
    wf.save_checkpoint(tmp_path, wf.Checkpoint(views), step=1)
    there = wf.load_checkpoint(tmp_path, device="torch").model_state
    assert all(v.device == "torch" for v in there.values())
    assert same(wf.load_checkpoint(tmp_path).model_state, there)
    assert same(there, views)


def test_reversed_and_conjugated_memory(tmp_path):
    x = wf.tensor(np.arange(4.0) + 1j)
    tensors = {"reversed": x[::-1], "conjugate": wf.conj(x.to("torch")), "imag": x.imag}
    wf.io.save_safetensors(tmp_path / "x", tensors)
    assert same(wf.io.load_safetensors(tmp_path / "x"), tensors)


def test_parameters_come_back_as_detached_tensors(tmp_path):
    p = wf.Parameter(wf.tensor([1.0, 2.0]))
    wf.save_checkpoint(tmp_path, wf.Checkpoint(OrderedDict(p=p)), step=1)
    loaded = wf.load_checkpoint(tmp_path).model_state
    assert type(loaded) is dict and type(loaded["p"]) is wf.Tensor
    assert not loaded["p"].requires_grad and loaded["p"].tolist() == [1.0, 2.0]
    p.apply_update(wf.ones(2))  # what was loaded has memory of its own
    assert loaded["p"].tolist() == [1.0, 2.0]


def test_random_numbers_continue(tmp_path):
    wf.random.seed(5)
    wf.randn(7)
    wf.save_checkpoint(tmp_path, wf.Checkpoint(rng=wf.random.get_state()), step=1)
    following = wf.randn(5).tolist()
    wf.random.set_state(wf.load_checkpoint(tmp_path).rng)
    assert wf.randn(5).tolist() == following
    with pytest.raises(errors.ArgumentError, match="position"):
        wf.random.set_state({"key": 1, "nonce": 2, "position": -1})


def test_plain_files_are_what_the_safetensors_package_reads(tmp_path):
    tensors = every_dtype() | {"empty": wf.zeros((0, 2)), "scalar": wf.tensor(2.5)}
    wf.io.save_safetensors(tmp_path / "ours", tensors, metadata={"author": "naïve"})
    assert same(wf.io.load_safetensors(tmp_path / "ours"), tensors)
    theirs = safetensors.deserialize((tmp_path / "ours").read_bytes())
    assert {name for name, _ in theirs} == set(tensors)
    for name, entry in theirs:
        shape = raw(tensors[name]).shape + (2,) * name.startswith("complex")
        assert (tuple(entry["shape"]), bytes(entry["data"])) == (
            shape,
            raw(tensors[name]).tobytes(),
        )
    header = wf.io.read_header(tmp_path / "ours")
    assert header.metadata.pop("author") == "naïve" and set(header.metadata) == {"weft.complex"}
    assert header.entries["int16"].shape == (2, 3) and header.entries["int16"].dtype == wf.int16


def test_what_the_safetensors_package_writes(tmp_path):
    arrays = {n: raw(t).copy() for n, t in every_dtype().items() if "complex128" != n}
    arrays["scalar"], arrays["empty"] = np.array(3.0), np.zeros((3, 0), np.int8)
    safetensors.numpy.save_file(arrays, tmp_path / "theirs", metadata={"format": "np"})
    loaded = wf.io.load_safetensors(tmp_path / "theirs")
    assert set(loaded) == set(arrays) and all(same(raw(loaded[n]), arrays[n]) for n in arrays)


def test_a_checkpoint_holds_only_safetensors_and_json(tmp_path):
    path = wf.save_checkpoint(tmp_path, wf.Checkpoint({"w": wf.ones(2)}, {"m": wf.ones(1)}), step=1)
    names = ["manifest.json", "model_state.safetensors", "optimizer_state.safetensors"]
    assert sorted(p.name for p in path.iterdir()) == names
    with safetensors.safe_open(path / "model_state.safetensors", "numpy") as file:
        assert list(file.keys()) == ["w"] and file.get_tensor("w").tolist() == [1.0, 1.0]


UNFIT = {
    "object": (object(), "extra.x is a object"),
    "function": (len, "builtin_function"),
    "set": ({1}, "is a set"),
    "bytes": (b"", "is a bytes"),
    "objects": (np.array([None]), "dtype object"),
    "big-endian": (np.array([1.0], ">f8"), "dtype >f8"),
    "float key": ({1.5: 0}, "keys"),
    "huge integer": (10**1000, "digits"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_cannot_be_saved_is_named(tmp_path, case):
    value, message = UNFIT[case]
    with pytest.raises(errors.ArgumentError, match=message):
        wf.save_checkpoint(tmp_path / "run", wf.Checkpoint(extra={"x": value}), step=1)
    assert not (tmp_path / "run").exists()


def test_endless_trees_are_refused(tmp_path):
    loop: list = []
    loop.append(loop)
    with pytest.raises(errors.ArgumentError, match="deeper"):
        wf.save_checkpoint(tmp_path, wf.Checkpoint(extra=loop), step=1)


def test_deep_trees(tmp_path):
    tree = wf.ones(1)
    for i in range(30):
        tree = [tree] if i % 3 else {i: tree}
    wf.save_checkpoint(tmp_path, wf.Checkpoint(extra=tree), step=1)
    assert same(wf.load_checkpoint(tmp_path).extra, tree)


def test_values_inside_a_transformation_are_refused(tmp_path):
    def f(x):
        with pytest.raises(errors.ArgumentError, match="save after it"):
            wf.save_checkpoint(tmp_path, wf.Checkpoint({"x": x}), step=1)
        with pytest.raises(errors.ArgumentError, match="outside of jvp and vmap"):
            wf.io.save_safetensors(tmp_path / "x", {"x": x})
        return x

    wf.vmap(f)(wf.ones(3))


BAD_CALLS = {
    "no step": lambda p: wf.save_checkpoint(p, wf.Checkpoint()),
    "two steps": lambda p: wf.save_checkpoint(p, wf.Checkpoint(step=1), step=2),
    "negative step": lambda p: wf.save_checkpoint(p, wf.Checkpoint(), step=-1),
    "keep none": lambda p: wf.save_checkpoint(p, wf.Checkpoint(step=1), keep_last=0),
    "no checkpoint": lambda p: wf.save_checkpoint(p, {"w": wf.ones(1)}, step=1),
    "no path": lambda p: wf.save_checkpoint(3, wf.Checkpoint(), step=1),
    "no optimizer": lambda p: wf.save_optimizer(p, object()),
    "two paths": lambda p: wf.load_optimizer(p, str(p)),
    "not a tensor": lambda p: wf.io.save_safetensors(p, {"x": 1.0}),
    "control character": lambda p: wf.io.save_safetensors(p, {"a\x07": wf.ones(1)}),
    "reserved name": lambda p: wf.io.save_safetensors(p, {"__metadata__": wf.ones(1)}),
    "number in metadata": lambda p: wf.io.save_safetensors(p, {}, {"a": 1}),
    "own metadata": lambda p: wf.io.save_safetensors(p, {}, {"weft.complex": "[]"}),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_calls_say_so_and_write_nothing(tmp_path, case):
    with pytest.raises(errors.ArgumentError, match=r"expected .* \(at test_io_round_trip.py:"):
        BAD_CALLS[case](tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_the_state_of_another_optimizer(tmp_path):
    wf.save_optimizer(tmp_path / "a", Keeper({}))
    with pytest.raises(
        errors.CheckpointError, match="'Keeper' cannot be loaded into 'OtherKeeper'"
    ):
        wf.load_optimizer(tmp_path / "a", OtherKeeper())
    wf.io.save_safetensors(tmp_path / "b", {"x": wf.ones(1)})
    with pytest.raises(errors.CheckpointError, match="no seal"):
        wf.load_optimizer(tmp_path / "b", Keeper())


def test_differences_are_listed():
    expected = {"w": wf.zeros((2, 3)), "b": wf.zeros(3), "n": 1}
    found = {"w": wf.zeros((3, 2)), "b": wf.zeros(3, dtype="float64"), "scale": wf.ones(1), "n": 2}
    seen = wf.io.differences(expected, found)
    assert seen.any and seen.missing == [] and seen.unexpected == ["scale"]
    assert seen.mismatched == ["w (expected (2, 3), found (3, 2))"]
    with pytest.raises(errors.StateMismatch, match=r"Linear: .*unexpected: scale; mismatched: w"):
        seen.refuse("Linear")
    assert not wf.io.differences(expected, expected).any
    wf.io.differences(expected, dict(expected)).refuse("Linear")
    many = wf.io.differences({f"layer{i}": wf.ones(1) for i in range(30)}, {})
    assert str(many).endswith("layer19 and 10 more")
    assert wf.io.differences({"n": 1}, {"n": wf.ones(())}).mismatched
