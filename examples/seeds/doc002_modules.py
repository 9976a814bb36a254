"""002 TenfloweRS Autograd: Comprehensive Guide, "Working with Neural Networks"."""

from expect import close

import weft as wf
from weft import GradientTape
from weft.nn import Dense
from weft.nn.functional import linear, mse_loss


def training_step(model, inputs, targets, learning_rate):
    """The document's step: the tape watches a copy of the weights."""
    tape = GradientTape()

    weights_tracked = tape.watch(model.weights().detach().clone())
    predictions = linear(inputs, weights_tracked, model.bias)

    loss = mse_loss(predictions, targets)
    loss_value = loss.to_scalar()

    grads = tape.gradient([loss], [weights_tracked])

    updated_weights = model.weights().sub(grads[0].mul(wf.Tensor.scalar(learning_rate)))
    model.set_weights(updated_weights)
    return loss_value


def main():
    wf.random.seed(0)
    inputs, true_weights = wf.randn((32, 3)), wf.tensor([[1.0, -2.0, 0.5]])
    targets = linear(inputs, true_weights)

    model = Dense(3, 1, bias=False)
    before = model.weights().tolist()
    losses = [training_step(model, inputs, targets, 0.1) for _ in range(200)]
    assert model.weights().tolist() != before
    assert losses[-1] < 1e-10 * losses[0]
    close(model.weights(), true_weights.numpy(), ulps=64)

    # Without a bias, the first loss and step are those of the normal equations' residual.
    model.set_weights(wf.zeros((1, 3)))
    loss = training_step(model, inputs, targets, 0.1)
    x, y = inputs.numpy(), targets.numpy()
    close(wf.tensor(loss), (y * y).mean())
    close(model.weights(), 0.2 * (x.T @ y).T / len(x), ulps=64)


if __name__ == "__main__":
    main()
