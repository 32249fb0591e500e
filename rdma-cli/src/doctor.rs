//! `tb5 doctor`: checks and their remedies

use std::io;

use rdma_doctor::report::Platform;
use rdma_doctor::{Diagnosis, Finding, Host, Verdict, diagnose};
use serde::Serialize;

use crate::args::Doctor;
use crate::failure::is_standard;
use crate::file::reserve_standard_output;
use crate::report::{Output, is_coloured, plain, table};
use crate::{Failure, progress, recorded};

#[derive(Debug, Serialize)]
struct DiagnosisOutput<'a> {
    verdict: Verdict,
    ok: usize,
    unknown: usize,
    warn: usize,
    fail: usize,
    hosts: Vec<Summary<'a>>,
    findings: &'a [Finding],
    recorded: Option<String>,
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    host: &'a str,
    platform: Platform,
    macos_version: Option<&'a str>,
    macos_build: Option<&'a str>,
    hardware_model: Option<&'a str>,
}

pub(crate) fn run(args: &Doctor, output: Output) -> anyhow::Result<()> {
    reserve_standard_output(&args.record, output)?;
    let hosts =
        if args.from.is_empty() { vec![this_machine(args)?] } else { recorded::read_all(&args.from)? };
    if let (Some(path), [host]) = (&args.record, &hosts[..]) {
        recorded::write(path, &host.report)?;
    }
    let diagnosis = diagnose(&hosts);
    let report = DiagnosisOutput {
        verdict: diagnosis.verdict(),
        ok: diagnosis.count(Verdict::Ok),
        unknown: diagnosis.count(Verdict::Unknown),
        warn: diagnosis.count(Verdict::Warn),
        fail: diagnosis.count(Verdict::Fail),
        hosts: hosts.iter().map(summary).collect(),
        findings: &diagnosis.findings,
        recorded: args
            .record
            .as_ref()
            .filter(|path| !is_standard(path))
            .map(|path| path.display().to_string()),
    };
    output.print(&report, || text(&hosts, &diagnosis, &report))?;
    if report.verdict == Verdict::Fail { Err(Failure::Reported.into()) } else { Ok(()) }
}

/// This machine, with the probes that were asked for
fn this_machine(args: &Doctor) -> anyhow::Result<Host> {
    let mut host = recorded::this_machine()?;
    if let Some(targets) = &args.probe {
        let progress = progress::spinner("trying the other end of each cable");
        recorded::probe_peers(&mut host.report, targets)?;
        progress.finish_and_clear();
    }
    Ok(host)
}

fn summary(host: &Host) -> Summary<'_> {
    let report = &host.report;
    Summary {
        host: &host.label,
        platform: report.platform,
        macos_version: report.macos_version.as_deref(),
        macos_build: report.macos_build.as_deref(),
        hardware_model: report.hardware_model.as_deref(),
    }
}

fn text(hosts: &[Host], diagnosis: &Diagnosis, report: &DiagnosisOutput<'_>) -> String {
    let mut lines: Vec<_> = hosts.iter().map(recorded::summary).collect();
    lines.extend(report.recorded.as_ref().map(|path| format!("recorded in {path}")));
    let mut lines: Vec<_> = lines.iter().map(|line| plain(line)).collect();
    let findings = table(diagnosis.findings.iter().map(|finding| row(finding, hosts.len() > 1)));
    lines.push(if is_coloured(&io::stdout()) { coloured(&findings) } else { findings });
    for host in hosts.iter().filter(|host| host.report.devices.as_deref() == Some(&[])) {
        lines.push(plain(&format!("{} has no RDMA", host.label)));
    }
    let DiagnosisOutput { verdict, ok, unknown, warn, fail, .. } = report;
    lines.push(format!("verdict: {verdict} ({ok} ok, {unknown} unknown, {warn} warn, {fail} fail)"));
    lines.join("\n")
}

/// The table with the verdicts in colour that call for something, at the beginnings of lines
fn coloured(table: &str) -> String {
    let colours = [(Verdict::Fail, "31"), (Verdict::Warn, "33")];
    let line = |line: &str| {
        let found = colours.iter().find_map(|(verdict, colour)| {
            let verdict = verdict.to_string();
            let (before, after) = line.split_once(&verdict)?;
            // Evidence is further to the right.
            let is_verdict = before.len() < 2 && before.trim().is_empty() && after.starts_with(' ');
            is_verdict.then(|| format!("{before}\x1b[{colour}m{verdict}\x1b[0m{after}"))
        });
        found.unwrap_or_else(|| line.to_owned())
    };
    table.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn row(finding: &Finding, names_host: bool) -> [String; 4] {
    let host = finding.host.as_deref().filter(|_| names_host);
    let place: Vec<_> = [host, finding.subject.as_deref()].into_iter().flatten().map(plain).collect();
    let mut evidence = plain(&finding.evidence);
    if let Some(remedy) = finding.remedy {
        evidence.push_str("\n→ ");
        evidence.push_str(remedy);
    }
    [finding.verdict.to_string(), finding.check.to_owned(), place.join(" "), evidence]
}
