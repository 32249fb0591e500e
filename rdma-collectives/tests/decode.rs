//! Published speeds of tensor-parallel decoding beside `t(n) = A/n + B + 2 L s`; DECODE.md has the table and says what is assumed
//!
//! Catches a prediction that leaves its bound (GLM-5 with 20 % more active parameters is 8 % off), and a page that says something else
//! than the computation. It does not catch every wrong input: DECODE.md says which inputs the published speeds hardly depend on.

use std::fmt::Write as _;
use std::{env, fs};

use rdma_collectives::{AllReducePlans, Cabling, Costs};

/// Bytes in a second that an M3 Ultra reads from its memory (Apple's specification)
const MEMORY: f64 = 819e9;
/// Bytes in a second that a cable of 80 Gb/s carries in one direction, and the nanoseconds of a short message, as in the simulator
const CABLE: (u64, u64) = (9_200_000_000, 6_300);
/// bf16
const ELEMENT_BYTES: u64 = 2;

struct Model {
    name: &'static str,
    /// Parameters that a token passes through
    active: f64,
    /// Bits for each of them in memory, with the scales and biases of their groups
    bits: f64,
    layers: u32,
    /// Elements of the vector that is summed
    hidden: u64,
    /// Macs, and tokens in a second; `B` comes from the first one
    measured: &'static [(usize, f64)],
    /// The largest error of a prediction, or `None` if the model misses
    bound: Option<f64>,
}

const MODELS: [Model; 4] = [
    Model {
        name: "Qwen3-235B-A22B, 8 bit",
        active: 22.2e9,
        bits: 8.5,
        layers: 94,
        hidden: 4096,
        measured: &[(1, 19.5), (2, 26.2), (4, 31.9)],
        bound: Some(0.05),
    },
    Model {
        name: "GLM-5, 8 bit",
        active: 40e9,
        bits: 8.5,
        layers: 78,
        hidden: 6144,
        measured: &[(2, 18.3), (4, 23.7)],
        bound: Some(0.05),
    },
    Model {
        name: "DeepSeek V3.1, taken as 4 bit",
        active: 37e9,
        bits: 4.5,
        layers: 61,
        hidden: 7168,
        measured: &[(1, 21.1), (2, 27.8), (4, 32.5)],
        bound: Some(0.10),
    },
    Model {
        name: "Kimi K2 Thinking, 4 bit",
        active: 32e9,
        bits: 4.5,
        layers: 61,
        hidden: 7168,
        measured: &[(2, 21.6), (4, 28.3)],
        bound: None,
    },
];

impl Model {
    /// `A`: seconds in which one Mac reads the parameters of a token
    fn weights(&self) -> f64 {
        self.active * self.bits / 8.0 / MEMORY
    }

    /// `2 L s` for so many Macs, each cabled to each
    fn sums(&self, macs: usize, s: impl Fn(usize) -> f64) -> f64 {
        f64::from(2 * self.layers) * s(macs)
    }

    /// `B`: what the smallest cluster needs beyond the weights and the sums
    fn rest(&self, s: impl Fn(usize) -> f64) -> f64 {
        let (macs, rate) = self.measured[0];
        1.0 / rate - self.weights() / macs as f64 - self.sums(macs, s)
    }

    /// Tokens in a second
    fn predicted(&self, macs: usize, s: impl Fn(usize) -> f64) -> f64 {
        1.0 / (self.weights() / macs as f64 + self.rest(&s) + self.sums(macs, s))
    }

    /// The largest error of the Macs that `B` does not come from, as a part of what was measured
    fn error(&self, s: impl Fn(usize) -> f64) -> f64 {
        let errors = self.measured[1..].iter().map(|&(macs, rate)| self.predicted(macs, &s) / rate - 1.0);
        errors.max_by(|a, b| a.abs().total_cmp(&b.abs())).expect("each model has a prediction")
    }

    /// `s`: seconds of an all_reduce of the vector of a token, as the planner of this crate predicts it
    fn all_reduce(&self, macs: usize) -> f64 {
        if macs == 1 {
            return 0.0;
        }
        let cabling = Cabling::mesh(macs, CABLE.0).with_latency(CABLE.1);
        let plans = AllReducePlans::new(&cabling).expect("a mesh has plans");
        let (_, prediction) = plans
            .choose(&cabling, self.hidden * ELEMENT_BYTES, Costs::default())
            .expect("the plans are for this cabling");
        prediction.seconds
    }
}

/// The same `s` for every number of Macs above one, in microseconds
fn constant(us: f64) -> impl Fn(usize) -> f64 {
    move |macs| if macs == 1 { 0.0 } else { us * 1e-6 }
}

fn tables() -> String {
    let mut text = String::from(
        "| model | A | B | L | s, 2 and 4 Macs | Macs | measured | predicted | error |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for model in &MODELS {
        let s = |macs| model.all_reduce(macs);
        for (number, &(macs, rate)) in model.measured.iter().enumerate() {
            let predicted = model.predicted(macs, s);
            let result = match number {
                0 => "B comes from it |".to_owned(),
                _ => format!("{predicted:.1} | {:+.1} %", 100.0 * (predicted / rate - 1.0)),
            };
            let _ = writeln!(
                text,
                "| {} | {:.1} ms | {:.1} ms | {} | {:.1} and {:.1} µs | {macs} | {rate:.1} | {result} |",
                model.name,
                1e3 * model.weights(),
                1e3 * model.rest(s),
                model.layers,
                1e6 * s(2),
                1e6 * s(4),
            );
        }
    }
    text += "\n| model | s = 0 | s of the planner | s = 16 µs | s = 25.5 µs | B for each layer | without B |\n|---|---|---|---|---|---|---|\n";
    for model in &MODELS {
        let percent = |error: f64| format!("{:+.1} %", 100.0 * error);
        let (macs, rate) = model.measured[0];
        let s = |macs| model.all_reduce(macs);
        let without = 1.0 / (model.weights() / macs as f64 + model.sums(macs, s)) / rate - 1.0;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.0} µs | {} |",
            model.name,
            percent(model.error(constant(0.0))),
            percent(model.error(s)),
            percent(model.error(constant(16.0))),
            percent(model.error(constant(25.5))),
            1e6 * model.rest(s) / f64::from(model.layers),
            percent(without),
        );
    }
    text
}

#[test]
fn the_model_predicts_what_it_claims_and_misses_what_it_says() {
    for model in &MODELS {
        let error = model.error(|macs| model.all_reduce(macs)).abs();
        match model.bound {
            Some(bound) => assert!(error <= bound, "{}: {error}", model.name),
            None => {
                assert!((0.10..0.20).contains(&error), "{}: DECODE.md says 10 to 20 %: {error}", model.name)
            }
        }
    }
}

/// What DECODE.md says about the input that matters most: with 8 bits, DeepSeek's weights take longer to read than a token took.
#[test]
fn deepseek_with_eight_bits_is_impossible_and_with_five_misses() {
    let deepseek = |bits| Model { bits, ..MODELS[2] };
    assert!(deepseek(8.5).rest(constant(7.0)) < 0.0, "less than nothing is left");
    assert!(deepseek(5.5).error(constant(7.0)) > 0.20);
}

#[test]
fn the_page_has_these_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/DECODE.md");
    let page = fs::read_to_string(path).expect("the page");
    let (before, rest) = page.split_once("<!-- figures -->\n").expect("the beginning of the tables");
    let (found, after) = rest.split_once("<!-- end of figures -->").expect("their end");
    let tables = tables();
    if env::var_os("UPDATE_GOLDEN").is_some() {
        let page = format!("{before}<!-- figures -->\n{tables}<!-- end of figures -->{after}");
        return fs::write(path, page).expect("the page can be written");
    }
    assert_eq!(found, tables, "UPDATE_GOLDEN=1 writes them");
}
