"use strict";
// The page of one traced run: its lanes, and what each device did.

// A run from Chrome's Trace Event Format, as `graphc.runtime.observe.trace.chrome` writes it.
function runOf(told) {
  const devices = told.traceEvents.filter(e => e.ph === "M").map(e => e.args.name);
  const events = told.traceEvents.filter(e => e.ph === "X").map(e => ({device: e.tid, kind: e.cat, start: e.ts * 1e-6, end: (e.ts + e.dur) * 1e-6,
    node: -1, name: clean(e.name), channel: e.args.what, about: clean([e.args.node, e.args.line].filter(Boolean).join("  "))}));
  return {devices, events, end: events.reduce((last, e) => Math.max(last, e.end), 1e-9), messages: messagesOf(events)};
}

function show(told) {
  const run = runOf(told), dropped = told.otherData.dropped, chart = lanes(run, run.end);
  fill(byId("name"), document.title, el("small", {text: `${secondsText(run.end)} · ${run.events.length.toLocaleString("en")} events`}));
  fill(byId("timeline"), legend(), chart.box,
    el("p", {class: "soft", text: "Scroll to zoom, drag to move, double click to see all." + (dropped ? ` ${dropped.toLocaleString("en")} later events did not fit and are missing.` : "")}),
    busy([["Measured", run]]));
  const theme = () => { document.documentElement.classList.toggle("dark"); fill(byId("timeline").firstChild, ...legend().childNodes); chart.draw(); };
  byId("theme").onclick = theme;
  document.addEventListener("keydown", event => { if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey) theme(); });
}

start(show);
