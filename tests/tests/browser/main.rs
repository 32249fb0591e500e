//! The page of a run in a real browser: at the size of a desktop and of a phone, in light and in dark
//!
//! Needs Chromium; without one, the tests say so and pass, unless `RDMA_REQUIRE_BROWSER` is set, as in CI. The screenshots are in
//! `target/pictures`.
#![cfg(unix)]

mod devtools;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use devtools::Browser;
use rdma_core::{Access, QpInit, QpType, SendOp};
use rdma_sim::{Check, FaultPlan, History, Net, RecordKind, Sim, always, sometimes, state, try_check};
use rdma_tests::Raw;
use rdma_tests::files::root;
use serde_json::Value;

const DESKTOP: [u32; 2] = [1280, 800];
const PHONE: [u32; 2] = [360, 740];

/// Where a page or a picture goes
fn target(name: &str) -> PathBuf {
    let folder = root().join("target/pictures");
    fs::create_dir_all(&folder).expect("the folder of the build can be written");
    folder.join(name)
}

fn write_page(name: &str, history: &History) -> String {
    let path = target(&format!("{name}.html"));
    fs::write(&path, history.to_html(name)).expect("the page can be written");
    format!("file://{}", path.display())
}

const REASON: &str = "the <peer> \"b\" was silent for 100 µs, although its node asks every 20 µs, and no fault stood between them\nat tests/election.rs:40:9";

/// A message that is lost, one that waits for a stopped peer, and some that are cut off
fn troubled() -> History {
    let faults: FaultPlan =
        "at 40us a:rdma_en2 lose 1; at 45us b pause; at 95us b resume; at 140us a:rdma_en2 unplug"
            .parse()
            .unwrap();
    let run = Sim::new().faults(faults).keep_records().run(async |net: Net| {
        let init = QpInit { qp_type: QpType::Uc, ..QpInit::with_frames(63) };
        let [a, b] = Raw::pair(&net, &init, Access::LOCAL_WRITE, 1 << 18);
        net.host("b").spawn({
            let net = net.clone();
            async move {
                for term in 1..4_u32 {
                    net.sleep(Duration::from_micros(25)).await;
                    state!("candidate", term);
                }
                state!("leader");
            }
        });
        let rest = |micros| rdma_async::time::sleep(&*net.runtime(), Duration::from_micros(micros));
        for round in 0..12 {
            if !(5..8).contains(&round) {
                b.recv(round, &[b.sge(0..9000)]).unwrap();
            }
            let at = round as usize * 9000;
            a.write(at, format!("round {round} of many, and more text").as_bytes());
            sometimes!(round == 7, "the seventh round");
            a.post(100 + round, SendOp::Send, &[a.sge(at..at + 9000)]).unwrap();
            rest(10).await;
            while a.poll().is_some() || b.poll().is_some() {}
        }
        rest(100).await;
        state!("done");
        always!(net.seed().is_some(), "there is a seed at the end");
    });
    let mut history = run.history;
    history.remarks.push((history.end, REASON.to_owned()));
    history
}

/// More than 200,000 records
fn long() -> History {
    let run = Sim::new().sanitize(false).keep_records().run(async |net: Net| {
        let init = QpInit { qp_type: QpType::Uc, ..QpInit::with_frames(63) };
        let [a, b] = Raw::pair(&net, &init, Access::LOCAL_WRITE, 1 << 14);
        for round in 0..35_000 {
            b.recv(round, &[b.sge(0..64)]).unwrap();
            a.post(round, SendOp::Send, &[a.sge(0..64)]).unwrap();
            b.completion().await;
            a.completion().await;
        }
    });
    assert!(run.history.records.len() > 200_000, "{}", run.history.records.len());
    run.history
}

/// What the script of the page says of itself
fn said(browser: &Browser, name: &str) -> Value {
    let text = browser.eval(&format!("document.body.dataset.{name} ?? ''"));
    serde_json::from_str(text.as_str().expect("text")).unwrap_or(text)
}

/// Catches a script that fails, a page that is wider than a phone, and one that draws nothing or leaves something out.
#[test]
fn pages_are_drawn_at_every_size_in_light_and_dark_without_complaints() {
    let Some(browser) = devtools::browser() else { return };
    for (name, history) in [("troubled", troubled()), ("empty", History::default()), ("long", long())] {
        let url = write_page(name, &history);
        let count = |kind| history.records.iter().filter(|record| record.kind == kind).count();
        for (size, is_phone) in [(DESKTOP, false), (PHONE, true)] {
            for is_dark in [false, true] {
                browser.open(&url, size, is_dark, is_phone);
                let variant =
                    [if is_phone { "phone" } else { "desktop" }, if is_dark { "dark" } else { "light" }];
                let name = format!("{name}-{}", variant.join("-"));
                fs::write(target(&format!("{name}.png")), browser.screenshot())
                    .expect("the picture is written");
                assert_eq!(browser.complaints(), [Value::Null; 0], "{name}");
                assert_eq!(said(&browser, "ready"), "yes", "{name}");
                let counts = said(&browser, "counts");
                assert_eq!(counts["records"], history.records.len(), "{name}");
                assert_eq!(counts["messages"], count(RecordKind::PostSend), "{name}");
                assert_eq!(counts["frames"], count(RecordKind::Frame), "{name}");
                assert_eq!(counts["stalls"], count(RecordKind::Stall), "{name}");
                assert_eq!(counts["faults"], count(RecordKind::Fault), "{name}");
                let reason = browser.eval("document.getElementById('reason').getBoundingClientRect().height");
                let text = browser.eval("document.getElementById('reason').innerText");
                let has_reason = !history.remarks.is_empty();
                assert_eq!(reason.as_f64().unwrap() > 20.0, has_reason, "{name}: {reason}");
                assert!(
                    !has_reason || text.as_str().unwrap().contains("was silent for 100"),
                    "{name}: {text}"
                );
                let drawn = said(&browser, "drawn");
                assert_eq!(drawn["marks"].as_u64().unwrap() > 0, has_reason, "{name}: {drawn}");
                let has = |what: &str| drawn[what].as_u64().unwrap() > 0;
                assert_eq!(
                    (has("messages"), has("frames")),
                    (!history.records.is_empty(), !history.records.is_empty())
                );
                // What falls into one pixel is drawn once.
                assert!(drawn["frames"].as_u64().unwrap() <= u64::from(size[0]) * 4, "{name}: {drawn}");
                let widths = browser.eval("[document.documentElement.scrollWidth, innerWidth]");
                assert_eq!(widths[0], widths[1], "{name} scrolls sideways");
                let background = browser.eval("getComputedStyle(document.body).backgroundColor");
                assert_eq!(background == "rgb(21, 24, 28)", is_dark, "{name}: {background}");
            }
        }
    }
}

/// The columns of the timeline in which credits are drawn, each as its place from 0 to 1
fn columns_with_credits(browser: &Browser) -> Vec<f64> {
    let columns = browser.eval(
        "(() => {
            const colour = getComputedStyle(document.documentElement).getPropertyValue('--credit-fill').trim();
            const fill = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
            const canvas = document.getElementById('canvas');
            const { width, height } = canvas;
            const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
            const isFill = (x, y) => fill.every((value, k) => data[4 * (y * width + x) + k] === value);
            const rows = [...Array(height).keys()];
            return [...Array(width).keys()].filter((x) => rows.some((y) => isFill(x, y))).map((x) => x / width);
        })()",
    );
    columns.as_array().expect("a list").iter().map(|place| place.as_f64().expect("a number")).collect()
}

/// Catches a page without credits, and one that shows them while no receive is posted.
#[test]
fn a_page_shows_credits_while_receives_are_posted() {
    let Some(browser) = devtools::browser() else { return };
    let [troubled, empty] = [("credits", troubled()), ("no-credits", History::default())]
        .map(|(name, history)| write_page(name, &history));
    for (size, is_phone) in [(DESKTOP, false), (PHONE, true)] {
        for is_dark in [false, true] {
            browser.open(&troubled, size, is_dark, is_phone);
            let columns = columns_with_credits(&browser);
            assert!(columns.len() > 20, "{columns:?}");
            let widest = columns.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
            // Three of the twelve rounds post none; the others, one each.
            assert!((0.05..0.3).contains(&widest), "the peer posts no receive for a while: {columns:?}");
            browser.open(&empty, size, is_dark, is_phone);
            assert_eq!(columns_with_credits(&browser), [0.0; 0]);
        }
    }
}

/// Regression: what did not hold and what held shared one grey label, and the violation at the end of the run had none.
#[test]
fn a_violation_has_a_label_of_its_own_and_the_page_says_how_to_repeat_it() {
    let Some(browser) = devtools::browser() else { return };
    let page = target("violated.html");
    let failure = try_check(Check::new().name("violated").page(&page), async |net: Net| {
        for term in 0..4_u32 {
            net.sleep(Duration::from_micros(25)).await;
            sometimes!(term > 4, "another leader takes over");
            always!(net.seed().is_some(), "there is a seed");
            always!(term < 3, "a term has one leader");
        }
    });
    let failure = failure.unwrap_err();
    for (size, is_phone) in [(DESKTOP, false), (PHONE, true)] {
        for is_dark in [false, true] {
            browser.open(&format!("file://{}", page.display()), size, is_dark, is_phone);
            assert_eq!(browser.complaints(), [Value::Null; 0]);
            let labels = said(&browser, "labels");
            let labels = labels.as_array().expect("a list");
            let is_mixed = |text: &str| {
                ["does not hold", "always:", "violated"].iter().filter(|part| text.contains(**part)).count()
                    > 1
            };
            assert!(labels.iter().all(|label| !is_mixed(label[0].as_str().unwrap())), "{labels:?}");
            let violated: Vec<_> = labels
                .iter()
                .filter(|label| label[0].as_str().unwrap().starts_with("always, violated: a term has one"))
                .collect();
            let [violation] = violated[..] else { panic!("{labels:?}") };
            let colour =
                browser.eval("getComputedStyle(document.documentElement).getPropertyValue('--lost').trim()");
            assert_eq!(violation[1], colour, "{violation}");
            let [from, to, tick] = [2, 3, 4].map(|at| violation[at].as_f64().unwrap());
            assert!(from + 60.0 < to && to < tick && tick > 0.9 * f64::from(size[0]) - 400.0, "{violation}");
            let others = labels.iter().filter(|label| *label != violation);
            let mut ends = others.map(|label| [2, 3].map(|at| label[at].as_f64().unwrap()));
            assert!(
                ends.all(|[start, end]| end <= from || start >= tick),
                "nothing is behind it: {labels:?}"
            );
            let said = browser.eval("document.getElementById('repeat').innerText");
            assert_eq!(said, format!("To repeat it: {}", failure.replay.line()));
            let box_of = browser.eval("document.getElementById('repeat').getBoundingClientRect().toJSON()");
            let [width, height] = ["width", "height"].map(|name| box_of[name].as_f64().unwrap());
            assert!(height > 12.0 && height < 40.0 && width <= f64::from(size[0]), "{box_of}");
        }
    }
    browser.open(&format!("file://{}", page.display()), DESKTOP, false, false);
    fs::write(target("violated-desktop-light.png"), browser.screenshot()).unwrap();
}

/// The messages, faults and stalls of a page with their causes, by search, keys and pointer
#[test]
fn a_page_can_be_searched_zoomed_and_read_with_keys_and_pointer() {
    let Some(browser) = devtools::browser() else { return };
    let history = troubled();
    let url = write_page("keys", &history);
    browser.open(&url, DESKTOP, false, false);
    let details = || browser.eval("document.getElementById('details').innerText");
    let overview = details();
    for part in ["the <peer> \"b\" was silent", "at 45us b pause", "Not delivered", "Longest stalls"] {
        assert!(overview.as_str().unwrap().contains(part), "{part:?} in {overview}");
    }
    let search = |text: &str| {
        browser.press("/");
        assert_eq!(browser.eval("document.activeElement.id"), "search");
        browser.eval("document.getElementById('search').select()");
        browser.call("Input.insertText", serde_json::json!({ "text": text }));
        browser.settle();
        browser.eval("document.body.dataset.found").as_str().unwrap().to_owned()
    };

    assert_eq!(search("message lost"), "1");
    browser.press("Enter");
    let text = details();
    for part in
        ["Message of 9\u{202f}000 bytes", "It was lost on the way", "at 40us a:rdma_en2 lose 1", "0x6"]
    {
        assert!(text.as_str().unwrap().contains(part), "{part:?} in {text}");
    }
    fs::write(target("lost-desktop-light.png"), browser.screenshot()).unwrap();
    browser.press("Escape");
    assert_eq!(said(&browser, "selected"), "");

    assert_ne!(search("stall \"no receive\""), "0");
    browser.press("Enter");
    assert!(details().as_str().unwrap().contains("at 45us b pause"), "{}", details());
    assert_ne!(search("b:rdma_en2 dropped unplug"), "");

    // What the program states, and how messages begin.
    assert_eq!(search("candidate"), "3");
    browser.press("Enter");
    assert!(details().as_str().unwrap().contains("state candidate = "), "{}", details());
    fs::write(target("mark-desktop-light.png"), browser.screenshot()).unwrap();
    assert_eq!(search("sometimes \"does not hold\""), "11");
    assert_eq!(search("\"round 3 of\""), "1");
    browser.press("Enter");
    let text = details();
    assert!(text.as_str().unwrap().contains("72 6f 75 6e 64 20 33 20  round 3 "), "{text}");
    fs::write(target("bytes-desktop-light.png"), browser.screenshot()).unwrap();
    assert_eq!(search("nothing is called this"), "0");
    browser.press("Escape");
    browser.press("Escape");

    // From event to event, and closer; then everything again.
    browser.press("n");
    let first = said(&browser, "selected");
    browser.press("n");
    assert_ne!(said(&browser, "selected"), first);
    let span = || -> f64 { said(&browser, "span").as_f64().unwrap() };
    let all = span();
    browser.press("+");
    let closer = span();
    assert!(closer < all, "{closer} {all}");
    browser.press("Enter");
    assert!(span() < closer);
    browser.press("0");
    assert!((span() - all).abs() < 1.0);

    // The wheel zooms where the pointer is; a click selects what is drawn there.
    let wheel = serde_json::json!({ "type": "mouseWheel", "x": 500, "y": 300, "deltaX": 0, "deltaY": -300 });
    browser.call("Input.dispatchMouseEvent", wheel);
    browser.settle();
    assert!(span() < all);
    browser.press("0");
    let at = said(&browser, "firstFault");
    browser.click(at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
    assert!(
        said(&browser, "selected").as_str().unwrap().starts_with("fault "),
        "{}",
        said(&browser, "selected")
    );
    assert_eq!(browser.complaints(), [Value::Null; 0]);
}

/// Catches a pinch that scrolls the page, and a panel that covers the timeline.
#[test]
fn on_a_phone_two_fingers_zoom_and_a_tap_selects() {
    let Some(browser) = devtools::browser() else { return };
    let url = write_page("phone", &troubled());
    browser.open(&url, PHONE, true, true);
    let span = || -> f64 { said(&browser, "span").as_f64().unwrap() };
    let all = span();
    let touch = |kind: &str, points: &[[i32; 2]]| {
        let points: Vec<_> = points
            .iter()
            .zip(0..)
            .map(|([x, y], id)| serde_json::json!({ "x": x, "y": y, "id": id }))
            .collect();
        browser.call("Input.dispatchTouchEvent", serde_json::json!({ "type": kind, "touchPoints": points }));
    };
    touch("touchStart", &[[150, 400], [210, 400]]);
    touch("touchMove", &[[100, 400], [260, 400]]);
    touch("touchMove", &[[60, 400], [300, 400]]);
    touch("touchEnd", &[]);
    browser.settle();
    assert!(span() < all * 0.6, "{} {all}", span());
    browser.eval("document.getElementById('fit').click()");
    browser.settle();
    let at = said(&browser, "firstFault");
    let [x, y] = [0, 1].map(|axis| at[axis].as_f64().unwrap() as i32);
    touch("touchStart", &[[x, y]]);
    touch("touchEnd", &[]);
    browser.settle();
    assert!(said(&browser, "selected").as_str().unwrap().starts_with("fault "));
    let heights = browser.eval(
        "[document.getElementById('chart').clientHeight, document.getElementById('panel').clientHeight]",
    );
    assert!(heights[0].as_f64().unwrap() > 200.0 && heights[1].as_f64().unwrap() > 100.0, "{heights}");
    fs::write(target("selected-phone-dark.png"), browser.screenshot()).unwrap();
    assert_eq!(browser.complaints(), [Value::Null; 0]);
}
