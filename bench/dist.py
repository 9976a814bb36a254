"""A data-parallel training step beside PyTorch's DistributedDataParallel on gloo, and overlap.

Run: python bench/dist.py [mlp | gpt | overlap | compression] [processes]
The same model, weights, numbers and SGD in the same processes, one core each, timed in turns with
a barrier before each step; medians and best rounds of the slowest rank. Ratios are Weft / PyTorch.
`overlap`: a link that takes a given time for each collective, beside computing and sending alone.
`compression`: the bytes of a step, and the loss after 300 steps (or the environment's STEPS) of the
example's GPT on its text, and of the scoreboard's on text of a Markov chain.
"""

import os
import socket
import statistics
import subprocess
import sys
import time

ROUNDS, TURN = 8, 5
STEPS = int(os.environ.get("STEPS", "300"))


def launch(mode: str, size: int) -> None:
    """Start the ranks, and print what rank 0 prints."""
    ports = [_port(), _port()]
    ranks = []
    for r in range(size):
        env = os.environ | {"RANK": str(r), "WORLD_SIZE": str(size), "LOCAL_RANK": str(r)}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0]), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, mode, str(size), str(ports[1])]
        ranks.append(subprocess.Popen(command, env=env))
    if any([p.wait() for p in ranks]):
        raise SystemExit("a rank has failed")


def _port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# -- in each rank ----------------------------------------------------------------------------------


def mlp(library, batch: int = 64):
    """(model, inputs, targets' kind) of an MLP 784-1024-1024-10."""
    nn = library.nn
    layers = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def numbers(mode: str, rank: int):
    """This rank's inputs and classes."""
    import numpy as np
    from scoreboard.problems import BATCH, LENGTH, VOCABULARY

    rng = np.random.default_rng(rank)
    if mode == "mlp":
        return rng.normal(size=(64, 784)).astype(np.float32), rng.integers(0, 10, 64)
    ids = rng.integers(0, VOCABULARY, (BATCH, LENGTH))
    return ids, np.roll(ids, -1, 1).reshape(-1)


def network(mode: str, library):
    from scoreboard.networks import gpt

    return mlp(library) if mode == "mlp" else gpt(library)


def stepping(loss, optimizer):
    def step():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value

    return step


def theirs(mode: str, rank: int, weights):
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = network(mode, torch)
    model.load_state_dict(weights)
    wrapped = DistributedDataParallel(model)
    x, y = map(torch.tensor, numbers(mode, rank))

    def loss():
        out = wrapped(x)
        return torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y)

    return model, stepping(loss, torch.optim.SGD(model.parameters(), lr=0.05))


def ours(mode: str, rank: int, weights, device: str, compiled: bool):
    import weft as wf

    model = network(mode, wf)
    model.load_state_dict(weights)
    wrapped = wf.dist.DataParallel(model.to(device))
    x, y = (wf.tensor(v, device=device) for v in numbers(mode, rank))

    def loss():
        out = wrapped(x)
        return wf.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y)

    step = stepping(loss, wf.optim.SGD(model, lr=0.05))
    return model, (wf.compile(step) if compiled else step)


def check(name: str, model, reference) -> None:
    """The same parameters as PyTorch's, but for rounding in float32."""
    for (key, p), q in zip(model.named_parameters(), reference.parameters(), strict=True):
        far = abs(p.detach().to("cpu").numpy() - q.detach().numpy()).max()
        assert far < 1e-4, (name, key, far)


def in_turns(steps: dict) -> dict[str, list[float]]:
    """Milliseconds of each step on the slowest rank."""
    import torch
    import torch.distributed as distributed

    timed: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            step()
            for _ in range(TURN):
                distributed.barrier()
                start = time.perf_counter()
                step()
                own = torch.tensor([time.perf_counter() - start])
                distributed.all_reduce(own, distributed.ReduceOp.MAX)
                timed[name].append(1e3 * own.item())
    return timed


def beside_ddp(mode: str, size: int, port: str) -> None:
    import torch
    import torch.distributed as distributed

    import weft as wf

    group = wf.dist.init()
    rank = group.rank
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    torch.set_num_threads(1)
    method = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    torch.manual_seed(0)
    weights = {k: v.clone() for k, v in network(mode, torch).state_dict().items()}
    reference, ddp = theirs(mode, rank, weights)
    ways = {
        "eager, NumPy": ("cpu", False),
        "eager, PyTorch's kernels": ("torch", False),
        "compiled": ("cpu", True),
    }
    sides = {name: ours(mode, rank, weights, *way) for name, way in ways.items()}
    payload = 4 * sum([p.numel() for p in reference.parameters()])
    sent = {}
    for name, (_, step) in sides.items():
        for _ in range(3):
            before = sum(group.sent.values())
            step()
            sent[name] = sum(group.sent.values()) - before
    for _ in range(3):
        ddp()
    for name, (model, _) in sides.items():
        check(name, model, reference)
    timed = in_turns({name: step for name, (_, step) in sides.items()} | {"ddp": ddp})
    if rank == 0:
        base, least = statistics.median(timed["ddp"]), min(timed["ddp"])
        print(
            f"{mode}, {size} processes: DDP {base:.2f} ms (best {least:.2f}), {payload} bytes of "
            "gradients"
        )
        for name in sides:
            mine, best = statistics.median(timed[name]), min(timed[name])
            print(
                f"  {name:26} {mine:8.2f} ms (best {best:7.2f})  ratio {mine / base:5.2f} "
                f"({best / least:.2f})  bytes {sent[name]}"
            )
    distributed.destroy_process_group()
    wf.dist.finalize()


def text(rng, count: int, length: int, symbols: int):
    """Sequences of a chain in which each symbol has four successors."""
    import numpy as np

    follow = np.random.default_rng(0).integers(0, symbols, (symbols, 4))
    found = np.empty((count, length + 1), np.int64)
    found[:, 0] = rng.integers(0, symbols, count)
    for t in range(length):
        found[:, t + 1] = follow[found[:, t], rng.integers(0, 4, count)]
    return found


def chain_task():
    """The scoreboard's GPT on text of a Markov chain: the model, and what draws a batch's loss."""
    import numpy as np
    import torch
    from scoreboard.problems import BATCH, LENGTH, VOCABULARY

    import weft as wf

    torch.manual_seed(0)
    model = network("gpt", wf)
    model.load_state_dict(network("gpt", torch).state_dict())
    rng = np.random.default_rng(wf.dist.rank() + 1)

    def loss(called):
        ids = text(rng, max(BATCH // 4, 1), LENGTH, VOCABULARY)
        out = called(wf.tensor(ids[:, :-1])).reshape(-1, VOCABULARY)
        return wf.nn.functional.cross_entropy(out, wf.tensor(ids[:, 1:].reshape(-1)))

    return model, loss, wf.optim.AdamW(model, lr=1e-3), None


def example_task():
    """The GPT of examples/gpt.py on its text, with its Adam, schedule and clipping."""
    import numpy as np

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
    import gpt

    import weft as wf

    written = gpt.TEXT.read_text()
    characters = gpt.Characters(written)
    windows = gpt.Windows(characters.encode(written)[: len(written) * 9 // 10], gpt.CONTEXT)
    wf.random.seed(0)
    model = gpt.GPT(len(characters.alphabet))
    rng, share = np.random.default_rng(0), gpt.BATCH // wf.dist.size()

    def loss(called):
        at = rng.integers(0, len(windows), gpt.BATCH)[wf.dist.rank() * share :][:share]
        return gpt.loss(called, windows.gather_batch(at))

    schedule = wf.optim.CosineScheduler(gpt.RATE, gpt.RATE / 10, STEPS // 10, STEPS)
    return model, loss, wf.optim.Adam(model, lr=gpt.RATE), schedule


def trained(task, kind) -> tuple[float, int]:
    """The mean loss of the last tenth of the steps, and the bytes that a rank gives in a step."""
    import weft as wf

    model, loss_of, optimizer, schedule = task()
    called, losses, sent = wf.dist.DataParallel(model, compression=kind), [], 0
    group = wf.dist.world.world()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(called)
        before = sum(group.sent.values())
        loss.backward()
        sent = sum(group.sent.values()) - before
        if schedule is not None:
            wf.optim.clip_grad_norm(model.parameters(), 1.0)
            optimizer.set_lr(schedule.get_lr(step))
        optimizer.step()
        losses.append(wf.dist.all_reduce(loss.detach(), "mean").item())
    return statistics.mean(losses[-STEPS // 10 :]), sent


def compression() -> None:
    import weft as wf

    group = wf.dist.init()
    kinds = {
        "none": None,
        "bfloat16": "bfloat16",
        "float16": "float16",
        "top 1 %": wf.dist.TopK(0.01),
        "PowerSGD rank 4": wf.dist.PowerSGD(rank=4, start=0.1, total_steps=STEPS),
    }
    for task in (example_task, chain_task):
        base = None
        for name, kind in kinds.items():
            last, sent = trained(task, kind)
            base = last if base is None else base
            if group.rank == 0:
                print(
                    f"{task.__name__:13} {name:16} loss {last:.4f} ({last / base - 1:+.2%}), "
                    f"bytes of a step {sent}",
                    flush=True,
                )
    wf.dist.finalize()


LAYERS, WAIT = 12, 0.004


def slow_layers(wait: float):
    """A model whose layers' backward passes take a time each, without Python's lock."""
    import numpy as np

    import weft as wf

    def pause(g):
        time.sleep(wait)
        return g

    @wf.custom_op(vjp=lambda g, y, x: (pause(g),))
    def slowly(x):
        return x + 0

    class Slow(wf.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = wf.Parameter(wf.tensor(np.ones(1 << 18, np.float32)))

        def forward(self, x):
            return slowly(x * self.weight[:1])

    return wf.nn.Sequential(*[Slow() for _ in range(LAYERS)])


def step_time(link: float, wait: float) -> float:
    """Seconds of a step of two ranks (threads) on a link that takes a time for each bucket."""
    from tests.dist.threads import run

    import weft as wf

    def rank(r):
        model = wf.dist.DataParallel(slow_layers(wait), bucket_mb=1)
        x, found = wf.ones(1), []
        for _ in range(7):
            start = time.perf_counter()
            model(x).sum().backward()
            found.append(time.perf_counter() - start)
            model.zero_grad()
        return statistics.median(found[2:])

    def before(collective, nbytes):
        if collective == "all_reduce":
            time.sleep(link)

    return max(run(2, rank, before))


def overlap() -> None:
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for link in (0.002, 0.004, 0.008):
        compute, sending, both = step_time(0, WAIT), step_time(link, 0), step_time(link, WAIT)
        print(
            f"link {1e3 * link:.0f} ms a bucket: computing {1e3 * compute:6.1f} ms, sending "
            f"{1e3 * sending:6.1f}, step {1e3 * both:6.1f}: "
            f"{both / max(compute, sending):.2f} of the longer, {both / (compute + sending):.2f} "
            "of the sum"
        )


if __name__ == "__main__":
    mode, size, *port = [*sys.argv[1:], *("mlp", "2")[len(sys.argv) - 1 :]]
    if mode == "overlap":
        overlap()
    elif port and mode == "compression":
        compression()
    elif port:
        beside_ddp(mode, int(size), port[0])
    else:
        launch(mode, int(size))
