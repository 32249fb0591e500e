//! Runs the tools of a Mac: all of [`Tool::ALL`], then `route` for the addresses that they showed

use std::time::Duration;

use super::tool::TIMEOUT;
use super::{Captured, Outputs, Tool};
use crate::report::Outcome;

/// Addresses of peers for which the route is looked up
const MAX_ROUTES: usize = 16;

/// Runs each tool once by `run`, which takes a program, its arguments and a bound on its time
pub(super) fn gather(mut run: impl FnMut(&str, &[&str], Duration) -> Captured) -> Outputs {
    let mut outputs = Outputs::default();
    for tool in Tool::ALL {
        let [program, args @ ..] = tool.command() else { continue };
        outputs.tools.insert(tool, run(program, args, tool.timeout()));
    }
    let seen = outputs.report();
    let peers = seen.thunderbolt_interfaces().flat_map(|interface| seen.peer_addresses(interface));
    for address in peers.take(MAX_ROUTES) {
        let captured = run("route", &["-n", "get", &address.to_string()], TIMEOUT);
        let is_hung = captured.outcome == Outcome::Hung;
        outputs.routes.insert(address, captured);
        // The next one would hang as well, for as long.
        if is_hung {
            break;
        }
    }
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;

    const IFCONFIG: &str = "en3: flags=1<UP>\n\tinet 192.168.40.1 netmask 0xfffffffc\n\
                            en4: flags=1<UP>\n\tinet 192.168.30.1 netmask 0xfffffffc\n";
    const PORTS: &str =
        "Hardware Port: Thunderbolt 2\nDevice: en3\n\nHardware Port: Thunderbolt 3\nDevice: en4\n";

    fn mac(hung: &'static str) -> (Outputs, Vec<String>) {
        let mut ran = Vec::new();
        let outputs = gather(|program, args, timeout| {
            assert!(timeout <= Duration::from_secs(15));
            ran.push([&[program], args].concat().join(" "));
            let stdout = match program {
                "ifconfig" => IFCONFIG,
                "networksetup" => PORTS,
                "route" => "interface: en4\n",
                _ => "",
            };
            let outcome = if program == hung { Outcome::Hung } else { Outcome::Done };
            let stdout = if program == hung { String::new() } else { stdout.to_owned() };
            Captured { outcome, stdout, stderr: String::new() }
        });
        (outputs, ran)
    }

    #[test]
    fn every_tool_is_run_once_and_then_the_route_to_each_peer() {
        let (outputs, ran) = mac("none");
        let (tools, routes) = ran.split_at(Tool::ALL.len());
        let expected: Vec<_> = Tool::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(tools, expected);
        assert_eq!(routes, ["route -n get 192.168.40.2", "route -n get 192.168.30.2"]);
        assert_eq!(outputs.report().routes.unwrap().len(), 2);
    }

    #[test]
    fn a_tool_that_hangs_keeps_no_other_from_being_run() {
        let (outputs, ran) = mac("ndp");
        assert_eq!(ran.len(), Tool::ALL.len() + 2);
        let report = outputs.report();
        assert_eq!((report.ipv6_neighbours.is_none(), report.interfaces.unwrap().len()), (true, 2));
        let (outputs, ran) = mac("route");
        assert_eq!(ran.len(), Tool::ALL.len() + 1, "the second route is not looked up");
        assert_eq!(outputs.report().routes, Some(Vec::new()));
    }
}
