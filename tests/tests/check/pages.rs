//! The page of a run that was checked

use std::time::Duration;

use rdma_core::{sometimes, state};
use rdma_sim::{Check, Net, check, try_check};

#[test]
fn a_failing_run_is_shown_on_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.html");
    let faults = "at 1ms a:rdma_en2 slow 90%; at 2ms a:rdma_en2 unplug".parse().unwrap();
    let check = Check::new().name("pulled").faults(faults).page(&path);
    let failure = try_check(check.clone(), async |net: Net| {
        state!("asleep");
        net.sleep(Duration::from_millis(3)).await;
        net.open("a", "rdma_en2").map(drop)
    });
    let failure = failure.unwrap_err();
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains("<title>pulled, the plain run: failed</title>"));
    assert!(
        page.contains("at 2ms a:rdma_en2 unplug") && !page.contains("slow 90%"),
        "the page is of the shrunk run"
    );
    assert!(page.contains(&failure.reason), "the reason is a remark");
    assert!(page.contains("\"state asleep\""), "what the program states is a mark");
    // Regression: a page that a workflow had kept did not say how to repeat its run.
    let line = format!("To repeat it: <code>{}</code>", failure.replay.line());
    assert!(page.contains(&line) && !page.contains("This run passed"), "{line}");
    // A run that is repeated has a page whether or not it fails.
    std::fs::remove_file(&path).unwrap();
    let report = try_check(check.replay(failure.replay), async |_| sometimes!(true, "repeated")).unwrap();
    assert_eq!(report.statements.len(), 1, "the check sees what the page keeps");
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains("<title>pulled, seed 0</title>"));
    assert!(page.contains(&line.replace("To", "This run passed. To")), "{line}");
}

/// Regression: the page of one failing test replaced that of another.
#[test]
fn tests_have_pages_of_their_own_in_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("pages/");
    for (path, test, page) in [
        (&new, "loss::is_seen", "loss.is_seen.html"),
        (&new, "loss::is_repaired", "loss.is_repaired.html"),
        (&folder.path().to_owned(), "a test/of mine", "a_test-of_mine.html"),
    ] {
        let check = Check::new().name(test).page(path);
        try_check(check, async |_: Net| Err::<(), _>("it fails")).unwrap_err();
        assert!(path.join(page).is_file(), "{test}");
    }
    assert_eq!(std::fs::read_dir(new).unwrap().count(), 2);
}

/// Regression: a page had the name of the test in the line. A test that repeats a line of another one, and passes, replaced the page of that
/// test, which had failed.
#[test]
fn the_page_of_a_run_that_passes_replaces_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let fails = async |_: Net| Err::<(), _>("it fails");
    let failure =
        |path: &std::path::Path| try_check(Check::new().name("found").page(path), fails).unwrap_err().replay;
    let directory = folder.path().join("pages/");
    let line = failure(&directory);
    let repaired = |path: &std::path::Path| {
        let check = Check::new().name("kept").replay(line.clone()).page(path);
        try_check(check, async |_: Net| ()).unwrap();
    };
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    repaired(&directory);
    assert!(read(&directory.join("found.html")).contains("<title>found, the plain run: failed</title>"));
    let page = read(&directory.join("kept.html"));
    assert!(
        page.contains("<title>kept, seed 0</title>") && page.contains(" test=kept setup="),
        "its own name"
    );

    let file = folder.path().join("run.html");
    repaired(&file);
    assert!(read(&file).contains("<title>kept, seed 0</title>"), "there was none");
    failure(&file);
    assert!(read(&file).contains(": failed</title>"), "a failure replaces what passed");
    repaired(&file);
    assert!(read(&file).contains(": failed</title>"), "and is not replaced");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no other file is left");
}

#[test]
#[ignore = "another test starts it with an environment"]
fn passes() {
    check(Check::new().runs(1), async |_| ());
}

/// Catches a page of an earlier run in the place of the one that is asked for, and a path that depends on the working directory.
#[test]
fn the_page_that_the_environment_asks_for_replaces_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let page = |line: &str| {
        std::fs::write(folder.path().join("run.html"), "an earlier page").unwrap();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["pages::passes", "--exact", "--ignored", "--nocapture"]).current_dir(&folder);
        let output =
            command.envs([("RDMA_SIM_PAGE", "run.html"), ("RDMA_SIM_REPLAY", line)]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        (text, std::fs::read_to_string(folder.path().join("run.html")).unwrap())
    };
    let (text, written) = page("2 test=pages::passes seed=7");
    assert!(written.contains("<title>pages::passes, seed 7</title>"), "{text}");
    let path = folder.path().canonicalize().unwrap().join("run.html");
    assert!(text.contains(&format!("the page of the run is {}\n", path.display())), "{text}");
    // A line without a name may be meant for any test.
    let (text, written) = page("2 seed=7");
    assert_eq!(written, "an earlier page", "{text}");
    assert!(text.contains("the run passed, and does not replace the page /"), "{text}");
}
