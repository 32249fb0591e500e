//! All schedules of a small program, each once
//!
//! Depth first over the choices of a run. Steps of different hosts that are due at one instant commute, so that of two orders which
//! differ only in such steps, one is enough: sleep sets (P. Godefroid, "Partial-Order Methods for the Verification of Concurrent
//! Systems", 1996).

use std::sync::{Arc, Mutex, MutexGuard};

use crate::Choices;
use crate::choices::Step;
use crate::sync::lock;

/// A choice on the way from the start of a run
#[derive(Clone, Debug)]
enum Node {
    /// A number that the program has drawn
    Number { below: u32, chosen: u32 },
    /// The next of several steps
    Order {
        steps: Vec<Step>,
        /// Steps that lead to orders which others have shown; those of this node that were tried are in it, too
        sleeping: Vec<Step>,
        chosen: usize,
    },
}

/// The choices of the run that is tried, and what is left to try
#[derive(Debug, Default)]
pub(super) struct Tree {
    path: Vec<Node>,
    /// How many choices of the path the run has taken
    taken: usize,
    /// The sleeping steps where the run is
    sleeping: Vec<Step>,
    is_pruned: bool,
}

impl Tree {
    /// The choices of the run, as they are written down
    pub(super) fn choices(&self) -> Vec<u32> {
        let taken = self.path[..self.taken].iter().map(|node| match node {
            Node::Number { chosen, .. } => *chosen,
            Node::Order { chosen, .. } => *chosen as u32,
        });
        taken.collect()
    }

    /// Whether the run was ended, because another one had shown the same
    pub(super) fn is_pruned(&self) -> bool {
        self.is_pruned
    }

    /// Goes to the next run; false if there is none
    pub(super) fn advance(&mut self) -> bool {
        (self.taken, self.is_pruned) = (0, false);
        self.sleeping.clear();
        while let Some(node) = self.path.last_mut() {
            match node {
                Node::Number { below, chosen } if *chosen + 1 < *below => {
                    *chosen += 1;
                    return true;
                }
                Node::Number { .. } => (),
                Node::Order { steps, sleeping, chosen } => {
                    sleeping.push(steps[*chosen]);
                    if let Some(next) = first_awake(steps, sleeping) {
                        *chosen = next;
                        return true;
                    }
                }
            }
            self.path.pop();
        }
        false
    }

    fn pick(&mut self, below: u32) -> u32 {
        if below < 2 {
            return 0;
        }
        if self.taken == self.path.len() {
            self.path.push(Node::Number { below, chosen: 0 });
        }
        self.taken += 1;
        match &self.path[self.taken - 1] {
            Node::Number { chosen, .. } => *chosen % below,
            // The program differs from run to run.
            Node::Order { .. } => 0,
        }
    }

    fn order(&mut self, steps: &[Step]) -> Option<usize> {
        if let [only] = steps {
            if first_awake(steps, &self.sleeping).is_none() {
                self.is_pruned = true;
                return None;
            }
            self.sleeping.retain(|step| step.commutes_with(only));
            return Some(0);
        }
        if self.taken == self.path.len() {
            let Some(chosen) = first_awake(steps, &self.sleeping) else {
                self.is_pruned = true;
                return None;
            };
            let sleeping = self.sleeping.clone();
            self.path.push(Node::Order { steps: steps.to_vec(), sleeping, chosen });
        }
        self.taken += 1;
        match &self.path[self.taken - 1] {
            Node::Order { sleeping, chosen, steps: known } => {
                let taken = known[*chosen];
                self.sleeping = sleeping.iter().filter(|step| step.commutes_with(&taken)).copied().collect();
                Some((*chosen).min(steps.len() - 1))
            }
            Node::Number { .. } => Some(0),
        }
    }
}

/// The first step that does not sleep
fn first_awake(steps: &[Step], sleeping: &[Step]) -> Option<usize> {
    steps.iter().position(|step| !sleeping.iter().any(|other| other.id == step.id))
}

/// The choices of a run of a [`Tree`]
#[derive(Clone, Debug, Default)]
pub(super) struct Exploring(Arc<Mutex<Tree>>);

impl Exploring {
    pub(super) fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.0)
    }
}

impl Choices for Exploring {
    fn pick(&mut self, n: u32) -> u32 {
        self.tree().pick(n)
    }

    fn order(&mut self, steps: &[Step]) -> Option<usize> {
        self.tree().order(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The orders of `hosts.len()` steps, each of one host
    fn orders(hosts: &[u64]) -> (Vec<Vec<u64>>, u32) {
        let (mut found, mut pruned) = (Vec::new(), 0);
        let exploring = Exploring::default();
        loop {
            let mut choices = exploring.clone();
            let mut left: Vec<_> =
                (0..hosts.len()).map(|id| Step { id: id as u64, hosts: hosts[id] }).collect();
            let mut order = Vec::new();
            while !left.is_empty() {
                let Some(next) = choices.order(&left) else { break };
                order.push(left.remove(next).id);
            }
            if exploring.tree().is_pruned() {
                pruned += 1
            } else {
                found.push(order)
            }
            if !exploring.tree().advance() {
                return (found, pruned);
            }
        }
    }

    #[test]
    fn dependent_steps_come_in_all_orders_and_independent_ones_in_one() {
        assert_eq!(orders(&[1, 1, 1]).0.len(), 6);
        assert_eq!(
            orders(&[u64::MAX, 1, 2]).0.len(),
            4,
            "of six: what is between two independent steps tells them apart"
        );
        assert_eq!(orders(&[1, 2, 4, 8]).0, [[0, 1, 2, 3]]);
        // Two of each of two hosts: 2 × 2 orders that differ.
        let (found, pruned) = orders(&[1, 1, 2, 2]);
        assert_eq!(found.len(), 4, "{found:?}, {pruned} pruned");
    }

    #[test]
    fn numbers_take_all_values() {
        let exploring = Exploring::default();
        let mut found = Vec::new();
        loop {
            let mut choices = exploring.clone();
            found.push([choices.pick(2), choices.pick(3), choices.pick(1)]);
            if !exploring.tree().advance() {
                break;
            }
        }
        assert_eq!(found.len(), 6);
        found.dedup();
        assert_eq!(found.len(), 6);
    }
}
