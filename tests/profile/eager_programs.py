"""Random eager programs, one step at a time: what allocates, keeps, overwrites and frees arrays."""

import numpy as np

import weft as wf


class Program:
    """Values of random shapes, on which random steps are done.

    scale  about how many elements the values have
    """

    def __init__(self, seed: int, scale: int):
        self.draw = np.random.default_rng(seed)
        self.scale = scale
        self.values = []
        self.parameters = [self._leaf() for _ in range(3)]
        self.optimizer = wf.optim.Adam(self.parameters, lr=1e-3)
        self.steps = [getattr(self, n) for n in dir(type(self)) if n.startswith("do_")]

    def _matrix(self):
        rows = int(self.draw.integers(1, 12))
        shape = (rows, max(1, int(self.scale * self.draw.random()) // rows))
        dtype = self.draw.choice(["float32", "float64"])
        return wf.tensor(self.draw.standard_normal(shape), dtype=dtype)

    def _leaf(self):
        return wf.Parameter(self._matrix())

    def _any(self):
        if not self.values:
            self.values.append(self._matrix())
        return self.values[self.draw.integers(len(self.values))]

    def step(self):
        """One random step; then drop values, so that about ten are left."""
        self.steps[self.draw.integers(len(self.steps))]()
        while len(self.values) > self.draw.integers(5, 15):
            del self.values[self.draw.integers(len(self.values))]

    def do_make(self):
        self.values.append(self._matrix())

    def do_elementwise(self):
        x = self._any()
        self.values.append(wf.tanh(x * 2 + 1) / (x * x + 1))

    def do_exp(self):
        self.values.append(wf.exp(-wf.abs(self._any())))

    def do_matmul(self):
        x = self._any()
        if x.ndim == 2:
            self.values.append(wf.tanh(x) @ wf.tanh(x).mT)

    def do_reduce(self):
        x = self._any()
        self.values.append(wf.tanh(x.sum(axis=-1, keepdims=True) + x.mean() * x.max()))

    def do_view(self):
        x = self._any()
        self.values.append(
            x[..., :: int(self.draw.integers(1, 4))].mT if x.ndim == 2 else x[len(x) // 2 :]
        )

    def do_copy(self):
        self.values.append((x.mT if (x := self._any()).ndim == 2 else x).clone())

    def do_overwrite(self):
        x = wf.tensor(np.array(self._any().detach()))
        x += 1
        x[..., :1] = 0
        self.values.append(x)

    def do_concatenate(self):
        x = self._any()
        self.values.append(wf.concat([x, x * 2, x], axis=0)[: x.shape[0]])

    def do_fft(self):
        self.values.append(wf.fft.irfft(wf.fft.rfft(self._any(), n=33), n=33))

    def do_sort(self):
        self.values.append(wf.sort(self._any(), axis=-1))

    def do_index(self):
        x = self._any()
        self.values.append(x[wf.argsort(x.sum(axis=tuple(range(1, x.ndim))) if x.ndim > 1 else x)])

    def do_softmax(self):
        self.values.append(wf.nn.functional.softmax(self._any(), -1))

    def do_empty(self):
        self.values.append(wf.zeros((0, int(self.draw.integers(1, 9)))).reshape(-1))
        self.values.pop()

    def do_resize(self):
        x = np.arange(int(self.draw.integers(1, 50)))
        x.resize(int(self.draw.integers(1, 99)), refcheck=False)
        y = np.fromiter(range(int(self.draw.integers(1, 300))), float)
        self.values.append(wf.tensor(x[:1] + y[:1]))

    def do_train(self):
        w = self.parameters[self.draw.integers(3)]
        loss = (wf.tanh(w @ w.mT) ** 2).mean() + (w * w).sum()
        loss.backward()
        self.optimizer.step()
        if self.draw.random() < 0.5:
            self.optimizer.zero_grad()

    def do_record(self):
        self.values.append(wf.sin(self.parameters[self.draw.integers(3)]) * 2)

    def do_second_order(self):
        w = wf.tensor(self._any().detach(), requires_grad=True)
        self.values.append(wf.tanh(wf.hvp(lambda x: (x**3).sum(), (w,), (w,))))
