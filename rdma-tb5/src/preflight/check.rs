use std::fmt;

use serde::Serialize;

use crate::discover::HostReport;

/// How bad something is; the worst is the greatest
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be
    Ok,
    /// There is no evidence
    Unknown,
    /// It works for some, or not for long
    Warn,
    /// RDMA will not work
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

/// A report, and what to call the host that it is about
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Host {
    /// Such as the name of the file that the report was read from
    pub label: String,
    /// What was found there
    pub report: HostReport,
}

impl Host {
    /// `report`, under the name of `label`
    pub fn new(label: impl Into<String>, report: HostReport) -> Self {
        Self { label: label.into(), report }
    }
}

/// Something to look at
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Stable name
    pub id: &'static str,
    /// What it looks at
    pub looks_at: &'static str,
    /// The failures of the catalogue that it sees coming
    pub faults: &'static [u8],
    pub(super) look: Look,
}

/// One host at a time, or all of them at once
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    Each(fn(&HostReport) -> Vec<Note>),
    Together(fn(&[Host]) -> Vec<Note>),
}

impl Check {
    /// Looks at all hosts
    pub fn run(&self, hosts: &[Host]) -> Vec<Finding> {
        let of = |note: Note, host: Option<&Host>| Finding {
            check: self.id,
            faults: self.faults,
            host: host.map(|host| host.label.clone()),
            subject: note.subject,
            verdict: note.verdict,
            // Names and states can be empty too.
            evidence: if note.evidence.trim().is_empty() { "(empty)".to_owned() } else { note.evidence },
            remedy: note.remedy,
        };
        match self.look {
            Look::Each(look) => hosts
                .iter()
                .flat_map(|host| look(&host.report).into_iter().map(move |note| of(note, Some(host))))
                .collect(),
            Look::Together(look) => look(hosts).into_iter().map(|note| of(note, None)).collect(),
        }
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
    /// The host, if it is about one
    pub host: Option<String>,
    /// The device, interface or receptacle, if it is about one
    pub subject: Option<String>,
    /// How bad it is
    pub verdict: Verdict,
    /// What was observed
    pub evidence: String,
    /// What to do about it
    pub remedy: Option<&'static str>,
}

/// What all checks found
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// In the order of the table
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// The worst that was found
    pub fn verdict(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Unknown)
    }

    /// How many findings have this verdict
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

/// A finding before it is known who made it
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
