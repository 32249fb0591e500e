// What is in view: from when to when, how far down, and how large

const canvas = document.getElementById('canvas');
const chart = document.getElementById('chart');
const overview = document.getElementById('overview');
const spacer = document.getElementById('height');

const AXIS = 30;
const LEAST_SPAN = 20;
const view = { from: 0, to: 1, width: 0, height: 0, gutter: 0, scale: 1, isNarrow: false };
const start = Math.min(data.cut, data.end);
const all = { from: start, to: Math.max(data.end, start + LEAST_SPAN) };
/** A little room on both sides, so that what is at an edge can be seen */
const margin = (all.to - all.from) * 0.02;

const toX = (time) => view.gutter + ((time - view.from) / (view.to - view.from)) * (view.width - view.gutter);
const toTime = (x) => view.from + ((x - view.gutter) / (view.width - view.gutter)) * (view.to - view.from);

let isQueued = false;

/** Draws soon, once for all changes until then */
function redraw() {
  if (isQueued) return;
  isQueued = true;
  requestAnimationFrame(() => {
    isQueued = false;
    draw();
  });
}

/** Shows a time range, within what there is */
function show(from, to) {
  const most = all.to - all.from + 2 * margin;
  const span = Math.min(Math.max(to - from, LEAST_SPAN), most);
  const middle = (from + to) / 2;
  view.from = Math.min(Math.max(middle - span / 2, all.from - margin), all.to + margin - span);
  view.to = view.from + span;
  redraw();
}

const showAll = () => show(all.from - margin, all.to + margin);

/** Zooms by a factor; the time at `x` stays where it is */
function zoom(factor, x = (view.gutter + view.width) / 2) {
  const at = toTime(Math.max(x, view.gutter));
  show(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

/** Moves by a share of what is in view */
function pan(share) {
  const by = (view.to - view.from) * share;
  show(view.from + by, view.to + by);
}

/** Brings an item into view; with `closer`, fills the view with it */
function reveal(item, closer = false) {
  const [from, to] = extent(item);
  const length = Math.max(to - from, LEAST_SPAN);
  const span = view.to - view.from;
  if (closer) show(from - length * 0.4, to + length * 0.4);
  else if (from < view.from || from > view.to - span * 0.05) show(from - span * 0.3, from + span * 0.7);
  const row = rowOf(item);
  if (!row) return;
  const free = chart.clientHeight - AXIS;
  if (row.y < chart.scrollTop) chart.scrollTop = Math.max(0, row.y - 30);
  else if (row.y + row.height > chart.scrollTop + free) chart.scrollTop = row.y + Math.min(row.height, free) - free + 12;
  redraw();
}

/** Fits both canvases to the window */
function resize() {
  const { clientWidth: width, clientHeight: height } = chart;
  view.isNarrow = width < 620;
  view.gutter = view.isNarrow ? 0 : Math.min(230, width * 0.26);
  view.scale = window.devicePixelRatio || 1;
  Object.assign(view, { width, height });
  layOut(view.isNarrow);
  spacer.style.height = `${Math.max(total + AXIS, height)}px`;
  canvas.style.height = `${height}px`;
  for (const one of [canvas, overview]) {
    one.width = Math.round(one.clientWidth * view.scale);
    one.height = Math.round((one === canvas ? height : one.clientHeight) * view.scale);
  }
  redraw();
}

// ─── The axis ───

const STEPS = [1, 2, 5];

/** The smallest round step of which at most `count` fit */
function stepFor(span, count) {
  const raw = Math.max(span / count, 1);
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = STEPS.find((factor) => factor * size >= raw * 0.999) ?? 10;
  return step * size;
}

/** Times to mark, with their labels; and the time from which labels count, if they do not count from the start */
function ticks() {
  const span = view.to - view.from;
  const step = stepFor(span, Math.max(2, (view.width - view.gutter) / 105));
  const first = Math.max(0, Math.ceil(view.from / step) * step);
  // Far from the start, and close: labels would be too long, and differ in their last digits only.
  const isFar = first / step >= 10_000;
  const base = isFar ? Math.floor(first / (step * 100)) * step * 100 : 0;
  const marks = [];
  for (let time = first; time <= Math.min(view.to, all.to + step); time += step) {
    marks.push({ time, label: isFar ? `+${duration(time - base, 6)}` : time === 0 ? '0' : duration(time, 6) });
  }
  return { marks, step, base };
}

// ─── Colours ───

const colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['page', 'raised', 'sunken', 'line', 'text', 'muted', 'accent', 'delivered', 'queued', 'frame', 'stall', 'credit', 'credit-fill', 'fault', 'fault-fill', 'lost', 'failed', 'dropped', 'unfinished', 'state', 'state-fill', 'select', 'flow', 'mark', 'holds']) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
  colours.outcomes = [colours.delivered, colours.lost, colours.failed, colours.dropped, colours.unfinished];
  colours.marks = [colours.mark, colours.holds, colours.muted, colours.lost];
  hatchings.clear();
}

const hatchings = new Map();

/** A hatching in a colour, so that colour is never the only difference */
function hatching(context, colour) {
  const known = hatchings.get(colour);
  if (known) return known;
  const tile = document.createElement('canvas');
  tile.width = tile.height = 6 * view.scale;
  const pen = tile.getContext('2d');
  pen.scale(view.scale, view.scale);
  pen.strokeStyle = colour;
  pen.lineWidth = 1.4;
  pen.beginPath();
  for (const x of [-6, 0, 6]) {
    pen.moveTo(x - 1, 7);
    pen.lineTo(x + 7, -1);
  }
  pen.stroke();
  const pattern = context.createPattern(tile, 'repeat');
  pattern.setTransform(new DOMMatrix().scale(1 / view.scale));
  hatchings.set(colour, pattern);
  return pattern;
}
