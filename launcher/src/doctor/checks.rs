//! What is looked at on one host. Looking and judging are apart, so that judgements can be tested.

use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use bootstrap::names;
use fabric::{DeviceInfo, PortState};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, eaccess};

use supervisor::doctor::{CLIENT, Finding, Level};

use super::process_managers;
use crate::program::check_directory;

const LIMITS: &str = "in /etc/security/limits.conf there, and LimitMEMLOCK=, LimitNPROC= and LimitNOFILE= of an sshd that \
                      systemd starts";

/// Names of the checks, in the order in which they are shown, and what each looks at.
pub const CHECKS: [(&str, &str); 15] = [
    ("login", "every step from the name to the agent's first word, as for a job"),
    (CLIENT, "which ssh client logs in, and why it is not the built-in one"),
    ("version", "whether the agent is of the launcher's version"),
    ("clock", "difference to the launcher's clock"),
    ("directory", "the working directory"),
    ("locked memory", "limit on memory that adapters lock (memlock)"),
    ("processes", "limit on processes (nproc)"),
    ("descriptors", "limit on open files (nofile)"),
    ("adapters", "InfiniBand and RoCE adapters, their library and their ports"),
    ("address", "the address that the software adapter of other hosts reaches"),
    ("shared memory", "memory that the ranks of a host share (memfd)"),
    ("/dev/shm", "size and permissions; MPI libraries use it, this one does not"),
    ("sent programs", "whether --stage can put a program there and start it, with room for more"),
    ("MPI programs", "the library by which Open MPI 2 to 4 speaks PMI, and libpmix for PMIx"),
    ("other launchers", "commands and libraries of MPI and PMI"),
];

/// Life of that process: writes the findings to standard output and returns the exit code.
#[must_use]
pub fn main(words: &[OsString]) -> u8 {
    let several = words.first().is_some_and(|word| word == "yes");
    let stage = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let directory = words.get(2).map_or(Path::new("/"), Path::new);
    let text = serde_json::to_vec(&all(directory, several, stage)).unwrap_or_default();
    u8::from(std::io::stdout().write_all(&text).is_err())
}

/// Everything about this host. `several`: the jobs have other hosts. `stage`: when programs are sent
/// here.
fn all(directory: &Path, several: bool, stage: &str) -> Vec<Finding> {
    let variable = ::settings::variable;
    let (adapters, usable) = adapters();
    let limit =
        |resource| getrlimit(resource).unwrap_or((libc::RLIM_INFINITY, libc::RLIM_INFINITY));
    vec![
        work_directory(directory),
        locked_memory(limit(Resource::RLIMIT_MEMLOCK).1, usable),
        processes(limit(Resource::RLIMIT_NPROC).0),
        descriptors(limit(Resource::RLIMIT_NOFILE).1),
        adapters,
        address(
            variable("GASNET_IBV_SOFT_ADDRESS"),
            towards_others(),
            variable(names::ADDRESS),
            several && !usable,
        ),
        shared_memory(),
        dev_shm(Path::new("/dev/shm")),
        sent_programs(supervisor::try_staging(), stage),
        mpi_programs(supervisor::open_mpi_library(), supervisor::pmix_version(), stage),
        process_managers::finding(
            variable("PATH").as_deref(),
            variable("LD_LIBRARY_PATH").as_deref(),
        ),
    ]
}

/// An amount of memory, in the unit that leaves up to four digits.
fn amount(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes;
    while value >= 10_000 && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", UNITS[unit])
}

fn work_directory(path: &Path) -> Finding {
    let name = "directory";
    let Err(problem) = check_directory(path) else {
        return Finding::ok(name, format!("{} is there", path.display()));
    };
    let seen = format!("cannot change to {}: {problem}", path.display());
    let fix = "make it there, or name another with --wdir or GASNET_SSH_REMOTE_PATH";
    Finding::bad(name, Level::Problem, seen, fix)
}

/// `limit` is the hard one: the agent may raise the other.
fn locked_memory(limit: u64, adapters: bool) -> Finding {
    /// What segments of a modest size need.
    const ENOUGH: u64 = 1 << 30;
    let name = "locked memory";
    if limit == libc::RLIM_INFINITY {
        return Finding::ok(name, "unlimited");
    }
    let seen = format!("limited to {}", amount(limit));
    if !adapters {
        return Finding::ok(name, format!("{seen}; only adapters need more"));
    }
    let level = if limit < ENOUGH { Level::Problem } else { Level::Warning };
    let seen = format!("{seen}, and adapters lock all memory that they reach");
    Finding::bad(name, level, seen, format!("`* - memlock unlimited` {LIMITS}"))
}

fn processes(limit: u64) -> Finding {
    let name = "processes";
    let level = match limit {
        0..128 => Level::Problem,
        128..1024 => Level::Warning,
        libc::RLIM_INFINITY => return Finding::ok(name, "unlimited"),
        _ => return Finding::ok(name, "enough for a thousand ranks"),
    };
    let seen = format!("limited to {limit}, threads counted, of all jobs of the user");
    Finding::bad(name, level, seen, format!("`* - nproc unlimited` {LIMITS}"))
}

fn descriptors(limit: u64) -> Finding {
    let name = "descriptors";
    let level = match limit {
        0..256 => Level::Problem,
        256..1024 => Level::Warning,
        _ => return Finding::ok(name, "enough for a hundred ranks"),
    };
    let seen =
        format!("limited to {limit} open files; the agent needs four and more for each rank");
    Finding::bad(name, level, seen, format!("`* - nofile 65536` {LIMITS}"))
}

/// Names of adapters that the kernel knows.
fn known_to_kernel() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/class/infiniband") else { return Vec::new() };
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The adapters, and whether one can be used.
fn adapters() -> (Finding, bool) {
    let known = known_to_kernel();
    let opened = fabric::verbs::open(None);
    let fabric = match opened {
        Ok(fabric) => fabric,
        Err(error) => return (without_library(&known, &error.to_string()), false),
    };
    let ports = fabric.devices().iter().enumerate().map(|(index, info)| {
        let device = fabric.open(index).map_err(|error| error.to_string());
        let states = device.and_then(|device| {
            let port = |number| device.port(number).map(|port| port.state);
            (1..=info.ports).map(port).collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())
        });
        (info.clone(), states)
    });
    judge_adapters(&known, &ports.collect::<Vec<_>>())
}

const NONE: &str = "none; between hosts the software adapter is used";

fn without_library(known: &[String], error: &str) -> Finding {
    if known.is_empty() {
        return Finding::ok("adapters", NONE);
    }
    let seen = format!("{} cannot be used: {error}", known.join(" "));
    let fix =
        "install libibverbs and the driver for the adapter (rdma-core, ibverbs-providers) there";
    Finding::bad("adapters", Level::Warning, seen, fix)
}

fn judge_adapters(
    known: &[String],
    found: &[(DeviceInfo, Result<Vec<PortState>, String>)],
) -> (Finding, bool) {
    let name = "adapters";
    let mut active = Vec::new();
    let mut refused = Vec::new();
    for (info, states) in found.iter().filter(|(info, _)| info.ib_transport) {
        match states {
            Err(error) => refused.push(format!("{}: {error}", info.name)),
            Ok(states) => {
                let up = (1..).zip(states).filter(|(_, state)| **state == PortState::Active);
                active.extend(up.map(|(port, _): (u32, _)| format!("{} port {port}", info.name)));
            }
        }
    }
    if !active.is_empty() {
        return (Finding::ok(name, format!("active: {}", active.join(", "))), true);
    }
    if let Some(first) = refused.first() {
        let fix = "give users leave to open /dev/infiniband/uverbs*; look at `ibv_devinfo` there";
        return (Finding::bad(name, Level::Warning, first.clone(), fix), false);
    }
    if found.is_empty() && known.is_empty() {
        return (Finding::ok(name, NONE), false);
    }
    let names: Vec<&str> = match found {
        [] => known.iter().map(String::as_str).collect(),
        found => found.iter().map(|(info, _)| info.name.as_str()).collect(),
    };
    let seen = format!("{}: no port is active", names.join(" "));
    let fix = "look at cables, switch and subnet manager (`ibv_devinfo`, `ibstat`); until then the software adapter is used";
    (Finding::bad(name, Level::Warning, seen, fix), false)
}

/// Own address on the way to other hosts, by the default route.
fn towards_others() -> Option<IpAddr> {
    // Addresses for documentation: nothing is sent, and only a default route leads there.
    let (v4, v6) = (Ipv4Addr::new(192, 0, 2, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
    let own = |any: IpAddr, to: IpAddr| {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        socket.connect(SocketAddr::new(to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    own(Ipv4Addr::UNSPECIFIED.into(), v4.into())
        .or_else(|| own(Ipv6Addr::UNSPECIFIED.into(), v6.into()))
        .filter(|ip| !ip.is_loopback())
}

/// `own`: that of the default route. `reached`: what the agent's login came to.
fn address(
    set: Option<OsString>,
    own: Option<IpAddr>,
    reached: Option<OsString>,
    needed: bool,
) -> Finding {
    const KNOWN: &str = "that of the default route or of the login";
    let name = "address";
    if let Some(set) = set.filter(|set| !set.is_empty()) {
        let seen = format!("GASNET_IBV_SOFT_ADDRESS={}", set.to_string_lossy());
        return Finding::ok(name, seen);
    }
    match own {
        // Both are good: hosts that differ in this are well.
        Some(_) => Finding::ok(name, KNOWN),
        None if !needed => Finding::ok(name, "none is needed"),
        None if reached.is_some() => Finding::ok(name, KNOWN),
        None => {
            let seen = "no default route tells which address other hosts reach";
            let fix =
                "set GASNET_IBV_SOFT_ADDRESS to the network that joins the hosts, as 10.1.2.0/24";
            Finding::bad(name, Level::Problem, seen, fix)
        }
    }
}

fn shared_memory() -> Finding {
    const TRIED: u64 = 1 << 20;
    let name = "shared memory";
    let tried =
        nix::sys::memfd::memfd_create(c"gasnetrun-doctor", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)
            .map_err(std::io::Error::from)
            .and_then(|fd| {
                let mut file = std::fs::File::from(fd);
                file.set_len(TRIED)?;
                file.write_all(&[1; 4096])
            });
    match tried {
        Ok(()) => Finding::ok(name, "can be made"),
        Err(error) => Finding::bad(
            name,
            Level::Problem,
            format!("cannot be made: {error}"),
            "look at the limits of the container or control group there; memfd_create must be allowed",
        ),
    }
}

fn dev_shm(path: &Path) -> Finding {
    /// An MPI library's own needs for a few ranks.
    const ENOUGH: u64 = 64 << 20;
    let fix = "mount -o remount,rw,size=50%,mode=1777 /dev/shm; MPI libraries and programs that use POSIX shared memory \
               need it";
    let bad = |seen: String| Finding::bad("/dev/shm", Level::Problem, seen, fix);
    let found = match statvfs(path) {
        Ok(found) => found,
        Err(errno) => return bad(format!("cannot be looked at: {}", errno.desc())),
    };
    if found.flags().contains(FsFlags::ST_RDONLY) {
        return bad("is mounted read-only".to_owned());
    }
    if let Err(errno) = eaccess(path, AccessFlags::W_OK | AccessFlags::X_OK) {
        return bad(format!("cannot be written: {}", errno.desc()));
    }
    let size = found.blocks().saturating_mul(found.fragment_size());
    let free = found.blocks_available().saturating_mul(found.fragment_size());
    judge_size(size, free, ENOUGH, fix)
}

fn judge_size(size: u64, free: u64, enough: u64, fix: &str) -> Finding {
    let name = "/dev/shm";
    if size < enough {
        return Finding::bad(name, Level::Problem, format!("has only {}", amount(size)), fix);
    }
    if free < enough {
        let seen = format!("has only {} of {} free", amount(free), amount(size));
        let fix = "remove what jobs that were killed have left in /dev/shm";
        return Finding::bad(name, Level::Warning, seen, fix);
    }
    Finding::ok(name, "writable and large enough")
}

/// `tried`: what became of a program that was written and started there; the bytes that are still free.
/// A job needs it on hosts whose programs are sent, which the launching host's never are.
fn sent_programs(tried: Result<u64, String>, stage: &str) -> Finding {
    /// Programs are rarely larger.
    const ENOUGH: u64 = 64 << 20;
    let name = "sent programs";
    let seen = match tried {
        Ok(free) if free >= ENOUGH => return Finding::ok(name, "can be kept and run"),
        Ok(free) => {
            let seen = format!("can be kept and run, up to the {} that are free", amount(free));
            let fix = "make room there, or name a larger directory with XDG_CACHE_HOME or TMPDIR";
            return Finding::bad(name, Level::Warning, seen, fix);
        }
        Err(seen) => seen,
    };
    let level = if ["here", "never"].contains(&stage) { Level::Warning } else { Level::Problem };
    Finding::bad(
        name,
        level,
        seen,
        "make room there, or name another directory with XDG_CACHE_HOME or TMPDIR where the login there sets its \
         environment, or install programs there and use --stage never",
    )
}

/// `library`: where that of Open MPI is; `pmix`: what libpmix says of itself. Jobs of other programs need
/// neither.
fn mpi_programs(
    library: Result<PathBuf, String>,
    pmix: Result<String, String>,
    stage: &str,
) -> Finding {
    let name = "MPI programs";
    let pmix = match pmix {
        Ok(version) => {
            format!("PMIx by {}", version.split([',', '(']).next().unwrap_or_default().trim())
        }
        Err(problem) => format!("no PMIx ({problem})"),
    };
    let library = match library {
        Ok(path) => format!("Open MPI by {}", path.display()),
        Err(_) if ["auto", "always"].contains(&stage) => {
            "Open MPI by a library that is sent with the job".to_owned()
        }
        Err(problem) => {
            let seen = format!("no PMI for Open MPI 2 to 4 ({problem}); {pmix}");
            let fix = "install gasnetrun_ibv there (scripts/install), or leave --stage at auto and install it where \
                       jobs are launched";
            return Finding::bad(name, Level::Warning, seen, fix);
        }
    };
    Finding::ok(name, format!("{library}; {pmix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_same_checks() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/design/doctor.md");
        let page = std::fs::read_to_string(path).unwrap();
        let table = page.split("| check | looks at |\n|---|---|\n").nth(1).unwrap();
        let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
        let row = |(name, text): &(&str, &str)| format!("| {name} | {text} |");
        assert_eq!(rows, CHECKS.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn limits() {
        assert_eq!(locked_memory(libc::RLIM_INFINITY, true).level, Level::Ok);
        assert_eq!(locked_memory(64 << 10, false).level, Level::Ok);
        let low = locked_memory(64 << 10, true);
        assert!(low.level == Level::Problem && low.seen.contains("64 KiB"), "{low:?}");
        assert!(low.fix.contains("memlock unlimited"));
        assert_eq!(locked_memory(2 << 30, true).level, Level::Warning);
        for (limit, level) in [(20, Level::Problem), (500, Level::Warning), (1 << 20, Level::Ok)] {
            assert_eq!((processes(limit).level, descriptors(limit).level), (level, level));
        }
        assert_eq!(amount(12), "12 bytes");
        assert_eq!(amount(8 << 30), "8192 MiB");
        assert_eq!(amount(u64::MAX), "16777215 TiB");
    }

    fn device(name: &str, ports: u8) -> DeviceInfo {
        DeviceInfo { name: name.into(), ports, ib_transport: true, numa: None }
    }

    #[test]
    fn adapters_and_their_ports() {
        let judge = |known: &[&str], found: &[_]| {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            judge_adapters(&known, found)
        };
        let (finding, usable) = judge(&[], &[]);
        assert!(finding.level == Level::Ok && !usable);
        let (finding, usable) =
            judge(&["a"], &[(device("a", 2), Ok(vec![PortState::Down, PortState::Active]))]);
        assert!(usable && finding.seen == "active: a port 2", "{finding:?}");
        let (finding, usable) = judge(&["a"], &[(device("a", 1), Ok(vec![PortState::Down]))]);
        assert!(!usable && finding.seen.contains("a: no port is active"), "{finding:?}");
        let (finding, _) = judge(&["a"], &[(device("a", 1), Err("permission".into()))]);
        assert!(finding.level == Level::Warning && finding.fix.contains("uverbs"), "{finding:?}");
        let iwarp = DeviceInfo { ib_transport: false, ..device("w", 1) };
        let (finding, usable) = judge(&["w"], &[(iwarp, Ok(vec![PortState::Active]))]);
        assert!(!usable && finding.level == Level::Warning, "{finding:?}");
        assert_eq!(without_library(&[], "x").level, Level::Ok);
        assert!(without_library(&["a".into()], "no library").seen.contains("no library"));
    }

    #[test]
    fn addresses() {
        let own = Some(IpAddr::from([10, 0, 0, 1]));
        assert_eq!(address(None, own, None, true).level, Level::Ok);
        assert_eq!(address(None, None, None, false).level, Level::Ok);
        assert_eq!(address(Some("10.0.0.0/8".into()), None, None, true).level, Level::Ok);
        let reached = address(None, None, Some("10.0.0.1".into()), true);
        assert_eq!(reached, address(None, own, None, true), "both are well, so they do not differ");
        let none = address(Some("".into()), None, None, true);
        assert!(none.level == Level::Problem && none.fix.contains("GASNET_IBV_SOFT_ADDRESS"));
    }

    #[test]
    fn places() {
        assert_eq!(judge_size(1 << 20, 1 << 20, 64 << 20, "x").level, Level::Problem);
        assert_eq!(judge_size(1 << 30, 1 << 20, 64 << 20, "x").level, Level::Warning);
        assert_eq!(judge_size(1 << 30, 1 << 29, 64 << 20, "x").level, Level::Ok);
        assert_eq!(dev_shm(Path::new("/nonexistent")).level, Level::Problem);
        assert_eq!(work_directory(Path::new("/")).level, Level::Ok);
        assert!(work_directory(Path::new("/nonexistent")).seen.contains("No such file"));
        assert!(work_directory(Path::new("/bin/sh")).seen.contains("not a directory"));
        assert_eq!(sent_programs(Ok(1 << 30), "auto").level, Level::Ok);
        assert_eq!(sent_programs(Ok(1 << 20), "auto").level, Level::Warning);
        let full = |stage| sent_programs(Err("no room".into()), stage).level;
        assert_eq!(["auto", "always"].map(full), [Level::Problem; 2]);
        assert_eq!(["never", "here"].map(full), [Level::Warning; 2]);
        assert_eq!(shared_memory().level, Level::Ok);
    }

    #[test]
    fn what_mpi_programs_find_is_said() {
        let none = || Err("none there".to_owned());
        let no_pmix = || Err("none there".to_owned());
        let some = || Ok(PathBuf::from("/x.so"));
        let pmix = || Ok("OpenPMIx 4.2.2, repo rev: x".to_owned());
        let all = mpi_programs(some(), pmix(), "here");
        assert_eq!(
            (all.level, all.seen.as_str()),
            (Level::Ok, "Open MPI by /x.so; PMIx by OpenPMIx 4.2.2")
        );
        assert_eq!(mpi_programs(none(), pmix(), "auto").level, Level::Ok);
        for stage in ["here", "never"] {
            let finding = mpi_programs(none(), no_pmix(), stage);
            assert_eq!(finding.level, Level::Warning);
            assert!(finding.seen.contains("no PMIx (none there)"), "{}", finding.seen);
        }
    }

    #[test]
    fn every_check_of_a_host_is_made_once() {
        let made: Vec<String> =
            all(Path::new("/"), true, "auto").into_iter().map(|finding| finding.check).collect();
        let known: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).skip(4).collect();
        assert_eq!(made, known, "the first four are the launcher's");
    }
}
