"use strict";
// Kernels, the costliest first, and the forms of one side by side: a line lights up what belongs to it.

class Kernels {
  constructor(box, story, go) {
    Object.assign(this, {box, story, go, chosen: null});
    const kernels = story.data.kernels;
    if (!kernels.length) {
      fill(box, el("div", {class: "empty", text: "There are no kernels here: the graph was not compiled. Its devices may be missing on the machine that made this page."}));
      return;
    }
    const seconds = measuredSeconds(story, byKernel), counts = measuredCounts(story);
    for (const kernel of kernels) {
      const sum = of => kernel.calls.reduce((all, call) => all + of(call, byKernel(call.device, call.node, kernel.symbol)), 0);
      kernel.modelled = sum(call => call.rounds * call.seconds);
      kernel.took = sum((call, key) => seconds.get(key) || 0);
      kernel.times = sum((call, key) => counts.get(key) || call.rounds);
    }
    this.isMeasured = kernels.some(kernel => kernel.took > 0);
    this.cost = kernel => this.isMeasured ? kernel.took : kernel.modelled;
    kernels.sort((a, b) => this.cost(b) - this.cost(a));
    this.total = kernels.reduce((sum, kernel) => sum + this.cost(kernel), 0) || 1;
    this.listBox = el("div", {class: "list"});
    this.body = el("div", {class: "body"});
    fill(box, this.listBox, this.body);
  }
  // The costliest ones, with their share of all, as the first view lists them.
  costliest(count) {
    const called = this.listBox ? this.story.data.kernels.filter(kernel => kernel.calls.length) : [];
    return called.slice(0, count).map(kernel => ({kernel, title: this.title(kernel), line: this.linesOf(kernel), share: Math.round(100 * this.cost(kernel) / this.total)}));
  }
  open() { if (this.listBox && !this.chosen) this.choose(this.story.data.kernels[0]); }
  list() {
    const kernels = this.story.data.kernels, called = kernels.filter(kernel => kernel.calls.length);
    const most = Math.max(...called.map(this.cost), 1e-12);
    fill(this.listBox,
      el("h2", {text: `${called.length} kernels, ${this.isMeasured ? "measured" : "by the cost model"} ${secondsText(this.total)}`}),
      called.map(kernel => el("div", {class: kernel === this.chosen ? "item at" : "item", tabindex: 0, role: "button",
          on: {click: () => this.choose(kernel), keydown: e => { if (e.key === "Enter") this.choose(kernel); }}},
        el("div", {class: "row"}, el("b", {class: "grow", text: this.title(kernel)}), el("span", {text: `${Math.round(100 * this.cost(kernel) / this.total)} %`})),
        el("div", {class: "row soft"}, el("span", {class: "grow", text: `${kernel.times} × ${secondsText(this.cost(kernel) / kernel.times)}`}), el("span", {text: this.linesOf(kernel)})),
        el("div", {class: "bar"}, el("i", {style: {width: 100 * this.cost(kernel) / most + "%"}})))),
      kernels.length > called.length && el("h3", {text: "parts that products of matrices share"}),
      kernels.filter(kernel => !kernel.calls.length).map(kernel => link(() => this.choose(kernel), el("span", {class: "mono grow", text: kernel.symbol}))));
  }
  nodeOf(call) {
    return this.story.nodeAt(call.device, call.node);
  }
  inner(kernel) {
    const node = kernel.calls.length && this.nodeOf(kernel.calls[0]);
    return node ? node.regions.flatMap(number => this.story.region(number).nodes).filter(n => n.op !== "param") : [];
  }
  title(kernel) {
    const ops = [...new Set(this.inner(kernel).filter(n => !QUIET.has(n.op)).map(n => n.op))];
    return ops.length ? ops.slice(0, 6).join(" ") + (ops.length > 6 ? " …" : "") : kernel.calls.length ? clean(kernel.calls[0].text) : kernel.symbol;
  }
  // The lines that it computes, of several the first ones.
  linesOf(kernel) {
    const working = this.inner(kernel).filter(n => n.line && !QUIET.has(n.op)), node = kernel.calls.length && this.nodeOf(kernel.calls[0]);
    const found = working.length ? working : node && node.line ? [node] : [], file = found.length && found[0].file;
    const lines = [...new Set(found.filter(n => n.file === file).map(n => n.line))].sort((a, b) => a - b);
    return lines.length ? `${shortFile(file)}:${lines.slice(0, 3).join(", ")}${lines.length > 3 ? " …" : ""}` : "";
  }
  choose(kernel) {
    this.chosen = kernel;
    this.list();
    const call = kernel.calls[0] || {flops: 0, bytes: 0, seconds: 0, device: 0}, node = kernel.calls.length && this.nodeOf(call);
    const rates = this.story.data.rates[call.device], inner = this.inner(kernel);
    const took = this.isMeasured ? kernel.took / (kernel.times || 1) : 0;
    const fact = facts([["computes", node ? `%${node.id} ${this.title(kernel)} → ${node.type}` : kernel.symbol],
      ["called", !kernel.calls.length ? "" : kernel.times === 1 ? "once a run" : `${kernel.times} times a run`], ["one call", `${flopsText(call.flops)}, ${bytesText(call.bytes)}`],
      ["cost model", secondsText(call.seconds)], ["measured", took ? secondsText(took) : "no"],
      ["limit", rates ? limit(call, rates, took) : ""]]);
    const calls = el("div", {style: {minWidth: "220px", overflow: "auto"}}, el("h3", {text: "calls", style: {marginTop: 0}}),
      some(kernel.calls, c => { const n = this.nodeOf(c); return link(() => this.go.node(c.node, this.story.last, c.device), el("span", {class: "mono", text: "%" + [c.node].flat().at(-1)}), el("span", {class: "grow soft", text: n ? lineText(n) : ""})); }, 8));
    fill(this.body, el("div", {class: "top"}, fact, rates && call.flops ? roofline(call, rates, took) : null, calls), this.panes(kernel, inner));
  }

  // ------------------------------------------------------------------ linked lines

  panes(kernel, inner) {
    const panes = [];
    const add = (name, title, lines) => { if (lines.length) panes.push({name, title, lines}); };
    const sourced = [...new Map(inner.filter(n => n.line).map(n => [n.file + ":" + n.line, n])).values()].sort((a, b) => a.file < b.file ? -1 : a.file > b.file ? 1 : a.line - b.line);
    const spot = n => "s" + sourced.findIndex(m => m.file === n.file && m.line === n.line);
    const byId = new Map(inner.map((n, k) => [n.id, k]));
    add("user", "your lines", sourced.map((n, k) => ({number: n.line, text: this.story.source(n.file, n.line).trim() || shortFile(n.file), marks: ["s" + k], title: `${clean(n.file)}:${n.line}`})));
    add("nodes", "nodes", inner.map((n, k) => ({number: "%" + n.id, text: `${n.op}(${n.inputs.map(id => "%" + id).join(", ")}) : ${n.type}`, marks: ["n" + k, ...(n.line ? [spot(n)] : [])]})));
    const told = (text, marks) => text.replace(/\n+$/, "").split("\n").map((line, k) => ({number: k + 1, text: clean(line.replace(/\t/g, "    ")), marks: marks(k + 1)}));
    const nodesOf = ids => (ids || []).filter(id => byId.has(id)).flatMap(id => { const k = byId.get(id); return ["n" + k, ...(inner[k].line ? [spot(inner[k])] : [])]; });
    const python = kernel.python_nodes || [], llvm = kernel.llvm_nodes || [];
    if (kernel.python) add("python", "the kernel, as Python", told(kernel.python, k => nodesOf(python[k - 1])));
    if (kernel.llvm) add("llvm", "LLVM IR", told(kernel.llvm, k => ["l" + k, ...nodesOf(llvm[k - 1])]));
    if (kernel.assembly) add("assembly", "assembly", told(kernel.assembly, k => { const at = kernel.origins[k - 1]; return at ? ["l" + at, ...nodesOf(llvm[at - 1])] : []; }));
    const drawn = panes.map(pane => this.pane(pane, panes)), count = panes.filter(pane => pane.name === "user" || pane.name === "nodes").length;
    const box = el("div", {class: "panes"}, count ? el("div", {class: "pane stacked"}, drawn.slice(0, count)) : null, drawn.slice(count));
    requestAnimationFrame(() => this.scroll(panes, kernel.symbol));
    return box;
  }
  // To the kernel itself, behind the functions that it calls.
  scroll(panes, symbol) {
    const heads = {python: new RegExp("^def " + symbol), llvm: new RegExp("^define .*@" + symbol + "\\("), assembly: new RegExp("^" + symbol + ":")};
    for (const pane of panes) {
      const at = heads[pane.name] ? pane.lines.findIndex(line => heads[pane.name].test(line.text)) : -1;
      if (at > 0) pane.box.scrollTop = pane.rows[at].offsetTop - pane.box.offsetTop - 6;
    }
  }
  pane(pane, panes) {
    const box = el("pre", {class: "lines"});
    pane.rows = pane.lines.map(line => {
      const row = el("span", {class: line.marks.length ? "l linked" : "l", title: line.title}, el("i", {text: line.number}), line.text);
      row.addEventListener("mouseenter", () => this.light(line.marks, panes, pane, false));
      row.addEventListener("click", () => this.light(line.marks, panes, pane, true));
      return row;
    });
    pane.box = box;
    box.append(...pane.rows);
    return el("div", {class: "pane", "data-pane": pane.name}, el("h2", {text: pane.title}), box);
  }
  // Light the lines that share a mark; a click scrolls the other panes to them, too.
  light(marks, panes, from, scroll) {
    for (const pane of panes) {
      let first = null;
      pane.lines.forEach((line, k) => {
        const lit = this.related(line.marks, marks, from, pane);
        pane.rows[k].classList.toggle("lit", lit);
        if (lit && !first) first = pane.rows[k];
      });
      if (scroll && first && pane !== from) pane.box.scrollTo({top: first.offsetTop - pane.box.offsetTop - pane.box.clientHeight / 3});
    }
  }
  // Between LLVM and assembly a line is a line; otherwise nodes decide, and the user's line where a node has no more.
  related(a, b, from, to) {
    const kinds = [from.name, to.name].every(name => name === "llvm" || name === "assembly") ? ["l"] : from.name === "user" || to.name === "user" ? ["s"] : ["n"];
    return kinds.some(kind => a.some(mark => mark[0] === kind && b.includes(mark)));
  }
}

// Seconds that a traced run took for each node, a loop with all that is inside, or for each kernel of a node: the median of the runs.
const byNode = (device, node) => device + ":" + [node].flat()[0], byKernel = (device, node, symbol) => device + ":" + node + ":" + symbol;
function measuredSeconds(story, keyOf = byNode) {
  const runs = story.data.measured.map(run => {
    const sums = new Map();
    for (const [device, kind, start, end, node, name] of run.events) if (node !== -1 && (kind === "kernel" || kind === "copy")) { const key = keyOf(device, node, name); sums.set(key, (sums.get(key) || 0) + end - start); }
    return sums;
  });
  const keys = new Set(runs.flatMap(run => [...run.keys()]));
  return new Map([...keys].map(key => { const all = runs.map(run => run.get(key) || 0).sort((a, b) => a - b); return [key, all[all.length >> 1]]; }));
}

// How often each kernel of a node ran: in the first of the traced runs.
function measuredCounts(story) {
  const counts = new Map();
  for (const run of story.data.measured.slice(0, 1)) for (const [device, , , , node, name] of run.events) { const key = byKernel(device, node, name); counts.set(key, (counts.get(key) || 0) + 1); }
  return counts;
}

function limit(call, rates, took) {
  const memory = call.bytes / rates.bytes, compute = call.flops / rates.flops, best = Math.max(memory, compute, rates.launch);
  const by = best === rates.launch ? "the call itself" : best === memory ? "memory" : "arithmetic";
  const share = took && best <= took ? `, ${Math.round(100 * best / took)} % of the measured time` : took ? "; it is faster than the rates that graphc knows of the device" : "";
  return `${by}, at least ${secondsText(best)}${share}`;
}

// The roofline of a device, and where a kernel stands: flops per byte against flops per second.
function roofline(call, rates, took) {
  const canvas = el("canvas", {style: {width: "230px", height: "120px", flex: "none"}, "aria-label": "roofline"});
  const intensity = call.flops / Math.max(call.bytes, 1), seconds = took || call.seconds || 1e-9, rate = call.flops / seconds;
  requestAnimationFrame(() => sharp(canvas, (pen, width, height) => {
    const ridge = rates.flops / rates.bytes, low = Math.min(ridge, intensity) / 30, high = Math.max(ridge, intensity) * 30;
    const px = v => 8 + (width - 16) * Math.log(v / low) / Math.log(high / low);
    const top = Math.max(rates.flops, rate) * 2, bottom = Math.min(rates.bytes * low, rate) / 2;
    const py = v => height - 16 - (height - 26) * Math.log(v / bottom) / Math.log(top / bottom);
    pen.strokeStyle = css("soft"); pen.lineWidth = 1.4; pen.beginPath();
    pen.moveTo(px(low), py(low * rates.bytes)); pen.lineTo(px(ridge), py(rates.flops)); pen.lineTo(px(high), py(rates.flops)); pen.stroke();
    pen.fillStyle = css("accent"); pen.beginPath(); pen.arc(px(intensity), py(rate), 4.5, 0, 7); pen.fill();
    pen.fillStyle = css("soft"); pen.font = "10px system-ui";
    pen.fillText("flops per byte →", 8, height - 4); pen.fillText(flopsText(rate) + "/s", Math.min(px(intensity) + 8, width - 80), py(rate) + 12);
  }));
  return canvas;
}
