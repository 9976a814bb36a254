"""Learn to write digits: a variational autoencoder, and what its bound on the likelihood says.

The images of scikit-learn's digits, 8×8 pixels, are made black and white, so that their
likelihood is that of 64 coins. A code z of eight normal numbers is drawn for each image, and the
coins' odds are a network of z. Training maximises the evidence lower bound

    log p(x) ≥ E[log p(x | z)] − KL(q(z | x) ‖ p(z)),    z = μ(x) + σ(x)·ε,  ε normal,

in nats, on images that it was not trained on comparable with any other model of the same
pixels. The simplest one, independent pixels, is printed beside it.

Run: python examples/vae.py [picture.png] [--epochs 60] [--seed 0]        (needs scikit-learn)
"""

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import weft as wf
from weft import nn
from weft.nn import functional as F
from weft.optim import Adam, CosineScheduler
from weft.train import DataLoader, TensorDataset, Trainer, random_split

CODE = 8


def data(seed):
    """Black and white images as vectors of 64 zeros and ones: 80 % and 20 %."""
    found: Any = load_digits()
    images = (found.data > 7).astype(np.float32)
    return random_split(TensorDataset(images), [0.8, 0.2], seed)


def everything(dataset):
    """All images of a dataset in one tensor."""
    ((images,),) = DataLoader(dataset, batch_size=len(dataset))
    return images


class VAE(nn.Module):
    """An encoder, image to mean and log-variance of the code; a decoder, code to log-odds."""

    def __init__(self, hidden=128):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.SiLU(), nn.Linear(hidden, 2 * CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, hidden), nn.SiLU(), nn.Linear(hidden, 64))

    def forward(self, x):
        mean, log_variance = wf.split(self.encoder(x), 2, axis=-1)
        z = mean + wf.exp(0.5 * log_variance) * wf.randn(mean.shape)
        return self.decoder(z), mean, log_variance


def negative_elbo(model, batch):
    """Nats per image: what is lost in the pixels, and what the code costs."""
    (x,) = batch
    logits, mean, log_variance = model(x)
    pixels = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    code = 0.5 * wf.sum(mean**2 + wf.exp(log_variance) - 1 - log_variance) / len(x)
    return pixels + code, {"pixels": pixels, "code": code}


def independent_pixels(training, test):
    """Nats per test image, if every pixel is a coin as biased as in the training images."""
    share = (everything(training).sum(axis=0) + 1) / (len(training) + 2)
    x = everything(test)
    return F.binary_cross_entropy(wf.broadcast_to(share, x.shape), x, reduction="sum") / len(x)


def train(epochs=60, seed=0, progress=True):
    """The trainer, after training, and the images it was trained and tested on."""
    training, test = data(seed)
    wf.random.seed(seed)
    model = VAE()
    loader = DataLoader(training, batch_size=32, shuffle=True, seed=seed)
    steps = epochs * len(loader)
    trainer = Trainer(
        model,
        Adam(model, lr=2e-3),
        negative_elbo,
        schedule=CosineScheduler(2e-3, 1e-5, 0, steps),
        log_every=5 * len(loader),
        progress=progress,
    )
    validation = DataLoader(test, batch_size=len(test))
    trainer.fit(loader, epochs=epochs, validation=validation, validate_every=5 * len(loader))
    return trainer, training, test


def reconstruct(model, x):
    """The probabilities of the pixels at the mean of each image's code."""
    with wf.no_grad():
        mean, _ = wf.split(model.encoder(x), 2, axis=-1)
        return wf.sigmoid(model.decoder(mean))


def draw(path, model, x, count=16):
    """Test images, what is left of them after coding, and new ones from random codes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with wf.no_grad():
        new = wf.sigmoid(model.decoder(wf.randn((count, CODE))))
    rows = {"image": x[:count], "from its code": reconstruct(model, x[:count]), "new": new}
    figure, axes = plt.subplots(3, count, figsize=(count * 0.7, 2.6), layout="constrained")
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for panel, image in zip(line, images.numpy(), strict=True):
            panel.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(path="vae.png", epochs=60, seed=0):
    trainer, training, test = train(epochs, seed)
    tested = trainer.history.validation.row(-1)
    baseline = independent_pixels(training, test).item()
    print(f"test images: at least {-tested['loss']:.2f} nats each (log-likelihood)")
    print(f"  {tested['pixels']:.2f} lost in the pixels, {tested['code']:.2f} for the code")
    print(f"independent pixels: {-baseline:.2f} nats")
    trainer.model.eval()
    draw(path, trainer.model, everything(test))
    print(f"drawn to {path}")
    return tested["loss"], baseline


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", nargs="?", default="vae.png")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
