"""003 FLAME Optimizer API Documentation, "Memory-Efficient Optimizers".

Sections: 8-bit Adam; Adafactor (Memory-Efficient Adaptive Optimizer).
"""

import weft as wf
from weft.optim import (
    Adafactor,
    AdafactorConfig,
    Adam,
    Adam8bit,
    Adam8bitConfig,
    AdamConfig,
)


def state_bytes(optimizer):
    """The bytes of all arrays of an optimizer's state."""
    states = optimizer.state_dict()["state"].values()
    return sum(t.nbytes for own in states for t in own.values() if isinstance(t, wf.Tensor))


def stepped(optimizer):
    """An optimizer after a step of a matrix of 128 × 512."""
    param = wf.Parameter(wf.ones((128, 512)))
    optimizer.step([(param.id, param, wf.ones((128, 512)))])
    assert param[0, 0].item() < 1.0
    return optimizer


def eight_bit_adam():
    config = Adam8bitConfig(
        lr=1e-4, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, block_size=256
    )
    small, large = stepped(Adam8bit(config)), stepped(Adam(AdamConfig(lr=1e-4)))
    # The document's "~75% less memory for optimizer states".
    assert state_bytes(large) == 8 * 128 * 512
    assert 0.74 < 1 - state_bytes(small) / state_bytes(large) < 0.76


def adafactor():
    config = AdafactorConfig(
        lr=None,
        eps=1e-30,
        clip_threshold=1.0,
        decay_rate=-0.8,
        weight_decay=0.0,
        scale_parameter=True,
        relative_step=True,
    )
    optimizer = stepped(Adafactor(config))
    # O(n) memory: a number for each row and each column.
    assert state_bytes(optimizer) == 4 * (128 + 512)


def main():
    eight_bit_adam()
    adafactor()


if __name__ == "__main__":
    main()
