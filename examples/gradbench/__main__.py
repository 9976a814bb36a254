"""Time every function of GradBench's problems at the size that the project lists first.

Run: python -m examples.gradbench [problem ...]
"""

import sys
from time import perf_counter

from . import ba, det, gmm, hello, ht, kmeans, llsq, lse, lstm, ode, particle, saddle

PROBLEMS = (hello, gmm, ba, kmeans, lstm, ht, llsq, lse, ode, det, particle, saddle)
ENOUGH = 1.0  # seconds after which a function is not run again


def seconds(function, given) -> float:
    """The shortest of the runs that fit into a second, and of one at least."""
    runs = []
    while sum(runs) < ENOUGH:
        start = perf_counter()
        function(*given)
        runs.append(perf_counter() - start)
    return min(runs)


def main(names):
    problems = {module.__name__.rpartition(".")[2]: module for module in PROBLEMS}
    print(f"{'problem':9} {'function':10} {'size':18} {'seconds':>10}")
    for name in names or problems:
        module = problems[name]
        for called, function in module.FUNCTIONS.items():
            taken = seconds(function, module.inputs())
            print(f"{name:9} {called:10} {module.SIZES[0]!s:18} {taken:10.6f}")


if __name__ == "__main__":
    main(sys.argv[1:])
