//! What a check is, and what it finds

use std::fmt;

use serde::Serialize;

use crate::report::HostReport;

/// How bad a finding is; the worst is the greatest
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be
    Ok,
    /// There is no evidence
    Unknown,
    /// It works for some programs, or not for long
    Warn,
    /// RDMA will not work
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A report, and the name of the host in findings
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// Such as the name of the file that the report was read from
    pub label: String,
    /// What was found on the host
    pub report: HostReport,
}

impl Host {
    /// `report` of a host that findings call `label`
    pub fn new(label: impl Into<String>, report: HostReport) -> Self {
        Self { label: label.into(), report }
    }
}

/// One question to a report, or to the reports of several hosts
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Stable name
    pub id: &'static str,
    /// What should be so
    pub expectation: &'static str,
    /// The numbers of the reported failures that it detects
    pub faults: &'static [u8],
    pub(super) scope: Scope,
}

/// The reports that a check looks at
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    /// Each host
    Each(fn(&HostReport) -> Vec<Note>),
    /// Each Mac
    EachMac(fn(&HostReport) -> Vec<Note>),
    /// Each Mac, about which it says one thing
    OncePerMac(fn(&HostReport) -> Note),
    /// All hosts together
    Together(fn(&[Host]) -> Vec<Note>),
}

impl Check {
    /// Runs the check on the reports of all hosts
    ///
    /// A check that does not apply, such as one about macOS on another system, finds nothing.
    ///
    /// ```
    /// use rdma_doctor::{CHECKS, Host, HostReport, Verdict};
    ///
    /// let check = CHECKS.iter().find(|check| check.id == "idle_sleep").unwrap();
    /// let report: HostReport = serde_json::from_str(r#"{"platform": "macos", "idle_sleep_minutes": 10}"#)?;
    /// let findings = check.run(&[Host::new("left", report)]);
    /// assert_eq!(findings[0].verdict, Verdict::Warn);
    /// assert_eq!(check.run(&[Host::new("not a Mac", HostReport::default())]), []);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn run(&self, hosts: &[Host]) -> Vec<Finding> {
        let finding = |note: Note, host: Option<&Host>| Finding {
            check: self.id,
            faults: self.faults,
            host: host.map(|host| host.label.clone()),
            subject: note.subject,
            verdict: note.verdict,
            // Names and states of a report can be empty.
            evidence: if note.evidence.trim().is_empty() { "(empty)".to_owned() } else { note.evidence },
            remedy: note.remedy,
        };
        let notes = |host: &Host| match self.scope {
            Scope::Each(look) => look(&host.report),
            Scope::EachMac(look) if host.report.is_mac() => look(&host.report),
            Scope::OncePerMac(look) if host.report.is_mac() => vec![look(&host.report)],
            _ => Vec::new(),
        };
        if let Scope::Together(look) = self.scope {
            return look(hosts).into_iter().map(|note| finding(note, None)).collect();
        }
        hosts
            .iter()
            .flat_map(|host| notes(host).into_iter().map(move |note| finding(note, Some(host))))
            .collect()
    }
}

/// What a check found
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// [`Check::id`] of the check
    pub check: &'static str,
    /// [`Check::faults`] of the check
    pub faults: &'static [u8],
    /// The host, if the finding is about one
    pub host: Option<String>,
    /// The device, interface or receptacle, if the finding is about one
    pub subject: Option<String>,
    /// How bad it is
    pub verdict: Verdict,
    /// What was observed
    pub evidence: String,
    /// What to do about it
    pub remedy: Option<&'static str>,
}

/// The findings of all checks
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// In the order of the checks
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// The worst verdict of all findings; [`Verdict::Unknown`] if there are none
    pub fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Unknown)
    }

    /// The number of findings with this verdict
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

/// A finding without the names of its check and its host
#[derive(Debug)]
pub(super) struct Note {
    subject: Option<String>,
    verdict: Verdict,
    evidence: String,
    remedy: Option<&'static str>,
}

impl Note {
    pub(super) fn ok(evidence: impl Into<String>) -> Self {
        Self { subject: None, verdict: Verdict::Ok, evidence: evidence.into(), remedy: None }
    }

    pub(super) fn unknown(evidence: impl Into<String>) -> Self {
        Self { verdict: Verdict::Unknown, ..Self::ok(evidence) }
    }

    pub(super) fn warn(evidence: impl Into<String>, remedy: &'static str) -> Self {
        Self { verdict: Verdict::Warn, remedy: Some(remedy), ..Self::ok(evidence) }
    }

    pub(super) fn fail(evidence: impl Into<String>, remedy: &'static str) -> Self {
        Self { verdict: Verdict::Fail, remedy: Some(remedy), ..Self::ok(evidence) }
    }

    pub(super) fn on(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    pub(super) fn advise(self, remedy: &'static str) -> Self {
        Self { remedy: Some(remedy), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_verdict_is_the_greatest() {
        let mut verdicts = [Verdict::Warn, Verdict::Fail, Verdict::Ok, Verdict::Unknown];
        verdicts.sort();
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Unknown, Verdict::Warn, Verdict::Fail]);
    }
}
