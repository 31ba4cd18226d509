"use strict";
// A run as lanes over time, one for each device, and what each device did in all.
// A run is {devices, end, events: [{device, kind, start, end, node, name, channel, about}], messages}.

const HUES = {kernel: 210, copy: 175, transfer: 28, send: 48}; // a wait is grey

function colourOf(kind) {
  const dark = document.documentElement.classList.contains("dark");
  return kind === "wait" ? css("grid") : `hsl(${HUES[kind]}, ${dark ? 35 : 55}%, ${dark ? 42 : 72}%)`;
}
function legend() {
  return el("p", {class: "soft legend"}, [...Object.keys(HUES), "wait"].map(kind => el("span", {}, el("i", {style: {background: colourOf(kind)}}), kind)));
}

function lanes(run, end, choose) {
  const lane = 40, top = 24, y = device => top + device * lane;
  const paint = (pen, chart, w, h) => {
    axis(pen, chart, w, h, secondsText, true);
    pen.textBaseline = "middle"; pen.font = "11px system-ui";
    for (const event of run.events) {
      const x = Math.max(chart.left, chart.x(event.start)), to = Math.min(w, chart.x(event.end));
      if (to < chart.left || x > w) continue;
      pen.fillStyle = colourOf(event.kind);
      pen.fillRect(x, y(event.device), Math.max(0.6, to - x - (to - x > 3 ? 0.6 : 0)), lane - 12);
      if (to - x > 44) { pen.fillStyle = css(event.kind === "wait" ? "soft" : "text"); pen.fillText(fitted(pen, event.name, to - x - 8), x + 4, y(event.device) + lane / 2 - 6); }
    }
    pen.strokeStyle = css("gone"); pen.lineWidth = 1.2;
    for (const m of run.messages) {
      const x = chart.x(m.start), to = chart.x(m.end);
      if (Math.max(x, to) < chart.left || Math.min(x, to) > w) continue;
      const a = y(m.source) + (m.target > m.source ? lane - 12 : 0), b = y(m.target) + (m.target > m.source ? 0 : lane - 12);
      pen.beginPath(); pen.moveTo(x, a); pen.lineTo(to, b); pen.stroke();
      pen.beginPath(); pen.arc(to, b, 2.2, 0, 7); pen.fillStyle = css("gone"); pen.fill();
    }
    leftLabels(pen, w, h, chart.left, run.devices.map((name, k) => [clean(name), y(k) + lane / 2 - 6]));
  };
  const under = (x, yy, chart) => {
    const device = Math.floor((yy - top) / lane), at = chart.time(x), near = (chart.to - chart.from) / 400;
    const event = run.events.filter(e => e.device === device && e.start - near <= at && at <= e.end + near).sort((a, b) => (a.end - a.start) - (b.end - b.start))[0];
    return event ? {node: event.node, device, text: `${event.name}\n${event.kind}, ${secondsText(event.end - event.start)} from ${secondsText(event.start)}${event.about ? `\n${event.about}` : ""}`} : null;
  };
  return new Chart(top + run.devices.length * lane + 6, end, paint, under, choose);
}

// A message from the end of each send to the start of the transfer that takes it: the n-th of a channel, the n-th of it.
function messagesOf(events) {
  const sends = new Map();
  for (const event of events) if (event.kind === "send") {
    if (!sends.has(event.channel)) sends.set(event.channel, []);
    sends.get(event.channel).push(event);
  }
  const taken = new Map(), found = [];
  for (const {device, kind, start, channel} of events) if (kind === "transfer") {
    const n = taken.get(channel) || 0, send = (sends.get(channel) || [])[n];
    taken.set(channel, n + 1);
    if (send) found.push({source: send.device, target: device, start: send.end, end: start, text: clean(channel)});
  }
  return found;
}

function busy(runs) {
  const rows = runs.flatMap(([title, run]) => run.devices.map((name, device) => {
    const of = kinds => run.events.filter(e => e.device === device && kinds.includes(e.kind)).reduce((sum, e) => sum + e.end - e.start, 0);
    return {cells: [clean(name), title.split(",")[0].toLowerCase(), secondsText(of(["kernel", "copy"])), secondsText(of(["send", "transfer"])), secondsText(of(["wait"])), Math.round(100 * of(["kernel", "copy"]) / (run.end || 1)) + " %"]};
  }));
  return el("div", {}, el("h2", {text: "Devices"}), table(["device", "", "busy", "messages", "waits", "share of the run"], rows, [2, 3, 4, 5]));
}
