"""003 FLAME Optimizer API Documentation: EMA (Exponential Moving Average)."""

from expect import close, refusal

import weft as wf
from weft import errors
from weft.optim import Adam, AdamConfig, EMAOptimizer


class WrittenOut:
    """The document's own EMAOptimizer."""

    def __init__(self, optimizer, decay):
        self.optimizer, self.ema_params, self.decay = optimizer, {}, decay

    def step(self, param_updates):
        self.optimizer.step(param_updates)
        for _, param, _ in param_updates:
            param_tensor = param.tensor().detach().clone()
            ema = self.ema_params.get(param.id)
            if ema is not None:
                param_tensor = ema.mul_scalar(self.decay).add(
                    param_tensor.mul_scalar(1.0 - self.decay)
                )
            self.ema_params[param.id] = param_tensor

    def swap_to_ema(self, params):
        for param in params:
            ema = self.ema_params.get(param.id)
            if ema is not None:
                with wf.no_grad():
                    param.copy_(ema)


def main():
    written, given = (wf.Parameter(wf.tensor([4.0, -2.0])) for _ in range(2))
    mine = WrittenOut(Adam(AdamConfig(lr=0.1)), 0.9)
    theirs = EMAOptimizer(Adam(AdamConfig(lr=0.1)), 0.9)

    for _ in range(20):
        for param, optimizer in ((written, mine), (given, theirs)):
            grads = param.tensor().square().sum().backward()
            optimizer.step([(param.id, param, grads[param])])

    trained = given.tolist()
    mine.swap_to_ema([written])
    theirs.swap_to_ema()
    close(given, written.detach().numpy())
    assert given.tolist() != trained

    with refusal(errors.ArgumentError, "swap"):
        theirs.step([(given.id, given, given.grad)])
    theirs.swap_back()
    assert given.tolist() == trained


if __name__ == "__main__":
    main()
