//! Records for people: lines of text, and the JSON that trace viewers open

use std::fmt::{self, Write};

use super::{Record, RecordKind};

impl Record {
    fn name(&self) -> &'static str {
        match self.kind {
            RecordKind::PostSend => "post_send",
            RecordKind::PostRecv => "post_recv",
            RecordKind::Sent => "sent",
            RecordKind::Delivered => "delivered",
            RecordKind::Frame => "frame",
            RecordKind::Stall => "stall",
            RecordKind::Connect => "connect",
            RecordKind::Fault => "fault",
            RecordKind::Plugged if self.value == 1 => "plugged in",
            RecordKind::Plugged => "cut off",
            RecordKind::OneSided => "one-sided",
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, kind, subject, value } = *self;
        let (ns, name) = (time.as_nanos(), self.name());
        write!(f, "{:>6}.{:09}  ", ns / 1_000_000_000, ns % 1_000_000_000)?;
        match kind {
            RecordKind::Fault => return write!(f, "fault {subject}"),
            RecordKind::Plugged => return write!(f, "port {subject}     cable {name}"),
            _ => write!(f, "port {} qp {:#06x}  {name:<12}", subject >> 20, subject & 0xf_ffff)?,
        }
        match kind {
            RecordKind::Sent => write!(f, "status {value}"),
            RecordKind::Delivered => write!(f, "{} bytes, status {}", value >> 8, value & 0xff),
            RecordKind::Stall => f.write_str("no receive of the peer"),
            RecordKind::Connect => f.write_str(if value == 1 { "ready to receive" } else { "failed" }),
            _ => write!(f, "{value} bytes"),
        }
    }
}

/// The records as Chrome's trace event format, which Perfetto and `chrome://tracing` open
///
/// ```
/// use rdma_sim::{Sim, chrome_json};
///
/// let run = Sim::new().keep_records().faults("at 0s a:rdma_en2 unplug".parse()?).run(async |net| {
///     let mut timer = net.runtime().timer();
///     timer.as_mut().reset(rdma_core::Time::from_nanos(1));
///     std::future::poll_fn(|cx| timer.as_mut().poll_expired(cx)).await;
/// });
/// assert!(chrome_json(&run.records).contains("\"name\":\"cut off\""));
/// # Ok::<(), rdma_sim::FaultError>(())
/// ```
///
/// One row for each queue pair number; times are in microseconds there, with fractions. Frames are slices, the rest are
/// instants.
pub fn chrome_json(records: &[Record]) -> String {
    let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    for (number, record) in records.iter().enumerate() {
        let ns = record.time.as_nanos();
        let row = match record.kind {
            RecordKind::Fault | RecordKind::Plugged => 0,
            _ => record.subject,
        };
        let name = record.name();
        let phase = if record.kind == RecordKind::Frame {
            "\"ph\":\"X\",\"dur\":0.4"
        } else {
            "\"ph\":\"i\",\"s\":\"t\""
        };
        let separator = if number > 0 { ",\n" } else { "" };
        let _ = write!(
            out,
            "{separator}{{\"name\":\"{name}\",{phase},\"ts\":{}.{:03},\"pid\":1,\"tid\":{row},\"args\":{{\"value\":{}}}}}",
            ns / 1000,
            ns % 1000,
            record.value
        );
    }
    out.push_str("\n]}\n");
    out
}
