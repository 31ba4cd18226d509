"use strict";
// Memory over time, and the timelines: simulated and measured, one above the other.

class Chart {
  // A canvas with a horizontal axis that one can zoom and drag; `paint(pen, chart)`, `under(x, y, chart)`.
  constructor(height, end, paint, under, choose) {
    Object.assign(this, {from: 0, to: end, end, paint, under, left: 70, linked: [this]});
    this.canvas = el("canvas", {style: {height: height + "px"}, tabindex: 0});
    this.box = el("div", {class: "chart"}, this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    let held = null;
    this.canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const at = this.time(event.offsetX), by = Math.exp(event.deltaY / 400);
      this.range(at - (at - this.from) * by, at + (this.to - at) * by);
    }, {passive: false});
    this.canvas.addEventListener("pointerdown", event => { held = [event.offsetX, this.from, this.to]; this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointerup", event => { if (held && Math.abs(event.offsetX - held[0]) < 3 && choose) { const found = under(event.offsetX, event.offsetY, this); if (found) choose(found.node); } held = null; });
    this.canvas.addEventListener("dblclick", () => this.range(0, this.end));
    this.canvas.addEventListener("pointermove", event => {
      if (held) { const span = held[2] - held[1], by = (held[0] - event.offsetX) / (this.canvas.clientWidth - this.left) * span; this.range(held[1] + by, held[2] + by); }
      const found = under(event.offsetX, event.offsetY, this);
      tip(event, found ? found.text : "");
    });
    this.canvas.addEventListener("pointerleave", event => tip(event, ""));
    this.canvas.addEventListener("keydown", event => {
      const span = this.to - this.from, keys = {ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], "+": [0.2, -0.2], "-": [-0.2, 0.2]};
      if (keys[event.key]) { this.range(this.from + keys[event.key][0] * span, this.to + keys[event.key][1] * span); event.preventDefault(); }
    });
  }
  x(at) { return this.left + (at - this.from) / (this.to - this.from) * (this.canvas.clientWidth - this.left); }
  time(x) { return this.from + (x - this.left) / (this.canvas.clientWidth - this.left) * (this.to - this.from); }
  range(from, to) {
    const span = Math.min(Math.max(to - from, this.end * 1e-6), this.end);
    from = Math.max(0, Math.min(from, this.end - span));
    for (const chart of this.linked) { chart.from = from; chart.to = from + span; chart.draw(); }
  }
  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; if (this.canvas.clientWidth) sharp(this.canvas, (pen, w, h) => this.paint(pen, this, w, h)); });
  }
}

// ---------------------------------------------------------------------------- memory

class Memory {
  constructor(box, story, go) {
    Object.assign(this, {box, story, go});
    this.charts = [];
  }
  open() {
    if (this.charts.length) return;
    const arenas = this.story.data.memory;
    if (!arenas.length || !arenas.some(arena => arena.blocks.length)) {
      fill(this.box, el("div", {class: "empty", text: "Nothing is kept in the arena: every value is an argument, a result or a constant, or there is no plan."}));
      return;
    }
    arenas.forEach((arena, device) => this.arena(arena, device));
  }
  arena(arena, device) {
    if (!arena.blocks.length) return;
    const live = this.live(arena), peak = Math.max(...live), at = live.indexOf(peak), graph = this.story.graphs(this.story.last)[device];
    const dark = () => document.documentElement.classList.contains("dark");
    const label = id => { const node = graph && graph.byId.get(id); return node ? `%${id} ${clean(node.op)} ${node.type}` : `%${id}`; };
    const about = ([id, first, last, offset, bytes, scratch]) => {
      const node = graph && graph.byId.get(id);
      return `${scratch ? "workspace of " : ""}${label(id)}\n${bytesText(bytes)} at ${offset}, steps ${first + 1} to ${last + 1}` + (node && node.line ? `\n${lineText(node)}  ${this.story.source(node.file, node.line).trim()}` : "");
    };
    const high = 320, y = (offset, h) => h - 20 - offset / arena.bytes * (h - 34);
    const paint = (pen, chart, w, h) => {
      axis(pen, chart, w, h, step => "step " + Math.round(step));
      for (const block of arena.blocks) {
        const [id, first, last, offset, bytes, scratch] = block, x = chart.x(first), end = chart.x(last + 1);
        if (end < chart.left || x > w) continue;
        pen.fillStyle = scratch ? css("grid") : tint(id, dark());
        pen.strokeStyle = scratch ? css("line") : ink(id, dark());
        pen.lineWidth = 0.6;
        const top = y(offset + bytes, h), tall = Math.max(1, y(offset, h) - top), wide = Math.max(1, end - x - 0.5);
        pen.fillRect(x, top, wide, tall);
        if (wide > 3 && tall > 2) pen.strokeRect(x, top, wide, tall);
        if (wide > 60 && tall > 13) { pen.fillStyle = css("text"); pen.font = "11px system-ui"; pen.textBaseline = "middle"; pen.fillText(fitted(pen, label(id), wide - 8), Math.max(x, chart.left) + 4, top + tall / 2); }
      }
      pen.strokeStyle = css("gone"); pen.setLineDash([3, 3]); pen.beginPath(); pen.moveTo(chart.x(at + 0.5), 8); pen.lineTo(chart.x(at + 0.5), h - 20); pen.stroke(); pen.setLineDash([]);
      leftLabels(pen, w, h, chart.left, [[bytesText(arena.bytes), 14], ["0", h - 24]]);
    };
    const under = (x, yy, chart) => {
      const step = Math.floor(chart.time(x)), h = chart.canvas.clientHeight;
      const block = arena.blocks.find(b => b[1] <= step && step <= b[2] && yy <= y(b[3], h) && yy >= y(b[3] + b[4], h));
      return block ? {node: block[0], text: about(block)} : null;
    };
    const chart = new Chart(high, arena.steps.length + 1, paint, under, node => this.go.node(node, this.story.last, device));
    this.charts.push(chart);
    const there = arena.blocks.filter(b => b[1] <= at && at <= b[2]).sort((a, b) => b[4] - a[4]);
    this.box.append(
      el("h2", {text: `${clean(arena.device) || "the arena"}: ${bytesText(arena.bytes)} over ${arena.steps.length} steps`}),
      el("p", {class: "soft", text: "Each rectangle is a value: where it lies from the step that makes it to the last that reads it. Grey is workspace of kernels, the dashed line the fullest step. Scroll to zoom, drag to move, click to see the node."}),
      chart.box,
      el("h3", {text: `At the peak, step ${at + 1}: ${bytesText(peak)} live`}),
      table(["value", "bytes", "line"], there.slice(0, 12).map(b => { const node = graph && graph.byId.get(b[0]); return {cells: [(b[5] ? "workspace of " : "") + label(b[0]), bytesText(b[4]), node ? lineText(node) : ""], call: () => this.go.node(b[0], this.story.last, device)}; }), [1]));
  }
  live(arena) {
    const change = new Array(arena.steps.length + 2).fill(0);
    for (const [, first, last, , bytes] of arena.blocks) { change[first] += bytes; change[Math.min(last + 1, change.length - 1)] -= bytes; }
    let sum = 0;
    return change.slice(0, Math.max(1, arena.steps.length)).map(by => sum += by);
  }
}

// ---------------------------------------------------------------------------- timelines

const EVENTS = {kernel: 210, copy: 175, wait: -1, transfer: 28, send: 48};

class Timeline {
  constructor(box, story, go) { Object.assign(this, {box, story, go, made: false, charts: []}); }
  open() {
    if (this.made) return;
    this.made = true;
    const {simulated, measured} = this.story.data;
    if (!simulated.devices) { fill(this.box, el("div", {class: "empty", text: "There is no timeline: the devices of this program are not known here."})); return; }
    const runs = [["Simulated", this.simulated(simulated)]];
    const middle = [...measured].sort((a, b) => a.seconds - b.seconds)[measured.length >> 1];
    if (middle) runs.push([`Measured, the median of ${measured.length} run${measured.length > 1 ? "s" : ""}`, this.measured(middle)]);
    const end = Math.max(...runs.map(([, run]) => run.end), 1e-9), charts = [];
    for (const [title, run] of runs) {
      const chart = this.chart(run, end);
      charts.push(chart);
      this.box.append(el("h2", {text: `${title}: ${secondsText(run.end)}`}), chart.box);
    }
    for (const chart of charts) chart.linked = charts;
    this.charts = charts;
    if (!middle) this.box.append(el("p", {class: "soft", text: "Nothing was measured. On the command line --feed or --seed runs the model; in Python gc.view(model, *arguments) does."}));
    else this.box.append(el("h2", {text: "Where the simulation is furthest off"}), this.residuals(simulated, middle));
    this.box.append(this.busy(runs));
    this.transfers();
    this.placed();
  }
  simulated(run) {
    const first = this.story.graphs(this.story.last);
    return {devices: run.devices, end: run.seconds,
      events: run.events.map(([device, start, end, node]) => ({device, start, end, node, kind: "kernel", name: this.label(device, node, first)})),
      messages: run.messages.map(([source, target, start, end, node, bytes]) => ({source, target, start, end, text: `${this.label(target, node, first)}: ${bytesText(bytes)} from ${run.devices[source]} to ${run.devices[target]}`}))};
  }
  measured(run) {
    const graphs = this.story.graphs(this.story.last), sent = new Map(), messages = [];
    const events = run.events.map(([device, kind, start, end, node, name]) => ({device, kind, start, end, node, name: node >= 0 ? this.label(device, node, graphs) : clean(name)}));
    for (const [device, kind, start, end, , name] of run.events) {
      if (kind === "send") { if (!sent.has(name)) sent.set(name, []); sent.get(name).push([device, end]); }
      if (kind === "transfer" && sent.has(name) && sent.get(name).length) { const [source, at] = sent.get(name).shift(); messages.push({source, target: device, start: at, end: start, text: clean(name)}); }
    }
    return {devices: run.devices, end: run.seconds, events, messages};
  }
  label(device, id, graphs) {
    const node = graphs[Math.min(device, graphs.length - 1)] && graphs[Math.min(device, graphs.length - 1)].byId.get(id);
    if (!node) return "%" + id;
    const ops = node.regions.length && node.op === "fused" ? [...new Set(node.regions.flatMap(r => this.story.region(r).nodes).filter(n => !QUIET.has(n.op)).map(n => n.op))].slice(0, 5).join(" ") : node.op;
    return `%${id} ${ops}` + (node.line ? `   ${lineText(node)}` : "");
  }
  chart(run, end) {
    const lane = 40, top = 24, y = device => top + device * lane;
    const paint = (pen, chart, w, h) => {
      axis(pen, chart, w, h, secondsText, true);
      const dark = document.documentElement.classList.contains("dark");
      pen.textBaseline = "middle"; pen.font = "11px system-ui";
      for (const event of run.events) {
        const x = Math.max(chart.left, chart.x(event.start)), to = Math.min(w, chart.x(event.end));
        if (to < chart.left || x > w) continue;
        const hue = EVENTS[event.kind];
        pen.fillStyle = hue < 0 ? css("grid") : `hsl(${hue}, ${dark ? 35 : 55}%, ${dark ? 42 : 72}%)`;
        pen.fillRect(x, y(event.device), Math.max(0.6, to - x - (to - x > 3 ? 0.6 : 0)), lane - 12);
        if (to - x > 44) { pen.fillStyle = css(hue < 0 ? "soft" : "text"); pen.fillText(fitted(pen, event.name, to - x - 8), x + 4, y(event.device) + lane / 2 - 6); }
      }
      pen.strokeStyle = css("gone"); pen.lineWidth = 1.2;
      for (const m of run.messages) {
        const x = chart.x(m.start), to = chart.x(m.end);
        if (Math.max(x, to) < chart.left || Math.min(x, to) > w) continue;
        const a = y(m.source) + (m.target > m.source ? lane - 12 : 0), b = y(m.target) + (m.target > m.source ? 0 : lane - 12);
        pen.beginPath(); pen.moveTo(x, a); pen.lineTo(to, b); pen.stroke();
        pen.beginPath(); pen.arc(to, b, 2.2, 0, 7); pen.fillStyle = css("gone"); pen.fill();
      }
      leftLabels(pen, w, h, chart.left, run.devices.map((name, k) => [clean(name), y(k) + lane / 2 - 6]));
    };
    const under = (x, yy, chart) => {
      const device = Math.floor((yy - top) / lane), at = chart.time(x), near = (chart.to - chart.from) / 400;
      const event = run.events.filter(e => e.device === device && e.start - near <= at && at <= e.end + near).sort((a, b) => (a.end - a.start) - (b.end - b.start))[0];
      return event ? {node: event.node, device, text: `${event.name}\n${event.kind}, ${secondsText(event.end - event.start)} from ${secondsText(event.start)}`} : null;
    };
    return new Chart(top + run.devices.length * lane + 6, end, paint, under, node => { if (node >= 0) this.go.node(node, this.story.last); });
  }
  residuals(simulated, run) {
    const took = measuredSeconds(this.story), expected = new Map(), graphs = this.story.graphs(this.story.last);
    for (const [device, start, end, node] of simulated.events) expected.set(device + ":" + node, end - start);
    const both = [...took.keys()].filter(key => expected.has(key)).sort((a, b) => Math.abs(took.get(b) - expected.get(b)) - Math.abs(took.get(a) - expected.get(a))).slice(0, 12);
    return table(["node", "measured", "simulated", "difference"], both.map(key => { const [device, node] = key.split(":").map(Number), by = took.get(key) - expected.get(key);
      return {cells: [this.label(device, node, graphs), secondsText(took.get(key)), secondsText(expected.get(key)), (by < 0 ? "−" : "+") + secondsText(Math.abs(by))], call: () => this.go.node(node, this.story.last, device)}; }), [1, 2, 3]);
  }
  busy(runs) {
    const rows = runs.flatMap(([title, run]) => run.devices.map((name, device) => {
      const of = kinds => run.events.filter(e => e.device === device && kinds.includes(e.kind)).reduce((sum, e) => sum + e.end - e.start, 0);
      return {cells: [clean(name), title.split(",")[0].toLowerCase(), secondsText(of(["kernel", "copy"])), secondsText(of(["send", "transfer"])), secondsText(of(["wait"])), Math.round(100 * of(["kernel", "copy"]) / (run.end || 1)) + " %"]};
    }));
    return el("div", {}, el("h2", {text: "Devices"}), table(["device", "", "busy", "messages", "waits", "share of the run"], rows, [2, 3, 4, 5]));
  }
  // What 16-bit transfers cost in precision, as the stage said.
  transfers() { this.told("compress", "Transfers of 16 bits, and the error budget"); }
  placed() { this.told("place", "Placement: when each node would be done where, and what was rejected"); }
  told(name, title) {
    const k = this.story.stages.findIndex(stage => stage.name === name);
    if (k < 0 || !this.story.stages[k].reasons.length) return;
    const stage = this.story.stages[k];
    this.box.append(el("h2", {text: title}), el("p", {class: "soft", text: clean(stage.note)}),
      some(stage.reasons, ([id, text]) => link(() => this.go.node(id, k), el("span", {class: "mono", text: "%" + id}), el("span", {class: "grow", text: clean(text), title: clean(text)})), 30));
  }
}

function axis(pen, chart, w, h, text, above) {
  pen.strokeStyle = css("grid"); pen.fillStyle = css("soft"); pen.font = "10px system-ui"; pen.textBaseline = "alphabetic"; pen.lineWidth = 1;
  const span = chart.to - chart.from, raw = span / Math.max(2, (w - chart.left) / 110), unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(k => k * unit).find(s => s >= raw);
  for (let at = Math.ceil(chart.from / step) * step; at <= chart.to; at += step) {
    const x = Math.round(chart.x(at)) + 0.5;
    pen.beginPath(); pen.moveTo(x, above ? 16 : 0); pen.lineTo(x, above ? h : h - 16); pen.stroke();
    pen.fillText(text(at), Math.min(x + 3, w - 50), above ? 11 : h - 5);
  }
}
function leftLabels(pen, w, h, left, labels) {
  pen.fillStyle = css("panel"); pen.fillRect(0, 0, left - 1, h);
  pen.fillStyle = css("soft"); pen.font = "11px system-ui"; pen.textBaseline = "middle";
  for (const [text, y] of labels) pen.fillText(fitted(pen, text, left - 12), 8, y);
}
function table(heads, rows, numeric = []) {
  const side = k => numeric.includes(k) ? "n" : null;
  return el("table", {}, el("tr", {}, heads.map((text, k) => el("th", {class: side(k), text}))),
    rows.map(row => el("tr", row.call ? {class: "link", tabindex: 0, on: {click: row.call, keydown: e => { if (e.key === "Enter") row.call(); }}} : {},
      row.cells.map((text, k) => el("td", {class: side(k), text})))));
}
