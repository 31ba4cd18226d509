"""A page that shows a trace as lanes over time; it needs no network."""

from __future__ import annotations

import html

_PAGE = """<!doctype html>
<meta charset="utf-8"><title>TITLE</title>
<style>
body { font: 13px system-ui, sans-serif; margin: 16px; color: #222; background: #fff }
canvas { width: 100%; border: 1px solid #ddd; cursor: grab }
#tip { position: fixed; display: none; background: #222; color: #fff; padding: 6px 8px;
       border-radius: 4px; white-space: pre; pointer-events: none; font-size: 12px }
td { padding: 2px 14px 2px 0 } td + td { text-align: right } i { display: inline-block;
     width: 10px; height: 10px; margin-right: 4px }
</style>
<h3>TITLE</h3><p id="legend"></p><canvas id="c"></canvas>
<p>Scroll to zoom, drag to move, double click to see all.</p><table id="sums"></table>
<div id="tip"></div>
<script>
const trace = DATA;
const colours = {kernel: "#4c78a8", copy: "#72b7b2", wait: "#e8e8e8", transfer: "#f58518",
                 send: "#eeca3b"};
const all = trace.traceEvents, lanes = all.filter(e => e.ph == "M").map(e => e.args.name);
const events = all.filter(e => e.ph == "X"), end = Math.max(1e-3, ...lanes.map((_, k) =>
  events.reduce((m, e) => e.tid == k ? Math.max(m, e.ts + e.dur) : m, 0)));
const ends = new Map(), arrows = [];
for (const e of all) if (e.ph == "s") ends.set(e.id, e);
for (const e of all) if (e.ph == "f" && ends.has(e.id)) arrows.push([ends.get(e.id), e]);
const canvas = document.getElementById("c"), pen = canvas.getContext("2d");
const tip = document.getElementById("tip"), LANE = 44, LEFT = 70, TOP = 24;
let from = 0, to = end;
const x = t => LEFT + (t - from) / (to - from) * (canvas.clientWidth - LEFT);
const time = px => from + (px - LEFT) / (canvas.clientWidth - LEFT) * (to - from);
const y = k => TOP + k * LANE;
function text(us) { return us >= 1000 ? (us / 1000).toFixed(3) + " ms" : us.toFixed(3) + " µs"; }
function draw() {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
  const height = TOP + lanes.length * LANE + 8;
  canvas.style.height = height + "px";
  canvas.width = width * ratio; canvas.height = height * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height); pen.font = "11px system-ui";
  for (const e of events) {
    const a = Math.max(LEFT, x(e.ts)), b = Math.min(width, x(e.ts + e.dur));
    if (b < LEFT || a > width) continue;
    pen.fillStyle = colours[e.cat]; pen.fillRect(a, y(e.tid), Math.max(0.7, b - a), LANE - 14);
    if (b - a > 40) { pen.save(); pen.beginPath(); pen.rect(a, y(e.tid), b - a - 3, LANE);
      pen.clip(); pen.fillStyle = e.cat == "wait" ? "#888" : "#fff";
      pen.fillText(e.name, a + 4, y(e.tid) + 19); pen.restore(); }
  }
  pen.strokeStyle = "#e45756";
  for (const [s, f] of arrows) { if (x(f.ts) < LEFT || x(s.ts) > width) continue;
    pen.beginPath(); pen.moveTo(Math.max(LEFT, x(s.ts)), y(s.tid) + LANE / 2 - 7);
    pen.lineTo(x(f.ts), y(f.tid) + LANE / 2 - 7); pen.stroke(); }
  pen.fillStyle = "#fff"; pen.fillRect(0, 0, LEFT, height); pen.fillStyle = "#222";
  lanes.forEach((name, k) => pen.fillText(name, 4, y(k) + 19));
  for (let k = 0; k <= 8; k++) { const t = from + (to - from) * k / 8;
    pen.fillText(text(t), Math.min(x(t), width - 56), 12); }
}
function under(e) {
  const box = canvas.getBoundingClientRect(), t = time(e.clientX - box.left);
  const lane = Math.floor((e.clientY - box.top - TOP) / LANE), near = (to - from) / 400;
  return events.filter(v => v.tid == lane && v.ts - near <= t && t <= v.ts + v.dur + near)
    .sort((a, b) => a.dur - b.dur)[0];
}
canvas.onwheel = e => { e.preventDefault(); const t = time(e.offsetX);
  const zoom = Math.exp(e.deltaY / 400);
  from = Math.max(0, t - (t - from) * zoom); to = Math.min(end, t + (to - t) * zoom); draw(); };
let held = null;
canvas.onmousedown = e => { held = [e.offsetX, from, to]; };
onmouseup = () => { held = null; };
canvas.ondblclick = () => { from = 0; to = end; draw(); };
canvas.onmousemove = e => {
  if (held) { const span = held[2] - held[1];
    const by = (held[0] - e.offsetX) / (canvas.clientWidth - LEFT) * span;
    from = Math.min(Math.max(0, held[1] + by), end - span); to = from + span; draw(); }
  const v = under(e); tip.style.display = v ? "block" : "none";
  if (v) { tip.style.left = e.clientX + 12 + "px"; tip.style.top = e.clientY + 12 + "px";
    tip.textContent = [v.name, v.cat + ", " + text(v.dur) + " from " + text(v.ts), v.args.node,
      v.args.line || ""].filter(Boolean).join("\\n"); }
};
canvas.onmouseleave = () => { tip.style.display = "none"; };
onresize = draw;
function cell(row, value) { row.insertCell().textContent = value; }
const kinds = Object.keys(colours), table = document.getElementById("sums");
const head = table.insertRow(); cell(head, ""); kinds.forEach(k => cell(head, k));
lanes.forEach((name, k) => { const row = table.insertRow(); cell(row, name);
  for (const kind of kinds) cell(row, text(events.reduce((sum, e) =>
    e.tid == k && e.cat == kind ? sum + e.dur : sum, 0))); });
for (const kind of kinds) { const mark = document.createElement("i");
  mark.style.background = colours[kind];
  document.getElementById("legend").append(mark, kind + "  "); }
draw();
</script>
"""


def page(title: str, data: str) -> str:
    """The page of a trace in Chrome's format, given as JSON text."""
    quoted = data.replace("<", "\\u003c")  # nothing in the data may end the script
    return _PAGE.replace("TITLE", html.escape(title)).replace("DATA", quoted, 1)
