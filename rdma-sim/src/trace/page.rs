//! A run as one self-contained page of HTML

mod columns;
mod marks;

use serde::Serialize;

use self::columns::{differences, hex, plus_one};
use self::marks::Marks;
use super::history::{Names, port_of, qpn_of};
use super::lines;
use super::record::{Ending, Wait};
use super::timeline::{Message, Outcome, Timeline};
use super::{History, Mark, RecordKind};

/// How many messages, frames, stalls and counts of credits a page shows: the last ones of a longer run
const MAX_ITEMS: usize = 400_000;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPTS: [&str; 7] = [
    include_str!("page/model.js"),
    include_str!("page/view.js"),
    include_str!("page/draw.js"),
    include_str!("page/marks.js"),
    include_str!("page/panel.js"),
    include_str!("page/input.js"),
    include_str!("page/main.js"),
];

impl History {
    /// The run as one page of HTML, which needs nothing else: no network, no other file
    ///
    /// It shows hosts, ports and cables by name, messages with what delayed or ended them and how they begin, faults, credits and stalls
    /// over time, and what the program states by `state!`, `sometimes!` and `always!`; it can be zoomed and searched. The last of the
    /// [remarks](Self::remarks) is in its head. Equal runs give equal pages. Of a very long run it shows the last part, and says so.
    ///
    /// ```
    /// use rdma_sim::Sim;
    ///
    /// let run = Sim::new().keep_records().run(async |_| ());
    /// let page = run.history.to_html("seed 7 <failed>");
    /// assert!(page.starts_with("<!doctype html>") && page.contains("<title>seed 7 &lt;failed&gt;</title>"));
    /// ```
    pub fn to_html(&self, title: &str) -> String {
        self.to_html_of(title, None, MAX_ITEMS)
    }

    /// The same with the line that repeats the run, and with a note if the run passed
    pub(crate) fn to_html_of_run(&self, title: &str, line: &str, has_passed: bool) -> String {
        self.to_html_of(title, Some(Repeat { line, has_passed }), MAX_ITEMS)
    }

    fn to_html_of(&self, title: &str, repeat: Option<Repeat<'_>>, max_items: usize) -> String {
        let data = Data::new(self, max_items);
        // A script in HTML ends at the first `</script`, wherever it stands.
        let data = serde_json::to_string(&data).unwrap_or_default().replace('<', "\\u003c");
        let mut page = String::with_capacity(data.len() + 80_000);
        let mut rest = PAGE;
        while let Some((before, after)) = rest.split_once("{{") {
            page.push_str(before);
            let Some((name, after)) = after.split_once("}}") else { break };
            match name {
                "title" => page.push_str(&escaped(title)),
                "repeat" => page.push_str(&repeat.map_or_else(String::new, Repeat::to_html)),
                "style" => page.push_str(STYLE),
                "script" => SCRIPTS.iter().for_each(|script| page.push_str(script)),
                _ => page.push_str(&data),
            }
            rest = after;
        }
        page.push_str(rest);
        page
    }
}

/// How a run of a check is repeated
#[derive(Clone, Copy)]
struct Repeat<'a> {
    line: &'a str,
    has_passed: bool,
}

impl Repeat<'_> {
    fn to_html(self) -> String {
        let note = if self.has_passed { "This run passed. " } else { "" };
        format!("<p id=\"repeat\">{note}To repeat it: <code>{}</code></p>", escaped(self.line))
    }
}

/// Text as HTML
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// What the script of the page reads; times are nanoseconds
#[derive(Serialize)]
struct Data<'a> {
    end: u64,
    records: usize,
    /// Until when the page does not show what was over.
    cut: u64,
    hosts: &'a [String],
    ports: Vec<PortData<'a>>,
    cables: Vec<String>,
    qps: Vec<QpData>,
    faults: Vec<FaultData>,
    states: Vec<StateData>,
    remarks: Vec<(u64, &'a str)>,
    marks: Marks,
    waits: [&'static str; 3],
    endings: [&'static str; 7],
    outcomes: [String; 5],
    statuses: Vec<(u64, String)>,
    messages: Messages,
    frames: Frames,
    stalls: Stalls,
}

#[derive(Serialize)]
struct PortData<'a> {
    host: u32,
    device: &'a str,
    cable: Option<u32>,
}

#[derive(Serialize)]
struct QpData {
    port: u32,
    qpn: u32,
    peer: Option<usize>,
    /// Times, each after the one before it, and numbers of frames.
    credits: (Vec<u64>, Vec<u64>),
}

#[derive(Serialize)]
struct FaultData {
    number: u32,
    text: String,
    start: u64,
    end: Option<u64>,
}

#[derive(Serialize)]
struct StateData {
    /// Of a host, a port or a cable.
    of: &'static str,
    subject: u32,
    text: String,
    start: u64,
    end: Option<u64>,
    fault: Option<u32>,
}

/// Messages by column, in the order of their posts
///
/// Times are counted from the post, plus one; zero if it did not happen. Positions are plus one, too.
#[derive(Default, Serialize)]
struct Messages {
    qp: Vec<usize>,
    /// After the post before it.
    posted: Vec<u64>,
    id: Vec<String>,
    bytes: Vec<u64>,
    first: Vec<u64>,
    left: Vec<u64>,
    sent: Vec<u64>,
    delivered: Vec<u64>,
    dropped: Vec<u64>,
    end: Vec<u64>,
    why: Vec<u64>,
    to: Vec<usize>,
    outcome: Vec<u8>,
    status: Vec<u64>,
    fault: Vec<u32>,
    stall: Vec<usize>,
    stalled: Vec<u64>,
    flags: Vec<u8>,
    /// In hexadecimal digits; empty if it is not known.
    beginning: Vec<String>,
}

/// Frames by column, in the order of their departure
#[derive(Default, Serialize)]
struct Frames {
    qp: Vec<usize>,
    message: Vec<usize>,
    start: Vec<u64>,
    length: Vec<u64>,
    bytes: Vec<u64>,
}

/// Stalls by column, in the order of their beginnings
#[derive(Default, Serialize)]
struct Stalls {
    qp: Vec<usize>,
    message: Vec<usize>,
    start: Vec<u64>,
    /// Plus one; zero if it did not end.
    length: Vec<u64>,
    why: Vec<u64>,
    fault: Vec<u32>,
}

const OUTCOMES: [Outcome; 5] =
    [Outcome::Delivered, Outcome::Lost, Outcome::Failed, Outcome::Dropped, Outcome::Unfinished];

impl<'a> Data<'a> {
    fn new(history: &'a History, max_items: usize) -> Self {
        let mut timeline = Timeline::of(history);
        timeline.frames.sort_by_key(|frame| frame.start);
        let cut = cut(&timeline, &history.marks, max_items);
        let names = &history.names;
        let (messages, numbers) = Messages::new(&timeline, &history.beginnings, cut);
        let (stalls, messages) = Stalls::new(&timeline, cut, &numbers, messages);
        let mut codes: Vec<_> = timeline.messages.iter().map(|message| message.status).collect();
        codes.sort_unstable();
        codes.dedup();
        Self {
            end: timeline.end,
            records: history.records.len(),
            cut,
            hosts: &names.hosts,
            ports: ports(names),
            cables: (0..cables(names)).map(|cable| names.cable(cable)).collect(),
            frames: Frames::new(&timeline, cut, &numbers),
            faults: timeline
                .faults
                .iter()
                .map(|fault| FaultData {
                    number: fault.number,
                    text: names.fault(fault.number),
                    start: fault.start,
                    end: fault.end,
                })
                .collect(),
            states: states(&timeline),
            remarks: history.remarks.iter().map(|(at, text)| (at.as_nanos(), text.as_str())).collect(),
            marks: Marks::new(&history.marks, cut),
            waits: [0, 1, 2].map(Wait::text),
            endings: [0, 1, 2, 3, 4, 5, 6].map(Ending::text),
            outcomes: OUTCOMES.map(|outcome| outcome.to_string()),
            statuses: codes.into_iter().map(|code| (code, lines::status(code))).collect(),
            qps: timeline.qps.iter().map(|qp| QpData::new(qp, cut)).collect(),
            messages,
            stalls,
        }
    }
}

/// Until when things are left out, so that at most `max_items` remain
fn cut(timeline: &Timeline, marks: &[Mark], max_items: usize) -> u64 {
    let messages = timeline.messages.iter().map(|message| message.end(timeline.end));
    let frames = timeline.frames.iter().map(|frame| frame.end);
    let stalls = timeline.stalls.iter().map(|stall| stall.end.unwrap_or(timeline.end));
    let credits = timeline.qps.iter().flat_map(|qp| qp.credits.iter().map(|(at, _)| *at));
    let marks = marks.iter().map(|mark| mark.time.as_nanos());
    let mut ends: Vec<_> = messages.chain(frames).chain(stalls).chain(credits).chain(marks).collect();
    let Some(excess) = ends.len().checked_sub(max_items).filter(|excess| *excess > 0) else { return 0 };
    let (_, cut, _) = ends.select_nth_unstable(excess - 1);
    *cut + 1
}

fn ports(names: &Names) -> Vec<PortData<'_>> {
    let ports = names.ports.iter();
    ports.map(|port| PortData { host: port.host, device: &port.device, cable: port.cable }).collect()
}

fn cables(names: &Names) -> u32 {
    names.ports.iter().filter_map(|port| port.cable).max().map_or(0, |cable| cable + 1)
}

fn states(timeline: &Timeline) -> Vec<StateData> {
    let states = timeline.states.iter().map(|state| StateData {
        of: match state.of {
            RecordKind::Cable => "cable",
            RecordKind::Port => "port",
            _ => "host",
        },
        subject: state.subject,
        text: state.text(),
        start: state.start,
        end: state.end,
        fault: state.fault,
    });
    states.collect()
}

impl QpData {
    fn new(qp: &super::timeline::Qp, cut: u64) -> Self {
        // The last count before the cut still holds.
        let first = qp.credits.partition_point(|(at, _)| *at < cut).saturating_sub(1);
        let (times, counts): (Vec<_>, Vec<_>) = qp.credits[first..].iter().copied().unzip();
        let credits = (differences(times), counts);
        Self { port: port_of(qp.subject), qpn: qpn_of(qp.subject), peer: qp.peer, credits }
    }
}

impl Messages {
    /// The messages that were not over at `cut`, and the new position of each
    fn new(timeline: &Timeline, beginnings: &[Box<[u8]>], cut: u64) -> (Self, Vec<Option<usize>>) {
        let mut columns = Self::default();
        let (mut numbers, mut last) = (Vec::with_capacity(timeline.messages.len()), 0);
        for (number, message) in timeline.messages.iter().enumerate() {
            let end = message.end(timeline.end);
            if end < cut {
                numbers.push(None);
                continue;
            }
            numbers.push(Some(columns.qp.len()));
            columns.push(message, end, message.posted - last);
            columns.beginning.push(beginnings.get(number).map_or_else(String::new, |bytes| hex(bytes)));
            last = message.posted;
        }
        (columns, numbers)
    }

    fn push(&mut self, message: &Message, end: u64, after: u64) {
        let since = |time: Option<u64>| time.map_or(0, |time| time.saturating_sub(message.posted) + 1);
        let outcome = message.outcome();
        self.qp.push(message.qp);
        self.posted.push(after);
        self.id.push(format!("{:x}", message.id));
        self.bytes.push(message.bytes);
        self.first.push(since(message.first));
        self.left.push(since(message.left));
        self.sent.push(since(message.sent));
        self.delivered.push(since(message.delivered));
        self.dropped.push(since(message.dropped.map(|(at, _)| at)));
        self.end.push(end.saturating_sub(message.posted));
        self.why.push(message.dropped.map_or(0, |(_, why)| why));
        self.to.push(plus_one(message.to));
        self.outcome.push(OUTCOMES.iter().position(|other| *other == outcome).unwrap_or_default() as u8);
        self.status.push(message.status);
        self.fault.push(message.fault.map_or(0, |fault| fault + 1));
        self.stall.push(plus_one(message.stall));
        self.stalled.push(message.stalled);
        self.flags.push(
            u8::from(message.is_one_sided)
                | u8::from(message.is_damaged) << 1
                | u8::from(message.is_lost) << 2,
        );
    }
}

impl Frames {
    fn new(timeline: &Timeline, cut: u64, numbers: &[Option<usize>]) -> Self {
        let frames: Vec<_> = timeline.frames.iter().filter(|frame| frame.end >= cut).collect();
        Self {
            qp: frames.iter().map(|frame| frame.qp).collect(),
            message: frames
                .iter()
                .map(|frame| plus_one(frame.message.and_then(|number| numbers[number])))
                .collect(),
            start: differences(frames.iter().map(|frame| frame.start)),
            length: frames.iter().map(|frame| frame.end.saturating_sub(frame.start)).collect(),
            bytes: frames.iter().map(|frame| frame.bytes).collect(),
        }
    }
}

impl Stalls {
    /// The stalls that were not over at `cut`, and the messages with the new positions of their stalls
    fn new(timeline: &Timeline, cut: u64, numbers: &[Option<usize>], messages: Messages) -> (Self, Messages) {
        let mut columns = Self::default();
        let (mut last, mut positions) = (0, Vec::with_capacity(timeline.stalls.len()));
        for stall in &timeline.stalls {
            if stall.end.is_some_and(|end| end < cut) {
                positions.push(0);
                continue;
            }
            columns.qp.push(stall.qp);
            columns.message.push(plus_one(stall.message.and_then(|number| numbers[number])));
            columns.start.push(stall.start - last);
            columns.length.push(stall.end.map_or(0, |end| end.saturating_sub(stall.start) + 1));
            columns.why.push(stall.why);
            columns.fault.push(stall.fault.map_or(0, |fault| fault + 1));
            last = stall.start;
            positions.push(columns.qp.len());
        }
        let stall =
            messages.stall.iter().map(|stall| stall.checked_sub(1).map_or(0, |stall| positions[stall]));
        (columns, Messages { stall: stall.collect(), ..messages })
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::Time;

    use super::*;
    use crate::trace::{PortName, Record};

    /// Two ports, of which the first sends `count` messages of a frame each
    fn history(count: u64) -> History {
        let port = |host| PortName { host, device: "rdma_en2".to_owned(), cable: Some(0) };
        let names = Names {
            hosts: vec!["a".to_owned(), "b".to_owned()],
            ports: vec![port(0), port(1)],
            faults: Vec::new(),
        };
        let [a, b] = [0x900, 1 << 20 | 0x900];
        let record = |ns, kind, subject, value, detail| Record {
            time: Time::from_nanos(ns),
            kind,
            subject,
            value,
            detail,
        };
        let mut records = vec![
            record(0, RecordKind::Connect, a, 1, u64::from(b)),
            record(0, RecordKind::Connect, b, 1, u64::from(a)),
        ];
        for number in 0..count {
            let now = number * 1000;
            records.push(record(now, RecordKind::PostRecv, b, 64, number));
            records.push(record(now, RecordKind::PostSend, a, 64, number));
            records.push(record(now + 100, RecordKind::Frame, a, 64, now + 110));
            records.push(record(now + 100, RecordKind::Filled, b, u64::from(a), now + 400));
            records.push(record(now + 300, RecordKind::Sent, a, 0, 0));
            records.push(record(now + 400, RecordKind::Delivered, b, 64 << 8, 0));
        }
        History::new(records, names, Time::from_nanos(count * 1000), Vec::new())
    }

    fn data(history: &History, max_items: usize) -> serde_json::Value {
        let page = history.to_html_of("x", None, max_items);
        let (_, data) = page.split_once("id=\"data\">").unwrap();
        serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
    }

    fn len(column: &serde_json::Value) -> usize {
        column.as_array().unwrap().len()
    }

    /// Catches a cut at the wrong end, and frames that name messages which are left out.
    #[test]
    fn of_a_long_run_the_last_part_is_shown() {
        let history = history(100);
        let whole = data(&history, MAX_ITEMS);
        assert_eq!((whole["cut"].as_u64(), len(&whole["messages"]["qp"])), (Some(0), 100));
        let part = data(&history, 80);
        let shown = len(&part["messages"]["qp"]);
        assert!((15..=25).contains(&shown), "{shown}");
        assert_eq!(part["records"], history.records.len());
        let cut = part["cut"].as_u64().unwrap();
        assert!(cut > 75_000 && part["messages"]["posted"][0].as_u64().unwrap() + 400 >= cut);
        let of = part["frames"]["message"].as_array().unwrap();
        assert_eq!(of.iter().map(|of| of.as_u64().unwrap()).max(), Some(shown as u64));
        assert_eq!(data(&history, MAX_ITEMS), whole);
    }

    #[test]
    fn a_page_without_records_is_a_page() {
        let none = data(&History::default(), MAX_ITEMS);
        assert_eq!((none["records"].as_u64(), len(&none["messages"]["qp"])), (Some(0), 0));
    }
}
