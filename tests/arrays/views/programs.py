"""Random programs of views and writes, as text that NumPy and Weft both run."""

import numpy as np

VIEWS = (
    "{a}[0]",
    "{a}[-1]",
    "{a}[1:]",
    "{a}[::-1]",
    "{a}[None]",
    "{a}[..., :2]",
    "{a}[:, ::2]",
    "{a}.reshape(-1)",
    "{a}.reshape(2, -1)",
    "{a}.reshape({a}.shape)",
    "{a}.T",
    "{a}.T.reshape(-1)",
    "np.swapaxes({a}, 0, -1)",
    "np.moveaxis({a}, 0, -1)",
    "np.squeeze({a})",
    "np.expand_dims({a}, 0)",
    "np.split({a}, 2)[1]",
    "np.array_split({a}, 2, axis=-1)[0]",
    "np.flip({a}, 0)",
    "np.einsum('ij->ji', {a})",
    "list({a})[-1]",
    "{a}",
)
COPIES = ("{a} * 1.0", "{a} + {b}", "np.concatenate([{a}, {a}])", "{a}[[0, -1]]", "np.cos({a})")
WRITES = (
    "{a}[0] = {v}",
    "{a}[...] = {v}",
    "{a}[1:] = {v}",
    "{a}[..., -1] = {v}",
    "{a}[[0, -1]] = {v}",
    "{a}[{a} > 0] = {v}",
    "{a}[0] += {v}",
    "{a}[1:] *= {v}",
    "{a}[..., 0] -= {b}[..., 0]",
    "{a}[:] = {b}",
    "{a} += {v}",
    "{a} -= {b}",
    "{a} *= {v}",
    "{a} /= {v}",
    "{a} += {a}",
    "{a}[0][0] = {v}",
    "{a}.reshape(-1)[0] = {v}",
    "{a}.T[0] = {v}",
    "{a}.T[0] += {v}",
    "for row in {a}: row[...] = {v}",
    "for row in {a}: row += {v}",
)


def draw(rng: np.random.Generator, length: int) -> list[tuple[str, str, str]]:
    """Statements as (target, source, text): views, copies, writes and deletions."""
    names, program = ["a"], []
    for k in range(length):
        a, b = (str(rng.choice(names)) for _ in range(2))
        v = f"{rng.uniform(0.5, 2.0):.3f}"
        kind = rng.choice(["view", "copy", "write", "delete"], p=[0.38, 0.08, 0.46, 0.08])
        if kind == "delete" and len(names) > 2:
            names.remove(a)
            program.append(("", a, f"del {a}"))
        elif kind == "write":
            program.append(("", a, str(rng.choice(WRITES)).format(a=a, b=b, v=v)))
        else:
            texts = COPIES if kind == "copy" else VIEWS
            new = f"b{k}"
            program.append((new, a, f"{new} = " + str(rng.choice(texts)).format(a=a, b=b)))
            names.append(new)
    return program


def function(statements: list[str], names: list[str], **known):
    """f(x) that runs the statements, and returns the named arrays laid end to end."""
    body = "\n    ".join(["a = x * 1.0", *statements])
    parts = ", ".join(f"({n}).reshape(-1)" for n in names)
    scope = {"np": np, **known}
    exec(f"def f(x):\n    {body}\n    return np.concatenate([{parts}])", scope)
    return scope["f"]
