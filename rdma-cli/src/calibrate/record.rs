//! The profile and the page, as far as a calibration has come

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow, bail};
use rdma_calibrate::{Findings, Simulation};

use super::outcome::print;
use crate::failure::{Failure, is_standard, shown};
use crate::file::{require_other, require_writable, write_all};
use crate::report::{Output, error, note, with_sources};

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
        if profile.file_name().is_none() {
            let why = format!(
                "--out: {} is no file: name the file of the profile, such as found.toml",
                shown(profile)
            );
            bail!(Failure::usage(why));
        }
        let page = (!is_standard(profile)).then(|| profile.with_extension("md"));
        // Also as .MD: many disks of Macs take both for one.
        if page.as_deref().is_some_and(|page| page.as_os_str().eq_ignore_ascii_case(profile)) {
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

    /// `failed` makes the error of a profile that cannot be written from that of the system and the text of the profile
    fn write(&self, findings: &Findings, failed: fn(anyhow::Error, &str) -> anyhow::Error) -> Result<()> {
        let notes = findings.simulated().into_iter().map(|Simulation { profile, is_in_real_time }| {
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

/// What a calibration has found so far, and its files
#[derive(Clone)]
pub(super) struct Record {
    /// `None` if nothing is written.
    files: Option<Files>,
    /// `None` for a real device
    simulated: Option<Simulation>,
    latest: Arc<Mutex<Option<Findings>>>,
    /// The latest reason for which the files could not be written while the calibration runs, which is said once
    unwritten: Arc<Mutex<Option<String>>>,
}

impl Record {
    pub(super) fn new(files: Option<Files>, simulated: Option<Simulation>) -> Self {
        Self { files, simulated, latest: Arc::default(), unwritten: Arc::default() }
    }

    pub(super) fn simulated_profile(&self) -> Option<&str> {
        self.simulated.as_ref().map(|simulated| simulated.profile.as_str())
    }

    /// Writes what was found so far: a machine that crashes, as Macs were reported to, takes none of it away
    ///
    /// Nothing goes to standard output, which gets the whole profile.
    pub(super) fn update(&self, findings: &Findings) {
        let Some(files) = &self.files else { return };
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(findings.clone());
        if is_standard(&files.profile) {
            return;
        }
        let unfinished = self.ended(findings.clone(), "these files were written while it ran");
        // The profile is not printed, as it is at the end.
        let written = files.write(&unfinished, |error, _| error);
        let why = written.err().map(|error| with_sources(&error));
        let before =
            mem::replace(&mut *self.unwritten.lock().unwrap_or_else(PoisonError::into_inner), why.clone());
        // Once for many stages.
        if let Some(why) = why.filter(|why| before.as_ref() != Some(why)) {
            note(&why);
        }
    }

    /// Writes what was found before the calibration ended because of `why`, if it was anything, and says where
    pub(super) fn write_early(&self, why: &str) {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((files, findings)) = self.files.as_ref().zip(latest) else { return };
        match files.write(&self.ended(findings, why), unwritten) {
            Ok(()) => note(&format!("what was found so far is in {}", shown(&files.profile))),
            Err(error) => note(&with_sources(&error)),
        }
    }

    fn ended(&self, mut findings: Findings, why: &str) -> Findings {
        findings.set_simulated(self.simulated.clone());
        findings.ended = Some(why.to_owned());
        findings
    }

    /// Writes the profile and the page of a whole calibration, and prints where they are
    ///
    /// # Errors
    ///
    /// Also if experiments have stopped: the files have the others.
    pub(super) fn write(self, mut findings: Findings, backend: &'static str, output: Output) -> Result<()> {
        let Some(files) = self.files else { return Ok(()) };
        findings.set_simulated(self.simulated);
        files.write(&findings, unwritten)?;
        print(&findings, &files.profile, files.page.as_deref(), backend, output)?;
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
}

/// The failure to write a good profile, which is not lost by that
fn unwritten(error: anyhow::Error, profile: &str) -> anyhow::Error {
    anyhow!("{}; the profile follows: keep it in another file\n\n{profile}", with_sources(&error))
}
