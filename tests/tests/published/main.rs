//! Figures that others published, beside those of the model
//!
//! Virtual time is exact: the assertions are about the model, not this machine.

mod document;
mod no_figure;
mod programs;
mod rows;

use programs::{BUFFER, Program, time_of};
use rdma_sim::{LineRate, Model};
use rdma_tests::files::assert_golden;
use rows::{Basis, Row, rows};

/// Catches a change of the model that was not compared with the published figures, and a figure that is wrongly called predicted.
#[test]
fn published_figures_are_predicted_calibrated_or_explained() {
    let rows = rows();
    for row in &rows {
        let Row { setup, source, figure, .. } = row;
        let error = row.error();
        match row.basis {
            Basis::Again(_) | Basis::Predicted | Basis::Calibrated(_) => {
                assert!(
                    error.is_some_and(|error| error.abs() <= 0.15),
                    "{setup} ({source}): {figure:?}, {error:?}"
                );
            }
            Basis::Missed(_) => {
                assert!(
                    error.is_some_and(|error| error.abs() > 0.15),
                    "{setup} ({source}): {figure:?} is no miss"
                );
            }
            Basis::None(_) => assert_eq!(error, None, "{setup} ({source})"),
        }
    }
    let count = |has_cpu: bool, wanted: fn(&Basis) -> bool| {
        rows.iter().filter(|row| row.has_cpu >= has_cpu && wanted(&row.basis)).count()
    };
    // Rows that predict the same figure again are not counted.
    let is_predicted = |basis: &Basis| *basis == Basis::Predicted;
    assert!(count(false, is_predicted) >= 10);
    assert!(count(true, is_predicted) >= count(true, |basis| matches!(basis, Basis::Calibrated(_))));
    assert_golden("docs/PUBLISHED.md", &document::document(&rows));
}

/// Source: MLX pull request 3094, which replaced the buffers of 4 KiB that macOS 26.2 needs: much less bandwidth.
#[test]
fn buffers_of_4_kib_collapse() {
    let time = |model, buffer| {
        time_of(model, 2, LineRate::TB5, Program::Mesh { bytes: 4 << 20, buffer }).as_secs_f64()
    };
    let ratio = time(Model::tb5_macos_26_2(), 4096) / time(Model::tb5(), BUFFER);
    assert!(ratio > 5.0, "{ratio}");
}
