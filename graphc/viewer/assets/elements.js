"use strict";
// Elements from plain values. Text is always text: nothing of a model is ever read as HTML.

function el(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) made.addEventListener(event, call);
    else if (name === "style") Object.assign(made.style, value);
    else if (name === "text") made.textContent = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return made;
}
const byId = id => document.getElementById(id);
function fill(parent, ...children) { parent.replaceChildren(...children.flat().filter(Boolean)); }

// A row that does something when clicked, or with Enter.
function link(call, ...children) {
  return el("div", {class: "row link", tabindex: 0, role: "button",
    on: {click: call, keydown: e => { if (e.key === "Enter") call(e); }}}, ...children);
}

function facts(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value !== "" && value !== undefined && value !== null)
    .flatMap(([name, value]) => [el("dt", {text: name}), el("dd", {}, value instanceof window.Node ? value : clean(value))]));
}

// Some of a long list, and a row that shows more.
function some(list, draw, count = 60) {
  const box = el("div");
  const more = from => {
    box.append(...list.slice(from, from + count).map(draw));
    const left = list.length - from - count;
    if (left > 0) {
      const rest = link(() => { rest.remove(); more(from + count); }, el("span", {class: "soft", text: `${left} more`}));
      box.append(rest);
    }
  };
  more(0);
  return box;
}

function tip(event, text) {
  const box = byId("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const wide = box.offsetWidth, high = box.offsetHeight;
  box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - wide - 8)) + "px";
  box.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - high - 8)) + "px";
}

const css = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// A canvas that is as sharp as the screen; `draw(pen, width, height)` in CSS pixels.
function sharp(canvas, draw) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  draw(pen, width, height);
}

// One of many calm colours for a number, the same in every picture.
function tint(number, dark, alpha = 1) {
  const hue = (number * 137.508) % 360;
  return dark ? `hsla(${hue}, 32%, 34%, ${alpha})` : `hsla(${hue}, 55%, 86%, ${alpha})`;
}
function ink(number, dark) {
  const hue = (number * 137.508) % 360;
  return dark ? `hsl(${hue}, 45%, 62%)` : `hsl(${hue}, 50%, 48%)`;
}

// A text, shortened to fit so many pixels.
function fitted(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let low = 0, high = text.length;
  while (low < high) { const half = (low + high + 1) >> 1; if (pen.measureText(text.slice(0, half) + "…").width <= room) low = half; else high = half - 1; }
  return text.slice(0, low) + "…";
}
