"""002 TenfloweRS Autograd: Comprehensive Guide, runs that repeat.

Sections: 3. Deterministic Training; Issue 4: Non-Deterministic Results; `DeterministicConfig`.
A config is at work in the tape's block, so the document's program needs a `with`.
"""

import dataclasses

from expect import refusal

import weft as wf
from weft import DeterministicConfig, DeterministicMode, GradientTape, errors, nn
from weft.optim import Adam

DET_CONFIG = DeterministicConfig(
    mode=DeterministicMode.Strict,
    global_seed=42,
    operation_seeds=True,
    cudnn_deterministic=True,
)


def training_run(config, steps=5):
    """A model with dropout, trained under a tape's config: its parameters to the bit."""
    tape = GradientTape.with_deterministic_config(config).persistent()
    with tape:
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = Adam(model.parameters(), lr=0.01)
        parameters = list(model.parameters())
        for _ in range(steps):
            loss = model(wf.randn((16, 4))).square().mean()
            optimizer.step(tape.gradient([loss], parameters))
    return [p.tolist() for p in model.parameters()]


def same_seed_identical_results():
    first = training_run(DET_CONFIG)
    wf.rand(1000)  # what is drawn outside does not matter
    assert training_run(DET_CONFIG) == first
    assert training_run(dataclasses.replace(DET_CONFIG, global_seed=43)) != first


def the_random_numbers_outside_stay():
    wf.random.seed(7)
    expected = [wf.rand(3).tolist(), wf.rand(3).tolist()]
    wf.random.seed(7)
    found = [wf.rand(3).tolist()]
    with GradientTape.with_deterministic_config(DET_CONFIG):
        wf.rand(3)
    assert [*found, wf.rand(3).tolist()] == expected


def as_written_without_a_block():
    tape = GradientTape.with_deterministic_config(DET_CONFIG)
    with refusal(errors.ArgumentError, "with tape:"):
        x = tape.watch(wf.ones(3))
        tape.gradient([x.square().sum()], [x])


def the_same_without_a_tape():
    """Issue 4, for a whole program."""
    runs = []
    for _ in range(2):
        with wf.deterministic(seed=42, mode="strict"):
            w = wf.Parameter.randn((3, 3), 0.0, 1.0)
            grads = wf.nn.functional.dropout(w @ wf.rand((3, 3))).sum().backward()
            runs.append((w.tolist(), grads[w].tolist()))
    assert runs[0] == runs[1]


def deterministic_config():
    fields = {f.name for f in dataclasses.fields(DeterministicConfig)}
    assert fields == {"mode", "global_seed", "operation_seeds", "cudnn_deterministic"}
    assert DeterministicConfig(mode="warn").mode is DeterministicMode.Warn
    with refusal(TypeError, "bogus"):
        DeterministicConfig(bogus=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    def drawn(config, others):
        """Three numbers, after another operation has drawn some."""
        with GradientTape(deterministic=config):
            wf.randn(others)
            return wf.rand(3).tolist()

    own = DeterministicConfig(global_seed=1)
    shared = DeterministicConfig(global_seed=1, operation_seeds=False)
    assert drawn(own, 4) == drawn(own, 400)
    assert drawn(shared, 4) != drawn(shared, 400)
    assert drawn(shared, 4) == drawn(shared, 4)


def main():
    same_seed_identical_results()
    the_random_numbers_outside_stay()
    as_written_without_a_block()
    the_same_without_a_tape()
    deterministic_config()


if __name__ == "__main__":
    main()
