"""003 FLAME Optimizer API Documentation, "Learning Rate Scheduling".

Sections: Manual Scheduling; Built-in Schedulers.
"""

import math

import weft as wf
from weft.optim import SGD
from weft.optim.schedulers import CosineScheduler, ExponentialScheduler, LinearScheduler


def manual_scheduling():
    def cosine_lr(initial_lr, current_step, total_steps):
        progress = current_step / total_steps
        return initial_lr * 0.5 * (1.0 + math.cos(math.pi * progress))

    optimizer, total_steps = SGD([wf.Parameter(wf.ones(2))]), 100
    for step in range(total_steps):
        lr = cosine_lr(1e-3, step, total_steps)
        optimizer.set_lr(lr)
        assert optimizer.config.lr == lr
        assert math.isclose(lr, wf.optim.cosine_lr(1e-3, step, total_steps), rel_tol=1e-12)
    assert math.isclose(cosine_lr(1e-3, 50, 100), 5e-4)


def built_in_schedulers():
    scheduler = CosineScheduler(initial_lr=1e-3, min_lr=1e-5, warmup_steps=1000, total_steps=10000)
    assert scheduler.get_lr(0) == 0.0 and math.isclose(scheduler.get_lr(500), 5e-4)
    assert scheduler.get_lr(1000) == 1e-3
    assert math.isclose(scheduler.get_lr(5500), (1e-3 + 1e-5) / 2)
    assert math.isclose(scheduler.get_lr(10000), 1e-5)
    assert scheduler.get_lr(99999) == scheduler.get_lr(10000)

    optimizer, current_step = SGD([wf.Parameter(wf.ones(2))]), 500
    lr = scheduler.get_lr(current_step)
    optimizer.set_lr(lr)
    assert optimizer.param_groups[0]["lr"] == lr

    scheduler = LinearScheduler(initial_lr=0.0, target_lr=1e-3, warmup_steps=1000)
    assert scheduler.get_lr(0) == 0.0 and math.isclose(scheduler.get_lr(250), 2.5e-4)
    assert scheduler.get_lr(1000) == scheduler.get_lr(50000) == 1e-3

    scheduler = ExponentialScheduler(initial_lr=1e-3, decay_rate=0.95, decay_steps=1000)
    assert scheduler.get_lr(0) == 1e-3 and math.isclose(scheduler.get_lr(1000), 0.95e-3)
    assert math.isclose(scheduler.get_lr(2000), 0.95**2 * 1e-3)


def main():
    manual_scheduling()
    built_in_schedulers()


if __name__ == "__main__":
    main()
