//! `tb5 topo`: plans and their proofs

use std::fs;
use std::path::PathBuf;

use tempfile::tempdir;

use crate::support::{assert_failed, json, stderr, stdout};

/// Catches a plan that is not the best, shares that do not add up, and names that are not those of the hosts.
#[test]
fn a_plan_has_its_proof() {
    // All_reduce on reference topologies, in the time of one cable (published and own derivations: BOUNDS.md).
    for (topology, time, hosts) in
        [("pair", 1.0, 2), ("ring:4", 0.75, 4), ("mesh:5", 0.4, 5), ("line:4", 1.0, 4), ("star:4", 1.0, 4)]
    {
        let report = json(&tb5!("topo", "plan", topology, "--json"));
        let number = |name: &str| report[name].as_f64().unwrap();
        let found = number("plan_seconds_per_byte") * number("cable_bytes_per_second");
        assert!((found - time).abs() < 1e-6, "{topology}: {found}");
        assert_eq!(
            (report["optimal"].as_bool(), report["operation"].as_str()),
            (Some(true), Some("all-reduce"))
        );
        assert_eq!(report["hosts"].as_array().unwrap().len(), hosts);
        let trees = report["trees"].as_array().unwrap();
        let shares = trees.iter().map(|tree| tree["share"].as_f64().unwrap()).sum::<f64>();
        assert!((shares - 1.0).abs() < 1e-9, "{topology}: {shares}");
        assert!(trees.iter().all(|tree| tree["edges"].as_array().unwrap().len() == hosts - 1));
        let parts = report["certificate"]["partition"].as_array().unwrap();
        assert_eq!(parts.iter().map(|part| part.as_array().unwrap().len()).sum::<usize>(), hosts);
    }
    let text = stdout(&tb5!("topo", "plan", "ring:4"));
    assert!(
        text.contains("0.750 × the time of one 80 Gb/s cable") && text.contains("no plan is faster"),
        "{text}"
    );
    assert!(text.contains("a:rdma_en4 – c:rdma_en4  0.800 × as long"), "the cable to add: {text}");
}

/// A star of four whose centre carries as much as one cable: it sends the sum to each leaf. Catches a cap that is not read, or not proved.
#[test]
fn caps_of_macs_count() {
    let folder = tempdir().unwrap();
    let [capped, free, plan] = ["capped.toml", "free.toml", "p.plan"].map(|name| folder.path().join(name));
    let leaf = |name: &str, port: usize| {
        let ends = format!("[\"{name}:rdma_en2\", \"hub:rdma_en{port}\"]");
        format!("[[host]]\nname = \"{name}\"\nports = 3\n\n[[cable]]\nends = {ends}\n\n")
    };
    let leaves: String = ["a", "b", "c"].into_iter().zip(2..).map(|(name, port)| leaf(name, port)).collect();
    let hub = |cap: &str| format!("[[host]]\nname = \"hub\"\nports = 3\n{cap}\n{leaves}");
    fs::write(&capped, hub("cap_gbps = 80\n")).unwrap();
    fs::write(&free, hub("")).unwrap();
    let report = json(&tb5!("topo", "plan", &capped, "--out", &plan, "--json"));
    let number = |name: &str| report[name].as_f64().unwrap();
    let found = number("plan_seconds_per_byte") * number("cable_bytes_per_second");
    assert!((found - 3.0).abs() < 1e-6, "{found}");
    let prices = report["certificate"]["prices"].as_array().unwrap();
    let ends: Vec<_> = prices.iter().map(|price| (price["from"].as_str(), price["to"].as_str())).collect();
    assert_eq!(ends, [(Some("hub"), None), (None, Some("hub"))]);
    assert_eq!((report["optimal"].as_bool(), report["best_cabling"].is_null()), (Some(true), true));
    let text = stdout(&tb5!("topo", "plan", &capped));
    assert!(text.contains("all cables and Macs with caps"), "{text}");
    assert!(text.contains("some Macs have caps: their best cabling is not known"), "{text}");
    assert_eq!(json(&tb5!("topo", "check", &capped, &plan, "--json"))["optimal"].as_bool(), Some(true));
    assert_failed(&tb5!("topo", "check", &free, &plan), 1, &["the plan is for the cabling"]);
    // Regression: the bound counted caps, and the time of the simulator was below it.
    let bench = tb5!("bench", "all-reduce", "--topology", &capped, "--bytes", "1MiB", "--json");
    let row = json(&bench)["rows"][0].clone();
    assert!(row["lower_bound_ns"].as_f64().unwrap() <= row["time_ns"].as_f64().unwrap(), "{row}");
    assert!(stderr(&bench).contains("the simulator does not slow Macs with caps down"), "{}", stderr(&bench));
    let lost = tb5!("topo", "convert", &capped, "--to", "hostfile", "--out", "-");
    assert!(stderr(&lost).contains("formats of MLX have no caps"), "{}", stderr(&lost));
}

/// Catches a cable to add that changes nothing: the table listed five of them, each with "1.000 × as long".
#[test]
fn only_cables_that_make_the_operation_faster_are_proposed() {
    let text = stdout(&tb5!("topo", "plan", "star:6"));
    assert!(
        text.contains("\n\nno single cable makes it faster\n\n cable to move ")
            && !text.contains("cable to add"),
        "{text}"
    );
    let report = json(&tb5!("topo", "plan", "star:6", "--json"));
    assert_eq!(report["additions"].as_array().unwrap().len(), 5, "JSON has all of them");
}

#[test]
fn every_operation_has_a_plan() {
    for operation in
        ["all-gather", "reduce-scatter", "broadcast", "reduce", "scatter", "gather", "all-to-all"]
    {
        let report = json(&tb5!("topo", "plan", "ring:5", "--operation", operation, "--json"));
        assert_eq!(
            (report["optimal"].as_bool(), report["operation"].as_str()),
            (Some(true), Some(operation))
        );
    }
}

/// Regression: cablings of more than 16 hosts were compared for an all-to-all, which failed, and no figure was printed.
#[test]
fn an_all_to_all_of_many_hosts_has_a_plan_and_no_advice() {
    let folder = tempdir().unwrap();
    let plan = folder.path().join("p.plan");
    let made = tb5!("topo", "plan", "ring:20", "--operation", "all-to-all", "--out", &plan);
    assert!(made.status.success(), "{}", stderr(&made));
    let text = stdout(&made);
    assert!(text.contains("20 hosts") && text.contains(" × as long as the best"), "{text}");
    assert!(text.contains("best cabling  not looked for") && !text.contains("if unplugged"), "{text}");
    let checked = json(&tb5!("topo", "check", "ring:20", &plan, "--json"));
    assert!(checked["factor_above_bound"].as_f64().unwrap() < 1.1, "{checked}");
    let refused = tb5!("topo", "plan", "ring:20", "--operation", "all-to-all", "--write-cabling", &plan);
    assert_failed(&refused, 1, &["not looked for: the bounds of so many hosts"]);
}

/// Catches a plan that is accepted for other cables, or with a changed share. Regression: its own cables did not count beside those that were given.
#[test]
fn plans_are_checked() {
    let folder = tempdir().unwrap();
    let plan = folder.path().join("p.plan");
    let made = tb5!("topo", "plan", "mesh:4", "--out", &plan);
    assert!(made.status.success(), "{}", stderr(&made));
    let checked = json(&tb5!("topo", "check", "mesh:4", &plan, "--json"));
    assert_eq!(
        (checked["optimal"].as_bool(), checked["factor_above_bound"].as_f64()),
        (Some(true), Some(1.0))
    );
    let other = tb5!("topo", "check", "ring:4", &plan);
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("make a plan for it"), "{}", stderr(&other));
    let text = fs::read_to_string(&plan).unwrap();
    let cable = text.lines().find(|line| line.starts_with("cable ")).expect("it has cables");
    fs::write(&plan, text.replacen(&format!("{cable}\n"), "", 1)).unwrap();
    for checked in [tb5!("topo", "check", "mesh:4", &plan), tb5!("topo", "check", &plan)] {
        assert_failed(&checked, 1, &["the plan is for the cabling"]);
    }
    fs::write(&plan, text.replacen("1/4", "1/3", 1)).unwrap();
    assert_eq!(tb5!("topo", "check", "mesh:4", &plan).status.code(), Some(1));
    fs::write(&plan, "rdma-plan 1\nnonsense").unwrap();
    let broken = tb5!("topo", "check", "mesh:4", &plan);
    assert_eq!(broken.status.code(), Some(1));
    assert!(
        stderr(&broken).contains("p.plan:2: is not a plan: word 1 of the line is"),
        "{}",
        stderr(&broken)
    );
}

#[test]
fn what_cannot_be_planned_says_why() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("two.toml");
    let hosts = ["a", "b", "c"]
        .map(|name| format!("[[host]]\nname = \"{name}\"\nmac = \"mac-mini-m4-pro\"\n"))
        .concat();
    fs::write(&file, format!("{hosts}[[cable]]\nends = [\"a:rdma_en2\", \"b:rdma_en2\"]\n")).unwrap();
    let apart = tb5!("topo", "plan", &file);
    assert_eq!(apart.status.code(), Some(1), "{}", stderr(&apart));
    assert!(stderr(&apart).contains("a, b | c"), "{}", stderr(&apart));
    for arguments in [
        ["topo", "plan", "ring:4", "--root", "zz", "--operation", "reduce"].as_slice(),
        &["topo", "plan", "nosuch"],
    ] {
        let refused = crate::support::tool().args(arguments).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    }
}

/// Catches a drawing without a Mac, a port or a cable, and names that end what they stand in.
#[test]
fn a_cabling_is_drawn_as_text_for_graphviz_and_as_a_picture() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("macs.toml");
    let hosts = "[[host]]\nname = \"<a>&b\"\nports = 2\n[[host]]\nname = \"{c|d}\"\nports = 2\n";
    let cable = "[[cable]]\nends = [\"<a>&b:rdma_en2\", \"{c|d}:rdma_en3\"]\ngbps = 40\n";
    fs::write(&file, [hosts, cable].concat()).unwrap();
    let draw = |format: &str| stdout(&tb5!("topo", "draw", &file, "--format", format));
    let text = draw("text");
    assert!(text.contains("<a>&b:rdma_en2  ── {c|d}:rdma_en3  40 Gb/s"), "{text}");
    assert!(text.contains("<a>&b:rdma_en3  free"), "{text}");
    let dot = draw("dot");
    assert!(dot.contains(r#""<a>&b":en2 -- "{c|d}":en3 [label="40 Gb/s"];"#), "{dot}");
    assert!(dot.contains(r#"[label="\<a\>&b|{<en2> en2|<en3> en3}"]"#), "{dot}");
    let svg = draw("svg");
    assert!(svg.contains("&lt;a&gt;&amp;b:rdma_en2 – {c|d}:rdma_en3, 40 Gb/s"), "{svg}");
    assert!(svg.contains(">40 Gb/s</text>"), "only the tooltip has the rate: {svg}");
    assert!(!svg.contains("<a>"), "{svg}");
    for (format, drawn) in [("text", text), ("dot", dot), ("svg", svg)] {
        let out = folder.path().join("drawing");
        let written = tb5!("topo", "draw", &file, "--format", format, "--out", &out);
        assert!(written.status.success() && written.stdout.is_empty(), "{}", stderr(&written));
        assert_eq!(fs::read_to_string(&out).unwrap(), drawn);
    }
    let ring = stdout(&tb5!("topo", "draw", "ring:4", "--format", "svg"));
    let heights = |start: &str, key: &str| -> Vec<f64> {
        let lines = ring.split('<').filter(|line| line.starts_with(start));
        lines
            .map(|line| line.split(key).nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect()
    };
    let ports = heights("circle", " cy=\"").into_iter().map(f64::abs).fold(0.0, f64::max);
    let free: Vec<_> = heights("text", " y=\"").into_iter().filter(|y| y.abs() > ports).collect();
    assert_eq!(free.len(), 4, "the free ports are written where no cable is: {ring}");
    let report = json(&tb5!("topo", "draw", "ring:4", "--json"));
    assert_eq!(report["cables"].as_array().unwrap().len(), 4);
    assert_eq!(report["cables"][0]["bits_per_second"], 80_000_000_000_u64);
}

/// Catches labels over each other: of ports beside each other, and of the Mac between them when its name is long.
#[test]
fn the_labels_of_a_drawing_are_apart() {
    let folder = tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let long = r#"[{"ssh": "studio-west.local", "rdma": [null, "rdma_en2"]}, {"ssh": "studio-east-2.local", "rdma": ["rdma_en4", null]}]"#;
    let three = "shape = \"pair\"\ncables = 3\nmac = \"mac-studio-m3-ultra\"\n";
    let slow = "shape = \"mesh\"\nhosts = 8\nmac = \"generic-7\"\ngbps = 40\n";
    let slow_pair = "shape = \"pair\"\ncables = 3\ngbps = 40\n";
    let shapes = ["mesh:3", "mesh:4", "mesh:5", "mesh:6", "mesh:7", "mesh:8", "ring:5", "line:3", "star:7"]
        .map(PathBuf::from);
    let files =
        [("long.json", long), ("three.toml", three), ("slow.toml", slow), ("slow-pair.toml", slow_pair)];
    for drawn in files.map(|(name, text)| file(name, text)).into_iter().chain(shapes) {
        let svg = stdout(&tb5!("topo", "draw", &drawn, "--format", "svg"));
        let texts: Vec<_> = svg.split("<text").skip(1).collect();
        assert!(texts.len() > 3, "{svg}");
        // Half the width and half the height, of letters that are as wide as digits.
        let places = texts.iter().map(|text| {
            let number = |key: &str| -> f64 {
                text.split(key).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
            };
            let label = text.split('>').nth(1).unwrap().split('<').next().unwrap();
            let size = if text.contains("small") { 11.0 } else { 13.0 };
            (
                label,
                [number(" x=\""), number(" y=\"")],
                [0.28 * size * label.chars().count() as f64, 0.5 * size],
            )
        });
        let places: Vec<_> = places.collect();
        for (index, (label, middle, half)) in places.iter().enumerate() {
            for (other_label, other, other_half) in &places[index + 1..] {
                let is_apart =
                    (0..2).any(|axis| (middle[axis] - other[axis]).abs() >= half[axis] + other_half[axis]);
                assert!(is_apart, "{label} and {other_label} overlap: {svg}");
            }
        }
    }
}

/// Catches a format that loses a cable on the way there and back.
#[test]
fn a_cabling_is_converted_to_the_formats_of_mlx_and_back() {
    let folder = tempdir().unwrap();
    for shape in ["mesh:4", "ring:5", "pair"] {
        let drawn = stdout(&tb5!("topo", "draw", shape));
        for (format, file) in [("toml", "t.toml"), ("matrix", "m.json"), ("hostfile", "h.json")] {
            let out = folder.path().join(file);
            let made = tb5!("topo", "convert", shape, "--to", format, "--out", &out);
            assert!(made.status.success(), "{}", stderr(&made));
            let back = stdout(&tb5!("topo", "draw", &out));
            let cables = |text: &str| {
                text.lines().filter(|line| line.contains("──")).map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(cables(&back), cables(&drawn), "{shape} as {format}");
        }
    }
    let hostfile = json(&tb5!("topo", "convert", "mesh:3", "--to", "hostfile"));
    assert_eq!(hostfile["hosts"][1]["rdma"], serde_json::json!(["rdma_en2", null, "rdma_en3"]));
    assert_eq!((&hostfile["backend"], &hostfile["hosts"][0]["ssh"]), (&"jaccl".into(), &"a".into()));
    let report = json(&tb5!("topo", "convert", "mesh:3", "--json"));
    assert_eq!(report["cables"], 3);
}

/// Catches a command that takes no hostfile, and an error in one without its file, its line, and the cell or the field.
#[test]
fn errors_in_a_hostfile_name_the_file_the_line_and_the_cell() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("h.json");
    for (text, why) in [
        (
            "[{\"ssh\": \"a\",\n\"rdma\": 7}]",
            "h.json:2: invalid type: integer `7`, expected a sequence at column",
        ),
        (
            "[{\"ssh\": \"a\",\n\"rdma\": [null,\n7]}]",
            "h.json:3: a cell is null, \"rdma_enN\", or a list of such names",
        ),
        ("{\"hosts\": [{\"rdma\": [null]}]}", "h.json:1: missing field `ssh`"),
        (
            "[{\"ssh\": \"a\", \"rdma\": [null, null]},\n{\"ssh\": \"b\", \"rdma\": [\"rdma_en2\", null]}]",
            "h.json:1: m[0][1] has 0 (none), but m[1][0] has 1 (rdma_en2): a cable has a device at both ends",
        ),
        (
            "[{\"ssh\": \"a\", \"rdma\": [null, null]},\n\n{\"ssh\": \"b\", \"rdma\": [null]}]",
            "h.json:3: the matrix has 2 rows, but row 1 has 1 cells: it must be square",
        ),
        (
            "[{\"ssh\": \"a\", \"rdma\": [null, null]},\n{\"ssh\": \"a\", \"rdma\": [null, null]}]",
            "h.json:2: two hosts are called a: give one of them another name",
        ),
    ] {
        fs::write(&file, text).unwrap();
        assert_failed(&tb5!("topo", "plan", &file), 1, &[why]);
        assert_failed(&tb5!("topo", "draw", &file), 1, &[why]);
        assert_failed(&tb5!("topo", "convert", &file), 1, &[why]);
        assert_failed(&tb5!("bench", "all-reduce", "--topology", &file), 1, &[why]);
    }
}

/// Catches rates that are lost without a word, and a remark where none is lost.
#[test]
fn a_format_without_rates_says_that_they_are_lost() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("macs.toml");
    fs::write(&file, "shape = \"ring\"\nhosts = 4\ngbps = 40\n").unwrap();
    for format in ["hostfile", "matrix"] {
        let made = tb5!("topo", "convert", &file, "--to", format);
        let lost =
            "formats of MLX have no rates: cables of another rate are read with 80 Gb/s (4 with 40 Gb/s)";
        assert_eq!(stderr(&made), format!("tb5: {lost}\n"));
        assert!(made.status.success() && !json(&made).is_null());
        assert_eq!(stderr(&tb5!("topo", "convert", "ring:4", "--to", format)), "");
        assert_eq!(stderr(&tb5!("topo", "convert", &file, "--to", format, "--quiet")), "");
    }
    assert_eq!(stderr(&tb5!("topo", "convert", &file)), "");
}

/// Regression: a cable of less than 1 Gb/s had "0 Gb/s" in drawings and remarks.
#[test]
fn a_slow_cable_has_its_rate() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("macs.toml");
    fs::write(&file, "shape = \"pair\"\nhosts = 2\ngbps = 0.001\n").unwrap();
    assert!(stdout(&tb5!("topo", "draw", &file)).contains(" 0.001 Gb/s"));
    assert!(stdout(&tb5!("topo", "draw", &file, "--format", "svg")).contains(">0.001 Gb/s<"));
    let lost = stderr(&tb5!("topo", "convert", &file, "--to", "matrix"));
    assert!(lost.contains("read with 80 Gb/s (1 with 0.001 Gb/s)"), "{lost}");
}

/// Regression: the error was "stream did not contain valid UTF-8".
#[test]
fn a_file_that_is_no_text_is_named() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("macs.toml");
    fs::write(&file, b"shape = \"pair\" # \xff\n").unwrap();
    let why = "macs.toml: cannot be read: it is not UTF-8 text";
    assert_failed(&tb5!("topo", "draw", &file), 1, &[why]);
    assert_failed(&tb5!("bw", "--bytes", "4", "--profile", &file), 1, &[why]);
}

/// Catches a cable that is left out without a word: to a Mac without a report, and between reports that contradict each other.
#[test]
fn cables_that_are_left_out_are_named() {
    let recording = |name: &str| {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../rdma-doctor/tests/fixtures/composed/{name}.json"))
    };
    let healthy = ["reports/left", "reports/right"].map(recording);
    let moved = ["field/cables-moved/left", "field/cables-moved/right"].map(recording);
    let why = "which does not name it: record both reports again, the cables may have been moved in between";
    for (reports, lines) in [
        (&healthy[..1], vec!["receptacle 3 of left leads to Mac Studio, which is in no report".to_owned()]),
        (&healthy[1..], vec!["receptacle 2 of right leads to Mac mini, which is in no report".to_owned()]),
        (&healthy, vec![]),
        (
            &moved,
            vec![
                format!("receptacle 3 of left leads to receptacle 2 of right, {why}"),
                format!("receptacle 2 of right leads to receptacle 2 of left, {why}"),
            ],
        ),
    ] {
        let found = crate::support::tool().args(["topo", "discover"]).args(reports).output().unwrap();
        assert!(found.status.success());
        let said = stderr(&found);
        assert_eq!(said, lines.iter().map(|line| format!("tb5: {line}\n")).collect::<String>());
        assert_eq!(stdout(&found).matches("[[cable]]").count(), usize::from(lines.is_empty()));
    }
}

/// Catches a cable that one end alone names, and ports that are called as those of the other Mac.
#[test]
fn cables_are_found_in_the_reports_of_both_ends() {
    let report = |name: &str| {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../rdma-doctor/tests/fixtures/composed/reports/{name}.json"))
    };
    let (left, right) = (report("left"), report("right"));
    let found = tb5!("topo", "discover", &left, &right);
    let text = stdout(&found);
    assert!(text.contains("ends = [\"left:rdma_en4\", \"right:rdma_en3\"]"), "{text}{}", stderr(&found));
    assert_eq!(text.matches("[[cable]]").count(), 1, "{text}");
    let hostfile = json(&tb5!("topo", "discover", &left, &right, "--to", "hostfile"));
    assert_eq!(hostfile["hosts"][0]["rdma"], serde_json::json!([null, "rdma_en4"]));
    assert_eq!(json(&tb5!("topo", "discover", &left, "--json"))["cables"], 0);
    let missing = tb5!("topo", "discover", "nowhere.json");
    assert_failed(&missing, 1, &["nowhere.json: cannot be read"]);
}

/// Catches a plan that needs the cabling beside it, and one that is checked against other cables than it claims.
#[test]
fn a_plan_that_the_tool_has_written_is_checked_alone() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("plan");
    assert!(tb5!("topo", "plan", "ring:4", "--out", &path).status.success());
    let checked = stdout(&tb5!("topo", "check", &path));
    assert!(checked.contains("4 hosts, 4 cables") && checked.contains("no plan is faster"), "{checked}");
    assert_eq!(stdout(&tb5!("topo", "check", "ring:4", &path)), checked);
    let report = json(&tb5!("topo", "check", &path, "--json"));
    assert_eq!((&report["cables"], &report["optimal"]), (&4.into(), &true.into()));
    let plan = fs::read_to_string(&path).unwrap();
    let refused = |text: &str, why: &str| {
        fs::write(&path, text).unwrap();
        assert_failed(&tb5!("topo", "check", &path), 1, &[why]);
    };
    let without: String =
        plan.lines().filter(|line| !line.starts_with("cable ")).map(|line| format!("{line}\n")).collect();
    refused(&without, "plan: has no cables, as a plan of another program may: write the cabling before it");
    refused(&plan.replace("cable a>b ", "cable a>c "), "the plan is for the cabling ");
    refused(
        &plan.replace("cable a>b ", "cable a>e "),
        "plan:4: is not a plan: word 2 of the line is \"a>e\"",
    );
    assert_failed(&tb5!("topo", "check", "--hosts", "4", &path), 2, &["<SHAPE|FILE>"]);
}

/// Catches `-` that is taken for the name of a file.
/// Regression: the tool read a hostfile or matrix without `.json` in its name as TOML, and the error for a plan with reordered hosts
/// named two equal cablings.
#[test]
fn a_file_is_read_by_its_content_and_a_plan_by_its_hosts() {
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for format in ["hostfile", "matrix"] {
        assert!(tb5!("topo", "convert", "ring:3", "--to", format, "--out", path(format)).status.success());
        assert!(stdout(&tb5!("topo", "draw", path(format))).contains("80 Gb/s"), "{format}");
    }
    assert!(tb5!("topo", "plan", "ring:4", "--out", path("plan")).status.success());
    let plan = fs::read_to_string(path("plan")).unwrap();
    fs::write(path("plan"), plan.replace("hosts a b c d", "hosts b a c d")).unwrap();
    let refused = tb5!("topo", "check", "ring:4", path("plan"));
    assert_failed(
        &refused,
        1,
        &["the hosts of the plan are b, a, c, d, and those of the cabling are a, b, c, d"],
    );
}

#[test]
fn a_minus_is_standard_input_or_output() {
    let folder = tempdir().unwrap();
    let report = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../rdma-doctor/tests/fixtures/composed/reports/left.json");
    let fed = |arguments: &[&str], input: &std::path::Path| {
        let mut command = crate::support::tool();
        command.args(arguments).current_dir(folder.path()).stdin(fs::File::open(input).unwrap());
        command.output().unwrap()
    };
    let devices = fed(&["devices", "--from", "-"], &report);
    assert!(stdout(&devices).contains("rdma_en4"), "{}", stderr(&devices));
    let plan = folder.path().join("plan");
    let made = tb5!("topo", "plan", "ring:3", "--out", "-");
    assert!(tb5!("topo", "plan", "ring:3", "--out", &plan).status.success());
    assert_eq!(stdout(&made), fs::read_to_string(&plan).unwrap());
    let checked = fed(&["topo", "check", "ring:3", "-"], &plan);
    assert!(stdout(&checked).contains("no plan is faster"), "{}", stderr(&checked));
    let ring = folder.path().join("ring");
    fs::write(&ring, tb5!("topo", "convert", "ring:3").stdout).unwrap();
    let matrix = folder.path().join("matrix");
    fs::write(&matrix, tb5!("topo", "convert", "ring:3", "--to", "matrix").stdout).unwrap();
    for input in [&ring, &matrix] {
        for arguments in [
            &["topo", "draw", "-"][..],
            &["topo", "plan", "-"],
            &["bench", "broadcast", "--bytes", "4KiB", "--topology", "-"],
            &["run", "--topology", "-", "--", "true"],
        ] {
            let output = fed(arguments, input);
            assert!(output.status.success(), "{arguments:?} {}: {}", input.display(), stderr(&output));
        }
    }
    assert_failed(&fed(&["topo", "draw", "-"], &plan), 1, &["standard input:1: "]);
    assert_failed(&fed(&["topo", "check", "-", "-"], &ring), 2, &["standard input is read once"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no file is called -");
}
