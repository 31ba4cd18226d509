"use strict";
// The panel beside the graph: what a stage did and why, or all there is to know of one node.

class Side {
  constructor(box, story, go) {
    Object.assign(this, {box, story, go});
    this.why = null; // node id -> [[stage, text]]
  }

  // ------------------------------------------------------------------ a stage

  stage(k, device) {
    const found = this.story.stages[k], {created, changed, gone} = this.story.difference(k, device);
    const acts = (found.changes || [])[device] || {}, graph = this.story.graphs(k)[device];
    const before = k ? this.story.graphs(k - 1) : [], old = before.length ? before[Math.min(device, before.length - 1)] : null;
    const told = new Set([...(acts.merged || []), ...(acts.taken || [])].map(pair => pair[0]));
    const removed = gone.filter(id => !told.has(id));
    fill(this.box,
      el("h2", {text: found.name}),
      el("div", {class: "soft", text: `stage ${k + 1} of ${this.story.stages.length}, ${secondsText(found.seconds)}` + (found.about ? `, ${found.about}` : "")}),
      el("p", {text: clean(found.note)}),
      k > 0 && found.keeps && el("p", {class: "soft", text: `Its values are ${found.keeps}.`}),
      el("div", {},
        badge("created", created.length, "new"), badge("changed", changed.length, "changed"), badge("merged", (acts.merged || []).length, "gone"),
        badge("taken into kernels", (acts.taken || []).length, ""), badge("removed", removed.length, "gone"), badge("moved", (acts.moved || []).length, "")),
      k === 0 && this.costliest(),
      this.list("Why", found.reasons, ([id, text]) => this.row(graph, id, text)),
      this.list("Created", created, id => this.row(graph, id)),
      this.list("Merged", acts.merged, ([id, into]) => this.row(graph, into, `is ${this.name(old, id)} too`)),
      this.list("Taken into kernels", acts.taken, ([id, into]) => this.row(graph, into, `has ${this.name(old, id)}`)),
      this.list("Removed", removed, id => el("div", {class: "row"}, el("span", {class: "grow soft", text: this.name(old, id)}))),
      this.list("Issued elsewhere", acts.moved, id => this.row(graph, id)),
      this.list("Changed", changed, id => this.row(graph, id)));
  }
  // What a reader most often comes for, one click from the line to its machine code.
  costliest() {
    const kernels = this.go.kernels(), found = kernels.costliest(5);
    if (!found.length) return null;
    return el("div", {id: "costliest"}, el("h3", {text: `Costliest kernels, ${kernels.isMeasured ? "measured" : "by the cost model"}`}),
      found.map(({kernel, title, line, share}) => link(() => this.go.kernel(kernel), el("span", {class: "mono", text: `${share} %`}), el("span", {class: "grow", text: title, title}), el("span", {class: "soft", text: line}))));
  }
  list(title, items, draw) {
    if (!items || !items.length) return null;
    return el("div", {}, el("h3", {text: `${title} (${items.length})`}), some(items, draw, 25));
  }
  name(graph, id) {
    const node = graph && graph.byId.get(id);
    return node ? `%${id} ${clean(node.title)}` : `%${id}`;
  }
  row(graph, id, text) {
    const there = graph && graph.byId.has(id);
    const inside = [el("span", {class: "mono", text: this.name(graph, id)}), el("span", {class: "grow soft", text: text === undefined ? (there ? graph.byId.get(id).type : "") : clean(text), title: text === undefined ? "" : clean(text)})];
    return there ? link(() => this.go.node(id), ...inside) : el("div", {class: "row"}, ...inside);
  }

  // ------------------------------------------------------------------ a node or group

  item(item, graph, device, k) {
    if (!item.node) return this.group(item);
    const node = item.node, story = this.story, flops = story.flopsOf(device, node);
    const top = graph.byId.get(node.id) === node, kernel = top && story.kernelOf.get(device + ":" + node.id);
    const names = top ? graph.names.filter(pair => pair[1] === node.id).map(pair => clean(pair[0])) : [];
    fill(this.box,
      el("h2", {class: "mono", text: `%${node.id} ${clean(node.title)}`}),
      facts([["name", names.join(", ")], ["op", node.op], ["type", node.type], ["bytes", node.bytes ? bytesText(node.bytes) : ""],
        ["flops", flops ? flopsText(flops) : ""], ["attributes", node.op === "param" ? "" : node.attrs], ["place", node.where]]),
      this.source(node),
      kernel && el("p", {}, el("a", {class: "link", tabindex: 0, text: "its kernel, from your line to assembly", on: {click: () => this.go.kernel(kernel)}})),
      top && this.list("Reads", node.inputs, id => this.row(graph, id)),
      top && this.list("Waits for", node.after, id => this.row(graph, id)),
      top && this.list("Read by", (graph.readers.get(node.id) || []).map(reader => reader.id), id => this.row(graph, id)),
      top && this.list("What the stages say of it", this.reasons(node.id), ([stage, text]) =>
        link(() => this.go.stage(stage), el("span", {text: story.stages[stage].name}), el("span", {class: "grow soft", text: clean(text), title: clean(text)}))));
  }
  group(group) {
    fill(this.box, el("h2", {text: clean(group.title)}),
      facts([["nodes", group.count], ["copies", group.times || ""], ["kind", KINDS[group.kind] || ""]]),
      el("p", {class: "soft", text: "Double click or Enter opens and closes it. Groups of one colour have the same structure."}));
  }
  // The user's line among its neighbours.
  source(node) {
    if (!node.line) return null;
    const lines = this.story.sources.get(node.file);
    const title = el("h3", {text: `${clean(node.file)}:${node.line}`});
    if (!lines) return title;
    return el("div", {}, title, el("pre", {class: "lines"}, [-2, -1, 0, 1, 2].map(by => node.line + by).filter(at => lines[at - 1] !== undefined)
      .map(at => el("span", {class: at === node.line ? "l here" : "l"}, el("i", {text: at}), this.story.source(node.file, at)))));
  }
  reasons(id) {
    if (!this.why) {
      this.why = new Map();
      this.story.stages.forEach((stage, k) => stage.reasons.forEach(([node, text]) => {
        if (!this.why.has(node)) this.why.set(node, []);
        this.why.get(node).push([k, text]);
      }));
    }
    return this.why.get(id) || [];
  }
}

const KINDS = {scope: "names that begin alike", repeat: "equal blocks one after another", block: "one of equal blocks", lines: "nodes of the same lines", part: "a part of the issue order", region: "what is inside"};
function badge(name, count, kind) { return count ? el("span", {class: "count " + kind, text: `${count} ${name}`}) : null; }
