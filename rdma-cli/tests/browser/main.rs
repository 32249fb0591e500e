//! The report of `tb5 demo` in a real browser: at the size of a desktop and of a phone, in light and in dark
//!
//! Needs Chromium; without one, the test says so and passes, unless `RDMA_REQUIRE_BROWSER` is set, as in CI. The screenshots are in
//! `target/pictures`.
#![cfg(unix)]

#[allow(dead_code, reason = "other pages need more of it")]
#[path = "../../../tests/tests/browser/devtools.rs"]
mod devtools;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use devtools::Browser;
use serde_json::Value;

/// Width and height, with room for the whole page
const DESKTOP: [u32; 2] = [1280, 3900];
const PHONE: [u32; 2] = [360, 3800];

/// Where the report and its pictures go
fn pictures() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/pictures");
    fs::create_dir_all(&folder).expect("the folder of the build can be written");
    folder.canonicalize().expect("it exists")
}

/// Takes a picture of the page that is open, and checks what holds for every page: no complaint, no scrolling sideways, nothing loaded
fn check_page(browser: &Browser, name: &str) {
    fs::write(pictures().join(format!("{name}.png")), browser.screenshot()).unwrap();
    assert_eq!(browser.complaints(), [Value::Null; 0], "{name}");
    let widths = browser.eval("[document.documentElement.scrollWidth, innerWidth]");
    assert_eq!(widths[0], widths[1], "{name} scrolls sideways");
    assert_eq!(browser.eval("performance.getEntriesByType('resource').length"), 0, "{name}");
}

/// Catches a report that is not self-contained, one whose script fails, one that is wider than a phone or unreadable in the dark, and
/// figures that are not those of the run.
#[test]
fn the_report_of_the_demo_is_drawn_at_every_size_in_light_and_dark_without_complaints() {
    let Some(browser) = devtools::browser() else { return };
    let page = pictures().join("demo.html");
    let demo = Command::new(env!("CARGO_BIN_EXE_tb5"))
        .args(["demo", "--json", "--out"])
        .arg(&page)
        .output()
        .unwrap();
    assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
    let report: Value = serde_json::from_slice(&demo.stdout).unwrap();
    let text = fs::read_to_string(&page).unwrap();
    for outside in ["http:", "https:", "src=\"", "@import", "url("] {
        // The name of a format of pictures is no address that is loaded.
        let text = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains(outside), "the page contains {outside}");
    }

    let url = format!("file://{}", page.display());
    for (size, is_phone) in [(DESKTOP, false), (PHONE, true)] {
        for is_dark in [false, true] {
            browser.open(&url, size, is_dark, is_phone);
            let variant =
                [if is_phone { "phone" } else { "desktop" }, if is_dark { "dark" } else { "light" }];
            let name = format!("demo-{}", variant.join("-"));
            check_page(&browser, &name);
            let background = browser.eval("getComputedStyle(document.body).backgroundColor");
            assert_eq!(background == "rgb(21, 24, 28)", is_dark, "{name}: {background}");

            // The table has what the run has printed.
            let cells = browser.eval(
                "[...document.querySelectorAll('#results tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))",
            );
            let printed = report["results"].as_array().unwrap().iter();
            let printed: Vec<_> = printed
                .map(|row| ["name", "result", "limit", "verdict"].map(|key| row[key].clone()))
                .collect();
            assert_eq!(printed.len(), 6);
            assert_eq!(cells, serde_json::json!(printed), "{name}");

            // Both timelines have run their script, and have drawn the messages and the faults.
            for (frame, faults) in [2, 1].into_iter().enumerate() {
                let data = browser
                    .eval(&format!("JSON.parse(JSON.stringify(frames[{frame}].document.body.dataset))"));
                assert_eq!(data["ready"], "yes", "{name}: {data}");
                let counts: Value = serde_json::from_str(data["counts"].as_str().unwrap()).unwrap();
                assert!(counts["faults"] == faults && counts["messages"].as_u64().unwrap() > 100, "{counts}");
            }
            let drawn = browser.eval(
                "['#cluster rect.mac', '#cluster path.cable', '#cluster path.cut', '#latency rect.bar', '#goodput circle.several'].map((kind) => document.querySelectorAll(kind).length)",
            );
            let [macs, cables, cut, bars, points] = [0, 1, 2, 3, 4].map(|kind| drawn[kind].as_u64().unwrap());
            assert_eq!((macs, cables, cut, points), (4, 6, 1, 11), "{name}");
            assert!(bars > 5, "{name}: {bars}");
        }
    }
}

/// Catches a report of two machines that is wider than a phone, lacks a drawing, or loads something.
#[test]
fn the_report_of_two_machines_is_drawn_at_every_size_without_complaints() {
    let Some(browser) = devtools::browser() else { return };
    let page = pictures().join("demo-of-two.html");
    let into = tempfile::tempdir().unwrap();
    let tb5 = env!("CARGO_BIN_EXE_tb5");
    let mut server = Command::new(tb5);
    server.args(["serve", "--json", "--bind", "127.0.0.1", "--port", "0", "--into"]).arg(into.path());
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    let listening: Value = serde_json::from_str(&first).unwrap();
    let (_, port) = listening["listening"].as_str().unwrap().rsplit_once(':').unwrap();
    let mut demo = Command::new(tb5);
    let demo = demo.args(["demo", "127.0.0.1:", "--port", port, "--out"]).arg(&page).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));

    let url = format!("file://{}", page.display());
    for (size, is_phone) in [(DESKTOP, false), (PHONE, true)] {
        browser.open(&url, size, is_phone, is_phone);
        let name = if is_phone { "demo-of-two-phone-dark" } else { "demo-of-two-desktop-light" };
        check_page(&browser, name);
        let drawn = browser.eval(
            "['#results tbody tr', '#machines rect.mac', '#machines line.cable', '#goodput circle.several', '#goodput circle.one'].map((kind) => document.querySelectorAll(kind).length)",
        );
        assert_eq!(drawn, serde_json::json!([6, 2, 1, 11, 11]), "{name}");
        assert!(browser.eval("document.querySelectorAll('#latency rect.bar').length").as_u64() > Some(5));
    }
}
