"""What somebody changes of an optimizer, its state or the gradients between two compiled steps.

A compiled step and an eager one go through the same random changes, and have the same parameters,
states and gradients after each step. What a step holds on to is compared by native code, so every
way in which it can be changed is tried, several at a time.
"""

import copy
import os

import numpy as np
import pytest

import weft as wf

RUNS = 60 if os.environ.get("WEFT_SOAK") else 4
STEPS = 12
OPTIMIZERS = {
    "SGD": {"lr": 0.05, "momentum": 0.9},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "NAdam": {"lr": 0.01},
    "Adafactor": {"lr": 0.01},
}
CHANGES = {}


def change(f):
    CHANGES[f.__name__] = f
    return f


class Twin:
    """A model with its optimizer, and whatever somebody holds of it."""

    def __init__(self, name: str, compiled: bool):
        rng = np.random.default_rng(0)
        shapes = ((5, 4), (4,), (4, 3), (3,))
        self.params = [wf.Parameter(wf.tensor(rng.standard_normal(s))) for s in shapes]
        groups = [{"params": self.params[:3]}, {"params": self.params[3:], "lr": 0.02}]
        self.optimizer = getattr(wf.optim, name)(groups, **OPTIMIZERS[name])
        self.held: list = []
        self.step = wf.compile(self._step, max_variants=64) if compiled else self._step

    def _step(self, x, y):
        a, b, c, d = self.params
        self.optimizer.zero_grad()
        loss = ((wf.tanh(x @ a + b) @ c + d - y) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def arrays(self) -> dict[str, np.ndarray]:
        """Copies of everything that a step may change, by name, and of what is held of it."""
        found = {f"parameter {k}": np.array(p.detach()) for k, p in enumerate(self.params)}
        found |= {f"gradient {k}": np.array(p.grad) for k, p in enumerate(self.params)}
        for key, own in self.optimizer.state.items():
            found |= {f"{name} of {key}": np.array(v) for name, v in own.items()}
        held = enumerate(self.held)
        return found | {f"held {k}": np.array(x) for k, x in held if x is not None}


def _some_state(twin: Twin, rng) -> dict:
    keys = sorted(twin.optimizer.state)
    return twin.optimizer.state[keys[rng.integers(len(keys))]] if keys else {}


def _some_array(twin: Twin, rng) -> tuple[dict, str]:
    own = _some_state(twin, rng)
    names = sorted([name for name, value in own.items() if isinstance(value, np.ndarray)])
    return own, names[rng.integers(len(names))] if names else ""


def _some(twin: Twin, rng):
    return twin.params[rng.integers(len(twin.params))]


@change
def one_step_is_another(twin, rng):
    own = _some_state(twin, rng)
    if own:
        own["step"] += int(rng.integers(1, 4))


@change
def all_steps_are_others(twin, rng):
    by = int(rng.integers(1, 4))
    for own in twin.optimizer.state.values():
        own["step"] += by


@change
def equal_steps_are_other_objects(twin, rng):
    for own in twin.optimizer.state.values():
        own["step"] = int(str(1000 + own["step"])) - 1000


@change
def an_array_is_replaced(twin, rng):
    own, name = _some_array(twin, rng)
    if name:
        own[name] = own[name] * 0.5


@change
def an_array_is_written_into(twin, rng):
    own, name = _some_array(twin, rng)
    if name:
        own[name][...] *= 0.5


@change
def a_state_is_replaced(twin, rng):
    keys = sorted(twin.optimizer.state)
    if keys:
        key = keys[rng.integers(len(keys))]
        twin.optimizer.state[key] = copy.deepcopy(twin.optimizer.state[key])


@change
def a_state_is_deleted(twin, rng):
    keys = sorted(twin.optimizer.state)
    if keys:
        del twin.optimizer.state[keys[rng.integers(len(keys))]]


@change
def all_states_are_replaced(twin, rng):
    twin.optimizer.state = copy.deepcopy(twin.optimizer.state)


@change
def the_keys_are_in_another_order(twin, rng):
    twin.optimizer.state = dict(reversed(twin.optimizer.state.items()))


@change
def it_is_reset(twin, rng):
    twin.optimizer.reset()


@change
def it_is_saved_and_loaded(twin, rng):
    twin.optimizer.load_state_dict(copy.deepcopy(twin.optimizer.state_dict()))


@change
def a_rate_is_another(twin, rng):
    twin.optimizer.param_groups[rng.integers(2)]["lr"] *= 0.9


@change
def a_scale_is_another(twin, rng):
    twin.optimizer.param_groups[rng.integers(2)]["lr_scale"] = 0.5 + float(rng.integers(3)) / 2


@change
def a_setting_is_another(twin, rng):
    group = twin.optimizer.param_groups[rng.integers(2)]
    group["weight_decay"] = float(rng.integers(3)) / 10


@change
def the_groups_are_another_list(twin, rng):
    twin.optimizer.param_groups = list(twin.optimizer.param_groups)


@change
def a_parameter_is_in_another_group(twin, rng):
    first, second = twin.optimizer.param_groups
    if len(first["params"]) > 1:
        second["params"].append(first["params"].pop())


@change
def a_gradient_is_held(twin, rng):
    twin.held.append(_some(twin, rng).grad)


@change
def the_array_of_a_gradient_is_held(twin, rng):
    grad = _some(twin, rng).grad
    twin.held.append(None if grad is None else grad.numpy())


@change
def a_part_of_a_gradient_is_held(twin, rng):
    grad = _some(twin, rng).grad
    twin.held.append(None if grad is None else grad[:2])


@change
def a_gradient_is_none(twin, rng):
    _some(twin, rng).grad = None


@change
def a_gradient_is_another(twin, rng):
    p = _some(twin, rng)
    p.grad = wf.ones_like(p.detach())


@change
def a_gradient_lies_otherwise(twin, rng):
    p = _some(twin, rng)
    p.grad = wf.tensor(np.asfortranarray(np.ones(p.shape)))


@change
def what_was_held_is_let_go(twin, rng):
    twin.held.clear()


@change
def a_parameter_is_written_into(twin, rng):
    with wf.no_grad():
        twin.params[0] *= 0.9


@change
def a_parameter_is_constant(twin, rng):
    p = _some(twin, rng)
    wf.nn.init.constant_(p, 0.3)


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_changes_between_steps(name, run):
    eager, compiled = Twin(name, compiled=False), Twin(name, compiled=True)
    rng = np.random.default_rng((run, list(OPTIMIZERS).index(name)))
    done = []
    for _ in range(STEPS):
        x, y = wf.tensor(rng.standard_normal((6, 5))), wf.tensor(rng.standard_normal((6, 3)))
        losses = [twin.step(x, y).item() for twin in (eager, compiled)]
        expected, found = eager.arrays(), compiled.arrays()
        assert found.keys() == expected.keys(), done
        np.testing.assert_allclose(losses[1], losses[0], 1e-9, err_msg=str(done))
        for what, value in expected.items():
            np.testing.assert_allclose(
                found[what], value, rtol=1e-7, atol=1e-9, err_msg=f"{what} after {done}"
            )
        for _ in range(rng.integers(0, 3)):
            done.append(list(CHANGES)[rng.integers(len(CHANGES))])
            seed = int(rng.integers(2**31))
            for twin in (eager, compiled):
                CHANGES[done[-1]](twin, np.random.default_rng(seed))


@pytest.mark.parametrize("rate", [-1.0, "fast", float("nan")])
def test_a_rate_that_makes_no_sense(rate):
    said = []
    for compiled in (False, True):
        twin = Twin("AdamW", compiled)
        x, y = wf.ones((6, 5), dtype="float64"), wf.ones((6, 3), dtype="float64")
        for _ in range(3):
            twin.step(x, y)
        twin.optimizer.param_groups[0]["lr"] = rate
        with pytest.raises(wf.errors.WeftError) as caught:
            twin.step(x, y)
        said.append(str(caught.value).partition(" (at ")[0])
    assert said[0] == said[1]
