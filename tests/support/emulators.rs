//! Google's Firestore and Pub/Sub emulators, one of each shared by all tests of a test binary.
//!
//! Each is started by the first test that asks, on a free port of the loopback interface. One that already runs is used
//! instead when `FIRESTORE_EMULATOR_HOST` or `PUBSUB_EMULATOR_HOST` names it. Where they are not installed a test says on
//! stderr what it skipped and returns early; `HOTCOUNT_REQUIRE_EMULATORS=1` turns that into a panic.
//!
//! An emulator ends with the test process, however that ends. A static is never dropped, so the emulator runs under a
//! small `sh` in a process group of its own, which ends that whole group when the pipe that only the test process
//! holds is closed: the kernel closes it after a normal end, a panic and a SIGKILL alike.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long an emulator may take until it answers. It takes 3 to 15 s on two idle cores; tests may compete for them.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// How often an emulator is asked whether it is ready.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Somebody else may take the free port between the moment it is found and the moment the emulator binds it.
const ATTEMPTS: usize = 3;

/// `$@` is the emulator. The reader in the background sees the end of the pipe when the test process is gone. gcloud
/// makes a process group of its own for itself and its Java child, which `-$emulator` names; 0 is the group of this
/// shell. They keep nothing on disk, so the hard signal loses nothing.
const WATCHDOG: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
emulator=$!
end() { kill -s KILL -- -$emulator; kill -s KILL 0; }
{ read -r _ <&3; end; } 2>/dev/null &
wait $emulator
end 2>/dev/null
"#;

/// The `host:port` of a Firestore emulator, or `None` when the test has to be skipped.
///
/// # Panics
/// When there is none and `HOTCOUNT_REQUIRE_EMULATORS=1` is set.
pub fn firestore() -> Option<String> {
    static SHARED: LazyLock<Result<Emulator, String>> = LazyLock::new(|| {
        Emulator::get("FIRESTORE_EMULATOR_HOST", "Firestore", |address| {
            gcloud(&["emulators", "firestore", "start", &format!("--host-port={address}")])
        })
    });
    host_of(&SHARED, "Firestore")
}

/// The `host:port` of a Pub/Sub emulator, or `None` when the test has to be skipped.
///
/// # Panics
/// When there is none and `HOTCOUNT_REQUIRE_EMULATORS=1` is set.
pub fn pubsub() -> Option<String> {
    static SHARED: LazyLock<Result<Emulator, String>> = LazyLock::new(|| {
        Emulator::get("PUBSUB_EMULATOR_HOST", "Pub/Sub", |address| {
            gcloud(&["beta", "emulators", "pubsub", "start", "--project=demo", &format!("--host-port={address}")])
        })
    });
    host_of(&SHARED, "Pub/Sub")
}

/// A name that no other test uses, in this binary, in another one at the same time, or in an earlier run against an
/// emulator that is still there: `name`, a dash and lower-case hex digits. It is legal as a project, topic, subscription
/// or post id when `name` is.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    let serial = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{:x}{:x}-{serial:x}", std::process::id(), now.as_micros() & 0xffff_ffff)
}

fn host_of(shared: &Result<Emulator, String>, what: &str) -> Option<String> {
    match shared {
        Ok(emulator) => Some(emulator.host.clone()),
        Err(problem) => {
            let skipped = format!(
                "skipped, for there is no {what} emulator ({problem}). Install gcloud, Java 17 or newer and its \
                 emulators (`gcloud components install beta cloud-firestore-emulator pubsub-emulator`), or set its \
                 …_EMULATOR_HOST variable"
            );
            assert!(std::env::var("HOTCOUNT_REQUIRE_EMULATORS").as_deref() != Ok("1"), "{skipped}");
            // Straight to the file descriptor: `eprintln!` is captured by the test harness when a test passes.
            let _ = writeln!(std::io::stderr(), "{}: {skipped}", std::thread::current().name().unwrap_or("a test"));
            None
        }
    }
}

struct Emulator {
    host: String,
    /// Held for its pipe alone: closing it ends the emulator.
    _lifeline: Option<ChildStdin>,
}

impl Emulator {
    fn get(variable: &str, what: &str, command: impl Fn(SocketAddr) -> Command) -> Result<Self, String> {
        if let Ok(host) = std::env::var(variable)
            && !host.is_empty()
        {
            return Ok(Self { host, _lifeline: None });
        }
        let mut problem = String::new();
        for _ in 0..ATTEMPTS {
            match start(what, &command) {
                Ok(emulator) => return Ok(emulator),
                Err(StartError::Missing(why)) => return Err(why),
                Err(StartError::Ended(why)) => problem = why,
            }
        }
        Err(problem)
    }
}

enum StartError {
    /// Trying again cannot help.
    Missing(String),
    /// It ended early, perhaps because its port was taken.
    Ended(String),
}

fn start(what: &str, command: &impl Fn(SocketAddr) -> Command) -> Result<Emulator, StartError> {
    for tool in ["gcloud", "java"] {
        if !on_path(tool) {
            return Err(StartError::Missing(format!("`{tool}` is not on the PATH")));
        }
    }
    let address = free_address().map_err(|e| StartError::Missing(format!("no free port: {e}")))?;
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("emulator-{}.log", address.port()));
    let out = File::create(&log).map_err(|e| StartError::Missing(format!("no log at {}: {e}", log.display())))?;
    let err = out.try_clone().map_err(|e| StartError::Missing(format!("no second handle on a log: {e}")))?;
    let mut child = under_watchdog(&command(address))
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|e| StartError::Missing(format!("`sh` does not start: {e}")))?;
    // Taking the pipe's end out of the child is what keeps it open: `Child::wait` would close it.
    let lifeline = child.stdin.take();
    let answer = wait_until_it_answers(&mut child, address);
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    // The emulator goes on writing into a file without a name, which is gone when the emulator is.
    let _ = std::fs::remove_file(&log);
    match answer {
        Ok(()) => Ok(Emulator { host: address.to_string(), _lifeline: lifeline }),
        Err(why) => Err(StartError::Ended(format!("the {what} emulator {why}; it said: {}", last_line(&said)))),
    }
}

fn gcloud(arguments: &[&str]) -> Command {
    let mut command = Command::new("gcloud");
    // A component that is missing must end the command with an error, not ask whether to install it.
    command.args(["--quiet"]).args(arguments).env("CLOUDSDK_CORE_DISABLE_PROMPTS", "1");
    command
}

fn under_watchdog(command: &Command) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-c", WATCHDOG, "emulator"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => sh.env(name, value),
            None => sh.env_remove(name),
        };
    }
    sh.process_group(0).stdin(Stdio::piped());
    sh
}

fn wait_until_it_answers(child: &mut Child, address: SocketAddr) -> Result<(), String> {
    let deadline = Instant::now() + READY_WITHIN;
    while Instant::now() < deadline {
        if answers(address) {
            return Ok(());
        }
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return Err("ended before it answered".to_owned());
        }
        std::thread::sleep(POLL_EVERY);
    }
    Err(format!("did not answer within {} s", READY_WITHIN.as_secs()))
}

/// Both emulators answer `Ok` to a plain HTTP request on the port of their gRPC service.
fn answers(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut status = [0_u8; 12];
        stream.read_exact(&mut status)?;
        Ok(status == *b"HTTP/1.1 200")
    };
    ask().unwrap_or(false)
}

fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(tool).is_file())
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing")
}
