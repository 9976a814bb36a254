"""002 TenfloweRS Autograd: Comprehensive Guide, forward mode and the choice between modes.

Sections: Forward Mode; Hybrid Mode (Automatic Selection); `GradientTape`.
The document's thresholds are ratios outputs/inputs; `tape.jacobian` is where they decide.
"""

import weft as wf


def many_outputs(x):
    return wf.stack([x.sin(), x.cos(), x.mul(x), x.exp()])


def test_forward_mode_for_few_inputs():
    tape = wf.GradientTape()
    x = tape.watch(wf.tensor(0.5, dtype="float64"))
    outputs = many_outputs(x)

    jacobian = tape.forward_gradient(x, outputs)

    expected = wf.stack([x.cos(), -x.sin(), 2 * x, x.exp()])
    assert jacobian.shape == (4,) and wf.allclose(jacobian, expected, rtol=1e-14)


def test_hybrid_mode():
    config = wf.SchedulerConfig(
        strategy=wf.SchedulingStrategy.Auto,
        forward_mode_threshold=10.0,
        reverse_mode_threshold=0.1,
        enable_mixed_mode=True,
    )

    tape = wf.GradientTape.with_scheduler_config(config)
    x = tape.watch(wf.tensor([1.0, 2.0, 3.0]))
    y = x.mul(x)

    assert tape.jacobian(y, x).tolist() == [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]


def chosen(f, x):
    return wf.HybridScheduler(wf.SchedulerConfig()).plan(f, x).chosen.kind


def test_the_mode_follows_the_graph():
    one, many = wf.ones(1), wf.ones(20)
    assert chosen(lambda x: x * wf.ones(40), one) == "forward"
    assert chosen(lambda x: (x * x).sum(), many) == "reverse"


def main():
    test_forward_mode_for_few_inputs()
    test_hybrid_mode()
    test_the_mode_follows_the_graph()


if __name__ == "__main__":
    main()
