"""The style and the script of the report's page; both are written into it."""

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2330; --soft: #5b6577;
  --line: #d9dee7; --panel: #f5f7fa; --bar: #9cc3f0; --area: #cfe3fb; --curve: #2466b3;
  --op: #3b82c4; --backward: #d98032; --update: #4f9d52; --step: #2a9d8f; --program: #8b94a5;
  --launch: #b3bac7; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181f; --ink: #e4e8ef; --soft: #9aa4b5;
  --line: #313947; --panel: #1c222c; --bar: #2b5f99; --area: #1d3a5c; --curve: #7db6f5;
  --op: #5a9fe0; --backward: #e6985a; --update: #6dba70; --step: #4cbfb1; --program: #6c7689;
  --launch: #515a6a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1180px; background: var(--paper);
  color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 32px 0 8px; }
p { margin: 4px 0 8px; color: var(--soft); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px;
  margin: 16px 0; }
.figures div { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 12px; }
.figures b { display: block; font-size: 18px; font-variant-numeric: tabular-nums; }
.figures span { color: var(--soft); font-size: 12px; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { background: var(--panel); font-weight: 600; font-size: 12px; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid; }
th[aria-sort=ascending] button::after { content: " ▲"; }
th[aria-sort=descending] button::after { content: " ▼"; }
tr:last-child td { border-bottom: 0; }
td:first-child, th:first-child { text-align: left; white-space: normal; min-width: 200px;
  overflow-wrap: anywhere; }
td.bar { text-align: left; min-width: 120px; }
td.bar i { display: block; height: 10px; border-radius: 3px; background: var(--bar); }
#timeline { display: block; width: 100%; border: 1px solid var(--line); border-radius: 8px;
  cursor: grab; touch-action: none; }
#told { min-height: 1.5em; color: var(--ink); overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; color: var(--soft); font-size: 12px; }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 5px; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
svg .area { fill: var(--area); } svg .curve { fill: none; stroke: var(--curve); }
@media (max-width: 800px) { svg text { font-size: 18px; } }
svg .grid { stroke: var(--line); } svg .peak { stroke: var(--backward); stroke-dasharray: 4 3; }
"""

SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("timeline"), told = document.getElementById("told");
const ROW = 18, HEAD = 18, FOOT = 22;
let from = 0, to = data.microseconds, boxes = [], grip = null;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}
function duration(us) {
  const [n, unit] = us >= 1e6 ? [us / 1e6, "s"] : us >= 1e3 ? [us / 1e3, "ms"] : [us, "µs"];
  return Number(n.toPrecision(3)) + " " + unit;
}
function ticks(pen, width, height) {
  const least = (to - from) / Math.max(2, width / 110);
  let step = 10 ** Math.floor(Math.log10(least));
  step *= [1, 2, 5, 10].find(m => m * step >= least);
  pen.fillStyle = colour("soft"); pen.strokeStyle = colour("line");
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const x = (at - from) / (to - from) * width;
    pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, height - FOOT); pen.stroke();
    const text = at ? duration(at) : "0";
    const room = Math.min(x + 3, width - pen.measureText(text).width - 3);
    pen.fillText(text, room, height - 7);
  }
}
function draw() {
  const width = canvas.clientWidth, dense = window.devicePixelRatio || 1;
  const tops = []; let height = 0;
  for (const track of data.tracks) { tops.push(height + HEAD); height += HEAD + ROW * track.depth; }
  height += FOOT + 6;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * dense); canvas.height = Math.round(height * dense);
  const pen = canvas.getContext("2d");
  pen.scale(dense, dense); pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  ticks(pen, width, height);
  boxes = [];
  const reach = new Map(), scale = width / (to - from);
  const fills = data.kinds.map(colour), ink = colour("paper");
  for (const e of data.events) {
    const [track, depth, start, length, kind] = e;
    if (start > to || start + length < from) continue;
    const x = Math.max(0, (start - from) * scale);
    const end = Math.min(width, (start + length - from) * scale);
    const y = tops[track] + depth * ROW, row = track * 1000 + depth;
    if (end < (reach.get(row) ?? -1)) continue;  // it would be drawn on the pixel before
    const wide = Math.max(end - x, 0.6);
    reach.set(row, Math.floor(x + wide) + 0.5);
    pen.fillStyle = fills[kind]; pen.fillRect(x, y, Math.max(wide - 0.4, 0.5), ROW - 2);
    boxes.push([x, y, wide, e]);
    if (wide > 30) {
      pen.save(); pen.beginPath(); pen.rect(x, y, wide - 3, ROW); pen.clip();
      pen.fillStyle = ink; pen.fillText(data.names[e[5]], x + 4, y + 12); pen.restore();
    }
  }
  pen.fillStyle = colour("soft");
  data.tracks.forEach((track, k) => pen.fillText(track.name, 4, tops[k] - 5));
}
function look(event) {
  const box = canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  const hit = boxes.find(b => x >= b[0] - 1 && x <= b[0] + b[2] + 1 && y >= b[1] && y < b[1] + ROW);
  if (!hit) { told.textContent = ""; return; }
  const e = hit[3], line = data.lines[e[6]], sizes = data.sizes[e[8]];
  told.textContent = data.names[e[5]] + (sizes ? " (" + sizes + ")" : "")
    + (line ? " at " + line : "") + ": " + duration(e[3]) + ", " + duration(e[7]) + " by itself";
}
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  const at = from + (to - from) * event.offsetX / canvas.clientWidth;
  const by = Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200)));
  const wide = Math.max(1, Math.min(data.microseconds, (to - from) * by));
  from = Math.max(0, at - (at - from) * wide / (to - from));
  from = Math.min(from, data.microseconds - wide); to = from + wide;
  draw();
}, { passive: false });
canvas.addEventListener("pointerdown", event => {
  grip = [event.clientX, from]; canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointerup", () => { grip = null; });
canvas.addEventListener("pointermove", event => {
  if (!grip) { look(event); return; }
  const wide = to - from;
  const moved = (grip[0] - event.clientX) / canvas.clientWidth * wide;
  from = Math.max(0, Math.min(data.microseconds - wide, grip[1] + moved)); to = from + wide;
  draw();
});
canvas.addEventListener("dblclick", () => { from = 0; to = data.microseconds; draw(); });
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, k) => head.firstChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach(h => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => {
      const given = row.cells[k].dataset.value;
      return given === undefined ? row.cells[k].textContent : given === "" ? -1 : Number(given);
    };
    const rows = [...table.tBodies[0].rows].map(row => [key(row), row]);
    rows.sort(([a], [b]) => typeof a === "string" ? a.localeCompare(b) : a - b);
    if (down) rows.reverse();
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }));
}
draw();
"""
