"use strict";
// The editor: what is compiled appears in the frame, at the view and stage that were open there.

const SWITCHES = [["opt", [2, 1, 0]], ["threads", [0, 1, 2]], ["backend", ["llvm", "numba"]], ["devices", "cpu:0"], ["compress"], ["fast_math"], ["check_finite"]];
let start, state = null, changed = 0, asked = -1;

function switches() {
  byId("switches").append(...SWITCHES.map(([name, values]) => el("label", {}, name.replace("_", " ") + " ",
    Array.isArray(values) ? el("select", {id: "s-" + name, on: {change: compile}}, values.map(value => el("option", {value, text: value === 0 && name === "threads" ? "all" : value})))
      : el("input", {id: "s-" + name, type: values ? "text" : "checkbox", value: values, on: {change: compile}}))));
}
function options() {
  const found = {};
  for (const [name, values] of SWITCHES) {
    const box = byId("s-" + name);
    if (!values) { if (box.checked) found[name] = true; }
    else if (Array.isArray(values)) { if (box.value !== String(values[0])) found[name] = typeof values[0] === "number" ? Number(box.value) : box.value; }
    else if (box.value.trim() && box.value !== values) found[name] = box.value.trim();
  }
  return found;
}
async function compile() {
  const turn = ++asked;
  byId("state").textContent = "compiling …";
  const reply = await fetch("compile", {method: "POST", body: JSON.stringify({text: byId("text").value, options: options()})});
  const {page, trouble} = reply.ok ? await reply.json() : {page: 0, trouble: "the server said " + reply.status};
  if (turn !== asked) return; // a later one is on its way
  byId("state").textContent = page ? "" : "not compiled";
  byId("trouble").hidden = !trouble;
  byId("trouble").textContent = clean_(trouble);
  if (page) byId("shown").src = "page/" + page;
}
const clean_ = text => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f]/g, "?");

addEventListener("message", event => {
  if (event.source !== byId("shown").contentWindow) return;
  if (event.data === "ready") { if (state) event.source.postMessage(state, "*"); }
  else state = event.data;
});
byId("go").onclick = compile;
byId("text").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { compile(); event.preventDefault(); }
  if (event.key === "Tab" && !event.shiftKey) { event.target.setRangeText("    ", event.target.selectionStart, event.target.selectionEnd, "end"); event.preventDefault(); }
});
byId("text").addEventListener("input", () => { const at = ++changed; setTimeout(() => { if (at === changed) compile(); }, 900); });

if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.classList.add("dark");
start = JSON.parse(byId("start").textContent);
byId("text").value = start.text;
switches();
compile();
