// The panel: legend, selection, matches; and the overview

const details = document.getElementById('details');
const results = document.getElementById('results');
const legend = document.getElementById('legend');
const found = document.getElementById('found');
let selected = null;

/** An element with attributes and children; text is never read as HTML */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(key, value);
    else if (value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// ─── Selection ───

function select(item, closer = false) {
  selected = item;
  showDetails();
  document.body.dataset.selected = item ? `${item.kind} ${item.i}` : '';
  for (const button of results.querySelectorAll('[aria-current]')) button.removeAttribute('aria-current');
  if (item) {
    const button = results.querySelector(`[data-item="${item.kind} ${item.i}"]`);
    button?.setAttribute('aria-current', 'true');
    if (view.isNarrow) legend.classList.add('closed');
    resize();
    reveal(item, closer);
    document.getElementById('panel').scrollTop = 0;
  } else {
    resize();
  }
}

/** What is selected; without a selection, what went wrong in the run */
function showDetails() {
  const isOpen = !view.isNarrow || legend.classList.contains('open');
  details.replaceChildren(...(selected ? describe(selected) : isOpen && !search.isOn ? describeRun() : []));
}

const link = (item, string) => make('button', { type: 'button', class: 'link', click: () => select(item) }, string);
const definition = (name, value) => [make('dt', {}, name), make('dd', {}, value)];
const faultItem = (number) => ({ kind: KIND.FAULT, i: faultNumbers.get(number) });

function describe(item) {
  const parts = {
    [KIND.MESSAGE]: describeMessage,
    [KIND.STALL]: describeStall,
    [KIND.FAULT]: describeFault,
    [KIND.STATE]: describeState,
    [KIND.MARK]: describeMark,
    [KIND.REMARK]: () => [make('p', {}, `At ${exact(data.remarks[item.i][0])}`)],
  }[item.kind](item.i);
  const buttons = make('div', { class: 'row' },
    make('button', { type: 'button', click: () => reveal(item, true) }, 'Zoom to it'),
    make('button', { type: 'button', click: () => step(-1) }, 'Previous'),
    make('button', { type: 'button', click: () => step(1) }, 'Next'),
    make('button', { type: 'button', click: () => { select(null); canvas.focus(); } }, 'Close'));
  return [make('h2', {}, title(item)), ...parts, buttons];
}

/** Why a message was late, or did not arrive, as sentences */
function causes(i) {
  const lines = [];
  const outcome = messages.outcome[i];
  const fault = messages.fault[i] ? faultItem(messages.fault[i] - 1) : null;
  if (outcome === OUTCOME.LOST) {
    lines.push(fault ? ['It was lost on the way.'] : ['It was lost: the peer had no receive for it.']);
  } else if (messages.dropped[i] >= 0 && outcome === OUTCOME.DROPPED) {
    const isSender = !(messages.sent[i] >= 0);
    lines.push([`${isSender ? 'Its queue pair' : 'The queue pair of its receive'} dropped it at ${exact(messages.dropped[i])}: ${data.endings[messages.why[i]]}.`]);
  } else if (outcome === OUTCOME.FAILED) {
    lines.push([messages.flags[i] & 2 ? 'A frame of it was damaged on the way.' : `It failed: ${statuses.get(messages.status[i])}.`]);
  }
  if (messages.stall[i]) {
    const stall = messages.stall[i] - 1;
    const length = messages.stalled[i] || stalls.end[stall] - stalls.start[stall];
    lines.push([`It waited ${duration(length)} for the peer: `, link({ kind: KIND.STALL, i: stall }, data.waits[stalls.why[stall]])]);
  }
  if (fault && fault.i !== undefined) lines.push(['The fault behind it: ', link(fault, data.faults[fault.i].text)]);
  return lines.map((line) => make('p', { class: 'cause' }, ...line));
}

function describeMessage(i) {
  const outcome = messages.outcome[i];
  const badge = make('span', { class: 'badge', style: `color:${colours.outcomes[outcome]}` }, data.outcomes[outcome]);
  const phases = [];
  const phase = (at, string, isBad = false) => { if (at >= 0) phases.push({ at, string, isBad }); };
  phase(messages.posted[i], 'posted');
  if (messages.stall[i]) phase(stalls.start[messages.stall[i] - 1], 'stalled', true);
  phase(messages.first[i], messages.flags[i] & 1 ? 'left' : 'first frame');
  if (!(messages.flags[i] & 1)) phase(messages.left[i], 'last frame had left');
  phase(messages.sent[i], 'send completed', messages.status[i] !== 0 && !messages.to[i]);
  phase(messages.delivered[i], 'receive completed', messages.status[i] !== 0);
  if (outcome === OUTCOME.DROPPED) phase(messages.dropped[i], 'dropped', true);
  phases.sort((a, b) => a.at - b.at);
  const list = phases.map(({ at, string, isBad }) => make('li', isBad ? { class: 'bad' } : {},
    make('span', {}, string),
    make('span', { title: exact(at) }, at === messages.posted[i] ? exact(at) : `+${duration(at - messages.posted[i])}`)));
  return [
    make('p', {}, badge, ` ${outcome === OUTCOME.UNFINISHED ? 'after' : 'in'} ${duration(messages.end[i] - messages.posted[i])}`),
    ...causes(i),
    make('ol', { class: 'phases' }, ...list),
    make('dl', {},
      ...definition('from', qpName(messages.qp[i])),
      ...(messages.to[i] ? definition('to', qpName(messages.to[i] - 1)) : []),
      ...definition('frames', grouped(Math.max(1, Math.ceil(messages.bytes[i] / 4096)))),
      ...definition('request', `0x${messages.id[i]}`),
      ...(messages.status[i] ? definition('status', statuses.get(messages.status[i])) : [])),
    ...describeBytes(i),
  ];
}

const BYTES_OF_LINE = 8;

/** How a message begins, as numbers and as text */
function describeBytes(i) {
  const bytes = beginning(i);
  if (!bytes.length) return [];
  const lines = [];
  for (let k = 0; k < bytes.length; k += BYTES_OF_LINE) {
    const part = bytes.slice(k, k + BYTES_OF_LINE);
    const digits = part.map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    lines.push(`${digits.padEnd(3 * BYTES_OF_LINE)} ${asText(part)}`);
  }
  return [
    make('h3', {}, messages.bytes[i] > bytes.length ? `First ${bytes.length} bytes, when it was posted` : 'Bytes, when it was posted'),
    make('pre', { class: 'bytes' }, lines.join('\n')),
  ];
}

function describeMark(i) {
  const { site } = markText(i);
  return [make('dl', {}, ...definition('at', exact(marks.at[i])), ...definition('on', markHost(i)), ...(site ? definition('in', site) : []))];
}

const MOST_LISTED = 8;

/** A list of items under a heading, cut after a few */
function listed(heading, list, note) {
  if (!list.length) return [];
  const shown = list.slice(0, MOST_LISTED);
  const rest = list.length - shown.length;
  return [
    make('h3', {}, heading),
    make('ul', { class: 'items' }, ...shown.map((item) => make('li', {}, link(item, title(item)), make('small', {}, note(item))))),
    rest > 0 ? make('p', { class: 'hint' }, `and ${grouped(rest)} more`) : null,
  ].filter(Boolean);
}

/** What to look at first */
function describeRun() {
  const remarks = data.remarks.map((remark, i) => ({ kind: KIND.REMARK, i }));
  const faults = data.faults.map((fault, i) => ({ kind: KIND.FAULT, i }));
  const bad = [];
  const underWay = [];
  for (let i = 0; i < messages.count; i += 1) {
    if (isWrong(i)) bad.push({ kind: KIND.MESSAGE, i });
    else if (messages.outcome[i] === OUTCOME.UNFINISHED) underWay.push({ kind: KIND.MESSAGE, i });
  }
  const longest = [];
  for (let i = 0; i < stalls.count; i += 1) longest.push({ kind: KIND.STALL, i });
  const length = ({ i }) => stalls.end[i] - stalls.start[i];
  longest.sort((a, b) => length(b) - length(a));
  return [
    ...listed('Remarks', remarks, ({ i }) => exact(data.remarks[i][0])),
    ...listed('Faults', faults, ({ i }) => (data.faults[i].end === null ? 'to the end' : data.faults[i].end > data.faults[i].start ? `lasts ${duration(data.faults[i].end - data.faults[i].start)}` : '')),
    ...listed('Not delivered', bad, (item) => `${exact(messages.posted[item.i])} · ${subtitle(item)}`),
    ...listed('Under way when the run ended', underWay, (item) => `${exact(messages.posted[item.i])} · ${subtitle(item)}`),
    ...listed('Longest stalls', longest.slice(0, 5), (item) => `${exact(stalls.start[item.i])} · ${subtitle(item)}`),
    data.records && !bad.length && !underWay.length && !remarks.length ? make('p', { class: 'hint' }, 'Every message was delivered.') : null,
  ].filter(Boolean);
}

function describeStall(i) {
  const message = stalls.message[i] ? { kind: KIND.MESSAGE, i: stalls.message[i] - 1 } : null;
  const fault = stalls.fault[i] ? faultItem(stalls.fault[i] - 1) : null;
  const ended = data.stalls.length[i] ? duration(stalls.end[i] - stalls.start[i]) : 'to the end of the run';
  return [
    make('p', {}, `${qpName(stalls.qp[i])} waits: ${data.waits[stalls.why[i]]}.`),
    fault ? make('p', { class: 'cause' }, 'The fault behind it: ', link(fault, data.faults[fault.i].text)) : null,
    make('dl', {}, ...definition('from', exact(stalls.start[i])), ...definition('lasts', ended)),
    message ? make('p', {}, 'It holds up: ', link(message, title(message))) : null,
  ].filter(Boolean);
}

function describeFault(i) {
  const fault = data.faults[i];
  const lasts = fault.end === null ? 'to the end of the run' : fault.end > fault.start ? duration(fault.end - fault.start) : 'a moment';
  let affected = 0;
  let first = null;
  for (let m = 0; m < messages.count; m += 1) {
    if (messages.fault[m] - 1 !== fault.number) continue;
    affected += 1;
    first ??= { kind: KIND.MESSAGE, i: m };
  }
  return [
    make('dl', {}, ...definition('fires at', exact(fault.start)), ...definition('lasts', lasts)),
    make('p', {}, affected ? `It delayed or ended ${plural(affected, 'message')}. ` : 'No message was delayed or ended by it.', first ? link(first, 'The first of them') : null),
  ];
}

function describeState(i) {
  const state = data.states[i];
  const fault = state.fault === null ? null : faultItem(state.fault);
  const lasts = state.end === null ? 'to the end of the run' : duration(state.end - state.start);
  return [
    fault ? make('p', { class: 'cause' }, 'The fault behind it: ', link(fault, data.faults[fault.i].text)) : null,
    make('dl', {}, ...definition('from', exact(state.start)), ...definition('lasts', lasts)),
  ].filter(Boolean);
}

// ─── Search ───

const search = {
  isOn: false,
  list: [],
  sets: {},
  has(kind, i) { return this.sets[kind]?.has(i) ?? false; },
};
const MOST_RESULTS = 60;

function runSearch(string) {
  // Words, or phrases in quotes.
  const words = (string.toLowerCase().match(/"[^"]+"|[^\s"]+/g) ?? []).map((word) => word.replaceAll('"', ''));
  search.isOn = words.length > 0;
  search.list = [];
  search.sets = {};
  if (search.isOn) {
    search.list = items.filter((item) => {
      const all = searched(item);
      return words.every((word) => all.includes(word));
    });
    for (const { kind, i } of search.list) (search.sets[kind] ??= new Set()).add(i);
  }
  document.body.classList.toggle('searching', search.isOn);
  document.body.dataset.found = search.isOn ? search.list.length : '';
  found.textContent = search.isOn ? grouped(search.list.length) : '';
  results.hidden = !search.isOn;
  const shown = search.list.slice(0, MOST_RESULTS).map((item) => make('li', {},
    make('button', { type: 'button', 'data-item': `${item.kind} ${item.i}`, click: () => select(item) },
      title(item), make('small', {}, `${exact(item.at)} · ${subtitle(item)}`))));
  const rest = search.list.length - shown.length;
  results.replaceChildren(
    make('h3', {}, search.list.length ? plural(search.list.length, 'match', 'matches') : 'No matches'),
    search.list.length ? make('ul', {}, ...shown) : make('p', { class: 'hint' }, 'Try a host, a port such as a:rdma_en2, or a word such as lost, stalled, fault, dropped.'),
    rest > 0 ? make('p', { class: 'hint' }, `and ${grouped(rest)} more, which are marked in the timeline`) : '');
  showDetails();
  resize();
}

/** Selects the next item in time, of the matches if there is a search */
function step(by) {
  const list = search.isOn ? search.list : items;
  if (!list.length) return;
  const at = selected ? list.findIndex((item) => item.kind === selected.kind && item.i === selected.i) : -1;
  if (at >= 0) return select(list[Math.min(Math.max(at + by, 0), list.length - 1)]);
  const next = lowerBound(list.length, (k) => list[k].at, selected ? extent(selected)[0] : view.from);
  return select(list[Math.min(Math.max(by > 0 ? next : next - 1, 0), list.length - 1)]);
}

// ─── Legend ───

const KEYS = [['+ −', 'zoom'], ['← →', 'move'], ['↑ ↓', 'scroll'], ['0', 'the whole run'], ['n p', 'next, previous event or match'], ['Enter', 'zoom to the selection'], ['Esc', 'close the selection'], ['/', 'search'], ['wheel, pinch', 'zoom where the pointer is'], ['drag', 'move']];

function swatch(paint) {
  const one = make('canvas', { 'aria-hidden': 'true' });
  one.width = 22 * view.scale;
  one.height = 12 * view.scale;
  const context = one.getContext('2d');
  context.scale(view.scale, view.scale);
  paint(context);
  return one;
}

function drawLegend() {
  const fill = (colour, edge) => (context) => {
    context.fillStyle = colour;
    context.fillRect(0, 1, 22, 10);
    context.fillStyle = edge ?? colour;
    context.fillRect(0, 1, 2, 10);
  };
  const hatched = (colour) => (context) => {
    context.fillStyle = hatching(context, colour);
    context.fillRect(0, 1, 22, 10);
    context.fillStyle = colour;
    context.fillRect(0, 1, 2, 10);
    context.fillRect(0, 10, 22, 1);
  };
  const message = (context) => {
    fill(colours.queued, colours.delivered)(context);
    context.fillStyle = colours.delivered;
    context.fillRect(9, 1, 8, 10);
  };
  const tick = (colour) => (context) => {
    context.fillStyle = colour;
    context.fillRect(9, 0, 3, 12);
  };
  const entries = [
    [message, 'message'], [fill(colours.frame), 'frames'], [hatched(colours.stall), 'stall, under way'],
    [fill(colours['credit-fill'], colours.credit), 'credits'], [fill(colours['fault-fill'], colours.fault), 'fault'],
    [hatched(colours.lost), 'lost'], [hatched(colours.failed), 'failed'], [hatched(colours.dropped), 'dropped'],
    [fill(colours['state-fill'], colours.state), 'cable, port, host'], [tick(colours.mark), 'state'], [tick(colours.holds), 'statement'],
  ];
  legend.replaceChildren(
    make('h3', {}, 'Legend'),
    make('ul', {}, ...entries.map(([paint, name]) => make('li', {}, swatch(paint), name))),
    make('table', {}, make('caption', { hidden: '' }, 'Keys'), ...KEYS.map(([key, what]) => make('tr', {}, make('td', {}, make('kbd', {}, key)), make('td', {}, what)))));
}

// ─── Overview ───

const BINS = 600;
const busy = new Float64Array(BINS);
const binOf = (time) => Math.min(BINS - 1, Math.max(0, Math.floor(((time - all.from) / (all.to - all.from)) * BINS)));
for (let i = 0; i < frames.count; i += 1) busy[binOf(frames.start[i])] += frames.bytes[i] + 256;
const busiest = Math.max(1, ...busy);

function drawOverview() {
  const width = overview.clientWidth;
  const height = overview.clientHeight;
  const brush = overview.getContext('2d');
  brush.setTransform(view.scale, 0, 0, view.scale, 0, 0);
  brush.fillStyle = colours.sunken;
  brush.fillRect(0, 0, width, height);
  const x = (time) => ((time - all.from) / (all.to - all.from)) * width;
  for (const fault of data.faults) {
    brush.fillStyle = colours['fault-fill'];
    brush.fillRect(x(fault.start), 0, Math.max(1, x(faultEnd(fault)) - x(fault.start)), height);
  }
  brush.fillStyle = colours.delivered;
  for (let i = 0; i < BINS; i += 1) {
    if (!busy[i]) continue;
    // A logarithm, so that single frames are seen beside a stream.
    const level = Math.max(2, (Math.log1p(busy[i]) / Math.log1p(busiest)) * (height - 12));
    brush.fillRect((i * width) / BINS, height - level, Math.max(1, width / BINS), level);
  }
  for (const fault of data.faults) {
    brush.fillStyle = colours.fault;
    brush.fillRect(x(fault.start) - 0.75, 0, 1.5, height);
  }
  brush.fillStyle = colours.lost;
  for (const time of problems.values()) brush.fillRect(x(time) - 1, 0, 2, 7);
  if (search.isOn) {
    brush.fillStyle = colours.accent;
    const seen = new Set();
    for (const { at } of search.list) {
      const pixel = Math.round(x(at));
      if (seen.has(pixel)) continue;
      seen.add(pixel);
      brush.fillRect(pixel - 1, height - 5, 2, 5);
    }
  }
  const [from, to] = [Math.max(0, x(view.from)), Math.min(width, x(view.to))];
  brush.fillStyle = colours.page;
  brush.globalAlpha = 0.62;
  brush.fillRect(0, 0, from, height);
  brush.fillRect(to, 0, width - to, height);
  brush.globalAlpha = 1;
  brush.strokeStyle = colours.accent;
  brush.lineWidth = 1.5;
  brush.strokeRect(from + 0.75, 0.75, Math.max(2, to - from - 1.5), height - 1.5);
}

/** When messages went wrong, one for each bin */
const problems = new Map();
for (let i = 0; i < messages.count; i += 1) {
  if (isWrong(i)) problems.set(binOf(messages.posted[i]), messages.posted[i]);
}
for (let i = 0; i < marks.count; i += 1) {
  if (markText(i).look === LOOK.VIOLATED) problems.set(binOf(marks.at[i]), marks.at[i]);
}
