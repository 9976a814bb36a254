"""The command `weft`: training adapters, and looking at them."""

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit status.

    arguments  without the program's name; None: those of the process

    >>> from weft.cli import main
    >>> main(["inspect", "none.safetensors"])
    2
    """
    try:
        from .commands import run
    except ModuleNotFoundError as e:
        print(f"weft: {e.name} is missing: pip install 'weft[train]'", file=sys.stderr)
        return 2
    return run(sys.argv[1:] if arguments is None else arguments)


def __dir__() -> list[str]:
    return list(__all__)
