"""Latents and embeddings are those of diffusers' own pipeline, from folders of small models."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, FluxPipeline
from diffusers.image_processor import VaeImageProcessor
from PIL import Image
from transformers import (
    CLIPTextModel,
    PreTrainedTokenizerFast,
    T5EncoderModel,
)

import weft as wf
from weft.diffusion import digests
from weft.diffusion.data import (
    Augmentation,
    BucketSettings,
    Choice,
    DataSettings,
    DiffusersVAE,
    Encoders,
    FileDigests,
    Source,
    TransformersTextEncoder,
    cache,
)
from weft.errors import ArgumentError, DatasetError

from .random_folders import picture
from .small_models import LENGTH, save_models, text_encoder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    root = tmp_path_factory.mktemp("model")
    save_models(root)
    return root


def pipeline(root) -> FluxPipeline:
    fast = PreTrainedTokenizerFast
    return FluxPipeline(
        scheduler=None,
        vae=AutoencoderKL.from_pretrained(root / "vae"),
        text_encoder=CLIPTextModel.from_pretrained(root / "text_encoder"),
        tokenizer=fast.from_pretrained(root / "tokenizer", model_max_length=77),
        text_encoder_2=T5EncoderModel.from_pretrained(root / "text_encoder_2"),
        tokenizer_2=fast.from_pretrained(root / "tokenizer_2"),
        transformer=None,
    )


def test_latents_are_those_of_diffusers(model, tmp_path):
    """From a file to scaled latents, for sizes that are not scaled and for mirrored images."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    sizes = [(64, 64), (96, 48), (48, 96)]
    for i, size in enumerate(sizes):
        picture(rng, size).save(folder / f"{i}.png")
        (folder / f"{i}.txt").write_text("a cat")
    buckets = BucketSettings((68,), step=16, min_side=48, max_side=96)
    settings = DataSettings(buckets=buckets, augmentation=Augmentation(flip=0.5))
    mine = Encoders(DiffusersVAE(model / "vae"), text_encoder(model))
    dataset, _ = cache([Source(folder)], mine, settings, tmp_path / "cache")
    assert [s.bucket for s in dataset.samples] == sizes
    vae = AutoencoderKL.from_pretrained(model / "vae")
    processor = VaeImageProcessor(vae_scale_factor=8)
    for i in range(3):
        for flip in (False, True):
            with Image.open(folder / f"{i}.png") as image:
                shown = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else image
                # Theirs has the channels last in memory, for which PyTorch rounds otherwise.
                pixels = processor.preprocess(shown).contiguous()
            with torch.no_grad():
                latents = vae.encode(pixels).latent_dist.mode()
            scaled = (latents - vae.config.shift_factor) * vae.config.scaling_factor
            found = dataset.batch([i], [Choice(flip, 0, False, 0)]).latents
            np.testing.assert_array_equal(found, scaled.numpy())


def test_embeddings_are_those_of_diffusers(model):
    captions = ["a red cat", "", "the big dog of unknownword " * 9, "photo"]
    embeds, pooled = text_encoder(model).encode(captions)
    pipe = pipeline(model)
    with torch.no_grad():
        theirs, their_pooled, _ = pipe.encode_prompt(captions, None, max_sequence_length=LENGTH)
    np.testing.assert_allclose(embeds, theirs.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pooled, their_pooled.numpy(), rtol=1e-5, atol=1e-6)
    assert embeds.shape == (4, LENGTH, 16) and pooled.shape == (4, 12)
    assert "t5 keeps 24 of 46" in text_encoder(model).truncation(captions[2])
    assert text_encoder(model).truncation(captions[0]) is None


def test_every_file_of_a_model_is_part_of_its_identity(model, tmp_path):
    """Also if size and times stay as they were."""
    root = tmp_path / "model"
    shutil.copytree(model, root)
    digests = FileDigests(tmp_path / "files.json")
    whole = (DiffusersVAE(root / "vae").digest, text_encoder(root).digest)
    assert whole == (DiffusersVAE(model / "vae").digest, text_encoder(model).digest)
    for path in sorted(root.rglob("*.*")):
        before, times = path.read_bytes(), path.stat()
        path.write_bytes(before[:-3] + b" " + before[-2:])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        try:
            changed = (
                DiffusersVAE(root / "vae", digests=digests).digest,
                text_encoder(root, digests=digests).digest,
            )
        except wf.errors.CheckpointError:
            assert path.name == "config.json"  # of the VAE, which is read for its factors
        else:
            assert (changed[0] != whole[0]) is (path.parent.name == "vae"), path
            assert (changed[1] != whole[1]) is (path.parent.name != "vae"), path
        path.write_bytes(before)
    assert (DiffusersVAE(root / "vae", digests=digests).digest, text_encoder(root).digest) == whole
    others = {text_encoder(root, max_length=9).digest, text_encoder(root, dtype="bfloat16").digest}
    assert len({*others, whole[1]}) == 3
    assert DiffusersVAE(root / "vae", dtype="bfloat16").digest != whole[0]


def test_a_changed_model_is_never_served_from_an_old_entry(model, tmp_path):
    root = tmp_path / "model"
    shutil.copytree(model, root)
    (tmp_path / "images").mkdir()
    picture(np.random.default_rng(0), (64, 64)).save(tmp_path / "images" / "a.png")
    (tmp_path / "images" / "a.txt").write_text("a red dog")
    settings = DataSettings(buckets=BucketSettings((64,), step=16, min_side=64, max_side=64))

    def run():
        digests = FileDigests(tmp_path / "files.json")
        mine = Encoders(
            DiffusersVAE(root / "vae", digests=digests), text_encoder(root, digests=digests)
        )
        dataset, report = cache([Source(tmp_path / "images")], mine, settings, tmp_path / "cache")
        return dataset.batch([0]), report.computed

    first, _ = run()
    assert run()[1] == {}
    vae = AutoencoderKL.from_pretrained(root / "vae")
    with torch.no_grad():
        vae.encoder.conv_out.bias += 1
    vae.save_pretrained(root / "vae")
    second, computed = run()
    assert computed == {"latents": 1} and not np.allclose(first.latents, second.latents)
    config = json.loads((root / "vae" / "config.json").read_text())
    (root / "vae" / "config.json").write_text(json.dumps(config | {"shift_factor": 0.5}))
    third, _ = run()
    np.testing.assert_allclose(second.latents - third.latents, (0.5 - 0.1159) * 0.3611, rtol=1e-4)


def test_digests_are_remembered_only_of_settled_files(tmp_path, monkeypatch):
    path, memory = tmp_path / "weights", tmp_path / "files.json"
    path.write_bytes(b"one")
    young = FileDigests(memory).of(path)
    assert not memory.exists()  # it may change again within the clock's resolution
    monkeypatch.setattr(digests.time, "time_ns", lambda: path.stat().st_ctime_ns + 10**10)
    assert FileDigests(memory).of(path) == young and memory.exists()
    known = FileDigests(memory)
    monkeypatch.setattr(digests.disk, "open_to_read", None)
    assert known.of(path) == young  # without reading it
    monkeypatch.undo()
    times = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert FileDigests(memory).of(path) != young
    other = tmp_path / "other"
    other.write_bytes(b"six")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(other, path)
    assert FileDigests(memory).of(path) != young


def test_missing_folders_are_named(model, tmp_path):
    with pytest.raises(DatasetError, match=r"nowhere is not a folder.*nothing is fetched"):
        DiffusersVAE(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match=r"has no file \*\.safetensors"):
        (tmp_path / "vae").mkdir()
        shutil.copy(model / "vae" / "config.json", tmp_path / "vae")
        DiffusersVAE(tmp_path / "vae")
    with pytest.raises(DatasetError, match=r"clip: .*none"):
        names = ("text_encoder_2", "tokenizer_2", "none", "tokenizer")
        TransformersTextEncoder(*(model / n for n in names))
    with pytest.raises(ArgumentError, match="max_length"):
        text_encoder(model, max_length=0)
    with pytest.raises(ArgumentError, match="dtype: 'load'"):
        text_encoder(model, dtype="load")
    with pytest.raises(ArgumentError, match="dtype: 'int8'"):
        DiffusersVAE(model / "vae", dtype="int8")


def test_files_that_change_while_they_are_loaded(model, tmp_path):
    root = tmp_path / "vae"
    shutil.copytree(model / "vae", root)
    encoder = DiffusersVAE(root)
    assert encoder.digest
    (root / "more.json").write_text("{}")
    with pytest.raises(DatasetError, match="changed while"):
        encoder.encode(np.zeros((1, 3, 16, 16), np.float32))


def test_absent_libraries_are_named_and_importing_loads_none():
    program = (
        "import sys, weft.diffusion.data as d\n"
        "heavy = ('torch', 'diffusers', 'transformers', 'PIL', 'rich')\n"
        "print([m for m in heavy if m in sys.modules])\n"
        "sys.modules['diffusers'] = None\n"
        "from weft.diffusion.data.weights import load_library\n"
        "try:\n    load_library('diffusers', 'x')\n"
        "except d.weights.DatasetError as e:\n    print(e.message)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    lines = run.stdout.splitlines()
    assert lines[0] == "[]" and "weft[diffusion,torch]" in lines[1], run.stdout + run.stderr
