"""The census of live arrays."""

import weft as wf


def test_after_a_function_was_compiled():
    """Traces leave boxes behind, which have no memory: they are left out."""
    layer = wf.nn.Linear(40, 50)
    optimizer = wf.optim.AdamW(layer.parameters(), lr=1e-3)

    @wf.compile
    def step(x):
        optimizer.zero_grad()
        loss = (layer(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    step(wf.ones((20, 40)))
    profiler = wf.profile.GradientMemoryProfiler()
    with profiler:
        step(wf.ones((20, 40)))
        profiler.record_checkpoint("a step")
        assert profiler.detect_leaks().num_suspicious == 0
    found = [a.role for a in wf.profile.census().arrays if a.shape == (50, 40)]
    assert sorted(found) == ["gradient", "optimizer state", "optimizer state", "parameter"]
