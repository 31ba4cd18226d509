"use strict";
// A long list of nodes as a tree of few: by the names of scopes, by what repeats, by the user's lines.
//
//   a b c a b c a b c d      ->   [3 × [a b c]] d
//
// Groups of the last three kinds are runs of the issue order, so that edges between them lead one way.

const MOST_CHILDREN = 26;

// Some nodes under one title. What is in it is found out when it is first opened.
class Group {
  constructor(title, kind, nodes, make) {
    Object.assign(this, {title, kind, nodes, make}); // kind: root, scope, repeat, block, lines, part
    this.parent = null;
    this.colour = -1; // blocks of equal structure have the same
    this.open = false;
  }
  get count() { return this.nodes.length; }
  get children() {
    if (!this.made) {
      this.made = this.make();
      for (const child of this.made) child.parent = this;
    }
    return this.made;
  }
}

// A node in the tree; `node` is shared by stages, the leaf is not.
class Leaf {
  constructor(node, device) {
    Object.assign(this, {node, device, parent: null, open: false, made: null, colour: -1});
  }
  get nodes() { return [this.node]; }
  get count() { return 1; }
  get children() { return this.made; } // what is in a kernel or loop, once it was opened
}

// The tree of a graph.
function tree(graph, device, story) {
  const maker = new Grouping(graph, device, story), nodes = shownNodes(graph.nodes.filter(node => node.op !== "const"));
  const root = new Group(graph.name, "root", nodes, () => maker.split(nodes));
  root.open = true;
  return root;
}

// Parameters with plain names stand in the graph; those of nested arguments are told by their readers.
function shownNodes(nodes) {
  const params = nodes.filter(node => node.op === "param");
  const plain = params.filter(node => /^\w+$/.test(node.attrs));
  const kept = new Set(params.length <= 4 ? params : plain.length <= 6 ? plain : []);
  return nodes.filter(node => node.op !== "param" || kept.has(node));
}

class Grouping {
  constructor(graph, device, story) {
    this.graph = graph;
    this.device = device;
    this.story = story;
    this.colours = new Map();
    this.scopes = new Map(graph.names.filter(([name]) => /[/.]/.test(name)).map(([name, id]) =>
      [id, name.split(/[/.]/).filter(Boolean)]));
  }
  leaf(node) { return new Leaf(node, this.device); }
  // A list of nodes as few leaves and groups.
  split(nodes, depth = 0) {
    if (nodes.length <= MOST_CHILDREN || depth > 40) return this.few(nodes.map(node => this.leaf(node)));
    return this.few(this.byScope(nodes, depth) || this.byRepeats(nodes, depth) || this.byLines(nodes, depth) || this.byParts(nodes, depth));
  }
  // Too many children become parts of their own: what stands between groups first, then even parts.
  few(children) {
    if (children.length > MOST_CHILDREN && children.some(child => child instanceof Group)) children = this.gathered(children);
    while (children.length > MOST_CHILDREN) {
      const size = Math.ceil(children.length / Math.ceil(children.length / MOST_CHILDREN)), parts = [];
      for (let k = 0; k < children.length; k += size) parts.push(this.part(children.slice(k, k + size)));
      children = parts;
    }
    return children;
  }
  gathered(children) {
    const made = [];
    let run = [];
    const close = () => { if (run.length) made.push(...(run.length > 2 ? [this.part(run)] : run)); run = []; };
    for (const child of children) if (child instanceof Group || child.node.op === "param") { close(); made.push(child); } else run.push(child);
    close();
    return made;
  }
  part(inside) {
    if (inside.length === 1) return inside[0];
    const first = inside[0], same = first instanceof Group && inside.every(child => child.colour === first.colour && child.colour >= 0);
    const nodes = inside.flatMap(item => item.nodes), made = new Group(same ? first.title : this.scopeOf(nodes) || this.lines(nodes), "part", nodes, () => inside);
    if (same) { made.times = inside.reduce((sum, child) => sum + (child.times || 1), 0); made.colour = first.colour; }
    return made;
  }
  group(title, nodes, kind, depth) {
    if (nodes.length === 1) return this.leaf(nodes[0]);
    return new Group(title, kind, nodes, () => this.split(nodes, depth + 1));
  }
  byScope(nodes, depth) {
    const named = nodes.filter(node => this.scopes.has(node.id)).length;
    if (named < nodes.length / 2) return null;
    const parts = new Map();
    let last = "";
    for (const node of nodes) {
      const path = this.scopes.get(node.id);
      if (path && path.length > depth + 1) last = path[depth];
      else if (path) last = "";
      if (!parts.has(last)) parts.set(last, []);
      parts.get(last).push(node);
    }
    if (parts.size < 2) return parts.has("") ? null : this.byScope(nodes, depth + 1);
    return [...parts].flatMap(([name, inside]) => name ? [this.group(clean(name), inside, "scope", depth)]
      : inside.length <= MOST_CHILDREN ? inside.map(node => this.leaf(node)) : this.byParts(inside, depth));
  }
  byRepeats(nodes, depth) {
    for (const spell of [node => node.op + node.type + node.line, node => node.op + node.line, node => node.op]) {
      const found = repeats(nodes.map(spell));
      if (!found || found.period * found.count < nodes.length / 5) continue;
      const {start, period, count} = found, blocks = [];
      for (let k = 0; k < count; k++) {
        const inside = nodes.slice(start + k * period, start + (k + 1) * period);
        blocks.push(this.block(inside, depth));
      }
      const all = nodes.slice(start, start + period * count), whole = new Group(commonTitle(blocks), "repeat", all, () => this.few(blocks));
      whole.times = count;
      whole.colour = blocks[0].colour;
      return [...this.rest(nodes.slice(0, start), depth), whole, ...this.rest(nodes.slice(start + count * period), depth)];
    }
    return null;
  }
  rest(nodes, depth) { return nodes.length ? this.split(nodes, depth + 1) : []; }
  block(nodes, depth) {
    if (nodes.length === 1) return this.leaf(nodes[0]);
    const key = nodes.map(node => node.op).join(" ");
    if (!this.colours.has(key)) this.colours.set(key, this.colours.size);
    const made = new Group(this.scopeOf(nodes) || this.lines(nodes), "block", nodes, () => this.split(nodes, depth + 1));
    made.colour = this.colours.get(key);
    return made;
  }
  // What the parameters that nodes read have in common: "encoder.layer.3".
  scopeOf(nodes) {
    const names = [], byNode = this.graph.byId;
    for (const node of nodes) for (const id of node.inputs) {
      const source = byNode.get(id);
      if (source && source.op === "param" && /[./]/.test(source.attrs)) names.push(source.attrs.split(/[./]/));
    }
    if (names.length < 2) return "";
    const first = names[0];
    let shared = 0;
    while (shared < first.length && names.every(name => name[shared] === first[shared])) shared++;
    return shared > 1 || /\d/.test(first[0]) ? first.slice(0, shared).join(".") : "";
  }
  lines(nodes) {
    const lines = nodes.filter(node => node.line);
    if (!lines.length) return `${nodes.length} nodes`;
    const files = new Set(lines.map(node => node.file)), at = lines.map(node => node.line);
    const low = Math.min(...at), high = Math.max(...at);
    return files.size > 1 ? `${files.size} files` : shortFile(lines[0].file) + ":" + low + (high > low ? "–" + high : "");
  }
  byLines(nodes, depth) {
    const parts = [];
    let before = null;
    for (const node of nodes) {
      const key = node.file + ":" + node.line;
      if (key !== before) parts.push([]);
      before = key;
      parts[parts.length - 1].push(node);
    }
    if (parts.length < 2 || parts.length > nodes.length / 2) return null;
    return parts.map(inside => this.group(this.lines(inside), inside, "lines", depth));
  }
  // Even parts, cut where few values cross.
  byParts(nodes, depth) {
    const wanted = Math.min(MOST_CHILDREN - 6, Math.ceil(nodes.length / MOST_CHILDREN)), size = nodes.length / wanted;
    const crossing = this.crossing(nodes), cuts = [0];
    for (let k = 1; k < wanted; k++) {
      let best = Math.round(k * size);
      for (let at = Math.round((k - 0.3) * size); at <= (k + 0.3) * size; at++) if (crossing[at] < crossing[best]) best = at;
      if (best > cuts[cuts.length - 1]) cuts.push(best);
    }
    cuts.push(nodes.length);
    return cuts.slice(1).map((end, k) => {
      const inside = nodes.slice(cuts[k], end);
      return this.group(this.scopeOf(inside) || this.lines(inside), inside, "part", depth);
    });
  }
  crossing(nodes) {
    const at = new Map(nodes.map((node, k) => [node.id, k])), last = new Array(nodes.length).fill(-1);
    nodes.forEach((node, k) => node.inputs.forEach(id => { if (at.has(id)) last[at.get(id)] = k; }));
    const change = new Array(nodes.length + 2).fill(0);
    last.forEach((end, k) => { if (end > k) { change[k + 1]++; change[end + 1]--; } });
    let sum = 0;
    return change.map(by => sum += by);
  }
}

function commonTitle(blocks) {
  const first = blocks[0];
  if (first instanceof Leaf) return first.node.op;
  const last = blocks[blocks.length - 1].title;
  let shared = 0;
  while (shared < first.title.length && first.title[shared] === last[shared]) shared++;
  if (first.title === last) return first.title;
  return first.title.slice(0, shared).replace(/[.\d]+$/, "") || "equal blocks";
}

// The longest run of equal blocks side by side: {start, period, count}.
function repeats(words) {
  const n = words.length, numbers = new Map();
  const s = words.map(word => { if (!numbers.has(word)) numbers.set(word, numbers.size); return numbers.get(word); });
  const seen = new Map(), distances = new Map(), base = numbers.size + 1;
  for (let i = 3; i < n; i++) {
    const key = ((s[i - 3] * base + s[i - 2]) * base + s[i - 1]) * base + s[i], before = seen.get(key);
    if (before !== undefined) distances.set(i - before, (distances.get(i - before) || 0) + 1);
    seen.set(key, i);
  }
  const periods = [...distances].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 12).map(pair => pair[0]);
  let best = null;
  for (const period of periods.sort((a, b) => a - b)) {
    let run = 0;
    for (let i = 0; i + period <= n; i++) {
      if (i + period < n && s[i] === s[i + period]) { run++; continue; }
      const count = Math.floor(run / period) + 1;
      if (count > 1 && period * count > 1.1 * (best ? best.period * best.count : 0) && period * count > 3)
        best = {start: i - run, period, count};
      run = 0;
    }
  }
  return best;
}
