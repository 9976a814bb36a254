"""Values of every key of a configuration for the tiny model: those that are valid, and wrong ones.

Valid ones are put together at random; whether a run takes them is for the run to say.
"""

import json
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from weft.diffusion.training.config import TrainConfig

# As TOML has them, by section and key; "" leaves the key out.
VALID: dict[str, dict[str, list[str]]] = {
    "model": {
        "dtype": ['"float32"', '"bfloat16"', '"float16"'],
        "quantise": ["", '"int8"'],
        "guidance": ["0.0", "3.5"],
        "cache": ["", '"base"'],
    },
    "data": {
        "repeats": ["1", "3"],
        "caption": ["", '"a thing"'],
        "extension": ['".txt"', '".caption"'],
        "weight": ["0.5", "0"],
        "regularisation": ["false", "true"],
        "recursive": ["false", "true"],
        "masks": ["", '"masks"'],
    },
    "images": {
        "resolutions": ["[16]", "[16, 32]", "[8]"],
        "step": ["8", "4", "16", "2"],
        "shortest": ["8", "16", "4"],
        "longest": ["32", "16"],
        "upscale": ["true", "false"],
        "keep": ["0", "1.0"],
        "crop": ['"center"', '"random"'],
        "crops": ["", "2"],
        "flip": ["0.5", "0"],
        "caption_dropout": ["0", "1.0"],
        "orders": ["1", "3"],
        "keep_parts": ["0", "1"],
        "separator": ['","', '" "', '""'],
        "max_pixels": ["64000000", "100"],
        "max_bytes": ["100000", "10"],
        "alpha": ['"white"', '"refuse"'],
        "problems": ['"stop"', '"skip"'],
    },
    "encoders": {
        "vae": ["", '"images"'],
        "clip": ["", '"hash"', '"images"'],
        "t5_tokenizer": ["", '"images"'],
        "pixels": ["2", "1"],
        "tokens": ["4", "1"],
        "device": ['"cpu"', '"cuda"'],
        "dtype": ['"float32"', '"bfloat16"'],
        "cache": ['"cache"', '"cache-2"', '"images"', '"afile"'],
    },
    "adapter": {
        "kind": ['"lora"', '"dora"', '"lokr"'],
        "targets": ['["*"]', '["*to_v", "*proj_mlp"]', '["*attn.to_q"]', '["*attn9*"]', "[]"],
        "rank": ["2", "64"],
        "alpha": ["", "1", "0.5"],
        "dropout": ["0", "0.5"],
        "rules": ["[]", '[{pattern = "*to_k", rank = 1}]', '[{pattern = "none", rank = 1}]'],
        "start": ["", '"start.safetensors"', '"afile"'],
    },
    "train": {
        "steps": ["2", ""],
        "epochs": ["", "1"],
        "batch": ["1", "3", "8"],
        "accumulate": ["1", "2", "5"],
        "seed": ["0", "7"],
        "device": ['"cpu"', '"cuda:7"'],
        "precision": ['"float32"', '"bfloat16"'],
        "compile": ["false", "true"],
        "clip_norm": ["", "0.5"],
        "ema": ["", "0.9", "0"],
        "memory_budget_mb": ["", "1000", "0.25"],
        "unet_lr_scale": ["1", "0.5"],
        "text_encoder_lr_scale": ["", "1.0"],
        "deterministic": ["false", "true"],
        "dist": ["false", "true"],
        "workers": ["0", "2"],
    },
    "noise": {
        "sampling": ['"logit_normal"', '"sigmoid"', '"uniform"', '"mode"'],
        "mean": ["0", "-2"],
        "std": ["1", "0.1"],
        "mode_scale": ["0", "1.29"],
        "shift": ["1", "3.0", '"resolution"'],
        "weighting": ['"none"', '"sigma_sqrt"', '"cosmap"'],
        "loss": ['"mse"', '"huber"'],
        "huber_delta": ["0.1", "5"],
    },
    "output": {
        "directory": ['"run"', '"afile"', '"afile/run"', '"/proc/none"', '"images"'],
        "name": ['"adapter"', '"über"', '"a.b"'],
        "save_every": ["1", "250"],
        "keep": ["1", "3"],
        "layouts": ['["peft"]', '["kohya"]', '["peft", "kohya"]'],
        "dtype": ['"float32"', '"bfloat16"', '"float16"'],
        "log_every": ["1", "10"],
        "tensorboard": ["false", "true"],
    },
    "validation": {
        "folder": ["", '"kept"', '"images"'],
        "share": ["0", "0.3", "0.9"],
        "every": ["1", "250"],
        "levels": ["1", "4"],
    },
    "preview": {
        "prompts": ["[]", '["a"]', '["", "b c"]'],
        "every": ["1", "250"],
        "steps": ["1", "2"],
        "guidance": ["0", "3.5"],
        "width": ["16", "8", "10"],
        "height": ["16", "24"],
        "seed": ["0", "5"],
    },
    "optimizer": {
        "name": [
            *('"adamw"', '"adafactor"', '"adagrad"', '"adam"', '"adam8bit"', '"adamw8bit"'),
            *('"lamb"', '"lion"', '"muon"', '"nadam"', '"prodigy"', '"radam"', '"rmsprop"'),
            *('"schedulefreeadamw"', '"sgd"'),
        ],
        "lr": ["1e-3", "", "0"],
        "weight_decay": ["", "0.1"],
        "maximize": ["", "true"],
        "warmup_init": ["", "true"],
        "relative_step": ["", "true", "false"],
        "ns_steps": ["", "3"],
        "beta1": ["", "0.5"],
    },
    "schedule": {
        "name": [
            *('"constant"', '"linear"', '"cosine"', '"polynomial"', '"exponential"', '"step"'),
            *('"one_cycle"', '"wsd"'),
        ],
        "warmup_steps": ["", "1", "5"],
        "min_lr": ["", "1e-4"],
        "decay_rate": ["", "0.5"],
        "step_size": ["", "1"],
        "stable_steps": ["", "1"],
        "decay_steps": ["", "1"],
    },
}
BASE = {
    "model": {"path": '"model"', "dtype": '"float32"'},
    "data": {"path": '"images"'},
    "images": {"resolutions": "[16]", "step": "8", "shortest": "8", "longest": "32"},
    "encoders": {"tokens": "4"},
    "train": {"steps": "2", "batch": "2", "precision": '"float32"', "compile": "false"},
    "output": {"directory": '"run"', "save_every": "1"},
    "preview": {"width": "16", "height": "16", "every": "1", "steps": "1"},
    "validation": {"every": "1"},
    "optimizer": {"name": '"adamw"', "lr": "1e-3"},
}
ARRAYS = ("data",)


def to_toml(sections: dict[str, dict[str, str]]) -> str:
    """The text of a configuration; keys with an empty value are left out."""
    text = ""
    for name, keys in sections.items():
        text += f"[[{name}]]\n" if name in ARRAYS else f"[{name}]\n"
        text += "".join([f"{key} = {value}\n" for key, value in keys.items() if value])
    return text


# -- wrong values ----------------------------------------------------------------------------------

_FOLDERS = {"[[data]]": "data", "[[adapter.rules]]": "adapter"}
WRONG = ["-1", "0", "-1.5", "1e300", "10000000000000000000", "inf", "nan", "-inf", '""', '"x"']
WRONG += ["true", "[]", '["x"]', "{}", "1979-05-27", '"\\u0000"', "[[1]]", "[-1]"]


def keys_of(kind: Any = TrainConfig, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all keys: those of arrays of tables are their first tables'."""
    found: list[tuple[Any, ...]] = []
    hints = get_type_hints(kind)
    for f in fields(kind):
        if not f.init:
            continue
        hint = hints[f.name]
        inner = get_args(hint)[0] if get_origin(hint) is tuple else hint
        if hasattr(inner, "from_toml"):
            continue
        if is_dataclass(inner):
            many = (0,) if inner is not hint else ()
            found += keys_of(inner, (*place, f.name, *many))
        else:
            found.append((*place, f.name))
    return found


def quoted(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text)
