use serde_json::Value;

use super::bounds::{MAX_INPUT, short};
use crate::report::Incident;

/// The names that are looked for in backtraces of panics: drivers, and the GPU memory that fails on RDMA clusters (F61)
const DRIVERS: [&str; 6] = [
    "AppleThunderboltRDMA",
    "IORDMAFamily",
    "IOThunderboltFamily",
    "AppleThunderboltIP",
    "IOGPUFamily",
    "prepare count underflow",
];

/// Beginnings of functions of the provider
const FUNCTIONS: [&str; 2] = ["tbt_", "ibv_"];

/// Reads a report of macOS about a kernel panic (`.panic`, `.ips`) or a crash (`.ips`); `None` if its backtrace names nothing of RDMA
///
/// An `.ips` file is a line of JSON and a JSON object after it. A panic lists all drivers that are loaded after its backtrace, and a
/// crash all libraries: neither counts.
pub fn incident(text: &str) -> Option<Incident> {
    let text = &text[..text.floor_char_boundary(MAX_INPUT)];
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let head: Option<Value> = serde_json::from_str(first).ok();
    let body: Option<Value> = serde_json::from_str(rest).ok();
    let field = |key: &str| {
        let found = [&body, &head].into_iter().flatten().find_map(|part| part.get(key)?.as_str());
        found.map(short)
    };
    let panic_text = body.as_ref().and_then(|body| body.get("panicString")).and_then(Value::as_str);
    let (is_panic, names) = match (&body, panic_text) {
        (_, Some(panic)) => (true, drivers(panic)),
        (Some(body), None) => (false, functions(body)),
        (None, None) => (true, drivers(text)),
    };
    let when = field("timestamp").or_else(|| field("captureTime")).or_else(|| field("date"));
    let program = if is_panic { None } else { field("procName").or_else(|| field("app_name")) };
    (!names.is_empty()).then_some(Incident { is_panic, program, when, names })
}

/// The drivers that a panic names before its list of all loaded ones
fn drivers(text: &str) -> Vec<String> {
    let is_end = |line: &&str| {
        let line = line.trim().to_ascii_lowercase();
        ["loaded kexts", "last started kext", "last loaded kext"].iter().any(|end| line.starts_with(end))
    };
    let mut backtrace = text.lines().take_while(|line| !is_end(line)).peekable();
    // A text that is no panic names nothing.
    let Some(true) = backtrace.peek().map(|_| text.contains("panic(")) else { return Vec::new() };
    let lines: Vec<_> = backtrace.collect();
    let is_named = |name: &&str| lines.iter().any(|line| line.contains(name));
    DRIVERS.into_iter().filter(is_named).map(str::to_owned).collect()
}

/// The functions of the provider in the thread that crashed
fn functions(body: &Value) -> Vec<String> {
    let threads = body.get("threads").and_then(Value::as_array).into_iter().flatten();
    let crashed = threads.filter(|thread| thread.get("triggered") == Some(&Value::Bool(true)));
    let frames = crashed.filter_map(|thread| thread.get("frames")?.as_array()).flatten();
    let mut names: Vec<_> = frames
        .filter_map(|frame| frame.get("symbol")?.as_str())
        .filter(|symbol| FUNCTIONS.iter().any(|start| symbol.starts_with(start)))
        .map(short)
        .collect();
    names.dedup();
    names.truncate(8);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_loaded_drivers_is_no_backtrace() {
        let named = "panic(cpu 0 caller 0x1): Kernel data abort\nKernel Extensions in backtrace:\n  \
                     com.apple.driver.AppleThunderboltRDMA(0.0.1)\nlast started kext at 1: x\nloaded kexts:\n";
        let found = incident(named).unwrap();
        assert_eq!((found.is_panic, found.names), (true, vec!["AppleThunderboltRDMA".to_owned()]));
        let loaded =
            "panic(cpu 0 caller 0x1): out of memory\nloaded kexts:\ncom.apple.driver.AppleThunderboltRDMA\n";
        assert_eq!(incident(loaded), None);
        assert_eq!(incident("AppleThunderboltRDMA in a letter to Apple"), None);
    }

    #[test]
    fn only_the_thread_that_crashed_counts() {
        let crash = |triggered: bool| {
            let head =
                r#"{"app_name":"python3","timestamp":"2026-09-05 10:11:12.00 +0200","bug_type":"309"}"#;
            format!(
                "{head}\n{{\"procName\":\"python3\",\"threads\":[{{\"triggered\":{triggered},\"frames\":[{{\"symbol\":\
                 \"tbt_post_recv\"}},{{\"symbol\":\"main\"}}]}}],\"usedImages\":[{{\"name\":\"librdma.dylib\"}}]}}"
            )
        };
        let found = incident(&crash(true)).unwrap();
        assert_eq!((found.is_panic, found.program.as_deref()), (false, Some("python3")));
        assert_eq!((found.names, found.when.unwrap().len()), (vec!["tbt_post_recv".to_owned()], 28));
        assert_eq!(incident(&crash(false)), None);
    }

    #[test]
    fn a_panic_in_json_is_read_like_one_in_text() {
        let text = "{\"bug_type\":\"210\",\"timestamp\":\"2026-09-05\"}\n{\"panicString\":\"panic(cpu 1): x\\n\
                    IOThunderboltFamily+0x343c\\nloaded kexts:\\nIORDMAFamily\"}";
        let found = incident(text).unwrap();
        assert_eq!((found.is_panic, found.names), (true, vec!["IOThunderboltFamily".to_owned()]));
    }
}
