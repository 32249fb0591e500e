use std::io;

use rdma_sim::Topology;

use super::super::files::base;
use super::*;

/// The first process of the first host
const FIRST: ProcessName = ProcessName { host: 0, number: 0 };

fn settings() -> Settings {
    Settings::new(Topology::pair())
}

fn name(name: &str) -> String {
    format!("fabric-{name}-{}", std::process::id())
}

/// Catches memory that is truncated under the threads of a process that leaves just now: a signal would kill them.
#[test]
fn memory_that_a_process_may_still_access_is_not_made_anew() {
    let name = name("anew");
    let old = SharedFabric::create(&name, &settings()).unwrap();
    old.segment.slot(FIRST).pid.store(7, Ordering::Relaxed);
    old.file.unlock().unwrap();
    let new = SharedFabric::create(&name, &settings()).unwrap();
    assert_eq!(old.segment.slot(FIRST).pid.load(Ordering::Relaxed), 7);
    new.segment.note_claim(FIRST);
    assert!(new.processes_of(0).is_empty());
    drop(old);
    assert!(SharedFabric::open(&name).is_ok(), "a process that has left does not remove the new fabric");
}

#[test]
fn another_version_is_refused_by_name() {
    use std::os::unix::fs::FileExt as _;

    let name = name("version");
    let fabric = SharedFabric::create(&name, &settings()).unwrap();
    fabric.file.write_all_at(b"rdmasim0", 0).unwrap();
    for refused in [SharedFabric::open(&name), SharedFabric::create(&name, &settings())] {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, FabricError::Version(other) if *other == name), "{refused}");
    }
}

/// Catches a fabric that is refused because its maker was killed.
#[test]
fn a_process_that_waits_for_a_killed_maker_makes_the_fabric() {
    let (name, settings) = (name("killed"), settings());
    let directory = base().unwrap().join(&name);
    make_directory(&directory).unwrap();
    let file = open_file(&directory.join(MEMORY), true).unwrap();
    file.lock().unwrap();
    file.set_len(100_000).unwrap();
    let error = SharedFabric::enter_within(&name, Some(&settings), Duration::ZERO).map(drop).unwrap_err();
    assert!(
        matches!(error, FabricError::Locked { .. }) && error.to_string().contains("the memory"),
        "{error}"
    );
    let (begins, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let made = scope.spawn(|| {
            begins.send(()).unwrap();
            SharedFabric::create(&name, &settings).map(drop)
        });
        begun.recv().unwrap();
        // The other thread finds the lock held, unless the system lets it wait for all of this time.
        std::thread::sleep(Duration::from_millis(20));
        drop(file);
        made.join().unwrap().unwrap();
    });
}

#[test]
fn other_files_are_not_listed_and_empty_directories_are_removed() {
    // The last fabric of another test takes the directory along, until there is a file in it.
    let base = loop {
        let base = base().unwrap();
        match fs::write(base.join(name("file")), "") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            written => break written.map(|()| base).unwrap(),
        }
    };
    let (file, empty, used) = (base.join(name("file")), base.join(name("empty")), base.join(name("used")));
    make_directory(&empty).unwrap();
    make_directory(&used.join("inside")).unwrap_err();
    make_directory(&used).unwrap();
    make_directory(&used.join("inside")).unwrap();
    let listed = SharedFabric::list().unwrap();
    for path in [&file, &empty, &used] {
        assert!(!listed.iter().any(|name| path.ends_with(name)), "{listed:?}");
    }
    assert!(!empty.exists());
    fs::remove_file(file).unwrap();
    fs::remove_dir_all(used).unwrap();
}

/// Catches pages that are not allocated before they are written: a system without memory would kill the process.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_allocated_before_it_is_used() {
    use std::os::unix::fs::MetadataExt as _;

    let name = name("reserved");
    let fabric = SharedFabric::create(&name, &settings()).unwrap();
    let blocks = || fabric.file.metadata().unwrap().blocks() * 512;
    let before = blocks();
    assert!(before >= 128 << 10, "the header, settings and faults: {before}");
    fabric.reserve(FIRST).unwrap();
    let rings = (blocks() - before) >> 20;
    assert_eq!(rings, 2, "to the first process of the peer, and back");
    fabric.reserve(ProcessName { host: 1, number: 0 }).unwrap();
    assert_eq!((blocks() - before) >> 20, rings, "the same");
    fabric.reserve(ProcessName { host: 1, number: 1 }).unwrap();
    assert_eq!((blocks() - before) >> 20, 2 * rings + 2, "to both processes of the peer, and back");
}

/// Catches numbers in shared memory that are used unchecked: as the position of a ring or slot, or in a sum.
#[test]
fn memory_whose_numbers_contradict_each_other_ends_no_process() {
    let name = name("contradicting");
    let fabric = SharedFabric::create(&name, &settings()).unwrap();
    let mut most = CableStats::default();
    most.frames = u64::MAX;
    for number in 0..2 {
        let process = ProcessName { number, ..FIRST };
        fabric.segment.note_claim(process);
        fabric.segment.port(0, process).store(most);
    }
    assert_eq!(fabric.sent()[0].frames, u64::MAX);
    // Of three hosts, as the settings say, there is memory for two.
    fabric.file.set_len(0).unwrap();
    let three = Settings::new(Topology::mesh(3, rdma_sim::topology::MacModel::from(3)).unwrap());
    Segment::create(&fabric.file, &three.to_text(), 2, 0).unwrap();
    assert!(matches!(SharedFabric::open(&name), Err(FabricError::Version(_))));
}

/// Catches a number in shared memory that is used unchecked: a signal to process −1 goes to all processes of the user.
#[test]
fn a_host_whose_process_number_is_invalid_or_of_another_process_has_no_process() {
    let fabric = SharedFabric::create(&name("numbers"), &settings()).unwrap();
    let slot = fabric.segment.slot(FIRST);
    fabric.segment.note_claim(FIRST);
    let (own, started) = Process::own();
    let claim = |pid: u32, started: u64| {
        slot.started.store(started, Ordering::Relaxed);
        slot.pid.store(pid, Ordering::Relaxed);
        fabric.processes_of(0)
    };
    assert_eq!(claim(own, started), [own]);
    for pid in [0, u32::MAX, 1 << 31, own.wrapping_neg()] {
        assert!(claim(pid, started).is_empty(), "{pid}");
    }
    assert!(claim(own, started + 1).is_empty(), "the process with this number is another one");
}

/// Regression: a process waited without end for one that hung, and said nothing.
#[test]
fn a_host_whose_lock_another_process_keeps_is_an_error_that_names_it() {
    let fabric = SharedFabric::create(&name("locked"), &settings()).unwrap();
    let other = files::lock_host(fabric.directory(), 1, Duration::ZERO).unwrap().unwrap();
    let error = fabric.claim_within(1, Duration::ZERO).map(|claim| claim.process).unwrap_err();
    assert!(matches!(error, FabricError::Locked { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("the lock of host \"b\"") && error.contains(fabric.name()), "{error}");
    assert_eq!(fabric.claim_within(0, Duration::ZERO).unwrap().process, FIRST, "another host is free");
    drop(other);
    assert_eq!(fabric.claim(1).unwrap().process, ProcessName { host: 1, number: 0 });
}

/// Regression: a process waited without end for one that hung while it wrote a fault.
#[test]
fn a_log_of_faults_that_another_process_keeps_locked_is_an_error_that_names_it() {
    let fabric = SharedFabric::create(&name("faults"), &settings()).unwrap();
    let other = files::lock_faults(fabric.directory(), Duration::ZERO).unwrap().unwrap();
    let error = fabric.log_fault("at 1ms b pause", None, Duration::ZERO).unwrap_err();
    assert!(matches!(error, FabricError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("the log of faults"), "{error}");
    drop(other);
    fabric.add_fault("at 1ms b pause").unwrap();
}
