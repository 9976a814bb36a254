"""The commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import weft as wf

app = typer.Typer(
    name="weft",
    help="Train adapters of diffusion models, and look at them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[Path, typer.Argument(help="the configuration, a TOML file")]
AdapterFile = Annotated[Path, typer.Argument(help="an adapter, a safetensors file")]
out, notes = Console(), Console(stderr=True)


def run(arguments: list[str]) -> int:
    """Run a command; returns its exit status: 2 for what the user can mend, 130 if interrupted."""
    try:
        found = app(arguments, standalone_mode=False)
    except wf.errors.WeftError as e:
        say(e.message)
        return 2
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        say("interrupted; the same command goes on")
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


@app.command()
def train(
    config: ConfigFile,
    check: Annotated[
        bool, typer.Option("--check", help="look at everything, and train nothing")
    ] = False,
) -> None:
    """Train adapters; a run that was interrupted goes on."""
    from ..diffusion.training.check import check_run
    from ..diffusion.training.config import read_config
    from ..diffusion.training.run import train as train_run

    read = read_config(config)
    if check:
        check_run(read, out.print)
        return
    with _Stages() as stages:
        file = train_run(read, stages.show)
    out.print(f"adapter: {file}", markup=False, highlight=False)


@app.command()
def cache(config: ConfigFile) -> None:
    """Compute what is missing of the cache of latents and embeddings."""
    from ..diffusion.training.config import read_config
    from ..diffusion.training.run import prepare_data

    with _Stages() as stages:
        data = prepare_data(read_config(config), stages.show)
    out.print(data.report)


@app.command()
def inspect(file: AdapterFile) -> None:
    """Say what is in an adapter file: layout, ranks, alphas, norms, modules."""
    from .tables import adapter_table

    out.print(adapter_table(wf.nn.lora_summary(file)))


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
