"use strict";
// The page's data: unpacked once, stages decoded when they are first looked at.

const FIELDS = {id: 0, op: 1, type: 2, inputs: 3, place: 4, attrs: 5, after: 6, where: 7, regions: 8};

async function unpack() {
  const text = atob(document.getElementById("data").textContent), bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// Show the page's data, in the reader's choice of light or dark.
function start(show) {
  if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");
  unpack().then(data => {
    show(data);
    requestAnimationFrame(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); });
  }).catch(error => {
    document.body.append(el("pre", {class: "empty", text: "This page cannot be shown: " + error}));
    throw error;
  });
}

// Text for people: what a terminal or a reader could take for something else is spelled out.
function clean(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

class Node {
  constructor(row, story) {
    const shown = story.shown, at = row[FIELDS.place];
    this.id = row[FIELDS.id];
    this.op = shown[row[FIELDS.op] || 0];
    this.type = shown[row[FIELDS.type] || 0];
    this.inputs = row[FIELDS.inputs] || [];
    this.after = row[FIELDS.after] || [];
    this.file = at ? story.strings[at[0]] : "";
    this.line = at ? at[1] : 0;
    this.attrs = shown[row[FIELDS.attrs] || 0];
    this.where = shown[row[FIELDS.where] || 0];
    this.regions = row[FIELDS.regions] || [];
  }
  get isGiven() { return this.op === "param" || this.op === "const"; }
  get title() { return this.op === "param" ? this.attrs : this.op; }
  get bytes() { return bytesOf(this.type); }
}

const SIZES = {bool: 1, i8: 1, u8: 1, i16: 2, u16: 2, f16: 2, bf16: 2, i32: 4, u32: 4, f32: 4, i64: 8, u64: 8,
  f64: 8, c64: 8, c128: 16};
const knownBytes = new Map();

// Bytes of a value of a type, as far as its text says; 0 where a size is symbolic.
function bytesOf(type) {
  let found = knownBytes.get(type);
  if (found === undefined) {
    found = 0;
    for (const [, element, dims] of type.matchAll(/\b([a-z]+\d*)\[([\d,]*)\]/g))
      found += (SIZES[element] || 0) * dims.split(",").filter(Boolean).reduce((a, d) => a * Number(d), 1);
    knownBytes.set(type, found);
  }
  return found;
}

// One device's graph after one stage: `nodes` are params and nodes in order.
class Stage {
  constructor(name, device, nodes, params, results, names, fresh) {
    Object.assign(this, {name, device, nodes, params, results, names, fresh});
  }
  get byId() {
    if (!this._byId) this._byId = new Map(this.nodes.map(node => [node.id, node]));
    return this._byId;
  }
  get readers() {
    if (!this._readers) {
      this._readers = new Map();
      for (const node of this.nodes) for (const id of new Set(node.inputs)) {
        if (!this._readers.has(id)) this._readers.set(id, []);
        this._readers.get(id).push(node);
      }
    }
    return this._readers;
  }
}

class Story {
  constructor(data) {
    this.data = data;
    this.strings = data.strings;
    this.shown = data.strings.map(clean);
    this.stages = data.stages;
    this.decoded = [];
    this.regionsMade = new Map();
    this.sources = new Map(data.sources.map(([file, text]) => [data.strings[file], text.split("\n")]));
    this.flops = data.work.map(list => new Map(list.map(([id, flops]) => [id, flops])));
    const program = data.stages.length - 1;
    this.kernelOf = new Map(); // "device:node" -> kernel
    for (const kernel of data.kernels) for (const call of kernel.calls) this.kernelOf.set(call.device + ":" + call.node, kernel);
    this.last = program;
  }
  // The graphs after stage `k`, one per device.
  graphs(k) {
    while (this.decoded.length <= k) this.decoded.push(this.decode(this.decoded.length));
    return this.decoded[k];
  }
  decode(k) {
    const before = k ? this.decoded[k - 1] : [], made = this.stages[k].graphs;
    if (!made) return before;
    return made.map((graph, device) => {
      const old = before.length === made.length ? before[device].nodes : before.length ? before[0].nodes : [];
      const rows = new Map(graph.rows.map(row => [row[0], row]));
      const fresh = new Set(), nodes = [], order = graph.order;
      const take = id => { const node = new Node(rows.get(id), this); fresh.add(id); return node; };
      for (let at = 0; at < order.length; at++) {
        if (order[at] < 0) { nodes.push(take(-1 - order[at])); continue; }
        const start = order[at], count = order[++at];
        for (let n = start; n < start + count; n++) nodes.push(rows.has(old[n].id) ? take(old[n].id) : old[n]);
      }
      return new Stage(clean(graph.name), graph.device, nodes, graph.params, graph.results, graph.names, fresh);
    });
  }
  // A node of the last stage: its id, behind those of the nodes it is inside of.
  nodeAt(device, path) {
    const graphs = this.graphs(this.last), [first, ...inside] = [path].flat(), graph = graphs[Math.min(device, graphs.length - 1)];
    let node = graph && graph.byId.get(first);
    for (const id of inside) node = node && node.regions.map(number => this.region(number).byId.get(id)).find(Boolean);
    return node;
  }
  region(number) {
    if (!this.regionsMade.has(number)) {
      const found = this.data.regions[number];
      const nodes = [...found.params, ...found.nodes].map(row => new Node(row, this));
      this.regionsMade.set(number, new Stage("", "", nodes, found.params.length, found.results, [], new Set()));
    }
    return this.regionsMade.get(number);
  }
  // Ids that are new, that changed and that are gone after stage `k`, on one device.
  difference(k, device) {
    const now = this.graphs(k)[device], before = k ? this.graphs(k - 1) : [];
    const old = before.length ? before[Math.min(device, before.length - 1)] : null;
    if (!old || old === now) return {created: [], changed: [], gone: []};
    const created = [], changed = [];
    for (const id of now.fresh) (old.byId.has(id) ? changed : created).push(id);
    const here = new Set(now.nodes.map(node => node.id));
    const split = before.length !== this.graphs(k).length && this.graphs(k).length > 1;
    const gone = split ? [] : old.nodes.filter(node => !here.has(node.id)).map(node => node.id);
    return {created, changed, gone};
  }
  source(file, line) {
    const lines = this.sources.get(file);
    return lines && lines[line - 1] !== undefined ? clean(lines[line - 1].replace(/\t/g, "    ")) : "";
  }
  flopsOf(device, node) {
    const kernel = this.kernelOf.get(device + ":" + node.id);
    const call = kernel && node.regions.length ? kernel.calls.find(c => c.node === node.id && c.device === device) : null;
    return call ? call.flops : (this.flops[Math.min(device, this.flops.length - 1)] || new Map()).get(node.id) || 0;
  }
}

function shortFile(file) { return clean(file.slice(file.lastIndexOf("/") + 1)); }
function lineText(node) { return node.line ? shortFile(node.file) + ":" + node.line : ""; }

function scaled(value, units, step) {
  let k = 0;
  while (value >= step && k < units.length - 1) { value /= step; k++; }
  return (value >= 100 || k === 0 ? Math.round(value) : value.toPrecision(3)) + " " + units[k];
}
const bytesText = n => scaled(n, ["B", "KB", "MB", "GB", "TB"], 1000);
const flopsText = n => scaled(n, ["flop", "kflop", "Mflop", "Gflop", "Tflop"], 1000);
function secondsText(s) {
  return s === 0 ? "0" : s < 1e-3 ? (s * 1e6).toPrecision(3) + " µs" : s < 1 ? (s * 1e3).toPrecision(3) + " ms" : s.toPrecision(3) + " s";
}
