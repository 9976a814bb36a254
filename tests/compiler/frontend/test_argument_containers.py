"""Containers among the arguments of compiled functions: who they are, and what is written there.

Random trees of containers are drawn, and what a function does to one of them; eager mode says which
of the caller's containers would have changed, and which are one object.
"""

import collections
import copy
import os
import random
import warnings

import numpy as np
import optree
import pytest

import weft as wf
from weft.errors import SideEffectWarning

ROUNDS = 1500 if os.environ.get("WEFT_SOAK") else 60
KINDS = (list, dict, collections.OrderedDict, collections.defaultdict, collections.deque, tuple)


def drawn_tree(rng: random.Random, pool: list, depth: int = 3):
    """A container of containers and leaves; sometimes one that is in the pool already."""
    if pool and rng.random() < 0.2:
        return rng.choice(pool)
    if depth == 0 or rng.random() < 0.3:
        leaf = rng.choice([wf.tensor([1.0, 2.0]), 1, 2.5, "s", np.arange(3.0), None])
        if leaf is not None and not isinstance(leaf, int | float | str):
            pool.append(leaf)
        return leaf
    kind = rng.choice(KINDS)
    parts = [drawn_tree(rng, pool, depth - 1) for _ in range(rng.randint(0, 3))]
    if issubclass(kind, dict):
        made = collections.defaultdict(int) if kind is collections.defaultdict else kind()
        made.update(zip(rng.sample(["a", "b", "c", 0, (1, 2)], len(parts)), parts, strict=True))
    else:
        made = kind(parts)
    pool.append(made)
    return made


def containers(tree) -> list:
    """All containers, in the order in which optree meets them."""
    met = []
    kinds = (dict, list, tuple, collections.deque)
    optree.tree_leaves(tree, is_leaf=lambda x: met.append(x) if isinstance(x, kinds) else False)
    return met


def contents(x):
    """What a container holds, by identity."""
    items = list(x.items()) if isinstance(x, dict) else list(enumerate(x))
    return [
        (key, value if isinstance(value, int | float | str) else id(value)) for key, value in items
    ]


WRITES = {
    list: [
        "c.append(7)",
        "c.append(x)",
        "c.insert(0, 'new')",
        "c.extend([])",
        "c.extend([x, 1])",
        "c.append(1); c.pop()",
        "c.reverse()",
        "c and c.pop()",
        "c.clear()",
        "c[:] = list(c)",
        "if c: c[0] = x * 2",
        "if c: c[-1] = c[0]",
        "len(c)",
    ],
    dict: [
        "c['a'] = x",
        "c['n'] = c.get('n', 0) + 1",
        "c.setdefault('b', 5)",
        "c.update(c)",
        "c and c.popitem()",
        "c.pop('a', None)",
        "c.clear()",
        "c['t'] = 1; del c['t']",
        "if c: k = next(iter(c)); c[k] = c.pop(k)",
        "list(c.values())",
    ],
    collections.deque: [
        "c.append(x)",
        "c.appendleft(3)",
        "c.rotate(1)",
        "c and c.popleft()",
        "c.append(1); c.pop()",
        "c.clear()",
        "if c: c[0] = 'other'",
        "list(c)",
    ],
    tuple: ["len(c)", "list(c)"],
}


def written(kind: type, rng: random.Random) -> str:
    base = next(b for b in (dict, list, tuple, collections.deque) if issubclass(kind, b))
    return rng.choice(WRITES[base])


def function_of(text: str, which: int):
    """A function that finds one of the containers and does this to it."""
    lines = [
        "def f(x, tree):",
        f"    c = containers(tree)[{which}]",
        f"    {text}",
        "    return x * (1 + len(c))",
    ]
    space = {"containers": containers}
    exec(compile("\n".join(lines), "<drawn>", "exec"), space)
    return space["f"]


def cloned(tree, memo):
    """The same containers anew, with the same leaves, and shared in the same way."""
    leaves = [v for v in optree.tree_leaves(tree) if not isinstance(v, int | float | str)]
    memo.update({id(v): v for v in leaves})
    return copy.deepcopy(tree, memo)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_writes_to_containers_are_told(seed):
    rng = random.Random(seed)
    tree = drawn_tree(rng, [], 3)
    tree = tree if isinstance(tree, KINDS) else [tree]
    which = rng.randrange(len(containers(tree)))
    text = written(type(containers(tree)[which]), rng)
    f, x = function_of(text, which), wf.tensor([1.0, 2.0])
    eager = cloned(tree, {})
    every = containers(eager)
    before = [contents(c) for c in every]
    want = f(x, eager)
    changed = [contents(c) for c in every] != before
    mine = containers(tree)
    held = [contents(c) for c in mine]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        got = wf.compile(f)(x, tree)
    told = [str(w.message) for w in told if issubclass(w.category, SideEffectWarning)]
    assert bool(told) == changed, (text, tree, told)
    np.testing.assert_allclose(got.numpy(), want.numpy())
    assert [contents(c) for c in mine] == held
    for message in told:
        assert message.startswith("f: argument 'tree'")


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_identities_of_arguments(seed):
    rng = random.Random(seed)
    tree = [drawn_tree(rng, [], 3) for _ in range(2)]

    def numbered(x, *trees):
        """x times a number that says which containers and tensors are one object."""
        met, known = [], {}
        kinds = (dict, list, collections.deque, wf.Tensor)
        optree.tree_leaves(
            trees, is_leaf=lambda v: met.append(v) if isinstance(v, kinds) else False
        )
        total = 0
        for k, v in enumerate(met):
            total = total * 3 % 1009 + known.setdefault(id(v), k)
        return x * total

    split = optree.tree_map(lambda v: v.clone() if isinstance(v, wf.Tensor) else v, tree)
    halves = [tree[0], split[1]]
    x = wf.tensor([1.0])
    g = wf.compile(numbered, max_variants=20)
    for trees in (tree, split, halves, tree, halves, split):
        if any(isinstance(v, np.ndarray) for v in optree.tree_leaves(trees)):
            trees = optree.tree_map(lambda v: 1 if isinstance(v, np.ndarray) else v, trees)
        assert g(x, *trees).item() == numbered(x, *trees).item()


@pytest.mark.parametrize("n", [2, 3, 5])
def test_one_tensor_twice_after_quick_calls(n):
    def f(*args):
        return args[0] * len({id(a) for a in args})

    g, tensors = wf.compile(f, max_variants=60), [wf.tensor([1.0]) for _ in range(n)]
    rng = random.Random(n)
    for _ in range(30):
        args = rng.choices(tensors, k=n) if rng.random() < 0.5 else tensors
        assert g(*args).item() == f(*args).item()


def test_writes_name_their_place_and_line():
    def f(x, cache):
        cache["h"]["t"] = x * 2  # here
        return x

    with pytest.warns(
        SideEffectWarning, match=r"argument 'cache'\['h'\]\['t'\] was given a tensor"
    ) as told:
        wf.compile(f)(wf.ones(2), {"h": {"t": wf.ones(2)}})
    assert "test_argument_containers" in told[0].filename


def test_a_caught_write_is_told_once_and_calls_go_on():
    def f(x, log):
        log.append(1)
        return x * len(log)

    g, log = wf.compile(f), []
    with pytest.warns(SideEffectWarning, match="argument 'log' had 0 elements and has 1"):
        g(wf.ones(2), log)
    assert log == []
    g(wf.ones(2), log)
