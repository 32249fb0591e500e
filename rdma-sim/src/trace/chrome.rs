//! Chrome's trace event format, which Perfetto and `chrome://tracing` open

use serde_json::{Value, json};

use super::history::{port_of, qpn_of};
use super::lines;
use super::timeline::{Message, Outcome, State, Timeline};
use super::{History, RecordKind};

impl History {
    /// The records as Chrome's trace event format, which Perfetto and `chrome://tracing` open
    ///
    /// Hosts are processes, and so are the faults and cables together; ports and queue pairs are their tracks. A message is a slice
    /// from its post to its completion at both ends, a frame a slice of its length, with a flow to the delivery of its message.
    /// Counters show the frames that posted receives have room for. Times are in microseconds there, with fractions.
    ///
    /// ```
    /// use rdma_sim::Sim;
    ///
    /// let run = Sim::new().keep_records().run(async |_| ());
    /// let trace: serde_json::Value = serde_json::from_str(&run.history.to_chrome_json())?;
    /// assert_eq!(trace["traceEvents"][0]["args"]["name"], "faults and cables");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn to_chrome_json(&self) -> String {
        let timeline = Timeline::of(self);
        let mut chrome = Chrome { history: self, timeline: &timeline, events: Vec::new(), next_track: 1 };
        chrome.faults();
        chrome.hosts();
        chrome.queue_pairs();
        let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        for (number, event) in chrome.events.iter().enumerate() {
            out.push_str(if number > 0 { ",\n" } else { "" });
            out.push_str(&event.to_string());
        }
        out.push_str("\n]}\n");
        out
    }
}

struct Chrome<'a> {
    history: &'a History,
    timeline: &'a Timeline,
    events: Vec<Value>,
    next_track: u32,
}

/// A slice of a track
struct Slice {
    start: u64,
    end: u64,
    name: String,
    args: Value,
    /// The message to whose flow it belongs, and whether it ends that.
    flow: Option<(usize, bool)>,
}

/// The process of faults and cables; those of hosts follow.
const FAULTS: u32 = 0;

impl Chrome<'_> {
    fn name_process(&mut self, pid: u32, name: &str) {
        let args = json!({ "name": name });
        self.events.push(json!({ "name": "process_name", "ph": "M", "pid": pid, "args": args }));
        let args = json!({ "sort_index": pid });
        self.events.push(json!({ "name": "process_sort_index", "ph": "M", "pid": pid, "args": args }));
    }

    fn new_track(&mut self, pid: u32, name: &str) -> u32 {
        let tid = self.next_track;
        self.next_track += 1;
        let args = json!({ "name": name });
        self.events.push(json!({ "name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": args }));
        let args = json!({ "sort_index": tid });
        self.events
            .push(json!({ "name": "thread_sort_index", "ph": "M", "pid": pid, "tid": tid, "args": args }));
        tid
    }

    /// Adds slices to as few tracks as have room for them side by side
    fn slices(&mut self, pid: u32, name: &str, category: &str, mut slices: Vec<Slice>) {
        slices.sort_by_key(|slice| slice.start);
        let mut tracks: Vec<(u32, u64)> = Vec::new();
        for Slice { start, end, name: text, args, flow } in slices {
            let end = end.max(start);
            let track = match tracks.iter().position(|(_, free)| *free <= start) {
                Some(track) => track,
                None => {
                    let number = tracks.len() + 1;
                    let name = if number > 1 { format!("{name} ({number})") } else { name.to_owned() };
                    tracks.push((self.new_track(pid, &name), 0));
                    number - 1
                }
            };
            let tid = tracks[track].0;
            // Slices without a length that begin together would hide each other.
            tracks[track].1 = end.max(start + 1);
            let dur = micros(end - start);
            self.events.push(json!({
                "name": text, "cat": category, "ph": "X", "ts": micros(start), "dur": dur, "pid": pid, "tid": tid, "args": args,
            }));
            if let Some((id, is_end)) = flow {
                let mut event = json!({
                    "name": "message", "cat": "flow", "ph": if is_end { "f" } else { "s" }, "id": id,
                    "ts": micros(start), "pid": pid, "tid": tid,
                });
                if is_end {
                    event["bp"] = json!("e");
                }
                self.events.push(event);
            }
        }
    }

    fn faults(&mut self) {
        self.name_process(FAULTS, "faults and cables");
        let (names, timeline) = (&self.history.names, self.timeline);
        let faults = timeline.faults.iter().map(|fault| {
            slice(fault.start, fault.end.unwrap_or(timeline.end), names.fault(fault.number), Value::Null)
        });
        self.slices(FAULTS, "faults", "fault", faults.collect());
        let remarks = self.history.remarks.iter();
        let remarks =
            remarks.map(|(at, text)| slice(at.as_nanos(), at.as_nanos(), text.clone(), Value::Null));
        self.slices(FAULTS, "remarks", "remark", remarks.collect());
        self.marks(FAULTS, "the test", None);
        self.states(FAULTS, RecordKind::Cable, |_| true);
    }

    /// The states of hosts, ports or cables that differ from those at first
    fn states(&mut self, pid: u32, of: RecordKind, is_here: impl Fn(u32) -> bool) {
        let mut subjects: Vec<_> = self.timeline.states.iter().filter(|state| state.of == of).collect();
        subjects.retain(|state| is_here(state.subject));
        subjects.sort_by_key(|state| state.subject);
        for states in subjects.chunk_by(|one, other| one.subject == other.subject) {
            let names = &self.history.names;
            let subject = states[0].subject;
            let name = match of {
                RecordKind::Cable => format!("cable {}", names.cable(subject)),
                RecordKind::Port => format!("port {}", names.port(subject)),
                _ => "processes".to_owned(),
            };
            let slices = states.iter().map(|state| {
                let fault = state.fault.map(|fault| names.fault(fault));
                slice(
                    state.start,
                    state.end.unwrap_or(self.timeline.end),
                    state.text(),
                    json!({ "fault": fault }),
                )
            });
            self.slices(pid, &name, "state", slices.collect());
        }
    }

    /// What the program states of itself
    fn marks(&mut self, pid: u32, name: &str, host: Option<u32>) {
        let marks = self.history.marks.iter().filter(|mark| mark.host == host).map(|mark| {
            let at = mark.time.as_nanos();
            slice(at, at, mark.content.text(), json!({ "site": mark.content.site() }))
        });
        self.slices(pid, name, "mark", marks.collect());
    }

    fn hosts(&mut self) {
        for (host, name) in self.history.names.hosts.iter().enumerate() {
            let host = host as u32;
            self.name_process(host + 1, name);
            self.marks(host + 1, "program", Some(host));
            self.states(host + 1, RecordKind::Process, |subject| subject == host);
            let ports = &self.history.names.ports;
            self.states(host + 1, RecordKind::Port, |port| {
                ports.get(port as usize).is_some_and(|port| port.host == host)
            });
        }
    }

    fn queue_pairs(&mut self) {
        let mut order: Vec<_> = (0..self.timeline.qps.len()).collect();
        order.sort_by_key(|qp| self.timeline.qps[*qp].subject);
        let mut by_qp = vec![(Vec::new(), Vec::new(), Vec::new(), Vec::new()); order.len()];
        for (number, message) in self.timeline.messages.iter().enumerate() {
            by_qp[message.qp].0.push(number);
            if let Some(to) = message.to {
                by_qp[to].1.push(number);
            }
        }
        for (number, frame) in self.timeline.frames.iter().enumerate() {
            by_qp[frame.qp].2.push(number);
        }
        for (number, stall) in self.timeline.stalls.iter().enumerate() {
            by_qp[stall.qp].3.push(number);
        }
        for qp in order {
            let subject = self.timeline.qps[qp].subject;
            let (messages, deliveries, frames, stalls) = std::mem::take(&mut by_qp[qp]);
            let port = self.history.names.ports.get(port_of(subject) as usize);
            let Some((host, device)) = port.map(|port| (port.host, port.device.clone())) else { continue };
            let (pid, name) = (host + 1, format!("{device} qp {:#06x}", qpn_of(subject)));
            let (history, timeline) = (self.history, self.timeline);
            let messages =
                messages.into_iter().map(|number| timeline.messages[number].slice(history, timeline));
            self.slices(pid, &format!("{name} messages"), "message", messages.collect());
            let stalls = stalls.into_iter().map(|number| {
                let stall = timeline.stalls[number];
                let fault = stall.fault.map(|fault| history.names.fault(fault));
                let why = super::Wait::text(stall.why);
                slice(
                    stall.start,
                    stall.end.unwrap_or(timeline.end),
                    why.to_owned(),
                    json!({ "fault": fault }),
                )
            });
            self.slices(pid, &format!("{name} stalls"), "stall", stalls.collect());
            let mut started = Vec::new();
            let frames = frames.into_iter().map(|number| {
                let frame = timeline.frames[number];
                let message = frame.message.map(|number| (number, &timeline.messages[number]));
                // A flow begins at the first frame of each message that arrives.
                let flow = message.filter(|(number, message)| {
                    message.delivered.is_some() && started.last() != Some(number)
                });
                started.extend(flow.map(|(number, _)| number));
                let flow = flow.map(|(number, _)| (number, false));
                let text = format!("{} bytes", frame.bytes);
                Slice { flow, ..slice(frame.start, frame.end, text, json!({ "message": frame.message })) }
            });
            self.slices(pid, &format!("{name} frames"), "frame", frames.collect());
            let deliveries = deliveries.into_iter().filter_map(|number| {
                let message = &timeline.messages[number];
                let (start, end) = (message.left.unwrap_or(message.posted), message.delivered?);
                let flow = (!message.is_one_sided).then_some((number, true));
                let text = format!("delivery of {} bytes", message.bytes);
                Some(Slice { flow, ..slice(start, end, text, json!({ "message": number })) })
            });
            self.slices(pid, &format!("{name} deliveries"), "delivery", deliveries.collect());
            for (at, credits) in &timeline.qps[qp].credits {
                let args = json!({ "frames": credits });
                let name = format!("{name} credits");
                self.events
                    .push(json!({ "name": name, "ph": "C", "ts": micros(*at), "pid": pid, "args": args }));
            }
        }
    }
}

fn slice(start: u64, end: u64, name: String, args: Value) -> Slice {
    Slice { start, end, name, args, flow: None }
}

/// Nanoseconds as microseconds with fractions
fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

impl State {
    /// The state, for people
    pub(super) fn text(&self) -> String {
        match self.of {
            RecordKind::Cable => lines::cable(self.value),
            RecordKind::Port => "down".to_owned(),
            _ => lines::process(self.value).to_owned(),
        }
    }
}

impl Message {
    fn slice(&self, history: &History, timeline: &Timeline) -> Slice {
        let outcome = self.outcome();
        let text = match outcome {
            Outcome::Delivered => format!("{} bytes", self.bytes),
            outcome => format!("{} bytes, {outcome}", self.bytes),
        };
        let args = json!({
            "request": format!("{:#x}", self.id),
            "outcome": outcome.to_string(),
            "status": lines::status(self.status),
            "fault": self.fault.map(|fault| history.names.fault(fault)),
            "stalled_ns": self.stalled,
            "to": self.to.map(|to| history.names.qp(timeline.qps[to].subject)),
        });
        slice(self.posted, self.end(timeline.end), text, args)
    }
}
