//! The text of faults, as `--fault` and `tb5 fabric` take it: that of a plan, without a time if it fires at once

use rdma_sim::fault::{FaultError, FaultReason};
use rdma_sim::{Fault, FaultPlan, Topology};

use crate::failure::Failure;

/// Parses faults that are separated by semicolons; one without a trigger fires at `now_ms`, in milliseconds since the start
pub(crate) fn parse(text: &str, now_ms: u64, topology: &Topology) -> Result<FaultPlan, Failure> {
    let faults = text.split(';').map(str::trim).filter(|fault| !fault.is_empty());
    let plan = faults.map(|fault| parse_one(fault, now_ms, topology)).collect::<Result<Vec<_>, _>>()?;
    if plan.is_empty() {
        let form = "[at TIME | after N frames] TARGET NAME [ARGUMENT]";
        return Err(Failure::Usage(format!(
            "there is no fault in {text:?}: write {form}, such as a:rdma_en2 unplug"
        )));
    }
    Ok(FaultPlan(plan))
}

fn parse_one(text: &str, now_ms: u64, topology: &Topology) -> Result<Fault, Failure> {
    let words: Vec<_> = text.split_whitespace().collect();
    let at_once = match words[0] {
        "at" | "after" => String::new(),
        _ => format!("at {now_ms}ms "),
    };
    let read = |text: &str| format!("{at_once}{text}").parse::<Fault>();
    // Errors quote what the user wrote, without the time that is added to it.
    let usage = |mut error: FaultError| {
        text.clone_into(&mut error.text);
        Failure::usage(error)
    };
    let fault = read(text).map_err(|error| {
        // The words as the user would have to write them, if the name comes before the target.
        let start = if words[0] == "at" { 2 } else { 3 * usize::from(words[0] == "after") };
        let mut swapped = words.clone();
        if let (FaultReason::UnknownKind { .. }, Some([name, target, ..])) =
            (&error.reason, swapped.get_mut(start..))
        {
            std::mem::swap(name, target);
            let swapped = swapped.join(" ");
            if read(&swapped).is_ok() {
                let why = format!("fault {text:?}: the target comes before the name: write {swapped:?}");
                return Failure::Usage(why);
            }
        }
        usage(error)
    })?;
    let plan = FaultPlan(vec![fault.clone()]);
    plan.check(topology).map_err(usage)?;
    Ok(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_without_a_time_fires_at_once() {
        let table = [
            ("a:rdma_en2 unplug", "at 7ms a:rdma_en2 unplug"),
            ("b pause", "at 7ms b pause"),
            ("a:rdma_en2 corrupt 3", "at 7ms a:rdma_en2 corrupt 3"),
            ("at 2s a:rdma_en2 slow 50%", "at 2s a:rdma_en2 slow 50%"),
            ("after 9 frames a:rdma_en2 unplug", "after 9 frames a:rdma_en2 unplug"),
            (" a pause ;; at 3s a resume;", "at 7ms a pause; at 3s a resume"),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text, 7, &Topology::pair()).unwrap().to_string(), expected);
        }
    }

    #[test]
    fn a_text_that_is_not_a_fault_is_refused_as_the_user_wrote_it() {
        let table = [
            ("a explode", "fault \"a explode\": no fault is called \"explode\""),
            ("a unplug", "fault \"a unplug\": unplug happens to a port"),
            ("a:rdma_en99 unplug", "no device"),
            ("", "there is no fault in \"\": write [at TIME"),
            (" ; ", "there is no fault in"),
            ("z kill", "fault \"z kill\": the topology has no host"),
            ("a:rdma_en2", "ends too early"),
            ("at", "ends too early"),
            ("unplug a:rdma_en2", "comes before the name: write \"a:rdma_en2 unplug\""),
            ("corrupt a:rdma_en2 3", "comes before the name: write \"a:rdma_en2 corrupt 3\""),
            (
                "at 2s kill b",
                "fault \"at 2s kill b\": the target comes before the name: write \"at 2s b kill\"",
            ),
            ("after 9 frames unplug a:rdma_en2", "write \"after 9 frames a:rdma_en2 unplug\""),
        ];
        for (text, why) in table {
            let error = parse(text, 7, &Topology::pair()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
