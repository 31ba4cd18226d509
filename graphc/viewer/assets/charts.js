"use strict";
// Canvases with a horizontal axis that one can zoom and drag, and tables.

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
