//! Runs the conformance suite of the fabrics: `fabric-conformance FABRIC [OPTION …]`, see [`HELP`].

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::conformance::{Exchange, FdLink, Outcome, Side, Verdict, channel_links, run};
use fabric::soft::FaultScript;
use fabric::soft::{SoftConfig, open as open_soft};
use fabric::{Fabric, Mtu};
use testkit::Table;

const HELP: &str = "\
Usage: fabric-conformance soft|verbs [OPTION ...]

Both sides run as threads of this process over one fabric, unless an option says otherwise.
  --two               each side opens the fabric for itself
  --processes         the sides are two processes that meet over pipes
  --role 0|1          this process is one side only ...
  --meet HOST:PORT    ... and meets the other one here: role 0 listens, role 1 connects
  --secure            soft: all that is sent is encrypted
  --only TEXT         only cases whose name contains TEXT
  --device NAME       device (default: the first)
  --port N            its port (default 1)
  --port-down COMMAND, --port-up COMMAND
                      shell commands that take the port down and up
  --library FILE      verbs: libibverbs
  --devices N         soft: devices (default 2)
  --bind ADDRESS      soft: where it listens (default 127.0.0.1)
  --mtu BYTES         soft: path MTU (default 4096)
  --faults SCRIPT     soft: fault script
Prints a line per case and a summary, or why there is none. Exit code: 0 nothing failed, 1 a case failed, 2 the suite could
not run to its end.
";

/// How long a side waits for the other one to be there.
const MEET: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
struct Options {
    fabric: String,
    two: bool,
    processes: bool,
    piped: bool,
    secure: bool,
    role: Option<u8>,
    meet: Option<String>,
    only: String,
    device: Option<String>,
    port: u8,
    port_down: Option<String>,
    port_up: Option<String>,
    library: Option<PathBuf>,
    devices: u8,
    bind: IpAddr,
    mtu: Mtu,
    faults: Option<String>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let fabric = args.next().filter(|name| matches!(name.as_str(), "soft" | "verbs"));
        let mut options = Self {
            fabric: fabric.ok_or("the first argument is soft or verbs")?,
            two: false,
            processes: false,
            piped: false,
            secure: false,
            role: None,
            meet: None,
            only: String::new(),
            device: None,
            port: 1,
            port_down: None,
            port_up: None,
            library: None,
            devices: 2,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            mtu: Mtu::B4096,
            faults: None,
        };
        while let Some(name) = args.next() {
            match name.as_str() {
                "--two" => options.two = true,
                "--processes" => options.processes = true,
                "--piped" => options.piped = true,
                "--secure" => options.secure = true,
                _ => {
                    let value = args.next().ok_or(format!("{name} needs a value"))?;
                    options.set(&name, value)?;
                }
            }
        }
        if options.role.is_some() != (options.meet.is_some() || options.piped) {
            return Err("--role and --meet go together".to_owned());
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), String> {
        let wrong = || format!("{name} {value:?} is not understood");
        match name {
            "--role" => {
                let role = value.parse().ok().filter(|role| matches!(role, 0 | 1));
                self.role = Some(role.ok_or_else(wrong)?);
            }
            "--meet" => self.meet = Some(value),
            "--only" => self.only = value,
            "--device" => self.device = Some(value),
            "--port" => self.port = value.parse().map_err(|_| wrong())?,
            "--port-down" => self.port_down = Some(value),
            "--port-up" => self.port_up = Some(value),
            "--library" => self.library = Some(value.into()),
            "--devices" => self.devices = value.parse().map_err(|_| wrong())?,
            "--bind" => self.bind = value.parse().map_err(|_| wrong())?,
            "--mtu" => {
                let mtu = value.parse().ok().and_then(Mtu::of_bytes);
                self.mtu = mtu.ok_or_else(wrong)?;
            }
            "--faults" => self.faults = Some(value),
            _ => return Err(format!("no option {name}")),
        }
        Ok(())
    }

    fn open(&self) -> Result<Arc<dyn Fabric>, String> {
        if self.fabric == "verbs" {
            return fabric::verbs::open(self.library.as_deref()).map_err(|e| e.to_string());
        }
        let script = self.faults.as_deref().map(FaultScript::parse).transpose();
        let config = SoftConfig {
            devices: self.devices,
            ports: 1,
            bind: self.bind,
            key: *b"conformance suit",
            secure: self.secure,
            mtu: self.mtu,
            faults: script.map_err(|e| e.to_string())?,
        };
        open_soft(&config).map_err(|e| e.to_string())
    }

    fn set_port(&self, up: bool) -> Result<(), String> {
        let command = if up { &self.port_up } else { &self.port_down };
        let command = command.as_deref().unwrap_or("false");
        let status = Command::new("sh").args(["-c", command]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("{command}: {other:?}")),
        }
    }

    /// One side, over `link`.
    fn side(
        &self,
        role: u8,
        fabric: Arc<dyn Fabric>,
        link: &mut dyn Exchange,
        report: &mut dyn FnMut(&Outcome),
    ) -> Result<Vec<Outcome>, String> {
        let names: Vec<&str> = fabric.devices().iter().map(|info| info.name.as_str()).collect();
        let wanted = self.device.as_deref();
        let index = wanted.map_or(Some(0), |name| names.iter().position(|one| *one == name));
        let index = index.ok_or_else(|| format!("no device {wanted:?} among {names:?}"))?;
        let set_port = |up| self.set_port(up);
        let mut side = Side::new(role, fabric, index, self.port, link);
        if self.port_down.is_some() && self.port_up.is_some() {
            side.set_port = Some(&set_port);
        }
        run(&mut side, &self.only, report)
    }

    fn run(&self) -> Result<Vec<Outcome>, String> {
        match self.role {
            Some(role) => {
                let mut link =
                    if self.piped { stdio()? } else { meet(role, self.meet.as_deref())? };
                let fabric = self.open()?;
                self.side(role, fabric, &mut link, &mut |outcome| report(role, outcome))
            }
            None if self.processes => {
                let (mut child, mut link) = self.other_process()?;
                let fabric = self.open()?;
                let outcomes = self.side(0, fabric, &mut link, &mut |outcome| report(0, outcome));
                drop(link);
                let status =
                    child.wait().map_err(|e| format!("waiting for the other side: {e}"))?;
                let outcomes = outcomes?;
                let all_well = !outcomes.iter().any(failed);
                if all_well && !status.success() {
                    return Err(format!("the other side ended with {status}"));
                }
                Ok(outcomes)
            }
            None => self.threads(),
        }
    }

    fn threads(&self) -> Result<Vec<Outcome>, String> {
        let (mut first, mut second) = channel_links();
        let mine = self.open()?;
        let theirs = if self.two { self.open()? } else { mine.clone() };
        std::thread::scope(|scope| {
            let other =
                scope.spawn(move || self.side(1, theirs, &mut second, &mut |_| ()).map(drop));
            let outcomes = self.side(0, mine, &mut first, &mut |outcome| report(0, outcome));
            drop(first);
            let other = other.join().map_err(|_| "side 1 panicked".to_owned());
            let outcomes = outcomes?;
            other??;
            Ok(outcomes)
        })
    }

    fn other_process(&self) -> Result<(Child, FdLink), String> {
        let exe = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
        let args = std::env::args().skip(1).filter(|one| one != "--processes");
        let child = Command::new(exe)
            .args(args)
            .args(["--piped", "--role", "1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|e| format!("starting the other side: {e}"))?;
        let input = child.stdout.take().map(OwnedFd::from);
        let output = child.stdin.take().map(OwnedFd::from);
        let (Some(input), Some(output)) = (input, output) else {
            return Err("the other side has no pipes".to_owned());
        };
        Ok((child, FdLink::new(input, output)))
    }
}

fn stdio() -> Result<FdLink, String> {
    use std::os::fd::AsFd;
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let output = std::io::stdout().as_fd().try_clone_to_owned();
    let problem = |e| format!("pipes: {e}");
    Ok(FdLink::new(input.map_err(problem)?, output.map_err(problem)?))
}

fn meet(role: u8, place: Option<&str>) -> Result<FdLink, String> {
    let place = place.unwrap_or_default();
    let problem = |e: std::io::Error| format!("meeting at {place}: {e}");
    let stream = if role == 0 {
        TcpListener::bind(place).and_then(|listener| listener.accept()).map_err(problem)?.0
    } else {
        let until = Instant::now() + MEET;
        loop {
            let address = place.to_socket_addrs().map_err(problem)?.next();
            let address = address.ok_or_else(|| format!("{place} is no address"))?;
            match TcpStream::connect_timeout(&address, MEET) {
                Ok(stream) => break stream,
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(100)),
                Err(error) => return Err(problem(error)),
            }
        }
    };
    stream.set_nodelay(true).map_err(problem)?;
    let output = stream.try_clone().map_err(problem)?;
    Ok(FdLink::new(stream.into(), output.into()))
}

fn failed(outcome: &Outcome) -> bool {
    matches!(outcome.verdict, Verdict::Fail(_))
}

/// Side 0 tells; both would say the same.
fn report(role: u8, outcome: &Outcome) {
    if role == 0 {
        testkit::report::show(&format!("{outcome}\n"));
    }
}

fn summary(options: &Options, outcomes: &[Outcome]) {
    let count = |want: fn(&Verdict) -> bool| {
        outcomes.iter().filter(|one| want(&one.verdict)).count().to_string()
    };
    let title = format!("conformance of {}", options.fabric);
    let mut table = Table::new(&title, &["cases", "passed", "skipped", "failed"]);
    table.row(vec![
        outcomes.len().to_string(),
        count(|verdict| *verdict == Verdict::Pass),
        count(|verdict| matches!(verdict, Verdict::Skip(_))),
        count(|verdict| matches!(verdict, Verdict::Fail(_))),
    ]);
    table.show();
}

fn main() -> ExitCode {
    let tell = |text: &str| {
        let _ = writeln!(std::io::stderr(), "fabric-conformance: {text}");
    };
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|one| one == "--help") {
        testkit::report::show(HELP);
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(args.into_iter()) {
        Ok(options) => options,
        Err(problem) => {
            tell(&format!("{problem}\n{HELP}"));
            return ExitCode::from(2);
        }
    };
    // No end without a word where the summary is looked for.
    let ended = std::panic::catch_unwind(|| options.run())
        .unwrap_or_else(|_| Err("a side panicked, see above".to_owned()));
    match ended {
        Ok(outcomes) => {
            if options.role != Some(1) {
                summary(&options, &outcomes);
            }
            ExitCode::from(u8::from(outcomes.iter().any(failed)))
        }
        Err(problem) => {
            tell(&problem);
            if options.role != Some(1) {
                testkit::report::show(&format!("no summary: {problem}\n"));
            }
            ExitCode::from(2)
        }
    }
}
