"""What a configuration names has to be there and to fit, before anything is computed."""

import pytest

import weft as wf
from weft.diffusion.training.check import check_run
from weft.diffusion.training.config import read_config
from weft.diffusion.training.run import prepare_data

from .tiny import SECTIONS, make_files, write_config


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    make_files(folder)
    return folder


def check(config):
    check_run(config, lambda line: None)


@pytest.mark.parametrize("look", [check, prepare_data])
def test_everything_that_is_not_there_is_listed(look, files):
    sections = {
        "model": 'path = "modle"',
        "adapter": 'start = "a.safetensors"',
        "encoders": 'vae = "vae"\nclip = "clip"\nt5 = "t5"\nt5_tokenizer = "images"',
        "validation": 'folder = "kept"',
    }
    with pytest.raises(wf.errors.ConfigError) as e:
        look(read_config(write_config(files, "paths.toml", **sections)))
    keys = {line.split(":")[2].strip() for line in e.value.message.splitlines()}
    assert keys == {
        *("model.path", "adapter.start", "validation.folder"),
        *("encoders.vae", "encoders.clip", "encoders.t5"),
    }
    assert f"{files / 'modle'} does not exist" in e.value.message


@pytest.mark.parametrize("look", [check, prepare_data])
def test_sizes_are_whole_tokens(look, files):
    """A token is 4 × 4 pixels here: other sizes would end a run at its first preview or batch."""
    sections = {
        "images": SECTIONS["images"].replace("step = 8", "step = 2"),
        "preview": SECTIONS["preview"].replace("height = 16", "height = 18"),
    }
    with pytest.raises(wf.errors.ConfigError) as e:
        look(read_config(write_config(files, "sizes.toml", **sections)))
    first, second = e.value.message.splitlines()
    assert "images.step: 2, expected a multiple of 4" in first
    assert "preview.height: 18, expected a multiple of 4" in second


@pytest.mark.parametrize("look", [check, prepare_data])
@pytest.mark.parametrize(
    ("section", "lines", "message"),
    [
        ("output", 'directory = "images"', r"output\.directory: .* is in the folder data\[0\]"),
        (
            "encoders",
            'tokens = 4\ncache = "images"',
            r"encoders\.cache: .* in the folder data\[0\]",
        ),
        ("output", 'directory = "model"', r"output\.directory: .* is model\.path"),
        ("output", 'directory = "run/../images/."', r"output\.directory: .* is in the folder"),
    ],
)
def test_what_is_written_is_not_among_what_is_read(look, section, lines, message, files):
    with pytest.raises(wf.errors.ConfigError, match=message):
        look(read_config(write_config(files, "among.toml", **{section: lines})))


def test_folders_of_images_may_be_within_recursive_ones_only(files):
    """A run below a folder of images is among them only if folders in it are searched."""
    text = write_config(files, "below.toml", output='directory = "images/run"').read_text()
    path = files / "below.toml"
    check(read_config(path))
    path.write_text(text.replace('path = "images"', 'path = "images"\nrecursive = true'))
    with pytest.raises(wf.errors.ConfigError, match=r"output\.directory"):
        check(read_config(path))


def test_sizes_without_previews(files):
    """The sizes of previews that are not drawn do not matter."""
    check(read_config(write_config(files, "none.toml", preview="height = 18")))


@pytest.mark.parametrize(
    ("section", "lines", "message"),
    [
        ("train", "steps = 1\ndevice = 'gpu'", "train.device: 'gpu', expected 'cpu'"),
        (
            "adapter",
            "targets = ['*.attn1.to_q']",
            r"are transformer_blocks\.\*\.attn\.to_q",
        ),
    ],
)
def test_checks_of_machine_and_model(files, section, lines, message):
    with pytest.raises(wf.errors.WeftError, match=message):
        check(read_config(write_config(files, "machine.toml", **{section: lines})))


@pytest.mark.parametrize("look", [check, prepare_data])
def test_a_share_of_images_that_only_regularise_is_refused(look, files):
    path = write_config(files, "share.toml", validation="share = 0.5")
    path.write_text(path.read_text().replace('"images"\n', '"images"\nregularisation = true\n', 1))
    with pytest.raises(wf.errors.ConfigError, match="all folders have regularisation = true"):
        look(read_config(path))
