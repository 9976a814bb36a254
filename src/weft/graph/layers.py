"""Layered graph drawing: sources on top, few crossings, edges routed between the boxes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from ..core.record import field, record

GAP, RISE = 18.0, 34.0  # between boxes of a layer, and between layers
_LANE = 8.0  # the width of an edge that passes a layer
_STRAIGHT = 16.0  # the weight of a lane's position beside that of a box
_WIDEST = 2600.0  # the width of a layer of several boxes, at most
_SWEEPS = 6

Point = tuple[float, float]


@record(frozen=False)
class Placement:
    """A drawing: the boxes' upper left corners, and the points of each edge."""

    corners: list[Point]
    edges: dict[tuple[int, int], list[Point]]
    width: float
    height: float


@record(frozen=False)
class _LayeredGraph:
    """Boxes, and the lanes of long edges, by layers; each has a width and its neighbours above."""

    widths: list[float]
    layers: list[list[int]]
    above: dict[int, list[int]] = field(default_factory=dict)
    below: dict[int, list[int]] = field(default_factory=dict)

    def connect(self, a: int, b: int) -> None:
        """Put b below a."""
        if b not in self.below.setdefault(a, []):
            self.below[a].append(b)
            self.above.setdefault(b, []).append(a)

    lanes: dict[tuple[int, int], int] = field(default_factory=dict)

    def lane(self, source: int, layer: int) -> int:
        """The one lane in which all edges from a box pass a layer."""
        if (source, layer) not in self.lanes:
            self.widths.append(_LANE)
            self.layers[layer].append(len(self.widths) - 1)
            self.lanes[source, layer] = len(self.widths) - 1
        return self.lanes[source, layer]

    def between(self, a: int, b: int) -> float:
        """The least distance between the centres of neighbours in a layer."""
        gap = _LANE if self.widths[a] == self.widths[b] == _LANE else GAP
        return (self.widths[a] + self.widths[b]) / 2 + gap


def place_boxes(
    sizes: Sequence[Point], edges: Iterable[tuple[int, int]], sources: Collection[int] = ()
) -> Placement:
    """Positions for boxes of these sizes; `sources` go just above the first box that reads them."""
    edges = list(edges)
    rank = _ranks(sizes, edges, sources)
    count = 1 + max(rank, default=0)
    graph = _LayeredGraph([w for w, _ in sizes], [[] for _ in range(count)])
    for k, r in enumerate(rank):
        graph.layers[r].append(k)
    lanes = {ends: _thread_edge(graph, rank, *ends) for ends in edges}
    _order_layers(graph)
    x = _centres(graph)
    heights = [0.0] * count
    for k, r in enumerate(rank):
        heights[r] = max(heights[r], sizes[k][1])
    top = [RISE + sum(heights[:r]) + 2 * RISE * r for r in range(count)]
    corners = [(x[k] - w / 2, top[rank[k]]) for k, (w, _) in enumerate(sizes)]
    routes = _routes(corners, sizes, edges, lanes, x, top, heights, rank)
    width = max([at + graph.widths[k] / 2 for k, at in x.items()], default=0.0) + GAP
    return Placement(corners, routes, width, (top[-1] + heights[-1] + RISE) if sizes else RISE)


# Layers


def _ranks(sizes, edges, sources) -> list[int]:
    """The layer of each box: below all that it reads, and no layer wider than `_WIDEST`."""
    above: dict[int, list[int]] = {k: [] for k in range(len(sizes))}
    below: dict[int, list[int]] = {k: [] for k in range(len(sizes))}
    for a, b in edges:
        above[b].append(a)
        below[a].append(b)
    rank, used = [0] * len(sizes), {}
    for k in _topological_order(above, below):
        if k in sources:
            continue
        inner = [a for a in above[k] if a not in sources]
        r = max([rank[a] + 1 for a in inner], default=1)
        while used.get(r, 0.0) and used[r] + sizes[k][0] > _WIDEST:
            r += 1
        rank[k], used[r] = r, used.get(r, 0.0) + sizes[k][0] + GAP
    for k in sources:
        rank[k] = min([rank[b] for b in below[k]], default=1) - 1
    known = {r: n for n, r in enumerate(sorted(set(rank)))}
    return [known[r] for r in rank]


def _topological_order(above: Mapping[int, list[int]], below: Mapping[int, list[int]]) -> list[int]:
    """The boxes in topological order: each after those that it reads."""
    waiting = {k: len(a) for k, a in above.items()}
    ready = [k for k, n in waiting.items() if n == 0]
    order = []
    for k in ready:  # grows while it is walked over
        order.append(k)
        for b in below[k]:
            waiting[b] -= 1
            if waiting[b] == 0:
                ready.append(b)
    assert len(order) == len(above), "what is drawn goes in a circle"
    return order


def _thread_edge(graph: _LayeredGraph, rank: list[int], a: int, b: int) -> list[int]:
    """An edge as a path of neighbours: a lane in each layer in between."""
    lanes = [graph.lane(a, r) for r in range(rank[a] + 1, rank[b])]
    path = [a, *lanes, b]
    for one, other in pairwise(path):
        graph.connect(one, other)
    return lanes


# Order within layers


def _order_layers(graph: _LayeredGraph) -> None:
    """Sort each layer by its neighbours' positions, in a few sweeps downwards and upwards."""
    best, fewest = [list(layer) for layer in graph.layers], _crossings(graph)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        layers = graph.layers[1:] if down else graph.layers[-2::-1]
        place = {k: n for layer in graph.layers for n, k in enumerate(layer)}
        for layer in layers:
            near = graph.above if down else graph.below
            ties = _ties(graph, layer)
            middle = {k: _middle(near.get(k, ()), place, k) + ties[k] for k in layer}
            layer.sort(key=middle.__getitem__)
            place.update({k: n for n, k in enumerate(layer)})
        crossings = _crossings(graph)
        if crossings <= fewest:
            best, fewest = [list(layer) for layer in graph.layers], crossings
    graph.layers = best


def _ties(graph: _LayeredGraph, layer: list[int]) -> dict[int, float]:
    """Small offsets that break ties between equal positions: lanes go into the middle."""
    boxes = sorted(k for k in layer if graph.widths[k] != _LANE)
    half = (len(boxes) - 1) / 2
    return dict.fromkeys(layer, 0.0) | {k: 1e-6 * (n - half) for n, k in enumerate(boxes)}


def _middle(near, place: dict[int, int], k: int) -> float:
    return sum(place[n] for n in near) / len(near) if near else place[k]


def _crossings(graph: _LayeredGraph) -> int:
    """How often edges between neighbouring layers cross."""
    total = 0
    for layer, following in pairwise(graph.layers):
        place = {k: n for n, k in enumerate(following)}
        ends = [
            p for k in layer for p in sorted(place[b] for b in graph.below.get(k, ()) if b in place)
        ]
        tree = [0] * (len(following) + 1)
        for seen, end in enumerate(ends):
            below, i = 0, end + 1
            while i:
                below += tree[i]
                i -= i & -i
            total += seen - below
            i = end + 1
            while i < len(tree):
                tree[i] += 1
                i += i & -i
    return total


# Coordinates


def _centres(graph: _LayeredGraph) -> dict[int, float]:
    """The horizontal centre of each box and lane: near its neighbours, without overlap."""
    x: dict[int, float] = {}
    for layer in graph.layers:
        at = 0.0
        for k in layer:
            x[k] = at + graph.widths[k] / 2
            at += graph.widths[k] + GAP
        for k in layer:
            x[k] -= at / 2
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for layer in graph.layers[1:] if down else graph.layers[-2::-1]:
            near = graph.above if down else graph.below
            wanted = [_mean([x[n] for n in near.get(k, ())], x[k]) for k in layer]
            steps = [graph.between(a, b) for a, b in pairwise(layer)]
            weights = [_STRAIGHT if graph.widths[k] == _LANE else 1.0 for k in layer]
            x.update(zip(layer, _separate(wanted, steps, weights), strict=True))
    left = min([x[k] - graph.widths[k] / 2 for k in x], default=0.0)
    return {k: v - left + GAP for k, v in x.items()}


def _mean(xs: list[float], otherwise: float) -> float:
    return sum(xs) / len(xs) if xs else otherwise


def _separate(wanted: list[float], steps: list[float], weights: list[float]) -> list[float]:
    """The positions nearest to `wanted`, in the same order, at least `steps` apart."""
    offsets = [0.0, *accumulate(steps)]
    blocks: list[tuple[float, float, int]] = []  # (sum, weight, count) of items without a gap
    for want, offset, weight in zip(wanted, offsets, weights, strict=False):
        blocks.append((weight * (want - offset), weight, 1))
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            (s, w, n), (t, v, m) = blocks.pop(), blocks.pop()
            blocks.append((s + t, w + v, n + m))
    levels = [total / weight for total, weight, n in blocks for _ in range(n)]
    return [level + offset for level, offset in zip(levels, offsets, strict=False)]


def _routes(corners, sizes, edges, lanes, x, top, heights, rank) -> dict:
    """The points of each edge: out at the bottom of a box, past the layers, in at the top."""
    leaving: dict[int, set] = {}
    entering: dict[int, set] = {}
    first = {(a, b): (path[0] if path else b) for (a, b), path in lanes.items()}
    last = {(a, b): (path[-1] if path else a) for (a, b), path in lanes.items()}
    for a, b in edges:
        leaving.setdefault(a, set()).add((x[first[a, b]], first[a, b]))
        entering.setdefault(b, set()).add((x[last[a, b]], last[a, b]))
    out = {(k, to): n for k, ends in leaving.items() for n, (_, to) in enumerate(sorted(ends))}
    into = {(of, k): n for k, ends in entering.items() for n, (_, of) in enumerate(sorted(ends))}
    routes = {}
    for a, b in edges:
        start = _port(corners[a], sizes[a], out[a, first[a, b]], len(leaving[a]), sizes[a][1])
        end = _port(corners[b], sizes[b], into[last[a, b], b], len(entering[b]), 0.0)
        bottom = top[rank[a]] + heights[rank[a]]
        points = [start, (start[0], bottom)]
        for k, r in zip(lanes[a, b], range(rank[a] + 1, rank[b]), strict=True):
            points += [(x[k], top[r]), (x[k], top[r] + heights[r])]
        routes[a, b] = [*points, end]
    return routes


def _port(corner: Point, size: Point, n: int, count: int, down: float) -> Point:
    """The n-th of `count` points along the side of a box."""
    return corner[0] + size[0] * (n + 1) / (count + 1), corner[1] + down
