"""States of sharded optimizers: gathered, in files, and on another number of ranks."""

import json
import os

import numpy as np
import pytest

import weft as wf
from tests.optim.every import OPTIMIZERS
from weft import errors
from weft.io import directory, disk, manifest

from .sharded_runs import NAMES, assert_same, groups_of, parameters, plain, train, values
from .threads import run

SIZES = [(1, 3), (2, 4), (3, 2), (4, 1), (2, 2)]


def made(name, sharded, device="cpu"):
    params = parameters(values(name), device)
    optimizer = OPTIMIZERS[name][0](groups_of(params))
    return params, wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer


def copied(state):
    """Another rank's state: NumPy arrays go between threads."""
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, list):
        return [copied(value) for value in state]
    return wf.tensor(state) if isinstance(state, np.ndarray) else state


def whole_run(name):
    """Five steps, the state then, five more steps."""
    params, optimizer = made(name, False)
    halfway = train(optimizer, params, range(5))
    saved = plain(optimizer.state_dict())
    return halfway, saved, train(optimizer, params, range(10, 15)), plain(optimizer.state_dict())


def load_values(params, arrays):
    with wf.no_grad():
        for key, x in arrays.items():
            params[key].copy_(wf.tensor(x, device=params[key].device))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", ["gathered", "rooted", "files", "unsharded"])
def test_any_number_of_ranks_goes_on(name, way, tmp_path):
    """Saved by `old` ranks and loaded by `new` ones, to the bit as without sharding."""
    halfway, saved, expected, last = whole_run(name)

    def save(rank, path):
        params, optimizer = made(name, True)
        assert_same(train(optimizer, params, range(5)), halfway)
        if way == "files":
            optimizer.save_sharded(path)
            return None
        state = (
            optimizer.state_dict(root=1 % SIZE[0]) if way == "rooted" else optimizer.state_dict()
        )
        return None if state is None else plain(state)

    def load(rank, path, state):
        params, optimizer = made(name, True)
        load_values(params, halfway)
        if path is None:
            optimizer.load_state_dict(copied(state))
        else:
            optimizer.load_sharded(path)
        assert_same(plain(optimizer.state_dict()), saved)
        return train(optimizer, params, range(10, 15)), plain(optimizer.state_dict())

    for SIZE in SIZES:
        old, new = SIZE
        path = tmp_path / f"{old} to {new}"
        states = [saved] if way == "unsharded" else run(old, lambda rank: save(rank, path))
        found = [s for s in states if s is not None]
        assert len(found) == {"files": 0, "gathered": old}.get(way, 1)
        for state in found:
            assert_same(state, saved)
        from_file = path if way == "files" else None
        for result in run(new, lambda rank: load(rank, from_file, saved)):
            assert_same(list(result), [expected, last])


def test_a_gathered_state_loads_without_sharding(tmp_path):
    halfway, saved, expected, last = whole_run("adamw")

    def program(rank):
        params, optimizer = made("adamw", True)
        train(optimizer, params, range(5))
        state = optimizer.state_dict(root=0)
        if rank == 0:
            wf.save_checkpoint(tmp_path, wf.Checkpoint(optimizer_state=state), step=1)

    run(3, program)
    params, optimizer = made("adamw", False)
    load_values(params, halfway)
    optimizer.load_state_dict(wf.load_checkpoint(tmp_path).optimizer_state)
    assert_same(train(optimizer, params, range(10, 15)), expected)
    assert_same(plain(optimizer.state_dict()), last)


@pytest.mark.parametrize("seed", range(10))
def test_random_models_and_sizes(seed, tmp_path):
    rng = np.random.default_rng(seed)
    name = NAMES[int(rng.integers(len(NAMES)))]
    shapes = [tuple(rng.integers(1, 40, 2)) for _ in range(int(rng.integers(1, 9)))]
    dtype = str(rng.choice(["float32", "float64"]))
    old, new = (int(n) for n in rng.integers(1, 5, 2))
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]

    def program(path, save, sharded):
        params = parameters(arrays)
        optimizer = OPTIMIZERS[name][0](list(params.items()))
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        if save:
            train(optimizer, params, range(3))
        if sharded:
            (optimizer.save_sharded if save else optimizer.load_sharded)(path)
        return plain(optimizer.state_dict())

    expected = program(None, True, False)
    for found in run(old, lambda rank: program(tmp_path, True, True)):
        assert_same(found, expected)
    for found in run(new, lambda rank: program(tmp_path, False, True)):
        assert_same(found, expected)


def test_the_part_of_a_rank_loads_where_it_comes_from():
    *_, expected, last = whole_run("adam")

    def program(rank):
        params, optimizer = made("adam", True)
        train(optimizer, params, range(5))
        part = optimizer.state_dict(gather=False)
        assert part["share"]["rank"] == rank and part["share"]["size"] == 3
        held = {key: p.detach().numpy().copy() for key, p in params.items()}
        train(optimizer, params, range(3))
        load_values(params, held)
        optimizer.load_state_dict(part)
        found = train(optimizer, params, range(10, 15)), plain(optimizer.state_dict())
        with pytest.raises(errors.StateMismatch, match=r"part of rank 7 of 3.*load_sharded"):
            optimizer.load_state_dict({**part, "share": {**part["share"], "rank": 7}})
        return found

    for found in run(3, program):
        assert_same(list(found), [expected, last])


def steps_and_save(path, count, then=lambda optimizer: None):
    def program(rank):
        params, optimizer = made("adam", True)
        train(optimizer, params, range(count))
        then(optimizer)
        optimizer.save_sharded(path)
        return plain(optimizer.state_dict())

    return program


def read(path, size=2):
    def program(rank):
        _, optimizer = made("adam", True)
        before = plain(optimizer.state_dict())
        try:
            optimizer.load_sharded(path)
        except errors.WeftError as e:
            assert_same(plain(optimizer.state_dict()), before)  # nothing has changed
            return e
        return plain(optimizer.state_dict())

    return run(size, program)


def test_a_save_that_fails_anywhere_leaves_the_last_one(tmp_path, monkeypatch):
    """Every operation on the disk fails once, on any rank; what is there stays loadable."""
    first = run(2, steps_and_save(tmp_path, 2))[0]
    failures, n = 0, 0
    while n == 0 or failures:
        failures, count = 0, iter(range(10**6))

        def failing(real, *args):
            nonlocal failures
            if next(count) == n:
                failures += 1
                raise OSError(28, "No space left on device")
            return real(*args)

        with monkeypatch.context() as patch:
            for name in ("create", "write", "sync", "rename"):
                real = getattr(disk, name)
                patch.setattr(disk, name, lambda *args, real=real: failing(real, *args))
            try:
                run(2, steps_and_save(tmp_path, 3))
            except (OSError, errors.WeftError) as e:
                assert failures, e
        found = read(tmp_path)
        assert not any(isinstance(e, Exception) for e in found)
        if failures:
            assert_same(found[0], first)
        n += 1
    assert n > 8
    assert {len(name.split("-")) for name in os.listdir(tmp_path)} == {1, 2}
    assert len(os.listdir(tmp_path)) == 3  # files of earlier saves are gone


DAMAGES = {
    "a byte": lambda path, parts: flip(path / parts[1]),
    "a file is missing": lambda path, parts: os.remove(path / parts[1]),
    "a file is short": lambda path, parts: os.truncate(path / parts[0], 100),
    "the manifest": lambda path, parts: flip(path / "manifest.json"),
    "no manifest": lambda path, parts: os.remove(path / "manifest.json"),
}


def flip(path):
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_refused_by_all_ranks(damage, tmp_path):
    run(2, steps_and_save(tmp_path, 2))
    parts = sorted(name for name in os.listdir(tmp_path) if name.startswith("part-"))
    DAMAGES[damage](tmp_path, parts)
    for size in (1, 2, 3):
        found = read(tmp_path, size)
        assert all(isinstance(e, errors.CheckpointError) for e in found), found


def test_a_manifest_that_lacks_a_piece(tmp_path):
    run(2, steps_and_save(tmp_path, 2))
    found = directory.read_manifest(tmp_path)
    pieces = found.trees["rank_1"]["pieces"]
    cut = next(key for key in pieces if key in found.trees["rank_0"]["pieces"])
    del pieces[cut]
    (tmp_path / "manifest.json").write_bytes(manifest.encode(found))
    for size in (1, 2):
        found = read(tmp_path, size)
        assert all(isinstance(e, errors.CheckpointError) for e in found), found
        assert all(f"only parts of the state of {cut!r}" in str(e) for e in found)


def test_states_of_something_else_are_refused(tmp_path):
    run(2, steps_and_save(tmp_path, 2))

    def other(kind):
        def program(rank):
            params = parameters(values("adam"))
            if kind == "shape":
                params["p2"] = wf.Parameter.zeros((5,), dtype="float64")
            if kind == "name":
                params["q"] = params.pop("p6")
            groups = groups_of(params)[:1] if kind == "groups" else groups_of(params)
            rule = wf.optim.RAdam if kind == "rule" else wf.optim.Adam
            optimizer = wf.dist.ShardedOptimizer(rule(groups))
            optimizer.load_sharded(tmp_path)

        return program

    for kind in ("shape", "name", "groups", "rule"):
        with pytest.raises(errors.WeftError, match=r"load_sharded: .*(RAdam|group 1|p2|q)"):
            run(2, other(kind))

    def gathered(rank):
        _, optimizer = made("adam", True)
        saved = copied(plain(optimizer.state_dict()))
        state = {**saved, "state": {"p0": {"step": 1, "beta1": 0.9, "beta2": 0.9}}}
        with pytest.raises(errors.StateMismatch, match=r"missing: p0.exp_sum, p0.exp_sum_sq"):
            optimizer.load_state_dict(state)
        with pytest.raises(errors.StateMismatch, match="unexpected: other"):
            optimizer.load_state_dict({**saved, "state": {"other": {}}})

    run(2, gathered)


def test_the_manifest_is_plain_json(tmp_path):
    run(3, steps_and_save(tmp_path, 1))
    table = json.loads((tmp_path / "manifest.json").read_text())
    assert set(table["files"]) == {"rank_0", "rank_1", "rank_2"}
