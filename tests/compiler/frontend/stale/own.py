"""Objects of Weft that users keep, each with changes after which something else is read of it."""

from collections.abc import Callable
from typing import Any

import weft as wf


def parameter(value: float = 1.0) -> Any:
    return wf.Parameter(wf.tensor(value))


def optimizer(**options: Any) -> Any:
    made = wf.optim.AdamW([parameter()], lr=0.5, **options)
    made.param_groups[0]["tag"] = 1.0
    return made


def _add(o: Any) -> None:
    o.add_param_group({"params": [parameter()], "lr": 0.25})


def _step(o: Any) -> None:
    o.param_groups[0].pop("tag")  # no setting of the optimizer
    o.step([wf.tensor(1.0)])


def _in_group(name: str, value: Any) -> Callable[[Any], None]:
    return lambda o: o.param_groups[0].update({name: value})


def _attribute(name: str, value: Any) -> Callable[[Any], None]:
    return lambda o: setattr(o, name, value)


def _multiple() -> Any:
    group = wf.optim.ParameterGroup([parameter()], lr=0.25)
    return wf.optim.MultiGroupOptimizer(wf.optim.AdamW(lr=0.5), [group])


def _gradients() -> Any:
    found = wf.GradientMap()
    found.insert(KEY, wf.tensor(2.0))
    return found


KEY = parameter()
GROUPS = [
    *(_in_group("lr", 0.125), _in_group("weight_decay", 0.75), _in_group("tag", 7.0)),
    *(_add, _attribute("lr", 0.0625), lambda o: o.param_groups.pop()),
    *(lambda o: o.param_groups[0].pop("tag"), lambda o: _in_group("new", 3.0)(o)),
    lambda o: _attribute("param_groups", [{**o.param_groups[0], "lr": 3.0}])(o),
]
# (make, changes, further expressions that are read of `v`).
OWN: dict[str, tuple[Callable[[], Any], list[Callable[[Any], Any]], list[str]]] = {
    "optimizer": (
        optimizer,
        [*GROUPS, _step, _attribute("mine", 3.0)],
        [
            *("v.param_groups[0]['lr']", "v.param_groups[0]['weight_decay']", "v.config.lr"),
            *("v.param_groups[0].get('tag', 9.0)", "len(v.param_groups)", "len(v.state)"),
            *("[g['lr'] for g in v.param_groups]", "sorted(v.param_groups[-1].keys(), key=str)"),
            *("[k for k in v.param_groups[0]]", "{**v.param_groups[0]}['lr']"),
            *("dict(v.param_groups[0])['lr']", "len(v.param_groups[0])", "getattr(v, 'mine', 2.0)"),
            *("len(v.param_groups[0]['params'])", "v.param_groups == []"),
            "'new' in v.param_groups[0]",
            "[x for k, x in v.param_groups[0].items() if k == 'lr']",
        ],
    ),
    "several groups": (
        _multiple,
        [lambda o: o.set_lr(2.0), _in_group("lr", 0.125)],
        ["v.config.lr", "v.param_groups[0]['lr']", "len(v.groups)"],
    ),
    "optimizer with averages": (
        lambda: wf.optim.EMAOptimizer(optimizer(), 0.5),
        [lambda o: o.set_lr(2.0), _in_group("lr", 0.125), lambda o: setattr(o.ema, "decay", 0.25)],
        ["v.config.lr", "v.param_groups[0]['lr']", "v.decay", "v.ema.decay", "v.optimizer.lr"],
    ),
    "averages": (
        lambda: wf.optim.EMA([KEY], 0.5),
        [_attribute("decay", 0.25), lambda o: o.update(), lambda o: o.track(parameter())],
        ["v.decay", "v.updates", "KEY in v", "v.is_swapped"],
    ),
    "scaler": (
        lambda: wf.amp.GradScaler(init_scale=4.0),
        [lambda o: o.update(8.0), _attribute("_enabled", False)],
        ["v.is_enabled()", "v.running.value", "v.state_dict()"],
    ),
    "schedule on a plateau": (
        lambda: wf.optim.PlateauScheduler(1.0, patience=0),
        [lambda o: [o.step(1.0) for _ in range(5)]],
        ["v.get_lr()"],
    ),
    "schedule": (
        lambda: {"s": wf.optim.StepScheduler(1.0, 2)},
        [lambda o: o.update(s=wf.optim.StepScheduler(1.0, 1))],
        ["v['s'].get_lr(3)", "v['s'].step_size"],
    ),
    "clipper": (
        lambda: wf.optim.GradientClipper(1.0),
        [_attribute("max_norm", 3.0)],
        ["v.max_norm"],
    ),
    "group": (
        lambda: wf.optim.ParameterGroup([KEY], lr=1.0),
        [_attribute("lr", 3.0)],
        ["v.lr"],
    ),
    "parameters by name": (
        lambda: wf.ParameterDict({"a": parameter(2.0)}),
        [lambda o: o.insert("a", parameter(5.0)), lambda o: o.insert("b", parameter(7.0))],
        ["len(v.parameters())", "sorted(v.keys())" ],
    ),
    "gradients": (
        _gradients,
        [lambda o: o.insert(parameter(), wf.tensor(3.0))],
        ["len(v)", "len(v.keys())", "len(v.values())", "KEY in v"],
    ),
    "random stream": (
        lambda: wf.random.Generator(1),
        [lambda o: o.seed(2), lambda o: wf.rand(8, generator=o)],
        ["v.position", "v.key", "v.nonce", "v.state_dict()", "v.fork('a').key", "repr(v)"],
    ),
    "module": (
        lambda: wf.nn.Sequential(wf.nn.BatchNorm1d(2), wf.nn.Dropout(0.5)),
        [
            *(lambda o: o.eval(), lambda o: o.append(wf.nn.Tanh())),
            lambda o: setattr(o[1], "p", 0.25),
            *(_attribute("mine", 3.0), lambda o: o[0].register_buffer("more", wf.zeros(3))),
        ],
        [
            *("v.training", "v[0].training", "len(v)", "v[1].p", "len([*v.buffers()])"),
            *("len([*v.modules()])", "getattr(v, 'mine', 2.0)"),
            "[n for n, _ in v.named_buffers()]",
        ],
    ),
    "config": (
        lambda: {"c": wf.optim.AdamConfig(lr=1.0)},
        [lambda o: o.update(c=wf.optim.AdamConfig(lr=2.0))],
        ["v['c'].lr"],
    ),
}  # fmt: skip
