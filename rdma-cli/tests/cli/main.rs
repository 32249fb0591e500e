//! The `tb5` program as its users see it: arguments, files, signals, output, exit codes
#![cfg(unix)]

#[macro_use]
mod support;

mod arguments;
mod bench;
mod bench_figures;
mod best_cabling;
mod calibrate;
mod check;
mod copy;
mod demo;
mod doctor;
mod field_failures;
#[cfg(target_os = "linux")]
mod inspection;
mod machines;
mod manual;
#[cfg(target_os = "linux")]
mod memory;
mod ping;
mod pipe;
mod readme_figures;
mod reasons;
mod resume;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod screen;
mod shapes;
mod sim;
mod standard_output;
#[cfg(target_os = "linux")]
mod terminal;
mod topo;
mod tree;
mod verbose;
