"use strict";
// Puts the views together: tabs, the slider of stages, search, keys.

const TABS = {graph: "Graph and stages", kernels: "Kernels", memory: "Memory", timeline: "Timeline"};
const KEYS = [["/", "search"], ["[ ]", "stage before, next stage"], ["1 – 4", "views"], ["arrows", "along edges, among neighbours"],
  ["Enter", "open or close a group"], ["f", "see all"], ["e c", "open all groups of a level, close all"], ["+ −", "zoom"], ["t", "light or dark"], ["Esc", "back to the stage"]];

class App {
  constructor(story) {
    this.story = story;
    this.device = 0;
    this.at = 0;
    this.picture = new Picture(byId("canvas"), story, item => this.show(item));
    const go = {node: (id, stage, device) => this.node(id, stage, device), stage: k => { this.picture.chosen = null; this.stage(k); },
      kernel: kernel => { this.tab("kernels"); this.views.kernels.choose(kernel); }, kernels: () => this.views.kernels};
    this.side = new Side(byId("side"), story, go);
    this.views = {kernels: new Kernels(byId("kernels"), story, go), memory: new Memory(byId("memory"), story, go), timeline: new Timeline(byId("timeline"), story, go)};
    this.header();
    this.slider();
    this.keys();
    this.search();
    this.stage(this.firstStage());
    this.picture.fit();
  }
  header() {
    const data = this.story.data, kernels = data.kernels.filter(kernel => kernel.calls.length);
    const words = [`${data.stages[0].nodes.toLocaleString("en")} nodes`, kernels.length ? `${kernels.length} kernels` : "", clean(data.options.devices)];
    fill(byId("name"), clean(data.name), el("small", {text: words.filter(Boolean).join(" · ")}));
    fill(byId("tabs"), Object.entries(TABS).map(([name, title], k) =>
      el("button", {role: "tab", id: "tab-" + name, title: `${title} (${k + 1})`, "aria-selected": String(name === "graph"), text: title, on: {click: () => this.tab(name)}})));
    byId("theme").onclick = () => this.theme();
    byId("help").onclick = () => this.help();
    byId("fit").onclick = () => this.picture.fit();
    byId("open").onclick = () => this.picture.all(true);
    byId("close").onclick = () => this.picture.all(false);
  }
  tab(name) {
    for (const other of Object.keys(TABS)) {
      byId(other).hidden = other !== name;
      byId("tab-" + other).setAttribute("aria-selected", String(other === name));
    }
    this.open = name;
    if (this.views[name]) this.views[name].open();
    else this.picture.draw();
  }
  theme() {
    document.documentElement.classList.toggle("dark");
    this.picture.draw();
    for (const name of ["memory", "timeline"]) for (const chart of this.views[name].charts || []) chart.draw();
    if (this.views.kernels.chosen) this.views.kernels.choose(this.views.kernels.chosen);
  }

  // ------------------------------------------------------------------ stages

  firstStage() { return 0; }
  slider() {
    const slide = byId("stage");
    slide.max = String(this.story.stages.length - 1);
    slide.addEventListener("input", () => { this.picture.chosen = null; this.stage(this.nearest(Number(slide.value))); });
    byId("before").onclick = () => this.step(-1);
    byId("after").onclick = () => this.step(1);
    byId("device").onchange = event => { this.device = Number(event.target.value); this.picture.chosen = null; this.stage(this.at); this.picture.fit(); };
  }
  didSomething(k) { const stage = this.story.stages[k]; return k === 0 || stage.graphs !== undefined || stage.reasons.length > 0; }
  nearest(k) {
    if (!byId("changed").checked) return k;
    const by = k >= this.at ? 1 : -1;
    for (let at = k; at >= 0 && at < this.story.stages.length; at += by) if (this.didSomething(at)) return at;
    for (let at = k; at >= 0 && at < this.story.stages.length; at -= by) if (this.didSomething(at)) return at;
    return k;
  }
  step(by) {
    const next = this.at + by;
    if (next < 0 || next >= this.story.stages.length) return;
    this.picture.chosen = null;
    const before = this.at;
    this.stage(this.nearest(next));
    if (this.at === before && !byId("changed").checked) this.stage(next);
  }
  stage(k) {
    this.at = k;
    const graphs = this.story.graphs(k), choice = byId("device");
    if (this.device >= graphs.length) this.device = 0;
    choice.hidden = graphs.length < 2;
    if (graphs.length > 1 && choice.options.length !== graphs.length) fill(choice, graphs.map((graph, d) => el("option", {value: d, text: clean(graph.device)})));
    choice.value = String(this.device);
    const {created, changed} = this.story.difference(k, this.device);
    const few = created.length + changed.length < graphs[this.device].nodes.length * 0.9;
    const marks = new Map([...created.map(id => [id, "created"]), ...changed.map(id => [id, "changed"])]);
    this.picture.set(graphs[this.device], this.device, few ? marks : new Map());
    byId("stage").value = String(k);
    const stage = this.story.stages[k];
    fill(byId("stagename"), el("b", {text: stage.name}), el("span", {class: "soft", text: clean(stage.note)}));
    byId("legend").textContent = few && marks.size ? "green: new here   amber: changed here   dots: parameters and much read values" : "dots: parameters and much read values";
    this.show(this.picture.chosen);
    this.picture.draw();
  }
  show(item) {
    if (item) this.side.item(item, this.picture.graph, this.device, this.at);
    else this.side.stage(this.at, this.device);
  }
  // Show a node: its id, or a list of those of the nodes it is inside of and its own.
  node(id, stage = this.at, device = this.device) {
    const path = [id].flat();
    this.tab("graph");
    this.device = device;
    if (stage !== this.at || this.picture.device !== device) this.stage(stage);
    if (this.picture.reveal(path)) return;
    const node = this.picture.graph.byId.get(path[0]);
    if (node) this.side.item({node}, this.picture.graph, this.device, this.at); // a parameter or constant has no box
  }

  // ------------------------------------------------------------------ search

  search() {
    const box = byId("search"), found = byId("found");
    let hits = [], at = 0;
    const close = () => { found.hidden = true; };
    const go = hit => { close(); this.node(hit.path, this.at, hit.device); };
    const draw = () => {
      fill(found, hits.length ? hits.slice(0, 80).map((hit, k) => {
        const row = link(() => go(hit), el("span", {class: "mono", text: "%" + hit.node.id}), el("span", {class: "grow", text: hit.text}), el("span", {class: "soft", text: lineText(hit.node)}));
        if (k === at) row.classList.add("at");
        return row;
      }) : el("div", {class: "row soft", text: "nothing at this stage has this in its name, op, type or line"}));
      if (hits.length > 80) found.append(el("div", {class: "row soft", text: `and ${hits.length - 80} more`}));
      found.hidden = false;
    };
    box.addEventListener("input", () => { at = 0; hits = this.find(box.value); if (box.value.trim()) draw(); else close(); });
    box.addEventListener("keydown", event => {
      if (event.key === "Escape") { close(); box.blur(); }
      else if (event.key === "Enter" && hits[at]) go(hits[at]);
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") { at = Math.max(0, Math.min(hits.length - 1, 79, at + (event.key === "ArrowDown" ? 1 : -1))); draw(); event.preventDefault(); }
    });
    document.addEventListener("pointerdown", event => { if (!found.contains(event.target) && event.target !== box) close(); });
  }
  find(words) {
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean), hits = [];
    if (!wanted.length) return hits;
    this.story.graphs(this.at).forEach((graph, device) => this.search_(graph, device, [], wanted, hits));
    return hits.sort((a, b) => b.named - a.named);
  }

  // What has all words in its name, op, type or line, also inside of kernels and loops.
  search_(graph, device, outside, wanted, hits) {
    const names = new Map(graph.names.map(([name, id]) => [id, name]));
    for (const node of graph.nodes) {
      const name = names.get(node.id) || "", own = [node.op, node.title, name, "%" + node.id], path = [...outside, node.id];
      const text = `${own.join(" ")} ${node.type} ${node.attrs} ${lineText(node)} ${this.story.source(node.file, node.line)}`.toLowerCase();
      if (wanted.every(word => text.includes(word)))
        hits.push({node, path, device, named: wanted.some(word => own.some(one => one.toLowerCase() === word)), text: clean(`${name || node.title} : ${node.type}`)});
      if (hits.length >= 5000) return;
      for (const number of node.regions) this.search_(this.story.region(number), device, path, wanted, hits);
    }
  }

  // ------------------------------------------------------------------ keys

  keys() {
    document.addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range") return;
      const act = {"/": () => byId("search").focus(), "[": () => this.step(-1), "]": () => this.step(1), f: () => this.picture.fit(), e: () => this.picture.all(true),
        c: () => this.picture.all(false), t: () => this.theme(), "?": () => this.help(), Escape: () => this.picture.choose(null)}[event.key];
      const tab = Object.keys(TABS)[Number(event.key) - 1];
      if (act) { act(); event.preventDefault(); }
      else if (tab && /^[1-4]$/.test(event.key)) this.tab(tab);
    });
  }
  help() {
    const box = byId("keys");
    fill(box, el("h2", {text: "Keys"}), facts(KEYS.map(([key, what]) => [key, what])), el("button", {text: "close", on: {click: () => box.close()}}));
    box.showModal();
  }
}

// In the frame of an editor: it is told what is open here, and tells the next page.
function beside(app) {
  const tell = () => parent.postMessage({tab: app.open || "graph", stage: app.story.stages[app.at].name}, "*");
  addEventListener("message", event => {
    if (event.source !== parent || !event.data) return;
    const k = app.story.stages.findIndex(stage => stage.name === event.data.stage);
    if (k >= 0) app.stage(k);
    if (event.data.tab in TABS) app.tab(event.data.tab);
  });
  for (const kind of ["click", "keyup", "input"]) document.addEventListener(kind, () => setTimeout(tell));
  parent.postMessage("ready", "*");
}

start(data => {
  window.app = new App(new Story(data));
  if (parent !== window) beside(window.app);
});
