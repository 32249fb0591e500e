//! What a run looks like afterwards: lines with names, spans with causes, and pages

use std::time::Duration;

use rdma_core::{Access, FRAME, QpInit, QpType, SendOp};
use rdma_sim::{FaultPlan, History, Net, RecordKind, Run, Sim, always, sometimes, state};
use rdma_tests::Raw;
use serde_json::{Value, json};

fn raws(net: &Net) -> [Raw; 2] {
    let init = QpInit { qp_type: QpType::Uc, ..QpInit::with_frames(15) };
    Raw::pair(net, &init, Access::LOCAL_WRITE, 1 << 16)
}

async fn rest(net: &Net, micros: u64) {
    rdma_async::time::sleep(&*net.runtime(), Duration::from_micros(micros)).await;
}

fn run(faults: &str, program: impl AsyncFnOnce(&Net, [Raw; 2])) -> Run<()> {
    let faults: FaultPlan = faults.parse().unwrap();
    Sim::new().faults(faults).keep_records().run(async |net| program(&net, raws(&net)).await)
}

/// The slices of a category in Chrome's format
fn slices(history: &History, category: &str) -> Vec<Value> {
    let trace: Value = serde_json::from_str(&history.to_chrome_json()).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events").iter();
    events.filter(|event| event["ph"] == "X" && event["cat"] == category).cloned().collect()
}

/// When a slice begins and how long it is, in nanoseconds
fn span(slice: &Value) -> (u64, u64) {
    ["ts", "dur"].map(|key| (slice[key].as_f64().unwrap() * 1000.0).round() as u64).into()
}

async fn send(a: &Raw, b: &Raw, len: usize) {
    b.recv(1, &[b.sge(0..len)]).unwrap();
    a.post(2, SendOp::Send, &[a.sge(0..len)]).unwrap();
    b.completion().await;
    a.completion().await;
}

#[test]
fn lines_name_hosts_ports_queue_pairs_and_faults() {
    let run = run("at 3us b:rdma_en2 slow 50%", async |net, [a, b]| {
        send(&a, &b, 10).await;
        rest(net, 100).await;
    });
    let lines: Vec<_> = run.history.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "     0.000000000  a:rdma_en2 qp 0x0900  connect     ready to receive from b:rdma_en2 qp 0x0900",
            "     0.000000000  b:rdma_en2 qp 0x0900  connect     ready to receive from a:rdma_en2 qp 0x0900",
        ]
    );
    let has = |end: &str| assert!(lines.iter().any(|line| line.ends_with(end)), "{end} in {lines:#?}");
    has("a:rdma_en2 qp 0x0900  post_send   10 bytes");
    has("b:rdma_en2 qp 0x0900  delivered   10 bytes, success");
    has("     0.000003000  fault: at 3us b:rdma_en2 slow 50%");
    has("     0.000003000  cable a:rdma_en2 – b:rdma_en2: at 50 % of its rate");
}

/// Catches names that are those of the start for ever.
#[test]
fn lines_after_a_restart_that_renumbers_have_the_new_names() {
    let run = run("at 1us b renumber", async |net, [a, b]| {
        rest(net, 2).await;
        send(&a, &b, 10).await;
    });
    let lines: Vec<_> = run.history.lines().collect();
    let device = run.history.subjects().nth(1).unwrap();
    assert_eq!(device, "b:rdma_en2 qp 0x0900");
    assert!(
        lines.contains(&"     0.000001000  port b:rdma_en2: now called rdma_en3".to_owned()),
        "{lines:#?}"
    );
    let last = lines.iter().rfind(|line| line.contains("delivered")).unwrap();
    assert!(last.contains("b:rdma_en3 qp 0x0900"), "{last}");
}

/// Catches a span that ends with the send alone, and a frame of a fixed length.
#[test]
fn a_message_lasts_from_its_post_to_its_completion_and_a_frame_as_long_as_it_takes() {
    let run = run("", async |_, [a, b]| send(&a, &b, 2 * FRAME).await);
    let time = |kind| run.history.records.iter().find(|record| record.kind == kind).unwrap().time.as_nanos();
    let posted = time(RecordKind::PostSend);
    let over = time(RecordKind::Sent).max(time(RecordKind::Delivered));
    let [message] = &slices(&run.history, "message")[..] else { panic!("one message") };
    assert_eq!(span(message), (posted, over - posted));
    assert_eq!((&message["name"], &message["args"]["outcome"]), (&"8192 bytes".into(), &"delivered".into()));
    let frames = slices(&run.history, "frame");
    let [first, second] = &frames[..] else { panic!("two frames") };
    assert_eq!(span(second), (span(first).0 + span(first).1, 445));
}

/// Catches a message that passes for delivered because its send completed, and a fault that never ends.
#[test]
fn a_lost_message_names_the_fault_that_lost_it() {
    const FAULT: &str = "at 0s a:rdma_en2 lose 1";
    let run = run(FAULT, async |_, [a, b]| {
        b.recv(1, &[b.sge(0..10)]).unwrap();
        for id in [2, 3] {
            a.post(id, SendOp::Send, &[a.sge(0..10)]).unwrap();
            a.completion().await;
        }
        b.completion().await;
    });
    let [lost, arrived] = &slices(&run.history, "message")[..] else { panic!("two messages") };
    assert_eq!((&lost["args"]["outcome"], &lost["args"]["fault"]), (&"lost".into(), &FAULT.into()));
    assert_eq!((&arrived["args"]["outcome"], &arrived["args"]["fault"]), (&"delivered".into(), &Value::Null));
    let lost_at = run.history.records.iter().find(|record| record.kind == RecordKind::Lost).unwrap().time;
    let [fault] = &slices(&run.history, "fault")[..] else { panic!("one fault") };
    assert_eq!((fault["name"].as_str().unwrap(), span(fault)), (FAULT, (0, lost_at.as_nanos())));
}

/// Catches a stall that never ends, and one without its cause.
#[test]
fn a_stalled_message_says_for_how_long_and_which_fault_made_it_wait() {
    for (faults, cause) in [("", Value::Null), ("at 0s b pause", "at 0s b pause".into())] {
        let run = run(faults, async |net, [a, b]| {
            rest(net, 1).await;
            a.post(2, SendOp::Send, &[a.sge(0..10)]).unwrap();
            rest(net, 20).await;
            b.recv(1, &[b.sge(0..10)]).unwrap();
            b.completion().await;
        });
        let [stall] = &slices(&run.history, "stall")[..] else { panic!("one stall") };
        let (start, length) = span(stall);
        assert!((19_000..23_000).contains(&length), "{length}");
        assert_eq!((&stall["name"], &stall["args"]["fault"]), (&"no receive of the peer".into(), &cause));
        let [message] = &slices(&run.history, "message")[..] else { panic!("one message") };
        assert_eq!(message["args"]["stalled_ns"], length);
        assert_eq!(message["args"]["fault"], cause);
        let [frame] = &slices(&run.history, "frame")[..] else { panic!("one frame") };
        assert_eq!(span(frame).0, start + length);
    }
}

/// Catches requests that seem to wait for ever on a queue pair whose cable is out.
#[test]
fn a_message_that_is_cut_by_an_unplug_is_dropped_by_that_fault() {
    const FAULT: &str = "at 30us a:rdma_en2 unplug";
    let run = run(&format!("{FAULT}; at 50us a:rdma_en2 replug"), async |net, [a, _b]| {
        a.post(2, SendOp::Send, &[a.sge(0..10)]).unwrap();
        rest(net, 100).await;
        assert_eq!(a.poll(), None);
    });
    let [message] = &slices(&run.history, "message")[..] else { panic!("one message") };
    assert_eq!((&message["args"]["outcome"], &message["args"]["fault"]), (&"dropped".into(), &FAULT.into()));
    assert_eq!(span(message).0 + span(message).1, 30_000);
    let faults = slices(&run.history, "fault");
    assert_eq!(faults.iter().map(span).collect::<Vec<_>>(), [(30_000, 20_000), (50_000, 0)]);
    let states = slices(&run.history, "state");
    let out = states.iter().find(|state| state["name"] == "out").expect("the cable is out");
    assert_eq!(span(out), (30_000, 20_000));
}

/// Catches a message that passes for delivered although its receive failed.
#[test]
fn a_damaged_message_has_failed_by_its_fault() {
    const FAULT: &str = "at 0s a:rdma_en2 corrupt 1";
    let run = run(FAULT, async |_, [a, b]| send(&a, &b, FRAME).await);
    let [message] = &slices(&run.history, "message")[..] else { panic!("one message") };
    assert_eq!((&message["args"]["outcome"], &message["args"]["fault"]), (&"failed".into(), &FAULT.into()));
    assert_eq!(message["args"]["status"], "response error");
}

/// Catches counts that do not fall with the frames, and those that a short message leaves behind.
#[test]
fn credits_rise_with_receives_and_fall_with_frames() {
    let run = run("", async |_, [a, b]| send(&a, &b, 2 * FRAME).await);
    let trace: Value = serde_json::from_str(&run.history.to_chrome_json()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let counts =
        events.filter(|event| event["ph"] == "C").map(|event| event["args"]["frames"].as_u64().unwrap());
    assert_eq!(counts.collect::<Vec<_>>(), [2, 1, 0]);
}

#[test]
fn records_change_nothing_about_a_run_and_equal_runs_have_equal_pages() {
    let program = async |net: Net| {
        let [a, b] = raws(&net);
        send(&a, &b, 3 * FRAME).await;
    };
    let plan: FaultPlan = "at 1us b:rdma_en2 slow 30%; at 2us a pause; at 3us a resume".parse().unwrap();
    let kept = || Sim::new().seed(3).faults(plan.clone()).keep_records().run(program);
    let without = Sim::new().seed(3).faults(plan.clone()).run(program);
    assert_eq!((kept().digest, kept().events, kept().time), (without.digest, without.events, without.time));
    assert!(without.history.records.is_empty());
    assert!(kept().history.records.len() as u64 > without.events, "details are not counted as events");
    assert_eq!(kept().history.to_html("x"), kept().history.to_html("x"));
    assert_eq!(kept().history.to_chrome_json(), kept().history.to_chrome_json());
}

/// What the script of a page reads
fn data(page: &str) -> Value {
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).expect("JSON")
}

/// Catches marks of another host or moment, statements without their outcome, and marks that the observer outside does not see.
#[test]
fn what_the_program_states_is_on_the_page_with_its_time_and_host() {
    let run = run("", async |net, _| {
        net.host("b").spawn({
            let net = net.clone();
            async move {
                rest(&net, 2).await;
                state!("election", 3_u32);
            }
        });
        state!("begun");
        rest(net, 5).await;
        sometimes!(net.seed().is_none(), "without a seed");
        for _ in 0..2 {
            always!(net.seed().is_some(), "with a seed");
        }
    });
    let marks = &data(&run.history.to_html("x"))["marks"];
    // Each after the one before it; the host plus one.
    assert_eq!(marks["at"], json!([0, 2000, 3000, 0, 0]));
    assert_eq!(marks["host"], json!([0, 2, 0, 0, 0]));
    assert_eq!(marks["text"], json!([0, 1, 2, 3, 3]));
    let texts: Vec<_> = marks["texts"].as_array().unwrap().iter().map(|text| &text["text"]).collect();
    assert_eq!(
        texts,
        [
            "state begun",
            "state election = 3",
            "sometimes, does not hold: without a seed",
            "always: with a seed"
        ]
    );
    let site = marks["texts"][3]["site"].as_str().unwrap();
    assert!(site.contains("tests/pictures.rs:") && marks["texts"][0]["site"].is_null(), "{site}");
    let slices = slices(&run.history, "mark");
    assert_eq!(slices.len(), 5);
    let without = Sim::new().run(async |_| state!("nothing is kept"));
    assert_eq!(data(&without.history.to_html("x"))["marks"]["at"], json!([]));
}

/// Catches bytes of another message, and those of a buffer that an operation fills.
#[test]
fn a_page_shows_how_each_message_begins() {
    let run = run("", async |_, [a, b]| {
        a.write(0, b"GET /index ");
        a.write(11, &[0xff; 100]);
        b.recv(1, &[b.sge(0..200)]).unwrap();
        b.recv(2, &[b.sge(200..400)]).unwrap();
        a.post(3, SendOp::Send, &[a.sge(0..3)]).unwrap();
        a.post(4, SendOp::Send, &[a.sge(4..104)]).unwrap();
        a.completion().await;
        a.completion().await;
    });
    let page = data(&run.history.to_html("x"));
    let expected = ["474554".to_owned(), "2f696e64657820".to_owned() + &"ff".repeat(25)];
    assert_eq!(page["messages"]["beginning"], json!(expected));
}

/// Regression: messages that the end of the run destroyed were listed as not delivered.
#[test]
fn a_message_that_the_end_of_the_run_destroys_was_under_way() {
    let outcome = |micros| {
        let run = run("", async |net, [a, b]| {
            b.recv(1, &[b.sge(0..10)]).unwrap();
            a.post(2, SendOp::Send, &[a.sge(0..10)]).unwrap();
            drop((a, b));
            rest(net, micros).await;
        });
        let [message] = &slices(&run.history, "message")[..] else { panic!("one message") };
        message["args"]["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(outcome(0), "under way when the run ended");
    assert_eq!(outcome(1), "dropped", "the program destroyed its queue pair before");
}

/// Catches data that ends the script of the page, or its title.
#[test]
fn a_page_shows_any_text_as_text() {
    const EVIL: &str = "</script><script>alert(1)</script><!-- & \"it's\" \u{2028}\n{{data}} {{style}}";
    let mut history = run("", async |_, _| ()).history;
    history.remarks.push((history.end, EVIL.to_owned()));
    let page = history.to_html(EVIL);
    assert_eq!(page.matches("</script>").count(), 2, "of the data, and of the script");
    assert_eq!(page.matches("<script").count(), 2);
    assert!(page.contains("<title>&lt;/script&gt;&lt;script&gt;alert(1)"), "the title is escaped");
    assert_eq!(data(&page)["remarks"][0][1], EVIL);
}

#[test]
fn a_history_can_be_read_during_a_run_and_after_one_that_stalls() {
    let mut kept = None;
    let run = Sim::new().keep_records().try_run(async |net| {
        let [_a, b] = raws(&net);
        kept = Some(net.clone());
        b.completion().await;
    });
    run.expect_err("there is no message");
    let history = kept.expect("the run began").history();
    assert_eq!(history.lines().filter(|line| line.contains("ready to receive")).count(), 2);
    // Their queue pairs were dropped with the program.
    assert!(history.lines().last().unwrap().ends_with("the program destroyed it"));
}

/// Catches a message that seems to be dropped by its own program alone, although the peer was dead.
#[test]
fn messages_that_wait_for_a_dead_peer_name_the_fault_that_killed_it() {
    const FAULT: &str = "at 5us b kill";
    let run = run(FAULT, async |net, [a, _b]| {
        rest(net, 10).await;
        for id in 0..3 {
            a.post(id, SendOp::Send, &[a.sge(0..10)]).unwrap();
        }
        rest(net, 100).await;
    });
    let messages = slices(&run.history, "message");
    assert_eq!(messages.len(), 3);
    for message in messages {
        assert_eq!(
            (&message["args"]["outcome"], &message["args"]["fault"]),
            (&"under way when the run ended".into(), &FAULT.into())
        );
    }
    let [dead] = &slices(&run.history, "state")[..] else { panic!("one state") };
    assert_eq!((dead["name"].as_str(), span(dead).0), (Some("dead"), 5000));
}
