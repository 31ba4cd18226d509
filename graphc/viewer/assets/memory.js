"use strict";
// Memory over time: the arena of each device, who lies where and when.

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
