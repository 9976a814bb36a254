"""Which tests run their programs on the interpreter, too, and which do not, and why."""

from pathlib import Path

HERE = Path(__file__).parent
# By files or folders: what is left out, all of it or single tests, and the reason.
ALL = ""
LEFT_OUT: dict[str, dict[str, str]] = {
    "cache/test_cache.py": {ALL: "object code on disk"},
    "cpu": {ALL: "the other target"},
    "eager": {ALL: "compiles no program"},
    "emit": {ALL: "LLVM's language"},
    "explain": {ALL: "the texts of the CPU's reports"},
    "frontend/test_records.py": {ALL: "native comparisons of Python's objects"},
    "passes": {ALL: "graphs before and after passes"},
    "test_docs.py": {ALL: "the texts of documents"},
    "test_seam.py": {ALL: "chooses targets by itself"},
    "test_memory.py": {ALL: "plans of schedules that are put together by hand"},
}


def reason(path: Path, name: str) -> str | None:
    """Why a test of a file does not run on the interpreter; None: it does."""
    places = [path, *path.parents]
    for place in places[: places.index(HERE)]:
        found = LEFT_OUT.get(place.relative_to(HERE).as_posix(), {})
        why = found.get(name, found.get(ALL))
        if why is not None:
            return why
    return None
