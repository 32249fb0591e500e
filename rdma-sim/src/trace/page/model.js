// The run: the columns of the data, and the rows in which they are drawn

const data = JSON.parse(document.getElementById('data').textContent);
const OUTCOME = { DELIVERED: 0, LOST: 1, FAILED: 2, DROPPED: 3, UNFINISHED: 4 };
const KIND = { MESSAGE: 'message', STALL: 'stall', FAULT: 'fault', STATE: 'state', REMARK: 'remark', MARK: 'mark' };
const LOOK = { STATE: 0, HOLDS: 1, HOLDS_NOT: 2, VIOLATED: 3 };
const MAX_LANES = 12;

/** Times that each count from the one before it */
function sums(differences) {
  let sum = 0;
  return Float64Array.from(differences, (difference) => (sum += difference));
}

const messages = {
  count: data.messages.qp.length,
  ...data.messages,
  posted: sums(data.messages.posted),
};
messages.end = Float64Array.from(data.messages.end, (length, i) => messages.posted[i] + length);
for (const name of ['first', 'left', 'sent', 'delivered', 'dropped']) {
  messages[name] = Float64Array.from(data.messages[name], (since, i) => (since ? messages.posted[i] + since - 1 : NaN));
}

const frames = { count: data.frames.qp.length, ...data.frames, start: sums(data.frames.start) };
frames.end = Float64Array.from(data.frames.length, (length, i) => frames.start[i] + length);

const stalls = { count: data.stalls.qp.length, ...data.stalls, start: sums(data.stalls.start) };
stalls.end = Float64Array.from(data.stalls.length, (length, i) => (length ? stalls.start[i] + length - 1 : data.end));

/** What the program states of itself */
const marks = { count: data.marks.at.length, ...data.marks, at: sums(data.marks.at) };
const markText = (i) => marks.texts[marks.text[i]];
const markHost = (i) => (marks.host[i] ? data.hosts[marks.host[i] - 1] : 'the test');

const statuses = new Map(data.statuses);
const faultEnd = (fault) => fault.end ?? data.end;
const stateEnd = (state) => state.end ?? data.end;

// ─── Names ───

const portName = (port) => (data.ports[port] ? `${data.hosts[data.ports[port].host]}:${data.ports[port].device}` : `port ${port}`);
const hex = (number) => `0x${number.toString(16).padStart(4, '0')}`;
const qpName = (qp) => `${portName(data.qps[qp].port)} qp ${hex(data.qps[qp].qpn)}`;

/** A number with its thousands separated */
const grouped = (number) => String(Math.round(number)).replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
const plural = (number, one, many = `${one}s`) => `${grouped(number)} ${number === 1 ? one : many}`;

const UNITS = [['s', 1e9], ['ms', 1e6], ['µs', 1e3], ['ns', 1]];

/** Nanoseconds in a unit that suits them, with up to `digits` digits behind the point */
function duration(ns, digits = 3) {
  const [unit, size] = UNITS.find(([, size]) => Math.abs(ns) >= size) ?? UNITS[3];
  return `${Number((ns / size).toFixed(unit === 'ns' ? 0 : digits))}\u202f${unit}`;
}

/** A time of the run, exact to the nanosecond */
const exact = (ns) => duration(ns, 9);

// ─── Lists by queue pair ───

function byQueuePair(list, of) {
  const lists = data.qps.map(() => []);
  for (let i = 0; i < list.count; i += 1) lists[of(i)].push(i);
  return lists;
}

/** Messages side by side: those of one lane do not overlap, unless there are too many lanes */
function lanes(numbers) {
  const free = [];
  const found = [];
  for (const i of numbers) {
    let lane = free.findIndex((end) => end <= messages.posted[i]);
    if (lane < 0 && free.length < MAX_LANES) lane = free.push(0) - 1;
    if (lane < 0) lane = free.indexOf(Math.min(...free));
    free[lane] = messages.end[i];
    (found[lane] ??= []).push(i);
  }
  return found;
}

const sent = byQueuePair(messages, (i) => messages.qp[i]);
const left = byQueuePair(frames, (i) => frames.qp[i]);
const waited = byQueuePair(stalls, (i) => stalls.qp[i]);
const marksOf = new Map();
for (let i = 0; i < marks.count; i += 1) {
  if (!marksOf.has(marks.host[i])) marksOf.set(marks.host[i], []);
  marksOf.get(marks.host[i]).push(i);
}
const arrived = data.qps.map(() => []);
for (let i = 0; i < messages.count; i += 1) {
  if (messages.to[i] && messages.delivered[i] >= 0) arrived[messages.to[i] - 1].push(i);
}
arrived.forEach((list) => list.sort((a, b) => messages.delivered[a] - messages.delivered[b]));

// ─── Rows ───

const rows = [];
const rowOfQp = new Map();
const rowOfPort = new Map();
const rowOfHost = new Map();
const rowOfCable = new Map();
const rowOfMarks = new Map();
let faultRow = null;
let total = 0;

function addRow(row) {
  row.y = total;
  total += row.height;
  rows.push(row);
  return row;
}

/** Intervals in as few lines as have room for them */
function packed(list, start, end) {
  const free = [];
  return list.map((one) => {
    let line = free.findIndex((until) => until <= start(one));
    if (line < 0) line = free.push(0) - 1;
    free[line] = Math.max(end(one), start(one) + data.end / 200);
    return line;
  });
}

const LINE = 19;

/** A row for what is stated on a host, or by the test outside of all hosts: states, and statements below them */
function addMarks(host, head) {
  const list = marksOf.get(host);
  if (!list) return;
  const isState = (i) => markText(i).look === LOOK.STATE;
  const lists = [list.filter(isState), list.filter((i) => !isState(i))].filter((one) => one.length);
  const violations = list.filter((i) => markText(i).look === LOOK.VIOLATED);
  rowOfMarks.set(host, addRow({ kind: 'marks', label: host ? 'program' : 'The test', host, lists, violations, top: head + 4, height: head + lists.length * LINE + 8 }));
}

/** Places the rows; on a narrow screen, names stand above what they name */
function layOut(isNarrow) {
  rows.length = 0;
  total = 4;
  const head = isNarrow ? 17 : 0;
  if (data.faults.length + data.remarks.length) {
    const list = [
      ...data.faults.map((fault, i) => ({ kind: KIND.FAULT, i, start: fault.start, end: faultEnd(fault), text: fault.text })),
      ...data.remarks.map(([at, text], i) => ({ kind: KIND.REMARK, i, start: at, end: at, text })),
    ].sort((a, b) => a.start - b.start);
    packed(list, (one) => one.start, (one) => one.end).forEach((line, i) => { list[i].line = Math.min(line, 7); });
    const lines = Math.max(...list.map((one) => one.line)) + 1;
    faultRow = addRow({ kind: 'faults', label: 'Faults', list, top: head + 4, height: head + lines * 19 + 8 });
  }
  addMarks(0, head);
  const changed = new Set(data.states.filter((state) => state.of === 'cable').map((state) => state.subject));
  data.cables.forEach((name, cable) => {
    if (data.cables.length > 8 && !changed.has(cable)) return;
    const states = data.states.filter((state) => state.of === 'cable' && state.subject === cable);
    rowOfCable.set(cable, addRow({ kind: 'cable', cable, label: name, sub: 'cable', states, top: head + 5, height: head + 22 }));
  });
  data.hosts.forEach((name, host) => {
    const section = addRow({ kind: 'host', host, label: name, height: 30, states: data.states.filter((state) => state.of === 'host' && state.subject === host) });
    rowOfHost.set(host, section);
    addMarks(host + 1, head);
    data.ports.forEach((port, number) => {
      if (port.host !== host) return;
      const qps = data.qps.map((qp, i) => i).filter((qp) => data.qps[qp].port === number);
      const states = data.states.filter((state) => state.of === 'port' && state.subject === number);
      if (!qps.length && !states.length) return;
      qps.sort((a, b) => data.qps[a].qpn - data.qps[b].qpn);
      const far = data.ports.findIndex((other, i) => i !== number && other.cable !== null && other.cable === port.cable);
      const sub = far >= 0 ? `cable to ${portName(far)}` : 'no cable';
      rowOfPort.set(number, addRow({ kind: 'port', port: number, label: port.device, sub, states, height: 26 }));
      qps.forEach((qp) => {
        const held = lanes(sent[qp]);
        const lane = Math.max(4, Math.min(11, Math.floor(96 / Math.max(1, held.length))));
        const top = head + 4;
        const frameTop = top + held.length * lane + 2;
        const hasCredits = data.qps[qp].credits[0].length > 0;
        const creditTop = frameTop + 10;
        const height = Math.max(creditTop + (hasCredits ? 16 : 0) + 6, isNarrow ? 0 : 42);
        const peer = data.qps[qp].peer;
        const row = { kind: 'qp', qp, label: `qp ${hex(data.qps[qp].qpn)}`, sub: peer === null ? '' : `→ ${qpName(peer)}`, lanes: held, lane, top, frameTop, creditTop: hasCredits ? creditTop : 0, height };
        rowOfQp.set(qp, addRow(row));
      });
    });
    section.bottom = total;
  });
  total += 24;
}

const creditSteps = data.qps.map((qp) => ({ times: sums(qp.credits[0]), counts: qp.credits[1], most: Math.max(1, ...highest(qp.credits[1])) }));

/** The greatest number of a long list, as a list */
function highest(list) {
  let most = 0;
  for (const number of list) if (number > most) most = number;
  return [most];
}

/** The first position of an ascending list whose value is at least `value` */
function lowerBound(count, valueAt, value) {
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (valueAt(middle) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// ─── Items: what can be selected and found ───

/** Every item in the order of time: its kind and its number */
const items = [];
for (let i = 0; i < messages.count; i += 1) items.push({ kind: KIND.MESSAGE, i, at: messages.posted[i] });
for (let i = 0; i < stalls.count; i += 1) items.push({ kind: KIND.STALL, i, at: stalls.start[i] });
data.faults.forEach((fault, i) => items.push({ kind: KIND.FAULT, i, at: fault.start }));
data.states.forEach((state, i) => items.push({ kind: KIND.STATE, i, at: state.start }));
data.remarks.forEach(([at], i) => items.push({ kind: KIND.REMARK, i, at }));
for (let i = 0; i < marks.count; i += 1) items.push({ kind: KIND.MARK, i, at: marks.at[i] });
items.sort((a, b) => a.at - b.at);

function stateName(state) {
  if (state.of === 'cable') return `cable ${data.cables[state.subject]}`;
  if (state.of === 'port') return `port ${portName(state.subject)}`;
  return `processes of ${data.hosts[state.subject]}`;
}

/** What an item is, in one line */
function title({ kind, i }) {
  switch (kind) {
    case KIND.MESSAGE: return `${messages.flags[i] & 1 ? 'Operation' : 'Message'} of ${plural(messages.bytes[i], 'byte')}`;
    case KIND.STALL: return `Stall of ${duration(stalls.end[i] - stalls.start[i])}`;
    case KIND.FAULT: return data.faults[i].text;
    case KIND.STATE: return `${stateName(data.states[i])}: ${data.states[i].text}`;
    case KIND.MARK: return markText(i).text;
    default: return data.remarks[i][1];
  }
}

/** Where an item is, and what became of it */
function subtitle({ kind, i }) {
  switch (kind) {
    case KIND.MESSAGE: {
      const to = messages.to[i] ? ` → ${qpName(messages.to[i] - 1)}` : '';
      return `${qpName(messages.qp[i])}${to} · ${data.outcomes[messages.outcome[i]]}${messages.stall[i] ? ' · stalled' : ''}`;
    }
    case KIND.STALL: return `${qpName(stalls.qp[i])} · ${data.waits[stalls.why[i]]}`;
    case KIND.FAULT: return 'fault';
    case KIND.MARK: return markHost(i);
    case KIND.STATE: return data.states[i].fault === null ? 'state' : `state · ${data.faults.length ? 'after a fault' : ''}`;
    default: return 'remark';
  }
}

/** Bytes for people: printable letters of ASCII, and a dot for each other byte */
const asText = (bytes) => bytes.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '·')).join('');
const beginning = (i) => (messages.beginning[i].match(/../g) ?? []).map((digits) => parseInt(digits, 16));

/** All that a search looks at */
const searched = (item) => `${item.kind} ${title(item)} ${subtitle(item)} ${item.kind === KIND.MESSAGE ? asText(beginning(item.i)) : ''}`.toLowerCase();

/** Whether something went wrong with a message; one that was under way when the run ended has only had no time */
const isWrong = (i) => messages.outcome[i] !== OUTCOME.DELIVERED && messages.outcome[i] !== OUTCOME.UNFINISHED;

/** From when to when an item lasts */
function extent({ kind, i }) {
  switch (kind) {
    case KIND.MESSAGE: return [messages.posted[i], messages.end[i]];
    case KIND.STALL: return [stalls.start[i], stalls.end[i]];
    case KIND.FAULT: return [data.faults[i].start, faultEnd(data.faults[i])];
    case KIND.STATE: return [data.states[i].start, stateEnd(data.states[i])];
    case KIND.MARK: return [marks.at[i], marks.at[i]];
    default: return [data.remarks[i][0], data.remarks[i][0]];
  }
}

/** The row in which an item is drawn */
function rowOf({ kind, i }) {
  switch (kind) {
    case KIND.MESSAGE: return rowOfQp.get(messages.qp[i]);
    case KIND.STALL: return rowOfQp.get(stalls.qp[i]);
    case KIND.MARK: return rowOfMarks.get(marks.host[i]);
    case KIND.STATE: {
      const { of, subject } = data.states[i];
      return { cable: rowOfCable, port: rowOfPort, host: rowOfHost }[of].get(subject);
    }
    default: return faultRow;
  }
}

/** The fault for which a span of the run stands, by its number in the plan */
const faultNumbers = new Map(data.faults.map((fault, i) => [fault.number, i]));
