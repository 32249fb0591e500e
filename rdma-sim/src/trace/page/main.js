// The start

const summary = document.getElementById('summary');
let wrong = 0;
let underWay = 0;
for (let i = 0; i < messages.count; i += 1) {
  if (isWrong(i)) wrong += 1;
  else if (messages.outcome[i] === OUTCOME.UNFINISHED) underWay += 1;
}
summary.textContent = [
  `${duration(data.end)} of virtual time`,
  plural(data.hosts.length, 'host'),
  plural(data.cables.length, 'cable'),
  `${plural(messages.count, 'message')}${wrong ? `, ${grouped(wrong)} not delivered` : ''}${underWay ? `, ${grouped(underWay)} under way when the run ended` : ''}`,
  plural(data.faults.length, 'fault'),
].join(' · ');

// The last remark says why the run failed, if it did.
const reason = document.getElementById('reason');
if (data.remarks.length) {
  const last = data.remarks.length - 1;
  reason.hidden = false;
  reason.append(make('span', {}, data.remarks[last][1]));
  reason.addEventListener('click', () => select({ kind: KIND.REMARK, i: last }));
}

const notice = document.getElementById('cut');
if (!data.records) {
  notice.hidden = false;
  notice.textContent = 'There are no records: nothing happened, or the run did not keep them.';
} else if (data.cut) {
  notice.hidden = false;
  notice.textContent = `The run has ${grouped(data.records)} records. Messages, frames and stalls that were over before ${duration(data.cut, 6)} are left out.`;
}

if (window.matchMedia('(max-width: 760px)').matches) {
  legend.classList.add('closed');
  searchBox.placeholder = 'Search';
}
document.body.dataset.counts = JSON.stringify({
  records: data.records,
  messages: messages.count,
  frames: frames.count,
  stalls: stalls.count,
  faults: data.faults.length,
  marks: marks.count,
  wrong,
  underWay,
});

readColours();
resize();
drawLegend();
showAll();
// A link to a moment: #from=4990000&to=5020000&find=lost, in nanoseconds.
const moment = new URLSearchParams(location.hash.slice(1));
if (moment.has('from') && moment.has('to')) show(Number(moment.get('from')), Number(moment.get('to')));
if (moment.has('find')) {
  searchBox.value = moment.get('find');
  runSearch(searchBox.value);
}
showDetails();
draw();
new ResizeObserver(resize).observe(chart);
window.addEventListener('resize', () => {
  readColours();
  resize();
});
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  readColours();
  drawLegend();
  select(selected);
});
document.body.dataset.ready = 'yes';
