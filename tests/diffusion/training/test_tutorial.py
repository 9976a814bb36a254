"""docs/lora.md: programs and commands run, configurations are read, and tables are whole."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from tools import config_keys

import weft as wf
from weft.cli import main
from weft.cli.commands import app
from weft.diffusion.training.config import read_config

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "lora.md"


def blocks(language: str, page: Path = PAGE) -> list[str]:
    """The blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def write_configs(folder: Path) -> None:
    """The configurations under the names in their first lines."""
    for text in blocks("toml"):
        name = re.match(r"# (\S+\.toml)\n", text)
        assert name is not None
        (folder / name[1]).write_text(text, encoding="utf-8")


def typed() -> list[list[str]]:
    """The commands of the page, without `weft`."""
    lines = [line for text in blocks("sh") for line in text.splitlines()]
    assert all(line.startswith("weft ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


def test_the_run_on_the_cpu(tmp_path, monkeypatch):
    """From the base to the adapter, as it is typed."""
    monkeypatch.chdir(tmp_path)
    write_configs(tmp_path)
    for program in blocks("python"):
        exec(compile(program, str(PAGE), "exec"), {})
    commands = [c for c in typed() if any(word.startswith("small") for word in c)]
    assert [c[0] for c in commands] == ["train", "cache", "train", "inspect"]
    assert [main(c) for c in commands] == [0] * 4
    found = wf.nn.lora_summary("small/adapters/adapter.safetensors")
    assert found.modules and all(m.norm > 0 for m in found.modules.values())
    for left in ("curves.png", "previews/step-00000000.png", "previews/step-00000008.json"):
        assert (tmp_path / "small" / left).is_file()


def test_the_configuration_of_the_page(tmp_path):
    write_configs(tmp_path)
    config = read_config(tmp_path / "lora.toml")
    assert config.train.memory_budget_mb == 22000 and config.model.quantise == "int8"
    assert config.output.layouts == ("peft", "kohya") and config.adapter.rules[0].rank == 8


def test_the_configuration_of_the_readme(tmp_path):
    (text,) = blocks("toml", ROOT / "README.md")
    (tmp_path / "cat.toml").write_text(text, encoding="utf-8")
    config = read_config(tmp_path / "cat.toml")
    assert config.data[0].path == tmp_path / "cat" and config.optimizer.name == "adamw8bit"


@pytest.mark.parametrize("words", [pytest.param(c, id=" ".join(c)) for c in typed()])
def test_commands_and_options_exist(words):
    """All of them are parsed; nothing runs."""
    known = typer.main.get_command(app).commands
    with known[words[0]].make_context(words[0], words[1:]) as context:
        assert context.command.name == words[0]


def test_the_tables_have_every_key():
    """`python tools/config_keys.py --write` makes them anew."""
    text = PAGE.read_text(encoding="utf-8")
    assert config_keys.page(text) == text


def test_what_the_page_says_of_flux():
    model = wf.diffusion.Flux(wf.diffusion.FluxConfig(guidance_embeds=True), empty=True)
    linear = [n for n, m in model.named_modules() if isinstance(m, wf.nn.Linear)]
    assert f"of Flux's {len(linear)} linear layers" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("picture", sorted((ROOT / "docs/pictures").glob("*.png")))
def test_pictures_are_small_and_shown(picture):
    assert picture.stat().st_size < 60_000
    shown = PAGE.read_text(encoding="utf-8") + (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"pictures/{picture.name}" in shown
