"""003 FLAME Optimizer API Documentation: the optimizers and their configurations.

Sections: Available Optimizers; Basic Usage; Using Adam in Training Loop;
AdamW Optimizer (Adam with Decoupled Weight Decay); SGD Optimizer;
Lion Optimizer (EvoLved Sign Momentum).
"""

from expect import close

import weft as wf
from weft.optim import (
    SGD,
    Adam,
    AdamConfig,
    AdamW,
    AdamWConfig,
    Lion,
    LionConfig,
    RMSprop,
    RMSpropConfig,
    SGDConfig,
)


def available_optimizers():
    for optimizer in (
        Adam(AdamConfig()),
        SGD(SGDConfig()),
        AdamW(AdamWConfig()),
        Lion(LionConfig()),
        RMSprop(RMSpropConfig()),
    ):
        param = wf.Parameter(wf.tensor([1.0]))
        optimizer.step([(param.id, param, wf.tensor([2.0]))])
        assert param.item() < 1.0


def basic_usage():
    config = AdamConfig()
    assert (config.lr, config.beta1, config.beta2) == (1e-3, 0.9, 0.999)
    assert (config.eps, config.weight_decay) == (1e-8, 0.0)

    config = AdamConfig(lr=1e-4, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01)
    optimizer = Adam(config)
    assert optimizer.config == config

    # The decay is an L2 penalty: with a zero gradient it alone makes the first step, of size lr.
    param = wf.Parameter(wf.tensor([5.0, -5.0]))
    optimizer.apply_gradients([(param, wf.zeros(2))])
    close(param, [5.0 - 1e-4, -5.0 + 1e-4])


def using_adam_in_a_training_loop():
    model = wf.ParameterDict({"weight": wf.Parameter(wf.tensor([4.0, -2.0]))})
    model.insert("unused", wf.Parameter.zeros((3,)))
    optimizer = Adam(AdamConfig(lr=0.1))
    loss, param_updates = wf.tensor(float("inf")), []

    for _ in range(200):
        loss = model["weight"].tensor().square().sum()
        grads = loss.backward()

        param_updates = []
        for _name, param in model.named_parameters():
            grad = grads.get(param.id)
            if grad is not None:
                param.set_grad(grad.clone())
                param_updates.append((param.id, param, grad))
        optimizer.step(param_updates)

    assert loss.item() < 1e-4 and len(param_updates) == 1
    assert optimizer.state["0"]["step"] == 200

    optimizer.reset()
    assert optimizer.state == {}


def adamw():
    config = AdamWConfig(
        lr=1e-4, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1, correct_bias=True
    )
    optimizer = AdamW(config)

    # The decay is decoupled: it is in proportion to the parameter, not of size lr.
    param = wf.Parameter(wf.tensor([5.0, -5.0]))
    optimizer.apply_gradients([(param, wf.zeros(2))])
    close(param, [5.0 * (1 - 1e-5), -5.0 * (1 - 1e-5)])


def sgd():
    config = SGDConfig(lr=0.01, momentum=0.9, weight_decay=1e-4, nesterov=True)
    optimizer = SGD(config)
    param = wf.Parameter(wf.tensor([1.0]))
    optimizer.apply_gradients([(param, wf.tensor([1.0]))])
    gradient = 1.0 + 1e-4
    close(param, [1.0 - 0.01 * (gradient + 0.9 * gradient)])

    base_lr, epoch = 0.01, 15
    current_lr = base_lr * 0.1 ** (epoch / 30.0)
    optimizer.set_lr(current_lr)
    assert optimizer.config.lr == current_lr and current_lr < base_lr


def lion():
    config = LionConfig(lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0)
    optimizer = Lion(config)
    param = wf.Parameter(wf.tensor([1.0, 1.0, 1.0]))
    optimizer.apply_gradients([(param, wf.tensor([1e6, -1e-6, 0.0]))])
    close(param, [1.0 - 1e-4, 1.0 + 1e-4, 1.0])


def main():
    available_optimizers()
    basic_usage()
    using_adam_in_a_training_loop()
    adamw()
    sgd()
    lion()


if __name__ == "__main__":
    main()
