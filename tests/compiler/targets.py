"""Which tests run their programs on the interpreter, too, and which do not, and why."""

from pathlib import Path

HERE = Path(__file__).parent
# By files or folders: what is left out, all of it or single tests, and the reason.
ALL = ""
LEFT_OUT: dict[str, dict[str, str]] = {
    "cache": {ALL: "object code on disk, and processes that compile for the CPU"},
    "cpu": {ALL: "the other target"},
    "cuda": {ALL: "another target"},
    "eager": {ALL: "compiles no program"},
    "emit": {ALL: "LLVM's language"},
    "explain": {ALL: "the texts of the CPU's reports"},
    "frontend/test_records.py": {ALL: "native comparisons of Python's objects"},
    "fusion/test_fuse.py": {
        "test_a_long_program_of_numbers_is_one_straight_line": "the CPU's scalar programs",
        "test_nothing_that_comes_between_is_swallowed": "what only the CPU leaves to the backend",
        "test_complex_numbers_are_the_backends": "what only the CPU leaves to the backend",
    },
    "fusion/test_limits.py": {ALL: "chooses its targets by itself"},
    "fusion/test_parts.py": {ALL: "chooses its targets by itself"},
    "fusion/test_remat.py": {
        "test_the_peak_of_a_step_is_what_was_said": "the CPU's own count of bytes",
    },
    "fusion/test_schedule.py": {ALL: "schedules that are damaged by hand"},
    "passes": {ALL: "graphs before and after passes"},
    "test_docs.py": {ALL: "the texts of documents"},
    "test_jit_jacobians.py": {
        "test_a_derivative_of_a_compiled_function_is_native_code": "what its steps are",
    },
    "test_jit_rows.py": {ALL: "compiles no program"},
    "test_loops.py": dict.fromkeys(
        (
            "test_branches_that_are_not_taken_are_not_computed",
            "test_functions_of_the_user_in_bodies",
            "test_bad_input",
            "test_a_gradient_is_two_loops_and_saves_what_it_needs",
            "test_a_linear_body_saves_nothing",
            "test_what_does_not_change_is_computed_before",
            "test_compiling_does_not_take_longer_for_more_steps",
            "test_threads_share_large_bodies_and_make_the_same_bits",
            "test_a_stored_loop_computes_the_same",
            "test_reports_show_loops",
        ),
        "loops as native routines: their steps, texts and errors",
    ),
    "test_gpu_like.py": {ALL: "chooses its target by itself"},
    "test_memory.py": {ALL: "plans of schedules that are put together by hand"},
    "test_seam.py": {ALL: "chooses targets by itself"},
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
