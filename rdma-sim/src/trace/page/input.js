// Pointers and keys

const pointers = new Map();
let pressed = null;

const point = (event) => {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
};

/** The item at a point: the smallest of those drawn there, a little beside it if need be */
function itemAt({ x, y }, slack) {
  let best = null;
  for (const hit of hits) {
    const dx = Math.max(hit.x - x, 0, x - hit.x - hit.width);
    const dy = Math.max(hit.y - y, 0, y - hit.y - hit.height);
    if (dx > slack || dy > slack) continue;
    const cost = (dx + dy) * 1e6 + hit.width * hit.height;
    if (!best || cost < best.cost) best = { cost, kind: hit.kind, i: hit.i };
  }
  return best && { kind: best.kind, i: best.i };
}

canvas.addEventListener('pointerdown', (event) => {
  if (event.button > 0) return;
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, point(event));
  pressed = pointers.size === 1 ? { ...point(event), isDrag: false } : null;
});

canvas.addEventListener('pointermove', (event) => {
  const before = pointers.get(event.pointerId);
  const now = point(event);
  if (!before) {
    canvas.style.cursor = itemAt(now, 2) ? 'pointer' : '';
    return;
  }
  if (pointers.size === 2) {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    const distance = (at) => Math.max(20, Math.hypot(at.x - other.x, at.y - other.y));
    zoom(distance(before) / distance(now), (now.x + other.x) / 2);
    const share = (before.x - now.x) / 2 / (view.width - view.gutter);
    pan(share);
  } else if (pressed) {
    if (Math.hypot(now.x - pressed.x, now.y - pressed.y) > 5) pressed.isDrag = true;
    if (pressed.isDrag) {
      canvas.classList.add('dragging');
      chart.scrollTop -= now.y - before.y;
      pan((before.x - now.x) / (view.width - view.gutter));
    }
  }
  pointers.set(event.pointerId, now);
});

function release(event) {
  if (event.type === 'pointerup' && pressed && !pressed.isDrag && pointers.size === 1) {
    select(itemAt(point(event), event.pointerType === 'mouse' ? 3 : 14));
  }
  pointers.delete(event.pointerId);
  if (!pointers.size) canvas.classList.remove('dragging');
  pressed = null;
}
canvas.addEventListener('pointerup', release);
canvas.addEventListener('pointercancel', release);
canvas.addEventListener('dblclick', (event) => {
  const item = itemAt(point(event), 3);
  if (item) reveal(item, true);
  else zoom(0.25, point(event).x);
});

canvas.addEventListener('wheel', (event) => {
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
  if (event.shiftKey && !event.ctrlKey) chart.scrollTop += dy || dx;
  else if (Math.abs(dx) > Math.abs(dy)) pan(dx / (view.width - view.gutter));
  else zoom(Math.exp(Math.max(-120, Math.min(120, dy)) * (event.ctrlKey ? 0.01 : 0.0025)), point(event).x);
}, { passive: false });

chart.addEventListener('scroll', redraw);

// ─── The overview ───

function moveTo(event) {
  const box = overview.getBoundingClientRect();
  const middle = all.from + ((event.clientX - box.left) / box.width) * (all.to - all.from);
  const half = (view.to - view.from) / 2;
  show(middle - half, middle + half);
}
overview.addEventListener('pointerdown', (event) => {
  overview.setPointerCapture(event.pointerId);
  moveTo(event);
});
overview.addEventListener('pointermove', (event) => {
  if (event.buttons) moveTo(event);
});
overview.addEventListener('wheel', (event) => {
  event.preventDefault();
  zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.0025));
}, { passive: false });

// ─── Keys ───

const searchBox = document.getElementById('search');

const keys = {
  '+': () => zoom(0.6),
  '=': () => zoom(0.6),
  '-': () => zoom(1 / 0.6),
  '0': showAll,
  Home: showAll,
  ArrowLeft: () => pan(-0.12),
  ArrowRight: () => pan(0.12),
  ArrowUp: () => { chart.scrollTop -= 60; },
  ArrowDown: () => { chart.scrollTop += 60; },
  PageUp: () => { chart.scrollTop -= chart.clientHeight * 0.8; },
  PageDown: () => { chart.scrollTop += chart.clientHeight * 0.8; },
  n: () => step(1),
  p: () => step(-1),
  Enter: () => { if (selected) reveal(selected, true); },
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape') {
    // The browser would clear the search by itself, and say nothing of it.
    event.preventDefault();
    if (selected) select(null);
    else if (searchBox.value) {
      searchBox.value = '';
      runSearch('');
    }
    canvas.focus();
    return;
  }
  if (event.target === searchBox) {
    if (event.key === 'Enter') step(event.shiftKey ? -1 : 1);
    return;
  }
  if (event.key === '/') {
    event.preventDefault();
    searchBox.focus();
    return;
  }
  const isButton = event.target.closest?.('button');
  const act = keys[event.key];
  if (!act || isButton && event.key === 'Enter') return;
  event.preventDefault();
  act();
});

let typing = 0;
searchBox.addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(() => runSearch(searchBox.value), items.length > 50_000 ? 250 : 60);
});

const click = (id, act) => document.getElementById(id).addEventListener('click', act);
click('in', () => zoom(0.5));
click('out', () => zoom(2));
click('fit', showAll);
click('next', () => step(1));
click('previous', () => step(-1));
click('help', (event) => {
  const isOpen = event.currentTarget.getAttribute('aria-expanded') === 'true';
  event.currentTarget.setAttribute('aria-expanded', String(!isOpen));
  legend.classList.toggle('open', !isOpen);
  legend.classList.toggle('closed', isOpen && view.isNarrow);
  showDetails();
  resize();
});
