"""Train a small GPT on characters, save it, go on where it stopped, and let it write.

The text is examples/data/weaving.txt, 21 thousand characters; its last tenth is kept apart for
validation. Four transformer blocks of width 128 read 128 characters and predict each next one.
Checkpoints and the curves go into a directory; a run that was interrupted, at whatever moment, goes
on with --resume and ends with the same weights as one that was not, to the bit.

Run: python examples/gpt.py [directory] [--steps 1000] [--optimizer adam8bit] [--resume]
"""

import argparse
from pathlib import Path

import numpy as np

import weft as wf
from weft import nn, optim
from weft.nn import functional as F
from weft.train import Curves, DataLoader, Trainer

TEXT = Path(__file__).parent / "data" / "weaving.txt"
OPTIMIZERS = {
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "adam8bit": optim.Adam8bit,
    "adamw8bit": optim.AdamW8bit,
    "lion": optim.Lion,
}
CONTEXT, BATCH, RATE = 128, 8, 2e-3


class Characters:
    """A text as numbers: its alphabet, and which number each character has."""

    def __init__(self, text):
        self.alphabet = sorted(set(text))
        self.numbers = {c: i for i, c in enumerate(self.alphabet)}

    def encode(self, text):
        return np.array([self.numbers[c] for c in text])

    def decode(self, numbers):
        return "".join(self.alphabet[i] for i in numbers)


class Windows:
    """All stretches of a text, each with the same stretch one character later."""

    def __init__(self, numbers, length, apart=1):
        self.numbers, self.length = numbers, length
        self.starts = np.arange(0, len(numbers) - length, apart)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        x, y = self.gather_batch(np.array([index]))
        return x[0], y[0]

    def gather_batch(self, indices):
        at = self.starts[indices][:, None] + np.arange(self.length + 1)
        found = self.numbers[at]
        return wf.asarray(found[:, :-1]), wf.asarray(found[:, 1:])


class Block(nn.Module):
    """Attention to what came before, then a network at each place; both add to what is there."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def attention(self, x):
        n, t, d = x.shape
        qkv = self.qkv(x).reshape(n, t, 3, self.heads, d // self.heads)
        q, k, v = wf.unstack(qkv.permute(2, 0, 3, 1, 4))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.swapaxes(1, 2).reshape(n, t, d))

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """The logits of each next character, (batch, time) to (batch, time, alphabet)."""

    def __init__(self, alphabet, context=CONTEXT, width=128, heads=4, layers=4, dropout=0.1):
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(alphabet, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*[Block(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, alphabet, bias=False)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, numbers):
        x = self.tokens(numbers) + self.positions.weight[: numbers.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def loss(model, batch):
    """The mean cross-entropy of the next character, in nats."""
    x, y = batch
    logits = model(x)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def write(model, start, count, temperature=0.8):
    """The numbers of `start` and of `count` more characters, drawn one by one."""
    numbers = list(start)
    model.eval()
    with wf.no_grad():
        for _ in range(count):
            seen = wf.asarray([numbers[-model.context :]])
            logits = model(seen)[0, -1] / temperature
            gumbel = -wf.log(-wf.log(wf.rand(logits.shape)))  # its argmax is a draw from softmax
            numbers.append(wf.argmax(logits + gumbel).item())
    return numbers


def train(
    steps=1000,
    optimizer="adam",
    directory=None,
    resume=False,
    seed=0,
    progress=True,
    save_every=100,
    context=CONTEXT,
    **sizes,
):
    """The trainer, after training, and its characters."""
    text = TEXT.read_text()
    characters = Characters(text)
    numbers = characters.encode(text)
    cut = len(numbers) * 9 // 10
    wf.random.seed(seed)
    model = GPT(len(characters.alphabet), context, **sizes)
    trainer = Trainer(
        model,
        OPTIMIZERS[optimizer](model, lr=RATE),
        loss,
        schedule=optim.CosineScheduler(RATE, RATE / 10, steps // 10, steps),
        clip_norm=1.0,
        directory=directory,
        save_every=save_every if directory else None,
        callbacks=[Curves(Path(directory) / "curves.png")] if directory else [],
        log_every=20,
        progress=progress,
    )
    loader = DataLoader(Windows(numbers[:cut], context), BATCH, shuffle=True, seed=seed)
    apart = DataLoader(Windows(numbers[cut:], context, apart=context), BATCH)
    trainer.fit(
        loader,
        steps=steps,
        validation=apart,
        validate_every=max(steps // 8, 1),
        resume="auto" if resume else None,
    )
    return trainer, characters


def final_loss(trainer, share=0.1):
    """The mean of the training loss over the last tenth of the steps."""
    losses = trainer.history["loss"]
    return float(np.mean(losses[-max(int(len(losses) * share), 1) :]))


def main(directory="gpt", steps=1000, optimizer="adam", resume=False, seed=0, sample=300):
    trainer, characters = train(steps, optimizer, directory, resume, seed)
    validation = trainer.history.validation
    print(f"final training loss {final_loss(trainer):.4f} nats a character")
    print(
        f"on the text kept apart {validation['loss'][-1]:.4f}, best {min(validation['loss']):.4f}"
    )
    print(f"checkpoints and curves.png are in {directory}/")
    start = characters.encode("\nThe loom ")
    print(characters.decode(write(trainer.model, start, sample)))
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", nargs="?", default="gpt")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--optimizer", choices=list(OPTIMIZERS), default="adam")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=300, help="how many characters to write")
    main(**vars(parser.parse_args()))
