//! Wear that builds up until a restart, and incidents of the past
//!
//! Reports name four kinds: uptime, programs that were started since the restart, wired memory and flaps. No tool of macOS tells how many
//! programs have opened the driver since the restart, so that kind is not checked by itself; what such programs leave behind shows in
//! the wired memory and in the protection domains that a probe finds exhausted.

use super::check::Note;
use crate::report::{HostReport, Incident};

/// Days after which large transfers were reported to need a restart; the number is chosen, reports name none
const LONG_UPTIME_DAYS: u64 = 7;

/// F19, F71: resources were reported to run out, and large transfers to stall, until a restart
pub(super) fn uptime(host: &HostReport) -> Note {
    let Some(seconds) = host.uptime.uptime_seconds else { return Note::unknown("uptime printed no time") };
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let count = |number: u64, unit: &str| format!("{number} {unit}{}", if number == 1 { "" } else { "s" });
    let evidence = format!("up for {} and {}", count(days, "day"), count(hours, "hour"));
    if days >= LONG_UPTIME_DAYS {
        Note::warn(evidence, "restart the host before a long run")
    } else {
        Note::ok(evidence)
    }
}

/// F58: memory that a killed program had registered can stay wired until a restart
pub(super) fn wired_memory(host: &HostReport) -> Note {
    let (Some(wired), Some(all)) = (host.uptime.wired_bytes, host.uptime.memory_bytes) else {
        return Note::unknown("how much memory is wired is not known");
    };
    let gigabytes = |bytes: u64| bytes >> 30;
    let evidence = format!("{} of {} GiB are wired", gigabytes(wired), gigabytes(all));
    if wired < all / 2 {
        return Note::ok(evidence);
    }
    match host.kernel_objects.owners.as_deref() {
        Some([]) => Note::warn(
            format!("{evidence}, and no process has the driver open"),
            "restart the host if programs that ended without closing their devices used this memory",
        ),
        Some(owners) => Note::ok(format!("{evidence}; the driver is open in {}", owners.join("; "))),
        None => Note::unknown(format!("{evidence}; which processes have the driver open is not known")),
    }
}

/// F51: each flap makes all queue pairs of the port useless and leaks a protection domain
pub(super) fn link_flaps(host: &HostReport) -> Vec<Note> {
    let Some(log) = &host.kernel_log else {
        return vec![Note::unknown("the log of the kernel is not known")];
    };
    let ports = host.thunderbolt_interfaces().filter_map(|name| Some((name, *log.links_down.get(name)?)));
    let notes: Vec<_> = ports
        .map(|(name, count)| {
            Note::warn(
                format!("went down {count} times in the last hour"),
                "replug or replace the cable, and connect again: queue pairs from before a flap do not work",
            )
            .on(name)
        })
        .collect();
    // That the kernel says `link down` is assumed: without a message, the state of the link is not known to have stayed.
    if notes.is_empty() {
        vec![Note::ok("no `link down` message was logged in the last hour")]
    } else {
        notes
    }
}

/// F14, F17, F18: failed connections show in the log; repeated ones wedge the port
pub(super) fn failed_connects(host: &HostReport) -> Vec<Note> {
    let Some(log) = &host.kernel_log else {
        return vec![Note::unknown("the log of the kernel is not known")];
    };
    let mut notes = Vec::new();
    if log.arp_lookup_failed > 0 {
        notes.push(Note::warn(
            format!("inet_arp_lookup failed {} times in the last hour", log.arp_lookup_failed),
            "see the findings about neighbours and routes, and do not connect again before they pass: repeated failures wedge the port until a restart",
        ));
    }
    if log.tx_already_started > 0 {
        notes.push(Note::warn(
            format!("TX already started, {} times in the last hour", log.tx_already_started),
            "destroy a queue pair after a failed transition and create a new one; restart the host if new ones fail too",
        ));
    }
    if log.invalid_dma > 0 {
        notes.push(Note::warn(
            format!("InvalidSTE, {} times in the last hour", log.invalid_dma),
            "restart the host: a device accessed memory that was not mapped any more",
        ));
    }
    if notes.is_empty() {
        vec![Note::ok("no message about a failed connection in the last hour")]
    } else {
        notes
    }
}

/// F29, F48, F49, F56, F61: panics and crashes that name the driver, the provider, or GPU memory
pub(super) fn incidents(host: &HostReport) -> Vec<Note> {
    match host.incidents.as_deref() {
        None => vec![Note::unknown("the reports of panics and crashes could not be read")],
        Some([]) => vec![Note::ok(match host.incident_reports {
            Some(count) => format!("reports of panics and crashes that were read: {count}; none names RDMA"),
            None => "no report of a panic or a crash names RDMA".to_owned(),
        })],
        Some(incidents) => incidents.iter().map(incident).collect(),
    }
}

fn incident(incident: &Incident) -> Note {
    let has = |start: &str| incident.names.iter().any(|name| name.starts_with(start));
    let remedy = if has("AppleThunderbolt") || has("IORDMA") || has("IOThunderbolt") {
        "end programs before cables are pulled, update macOS on all hosts, and send the report to Apple"
    } else if incident.is_panic {
        "update macOS and the program: this panic is one of GPU memory, reported on RDMA clusters and not caused by the driver"
    } else if has("ibv_reg_mr") {
        "use a port that is active: the program passed a protection domain that it did not get"
    } else {
        "pull no cable while a program runs, and keep idle queue pairs alive: the provider crashes where a port is gone"
    };
    let what = match (&incident.program, incident.is_panic) {
        (_, true) => "kernel panic".to_owned(),
        (Some(program), false) => format!("{program} crashed"),
        (None, false) => "a program crashed".to_owned(),
    };
    let when = incident.when.as_deref().map(|when| format!(" on {when}")).unwrap_or_default();
    Note::warn(format!("{what}{when}, in {}", incident.names.join(", ")), remedy)
}
