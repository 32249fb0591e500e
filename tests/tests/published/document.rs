//! The rows as a page for people

use std::fmt::Write;

use super::rows::{Basis, Row};

/// The page
pub(crate) fn document(rows: &[Row]) -> String {
    let mut md = HEAD.to_owned();
    let count = |wanted: fn(&Basis) -> bool| rows.iter().filter(|row| wanted(&row.basis)).count();
    let predicted = count(|basis| *basis == Basis::Predicted);
    let again = count(|basis| matches!(basis, Basis::Again(_)));
    let calibrated = count(|basis| matches!(basis, Basis::Calibrated(_)));
    let missed = count(|basis| matches!(basis, Basis::Missed(_)));
    let none = count(|basis| matches!(basis, Basis::None(_)));
    let with_cpu =
        |wanted: fn(&Basis) -> bool| rows.iter().filter(|row| row.has_cpu && wanted(&row.basis)).count();
    let _ = writeln!(
        md,
        "Of {} rows {predicted} are predicted within 15 % and different figures, {again} repeat one of these, {calibrated} are calibrated, {missed} \
         are missed, and {none} have no figure of the model. With processors {} are predicted and {} calibrated.\n",
        rows.len(),
        with_cpu(|basis| *basis == Basis::Predicted),
        with_cpu(|basis| matches!(basis, Basis::Calibrated(_))),
    );
    md.push_str("| Setup | Source | Published | Model | Error | |\n| --- | --- | --- | --- | --- | --- |\n");
    for row in rows {
        let [least, greatest] = row.published.map(number);
        let published = if least == greatest { least } else { format!("{least} to {greatest}") };
        let figure =
            row.figure.map_or_else(|| "–".to_owned(), |figure| format!("{} {}", number(figure), row.unit));
        let error = row.error().map_or_else(|| "–".to_owned(), |error| format!("{:+.1} %", 100.0 * error));
        let basis = match row.basis {
            Basis::Again(of) => format!("predicted, and not counted: {of}"),
            Basis::Calibrated(what) => format!("calibrated: {what}"),
            Basis::Predicted => "**predicted**".to_owned(),
            Basis::Missed(why) => format!("missed: {why}"),
            Basis::None(why) => format!("none: {why}"),
        };
        let unit = row.unit;
        let _ = writeln!(
            md,
            "| {} | {} | {} | {} | {error} | {basis} |",
            row.setup,
            row.source,
            format!("{published} {unit}").trim_end(),
            figure.trim_end(),
        );
    }
    md.push_str(TAIL);
    md
}

/// With three digits
fn number(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

const HEAD: &str = "\
# Published figures

Figures that others measured between Macs, some with Linux at an end, beside those of the simulator. This file is generated;
`UPDATE_GOLDEN=1 cargo test -p rdma-tests --test published` regenerates it, and the test fails if a figure changes.

**No figure of this page was measured by this project, and none of the model is one of a Mac.**

* *predicted*: nothing of the model was chosen for this figure, and it is within 15 %
* *calibrated*: part of the model was chosen so that this figure comes out; agreement says nothing
* *missed*: predicted, and further off
* *none*: the model has no such figure

The error is against the nearer end of a published range. Predictions are counted by figures and not by rows: the four runs of ds4 are one
figure of the model, and so are the mean and the best of several runs, and two readings of one setup. Of those that are counted, 16 MiB of
pytorch PR 181087 are the least independent: they lie next to the 128 MiB with which the cable is calibrated. Six speeds of language models in
[DECODE.md](../rdma-collectives/DECODE.md) are not counted here, as they say little about RDMA. Where a source leaves open how its program works,
the setup names the reading that was taken: one message in flight on the rings of pytorch PR
189856 for reductions, and two for its all_gather, for example.

The programs run in virtual time as their source, or its description, has them, on the profile `tb5-cpu`: one core for each process, which
copies every byte into a buffer of at most 512 KiB, two of them in flight, and adds every byte that arrives. The first row, and those
about queues and transitions, are of `tb5`.

## Why processors are off by default

In the profile `tb5` only the wire takes time. Sessions and groups promise shares of what the wire carries, and their tests assert these;
the rate of cables predicts the runs of ds4, for which it was not chosen. The costs of processors rest on a few figures of programs whose
code does other things as well, and on assumptions where nothing is published: registration, posts, polls and the tail of wake-ups.
A default with them would turn exact statements about the protocol into statements about assumptions. It would also contradict the
promises: with an assumed core that copies every byte, a broadcast over a pair misses the 0.95 of its bound that groups promise, and the
round trip of 64 KiB over a session exceeds the 1.3 times that of bare verbs that sessions promise. `tb5-cpu` is for the question how long
a program takes that copies and adds: sums of three and more ranks are bound by that, as the table shows.

## The table

";

const TAIL: &str = "
## Numbers of the same sources that are no figures of time

* 101 of 101 samples of a deadlock in `ibv_dealloc_pd` (mesh-flow): how often is not modelled.
* 23 minutes until an idle queue pair is dead: the rule `idle-death`.
* 64 memory regions of MLX for each peer: a program in the tests of the limits, not a figure of the device.
* 1786 s between two runs of a launch daemon that changes addresses (exo): a program beside the device.
* Tokens in a second: [DECODE.md](../rdma-collectives/DECODE.md) has four models with exo, and says what it assumes. Other runs (mlx#3094,
  exo#1468 beyond the beginning of its context, exo#1594, exo#1723, exo#1826, exo#2295, ds4#715, and those of llama.cpp) depend on GPUs, quantization
  or networks that their sources leave out.
* 6 to 32 GiB registered at start-up (mesh-flow): how long that takes is not published; 500 ns for each page of 16 KiB are assumed.
";
