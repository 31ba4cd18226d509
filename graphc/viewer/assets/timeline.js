"use strict";
// The timelines: simulated and measured, one above the other.

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
      const chart = lanes(run, end, node => { if (node !== -1) this.go.node(node, this.story.last); });
      charts.push(chart);
      this.box.append(el("h2", {text: `${title}: ${secondsText(run.end)}`}), chart.box);
    }
    this.box.append(legend());
    for (const chart of charts) chart.linked = charts;
    this.charts = charts;
    if (!middle) this.box.append(el("p", {class: "soft", text: "Nothing was measured. On the command line --feed or --seed runs the model; in Python gc.view(model, *arguments) does."}));
    else this.box.append(el("h2", {text: "Where the simulation is furthest off"}), this.residuals(simulated, middle));
    this.box.append(busy(runs));
    this.transfers();
    this.placed();
  }
  simulated(run) {
    return {devices: run.devices, end: run.seconds,
      events: run.events.map(([device, start, end, node]) => ({device, start, end, node, kind: "kernel", name: this.label(device, node)})),
      messages: run.messages.map(([source, target, start, end, node, bytes]) => ({source, target, start, end, text: `${this.label(target, node)}: ${bytesText(bytes)} from ${run.devices[source]} to ${run.devices[target]}`}))};
  }
  measured(run) {
    const events = run.events.map(([device, kind, start, end, node, name]) => ({device, kind, start, end, node, name: node !== -1 ? this.label(device, node) : clean(name), channel: name}));
    return {devices: run.devices, end: run.seconds, events, messages: messagesOf(events)};
  }
  label(device, id) {
    const node = this.story.nodeAt(device, id);
    if (!node) return "%" + [id].flat().at(-1);
    const ops = node.regions.length && node.op === "fused" ? [...new Set(node.regions.flatMap(r => this.story.region(r).nodes).filter(n => !QUIET.has(n.op)).map(n => n.op))].slice(0, 5).join(" ") : node.op;
    return `%${node.id} ${ops}` + (node.line ? `   ${lineText(node)}` : "");
  }
  residuals(simulated, run) {
    const took = measuredSeconds(this.story), expected = new Map();
    for (const [device, start, end, node] of simulated.events) expected.set(device + ":" + node, end - start);
    const both = [...took.keys()].filter(key => expected.has(key)).sort((a, b) => Math.abs(took.get(b) - expected.get(b)) - Math.abs(took.get(a) - expected.get(a))).slice(0, 12);
    return table(["node", "measured", "simulated", "difference"], both.map(key => { const [device, node] = key.split(":").map(Number), by = took.get(key) - expected.get(key);
      return {cells: [this.label(device, node), secondsText(took.get(key)), secondsText(expected.get(key)), (by < 0 ? "−" : "+") + secondsText(Math.abs(by))], call: () => this.go.node(node, this.story.last, device)}; }), [1, 2, 3]);
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
