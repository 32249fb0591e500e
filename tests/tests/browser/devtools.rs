//! A browser without a window, driven through the pipe of its development tools

use std::cell::{Cell, RefCell};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Far longer than anything takes: a browser that hangs ends the test instead of holding it up.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser that runs, with one page
pub(crate) struct Browser {
    child: Child,
    stdin: RefCell<ChildStdin>,
    messages: Receiver<Value>,
    /// What came between answers.
    events: RefCell<Vec<Value>>,
    next_id: Cell<u64>,
    session: String,
    /// Its profile, which goes with it.
    _profile: TempDir,
}

/// A browser, or `None` with a message if there is none and none is required
#[expect(clippy::print_stderr, reason = "a test that does not run says so")]
pub(crate) fn browser() -> Option<Browser> {
    let program = installed();
    if program.is_none() {
        let message = "NOT RUN: there is no browser; install chromium, or name one with RDMA_TEST_BROWSER";
        assert!(std::env::var_os("RDMA_REQUIRE_BROWSER").is_none(), "{message}");
        eprintln!("{message}");
    }
    program.map(|program| Browser::start(&program))
}

/// The installed browser: `RDMA_TEST_BROWSER`, or one of the usual names in `PATH`
fn installed() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("RDMA_TEST_BROWSER") {
        return Some(path.into());
    }
    let folders = std::env::var_os("PATH")?;
    let folders: Vec<_> = std::env::split_paths(&folders).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

impl Browser {
    pub(crate) fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let mut command = Command::new("sh");
        // The browser reads commands from descriptor 3, and answers on 4.
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 >/dev/null", "sh"]).arg(program);
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-extensions",
        ]);
        command.args(["--disable-dev-shm-usage", "--remote-debugging-pipe"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        // What a browser that is killed leaves behind goes with its profile.
        command.env("TMPDIR", profile.path());
        let mut child = command.spawn().expect("the browser starts");
        let stdin = RefCell::new(child.stdin.take().expect("it is piped"));
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, messages) = channel();
        #[expect(clippy::disallowed_methods, reason = "a test reads what another process says")]
        std::thread::spawn(move || {
            for message in BufReader::new(stdout).split(0) {
                let Ok(message) = message else { break };
                let message = serde_json::from_slice(&message).expect("messages are JSON");
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let (events, next_id) = (RefCell::default(), Cell::new(1));
        let mut browser =
            Self { child, stdin, messages, events, next_id, session: String::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Runtime", "Log", "Page"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method, and waits for its answer
    pub(crate) fn call(&self, method: &str, params: Value) -> Value {
        let id = self.next_id.replace(self.next_id.get() + 1);
        let mut message = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut stdin = self.stdin.borrow_mut();
        stdin.write_all(message.to_string().as_bytes()).expect("the browser runs");
        stdin.write_all(&[0]).expect("the browser runs");
        stdin.flush().expect("the browser runs");
        loop {
            let answer = self.messages.recv_timeout(PATIENCE);
            let mut answer =
                answer.unwrap_or_else(|error| panic!("the browser does not answer {method}: {error}"));
            if answer["id"] != id {
                self.events.borrow_mut().push(answer);
                continue;
            }
            assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
            return answer["result"].take();
        }
    }

    /// The value of an expression of JavaScript, awaited
    pub(crate) fn eval(&self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// Opens a page of a size, in light or dark, and waits until its script has run
    pub(crate) fn open(&self, url: &str, [width, height]: [u32; 2], is_dark: bool, is_phone: bool) {
        let scale = if is_phone { 2 } else { 1 };
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": is_phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        // The same page with another hash would not be loaded anew.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        self.call("Page.navigate", json!({ "url": url }));
        let is_loaded = "new Promise((done) => {
            const look = () => location.protocol === 'file:' && document.readyState === 'complete' ? done(true) : setTimeout(look, 20);
            look();
        })";
        assert_eq!(self.eval(is_loaded), true);
        self.settle();
    }

    /// Waits until what was asked for is drawn
    pub(crate) fn settle(&self) {
        self.eval("new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done(1))), 400))");
    }

    /// Presses a key
    pub(crate) fn press(&self, key: &str) {
        let text = if key.len() == 1 { key } else { "" };
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": key, "text": text }));
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
        self.settle();
    }

    /// Clicks at a point of the window
    pub(crate) fn click(&self, x: f64, y: f64) {
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params);
        }
        self.settle();
    }

    /// The window, as a PNG
    pub(crate) fn screenshot(&self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        base64(shot["data"].as_str().expect("a picture"))
    }

    /// Errors and warnings that the page has reported since the last call
    pub(crate) fn complaints(&self) -> Vec<Value> {
        const COMPLAINTS: [&str; 3] =
            ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];
        let is_complaint =
            |event: &Value| event["method"].as_str().is_some_and(|method| COMPLAINTS.contains(&method));
        self.events.borrow_mut().drain(..).filter(is_complaint).collect()
    }
}

impl Drop for Browser {
    /// Ends the browser with all of its processes
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let kill = |signal: &str| {
            let mut command = Command::new("kill");
            command.args([signal, "--", &group]).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        kill("-KILL");
        let _ = self.child.wait();
        // The last of its processes may still write into the profile, which can be removed only then.
        for _ in 0..100 {
            if !kill("-0") {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What base64 stands for
fn base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<_> = text.bytes().filter(|letter| *letter != b'=').collect();
    let groups = letters.chunks(4).flat_map(|group| {
        let bits = group.iter().fold(0_u32, |bits, letter| bits << 6 | u32::from(value(*letter)));
        let bits = bits << (6 * (4 - group.len()));
        bits.to_be_bytes().into_iter().skip(1).take(group.len() * 6 / 8)
    });
    groups.collect()
}
