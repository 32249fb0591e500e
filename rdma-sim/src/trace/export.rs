//! Records for people: lines of text, and the JSON that trace viewers open

use std::fmt::{self, Write};

use super::{Record, RecordKind};

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, kind, subject, value } = *self;
        let ns = time.as_nanos();
        let (port, qpn) = (subject >> 20, subject & 0xf_ffff);
        write!(f, "{:>6}.{:09}  ", ns / 1_000_000_000, ns % 1_000_000_000)?;
        match kind {
            RecordKind::PostSend => write!(f, "port {port} qp {qpn:#06x}  post_send   {value} bytes"),
            RecordKind::PostRecv => write!(f, "port {port} qp {qpn:#06x}  post_recv   {value} bytes"),
            RecordKind::Sent => write!(f, "port {port} qp {qpn:#06x}  sent        status {value}"),
            RecordKind::Delivered => {
                write!(
                    f,
                    "port {port} qp {qpn:#06x}  delivered   {} bytes, status {}",
                    value >> 8,
                    value & 0xff
                )
            }
            RecordKind::Frame => write!(f, "port {port} qp {qpn:#06x}  frame       {value} bytes"),
            RecordKind::Stall => write!(f, "port {port} qp {qpn:#06x}  stall       no receive of the peer"),
            RecordKind::Connect if value == 1 => {
                write!(f, "port {port} qp {qpn:#06x}  connect     ready to receive")
            }
            RecordKind::Connect => write!(f, "port {port} qp {qpn:#06x}  connect     failed"),
            RecordKind::Fault => write!(f, "fault {subject}"),
            RecordKind::Plugged if value == 1 => write!(f, "port {subject}     cable plugged in"),
            RecordKind::Plugged => write!(f, "port {subject}     cable cut off"),
            RecordKind::OneSided => write!(f, "port {port} qp {qpn:#06x}  one-sided   {value} bytes"),
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
        let (row, name) = match record.kind {
            RecordKind::Fault => (0, "fault"),
            RecordKind::Plugged => (0, if record.value == 1 { "plugged in" } else { "cut off" }),
            RecordKind::PostSend => (record.subject, "post_send"),
            RecordKind::PostRecv => (record.subject, "post_recv"),
            RecordKind::Sent => (record.subject, "sent"),
            RecordKind::Delivered => (record.subject, "delivered"),
            RecordKind::Frame => (record.subject, "frame"),
            RecordKind::Stall => (record.subject, "stall"),
            RecordKind::Connect => (record.subject, "connect"),
            RecordKind::OneSided => (record.subject, "one-sided"),
        };
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
