"""003 FLAME Optimizer API Documentation: learning rates for parts of a model.

Sections: Parameter Groups with Different LRs; LoRA Training Optimizer Setup.
The document's set-up leaves the groups to the step; here the optimizer holds them.
"""

from dataclasses import dataclass

from expect import close

import weft as wf
from weft import nn
from weft.optim import (
    SGD,
    Adam,
    AdamConfig,
    MultiGroupOptimizer,
    ParameterGroup,
    SGDConfig,
    by_pattern,
)


class WrittenOut:
    """The document's own MultiGroupOptimizer: scale the rate, step, restore the rate."""

    def __init__(self, base_optimizer, groups):
        self.base_optimizer, self.groups = base_optimizer, groups

    def step(self, grads):
        for group in self.groups:
            original_lr = self.base_optimizer.config.lr
            self.base_optimizer.set_lr(original_lr * group.lr_scale)

            param_updates = []
            for param in group.params:
                grad = grads.get(param.id)
                if grad is not None:
                    param.set_grad(grad.clone())
                    param_updates.append((param.id, param, grad))
            self.base_optimizer.step(param_updates)

            self.base_optimizer.set_lr(original_lr)


def parameter_groups():
    results = []
    for kind in (WrittenOut, MultiGroupOptimizer):
        slow, fast = wf.Parameter(wf.tensor([1.0, 2.0])), wf.Parameter(wf.tensor([1.0, 2.0]))
        groups = [
            ParameterGroup(params=[slow], lr_scale=0.1),
            ParameterGroup(params=[fast], lr_scale=1.0),
        ]
        optimizer = kind(Adam(AdamConfig(lr=0.01)), groups)
        for _ in range(5):
            loss = slow.tensor().square().sum().add(fast.tensor().square().sum())
            optimizer.step(loss.backward())
        assert optimizer.base_optimizer.config.lr == 0.01
        results.append((slow.tolist(), fast.tolist()))
    assert results[0] == results[1]
    close(wf.tensor(results[0][1]), [0.95, 1.95], ulps=2000)
    close(wf.tensor(results[0][0]), [0.995, 1.995], ulps=2000)


@dataclass(frozen=True)
class LoRATrainingConfig:
    base_lr: float
    text_encoder_lr_scale: float
    unet_lr_scale: float


class LoRAModel(nn.Module):
    """Two parts, each a frozen linear map with an adapter."""

    def __init__(self):
        super().__init__()
        self.text_encoder = nn.LoRALinear(2, 2, rank=2, alpha=2.0)
        self.unet = nn.LoRALinear(2, 2, rank=2, alpha=2.0)

    def forward(self, x):
        return self.unet(self.text_encoder(x))


def setup_lora_optimizer(model, config):
    adam_config = AdamConfig(lr=config.base_lr, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01)
    groups = by_pattern(
        model.lora_parameters(),
        {
            "text_encoder.*": {"lr_scale": config.text_encoder_lr_scale},
            "unet.*": {"lr_scale": config.unet_lr_scale},
        },
    )
    return Adam(groups, adam_config)


def lora_set_up():
    wf.random.seed(0)
    model = LoRAModel()
    optimizer = setup_lora_optimizer(model, LoRATrainingConfig(1e-2, 0.5, 1.0))
    names = [name for name, _ in model.lora_parameters()]
    assert set(names) == {f"{part}.lora_{x}" for part in ("text_encoder", "unet") for x in "AB"}
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2]

    before = {name: value.clone() for name, value in model.state_dict().items()}
    grads = model(wf.randn((8, 2))).square().mean().backward()
    optimizer.step(grads)
    for name, value in model.state_dict().items():
        moved = abs(value.numpy() - before[name].numpy()).max()
        if "lora" not in name:
            assert moved == 0.0, "the base is frozen"
        elif name.endswith("lora_B"):
            # Adam's first step is the rate, wherever the gradient is not 0.
            rate = 0.5e-2 if name.startswith("text_encoder") else 1e-2
            close(wf.tensor(moved), rate, ulps=64)
    assert set(optimizer.state_dict()["state"]) == set(names)


def plain_rates():
    """Without moments the scale is exact."""
    p, q = wf.Parameter(wf.tensor([1.0])), wf.Parameter(wf.tensor([1.0]))
    groups = [ParameterGroup([p], 0.5), ParameterGroup([q], 2.0)]
    optimizer = MultiGroupOptimizer(SGD(SGDConfig(lr=0.25)), groups)
    optimizer.step(p.add(q).sum().backward())
    assert p.tolist() == [0.875] and q.tolist() == [0.5]


def main():
    parameter_groups()
    lora_set_up()
    plain_rates()


if __name__ == "__main__":
    main()
