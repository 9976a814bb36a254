"""How long it takes from a signal to its exception, while native code of each kind runs.

    python bench/interrupts.py [how often]

The programs are those of tests/compiler/cpu/interrupted.py, which also check that everything is as
before or as after the call that was interrupted. Calls take some tenths of a second; signals come
at random moments.
"""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "tests" / "compiler" / "cpu" / "interrupted.py"
NAMES = (
    *("while", "loops in loops", "scan", "chain", "product", "convolution", "attention", "sort"),
    *("running sums", "scatter", "draws", "step", "small step", "step with a loop"),
)


def main(times: int) -> None:
    print(f"{'milliseconds':20}{'median':>9}{'worst':>9}  of {times}")
    for name in NAMES:
        run = [sys.executable, str(SCRIPT), name, str(times)]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        took = sorted(1e3 * t for t in json.loads(done.stdout)["took"])
        print(f"{name:20}{took[len(took) // 2]:9.1f}{took[-1]:9.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
