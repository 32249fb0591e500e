//! Results of a calibration: the profile, the page, and the report of the command

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow, bail};
use rdma_calibrate::{Findings, Simulation};
use rdma_sim::profile::{Decided, Profile};
use serde::Serialize;

use crate::failure::{Failure, is_standard, shown};
use crate::file::{require_other, require_writable, write_all};
use crate::report::{Output, SIMULATOR, error, note, plain, with_sources};

#[derive(Debug, Serialize)]
struct Outcome {
    backend: &'static str,
    role: &'static str,
    device: String,
    /// `None` for a real device
    simulated_profile: Option<String>,
    /// `None` if the other Mac is another process
    virtual_seconds: Option<f64>,
    /// `None` if both Macs are in this process
    wall_seconds: Option<f64>,
    profile_file: String,
    /// `None` if the profile went to standard output.
    page_file: Option<String>,
    contradictions: Vec<&'static str>,
    fields: BTreeMap<&'static str, Field>,
    /// Experiments that an unexpected answer of the device has stopped, with that answer
    stopped: BTreeMap<&'static str, String>,
    /// `None` if the port connects.
    wedged_port: Option<String>,
}

/// A field of the model
#[derive(Debug, Serialize)]
struct Field {
    value: String,
    decided: &'static str,
    why: Option<String>,
}

/// Findings so far, for a calibration that ends early
#[derive(Clone, Default)]
pub(super) struct SoFar(Arc<Mutex<Option<Findings>>>);

impl SoFar {
    pub(super) fn set(&self, findings: &Findings) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(findings.clone());
    }

    fn take(&self) -> Option<Findings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Where a calibration is written, as was tried before: it takes minutes, and is lost if the files cannot be written
#[derive(Clone)]
pub(super) struct Files {
    profile: PathBuf,
    /// `None` beside a profile that goes to standard output: there is no name for it.
    page: Option<PathBuf>,
}

impl Files {
    /// `read` is the profile that is measured
    pub(super) fn require_writable(profile: &Path, read: Option<&str>) -> Result<Self> {
        let page = (!is_standard(profile)).then(|| profile.with_extension("md"));
        if page.as_deref() == Some(profile) {
            bail!(Failure::usage(
                "--out: the page has the extension .md: write another one for the profile, such as .toml"
            ));
        }
        for path in std::iter::once(profile).chain(page.as_deref()) {
            require_other(path, read)?;
            require_writable(path)?;
        }
        Ok(Self { profile: profile.to_owned(), page })
    }

    /// Writes the profile and the page, and prints where they are
    ///
    /// # Errors
    ///
    /// Also if experiments have stopped: the files have the others.
    pub(super) fn write(&self, findings: &Findings, backend: &'static str, output: Output) -> Result<()> {
        self.write_files(findings, unwritten)?;
        print(findings, &self.profile, self.page.as_deref(), backend, output)?;
        let stopped = findings.stopped.first().map(|(stage, why)| {
            anyhow!("the experiments of \"{stage}\" have stopped: {why}; the files have the others")
        });
        match (stopped, &findings.wedged) {
            (stopped, None) => stopped.map_or(Ok(()), Err),
            // The last line, also with --quiet.
            (None, Some(wedged)) => {
                error(&anyhow!("{wedged}"));
                Ok(())
            }
            (Some(stopped), Some(wedged)) => Err(anyhow!("{stopped}\n{wedged}")),
        }
    }

    /// Writes what was found before a calibration ended because of `why`, if it was anything, and says where
    pub(super) fn write_early(&self, so_far: &SoFar, simulated: Option<Simulation>, why: &str) {
        let Some(mut findings) = so_far.take() else { return };
        (findings.simulated, findings.ended) = (simulated, Some(why.to_owned()));
        match self.write_files(&findings, unwritten) {
            Ok(()) => note(&format!("what was found so far is in {}", shown(&self.profile))),
            Err(error) => note(&with_sources(&error)),
        }
    }

    /// Writes what was found so far: a machine that crashes, as Macs were reported to, takes none of it away
    ///
    /// Nothing goes to standard output, which gets the whole profile.
    pub(super) fn write_unfinished(&self, findings: &Findings, simulated: Option<Simulation>) {
        if is_standard(&self.profile) {
            return;
        }
        let mut findings = findings.clone();
        (findings.simulated, findings.ended) =
            (simulated, Some("these files were written while it ran".to_owned()));
        // The profile is not printed, as it is at the end.
        if let Err(error) = self.write_files(&findings, |error, _| error) {
            note(&with_sources(&error));
        }
    }

    /// `failed` makes the error of a profile that cannot be written from that of the system and the text of the profile
    fn write_files(
        &self,
        findings: &Findings,
        failed: fn(anyhow::Error, &str) -> anyhow::Error,
    ) -> Result<()> {
        let simulated = findings.simulated.iter();
        let notes = simulated.map(|Simulation { profile, is_in_real_time }| {
            let times = match is_in_real_time {
                true => "\n# Its times contain what the machine that simulated it added to each step.",
                false => "",
            };
            format!("# Found on a device that was simulated, under profile {profile}{times}\n")
        });
        let profile = notes.chain([findings.profile.to_toml()]).collect::<String>();
        write_all(&self.profile, &profile).map_err(|error| failed(error, &profile))?;
        let page = self.page.iter().try_for_each(|page| write_all(page, &findings.page()));
        page.with_context(|| format!("the profile is in {}, and has no page", shown(&self.profile)))
    }
}

/// The failure to write a good profile, which is not lost by that
fn unwritten(error: anyhow::Error, profile: &str) -> anyhow::Error {
    anyhow!("{}; the profile follows: keep it in another file\n\n{profile}", with_sources(&error))
}

/// The name of a device, with the profile under which it was simulated
pub(super) fn named(device: &str, simulated_profile: Option<&str>) -> String {
    let simulated = simulated_profile.map_or_else(String::new, |of| format!(", simulated ({of})"));
    plain(device) + &simulated
}

fn print(
    findings: &Findings,
    profile_file: &Path,
    page: Option<&Path>,
    backend: &'static str,
    output: Output,
) -> Result<()> {
    let profile = &findings.profile;
    let field = |name| {
        let decided = profile.decided(name)?;
        let word = if decided == Decided::Measured { "measured" } else { "undecided" };
        let why = profile.why(name).map(str::to_owned);
        Some((name, Field { value: profile.value(name)?, decided: word, why }))
    };
    let (seconds, is_simulated) = (findings.took.as_secs_f64(), backend == SIMULATOR);
    let outcome = Outcome {
        backend,
        role: "client",
        device: findings.device.clone(),
        simulated_profile: findings.simulated.as_ref().map(|of| of.profile.clone()),
        virtual_seconds: is_simulated.then_some(seconds),
        wall_seconds: (!is_simulated).then_some(seconds),
        profile_file: profile_file.display().to_string(),
        page_file: page.map(|page| page.display().to_string()),
        contradictions: findings.contradictions(),
        fields: Profile::fields().filter_map(field).collect(),
        stopped: findings.stopped.iter().cloned().collect(),
        wedged_port: findings.wedged.clone(),
    };
    let count = |word| outcome.fields.values().filter(|field| field.decided == word).count().to_string();
    let contradictions = match &outcome.contradictions[..] {
        [] => "none".to_owned(),
        some => some.join(", "),
    };
    let rows = [
        ("device", named(&outcome.device, outcome.simulated_profile.as_deref())),
        ("took", format!("{seconds:.1} s")),
        ("measured", format!("{} fields", count("measured"))),
        ("undecided", format!("{} fields, each with its reason in the page", count("undecided"))),
        ("contradicts the simulator", contradictions),
        ("profile", outcome.profile_file.clone()),
    ];
    let page = outcome.page_file.iter().map(|page| ("page", page.clone()));
    output.outcome(&outcome, rows.into_iter().chain(page))
}
