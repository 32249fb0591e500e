//! How many objects the processes of a host have, because the limits of a device apply to all of them together
//!
//! For each port and kind of object there is one word, of which each process has 16 bits. One exchange of the word checks the limit
//! and counts the object: processes that create objects at once get as many as the limit permits, and no more. A process that is
//! killed leaves its bits behind. They are cleared by the next process in its slot, or by one that would be refused because of
//! them.
//!
//! What an ended process had is where the rules `process-end` and `process-end-qps` apply: its protection domains and its queue pairs
//! turn, up to a number each, into leaked ones when its bits are cleared. Those count for all processes of the host until the host
//! restarts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdma_core::Resource;
use rdma_sim::remote::{MAX_PROCESSES, ProcessName, SharedObjects};

use super::files;
use super::segment::{OBJECT_KINDS, Segment};
use crate::log::log_error;

const BITS: u32 = 16;
const PD_KIND: usize = 2;
const QP_KIND: usize = 3;
const MAX_COUNT: u32 = (1 << BITS) - 1;
const _: () = assert!(MAX_PROCESSES * BITS <= u64::BITS);

/// The counts of all processes of a host, as one of them changes them
pub(super) struct HostObjects {
    segment: Arc<Segment>,
    /// Has the locks that say which processes exist.
    directory: PathBuf,
    process: ProcessName,
    leaks: Leaks,
}

/// What the ends of processes leak, and since when
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaks {
    /// Protection domains that each end of a process leaks at most on each port
    pub(super) pds: u32,
    /// The same of queue pairs
    pub(super) qps: u32,
    /// How often the host has restarted: a restart frees what was leaked before, and ends all processes.
    pub(super) boots: u32,
}

impl HostObjects {
    pub(super) fn new(segment: Arc<Segment>, directory: PathBuf, process: ProcessName, leaks: Leaks) -> Self {
        Self { segment, directory, process, leaks }
    }

    /// Forgets all objects of a predecessor of this process in its slot, on `ports`, but for those that it leaks
    pub(super) fn clear(&self, ports: impl Iterator<Item = usize>) {
        for port in ports {
            for kind in 0..OBJECT_KINDS {
                self.end(port, kind, self.process.number);
            }
        }
    }

    /// Clears the count of a process that has ended, and counts what it leaks
    fn end(&self, port: usize, kind: usize, number: u32) {
        let cleared = self.segment.objects(port, kind).fetch_and(with(u64::MAX, number, 0), Ordering::AcqRel);
        let slot = self.segment.slot(ProcessName { number, ..self.process });
        let Leaks { pds, qps, boots } = self.leaks;
        let most = match kind {
            PD_KIND => pds,
            QP_KIND => qps,
            _ => 0,
        };
        let leaked = most.min(count(cleared, number));
        if leaked == 0 || slot.boots.load(Ordering::Relaxed) != boots {
            return;
        }
        let _ = self.segment.leaked(port, kind).fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            let before = self.leaked_since_boot(word);
            Some(u64::from(boots) << 32 | u64::from(before.saturating_add(leaked)))
        });
    }

    /// How many objects were leaked since the host has restarted
    fn leaked_since_boot(&self, word: u64) -> u32 {
        if (word >> 32) as u32 == self.leaks.boots { word as u32 } else { 0 }
    }

    /// Clears the count of a process that has ended, if there is one; `word` has the counts
    fn reclaim(&self, port: usize, kind: usize, word: u64) -> bool {
        let others = (0..MAX_PROCESSES).filter(|number| *number != self.process.number);
        others.filter(|number| count(word, *number) > 0).any(|number| {
            match files::hold_free(&self.directory, ProcessName { number, ..self.process }) {
                Ok(None) => false,
                Ok(Some(_ended)) => {
                    self.end(port, kind, number);
                    true
                }
                Err(error) => {
                    log_error(&format!("objects of process {number} of the host count as in use: {error}"));
                    false
                }
            }
        })
    }
}

impl SharedObjects for HostObjects {
    fn add(&mut self, device: u32, resource: Resource, own: u32, limit: u32) -> bool {
        let Some(kind) = kind(resource) else { return true };
        let counts = self.segment.objects(device as usize, kind);
        let own_number = self.process.number;
        loop {
            let word = counts.load(Ordering::Acquire);
            let others = (0..MAX_PROCESSES).filter(|number| *number != own_number);
            let all: u32 = own + others.map(|number| count(word, number)).sum::<u32>();
            let leaked =
                self.leaked_since_boot(self.segment.leaked(device as usize, kind).load(Ordering::Acquire));
            if all < limit.saturating_sub(leaked) && own < MAX_COUNT {
                let counted = with(word, own_number, own + 1);
                if counts.compare_exchange(word, counted, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return true;
                }
            } else if !self.reclaim(device as usize, kind, word) {
                return false;
            }
        }
    }

    fn set(&mut self, device: u32, resource: Resource, own: u32) {
        let Some(kind) = kind(resource) else { return };
        let counts = self.segment.objects(device as usize, kind);
        let _ = counts.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            Some(with(word, self.process.number, own.min(MAX_COUNT)))
        });
    }
}

fn kind(resource: Resource) -> Option<usize> {
    match resource {
        Resource::CompletionQueues => Some(0),
        Resource::MemoryRegions => Some(1),
        Resource::ProtectionDomains => Some(PD_KIND),
        Resource::QueuePairs => Some(QP_KIND),
        _ => None,
    }
}

/// The count of a process
fn count(word: u64, number: u32) -> u32 {
    (word >> (number * BITS)) as u32 & MAX_COUNT
}

/// The word with another count of a process
fn with(word: u64, number: u32, count: u32) -> u64 {
    let mask = u64::from(MAX_COUNT) << (number * BITS);
    word & !mask | u64::from(count) << (number * BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PDS: Resource = Resource::ProtectionDomains;
    const QPS: Resource = Resource::QueuePairs;

    /// The counts of a host of a new fabric as each of its processes changes them, and the directory of their locks
    fn processes() -> (Vec<HostObjects>, tempfile::TempDir) {
        processes_with(Leaks::default())
    }

    fn processes_with(leaks: Leaks) -> (Vec<HostObjects>, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let file = tempfile::tempfile().unwrap();
        let segment = Arc::new(Segment::create(&file, "", 2, 0).unwrap());
        let process = |number| {
            let process = ProcessName { host: 1, number };
            HostObjects::new(Arc::clone(&segment), directory.path().to_owned(), process, leaks)
        };
        ((0..MAX_PROCESSES).map(process).collect(), directory)
    }

    /// The locks of all processes, which exist for as long as they are held
    fn locks(processes: &[HostObjects]) -> Vec<std::fs::File> {
        let lock =
            |objects: &HostObjects| files::claim_slot(&objects.directory, objects.process).unwrap().unwrap();
        processes.iter().map(lock).collect()
    }

    /// Catches a check and a count that another process comes between: with as many threads as processes, too many objects, or too
    /// few.
    #[test]
    fn processes_that_create_objects_at_once_get_as_many_as_the_limit_permits() {
        let (mut processes, _directory) = processes();
        let _locks = locks(&processes);
        const LIMIT: u32 = 1_001;
        let created: Vec<u32> = std::thread::scope(|scope| {
            let create = |objects: &mut HostObjects| {
                let mut own = 0;
                while objects.add(5, QPS, own, LIMIT) {
                    own += 1;
                    // Each third is destroyed and created again.
                    if own.is_multiple_of(3) {
                        objects.set(5, QPS, own - 1);
                        own -= u32::from(!objects.add(5, QPS, own - 1, LIMIT));
                    }
                }
                own
            };
            let threads: Vec<_> =
                processes.iter_mut().map(|objects| scope.spawn(move || create(objects))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(created.iter().sum::<u32>(), LIMIT, "{created:?}");
        assert!(processes[0].add(5, Resource::MemoryRegions, 0, 1), "other objects have limits of their own");
        assert!(processes[0].add(4, QPS, 0, 1), "so has another port");
    }

    /// Catches objects of a killed process that count for ever, and those of one that lives and stop to count.
    #[test]
    fn objects_of_a_process_that_has_ended_do_not_count() {
        let (mut processes, _directory) = processes();
        let mut locks = locks(&processes);
        for own in 0..5 {
            assert!(processes[0].add(0, QPS, own, 10) && processes[1].add(0, QPS, own, 10));
        }
        assert!(!processes[2].add(0, QPS, 0, 10));
        processes[1].set(0, QPS, 4);
        assert!(processes[2].add(0, QPS, 0, 10));
        assert!(!processes[2].add(0, QPS, 1, 10));
        drop(locks.remove(0));
        assert!((1..6).all(|own| processes[2].add(0, QPS, own, 10)));
        assert!(!processes[2].add(0, QPS, 6, 10));
        processes[2].clear(0..1);
        assert!((4..10).all(|own| processes[1].add(0, QPS, own, 10)));
        assert!(!processes[1].add(0, QPS, 10, 10));
    }

    /// Catches processes that take each other, as they look, for the one that has ended.
    #[test]
    fn several_processes_reclaim_objects_of_one_that_has_ended() {
        let (mut processes, directory) = processes();
        let mut locks = locks(&processes);
        assert!(processes[0].add(0, QPS, 0, 1));
        drop(locks.remove(0));
        let _other = files::hold_free(directory.path(), processes[0].process).unwrap().unwrap();
        assert!(processes[1].add(0, QPS, 0, 1));
        assert!(files::hold_free(directory.path(), processes[1].process).unwrap().is_none(), "it lives");
    }

    /// Catches ends of processes that leak nothing, more than the process had, or of other objects, and leaks that a restart leaves.
    #[test]
    fn each_end_of_a_process_leaks_objects_until_a_restart() {
        let (mut processes, _directory) = processes_with(Leaks { pds: 3, qps: 1, boots: 0 });
        let mut locks = locks(&processes);
        let create = |objects: &mut HostObjects, resource| {
            (0..).find(|own| !objects.add(0, resource, *own, 11)).unwrap()
        };
        assert_eq!([PDS, QPS].map(|resource| create(&mut processes[0], resource)), [11, 11]);
        // The next process in its slot has room for less.
        processes[0].clear(0..1);
        assert_eq!([PDS, QPS].map(|resource| create(&mut processes[0], resource)), [8, 10]);
        // So has another process, which is refused because of it.
        drop(locks.remove(0));
        assert_eq!([PDS, QPS].map(|resource| create(&mut processes[1], resource)), [5, 9]);
        processes[1].set(0, PDS, 2);
        processes[1].clear(0..1);
        assert_eq!(create(&mut processes[1], PDS), 3, "it leaks no more than it had");
        assert_eq!(create(&mut processes[1], Resource::MemoryRegions), 11, "other objects are not leaked");
        assert!((0..11).all(|own| processes[1].add(1, PDS, own, 11)), "another port has leaks of its own");
        processes.iter_mut().for_each(|objects| objects.leaks.boots = 1);
        // What a process had that the restart has ended is not leaked.
        processes[1].clear(0..1);
        assert_eq!([PDS, QPS].map(|resource| create(&mut processes[1], resource)), [11, 11]);
    }

    /// Catches a count that runs into that of the next process.
    #[test]
    fn a_process_has_at_most_as_many_objects_as_are_counted() {
        let (mut processes, _directory) = processes();
        let _locks = locks(&processes);
        assert!(processes[0].add(0, QPS, MAX_COUNT - 1, u32::MAX));
        assert!(!processes[0].add(0, QPS, MAX_COUNT, u32::MAX));
        assert!(processes[1].add(0, QPS, 0, MAX_COUNT + 1));
        assert!(!processes[1].add(0, QPS, 1, MAX_COUNT + 1));
    }
}
