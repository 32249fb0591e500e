// Drawing: what would fall into one pixel is drawn once

const pen = canvas.getContext('2d');
const FONT = '12px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "Noto Sans", sans-serif';
const BOLD = `600 ${FONT}`;
/** What the last drawing has drawn, and where: for selecting, and for tests */
const drawn = { messages: 0, frames: 0, stalls: 0, faults: 0, states: 0, marks: 0, rows: 0 };
const hits = [];

const visible = (row) => row.y + row.height > chart.scrollTop && row.y < chart.scrollTop + view.height - AXIS;
const top = (row) => row.y - chart.scrollTop + AXIS;
const isDim = (kind, i) => search.isOn && !search.has(kind, i);

/**
 * Calls `paint(i, x, width)` for the spans of an ascending list that are in view; of those that share a pixel, for one
 */
function spans(list, startOf, endOf, least, paint) {
  let at = Math.max(0, lowerBound(list.length, (k) => endOf(list[k]), view.from));
  while (at < list.length && startOf(list[at]) <= view.to) {
    const i = list[at];
    const x = Math.max(toX(startOf(i)), view.gutter - 2);
    const width = Math.max(Math.min(toX(endOf(i)), view.width + 2) - x, least);
    paint(i, x, width);
    at += 1;
    if (width <= least + 0.5 && at < list.length) {
      const next = toTime(x + least * 0.75);
      if (startOf(list[at]) < next) at += lowerBound(list.length - at, (k) => startOf(list[at + k]), next);
    }
  }
}

function text(string, x, y, colour, most = Infinity, font = FONT) {
  if (most < 14) return;
  pen.font = font;
  pen.fillStyle = colour;
  let shown = string;
  if (most !== Infinity && pen.measureText(shown).width > most) {
    let length = Math.floor((shown.length * most) / pen.measureText(shown).width);
    while (length > 0 && pen.measureText(`${shown.slice(0, length)}…`).width > most) length -= 1;
    if (length < 2) return;
    shown = `${shown.slice(0, length)}…`;
  }
  pen.fillText(shown, x, y);
}

function draw() {
  const { width, height, scale } = view;
  if (!width) return;
  Object.keys(drawn).forEach((name) => { drawn[name] = 0; });
  hits.length = 0;
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.fillStyle = colours.page;
  pen.fillRect(0, 0, width, height);
  pen.textBaseline = 'middle';
  const marks = ticks();
  pen.fillStyle = colours.line;
  for (const { time } of marks.marks) pen.fillRect(Math.round(toX(time)), AXIS, 1, height - AXIS);
  faultBands();
  labels.length = 0;
  const shown = rows.filter((row) => row.kind === 'host' ? row.bottom > chart.scrollTop && visible({ y: row.y, height: row.bottom - row.y }) : visible(row));
  drawn.rows = shown.length;
  for (const row of shown) if (row.kind === 'host') hostRow(row);
  pen.save();
  pen.beginPath();
  pen.rect(view.gutter, AXIS, width - view.gutter, height - AXIS);
  pen.clip();
  for (const row of shown) {
    if (row.kind === 'qp') qpRow(row);
    else if (row.kind === 'faults') faultsRow(row);
    else if (row.kind === 'marks') marksRow(row);
    else if (row.kind !== 'host') stateRow(row);
  }
  flows();
  selection();
  pen.restore();
  for (const row of shown) label(row);
  axis(marks);
  drawOverview();
  Object.assign(document.body.dataset, { drawn: JSON.stringify(drawn), labels: JSON.stringify(labels), span: view.to - view.from });
  const fault = hits.find((hit) => hit.kind === KIND.FAULT);
  const box = canvas.getBoundingClientRect();
  // Where the first fault is, for tests.
  if (fault) document.body.dataset.firstFault = JSON.stringify([box.left + fault.x + 4, box.top + fault.y + 8]);
}

function axis({ marks, base }) {
  pen.fillStyle = colours.page;
  pen.fillRect(0, 0, view.width, AXIS);
  pen.fillStyle = colours.line;
  pen.fillRect(0, AXIS - 1, view.width, 1);
  pen.textAlign = 'center';
  let free = view.gutter;
  if (base) {
    pen.textAlign = 'left';
    const string = `${exact(base)} +`;
    text(string, view.isNarrow ? 8 : 14, AXIS / 2, colours.text, view.isNarrow ? Infinity : view.gutter - 20, BOLD);
    if (view.isNarrow) free = 16 + pen.measureText(string).width;
    pen.textAlign = 'center';
  } else if (!view.isNarrow) {
    pen.textAlign = 'left';
    text('virtual time', 14, AXIS / 2, colours.muted);
    pen.textAlign = 'center';
  }
  pen.font = FONT;
  for (const { time, label: string } of marks) {
    const x = toX(time);
    const half = pen.measureText(string).width / 2;
    if (x < view.gutter - 1 || x + half > view.width) continue;
    pen.fillStyle = colours.line;
    pen.fillRect(Math.round(x), AXIS - 6, 1, 6);
    if (x - half >= free) text(string, x, AXIS / 2 - 1, colours.muted);
  }
  pen.textAlign = 'left';
}

/** Faults that last tint the time that they last, behind everything */
function faultBands() {
  for (const [i, fault] of data.faults.entries()) {
    const [from, to] = [toX(fault.start), toX(faultEnd(fault))];
    if (to < view.gutter || from > view.width) continue;
    const isChosen = selected && selected.kind === KIND.FAULT && selected.i === i;
    pen.globalAlpha = isChosen ? 0.55 : 0.22;
    pen.fillStyle = colours['fault-fill'];
    const x = Math.max(from, view.gutter);
    pen.fillRect(x, AXIS, Math.max(1, Math.min(to, view.width) - x), view.height);
    pen.globalAlpha = isChosen ? 0.9 : 0.45;
    pen.fillStyle = colours.fault;
    if (from >= view.gutter) pen.fillRect(Math.round(from), AXIS, 1, view.height);
    pen.globalAlpha = 1;
  }
}

function label(row) {
  const y = top(row);
  if (row.kind === 'host') {
    if (view.isNarrow) {
      chip(row.label, 8, y + 15, BOLD, colours.text);
    } else {
      pen.fillStyle = colours.page;
      pen.fillRect(0, Math.max(y, AXIS), view.gutter, row.height);
      text(row.label, 14, y + 16, colours.text, view.gutter - 20, `600 14px ${FONT.slice(5)}`);
    }
    pen.fillStyle = colours.line;
    if (y > AXIS) pen.fillRect(0, Math.round(y), view.width, 1);
    return;
  }
  if (view.isNarrow) {
    const indent = row.kind === 'qp' ? 10 : 8;
    const string = row.kind === 'port' ? `${row.label} · ${row.sub}` : row.sub && row.kind === 'qp' ? `${row.label} ${row.sub}` : row.label;
    chip(string, indent, y + (row.kind === 'port' ? 14 : 10), row.kind === 'port' ? BOLD : FONT, row.kind === 'port' ? colours.text : colours.muted);
    return;
  }
  pen.fillStyle = colours.page;
  pen.fillRect(0, y, view.gutter - 1, row.height);
  pen.fillStyle = colours.line;
  pen.fillRect(view.gutter - 1, y, 1, row.height);
  const indent = { faults: 14, marks: row.host ? 24 : 14, cable: 14, port: 24, qp: 34 }[row.kind];
  const most = view.gutter - indent - 8;
  if (row.kind === 'port') {
    text(row.label, indent, y + 14, colours.text, most, BOLD);
    const used = pen.measureText(row.label).width;
    text(row.sub, indent + used + 8, y + 14, colours.muted, most - used - 8);
  } else {
    const isHead = row.kind === 'faults' || row.kind === 'marks' && !row.host;
    text(row.label, indent, y + 13, isHead ? colours.text : colours.muted, most, isHead ? BOLD : FONT);
    if (row.kind === 'qp') text(row.sub, indent, y + 29, colours.muted, most);
  }
}

/** A label on top of what it names */
function chip(string, x, y, font, colour) {
  pen.font = font;
  const whole = pen.measureText(string).width;
  const width = Math.min(whole, view.width - x - 12);
  pen.globalAlpha = 0.82;
  pen.fillStyle = colours.page;
  pen.fillRect(x - 3, y - 8, width + 6, 16);
  pen.globalAlpha = 1;
  text(string, x, y, colour, whole > width ? width : Infinity, font);
}

/** A host whose processes do not run is hatched, with all that belongs to it */
function hostRow(row) {
  for (const state of row.states) {
    const x = Math.max(toX(state.start), view.gutter);
    const end = Math.min(toX(stateEnd(state)), view.width);
    if (end < view.gutter || x > view.width) continue;
    const y = Math.max(top(row), AXIS);
    const height = row.bottom - chart.scrollTop + AXIS - y;
    pen.fillStyle = colours['state-fill'];
    pen.globalAlpha = 0.6;
    pen.fillRect(x, y, Math.max(end - x, 1), height);
    pen.globalAlpha = 1;
    const i = data.states.indexOf(state);
    pen.fillStyle = hatching(pen, colours.state);
    pen.fillRect(x, top(row) + 6, Math.max(end - x, 2), 18);
    if (end - x > 40) {
      const string = `processes ${state.text}`;
      pen.font = FONT;
      const width = Math.min(pen.measureText(string).width + 10, end - x);
      pen.fillStyle = colours['state-fill'];
      pen.fillRect(x, top(row) + 6, width, 18);
      text(string, x + 5, top(row) + 15, colours.text, width - 6);
    }
    hits.push({ kind: KIND.STATE, i, x, y: top(row) + 6, width: Math.max(end - x, 4), height: 18 });
    drawn.states += 1;
  }
}

/** A bar with its text */
function bar(x, y, width, height, fill, edge, string, colour) {
  pen.fillStyle = fill;
  pen.fillRect(x, y, width, height);
  pen.fillStyle = edge;
  pen.fillRect(x, y, Math.min(3, width), height);
  text(string, x + 7, y + height / 2 + 0.5, colour, Math.max(0, width - 10));
}

function faultsRow(row) {
  for (const one of row.list) {
    const from = toX(one.start);
    if (from > view.width || toX(one.end) < view.gutter) continue;
    const x = Math.max(from, view.gutter);
    const y = top(row) + row.top + one.line * 19;
    const next = row.list.find((other) => other.line === one.line && other.start > one.start);
    const room = (next ? Math.min(toX(next.start), view.width) : view.width) - x - 6;
    const width = Math.max(Math.min(toX(one.end), view.width) - x, 3);
    const isFault = one.kind === KIND.FAULT;
    pen.globalAlpha = isDim(one.kind, one.i) ? 0.25 : 1;
    pen.fillStyle = isFault ? colours['fault-fill'] : colours['state-fill'];
    pen.fillRect(x, y, width, 16);
    pen.fillStyle = isFault ? colours.fault : colours.text;
    pen.fillRect(x, y, 3, 16);
    text(one.text, x + 7, y + 8.5, colours.text, room - 2);
    pen.globalAlpha = 1;
    hits.push({ kind: one.kind, i: one.i, x: x - 3, y, width: Math.max(width, Math.min(room, 120)) + 6, height: 16 });
    drawn.faults += 1;
  }
}

/** The states of a cable or of a port */
function stateRow(row) {
  const y = top(row) + (row.kind === 'port' ? 5 : row.top);
  const height = row.kind === 'port' ? 16 : 14;
  if (row.kind === 'cable') {
    pen.fillStyle = colours.credit;
    pen.globalAlpha = 0.5;
    const [from, to] = [Math.max(toX(0), view.gutter), Math.min(toX(data.end), view.width)];
    pen.fillRect(from, y + height / 2 - 1, Math.max(0, to - from), 2);
    pen.globalAlpha = 1;
  }
  for (const state of row.states) {
    const x = Math.max(toX(state.start), view.gutter);
    const end = Math.min(toX(stateEnd(state)), view.width);
    if (end < view.gutter || x > view.width) continue;
    const i = data.states.indexOf(state);
    pen.globalAlpha = isDim(KIND.STATE, i) ? 0.25 : 1;
    bar(x, y, Math.max(end - x, 3), height, colours['state-fill'], colours.state, state.text, colours.text);
    pen.globalAlpha = 1;
    hits.push({ kind: KIND.STATE, i, x: x - 2, y, width: Math.max(end - x, 4) + 4, height });
    drawn.states += 1;
  }
}

function qpRow(row) {
  const y = top(row);
  row.lanes.forEach((list, lane) => messageLane(row, list, y + row.top + lane * row.lane));
  spans(left[row.qp], (i) => frames.start[i], (i) => frames.end[i], 1, (i, x, width) => {
    pen.fillStyle = colours.frame;
    pen.globalAlpha = search.isOn && !search.has(KIND.MESSAGE, frames.message[i] - 1) ? 0.2 : 1;
    // Frames that follow each other stay apart when there is room for a gap.
    pen.fillRect(x, y + row.frameTop, width > 4 ? width - 1 : width, 6);
    drawn.frames += 1;
  });
  pen.globalAlpha = 1;
  spans(waited[row.qp], (i) => stalls.start[i], (i) => stalls.end[i], 1, (i, x, width) => {
    pen.globalAlpha = isDim(KIND.STALL, i) ? 0.25 : 1;
    pen.fillStyle = width > 3 ? hatching(pen, colours.stall) : colours.stall;
    pen.fillRect(x, y + row.frameTop, width, 6);
    pen.fillStyle = colours.stall;
    pen.fillRect(x, y + row.frameTop, Math.min(width, 1.5), 6);
    hits.push({ kind: KIND.STALL, i, x: x - 1, y: y + row.frameTop - 1, width: width + 2, height: 9 });
    drawn.stalls += 1;
  });
  pen.globalAlpha = 1;
  pen.fillStyle = colours.credit;
  spans(arrived[row.qp], (i) => messages.delivered[i], (i) => messages.delivered[i], 1.5, (i, x, width) => {
    pen.fillRect(x, y + row.frameTop + 7, width, 3);
  });
  if (row.creditTop) credits(row, y + row.creditTop);
}

function messageLane(row, list, y) {
  const height = row.lane - 2;
  spans(list, (i) => messages.posted[i], (i) => messages.end[i], 2, (i, x, width) => {
    const outcome = messages.outcome[i];
    const isBad = outcome !== OUTCOME.DELIVERED;
    pen.globalAlpha = isDim(KIND.MESSAGE, i) ? 0.18 : 1;
    if (width > 6) {
      // From the post to the first frame it waits in its queue.
      const first = messages.first[i] >= 0 ? Math.min(Math.max(toX(messages.first[i]), x), x + width) : x + width;
      pen.fillStyle = isBad ? hatching(pen, colours.outcomes[outcome]) : colours.queued;
      pen.fillRect(x, y, width, height);
      pen.fillStyle = colours.outcomes[outcome];
      if (first < x + width) pen.fillRect(first, y, Math.max(1, Math.min(toX(messages.left[i]), x + width) - first), height);
      pen.fillRect(x, y, 1.5, height);
      pen.fillRect(x, y + height - 1, width, 1);
    } else {
      pen.fillStyle = colours.outcomes[outcome];
      pen.fillRect(x, y, width, height);
    }
    hits.push({ kind: KIND.MESSAGE, i, x: x - 1, y: y - 1, width: width + 2, height: row.lane });
    drawn.messages += 1;
  });
  // What went wrong is drawn again: it must not hide behind others in its pixel.
  pen.globalAlpha = 1;
  const bad = (row.bad ??= new Map()).get(list) ?? list.filter((i) => messages.outcome[i] !== OUTCOME.DELIVERED);
  row.bad.set(list, bad);
  spans(bad, (i) => messages.posted[i], (i) => messages.end[i], 2, (i, x) => {
    if (isDim(KIND.MESSAGE, i)) return;
    pen.fillStyle = colours.outcomes[messages.outcome[i]];
    pen.fillRect(x, y - 1, 2.5, height + 2);
  });
}

/** How many frames posted receives have room for, as steps */
function credits(row, y) {
  const { times, counts, most } = creditSteps[row.qp];
  const height = 14;
  const last = times.length - 1;
  let at = Math.max(0, lowerBound(times.length, (k) => times[k], view.from) - 1);
  const end = Math.min(toX(data.end), view.width);
  const steps = new Path2D();
  const first = Math.max(toX(times[at]), view.gutter);
  let x = first;
  let isFirst = true;
  while (at <= last && times[at] <= view.to) {
    let lowest = counts[at];
    const until = at < last ? toX(times[at + 1]) : end;
    let next = at + 1;
    if (until - x < 1 && at < last) {
      // Of the counts within a pixel, the lowest: it is the one that stalls.
      next = Math.max(next, lowerBound(times.length, (k) => times[k], toTime(x + 1)));
      for (let k = at + 1; k < next && k < at + 64; k += 1) lowest = Math.min(lowest, counts[k]);
    }
    const level = y + height - (lowest / most) * height;
    if (isFirst) steps.moveTo(x, level);
    else steps.lineTo(x, level);
    isFirst = false;
    x = Math.max(x, next <= last ? Math.min(toX(times[next]), end) : end);
    steps.lineTo(x, level);
    at = next;
  }
  const area = new Path2D(steps);
  area.lineTo(x, y + height);
  area.lineTo(first, y + height);
  area.closePath();
  pen.fillStyle = colours['credit-fill'];
  pen.fill(area);
  pen.strokeStyle = colours.credit;
  pen.lineWidth = 1;
  pen.stroke(steps);
}

/** A line from the departure of a message to its delivery */
function flow(i, colour) {
  const from = rowOfQp.get(messages.qp[i]);
  const to = messages.to[i] ? rowOfQp.get(messages.to[i] - 1) : null;
  if (!from || !to || !(messages.delivered[i] >= 0) || !(messages.left[i] >= 0)) return;
  const [x, end] = [toX(messages.left[i]), toX(messages.delivered[i])];
  const [y, far] = [top(from) + from.frameTop + 3, top(to) + to.frameTop + 3];
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x, y);
  pen.bezierCurveTo(x, (y + far) / 2, end, (y + far) / 2, end, far);
  pen.stroke();
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(end, far, 2.5, 0, 7);
  pen.fill();
}

/** Flows of the messages in view, if they are few */
function flows() {
  const seen = new Set(hits.filter((hit) => hit.kind === KIND.MESSAGE).map((hit) => hit.i));
  if (seen.size > 60) return;
  pen.globalAlpha = 0.55;
  for (const i of seen) flow(i, colours.flow);
  pen.globalAlpha = 1;
}

function selection() {
  if (!selected) return;
  const hit = hits.find((one) => one.kind === selected.kind && one.i === selected.i);
  if (hit) {
    pen.strokeStyle = colours.select;
    pen.lineWidth = 2;
    pen.strokeRect(hit.x - 0.5, hit.y - 1, hit.width + 1, hit.height + 1);
  }
  if (selected.kind === KIND.MESSAGE) flow(selected.i, colours.select);
}
