"""Pictures of programs: well-formed, complete, and nothing in the way of anything else."""

import re
import time
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.graph.layers import place_boxes
from weft.graph.picture import Picture, PictureBox, PictureRow, dot
from weft.graph.svg import svg

F = wf.nn.functional
SVG = "{http://www.w3.org/2000/svg}"
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def step():
    wf.random.seed(0)
    model = wf.nn.Sequential(wf.nn.Linear(8, 16), wf.nn.ReLU(), wf.nn.Linear(16, 4))
    optimizer = wf.optim.AdamW(model.parameters(), lr=1e-3)

    @wf.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step(wf.asarray(RNG.standard_normal((32, 8)).astype(np.float32)), wf.arange(32) % 4)
    return step


@pytest.fixture(scope="module")
def mixed():
    @wf.compile
    def mixed(a, x):
        q = wf.linalg.solve(a, x)
        return wf.fft.fft(q * 2 < 3).real + wf.sin(x)

    mixed(wf.eye(4), wf.ones(4))
    return mixed


def boxes(text: str) -> list[tuple[float, float, float, float]]:
    root = ET.fromstring(text)
    found = [r for r in root.iter(f"{SVG}rect") if r.get("class")]
    return [tuple(float(r.get(k)) for k in ("x", "y", "width", "height")) for r in found]


def texts(text: str, style: str | None = None) -> list[str]:
    found = ET.fromstring(text).iter(f"{SVG}text")
    return [t.text or "" for t in found if style is None or t.get("class") == style]


def curve(path: str) -> list[tuple[float, float]]:
    """Points along a path of lines and cubic curves."""
    points = []
    at = (0.0, 0.0)
    for letter, numbers in re.findall(r"([MLC])([^MLC]*)", path):
        ends = [tuple(map(float, p.split(","))) for p in numbers.split()]
        ts = np.linspace(0, 1, 20)[:, None]
        if letter == "C":
            a, b, c, d = map(np.array, (at, *ends))
            points += list(
                (1 - ts) ** 3 * a
                + 3 * (1 - ts) ** 2 * ts * b
                + 3 * (1 - ts) * ts**2 * c
                + ts**3 * d
            )
        elif letter == "L":
            points += list((1 - ts) * np.array(at) + ts * np.array(ends[0]))
        at = ends[-1]
    return [tuple(p) for p in points]


def check_picture(text: str) -> None:
    """Boxes do not overlap and are inside; edges go through no box."""
    root = ET.fromstring(text)
    width, height = float(root.get("width")), float(root.get("height"))
    found = boxes(text)
    for k, (x, y, w, h) in enumerate(found):
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        for x2, y2, w2, h2 in found[k + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    paths = [p.get("d") for p in root.iter(f"{SVG}path") if p.get("marker-end")]
    for path in paths:
        for px, py in curve(path):
            assert -1 <= px <= width
            inside = [
                1 for x, y, w, h in found if x + 1 < px < x + w - 1 and y + 1 < py < y + h - 1
            ]
            assert not inside, path


def test_a_training_step_is_drawn_with_its_kernels(step):
    text = step.graph.draw()
    check_picture(text)
    titles = texts(text, "title")
    steps = step.explain().splitlines()
    kernels = next(line for line in steps if "equations became" in line)
    assert sum(t.startswith("kernel") for t in titles) >= 4, kernels
    assert sum(t.startswith("matrix product") for t in titles) >= 4
    assert all("test_draw.py:" in t for t in titles if t.startswith(("kernel", "matrix")))
    told = " ".join(texts(text))
    for word in ("relu(", "matmul(", "exp(", "sqrt(", "v0 argument 0", "f32[32,8]", "exp_avg"[:3]):
        assert word in told, word
    outputs = [t for t in texts(text, "output") if t.endswith("▸")]
    assert len(outputs) >= 13  # the loss; 4 parameters, their moments and gradients


def test_the_program_as_it_was_written(step):
    text = step.graph.draw(optimised=False)
    check_picture(text)
    rows = [t for t in texts(text) if " = " in t]
    assert len(rows) == len(step.graph.equations)
    assert all(re.match(r"test_draw\.py:\d+", t) for t in texts(text, "title") if t != "input")


def test_library_calls_are_marked(mixed):
    text = mixed.graph.draw()
    check_picture(text)
    root = ET.fromstring(text)
    assert sum(r.get("class") == "library" for r in root.iter(f"{SVG}rect")) >= 2
    assert any(t.startswith("library call: ") and "test_draw.py" in t for t in texts(text, "title"))


def nodes_and_edges(text: str):
    nodes = re.findall(r"^    (n\d+_\d+) \[label=", text, re.MULTILINE)
    edges = re.findall(r"^  (n\d+_\d+) -> (n\d+_\d+);$", text, re.MULTILINE)
    return nodes, edges


def test_dot(step, tmp_path):
    text = step.graph.draw(format="dot")
    nodes, edges = nodes_and_edges(text)
    assert text.startswith("digraph program {") and text.count("{") == text.count("}")
    assert text.count("subgraph cluster_") >= 8 and len(nodes) == len(set(nodes))
    assert {n for edge in edges for n in edge} <= set(nodes) and len(edges) >= len(nodes) / 2
    assert "relu(" in text
    path = tmp_path / "step.dot"
    assert step.graph.draw(path) == text == path.read_text(encoding="utf-8")
    assert step.graph.draw(str(tmp_path / "step.svg")).startswith("<svg")
    assert (tmp_path / "step.svg").read_text(encoding="utf-8") == step.graph.draw()
    with pytest.raises(errors.ArgumentError, match="format='png', expected 'svg' or 'dot'"):
        step.graph.draw(format="png")


def test_a_graph_that_is_built():
    g = wf.Graph("small & <new>")
    x, w = g.placeholder("x", (None, 4)), g.variable("w", np.zeros((4, 2), np.float32))
    g.placeholder("unused", ())
    loss = g.sum(g.tanh(x @ w))
    slopes = g.gradients(loss, [x, w])
    g.topk(slopes[0], 2)
    text = g.draw()
    check_picture(text)
    told = texts(text)
    assert "small & <new>: 5 calls" in told
    assert {"x", "w", "f32[None,4]", "f32[4,2]"} <= set(told) and "unused" not in told
    assert any("matmul(x, w)" in t for t in told) and any("topk(v3.0, 2)" in t for t in told)
    assert "v3 = gradients([v2], [x, w], None)" in str(g)
    run = g.compile(slopes)
    run(x=np.ones((3, 4)))
    check_picture(run.graph.draw())
    nodes, edges = nodes_and_edges(g.draw(format="dot"))
    assert {n for edge in edges for n in edge} <= set(nodes)


def test_loops_and_branches_show_what_is_in_them():
    @wf.compile
    def f(x):
        c, ys = wf.scan(lambda c, v: (wf.tanh(c * v), c.sum()), x, wf.ones((50, 4)))
        return wf.cond(c.sum() > 0, lambda c: wf.exp(c) * 2, lambda c: -c, c), ys

    f(wf.ones(4))
    for text in (f.graph.draw(), f.graph.draw(optimised=False)):
        check_picture(text)
        told = texts(text)
        for inside in ("tanh", "exp", "negative"):
            assert any(t.startswith("│ v") and inside in t for t in told)
    loops = [
        r for r in ET.fromstring(f.graph.draw()).iter(f"{SVG}rect") if r.get("class") == "loop"
    ]
    assert len(loops) == 2
    nodes, edges = nodes_and_edges(f.graph.draw(format="dot"))
    assert {n for edge in edges for n in edge} <= set(nodes)


def test_programs_with_little_in_them():
    for f in (lambda: wf.ones(3), lambda x: x, lambda x: (x, x.T)):
        compiled = wf.compile(f)
        compiled(*[wf.ones((2, 3))] * f.__code__.co_argcount)
        check_picture(compiled.graph.draw())
        check_picture(compiled.graph.draw(optimised=False))
        compiled.graph.draw(format="dot")


def random_picture(count: int, seed: int) -> Picture:
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        reads = (
            tuple(set(rng.integers(max(0, k - 40), k, rng.integers(1, 4)).tolist())) if k else ()
        )
        rows = [PictureRow((k,), reads, f"v{k} = f({reads})", "f32[]")]
        rows += [PictureRow((), (), "x" * int(rng.integers(1, 30)))] * int(rng.integers(0, 6))
        made.append(PictureBox(f"box {k}", "kernel" if k else "input", rows))
    return Picture("random", made)


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_boxes_do_not_get_into_each_others_way(seed):
    picture = random_picture(30 + 100 * seed, seed)
    began = time.perf_counter()
    text = svg(picture)
    assert time.perf_counter() - began < 20
    check_picture(text)
    assert text == svg(picture)
    assert len(boxes(text)) == len(picture.boxes)
    nodes, edges = nodes_and_edges(dot(picture))
    reads = sum(len(row.reads) for box in picture.boxes for row in box.rows)
    assert len(edges) == reads and {n for e in edges for n in e} <= set(nodes)


def test_boxes_are_below_what_they_read():
    edges = [(0, 1), (1, 2), (0, 2), (3, 2), (2, 4)]
    where = place_boxes([(50.0, 20.0)] * 5, edges, {3})
    for a, b in edges:
        assert where.corners[a][1] + 20 < where.corners[b][1]
        assert where.edges[a, b][0][1] == where.corners[a][1] + 20
        assert where.edges[a, b][-1][1] == where.corners[b][1]
    assert where.corners[3][1] == where.corners[1][1]  # a source is just above who reads it


def test_layers_do_not_grow_without_end():
    where = place_boxes([(200.0, 20.0)] * 101, [(0, k) for k in range(1, 101)])
    assert where.width < 5000 and len({y for _, y in where.corners}) > 5


def test_chains_are_drawn_straight():
    where = place_boxes([(50.0, 20.0)] * 6, [(k, k + 1) for k in range(5)])
    assert len({x for x, _ in where.corners}) == 1


def test_what_goes_in_a_circle_is_refused():
    with pytest.raises(AssertionError, match="in a circle"):
        place_boxes([(1.0, 1.0)] * 2, [(0, 1), (1, 0)])
