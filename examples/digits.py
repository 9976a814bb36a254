"""Read handwritten digits: a small convolutional network, trained and tested.

The 1 797 images of 8×8 pixels that come with scikit-learn (from the UCI repository, Alpaydin and
Kaynak, 1998), three quarters to learn from and one quarter to be tested on. The network is trained
with AdamW on a cosine schedule; what is tested are the averages of its weights.

Run: python examples/digits.py [picture.png] [--epochs 20] [--seed 0]     (needs scikit-learn)
"""

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import weft as wf
from weft import nn
from weft.nn import functional as F
from weft.optim import AdamW, CosineScheduler
from weft.train import DataLoader, TensorDataset, Trainer, random_split, supervised


def data(seed):
    """Images (1, 8, 8) from 0 to 1 with their digits: three quarters and one quarter."""
    found: Any = load_digits()
    images = (found.images[:, None] / 16).astype(np.float32)
    return random_split(TensorDataset(images, found.target), [0.75, 0.25], seed)


def network():
    """Two convolutions, one pooling, one linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 4 * 4, 10),
    )


def accuracy(logits, digits):
    """The share of images whose digit has the largest logit."""
    return wf.mean(wf.argmax(logits, axis=-1) == digits)


def train(epochs=20, seed=0, progress=True):
    """The trainer, after training, and the test images."""
    training, test = data(seed)
    wf.random.seed(seed)
    model = network()
    loader = DataLoader(training, batch_size=32, shuffle=True, seed=seed)
    steps = epochs * len(loader)
    trainer = Trainer(
        model,
        AdamW(model, lr=2e-3, weight_decay=0.05),
        supervised(F.cross_entropy, accuracy=accuracy),
        schedule=CosineScheduler(2e-3, 1e-5, steps // 10, steps),
        ema=0.98,
        log_every=len(loader),
        progress=progress,
    )
    trainer.fit(loader, epochs=epochs, validation=DataLoader(test, batch_size=150))
    return trainer, test


def answers(trainer, test):
    """The test images, their digits, and what the averaged network reads in them."""
    ((images, digits),) = DataLoader(test, batch_size=len(test))
    trainer.model.eval()
    with wf.no_grad(), trainer.ema.swapped():
        read = wf.argmax(trainer.model(images), axis=-1)
    return images.numpy()[:, 0], digits.numpy(), read.numpy()


def draw(path, history, images, digits, read):
    """The loss, which digits are taken for which, and the images that were misread."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(13, 4), layout="constrained")
    parts: Any = figure.subfigures(1, 3, width_ratios=[1.2, 1, 1])
    left, middle, right = parts
    axes = left.subplots()
    axes.semilogy(history["step"], history["loss"], lw=0.7, color="0.6", label="batches")
    tested = history.validation
    axes.semilogy(tested["step"], tested["loss"], "o-", ms=3, color="C3", label="test images")
    axes.set(xlabel="step", title="cross-entropy")
    axes.legend(frameon=False)
    axes = middle.subplots()
    table = np.zeros((10, 10), int)
    np.add.at(table, (digits, read), 1)
    axes.imshow(np.sqrt(table), cmap="Blues")
    for (i, j), count in np.ndenumerate(table):
        if count:
            colour = "white" if i == j else "black"
            axes.text(j, i, count, ha="center", va="center", size=8, color=colour)
    axes.set(xticks=range(10), yticks=range(10), xlabel="read as", ylabel="digit")
    axes.set_title(f"{np.mean(digits == read):.1%} of {len(digits)} right")
    missed = np.flatnonzero(digits != read)
    panels = right.subplots(3, 3).flat
    for panel, k in zip(panels, missed, strict=False):
        panel.imshow(images[k], cmap="gray_r")
        panel.set_title(f"{digits[k]}, read as {read[k]}", size=8)
    for panel in right.axes:
        panel.axis("off")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(path="digits.png", epochs=20, seed=0):
    trainer, test = train(epochs, seed)
    images, digits, read = answers(trainer, test)
    right = np.mean(digits == read)
    print(f"{np.sum(digits == read)} of {len(digits)} test images read right: {right:.2%}")
    draw(path, trainer.history, images, digits, read)
    print(f"drawn to {path}")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", nargs="?", default="digits.png")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
