"""The state of a ShardedOptimizer in files: one for each rank, and a manifest with their digests.

The manifest is written last, in one step: until then the directory holds what it held before.
"""

from math import prod
from os import PathLike, listdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..arrays.make import asarray
from ..core.differences import differences
from ..core.value import TENSORS, wrap
from ..io import directory as folder
from ..io import disk, tensor_file
from ..io.durable import Stored, make_directories, write_file
from ..io.manifest import FILE, Manifest, encode
from ..io.tree import Flattener, Restorer
from ..optim import state
from ..optim.state import Slot, dump
from .gathering import exchange
from .member import Member
from .sharded_state import States, install

if TYPE_CHECKING:
    from .sharded import ShardedOptimizer

_WHOLE = "optimizer"  # the tree of what is not distributed


def _field(rank: int) -> str:
    return f"rank_{rank}"


def save(sharded: "ShardedOptimizer", path: str | PathLike[str]) -> None:
    """Write this rank's file; rank 0 writes the manifest when all have."""
    group, root = sharded.ready(), Path(path)
    saved = sharded.part.optimizer.state_dict()
    numbers = exchange(group, "ShardedOptimizer.save_sharded", _unused(root))
    name = f"part-{max(numbers) + group.rank}.safetensors"
    flattener, known = Flattener("state_dict"), list(saved["state"])
    tree = {
        "state": flattener.skeleton(saved.pop("state")),
        "pieces": {key: [p.start, p.stop] for key, p in sharded.part.pieces.items()},
        "known": known,
    }
    written, failure = _try(lambda: _write(root, name, flattener.arrays))
    said = [name, tree, written, None if failure is None else str(failure)]
    parts = exchange(group, "ShardedOptimizer.save_sharded: written", said)
    _refuse_failed(group, "save_sharded", path, [p[3] for p in parts], failure)
    if group.rank == 0:
        shapes = {e.key: list(e.param.shape) for e in sharded.entries()}
        whole = {**saved, **dump(sharded.optimizer), "shapes": shapes, "ranks": group.size}
        trees = {_WHOLE: Flattener("state_dict").skeleton({**whole, "state": {}})}
        files = {}
        for rank, (file, skeleton, stored, _) in enumerate(parts):
            trees[_field(rank)] = skeleton
            files[_field(rank)] = file, Stored(*stored)
        _, failure = _try(lambda: _finish(root, Manifest(0, files, trees)))
    ends = exchange(group, "ShardedOptimizer.save_sharded: done", failure and str(failure))
    _refuse_failed(group, "save_sharded", path, ends, failure)


def _try(action: Any) -> tuple[Any, Exception | None]:
    """The result, or the error, which all ranks have to learn of."""
    try:
        return action(), None
    except (OSError, errors.WeftError) as e:
        return None, e


def _refuse_failed(
    group: Member, what: str, path: Any, said: list[Any], mine: Exception | None
) -> None:
    """Raise on all ranks if one has failed."""
    if mine is not None:
        raise mine
    failed = {rank: text for rank, text in enumerate(said) if text is not None}
    if failed:
        listed = "; ".join(f"rank {rank}: {text}" for rank, text in failed.items())
        raise errors.CheckpointError(f"ShardedOptimizer.{what}: {path}: {listed}")


def _unused(root: Path) -> int:
    """A number above those of all files there are."""
    names = listdir(root) if root.is_dir() else []
    found = [FILE.fullmatch(name) for name in names if name.startswith("part-")]
    return max([1 + int(m[1][1:]) for m in found if m and m[1]], default=0)


def _write(root: Path, name: str, arrays: dict[str, Any]) -> list[Any]:
    make_directories(root)
    stored = tensor_file.write(root / name, arrays)
    disk.sync_directory(root)
    return [stored.size, stored.sha256]


def _finish(root: Path, manifest: Manifest) -> None:
    write_file(root / folder.MANIFEST, [encode(manifest)])
    disk.sync_directory(root)
    kept = {name for name, _ in manifest.files.values()}
    for name in listdir(root):
        if name.startswith("part-") and FILE.fullmatch(name) and name not in kept:
            disk.remove(root / name)


def load(sharded: "ShardedOptimizer", path: str | PathLike[str]) -> None:
    """Read what this rank's pieces need, and adopt it when all ranks have read theirs."""
    group, base, root = sharded.ready(), sharded.optimizer, Path(path)
    found, failure = _try(lambda: _read(sharded, root))
    digest = None if failure is None else str(failure)
    ends = exchange(group, f"{type(base).__name__}.load_sharded", digest)
    _refuse_failed(group, "load_sharded", path, ends, failure)
    install(sharded, *found)


def _read(sharded: "ShardedOptimizer", root: Path) -> tuple[dict[str, Any], States]:
    """What is not distributed, and the states of this rank's pieces."""
    manifest, where = folder.read_manifest(root), str(root / folder.MANIFEST)
    if _WHOLE not in manifest.trees:
        raise errors.CheckpointError(
            f"{where}: not written by save_sharded; load_checkpoint reads other checkpoints"
        )
    saved = Restorer({}, "cpu", where).tree(manifest.trees[_WHOLE])
    fields = [_field(rank) for rank in range(saved.pop("ranks"))]
    if set(manifest.trees) != {_WHOLE, *fields} or set(manifest.files) != set(fields):
        raise errors.CheckpointError(f"{where}: expected a tree and a file of each of {fields}")
    shapes = saved.pop("shapes")
    _check(sharded, saved, shapes)
    trees = [manifest.trees[field] for field in fields]
    _check_complete(where, trees, shapes)
    states: States = {}
    for field, tree in zip(fields, trees, strict=True):
        name, stored = manifest.files[field]
        needed = [key for key in tree["known"] if _meet(sharded, key, tree["pieces"][key])]
        if not needed:
            folder.check_size(root / name, stored)
            continue
        arrays = tensor_file.read(root / name, stored)
        held = Restorer(arrays, "cpu", str(root / name)).tree(tree["state"])
        for key in needed:
            _fill(sharded, states, key, held[key], tree["pieces"][key])
    return saved, states


def _check_complete(where: str, trees: list[Any], shapes: dict[str, Any]) -> None:
    """Raise unless the pieces are all of the parameters, with states of all pieces or of none."""
    for key, shape in shapes.items():
        held = sorted(
            (*tree["pieces"][key], key in tree["known"]) for tree in trees if key in tree["pieces"]
        )
        ends = [0, *[stop for _, stop, _ in held]]
        tiled = held and ends[:-1] == [start for start, _, _ in held] and ends[-1] == prod(shape)
        if not tiled or len({known for _, _, known in held}) > 1:
            raise errors.CheckpointError(
                f"{where}: damaged: it has only parts of the state of {key!r}: {held}"
            )


def _check(sharded: "ShardedOptimizer", saved: dict[str, Any], shapes: dict[str, Any]) -> None:
    """Raise unless the state is of such an optimizer of such parameters."""
    base = sharded.optimizer
    what = f"{type(base).__name__}.load_sharded"
    state.check_form(what, base, saved)
    state.checked_groups(what, base, saved["param_groups"])
    mine = {e.key: Slot(e.param.shape, e.param.dtype, "cpu") for e in sharded.entries()}
    float32 = np.dtype(np.float32)  # only shapes are compared
    differences(mine, {k: Slot(tuple(s), float32, "cpu") for k, s in shapes.items()}).refuse(what)


def _meet(sharded: "ShardedOptimizer", key: str, saved: list[int]) -> bool:
    piece = sharded.part.pieces.get(key)
    if piece is None:
        return False
    return max(piece.start, saved[0]) < min(piece.stop, saved[1]) or piece.size == 0


def _fill(
    sharded: "ShardedOptimizer", states: States, key: str, own: dict[str, Any], saved: list[int]
) -> None:
    """Copy what a saved piece has of this rank's."""
    piece, slots = sharded.part.pieces[key], sharded.part.slots(key)
    a, b = max(piece.start, saved[0]), min(piece.stop, saved[1])
    for name, value in sharded.part.optimizer.upgrade_state(own).items():
        found = states.setdefault(key, {})
        if type(value) not in TENSORS or piece.whole or name not in slots:
            found[name] = value
            continue
        if name not in found:
            found[name] = wrap(Slot((piece.size,), slots[name].dtype, "cpu").allocate())
        source = asarray(value, dtype=slots[name].dtype)._data[a - saved[0] : b - saved[0]]
        found[name]._data[a - piece.start : b - piece.start] = source
