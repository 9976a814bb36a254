"""Budgets of programs whose products add to others late: what they read is needed that late."""

import pytest

import weft as wf
from weft.compiler.frontend.arguments import flatten_arguments
from weft.compiler.pipeline import lower
from weft.diffusion.training import build, throwaway
from weft.diffusion.training.config import TrainConfig, read_config
from weft.profile.estimate import trace_step
from weft.profile.valueless import device_of_plan, planned_on

SIZES = wf.diffusion.FluxConfig(
    num_layers=1,
    num_single_layers=1,
    num_attention_heads=4,
    attention_head_dim=16,
    axes_dims_rope=(4, 4, 8),
    joint_attention_dim=32,
    pooled_projection_dim=32,
    guidance_embeds=True,
)
LINES = (
    'model.path = "base"\nmodel.quantise = "int8"\noutput.directory = "run"\ntrain.steps = 1\n'
    '[[data]]\npath = "images"\n'
)


def test_the_least_budget_of_a_transformer_in_8_bits_on_a_gpu(tmp_path):
    """A unit's first part may be before that of a unit which it reads at a later one."""
    (tmp_path / "c.toml").write_text(LINES)
    config: TrainConfig = read_config(tmp_path / "c.toml")
    device = device_of_plan("cuda:0")
    with planned_on("cuda:0"):
        model = throwaway.make_model(config, SIZES, device)
        trainer = build.make_trainer(config, model, 1)
        maker = throwaway.BatchMaker(16, 8, 16, SIZES, False, device)
        batch = maker.make(throwaway.BatchKind(1, 256, 256))
        stepper = trainer._make_stepper()
        taken = flatten_arguments((batch, 1.0, [], [], {}), {}, lambda name: False, True)
        program = trace_step(stepper._programs["step"].__wrapped__, taken)
        found = program.graph, program.donated, program.target
        plain = lower(*found)[1].size
        with pytest.raises(wf.errors.BudgetExceeded) as e:
            lower(*found, wf.CheckpointConfig("auto", memory_budget_mb=0.01))
        assert e.value.smallest is not None
        config = wf.CheckpointConfig("auto", memory_budget_mb=e.value.smallest / (1 << 20))
        assert lower(*found, config)[1].size < plain
