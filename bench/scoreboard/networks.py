"""Networks written once for PyTorch and Weft: `lib` is either library."""

from .problems import HEADS, LAYERS, LENGTH, VOCABULARY, WIDTH


def gpt(lib):
    """A small transformer, a module of the library."""
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            x = x + self.proj(attended(nn.functional, self.qkv(self.ln1(x))))
            return x + self.down(nn.functional.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.ln = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x)).reshape(-1, VOCABULARY)

    return GPT()


def attended(functional, qkv):
    """Causal attention by queries, keys and values that come side by side."""
    n, t, _ = qkv.shape
    qkv = qkv.reshape(n, t, 3, HEADS, WIDTH // HEADS)
    q, k, v = (qkv[:, :, i].swapaxes(1, 2) for i in range(3))
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.swapaxes(1, 2).reshape(n, t, WIDTH)


def perceptron(functional, p, x):
    """Logits of a multi-layer perceptron."""
    count = len(p) // 2
    for k in range(count):
        x = functional.linear(x, p[f"w{k}"], p[f"b{k}"])
        x = functional.relu(x) if k < count - 1 else x
    return x


def cnn(functional, p, x):
    """Logits of a convolutional network."""
    f = functional
    h = f.max_pool2d(f.relu(f.conv2d(x, p["w1"], p["b1"], padding=1)), 2)
    h = f.max_pool2d(f.relu(f.conv2d(h, p["w2"], p["b2"], padding=1)), 2)
    return f.linear(h.reshape(h.shape[0], -1), p["w3"], p["b3"])
