"use strict";
// The picture of a graph: layout of what is visible, drawing, and what mouse and keys do.

const PAD = 14, HEAD = 26, FONT = 12;
const LOOK = {sans: "system-ui, -apple-system, 'Segoe UI', sans-serif", mono: "ui-monospace, Menlo, Consolas, monospace"};
const MOST_TARGETS = 8; // a value that more read is told by a dot beside them, and drawn when it is chosen

function isOpenable(item) { return item instanceof Group || item.node.regions.length > 0; }

// The items that stand for the nodes of a graph: leaves, or the deepest groups that were opened so far.
class World {
  constructor(graph, root) {
    this.graph = graph;
    this.root = root;
    this.items = new Map();
  }
  settle(group) {
    for (const child of group.children) for (const node of child.nodes) this.items.set(node.id, child);
    group.settled = true;
  }
  has(item) { return item === this.root || this.items.get(item.nodes[0].id) === item; }
}

class Picture {
  constructor(canvas, story, show) {
    Object.assign(this, {canvas, story, show, camera: {x: 0, y: 0, scale: 1}, chosen: null, hover: null, wasOpen: new Set()});
    this.measure = document.createElement("canvas").getContext("2d");
    this.widths = new Map();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // ------------------------------------------------------------------ what is shown

  set(graph, device, marks) {
    const kept = this.chosen && this.chosen.node ? this.chosen.node.id : null;
    this.graph = graph;
    this.device = device;
    this.marks = marks;
    this.root = tree(graph, device, this.story);
    this.worlds = [new World(graph, this.root)];
    this.unfold(this.root);
    this.reopen();
    this.first();
    this.layout();
    this.chosen = kept === null ? null : this.visibleOf(kept);
  }
  reopen() {
    const pending = [...this.root.children];
    while (pending.length && this.wasOpen.size) {
      const item = pending.pop();
      if (this.wasOpen.has(this.key(item)) && isOpenable(item)) { this.unfold(item); pending.push(...item.children); }
    }
  }
  // What stands open at first sight: what repeats, then other groups, while the picture stays calm.
  first() {
    let shown = this.root.children.length;
    const pending = [...this.root.children];
    while (pending.length) {
      const at = Math.max(0, pending.findIndex(item => item.kind === "repeat")), [item] = pending.splice(at, 1);
      if (!(item instanceof Group) || item.open || item.kind === "block" || shown + item.children.length > (shown < 4 ? 30 : 16)) continue;
      this.unfold(item);
      shown += item.children.length;
      pending.push(...item.children);
    }
  }
  key(item) { return item.node ? "n" + item.node.id : item.kind + item.title + (item.parent ? item.parent.children.indexOf(item) : ""); }
  // Open a group, or what is inside of a kernel or loop.
  unfold(item) {
    if (item instanceof Leaf && !item.made) {
      const graphs = item.node.regions.map(number => this.story.region(number)), insides = graphs.map(graph => tree(graph, item.device, this.story));
      item.worlds = graphs.map((graph, k) => new World(graph, insides[k]));
      item.worlds.forEach((world, k) => world.settle(insides[k]));
      this.worlds.push(...item.worlds);
      item.made = insides.flatMap(inside => inside.children);
      for (const child of item.made) child.parent = item;
      item.kind = "region";
    }
    item.open = item.children.length > 0;
    if (item instanceof Group && !item.settled) this.worlds.find(world => world.has(item)).settle(item);
    for (const child of item.children) if (child.mark === undefined) child.mark = this.markOf(child);
  }
  markOf(item) {
    let found = null;
    if (this.marks.size) for (const node of item.nodes) {
      const mark = this.graph.byId.get(node.id) === node ? this.marks.get(node.id) : undefined;
      if (mark === "created") return mark;
      found = found || mark;
    }
    return found || null;
  }
  toggle(item) {
    if (!isOpenable(item)) return;
    const before = this.boxOnScreen(item);
    if (item.open) { item.open = false; this.wasOpen.delete(this.key(item)); }
    else { this.unfold(item); this.wasOpen.add(this.key(item)); }
    this.layout();
    this.keep(item, before);
    this.draw();
  }
  all(open) {
    const pending = [...this.root.children];
    let left = 400; // more is not to be read
    if (!open) this.wasOpen.clear();
    while (pending.length) {
      const item = pending.shift();
      if (!open) { if (item.made) { item.open = false; pending.push(...item.made); } continue; }
      if (item instanceof Group && !item.open && left > 0) { this.unfold(item); this.wasOpen.add(this.key(item)); left -= item.children.length; }
      else if (item.open) pending.push(...item.children);
    }
    this.layout();
    this.fit();
  }
  // The visible item that stands for a leaf: itself or the group it is folded into.
  visible(leaf) {
    let found = leaf;
    for (let item = leaf.parent; item; item = item.parent) if (!item.open) found = item;
    return found;
  }
  visibleOf(id) {
    const item = this.worlds[0].items.get(id);
    return item ? this.visible(item) : null;
  }
  // Open what stands around a node, which is given by its id, behind those of the nodes it is inside of.
  reveal(path) {
    let world = this.worlds[0], leaf = null;
    for (const id of path) {
      if (leaf) { this.unfold(leaf); world = leaf.worlds.find(each => each.graph.byId.has(id)); }
      if (!world || !world.items.has(id)) return false;
      while (world.items.get(id) instanceof Group) this.unfold(world.items.get(id));
      leaf = world.items.get(id);
    }
    for (let item = leaf.parent; item; item = item.parent) { this.unfold(item); this.wasOpen.add(this.key(item)); }
    this.layout();
    this.choose(leaf);
    this.centre(leaf);
    return true;
  }

  // ------------------------------------------------------------------ layout

  layout() {
    this.links = this.edges();
    const within = new Map(), targets = new Map(); // parent -> [from, to, link]; item -> how many read it
    for (const {from} of this.links) targets.set(from, (targets.get(from) || 0) + 1);
    for (const link of this.links) {
      link.pulled = targets.get(link.from) > MOST_TARGETS;
      const [parent, a, b] = this.siblings(link.from, link.to);
      link.direct = a === link.from && b === link.to;
      link.parent = parent;
      if (!within.has(parent)) within.set(parent, []);
      within.get(parent).push([a, b, link]);
    }
    this.pulled = new Map();
    for (const link of this.links) if (link.pulled) this.pulled.set(link.to, (this.pulled.get(link.to) || 0) + 1);
    this.arrange(this.root, within);
    this.items = [];
    this.position(this.root, -this.root.w / 2, 0, 0);
  }
  edges() {
    const found = new Map();
    this.chips = new Map();
    for (const {graph, items} of this.worlds) {
      const shown = new Map(); // item -> what stands for it
      const standing = item => { if (!shown.has(item)) { shown.set(item, this.visible(item)); item.uid = item.uid || this.serial(); } return shown.get(item); };
      for (const node of graph.nodes) {
        const item = items.get(node.id);
        if (!item) continue;
        const to = standing(item), reads = node.inputs;
        for (let k = 0; k < reads.length + node.after.length; k++) {
          const id = k < reads.length ? reads[k] : node.after[k - reads.length], source = items.get(id);
          if (!source) { if (k < reads.length) this.chip(to, graph.byId.get(id)); continue; }
          const from = standing(source);
          if (from === to) continue;
          from.uid = from.uid || this.serial();
          to.uid = to.uid || this.serial();
          const key = from.uid * 1e8 + to.uid;
          let link = found.get(key);
          if (!link) found.set(key, link = {from, to, values: new Map(), control: true});
          if (k < reads.length) { link.control = false; link.values.set(id, graph.byId.get(id)); }
        }
      }
    }
    return [...found.values()];
  }
  serial() { return Picture.count = (Picture.count || 0) + 1; }
  chip(item, node) {
    if (!node || node.op === "workspace") return;
    if (!this.chips.has(item)) this.chips.set(item, new Map());
    this.chips.get(item).set(node.id, node);
  }
  siblings(a, b) {
    const above = new Set();
    for (let item = a; item; item = item.parent) above.add(item);
    let y = b;
    while (!above.has(y.parent)) y = y.parent;
    let x = a;
    while (x.parent !== y.parent) x = x.parent;
    return [y.parent, x, y];
  }
  arrange(item, within) {
    if (!item.open) { [item.w, item.h] = this.size(item); return; }
    for (const child of item.children) this.arrange(child, within);
    const plan = new dagre.graphlib.Graph();
    plan.setGraph({rankdir: "TB", nodesep: 22, ranksep: 40, edgesep: 10, ranker: "tight-tree"});
    plan.setDefaultEdgeLabel(() => ({}));
    item.children.forEach((child, k) => { child.place = k; plan.setNode(String(k), {width: child.w, height: child.h}); });
    const edges = within.get(item) || [];
    for (const [a, b, link] of edges) if (!link.pulled && a !== b) plan.setEdge(String(a.place), String(b.place));
    dagre.layout(plan);
    item.children.forEach((child, k) => { const at = plan.node(String(k)); child.dx = at.x - child.w / 2 + PAD; child.dy = at.y - child.h / 2 + PAD + (item.parent ? HEAD : 0); });
    for (const [a, b, link] of edges) {
      const at = link.direct && !link.pulled && plan.edge(String(a.place), String(b.place));
      link.route = at ? at.points.map(p => ({x: p.x + PAD, y: p.y + PAD + (item.parent ? HEAD : 0)})) : null;
    }
    const size = plan.graph();
    item.w = Math.max((size.width || 0) + 2 * PAD, item.parent ? this.size(item)[0] : 0);
    item.h = (size.height || 0) + 2 * PAD + (item.parent ? HEAD : 0);
  }
  position(item, x, y, depth) {
    Object.assign(item, {x, y, depth});
    if (item.parent) this.items.push(item);
    if (item.open) for (const child of item.children) this.position(child, x + child.dx, y + child.dy, depth + 1);
  }
  width(text, bold) {
    const key = (bold ? "b" : "") + text;
    let found = this.widths.get(key);
    if (found === undefined) {
      this.measure.font = `${bold ? 600 : 400} ${bold ? FONT : FONT - 1}px ${LOOK.sans}`;
      this.widths.set(key, found = this.measure.measureText(text).width);
    }
    return found;
  }
  size(item) {
    const [title, ...under] = this.texts(item);
    const wide = Math.max(this.width(title, true) + 4, ...under.map(text => this.width(text, false)));
    return [Math.min(Math.max(70, wide + (isOpenable(item) ? 48 : 28)), 340), 22 + 15 * under.length + (under.length ? 4 : 6)];
  }
  // The lines in a box: what it is, its type, and the user's line.
  texts(item) {
    if (item.texts) return item.texts;
    const made = [];
    if (item instanceof Leaf) {
      const node = item.node, source = this.story.source(node.file, node.line).trim();
      made.push(node.op === "fused" ? "kernel " + this.inside(node) : clean(node.title), node.type);
      if (node.line) made.push(cut(lineText(node) + (source ? "   " + source : ""), 46));
    } else {
      made.push((item.times ? item.times + " × " : "") + clean(item.title));
      const flops = item.nodes.reduce((sum, node) => sum + this.story.flopsOf(this.device, node), 0);
      made.push(item.count + " nodes" + (flops ? ", " + flopsText(flops) : ""));
    }
    return item.texts = made.map(text => cut(text, 52));
  }
  inside(node) {
    const ops = node.regions.flatMap(number => this.story.region(number).nodes).filter(n => !QUIET.has(n.op)).map(n => n.op);
    return [...new Set(ops)].slice(0, 4).join(" ") + (new Set(ops).size > 4 ? " …" : "");
  }

  // ------------------------------------------------------------------ drawing

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.paint(); });
  }
  paint() {
    if (!this.items || !this.canvas.clientWidth) return;
    const dark = document.documentElement.classList.contains("dark");
    const colours = Object.fromEntries(["panel", "text", "soft", "line", "accent", "new", "changed", "gone", "back"].map(n => [n, css(n)]));
    sharp(this.canvas, (pen, width, height) => {
      const {x, y, scale} = this.camera;
      pen.translate(width / 2, height / 2);
      pen.scale(scale, scale);
      pen.translate(-x, -y);
      const view = {left: x - width / 2 / scale, right: x + width / 2 / scale, top: y - height / 2 / scale, bottom: y + height / 2 / scale};
      for (const item of this.items) if (item.open && seen(item, view)) this.drawBox(pen, item, scale, dark, colours);
      this.labels = []; // in front of what edges pass behind
      for (const link of this.links) this.drawLink(pen, link, view, scale, colours);
      for (const item of this.items) if (!item.open && seen(item, view)) this.drawBox(pen, item, scale, dark, colours);
      for (const [link, middle, bytes, lit] of this.labels) this.label(pen, link, middle, bytes, colours, lit);
    });
  }
  drawBox(pen, item, scale, dark, colours) {
    const group = isOpenable(item), {x, y, w, h} = item;
    pen.beginPath();
    pen.roundRect(x, y, w, h, item.open ? 10 : group ? 8 : 6);
    pen.fillStyle = item.colour >= 0 ? tint(item.colour, dark, item.open ? 0.35 : 1) : item.open ? (dark ? "#ffffff08" : "#00000006") : colours.panel;
    pen.fill();
    pen.lineWidth = (item === this.chosen ? 2.4 : item === this.hover ? 1.8 : 1) / Math.min(1, Math.max(scale, 0.25));
    pen.strokeStyle = item === this.chosen ? colours.accent : item.colour >= 0 ? ink(item.colour, dark) : item === this.hover ? colours.soft : colours.line;
    pen.stroke();
    if (item.times && !item.open) { // a pile: more than one of these
      pen.beginPath(); pen.moveTo(x + 8, y + h + 3); pen.lineTo(x + w - 2, y + h + 3); pen.lineTo(x + w + 3, y + h - 2); pen.lineTo(x + w + 3, y + 8);
      pen.stroke();
    }
    if (item.mark) { pen.fillStyle = item.mark === "created" ? colours.new : colours.changed; pen.beginPath(); pen.roundRect(x, y + 4, 4, Math.min(h, item.open ? 22 : h) - 8, 2); pen.fill(); }
    if (FONT * scale < 4.5) return;
    const texts = this.texts(item);
    pen.textBaseline = "middle";
    pen.fillStyle = colours.text;
    pen.font = `600 ${FONT}px ${LOOK.sans}`;
    const room = w - 20, sign = group ? (item.open ? "–" : "+") : "";
    pen.fillText(fitted(pen, texts[0], room - (sign ? 12 : 0)), x + 12, y + 14);
    if (sign) { pen.fillStyle = colours.soft; pen.fillText(sign, x + w - 16, y + 14); }
    if (item.open) return;
    pen.font = `${FONT - 1}px ${LOOK.sans}`;
    pen.fillStyle = colours.soft;
    texts.slice(1).forEach((text, k) => pen.fillText(fitted(pen, text, room), x + 12, y + 31 + 15 * k));
    this.drawDots(pen, item, colours);
  }
  // A dot at the upper edge for each parameter and much read value that comes from elsewhere.
  drawDots(pen, item, colours) {
    const params = [...(this.chips.get(item) || new Map()).values()].filter(node => node.op !== "const").length;
    const count = Math.min(params + (this.pulled.get(item) || 0), 8);
    pen.fillStyle = colours.accent;
    for (let k = 0; k < count; k++) { pen.beginPath(); pen.arc(item.x + item.w - 12 - k * 9, item.y, 3, 0, 7); pen.fill(); }
  }
  drawLink(pen, link, view, scale, colours) {
    const {from, to} = link;
    const lit = this.chosen && (within(from, this.chosen) || within(to, this.chosen)) || this.hover && (from === this.hover || to === this.hover);
    if (link.pulled && !lit) return;
    const a = {x: from.x + from.w / 2, y: from.y + from.h}, b = {x: to.x + to.w / 2, y: to.y};
    if (Math.max(a.x, b.x) < view.left - 400 || Math.min(a.x, b.x) > view.right + 400 || Math.max(a.y, b.y) < view.top || Math.min(a.y, b.y) > view.bottom) return;
    let bytes = 0;
    for (const node of link.values.values()) bytes += node.bytes;
    pen.lineWidth = (lit ? 1.4 : 0.6) + Math.min(3, Math.log10(1 + bytes) / 3);
    pen.strokeStyle = lit ? colours.accent : colours.soft;
    pen.globalAlpha = lit ? 1 : link.direct ? 0.55 : 0.28;
    pen.setLineDash(link.control ? [4, 4] : []);
    pen.beginPath();
    let middle;
    if (link.route) {
      const ox = link.parent.x, oy = link.parent.y, points = link.route.map(p => ({x: p.x + ox, y: p.y + oy}));
      pen.moveTo(points[0].x, points[0].y);
      for (let k = 1; k < points.length - 1; k++) {
        const next = points[k + 1], end = k === points.length - 2 ? next : {x: (points[k].x + next.x) / 2, y: (points[k].y + next.y) / 2};
        pen.quadraticCurveTo(points[k].x, points[k].y, end.x, end.y);
      }
      if (points.length === 2) pen.lineTo(points[1].x, points[1].y);
      middle = points[Math.floor(points.length / 2)];
    } else {
      const bend = Math.max(20, Math.abs(b.y - a.y) / 2.5);
      pen.moveTo(a.x, a.y);
      pen.bezierCurveTo(a.x, a.y + bend, b.x, b.y - bend, b.x, b.y);
      middle = {x: (a.x + b.x) / 2, y: (a.y + b.y) / 2};
    }
    pen.stroke();
    pen.setLineDash([]);
    if (scale > 0.3) this.arrow(pen, link.route ? {x: link.parent.x + link.route[link.route.length - 1].x, y: link.parent.y + link.route[link.route.length - 1].y} : b);
    pen.globalAlpha = 1;
    if (scale > 0.75 && link.values.size && (link.direct || lit)) this.labels.push([link, middle, bytes, lit]);
  }
  arrow(pen, at) {
    pen.fillStyle = pen.strokeStyle;
    pen.beginPath(); pen.moveTo(at.x, at.y + 1); pen.lineTo(at.x - 4, at.y - 6); pen.lineTo(at.x + 4, at.y - 6); pen.fill();
  }
  // What goes along an edge: type and bytes.
  label(pen, link, at, bytes, colours, lit) {
    const first = link.values.values().next().value, more = link.values.size > 1 ? ` +${link.values.size - 1}` : "";
    const text = cut(first.type, 26) + more + (lit ? "   " + bytesText(bytes) : "");
    pen.font = `10px ${LOOK.sans}`;
    pen.textBaseline = "middle";
    const wide = pen.measureText(text).width + 6;
    pen.fillStyle = colours.back;
    pen.globalAlpha = 0.85;
    pen.fillRect(at.x - wide / 2, at.y - 7, wide, 14);
    pen.globalAlpha = 1;
    pen.fillStyle = lit ? colours.accent : colours.soft;
    pen.fillText(text, at.x - wide / 2 + 3, at.y + 0.5);
  }

  // ------------------------------------------------------------------ the camera

  fit() {
    const {clientWidth: width, clientHeight: height} = this.canvas;
    if (!this.root || !width) return;
    const scale = Math.min(1.25, Math.max(0.02, Math.min(width / (this.root.w + 40), height / (this.root.h + 40))));
    const readable = Math.max(scale, Math.min(0.62, width / (this.root.w + 40)));
    this.camera = {x: 0, y: this.root.h / 2, scale: readable};
    if (readable > scale) this.camera.y = height / readable / 2 - 20;
    this.draw();
  }
  centre(item) {
    this.camera.x = item.x + item.w / 2;
    this.camera.y = item.y + item.h / 2;
    this.camera.scale = Math.max(this.camera.scale, 0.8);
    this.draw();
  }
  boxOnScreen(item) { return {x: (item.x + item.w / 2 - this.camera.x) * this.camera.scale, y: (item.y - this.camera.y) * this.camera.scale}; }
  keep(item, at) {
    this.camera.x = item.x + item.w / 2 - at.x / this.camera.scale;
    this.camera.y = item.y - at.y / this.camera.scale;
  }
  under(event) {
    const box = this.canvas.getBoundingClientRect(), {x, y, scale} = this.camera;
    const px = (event.clientX - box.left - box.width / 2) / scale + x, py = (event.clientY - box.top - box.height / 2) / scale + y;
    let found = null;
    for (const item of this.items) if (px >= item.x && px <= item.x + item.w && py >= item.y && py <= item.y + item.h) if (!found || item.depth >= found.depth) found = item;
    return found;
  }
  zoom(by, px = 0, py = 0) {
    const {scale} = this.camera, next = Math.min(4, Math.max(0.01, scale * by));
    this.camera.x += px / scale - px / next;
    this.camera.y += py / scale - py / next;
    this.camera.scale = next;
    this.draw();
  }

  // ------------------------------------------------------------------ mouse and keys

  choose(item) {
    this.chosen = item;
    this.show(item);
    this.draw();
  }
  listen() {
    const canvas = this.canvas;
    let held = null, moved = false;
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      if (event.ctrlKey || !event.shiftKey) this.zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2);
      else { this.camera.x += event.deltaY / this.camera.scale; this.draw(); }
    }, {passive: false});
    canvas.addEventListener("pointerdown", event => { held = [event.clientX, event.clientY, this.camera.x, this.camera.y]; moved = false; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", event => {
      canvas.classList.remove("held");
      if (held && !moved) { const item = this.under(event); this.choose(item === this.chosen && !item ? null : item); }
      held = null;
    });
    canvas.addEventListener("dblclick", event => { const item = this.under(event); if (item) this.toggle(item); });
    canvas.addEventListener("pointermove", event => {
      if (held) {
        const dx = event.clientX - held[0], dy = event.clientY - held[1];
        if (Math.abs(dx) + Math.abs(dy) > 3) { moved = true; canvas.classList.add("held"); }
        if (moved) { this.camera.x = held[2] - dx / this.camera.scale; this.camera.y = held[3] - dy / this.camera.scale; this.draw(); }
        return;
      }
      const item = this.under(event);
      if (item !== this.hover) { this.hover = item; this.draw(); }
      tip(event, item ? this.about(item) : "");
    });
    canvas.addEventListener("pointerleave", event => { this.hover = null; tip(event, ""); this.draw(); });
    canvas.addEventListener("keydown", event => this.key_(event));
  }
  about(item) {
    if (!item.node) return `${clean(item.title)}\n${item.count} nodes${item.open ? "" : "; double click opens it"}`;
    const node = item.node, flops = this.story.flopsOf(this.device, node), source = this.story.source(node.file, node.line);
    return [`%${node.id} ${node.op} : ${node.type}`, node.attrs, `${bytesText(node.bytes)}${flops ? ", " + flopsText(flops) : ""}`,
      node.line ? `${lineText(node)}  ${source.trim()}` : ""].filter(Boolean).join("\n");
  }
  key_(event) {
    const moves = {ArrowDown: [1, true], ArrowUp: [-1, true], ArrowLeft: [-1, false], ArrowRight: [1, false]};
    if (event.key === "Enter" && this.chosen) this.toggle(this.chosen);
    else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-") this.zoom(0.8);
    else if (event.key in moves) this.step(...moves[event.key]);
    else return;
    event.preventDefault();
  }
  // Down and up along edges, left and right among what stands in one row.
  step(by, along) {
    if (!this.chosen) { this.choose(this.items.find(item => !item.open) || null); if (this.chosen) this.centre(this.chosen); return; }
    const here = this.chosen, middle = here.x + here.w / 2;
    const near = along
      ? this.links.filter(link => (by > 0 ? link.from : link.to) === here).map(link => by > 0 ? link.to : link.from)
      : this.items.filter(item => item !== here && item.parent === here.parent && Math.sign(item.x + item.w / 2 - middle) === by);
    const best = near.sort((a, b) => Math.hypot(a.x + a.w / 2 - middle, 3 * (a.y - here.y)) - Math.hypot(b.x + b.w / 2 - middle, 3 * (b.y - here.y)))[0];
    if (best) { this.choose(best); this.centre(best); }
  }
}

const QUIET = new Set(["const", "param", "item", "tuple", "broadcast", "reshape", "workspace"]);
function cut(text, most) { return text.length > most ? text.slice(0, most - 1) + "…" : text; }
function seen(item, view) { return item.x < view.right && item.x + item.w > view.left && item.y < view.bottom && item.y + item.h > view.top; }
function within(item, group) { for (; item; item = item.parent) if (item === group) return true; return false; }
