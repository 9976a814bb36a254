"""The commands and their options."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import weft as wf

from .printing import show, write_any_text
from .stopping import stoppable
from .streams import lasting_streams

app = typer.Typer(
    name="weft",
    help="Train adapters of diffusion models, and look at them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # [preview] is a section, not a style
)

ConfigFile = Annotated[Path, typer.Argument(help="the configuration, a TOML file")]
AdapterFile = Annotated[Path, typer.Argument(help="an adapter, a safetensors file")]
notes = Console(stderr=True)


def run(arguments: list[str]) -> int:
    """Run a command; returns its exit status: 2 for what the user can mend, 130 if interrupted."""
    with lasting_streams():
        write_any_text()
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say_warning
            found = app(arguments, standalone_mode=False)
    except wf.errors.WeftError as e:
        say(e.message)
        return 2
    except OSError as e:  # a folder that cannot be written, a file in the place of one
        say(str(e) if e.filename is None else f"{e.filename}: {e.strerror}")
        return 2
    except (typer.Abort, KeyboardInterrupt):
        say("interrupted")
        return 130
    except Exception as e:
        told = getattr(e, "format_message", None)  # the parser's, which differs between versions
        if told is None:
            raise
        say(told())
        return 2
    return found if isinstance(found, int) else 0


def say(message: str) -> None:
    """Print a message on standard error, as it is: lines are not broken."""
    notes.print(f"weft: {message}", style="red", markup=False, highlight=False, soft_wrap=True)


def _say_warning(message: Warning | str, *place: Any, **others: Any) -> None:
    """Print a warning as a message: the user has written no line of Python."""
    text = getattr(message, "message", None) or str(message)
    notes.print(f"weft: warning: {text}", style="yellow", markup=False, soft_wrap=True)


@app.command()
def train(
    config: ConfigFile,
    check: Annotated[
        bool, typer.Option("--check", help="look at everything, and train nothing")
    ] = False,
    from_step: Annotated[
        int | None,
        typer.Option(min=0, help="go on from this checkpoint, and set later ones aside; 0: anew"),
    ] = None,
) -> None:
    """Train adapters; a run that was interrupted goes on."""
    from ..diffusion.training.check import check_run
    from ..diffusion.training.config import read_config
    from ..diffusion.training.joining import joined
    from ..diffusion.training.run import check_step, prepare_data, train_on

    read = read_config(config)
    if from_step is not None:
        check_step(read.output.directory, from_step)
    if check:
        check_run(read, show)
        return

    def goes_on() -> str:
        done = wf.io.steps(read.output.directory)
        if not done:
            return f"stopped before a checkpoint; `weft train {config}` begins anew, with its cache"
        return f"stopped; `weft train {config}` goes on from step {done[-1]}"

    with stoppable(say, goes_on), joined(read) as (own, ranks):
        with _Stages() as stages:
            shown = stages.show if ranks.first else None
            data = prepare_data(own, shown, from_step)
        if ranks.first:
            show(data.report, notes)
        file = train_on(own, data, from_step)
    if ranks.first:
        show(f"adapter: {file}")


@app.command()
def cache(config: ConfigFile) -> None:
    """Compute what is missing of the cache of latents and embeddings."""
    from ..diffusion.training.config import read_config
    from ..diffusion.training.run import prepare_data

    read = read_config(config)
    with stoppable(say, lambda: f"stopped; `weft cache {config}` goes on"), _Stages() as stages:
        data = prepare_data(read, stages.show)
    show(data.report)


@app.command()
def estimate(
    config: ConfigFile,
    no_time: Annotated[bool, typer.Option("--no-time", help="run no steps to time them")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print plain data")] = False,
) -> None:
    """Say what a run will take, before it: memory, time and room on the disk."""
    from ..diffusion.training.estimate import estimate as estimate_run
    from .estimates import estimate_table

    with _Stages() as stages:
        found = estimate_run(config, not no_time, stages.show)
    if as_json:
        show(json.dumps(found.to_dict(), indent=2))
    else:
        show(estimate_table(found))


@app.command()
def sample(
    config: ConfigFile,
    adapter: Annotated[
        Path | None, typer.Option(help="an adapter file of any layout; else the run's newest")
    ] = None,
    base: Annotated[bool, typer.Option("--base", help="draw without an adapter")] = False,
    prompt: Annotated[
        list[str] | None, typer.Option(help="may come several times; else those of [preview]")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="of the sampler")] = None,
    guidance: Annotated[float | None, typer.Option(help="what the model is told")] = None,
    width: Annotated[int | None, typer.Option(help="of each picture")] = None,
    height: Annotated[int | None, typer.Option(help="of each picture")] = None,
    seed: Annotated[int | None, typer.Option(help="of the noise")] = None,
    strength: Annotated[float, typer.Option(help="of the adapter")] = 1.0,
    out_file: Annotated[Path, typer.Option("--out", help="a PNG file")] = Path("grid.png"),
) -> None:
    """Draw prompts with the base and an adapter; settings are those of [preview]."""
    path = wf.diffusion.sample(
        config,
        adapter,
        base=base,
        prompts=prompt or None,
        steps=steps,
        guidance=guidance,
        width=width,
        height=height,
        seed=seed,
        strength=strength,
        out=out_file,
    )
    show(f"pictures: {path}")


@app.command()
def inspect(file: AdapterFile) -> None:
    """Say what is in an adapter file: layout, ranks, alphas, norms, modules; 1: of no use so."""
    from .tables import adapter_table

    found = wf.nn.lora_summary(file)
    show(adapter_table(found))
    for problem in found.problems:
        say(f"{file}: {problem}")
    if found.problems:
        raise typer.Exit(1)


@app.command()
def convert(
    source: AdapterFile,
    target: Annotated[Path, typer.Argument(help="the file to write")],
    layout: Annotated[str, typer.Option(help="peft or kohya")],
) -> None:
    """Write a Flux adapter in another layout."""
    from ..diffusion.lora_convert import convert_adapter

    convert_adapter(source, target, layout)
    inspect(target)


class _Stages:
    """A bar for each stage of the cache, on standard error."""

    def __enter__(self) -> _Stages:
        from rich.progress import Progress

        self._bars = Progress(console=notes, transient=True)
        self._bars.start()
        self._tasks: dict[str, Any] = {}
        return self

    def show(self, stage: str, done: int, total: int) -> None:
        """Say how much of a stage is done."""
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)
        if done >= total and stage == "text":
            self._bars.stop()

    def __exit__(self, *error: object) -> None:
        self._bars.stop()
