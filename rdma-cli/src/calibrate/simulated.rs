//! A calibration of two simulated Macs, in virtual time

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use futures::channel::oneshot;
use futures::future::join;
use indicatif::ProgressBar;
use rdma_calibrate::{CalibrateError, Calls, Findings, Machine, Path, Simulation, calibrate, conform, serve};
use rdma_core::{AnyDevice, Error, Runtime};
use rdma_sim::{Net, Sim, SimStream};

use super::args::Arguments;
use super::conformance;
use super::record::{Files, Record};
use crate::failure::Failure;
use crate::report::{Output, SIMULATOR, plain, simulated, with_sources};
use crate::{mac, progress};

/// The device at the cable of one of the two Macs
struct SimulatedMac {
    net: Net,
    host: &'static str,
    cables: u8,
    progress: ProgressBar,
    record: Record,
}

impl Machine for SimulatedMac {
    fn cables(&self) -> usize {
        self.cables.into()
    }

    fn open_cable(&self, cable: usize) -> Result<AnyDevice, Error> {
        // The calibration numbers the cables below their count.
        let device = self.net.open(self.host, &mac::device(cable as u8)).map_err(Error::from)?;
        Ok(AnyDevice::new(device))
    }

    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let device = self.net.open(self.host, &mac::device(0)).map_err(Error::from)?;
        Ok(AnyDevice::new(device.with_path(path.source_index, path.mtu)))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.net.host(self.host).runtime()
    }

    fn begins(&self, name: &'static str, number: usize, count: usize) {
        progress::step(&self.progress, name, number, count);
    }

    fn found(&self, findings: &Findings) {
        self.record.update(findings);
    }
}

pub(super) fn run(args: &Arguments, output: Output) -> Result<()> {
    for (option, is_given) in [("--device", !args.device.is_empty()), ("--port", args.port.is_some())] {
        if is_given {
            bail!(Failure::usage(format!("{option} is for two machines: write HOST:, or leave it out")));
        }
    }
    let options = args.options();
    let profile = plain(args.profile.as_deref().unwrap_or("tb5"));
    if args.conformance {
        let record = Record::new(None, None);
        let found = between_two(args, output, &record, async move |mac, stream| {
            let calls = Arc::new(Calls::new(mac.runtime()));
            conform(&mac, stream, &options, &calls).await
        })?;
        return conformance::print(found, SIMULATOR, &mac::device(0), Some(&profile), output);
    }
    let files = Files::require_writable(&args.out, args.profile.as_deref())?;
    let record = Record::new(Some(files), Some(Simulation { profile, is_in_real_time: false }));
    let calibrated =
        between_two(args, output, &record, async move |mac, stream| calibrate(&mac, stream, &options).await);
    let findings = calibrated.inspect_err(|error| record.write_early(&with_sources(error)))?;
    record.write(findings, SIMULATOR, output)
}

/// Does `work` on one of two simulated Macs, of which the other one answers
fn between_two<T: Send + 'static, F>(
    args: &Arguments,
    output: Output,
    record: &Record,
    work: impl FnOnce(SimulatedMac, SimStream) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T, CalibrateError>> + Send + 'static,
{
    let model = mac::model(args.profile.as_deref().unwrap_or("tb5"))?;
    let cables = args.cables.unwrap_or(1);
    output.announce(&simulated(cables))?;
    // Each probe of a queue has 16 MB, which the sanitizer would poison.
    let sim =
        Sim::new().model(model).seed(args.seed.unwrap_or(0)).topology(mac::topology(cables)).sanitize(false);
    let progress = progress::steps(1);
    let run = sim.try_run(async |net| {
        let (asks, answers) = net.tcp();
        let mac = |host| SimulatedMac {
            net: net.clone(),
            host,
            cables,
            progress: progress.clone(),
            record: record.clone(),
        };
        let (a, b) = (mac("a"), mac("b"));
        // Each side is a task of its host: in one task, both would share a processor.
        let (asked, asking_ends) = oneshot::channel();
        let (served, serving_ends) = oneshot::channel();
        let asking = work(a, asks);
        net.host("a").spawn(async move { drop(asked.send(asking.await)) });
        net.host("b").spawn(async move { drop(served.send(serve(&b, answers).await)) });
        join(asking_ends, serving_ends).await
    });
    progress.finish_and_clear();
    let (asked, served) = run?.value;
    let (asked, served) = (asked?, served?);
    if let (Err(CalibrateError::PeerGone), Err(error)) = (&asked, &served) {
        // There is no other side to start: its end is the cause.
        return Err(error.clone()).context("the other simulated Mac");
    }
    let found = asked?;
    served.context("the other simulated Mac")?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;
    use rdma_sim::profile::Profile;

    use super::*;

    #[derive(clap::Parser)]
    struct Tool {
        #[command(flatten)]
        args: Arguments,
    }

    /// Regression: Ctrl-C took away all that a simulated calibration had found.
    ///
    /// Catches files that only the end of a calibration writes.
    #[test]
    fn files_are_written_while_the_calibration_runs() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("found.toml");
        let args = Tool::parse_from(["tb5"]).args;
        let simulation = Simulation { profile: "tb5".to_owned(), is_in_real_time: false };
        let record = Record::new(Some(Files::require_writable(&out, None).unwrap()), Some(simulation));
        let options = args.options();
        let calibrate = async move |mac, stream| calibrate(&mac, stream, &options).await;
        let found = between_two(&args, Output::Json, &record, calibrate).unwrap();
        assert_eq!(Profile::load(&out).unwrap().model, found.profile.model);
        let page = fs::read_to_string(out.with_extension("md")).unwrap();
        assert!(
            page.contains("**The calibration ended early: these files were written while it ran.**"),
            "{page}"
        );
    }

    /// Regression: verbs of minutes ended a calibration of simulated Macs with the advice to start both sides again.
    ///
    /// Catches an end of the side that answers which is not the cause of the other one's.
    #[test]
    fn a_simulated_mac_that_has_given_up_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("slow.toml");
        let slow = "format = 1\n[timing]\nverbs_take_time = true\nregister_ns = 200000000000\n";
        fs::write(&profile, slow).unwrap();
        let args = Tool::parse_from(["tb5", "--profile", profile.to_str().unwrap()]).args;
        let options = args.options();
        let calibrate = async move |mac, stream| calibrate(&mac, stream, &options).await.map(drop);
        let error = between_two(&args, Output::Json, &Record::new(None, None), calibrate).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("has not answered for 120s: a verb may hang there"), "{text}");
        assert!(!text.contains("start both sides again"), "{text}");
    }
}
