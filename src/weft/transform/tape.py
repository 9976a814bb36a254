"""Reverse mode."""
from heapq import heappop, heappush, heapreplace
from ..core.node import Leaf
from ..errors import GraphFreed
from .rules import PULL
import numpy as np

def sweep(node, g, retain=False):
    pending = {node: g}
    heap = [(node.id, node)]
    results = {}
    while heap:
        node = heap[0][1]
        g = pending.pop(node)
        popped = False
        if node.__class__ is Leaf:
            results[node] = g
            heappop(heap)
            continue
        parents = node.parents
        if parents is None:
            raise GraphFreed()
        for p, c in zip(parents, PULL[node.op](node, g)):
            if c is None: continue
            have = pending.get(p)
            if have is None:
                pending[p] = c
                if popped: heappush(heap, (p.id, p))
                else:
                    heapreplace(heap, (p.id, p)); popped=True
            else:
                pending[p] = have + c
        if not popped: heappop(heap)
        if not retain:
            node.parents = node.saved = None
    return results
