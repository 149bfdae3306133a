//! The real binary as a child process: run to its end, or a worker that is signalled and restarted.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Long enough for a debug build on a busy machine; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(240);

/// The command with nothing of the caller's settings.
pub fn hotcount(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hotcount"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HOTCOUNT_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

/// Runs to the end.
pub fn run(arguments: &[&str]) -> Output {
    hotcount(arguments).output().unwrap()
}

/// Standard output as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running `hotcount run`. Dropping it kills it.
pub struct Worker {
    child: Child,
    /// The address of its HTTP face.
    pub address: String,
    log: Arc<Mutex<String>>,
    /// Ends when the worker's standard error does.
    reader: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a worker on a free port and waits until it listens.
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = hotcount(&["run", "--http", "127.0.0.1:0", "--json"]);
        command.args(arguments);
        Self::start_as(command)
    }

    /// Starts a worker that is another program; it must say where it listens as `hotcount run` does.
    pub fn start_as(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let log = Arc::new(Mutex::new(String::new()));
        let address = loop {
            let line = lines.next().unwrap_or_else(|| panic!("the worker ended: {}", log.lock().unwrap()));
            log.lock().unwrap().push_str(&format!("{line}\n"));
            if let Some((_, address)) = line.rsplit_once("http://127.0.0.1:") {
                break format!("http://127.0.0.1:{}", address.trim());
            }
        };
        let rest = Arc::clone(&log);
        let reader =
            std::thread::spawn(move || lines.for_each(|line| rest.lock().unwrap().push_str(&format!("{line}\n"))));
        Self { child, address, log, reader: Some(reader) }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for it to end by itself: the exit status and all that it has logged.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = self.wait();
        self.reader.take().unwrap().join().unwrap();
        (status, self.log())
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let signalled =
            Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(signalled.success());
    }

    /// Sends SIGTERM and waits: the exit status and what it printed.
    pub fn terminate(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        let status = self.wait();
        let mut printed = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        (status, printed)
    }

    /// SIGKILL: no drain, no goodbye.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for it to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < DEADLINE, "the worker does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks again and again until `answer` is what it should be.
pub fn until<T: PartialEq + std::fmt::Debug>(what: &str, wanted: T, mut answer: impl FnMut() -> T) {
    let started = Instant::now();
    loop {
        let got = answer();
        if got == wanted {
            return;
        }
        assert!(started.elapsed() < DEADLINE, "{what}: {got:?}, not {wanted:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
