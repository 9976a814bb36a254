"""Compiled functions on PyTorch's tensors in host memory: native code runs on their memory."""

import threading

import numpy as np
import pytest
from tests.compiler.fuzz.oracle import _identical, check, mode_of, outcome
from tests.compiler.fuzz.writer import written

import weft as wf
from weft import errors
from weft.backend.torch.namespace import freeze
from weft.compiler import pipeline
from weft.compiler.raw.arrays import arrays_on
from weft.compiler.raw.torch_arrays import TorchArrays

torch = pytest.importorskip("torch")
X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def tensor(x=X, dtype=torch.float32):
    return torch.from_numpy(np.array(x)).to(dtype)


def wave(x):
    return wf.tanh(x) * wf.exp(-x * x) + wf.sin(x)


# -- random programs ------------------------------------------------------------------------------

WHOLLY_COMPILED = ("plain", "inside", "of grad", "step", "jvp")


@pytest.mark.parametrize("batch", range(4))
def test_random_programs_are_eager_ones(batch):
    texts = [written(seed) for seed in range(1000 + batch, 1120, 4)]
    seen = [check(text, mode_of(text), device="torch") for text in texts]
    assert seen.count("same") >= 0.8 * len(seen), seen


def compare_bits(seed: int) -> bool:
    """Whether a program gives the same bits on "cpu" and "torch"; both may refuse it."""
    text = written(seed)
    there, here = (outcome(text, mode_of(text), wf.compile, device=d) for d in ("torch", "cpu"))
    if here.error is not None:
        return type(here.error) is type(there.error)
    pairs = [zip(*both, strict=True) for both in zip(here.leaves, there.leaves, strict=True)]
    return all([_identical(a, b) for both in pairs for a, b in both])


@pytest.mark.parametrize("batch", range(4))
def test_random_programs_have_the_bits_of_numpys(batch):
    seeds = [s for s in range(batch, 100, 4) if mode_of(written(s)) in WHOLLY_COMPILED]
    assert [s for s in seeds if not compare_bits(s)] == []


# -- values, memory, dtypes -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "bool"])
def test_every_dtype_by_the_same_bits(dtype):
    compiled = wf.compile(lambda x: wf.where(x > 0, x, x * x) if dtype != "bool" else ~x)
    raw = tensor(X * 4).to(getattr(torch, dtype))
    y = compiled(wf.asarray(raw))
    want = compiled(wf.asarray(raw).to("cpu"))
    assert y.device == "torch" and y.dtype == dtype and type(y._data) is torch.Tensor
    assert y.to("cpu")._data.tobytes() == want._data.tobytes()


def test_complex_numbers_and_lazy_conjugates():
    z = torch.randn(3, 2, dtype=torch.complex64)
    compiled = wf.compile(lambda z: z * 2 + z.T.sum())
    for raw in (z, z.conj(), z.T.contiguous().T, z.conj().T.contiguous().mT):
        want = raw.resolve_conj() * 2 + raw.resolve_conj().sum()
        np.testing.assert_allclose(compiled(wf.asarray(raw)).numpy(), want.numpy(), rtol=1e-5)


def test_a_gradient_inside_and_outside():
    def loss(x):
        return wave(x).sum()

    x = wf.asarray(tensor()).requires_grad_()
    wf.compile(loss)(x).backward()
    assert x.grad.device == "torch"
    inside = wf.compile(wf.grad(loss))(wf.asarray(tensor()))
    eager = wf.grad(loss)(wf.asarray(tensor()))
    for made in (x.grad, inside):
        np.testing.assert_allclose(made.numpy(), eager.numpy(), rtol=1e-5, atol=1e-6)


def test_results_are_new_tensors_at_each_call():
    compiled = wf.compile(wave)
    x = wf.asarray(tensor())
    first = compiled(x)
    kept = first.numpy().copy()
    second = compiled(wf.asarray(tensor(X + 1)))
    assert torch_of(first).data_ptr() != torch_of(second).data_ptr()
    np.testing.assert_array_equal(first.numpy(), kept)
    torch_of(second).add_(1)  # PyTorch may write there


def torch_of(x):
    return x._data


def test_the_device_can_be_read_and_used():
    def f(x, k):
        assert x.device == "torch" and (x * 2).sum().device == "torch"
        here = {"device": x.device}
        return k * x + wf.ones(3, **here) + wf.arange(3, **here), wf.ones(2), k * 2

    made, own, number = wf.compile(f)(wf.asarray(tensor()), 2.0)
    assert made.device == "torch" and own.device == "cpu" and number == 4.0
    np.testing.assert_allclose(made.numpy(), 2 * X + 1 + np.arange(3), rtol=1e-6)


def test_arguments_of_any_layout():
    compiled = wf.compile(lambda x, y: x * 2 + y)
    base = torch.randn(3, 4)
    layouts = [base.T, torch.randn(4, 6)[:, ::2], torch.randn(1, 3).expand(4, 3), tensor()]
    for raw in layouts:
        made = compiled(wf.asarray(raw), wf.asarray(tensor()))
        torch.testing.assert_close(torch_of(made), raw * 2 + tensor())
    assert "not laid out row by row" in compiled.explain()


def test_tensors_of_pytorch_as_arguments():
    compiled = wf.compile(wave)
    frozen = torch.nn.Parameter(tensor(), requires_grad=False)
    for given in (frozen, tensor(), torch.empty(0, 3), torch.tensor(2.0)):
        made = compiled(given)
        assert made.device == "torch"
        torch.testing.assert_close(torch_of(made), torch_of(wave(wf.asarray(given))))


# -- captured tensors -----------------------------------------------------------------------------


def test_what_pytorch_changes_in_place_is_seen():
    raw = tensor()
    w = wf.asarray(raw)
    compiled = wf.compile(lambda x: x * w)
    x = wf.asarray(torch.ones(4, 3))
    for change in (lambda: None, lambda: raw.add_(1), lambda: raw.zero_(), lambda: raw[0].fill_(7)):
        change()
        np.testing.assert_array_equal(compiled(x).numpy(), raw.numpy())
    raw.set_(torch.full((4, 3), 5.0))  # other memory under the same object
    np.testing.assert_array_equal(compiled(x).numpy(), np.full((4, 3), 5, np.float32))
    square = torch.arange(9.0).reshape(3, 3)
    v = wf.asarray(square)
    other = wf.compile(lambda x: x + v)
    other(wf.zeros((3, 3), device="torch"))
    square.t_()
    np.testing.assert_array_equal(other(wf.zeros((3, 3), device="torch")).numpy(), square.numpy())


def test_parameters_are_changed_in_their_memory():
    raw = tensor()
    w = wf.asarray(raw)
    where, version = raw.data_ptr(), raw._version

    @wf.compile
    def step(x):
        w.copy_(w * 0.5 + x)
        return w.sum()

    want = X.copy()
    for k in range(3):
        step(wf.asarray(tensor(X + k)))
        want = want * np.float32(0.5) + (X + np.float32(k))
    np.testing.assert_allclose(raw.numpy(), want, rtol=1e-6)
    assert w._data is raw and raw.data_ptr() == where
    assert raw._version > version  # PyTorch's own graphs notice


def test_a_graph_of_pytorch_notices_that_a_saved_value_was_overwritten():
    raw, a = tensor(), torch.ones(4, 3, requires_grad=True)
    w = wf.asarray(raw)
    y = (a * raw).sum()
    wf.compile(lambda x: w.copy_(x))(wf.asarray(torch.zeros(4, 3)))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_a_parameter_of_another_layout_is_written_back():
    base = torch.randn(3, 4)
    w, before = wf.asarray(base.T), base.T.clone()
    step = wf.compile(lambda x: w.copy_(w + x))
    for k in range(1, 4):
        step(wf.asarray(torch.ones(4, 3)))
        torch.testing.assert_close(base.T, before + k)


def test_a_shared_parameter_is_copied_before_it_is_written():
    raw = tensor()
    w = wf.asarray(raw)
    freeze(raw)
    compiled = wf.compile(lambda x: w.copy_(w + x))
    for k in range(1, 4):
        compiled(wf.asarray(torch.ones(4, 3)))
        np.testing.assert_allclose(w.numpy(), X + k, rtol=1e-6)
    np.testing.assert_array_equal(raw.numpy(), X)


def test_a_negative_that_pytorch_has_not_computed_is_written_back():
    raw = tensor()
    w = wf.asarray(torch._neg_view(raw))  # the imaginary part of a conjugate is one
    step = wf.compile(lambda x: w.copy_(w + x))
    for k in range(1, 3):
        step(wf.asarray(torch.ones(4, 3)))
        np.testing.assert_allclose(raw.numpy(), X - k, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_constant_of_numpys_is_written_into_an_argument(dtype):
    def f(x):
        x.copy_(wf.ones((4, 3), dtype=x.dtype))

    x = wf.asarray(tensor(X, dtype))
    raw = x._data
    wf.compile(f)(x)
    assert x._data is raw and torch.equal(raw, torch.ones(4, 3, dtype=dtype))


class Subclass(torch.Tensor):
    """A tensor of somebody else's."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("kind", [torch.Tensor, Subclass])
def test_what_python_reads_of_a_tensor_of_pytorch_is_compared(kind, dtype):
    found = torch.ones(3, dtype=dtype).as_subclass(kind)
    compiled = wf.compile(lambda x: x + found[0].real.item())
    for value in (1.0, 2.0, 2.0):
        found.fill_(value)
        np.testing.assert_array_equal(compiled(wf.tensor(X)).numpy(), X + np.float32(value))
    assert len(compiled.recompilations) == 1


def test_another_device_under_the_same_name():
    holder = {"w": wf.asarray(tensor())}
    compiled = wf.compile(lambda: holder["w"] * 2)
    assert compiled().device == "torch"
    holder["w"] = wf.tensor(X)
    assert compiled().device == "cpu" and len(compiled.recompilations) == 1
    w = wf.asarray(tensor())
    again = wf.compile(lambda: w + 1)
    assert again().device == "torch"
    w._data = X
    assert again().device == "cpu"


# -- memory that is shared ------------------------------------------------------------------------


def test_shared_memory_is_refused_where_it_is_changed():
    raw = torch.randn(6)
    a, b, c = wf.asarray(raw[:4]), wf.asarray(raw[2:]), wf.asarray(raw[4:])

    def f(x):
        a.copy_(a * 2)
        return x + a.sum()

    with pytest.raises(errors.StagingError, match="shares its memory"):
        wf.compile(f)(b)
    wf.compile(f)(c)  # a neighbour in the same storage
    columns = torch.randn(4, 2)
    a = wf.asarray(columns[:, 0])
    wf.compile(f)(wf.asarray(columns[:, 1]))

    def both(x):
        a.copy_(a + b.sum())
        return x

    a, b = wf.asarray(raw[:4]), wf.asarray(raw[2:])
    with pytest.raises(errors.StagingError, match="shares its memory"):
        wf.compile(both)(wf.asarray(tensor()))


def test_one_tensor_as_two_arguments():
    compiled = wf.compile(lambda x, y: x * y if x is not y else x + 100)
    x = wf.asarray(tensor())
    y = wf.asarray(tensor())
    np.testing.assert_allclose(compiled(x, y).numpy(), X * X)
    np.testing.assert_allclose(compiled(x, x).numpy(), X + 100)
    np.testing.assert_allclose(compiled(x, y).numpy(), X * X)


def test_arrays_share_memory_if_they_have_an_element_in_common():
    arrays, raw = arrays_on("torch"), torch.randn(5, 4)
    places = [raw, raw[:, ::2], raw[:, 1::2], raw[0], raw[1:], raw.T, raw.clone(), raw[:0]]
    for a in places:
        for b in places:
            assert arrays.shares_memory(a, b) == np.shares_memory(a.numpy(), b.numpy())
    halves = raw.to(torch.bfloat16)
    assert arrays.shares_memory(halves, halves.view(torch.int16)[1:])


# -- gradients and their memory -------------------------------------------------------------------


def training(device="torch"):
    w = wf.Parameter(wf.asarray(tensor()).to(device))

    @wf.compile
    def step(x):
        w.grad = None
        loss = (wave(w) * x).sum()
        loss.backward()
        return loss

    return w, step


def gradient_address(w) -> int:
    return torch_of(w.grad).data_ptr()


def test_gradients_take_the_memory_of_old_ones():
    w, step = training()
    x = wf.asarray(torch.ones(4, 3))
    step(x)
    first = gradient_address(w)
    for _ in range(3):
        step(x)
        assert gradient_address(w) == first


def test_a_gradient_that_was_given_other_memory():
    w, step = training()
    x = wf.asarray(torch.ones(4, 3))
    step(x)
    want = w.grad.numpy().copy()
    torch_of(w.grad).set_(torch.zeros(4, 3))
    step(x)
    np.testing.assert_array_equal(w.grad.numpy(), want)


HOLDERS = {
    "the tensor": lambda g: g,
    "its array": lambda g: g._data,
    "a view": lambda g: g._data[0],
    "a tensor without a graph": lambda g: g._data.detach(),
    "an array of NumPy's": lambda g: g._data.numpy(),
    "a storage": lambda g: g._data.untyped_storage(),
    "a graph of PyTorch": lambda g: torch.ones(4, 3, requires_grad=True) * g._data,
    "a list of pieces": lambda g: g._data.split(2),
    "dlpack": lambda g: torch.utils.dlpack.to_dlpack(g._data),
    "an array by dlpack": lambda g: np.from_dlpack(g._data),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_that_somebody_holds_is_not_overwritten(holder):
    w, step = training()
    x = wf.asarray(torch.ones(4, 3))
    step(x)
    kept = HOLDERS[holder](w.grad)
    copy, where = torch_of(w.grad).clone(), gradient_address(w)
    step(wf.asarray(torch.full((4, 3), 3.0)))
    assert gradient_address(w) != where
    assert not torch.equal(torch_of(w.grad), copy)
    del kept


def test_a_planted_reuse_of_held_memory_is_found(monkeypatch):
    monkeypatch.setattr(TorchArrays, "drop_shared", lambda self, raws: raws)
    with pytest.raises(AssertionError):
        test_memory_that_somebody_holds_is_not_overwritten("a tensor without a graph")


def test_gradients_add_up_as_in_eager_mode():
    def run(jit):
        w = wf.Parameter(wf.asarray(tensor()))
        step = jit(lambda x: (wave(w) * x).sum().backward())
        for k in range(3):
            step(wf.asarray(torch.full((4, 3), float(k))))
        return w.grad.numpy()

    np.testing.assert_allclose(run(wf.compile), run(lambda f: f), rtol=1e-5, atol=1e-6)


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("cpu", "torch"), ("torch", "cpu")])
def test_tensors_on_two_devices(order):
    a, b = (wf.tensor(X, device=d) for d in order)
    told = rf"two devices: .*{order[0]!r}.*{order[1]!r}.*\.to\({order[0]!r}\)"
    with pytest.raises(errors.DeviceError, match=told):
        wf.compile(lambda a, b: a * b)(a, b)
    with pytest.raises(errors.DeviceError, match=told):
        wf.compile(lambda a: a * b)(a)
    with pytest.raises(errors.DeviceError, match="two devices"):
        wf.compile(lambda a: a * wf.ones(3, device="torch"))(wf.tensor(X))


def test_moving_inside_is_refused():
    with pytest.raises(errors.DeviceError, match="moved to 'cpu' in a function on 'torch'"):
        wf.compile(lambda x: x.to("cpu") + 1)(wf.asarray(tensor()))
    with pytest.raises(errors.DeviceError, match="two devices"):
        wf.compile(lambda x: x.to("torch") + 1)(wf.tensor(X))
    with pytest.raises(errors.DeviceError, match="moved to 'torch' in a function on 'cpu'"):
        wf.compile(lambda x: wf.map(lambda r: (r * 0).to("torch"), x))(wf.tensor(X))


def test_a_program_without_tensors_is_where_it_draws():
    def draw():
        return wf.randn((3,), device="torch"), wf.rand((2,))

    wf.random.seed(3)
    made = wf.compile(draw)()
    wf.random.seed(3)
    for got, want in zip(made, draw(), strict=True):
        assert got.device == want.device and got.tolist() == want.tolist()


def test_numbers_and_constants_of_numpy_are_welcome():
    def f(x, k):
        table = wf.tensor(k, device=x.device) + wf.ones(3).to(x.device)
        return x * np.float32(2) + table

    made = wf.compile(f)(wf.asarray(tensor()), 0.5)
    np.testing.assert_allclose(made.numpy(), 2 * X + 1.5, rtol=1e-6)


def test_custom_operations_that_run_at_each_call_are_refused():
    class Outside(wf.CustomOp):
        def forward(self, inputs):
            return wf.asarray(inputs[0].numpy() ** 3, device=inputs[0].device)

        def backward(self, grad_output, inputs):
            return [grad_output]

    op = Outside()
    with pytest.raises(errors.StagingError, match="custom operation"):
        wf.compile(lambda x: op(x))(wf.asarray(tensor()))


def test_dynamic_lengths_are_refused():
    with pytest.raises(errors.DeviceError, match="dynamic= pads arrays on 'cpu' only"):
        wf.compile(wave, dynamic={"x": 0})(wf.asarray(tensor()))


def test_a_gpu_that_is_not_there(target):
    if target is None:
        with pytest.raises(errors.DeviceError, match=r"PyTorch finds \d+ GPUs.*'cuda:99'"):
            pipeline.target_for("cuda:99")


def test_an_error_of_a_guard_changes_nothing():
    raw = torch.randn(5, 3)
    w = wf.asarray(raw)

    def f(i):
        w.copy_(w * 2)
        return w[i].sum()

    compiled, before = wf.compile(f), raw.clone()
    compiled(wf.asarray(torch.tensor([0, 4])))
    torch.testing.assert_close(raw, 2 * before)
    with pytest.raises(errors.IndexingError, match="5"):
        compiled(wf.asarray(torch.tensor([1, 5])))
    torch.testing.assert_close(raw, 2 * before)


# -- calls ----------------------------------------------------------------------------------------


def test_threads_call_one_function():
    compiled, wrong = wf.compile(wave), []
    given = [wf.asarray(tensor(X + k)) for k in range(4)]
    want = [compiled(x).numpy().copy() for x in given]

    def work(k):
        for _ in range(50):
            if not np.array_equal(compiled(given[k]).numpy(), want[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_a_program_is_told_as_any_other():
    compiled = wf.compile(wave)
    compiled(wf.asarray(tensor()))
    assert "the memory of tensors on 'torch'" in compiled.explain(verbose=True)
    assert compiled.memory.outputs == X.nbytes
    assert "tanh" in compiled.explain(stage="trace")


def test_a_planted_copy_of_inputs_is_found(monkeypatch):
    view = TorchArrays.view
    monkeypatch.setattr(TorchArrays, "view", lambda self, raw: view(self, raw).copy())
    with pytest.raises(AssertionError):
        test_parameters_are_changed_in_their_memory()


def test_a_planted_stale_view_is_found(monkeypatch):
    views, view = {}, TorchArrays.view
    copied = lambda self, raw: views.setdefault(id(raw), view(self, raw).copy())  # noqa: E731
    monkeypatch.setattr(TorchArrays, "view", copied)
    with pytest.raises(AssertionError):
        test_what_pytorch_changes_in_place_is_seen()


def test_planted_wrong_bits_are_found(monkeypatch):
    of_view = TorchArrays.of_view
    wrong = lambda self, array: of_view(self, array).clone().mul_(1 + 1e-6)  # noqa: E731
    monkeypatch.setattr(TorchArrays, "of_view", wrong)
    seeds = [s for s in range(20) if mode_of(written(s)) in WHOLLY_COMPILED]
    assert not all(map(compare_bits, seeds))


def test_writes_into_inference_tensors_are_not_counted(monkeypatch):
    """Some versions of PyTorch refuse to count them; the others are counted all the same."""

    def count(tensors, true=torch.autograd.graph.increment_version):
        if any(x.is_inference() for x in tensors):
            raise RuntimeError("Inference tensors do not track version counter")
        true(tensors)

    monkeypatch.setattr(torch.autograd.graph, "increment_version", count)
    with torch.inference_mode():
        inferred = torch.ones(2)
    plain = torch.ones(2)
    arrays_on("torch").note_write([inferred, plain])
    assert plain._version == 1
