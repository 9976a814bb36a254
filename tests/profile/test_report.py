"""Traces and reports: files that parse, nest and sort, and need nothing but themselves."""

import json
import re
import shutil
import subprocess
import threading
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from eager_programs import Program

import weft as wf
from weft.profile import OpProfiler
from weft.profile.page import nested, thin

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
VOID = {"meta", "br", "hr", "img", "input", "link"}


def _profile(seed: int, steps: int = 15) -> OpProfiler:
    with OpProfiler(peaks=wf.profile.Peaks({"float32": 1e10}, 1e10)) as profiler:
        program = Program(seed, 20_000)
        for _ in range(steps):
            program.step()
        wf.compile(lambda x: wf.tanh(x @ x).sum())(wf.ones((50, 50)))
    return profiler


# -- traces ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_trace_parses_and_nests(seed, tmp_path):
    profiler = _profile(seed)
    profiler.save_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    events = trace["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(profiler.events)
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(named.values()) == {e.thread for e in profiler.events}
    for track in named:
        _check_nesting([e for e in complete if e["tid"] == track])
    last = max(e["ts"] + e["dur"] for e in complete)
    assert last <= 1e6 * profiler.seconds + 1e-3
    curve = [e for e in events if e["ph"] == "C"]
    assert max(e["args"]["bytes"] for e in curve) == profiler.peak_bytes
    assert all(a["ts"] <= b["ts"] for a, b in pairwise(curve))
    product = next(e for e in complete if e["name"] == "matmul" or "product" in e["name"])
    assert product["args"]["flops"] > 0 and product["args"]["line"] and product["args"]["sizes"]


def _check_nesting(events):
    """Two events of a track are apart, or one is inside of the other."""
    around: list[int] = []
    for e in events:
        start, stop = round(1e3 * e["ts"]), round(1e3 * (e["ts"] + e["dur"]))
        while around and around[-1] <= start:
            around.pop()
        assert not around or stop <= around[-1], e
        around.append(stop)


def test_the_steps_of_a_program_are_in_one_row():
    f = wf.compile(lambda x: (wf.tanh(x @ x) @ x).sum(axis=0) @ x)
    f(wf.ones((100, 100)))
    with OpProfiler() as profiler:
        for _ in range(50):
            f(wf.ones((100, 100)))
    depths = {e.kind: {d for x, d in nested(profiler.events) if x.kind == e.kind} for e in
              profiler.events}  # fmt: skip
    assert depths["program"] == {0} and depths["step"] == {1}


# -- the page --------------------------------------------------------------------------------


class _Page(HTMLParser):
    """The elements of a page; fails where tags do not match."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.seen, self.texts = [], [], {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def _check_page(path) -> _Page:
    text = path.read_text("utf-8")
    page = _Page(text)
    assert not any({"src", "href"} & set(attrs) for _, attrs in page.seen), "it loads something"
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttp", text)
    return page


def _step(model, optimizer):
    def step(x, t):
        loss = wf.nn.functional.cross_entropy(model(x), t)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The report on a step of training, and its profiler."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    layers = [wf.nn.Linear(64, 64) if k % 2 else wf.nn.Tanh() for k in range(1, 20)]
    model = wf.nn.Sequential(*layers)
    draw = np.random.default_rng(0)
    x = wf.tensor(draw.standard_normal((2048, 64)), dtype="float32")
    t = wf.tensor(draw.integers(0, 64, 2048))
    step = _step(model, wf.optim.Adam(model.parameters(), lr=1e-3))
    return path, wf.profile.report(step, x, t=t, path=path)


def test_a_report_is_one_file_that_parses(saved):
    path, profiler = saved
    page = _check_page(path)
    cells = page.texts["td"]
    for name in ("linear", "tanh backward", "adam", "None", "Full", "smaller arrays"):
        assert name in cells, name
    (data,) = [d for d in page.texts["script"] if d.startswith("{")]
    drawn = json.loads(data)
    assert len(drawn["events"]) == len(profiler.events)
    assert {drawn["names"][e[5]] for e in drawn["events"]} == {e.name for e in profiler.events}
    assert ("svg", "0 0 1100 220") in [(t, a.get("viewbox")) for t, a in page.seen]


def test_strategies_save_what_they_say(saved):
    path, _ = saved
    table = re.search(r'<table id="strategies">.*?</table>', path.read_text("utf-8"), re.S)[0]
    rows = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td><td>(.*?) %</td>", table)
    assert [name for name, _, _ in rows] == ["None", "Selective", "Block, every 3", "Full"]
    saved_by = {name: float(share) for name, _, share in rows}
    assert saved_by["None"] == 0
    assert 0 < saved_by["Block, every 3"] < saved_by["Full"] < 100


def test_a_compiled_step_and_a_profile_without_memory(tmp_path):
    f = wf.compile(lambda x: wf.tanh(x @ x).sum())
    wf.profile.report(f, wf.ones((50, 50)), path=tmp_path / "a.html")
    assert "step of a compiled program" in (tmp_path / "a.html").read_text("utf-8")
    _check_page(tmp_path / "a.html")
    with OpProfiler(memory=False) as profiler:
        wf.exp(wf.ones(3))
    profiler.save_report(tmp_path / "b.html")
    page = _check_page(tmp_path / "b.html")
    assert "Memory" not in page.texts["h2"]
    with OpProfiler() as profiler:
        pass
    profiler.save_report(tmp_path / "c.html")  # nothing ran
    _check_page(tmp_path / "c.html")
    with pytest.raises(wf.errors.ArgumentError, match="expected a function"):
        wf.profile.report(wf.ones(3), path=tmp_path / "d.html")


def test_names_are_escaped(tmp_path):
    hostile = "</script><b onclick='x'>&"
    source = compile("import weft as wf\nwf.exp(wf.ones(3))", f"{hostile}.py", "exec")
    with OpProfiler() as profiler:
        thread = threading.Thread(target=exec, args=(source, {}), name=hostile)
        thread.start()
        thread.join()
    profiler.save_report(tmp_path / "a.html", title=hostile)
    page = _check_page(tmp_path / "a.html")
    assert "b" not in [t for t, a in page.seen if a]
    assert "".join(page.texts["title"]) == hostile
    (data,) = [d for d in page.texts["script"] if d.startswith("{")]
    assert json.loads(data)["tracks"][0]["name"] == hostile


def test_a_thinned_curve_has_its_peaks():
    draw = np.random.default_rng(0)
    points = [(float(k), int(n)) for k, n in enumerate(draw.integers(0, 1 << 30, 5000))]
    found = thin(points, 400)
    assert len(found) <= 400 and set(found) <= set(points) and found == sorted(found)
    assert max(n for _, n in found) == max(n for _, n in points)
    assert thin(points[:100], 400) == points[:100]


_LOOK = """<script>
const table = document.querySelector("table.sortable");
const column = k => [...table.tBodies[0].rows].map(r => Number(r.cells[k].dataset.value || -1));
const found = {};
const root = document.documentElement;
found.overflow = root.scrollWidth - root.clientWidth;
found.drawn = canvas.height > 50 && boxes.length;
found.begin = column(3);
table.tHead.rows[0].cells[1].firstChild.click();
found.down = column(1);
table.tHead.rows[0].cells[1].firstChild.click();
found.up = column(1);
const wheel = new WheelEvent("wheel", { deltaY: -200, clientX: 300, cancelable: true });
canvas.dispatchEvent(wheel);
found.zoomed = (to - from) / data.microseconds;
const box = boxes[0], at = canvas.getBoundingClientRect();
canvas.dispatchEvent(new PointerEvent("pointermove",
  { clientX: at.left + box[0] + box[2] / 2, clientY: at.top + box[1] + 3 }));
found.told = told.textContent;
document.body.setAttribute("data-found", JSON.stringify(found));
</script></body>"""


@pytest.mark.skipif(not BROWSER, reason="there is no browser")
@pytest.mark.parametrize("width", [1200, 700])
def test_in_a_browser(saved, width, tmp_path):
    path, _ = saved
    copy = tmp_path / "page.html"
    copy.write_text(path.read_text("utf-8").replace("</body>", _LOOK), "utf-8")
    run = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *(f"--window-size={width},900", f"--user-data-dir={tmp_path / 'user'}"),
            copy.as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    (body,) = [a for t, a in _Page(run.stdout).seen if t == "body"]
    found = json.loads(body["data-found"])
    assert found["overflow"] <= 0
    assert found["drawn"] > 5
    assert found["begin"] == sorted(found["begin"], reverse=True)
    assert found["down"] == sorted(found["down"], reverse=True)
    assert found["up"] == sorted(found["up"])
    assert 0.3 < found["zoomed"] < 0.5
    assert " by itself" in found["told"]
