//! Where ranks are in their programs: a debugger of the host prints the stack of each, and equal
//! ones are put together.
//!
//! Debuggers take their time and may hang, so a process of our own drives them ([`main`]); the
//! agent only reads what that prints.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use settings::deadlines::watch::{DEBUGGER, STACKS};

use super::unwind::Unwinder;
use crate::agent::{processes, sys};
use crate::binding::ranges;
use crate::event_loop::{Poller, Token};

/// First word of the launcher's command line by which a host looks at stacks; nothing for users.
pub const WORD: &str = "--rank-stacks";
/// Most that one debugger may print.
const MOST_TEXT: usize = 1 << 20;
/// Most that all looks of a host may print.
const MOST_ANSWER: usize = 16 << 20;
/// Debuggers that run at the same time.
const AT_ONCE: usize = 2;
/// Innermost frames of a thread that are kept.
pub(super) const MOST_FRAMES: usize = 64;

/// The stack of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The rank.
    pub rank: u32,
    /// By thread, that of `main` first; functions, the innermost first.
    pub threads: Vec<Vec<String>>,
    /// Why there are none.
    pub problem: Option<String>,
}

/// Ranks whose stacks are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The ranks, ascending.
    pub ranks: Vec<u32>,
    /// See [`Stack::threads`].
    pub threads: Vec<Vec<String>>,
    /// See [`Stack::problem`].
    pub problem: Option<String>,
}

/// Puts ranks with equal stacks together, the largest group first.
#[must_use]
pub fn grouped(stacks: &[Stack]) -> Vec<Group> {
    type Key<'a> = (&'a Option<String>, &'a Vec<Vec<String>>);
    let mut groups = BTreeMap::<Key<'_>, Vec<u32>>::new();
    for stack in stacks {
        groups.entry((&stack.problem, &stack.threads)).or_default().push(stack.rank);
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|((problem, threads), mut ranks)| {
            ranks.sort_unstable();
            Group { ranks, threads: threads.clone(), problem: problem.clone() }
        })
        .collect();
    groups
        .sort_by_key(|group| (std::cmp::Reverse(group.ranks.len()), group.ranks.first().copied()));
    groups
}

/// The groups as lines for people, at most `frames` frames of each thread.
#[must_use]
pub fn lines(groups: &[Group], frames: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for group in groups {
        let (count, ranks) = (group.ranks.len(), ranges(&group.ranks));
        let head =
            if count == 1 { format!("rank {ranks}") } else { format!("{count} ranks: {ranks}") };
        match &group.problem {
            Some(problem) => lines.push(format!("{head}: {problem}")),
            None => lines.push(head),
        }
        let several = group.threads.len() > 1;
        for (number, thread) in (1..).zip(&group.threads) {
            if several {
                lines.push(format!("  thread {number}"));
            }
            let shown = thread.iter().take(frames).enumerate();
            lines.extend(shown.map(|(at, name)| format!("  #{at} {name}")));
            if thread.len() > frames {
                lines.push(format!("  … {} more", thread.len() - frames));
            }
        }
    }
    lines
}

/// Programs that print stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Debugger {
    EuStack,
    Gdb,
    /// None is installed: we follow stacks ourselves.
    Own,
}

impl Debugger {
    fn here() -> Self {
        let all = [("eu-stack", Self::EuStack), ("gdb", Self::Gdb)];
        let found = all.into_iter().find(|(name, _)| which::which(name).is_ok());
        found.map_or(Self::Own, |(_, debugger)| debugger)
    }

    /// None for ourselves.
    fn command(self, pid: i32) -> Option<Command> {
        let pid = pid.to_string();
        let (name, words): (_, Vec<&str>) = match self {
            Self::Own => return None,
            Self::EuStack => ("eu-stack", vec!["-q", "-p", &pid]),
            Self::Gdb => {
                let all = ["-ex", "set pagination off", "-ex", "thread apply all backtrace"];
                ("gdb", [&["-p", pid.as_str(), "-batch", "-nx"][..], &all].concat())
            }
        };
        let mut command = Command::new(name);
        command.args(words);
        // Nobody is asked for symbols of the system over the network.
        command.env("DEBUGINFOD_URLS", "");
        Some(command)
    }
}

/// A name without what stands in angle brackets, which is long and says little; as it is where they do
/// not fit together (operators of C++).
fn without_parameters(name: &str) -> String {
    let (mut depth, mut text) = (0_u32, String::new());
    for letter in name.replace("->", "\u{2192}").chars() {
        match letter {
            '<' => depth += 1,
            '>' if depth == 0 => return name.to_owned(),
            '>' => {
                depth -= 1;
                // A path goes on behind it: something must stand there.
                if depth == 0 && text.ends_with("::") {
                    text.push('_');
                }
            }
            _ if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    if depth == 0 { text } else { name.to_owned() }
}

/// What the start of a Rust program puts around its `main`.
fn is_around_main(name: &str) -> bool {
    [
        "core::ops::function::FnOnce::call_once",
        "std::sys::backtrace::__rust_begin_short_backtrace",
        "__rust_begin_short_backtrace",
        "std::rt::lang_start",
    ]
    .iter()
    .any(|known| name.starts_with(known))
}

/// The function of a line such as `#3  0x00007f… in main (argc=1) at a.c:3`.
fn frame(line: &str) -> Option<String> {
    let rest =
        line.trim_start().strip_prefix('#')?.trim_start_matches(|c: char| c.is_ascii_digit());
    let mut rest = rest.trim_start();
    if rest.starts_with("0x") {
        rest = rest.split_once(' ').map_or("", |(_, behind)| behind).trim_start();
        rest = rest.strip_prefix("in ").unwrap_or(rest).trim_start();
        // eu-stack marks frames that were called by others so.
        rest = rest.strip_prefix("- 1").map_or(rest, str::trim_start);
    }
    let rest = without_parameters(rest);
    let name = rest.split(" (").next().unwrap_or(&rest).trim_end();
    // The number that Rust puts behind its names says nothing to people.
    let name = match name.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            name
        }
        _ => name,
    };
    Some(if name.is_empty() { "??".to_owned() } else { name.to_owned() })
}

/// The threads in what a debugger has printed, that of `main` first.
fn threads(text: &str) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut from_last = false;
    for line in text.lines() {
        // gdb begins with the thread that was made last.
        let gdb = line.starts_with("Thread ");
        from_last |= gdb;
        if gdb || line.starts_with("TID ") {
            all.push(Vec::new());
        } else if let Some(frame) = frame(line) {
            if all.is_empty() {
                all.push(Vec::new());
            }
            if let Some(thread) = all.last_mut().filter(|thread| thread.len() < MOST_FRAMES) {
                thread.push(frame);
            }
        }
    }
    for thread in &mut all {
        let own = thread.iter().position(|name| is_around_main(name));
        thread.truncate(own.filter(|own| *own > 0).unwrap_or(thread.len()));
    }
    all.retain(|thread| !thread.is_empty());
    if from_last {
        all.reverse();
    }
    all
}

/// Where the kernel has a process, for hosts without a debugger.
fn kernel_place(pid: i32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let place = read("wchan");
    match place.trim() {
        "" | "0" => "it runs".to_owned(),
        place => format!("it waits in {place} of the kernel"),
    }
}

fn look(rank: u32, pid: i32, debugger: Debugger, own: &mut Unwinder) -> Stack {
    let problem = |text: String| Stack { rank, threads: Vec::new(), problem: Some(text) };
    let seen = match debugger.command(pid) {
        Some(command) => run(command),
        None => match own.print(pid, Instant::now() + DEBUGGER.limit) {
            Ok(text) => Ok((text, String::new())),
            Err(error) => {
                let place = kernel_place(pid);
                return problem(format!(
                    "{place}; {error}; gdb, or eu-stack of elfutils, may see more"
                ));
            }
        },
    };
    match seen {
        Ok((text, _)) if !threads(&text).is_empty() => {
            Stack { rank, threads: threads(&text), problem: None }
        }
        Ok((_, said)) => {
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            problem(format!("{debugger:?} saw no stack: {last}"))
        }
        Err(error) => problem(format!("{debugger:?}: {error}")),
    }
}

/// What a debugger prints, to both streams.
fn run(mut command: Command) -> std::io::Result<(String, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::die_with_us(&mut command);
    let mut child = command.spawn()?;
    let until = Instant::now() + DEBUGGER.limit;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let all = std::thread::scope(|scope| {
        let err = scope.spawn(|| err.map(|pipe| processes::read_all(pipe, until, MOST_TEXT)));
        let out = out.map(|pipe| processes::read_all(pipe, until, MOST_TEXT));
        (out, err.join().ok().flatten())
    });
    let _ = child.kill();
    let _ = child.wait();
    let text = |bytes: Option<std::io::Result<Vec<u8>>>| {
        bytes
            .transpose()
            .map(|bytes| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
    };
    Ok((text(all.0)?, text(all.1)?))
}

/// What [`WORD`] does: looks at the ranks that `words` name (`RANK:PID`) and prints a JSON array of
/// [`Stack`]s. Its exit code.
#[must_use]
pub fn main(words: &[std::ffi::OsString]) -> u8 {
    let ranks: Option<Vec<(u32, i32)>> = words
        .iter()
        .map(|word| {
            let (rank, pid) = word.to_str()?.split_once(':')?;
            Some((rank.parse().ok()?, pid.parse().ok()?))
        })
        .collect();
    let Some(ranks) = ranks else { return 2 };
    let debugger = Debugger::here();
    let each = ranks.len().div_ceil(AT_ONCE).max(1);
    let stacks: Vec<Stack> = std::thread::scope(|scope| {
        let parts: Vec<_> = ranks
            .chunks(each)
            .map(|part| {
                scope.spawn(move || {
                    let mut own = Unwinder::default();
                    let look = |(rank, pid): &(u32, i32)| look(*rank, *pid, debugger, &mut own);
                    part.iter().map(look).collect::<Vec<_>>()
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    });
    let text = serde_json::to_vec(&stacks).unwrap_or_default();
    u8::from(std::io::stdout().write_all(&text).is_err())
}

/// A look that is under way.
struct Running {
    number: u32,
    ranks: Vec<u32>,
    pid: u32,
    pipe: OwnedFd,
    text: Vec<u8>,
    until: u64,
}

/// The looks of one host. One is under way; two debuggers cannot look at the same rank.
#[derive(Default)]
pub(crate) struct Looks {
    running: Option<Running>,
    waiting: VecDeque<(u32, Vec<(u32, i32)>)>,
    /// Numbers and outcomes of those that are over, until they are taken.
    over: Vec<(u32, Vec<Stack>)>,
}

impl Looks {
    /// Begins a look for question `number`, at once or when those before it are over; at once its
    /// outcome if there is nothing to look at.
    pub(crate) fn begin(
        &mut self,
        poller: &Poller,
        number: u32,
        ranks: &[(u32, i32)],
    ) -> Option<Vec<Stack>> {
        if ranks.is_empty() {
            return Some(Vec::new());
        }
        self.waiting.push_back((number, ranks.to_vec()));
        self.go_on(poller);
        None
    }

    /// Begins the next look if none is under way.
    fn go_on(&mut self, poller: &Poller) {
        while self.running.is_none()
            && let Some((number, ranks)) = self.waiting.pop_front()
        {
            let numbers = ranks.iter().map(|(rank, _)| *rank).collect();
            match start(poller, number, &ranks) {
                Ok((pid, pipe)) => {
                    let until = poller.now() + STACKS.ms();
                    let text = Vec::new();
                    self.running = Some(Running { number, ranks: numbers, pid, pipe, text, until });
                }
                Err(error) => {
                    let stacks = failed(&numbers, &format!("cannot look: {error}"));
                    self.over.push((number, stacks));
                }
            }
        }
    }

    /// The pipe of the look that is under way can be read.
    pub(crate) fn readable(&mut self) {
        let Some(running) = &mut self.running else { return };
        let mut bytes = [0; 64 * 1024];
        match nix::unistd::read(&running.pipe, &mut bytes) {
            Ok(count) if count > 0 && running.text.len() < MOST_ANSWER => {
                running.text.extend_from_slice(&bytes[..count]);
            }
            Err(nix::Error::EINTR | nix::Error::EAGAIN) => {}
            Ok(_) | Err(_) => {
                let stacks = serde_json::from_slice(&running.text);
                let stacks =
                    stacks.unwrap_or_else(|_| failed(&running.ranks, "the look broke off"));
                self.over.push((running.number, stacks));
                self.running = None;
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let ready = (!self.over.is_empty()).then_some(0);
        ready.or_else(|| self.running.as_ref().map(|running| running.until))
    }

    /// Ends a look that takes too long, and begins the next. The numbers and outcomes of those that
    /// are over.
    pub(crate) fn step(&mut self, poller: &Poller) -> Vec<(u32, Vec<Stack>)> {
        if let Some(late) = self.running.take_if(|running| poller.now() >= running.until) {
            end(poller, &late);
            self.over.push((late.number, failed(&late.ranks, "the look took too long")));
        }
        self.go_on(poller);
        std::mem::take(&mut self.over)
    }

    /// Ends all looks.
    pub(crate) fn stop(&mut self, poller: &Poller) {
        if let Some(running) = self.running.take() {
            end(poller, &running);
        }
        self.waiting.clear();
    }
}

/// Starts a process that looks at these ranks; it, and what it prints.
fn start(poller: &Poller, number: u32, ranks: &[(u32, i32)]) -> std::io::Result<(u32, OwnedFd)> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORD).args(ranks.iter().map(|(rank, pid)| format!("{rank}:{pid}")));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    sys::die_with_us(&mut command);
    let mut child = command.spawn()?;
    let pipe = child.stdout.take().map(OwnedFd::from);
    let pipe = pipe.ok_or_else(|| std::io::Error::other("no pipe"))?;
    poller.add_read(&pipe, Token::Stacks(number))?;
    Ok((child.id(), pipe))
}

fn end(poller: &Poller, running: &Running) {
    poller.remove(running.pipe.as_fd());
    // Collected with the other children.
    let _ = sys::kill(i32::try_from(running.pid).unwrap_or(i32::MAX), libc::SIGKILL);
}

fn failed(ranks: &[u32], why: &str) -> Vec<Stack> {
    let one =
        |rank: &u32| Stack { rank: *rank, threads: Vec::new(), problem: Some(why.to_owned()) };
    ranks.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_in_what_debuggers_print() {
        let gdb = "[New LWP 7]\n\nThread 2 (Thread 0x7f (LWP 7) \"a\"):\n#0  0x00007f12 in __poll (fds=0x1) at ../p.c:29\n\
                   #1  a::b<c::{impl#2}, (d,)>::h0123456789abcdef () at x.rs:1\n#2  core::ops::function::FnOnce::call_once () at y.rs:1\n\nThread 1 (Thread 0x7f (LWP 6) \"a\"):\n#0  spin () at a.c:3\n\
                   #1  0x0000000000401136 in main (argc=1) at a.c:9\n";
        assert_eq!(threads(gdb), [vec!["spin", "main"], vec!["__poll", "a::b"]]);
        let eu = "PID 6 - process\nTID 6:\n#0  0x00007f12 nanosleep\n#1  0x00007f13 - 1 main\nTID 7:\n#0  0x00007f12\n";
        assert_eq!(threads(eu), [vec!["nanosleep", "main"], vec!["??"]]);
        assert!(threads("ptrace: Operation not permitted.").is_empty());
    }

    #[test]
    fn equal_stacks_are_put_together() {
        let stack = |rank, name: &str| {
            let threads = vec![vec![name.to_owned()]];
            Stack { rank, threads, problem: None }
        };
        let groups = grouped(&[stack(3, "a"), stack(0, "b"), stack(1, "a"), stack(2, "c")]);
        let ranks: Vec<_> = groups.iter().map(|group| group.ranks.clone()).collect();
        assert_eq!(ranks, [vec![1, 3], vec![0], vec![2]]);
    }

    #[test]
    fn ranks_and_frames_are_shortened() {
        assert_eq!(ranges(&[0_u32, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges::<u32>(&[]), "");
        let threads = vec![vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]];
        let group = Group { ranks: vec![1, 2], threads, problem: None };
        assert_eq!(lines(&[group], 2), ["2 ranks: 1-2", "  #0 a", "  #1 b", "  … 1 more"]);
    }

    /// A real debugger at a real process.
    #[test]
    fn a_sleeping_process_is_seen_where_it_sleeps() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let seen = look(4, pid, Debugger::here(), &mut Unwinder::default());
        child.kill().unwrap();
        child.wait().unwrap();
        let frames = seen.threads.concat();
        assert!(frames.iter().any(|name| name.contains("nanosleep")), "{seen:?}");
    }
}
