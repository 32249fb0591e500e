//! Records for people: lines of text, and the JSON that trace viewers open

use std::fmt::{self, Write};

use super::{Kind, Record};

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, kind, who, what } = *self;
        let ns = time.as_nanos();
        let (port, qpn) = (who >> 20, who & 0xf_ffff);
        write!(f, "{:>6}.{:09}  ", ns / 1_000_000_000, ns % 1_000_000_000)?;
        match kind {
            Kind::PostSend => write!(f, "port {port} qp {qpn:#06x}  post_send   {what} bytes"),
            Kind::PostRecv => write!(f, "port {port} qp {qpn:#06x}  post_recv   {what} bytes"),
            Kind::Sent => write!(f, "port {port} qp {qpn:#06x}  sent        status {what}"),
            Kind::Delivered => {
                write!(
                    f,
                    "port {port} qp {qpn:#06x}  delivered   {} bytes, status {}",
                    what >> 8,
                    what & 0xff
                )
            }
            Kind::Frame => write!(f, "port {port} qp {qpn:#06x}  frame       {what} bytes"),
            Kind::Stall => write!(f, "port {port} qp {qpn:#06x}  stall       no receive of the peer"),
            Kind::Connect if what == 1 => {
                write!(f, "port {port} qp {qpn:#06x}  connect     ready to receive")
            }
            Kind::Connect => write!(f, "port {port} qp {qpn:#06x}  connect     failed"),
            Kind::Fault => write!(f, "fault {who}"),
            Kind::Plugged if what == 1 => write!(f, "port {who}     cable plugged in"),
            Kind::Plugged => write!(f, "port {who}     cable cut off"),
            Kind::OneSided => write!(f, "port {port} qp {qpn:#06x}  one-sided   {what} bytes"),
        }
    }
}

/// The records as Chrome's trace event format, which Perfetto and `chrome://tracing` open
///
/// One row for each queue pair number; times are in microseconds there, with fractions. Frames are slices, the rest are
/// instants.
pub fn chrome_json(records: &[Record]) -> String {
    let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    for (number, record) in records.iter().enumerate() {
        let ns = record.time.as_nanos();
        let (row, name) = match record.kind {
            Kind::Fault => (0, "fault"),
            Kind::Plugged => (0, if record.what == 1 { "plugged in" } else { "cut off" }),
            Kind::PostSend => (record.who, "post_send"),
            Kind::PostRecv => (record.who, "post_recv"),
            Kind::Sent => (record.who, "sent"),
            Kind::Delivered => (record.who, "delivered"),
            Kind::Frame => (record.who, "frame"),
            Kind::Stall => (record.who, "stall"),
            Kind::Connect => (record.who, "connect"),
            Kind::OneSided => (record.who, "one-sided"),
        };
        let phase =
            if record.kind == Kind::Frame { "\"ph\":\"X\",\"dur\":0.4" } else { "\"ph\":\"i\",\"s\":\"t\"" };
        let separator = if number > 0 { ",\n" } else { "" };
        let _ = write!(
            out,
            "{separator}{{\"name\":\"{name}\",{phase},\"ts\":{}.{:03},\"pid\":1,\"tid\":{row},\"args\":{{\"value\":{}}}}}",
            ns / 1000,
            ns % 1000,
            record.what
        );
    }
    out.push_str("\n]}\n");
    out
}
