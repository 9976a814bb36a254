"""Small encoders with random weights, in folders as those of a Flux model."""

from pathlib import Path

import torch
from diffusers import AutoencoderKL
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
)

from weft.diffusion.data import TransformersTextEncoder

WORDS = "a red blue green cat dog of with the sleeping big small photo".split()
LENGTH = 24


def tokenizer(folder: Path, end: str, pad: str) -> None:
    words = {w: i + 3 for i, w in enumerate(WORDS)}
    vocabulary = {pad: 0, end: 1, "<unk>": 2, **words}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, 1)]
    )
    names = {"eos_token": end, "pad_token": pad, "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=made, **names).save_pretrained(folder)


def save_models(root: Path) -> None:
    """The encoders of a Flux model in a folder, with random weights."""
    torch.manual_seed(0)
    AutoencoderKL(
        block_out_channels=(8, 8, 8, 8),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        latent_channels=16,
        norm_num_groups=4,
        layers_per_block=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
        scaling_factor=0.3611,
        shift_factor=0.1159,
    ).save_pretrained(root / "vae")
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    T5EncoderModel(T5Config(vocab_size=40, **sizes)).save_pretrained(root / "text_encoder_2")
    clip = CLIPTextConfig(
        vocab_size=40,
        hidden_size=12,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        eos_token_id=1,
        bos_token_id=0,
        pad_token_id=0,
        projection_dim=8,
    )
    CLIPTextModel(clip).save_pretrained(root / "text_encoder")
    tokenizer(root / "tokenizer", "<end>", "<pad>")
    tokenizer(root / "tokenizer_2", "</s>", "<pad>")


def text_encoder(root, **options) -> TransformersTextEncoder:
    names = ("text_encoder_2", "tokenizer_2", "text_encoder", "tokenizer")
    return TransformersTextEncoder(*(root / n for n in names), **{"max_length": LENGTH} | options)
