// What the program states: a tick each, with its text where there is room

const MOST_TEXTS = 4;
/** How many marks of one pixel are looked at for its text */
const MOST_MARKS = 64;
/** The labels of the last drawing, for tests: text, colour, left and right end, and the place of the tick */
const labels = [];

/**
 * The text of a mark, with those of the marks behind it in its pixel that have the same outcome; others stay apart, so that what holds
 * does not read as what does not
 */
function markTexts(list, i, next = Infinity) {
  const first = lowerBound(list.length, (k) => list[k], i);
  const texts = new Set();
  let isMore = false;
  for (let k = first; k < list.length && (k === first || list[k] < next && toX(marks.at[list[k]]) < toX(marks.at[i]) + 3); k += 1) {
    const { text: string, look } = markText(list[k]);
    const isShown = look === markText(i).look && (texts.has(string) || texts.size < MOST_TEXTS);
    if (isShown) texts.add(string);
    else isMore = true;
    if (k - first === MOST_MARKS || isMore && texts.size === MOST_TEXTS) {
      isMore = true;
      break;
    }
  }
  return [...texts, ...(isMore ? ['…'] : [])].join(', ');
}

const isViolation = (i) => markText(i).look === LOOK.VIOLATED;

/** The marks of a line that are drawn: of those that share a pixel, one, and each violation */
function shownMarks(row, list, isLast) {
  const shown = [];
  const at = (i) => marks.at[i];
  spans(list, at, at, 3, (i, x) => shown.push({ i, x }));
  for (const i of isLast ? row.violations : []) {
    if (at(i) >= view.from && at(i) <= view.to && !shown.some((one) => one.i === i)) shown.push({ i, x: toX(at(i)) });
  }
  return shown.sort((a, b) => a.x - b.x || a.i - b.i);
}

/** Draws the text of a mark that stands between two places; what is below it shows through faintly */
function markLabel({ i, x }, string, from, to, y) {
  const colour = [colours.text, colours.text, colours.muted, colours.lost][markText(i).look];
  pen.globalAlpha = isViolation(i) ? 0.82 : 0;
  pen.fillStyle = colours.page;
  pen.fillRect(from - 2, y, to - from + 4, 16);
  pen.globalAlpha = isDim(KIND.MARK, i) ? 0.25 : 1;
  text(string, from, y + 8.5, colour, to - from + 1);
  pen.globalAlpha = 1;
  labels.push([string, colour, from, to, x]);
}

function marksRow(row) {
  row.lists.forEach((list, line) => {
    const y = top(row) + row.top + line * LINE;
    const shown = shownMarks(row, list, line === row.lists.length - 1);
    for (const { i, x } of [...shown].sort((a, b) => isViolation(a.i) - isViolation(b.i))) {
      const { look } = markText(i);
      pen.globalAlpha = isDim(KIND.MARK, i) ? 0.25 : 1;
      pen.fillStyle = colours.marks[look];
      if (look === LOOK.HOLDS_NOT) pen.fillRect(x, y + 6, 3, 4);
      else pen.fillRect(x, y, look === LOOK.VIOLATED ? 5 : 3, 16);
      pen.globalAlpha = 1;
    }
    pen.font = FONT;
    const widthOf = (string) => pen.measureText(string).width;
    const hit = (i, from, to) => hits.push({ kind: KIND.MARK, i, x: from, y, width: Math.max(9, Math.min(to - from, 120)), height: 16 });

    // A violation has its text before all others, over ticks if it must be: behind its tick, or before it at the end of the run.
    const taken = [];
    const violations = shown.filter(({ i }) => isViolation(i));
    violations.forEach((one, position) => {
      const { i, x } = one;
      const string = markTexts(list, i);
      const width = widthOf(string);
      const [behind, before] = [(violations[position + 1]?.x ?? view.width) - x - 14, x - (taken.at(-1)?.to ?? view.gutter) - 14];
      const isBehind = width <= behind || behind >= before;
      const most = Math.min(width, isBehind ? behind : before);
      taken.push({ from: isBehind ? x - 3 : x - 8 - most, to: isBehind ? x + 8 + most : x + 5 });
      if (most > 14) markLabel(one, string, isBehind ? x + 8 : x - 6 - most, isBehind ? x + 8 + most : x - 6, y);
    });

    // The pointer finds them first.
    violations.forEach(({ i, x }) => hit(i, x - 3, x + 6));

    // The last one shares the room before it with the one there, if it has none behind it.
    const last = shown.at(-1);
    let isLabelled = false;
    if (last && !isViolation(last.i)) {
      const string = markTexts(list, last.i);
      const behind = view.width - last.x - 14;
      const gap = last.x - Math.max(shown.at(-2)?.x ?? view.gutter, taken.at(-1)?.to ?? view.gutter);
      const most = Math.min(widthOf(string), (shown.length > 1 ? gap / 2 : gap) - 12);
      isLabelled = widthOf(string) > behind && most > Math.max(behind, 14);
      if (isLabelled) {
        markLabel(last, string, last.x - 6 - most, last.x - 6, y);
        taken.push({ from: last.x - 8 - most, to: last.x + 3 });
      }
    }

    shown.forEach((one, position) => {
      const { i, x } = one;
      drawn.marks += 1;
      if (isViolation(i)) return;
      const next = shown[position + 1];
      const blocked = taken.find(({ to }) => to > x);
      if (blocked && blocked.from <= x + 8) {
        hit(i, x - 3, x + 6);
        return;
      }
      const room = Math.max(0, Math.min(next?.x ?? view.width, blocked?.from ?? view.width) - x - 6);
      const string = markTexts(list, i, next?.i);
      if (room > 18) markLabel(one, string, x + 8, x + 8 + Math.min(widthOf(string), room - 4), y);
      hit(i, x - 3, x - 3 + room);
    });
  });
}
