use std::collections::BTreeMap;
use std::str::FromStr;

use crate::plan::PlanFile;
use crate::text::{HEADER, word};
use crate::{
    Cable, Cabling, Certificate, Fingerprint, HostCap, MAX_CABLES, MAX_HOSTS, MAX_RATE, Operation, Plan,
    Price, Ratio, Resource, Tree,
};

/// A text that is not a plan, with the place of the first mistake
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}, cell {cell}: {found} is not {expected}")]
pub struct ParsePlanError {
    /// The line, counted from 1
    pub line: usize,
    /// The cell of the line, counted from 1; cells are separated by blanks
    pub cell: usize,
    /// The cell, quoted, or where the line or the text ends instead
    pub found: String,
    /// What the cell has to be
    pub expected: &'static str,
}

impl FromStr for Plan {
    type Err = ParsePlanError;

    /// Reads a plan as [`Display`](std::fmt::Display) writes it
    ///
    /// What the plan claims may still be wrong: [`verify`](crate::verify()) checks that.
    fn from_str(text: &str) -> Result<Self, ParsePlanError> {
        text.parse().map(|PlanFile { plan, .. }| plan)
    }
}

impl FromStr for PlanFile {
    type Err = ParsePlanError;

    /// Reads a plan with or without the cables, as the [`Display`](std::fmt::Display) of both writes it
    ///
    /// Whether the plan is for these cables, and what it claims, [`verify`](crate::verify()) checks.
    fn from_str(text: &str) -> Result<Self, ParsePlanError> {
        let mut lines = Lines::new(text);
        let mut line = lines.next(HEADER[0])?;
        line.word(HEADER[1])?;
        line.end()?;

        let mut line = lines.next("cabling")?;
        let fingerprint = line.parse("a fingerprint of 16 hexadecimal digits", |cell| {
            let digits = cell.len() == 16 && cell.bytes().all(|byte| byte.is_ascii_hexdigit());
            digits.then(|| u64::from_str_radix(cell, 16).ok()).flatten()
        })?;
        line.end()?;

        let mut line = lines.next("hosts")?;
        let mut hosts = Hosts { line: line.number, ..Hosts::default() };
        while hosts.names.is_empty() || !line.at_end() {
            line.parse("the name of one more host", |cell| hosts.add(cell))?;
        }

        let cabling = cabling(&mut lines, &hosts)?;
        let operation = operation(lines.next("operation")?, &hosts)?;
        let mut ratio = |keyword| {
            let mut line = lines.next(keyword)?;
            let ratio = line.ratio()?;
            line.end()?;
            Ok(ratio)
        };
        let (time, bound) = (ratio("time")?, ratio("bound")?);
        let certificate = certificate(lines.any("cut, partition or prices")?, &hosts)?;
        let mut trees = Vec::new();
        while !lines.at_end() {
            let mut line = lines.next("tree")?;
            let (share, root) = (line.ratio()?, line.host(&hosts)?);
            let mut arcs = Vec::new();
            while !line.at_end() {
                arcs.push(line.arc(&hosts)?);
            }
            trees.push(Tree { share, root, arcs });
        }
        let hosts = hosts.names;
        let fingerprint = Fingerprint(fingerprint);
        let plan = Plan { operation, cabling: fingerprint, hosts, time, bound, certificate, trees };
        Ok(Self { cabling, plan })
    }
}

/// The hosts with the cables and the caps of the lines that follow, if there are any cables
fn cabling(lines: &mut Lines<'_>, hosts: &Hosts) -> Result<Option<Cabling>, ParsePlanError> {
    let mut cables = Vec::new();
    while lines.peek() == Some("cable") {
        let mut line = lines.next("cable")?;
        line.parse("the names of two hosts with > between", |cell| {
            let ends = cell.split_once('>').filter(|(left, right)| left != right)?;
            let [left, right] = [ends.0, ends.1].map(|end| hosts.indices.get(end).copied());
            cables.push(Cable::new(left?, right?, 1));
            (cables.len() <= MAX_CABLES).then_some(())
        })?;
        for direction in 0..2 {
            let rate = line.parse("a rate in bytes per second, from 1 to 10^12", rate)?;
            cables.last_mut().into_iter().for_each(|cable| cable.rates[direction] = rate);
        }
        line.end()?;
    }
    if cables.is_empty() {
        return Ok(None);
    }
    let cabling = Cabling::new(hosts.names.iter().cloned(), cables);
    // Names of hosts are all that a plan alone may have and a cabling not.
    let mut cabling = cabling.map_err(|error| ParsePlanError {
        line: hosts.line,
        cell: 1,
        found: error.to_string(),
        expected: "the hosts of a cabling",
    })?;
    while lines.peek() == Some("cap") {
        let mut line = lines.next("cap")?;
        let host = line.parse("a host without a cap so far", |cell| {
            let host = hosts.indices.get(cell).copied();
            host.filter(|host| cabling.cap(*host) == HostCap::default())
        })?;
        let [send, receive] = [(); 2].map(|()| {
            line.parse("a rate in bytes per second, from 1 to 10^12, or -", |cell| {
                if cell == "-" { Some(None) } else { rate(cell).map(Some) }
            })
        });
        let cap = HostCap { send: send?, receive: receive? };
        line.end()?;
        cabling = cabling.with_cap(host, cap).expect("the host and the rates were checked");
    }
    Ok(Some(cabling))
}

/// A rate in bytes per second
fn rate(cell: &str) -> Option<u64> {
    cell.parse().ok().filter(|rate| (1..=MAX_RATE).contains(rate))
}

fn operation(mut line: Line<'_>, hosts: &Hosts) -> Result<Operation, ParsePlanError> {
    let name = line.take("the name of an operation")?;
    Ok(match name {
        word::ALL_GATHER => Operation::AllGather { amounts: line.amounts(hosts)? },
        word::ALL_REDUCE => {
            line.end()?;
            Operation::AllReduce
        }
        word::ALL_REDUCE_AMONG => {
            let mut members = Vec::new();
            while !line.at_end() {
                members.push(line.host(hosts)?);
            }
            Operation::AllReduceAmong { members }
        }
        word::ALL_TO_ALL => {
            let mut amounts = Vec::new();
            for row in 0..hosts.names.len() {
                if row > 0 {
                    line.word("|")?;
                }
                let row = hosts.names.iter().map(|_| line.number());
                amounts.push(row.collect::<Result<_, _>>()?);
            }
            line.end()?;
            Operation::AllToAll { amounts }
        }
        word::BROADCAST | word::REDUCE => {
            let root = line.host(hosts)?;
            line.end()?;
            if name == word::REDUCE { Operation::Reduce { root } } else { Operation::Broadcast { root } }
        }
        word::GATHER => Operation::Gather { root: line.host(hosts)?, amounts: line.amounts(hosts)? },
        word::REDUCE_SCATTER => Operation::ReduceScatter { amounts: line.amounts(hosts)? },
        word::SCATTER => Operation::Scatter { root: line.host(hosts)?, amounts: line.amounts(hosts)? },
        _ => return Err(line.wrong("the name of an operation")),
    })
}

fn certificate(mut line: Line<'_>, hosts: &Hosts) -> Result<Certificate, ParsePlanError> {
    const KEYWORD: &str = "cut, partition or prices";
    match line.take(KEYWORD)? {
        "cut" => {
            let mut inside = Vec::new();
            while !line.at_end() {
                inside.push(line.host(hosts)?);
            }
            Ok(Certificate::Cut(inside))
        }
        "partition" => {
            let mut parts = vec![Vec::new()];
            while !line.at_end() {
                if line.peek() == Some("|") {
                    line.word("|")?;
                    parts.push(Vec::new());
                } else if let Some(part) = parts.last_mut() {
                    part.push(line.host(hosts)?);
                }
            }
            Ok(Certificate::Partition(parts))
        }
        "prices" => {
            let mut prices = Vec::new();
            while !line.at_end() {
                prices.push(Price { of: line.resource(hosts)?, price: line.number()? });
            }
            Ok(Certificate::Prices(prices))
        }
        _ => Err(line.wrong(KEYWORD)),
    }
}

/// The hosts that the plan has named
#[derive(Default)]
struct Hosts {
    names: Vec<String>,
    indices: BTreeMap<String, usize>,
    /// The line that names them
    line: usize,
}

impl Hosts {
    fn add(&mut self, name: &str) -> Option<()> {
        let refused = self.names.len() == MAX_HOSTS || name.contains(['>', '|']);
        let new = !refused && self.indices.insert(name.to_owned(), self.names.len()).is_none();
        new.then(|| self.names.push(name.to_owned()))
    }
}

/// The lines that say something
struct Lines<'a> {
    lines: Vec<(usize, &'a str)>,
    next: usize,
    last: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let numbered = (1..).zip(text.lines());
        let says =
            |&(_, line): &(usize, &str)| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        Self { lines: numbered.filter(says).collect(), next: 0, last: text.lines().count() }
    }

    fn at_end(&self) -> bool {
        self.next == self.lines.len()
    }

    /// The first cell of the next line
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.next)?.1.split_whitespace().next()
    }

    /// The next line, which begins with this keyword
    fn next(&mut self, keyword: &'static str) -> Result<Line<'a>, ParsePlanError> {
        let mut line = self.any(keyword)?;
        line.word(keyword)?;
        Ok(line)
    }

    fn any(&mut self, expected: &'static str) -> Result<Line<'a>, ParsePlanError> {
        let Some(&(number, line)) = self.lines.get(self.next) else {
            let found = "the end of the text".to_owned();
            return Err(ParsePlanError { line: self.last + 1, cell: 1, found, expected });
        };
        self.next += 1;
        Ok(Line { number, cells: line.split_whitespace().collect(), taken: 0 })
    }
}

/// A line of which so many cells were read
struct Line<'a> {
    number: usize,
    cells: Vec<&'a str>,
    taken: usize,
}

impl<'a> Line<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.cells.get(self.taken).copied()
    }

    fn at_end(&self) -> bool {
        self.peek().is_none()
    }

    fn take(&mut self, expected: &'static str) -> Result<&'a str, ParsePlanError> {
        self.taken += 1;
        self.cells.get(self.taken - 1).copied().ok_or_else(|| self.wrong(expected))
    }

    /// That the cell that was taken last is not what it has to be
    fn wrong(&self, expected: &'static str) -> ParsePlanError {
        let cell = self.cells.get(self.taken - 1);
        let found = cell.map_or_else(|| "the end of the line".to_owned(), |cell| format!("{cell:?}"));
        ParsePlanError { line: self.number, cell: self.taken, found, expected }
    }

    fn parse<T>(
        &mut self,
        expected: &'static str,
        parse: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<T, ParsePlanError> {
        let cell = self.take(expected)?;
        parse(cell).ok_or_else(|| self.wrong(expected))
    }

    fn word(&mut self, word: &'static str) -> Result<(), ParsePlanError> {
        self.parse(word, |cell| (cell == word).then_some(()))
    }

    fn end(&mut self) -> Result<(), ParsePlanError> {
        if self.at_end() {
            return Ok(());
        }
        self.taken += 1;
        Err(self.wrong("the end of the line"))
    }

    fn number(&mut self) -> Result<u64, ParsePlanError> {
        let digits = |cell: &str| cell.bytes().all(|byte| byte.is_ascii_digit());
        self.parse("a whole number", |cell| cell.parse().ok().filter(|_| digits(cell)))
    }

    fn ratio(&mut self) -> Result<Ratio, ParsePlanError> {
        self.parse("a fraction such as 3/8", |cell| cell.parse().ok())
    }

    fn host(&mut self, hosts: &Hosts) -> Result<usize, ParsePlanError> {
        self.parse("the name of a host", |cell| hosts.indices.get(cell).copied())
    }

    /// Two hosts, as `parent>child`
    fn arc(&mut self, hosts: &Hosts) -> Result<(usize, usize), ParsePlanError> {
        self.parse("the names of two hosts with > between", |cell| {
            let (parent, child) = cell.split_once('>')?;
            hosts.indices.get(parent).copied().zip(hosts.indices.get(child).copied())
        })
    }

    /// Two hosts as `from>to`, or one that sends as `host>`, or one that receives as `>host`
    fn resource(&mut self, hosts: &Hosts) -> Result<Resource, ParsePlanError> {
        self.parse("the name of a host with > after or before it, or of two with > between", |cell| {
            let named = |name: &str| hosts.indices.get(name).copied();
            Some(match cell.split_once('>')? {
                (from, "") => Resource::Send { host: named(from)? },
                ("", to) => Resource::Receive { host: named(to)? },
                (from, to) => Resource::Cables { from: named(from)?, to: named(to)? },
            })
        })
    }

    /// A number for each host, to the end of the line
    fn amounts(&mut self, hosts: &Hosts) -> Result<Vec<u64>, ParsePlanError> {
        let amounts = hosts.names.iter().map(|_| self.number()).collect::<Result<_, _>>()?;
        self.end()?;
        Ok(amounts)
    }
}
