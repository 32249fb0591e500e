//! Every promise, for everything that carries data, under every fault, on each kind of device: `docs/MATRIX.md`
//!
//! A cell says which promises a program has put to the test there, and none of them failed. One that is not tested carries its reason.

mod cell;
mod program;
mod remote;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use rdma_tests::files::assert_golden;

use self::cell::{Carrier, Cell, Kind, Situation, run};
use self::program::Promise;

/// The promises in the words of the table, by number
const PROMISES: [(Promise, &str); 9] = [
    (Promise::Order, "Each message arrives once, and in order."),
    (Promise::Place, "Bytes arrive as they were sent, in the place for which they were sent."),
    (
        Promise::Reuse,
        "A lease that `send` has returned can be reused: the message that it carried is not changed.",
    ),
    (Promise::Delivered, "A message that is said to be delivered is at the peer."),
    (Promise::Pressure, "A stream that the application does not read stalls no other stream."),
    (Promise::Bound, "A task learns within the peer timeout that its peer is gone."),
    (Promise::Close, "A session that was closed in good order has delivered everything."),
    (Promise::Cancel, "A future that is dropped loses no message."),
    (Promise::Clean, "Nothing is left behind: memory, objects of the device, tasks."),
];

/// Why a promise is not tested in a situation
fn reason(promise: Promise, situation: Situation, carrier: Carrier) -> Option<&'static str> {
    use Promise::{Bound, Clean, Close, Delivered, Reuse};
    use Situation::*;
    let ends =
        matches!(situation, Kill | Restart | UnplugForGood | UnprovenTeardown | ExhaustedCaps | BlockedVerb);
    let survives =
        carrier == Carrier::Cables && matches!(situation, UnplugForGood | ExhaustedCaps | BlockedVerb);
    match promise {
        Reuse | Delivered if carrier == Carrier::Copies => Some("a copy is no lease"),
        Bound if !ends || survives => Some("the peer is there to the end"),
        Close if ends && !survives => Some("the session is lost"),
        Reuse | Delivered if ends && !survives => Some("the session is lost; what arrived before is checked"),
        Clean if situation == BlockedVerb => Some("what the call has is kept for good"),
        Clean if situation == UnprovenTeardown => {
            Some("memory that the device may still touch is kept from use, which is the promise here")
        }
        _ => None,
    }
}

/// Situations that no simulated device or network has, and why
const MISSING: [(&str, &str); 1] = [(
    "duplicate",
    "no source reports a device that repeats a message; the tests of rdma-core repeat packets",
)];

fn numbers(promises: &BTreeSet<Promise>) -> String {
    let is_there = |(index, (promise, _)): (usize, &(Promise, &str))| {
        promises.contains(promise).then(|| (index + 1).to_string())
    };
    PROMISES.iter().enumerate().filter_map(is_there).collect::<Vec<_>>().join(" ")
}

/// What was seen in each of these cells; all processors run them
fn run_each(cells: &[Cell]) -> Vec<BTreeSet<Promise>> {
    let next = AtomicUsize::new(0);
    let seen: Vec<_> = cells.iter().map(|_| OnceLock::new()).collect();
    let run_some = || {
        loop {
            let place = next.fetch_add(1, Relaxed);
            let Some(cell) = cells.get(place) else { break };
            seen[place].set(run(*cell)).expect("each place is taken once");
        }
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..processors).for_each(|_| drop(scope.spawn(run_some))));
    seen.into_iter().map(|seen| seen.into_inner().expect("every place was taken")).collect()
}

#[test]
fn every_promise_holds_in_every_situation() {
    let mut table = String::from(
        "# The matrix of promises\n\n\
         Made by the test `every_promise_holds_in_every_situation` (`tests/tests/matrix`) from what it ran, on simulated devices;\n\
         nothing here was observed on hardware. A number says that a program has put this promise to the test in this\n\
         situation, over this carrier, and that it held, with two seeds each.\n\n",
    );
    for (number, (_, promise)) in PROMISES.iter().enumerate() {
        writeln!(table, "{}. {promise}", number + 1).expect("a string takes everything");
    }
    let columns = Kind::ALL.map(|kind| Carrier::ALL.map(|carrier| (kind, carrier)));
    let columns = columns.as_flattened();
    let names = columns.iter().map(|(kind, carrier)| format!("{}, {}", carrier.name(), kind.name()));
    writeln!(table, "\n| situation | {} |", names.collect::<Vec<_>>().join(" | ")).expect("as above");
    writeln!(table, "|---{}|", "|---".repeat(columns.len())).expect("as above");
    let mut reasons = Vec::<String>::new();
    let in_situation =
        |&situation| columns.iter().map(move |&(kind, carrier)| Cell { kind, carrier, situation });
    let cells: Vec<_> = Situation::ALL.iter().flat_map(in_situation).collect();
    let seen = run_each(&cells);
    let rows = cells.iter().zip(&seen).collect::<Vec<_>>();
    for (situation, row) in Situation::ALL.iter().zip(rows.chunks(columns.len())) {
        let cells = row.iter().map(|&(&cell, seen)| {
            let mut notes = BTreeSet::new();
            for (number, (promise, _)) in PROMISES.iter().enumerate() {
                let reason = reason(*promise, cell.situation, cell.carrier);
                if seen.contains(promise) {
                    continue;
                }
                let reason =
                    reason.unwrap_or_else(|| panic!("{cell:?}: promise {} was not tested", number + 1));
                let place = reasons.iter().position(|known| known == reason).unwrap_or_else(|| {
                    reasons.push(reason.to_owned());
                    reasons.len() - 1
                });
                notes.insert((b'a' + place as u8) as char);
            }
            format!("{} {}", numbers(seen), notes.into_iter().collect::<String>())
        });
        let cells = cells.map(|cell| cell.trim().to_owned()).collect::<Vec<_>>().join(" | ");
        writeln!(table, "| {} | {cells} |", situation.name()).expect("as above");
    }
    table.push_str("\nNot tested, because:\n\n");
    for (place, reason) in reasons.iter().enumerate() {
        writeln!(table, "* {}: {reason}", (b'a' + place as u8) as char).expect("as above");
    }
    for (situation, reason) in MISSING {
        writeln!(table, "* {situation}: {reason}").expect("as above");
    }
    assert_golden("docs/MATRIX.md", &table);
}
