//! Lets programs take turns on one machine: one runs, the others are stopped. A machine that changes
//! its speed within seconds changes it for all of them, and no program starts anew for each turn.
//!
//! Usage: `bench_turns ROUNDS MILLISECONDS SLICES COMMAND …`
//!
//! Each COMMAND is run by bash and prints `KEY VALUE` lines, again and again. In a round each of them
//! runs for so many milliseconds in all, in so many slices, or in more until there are two lines of
//! each key. The median of a key's lines is a sample. The first line of a round is left out: it began
//! before. More than one slice is for values that do not count the time in which a program is
//! stopped, as the median of many short times.
//!
//! A command that begins with `once` runs from its begin to its end in each round, and all its lines
//! count. One that begins with `column KEY NUMBER FACTOR` prints lines of columns with commas
//! between; the value is the column of that number (from 1) times the factor, and lines without a
//! number there are left out. Which command is first changes from round to round. The first round
//! warms up; the samples of the others are printed as `KEY VALUE` lines.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bench::timing::median;
use nix::sys::signal::Signal;
use testkit::process::{Process, send};
use testkit::report::show;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Until a command has printed its first line, or all lines of a turn.
const PATIENCE: Duration = Duration::from_secs(90);
/// Until the processes of a command are gone after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// A command, while it runs.
struct Program<'a> {
    command: &'a str,
    child: Child,
    values: Receiver<Result<(String, f64), String>>,
    /// Its processes, parents first, once it has told a value.
    processes: Vec<i32>,
    /// What it said on its standard error.
    said: Arc<Mutex<String>>,
}

/// How a value is read from a line.
enum Lines {
    KeyValue,
    Column { key: String, number: usize, factor: f64 },
}

/// The values of each key.
type Values = BTreeMap<String, Vec<f64>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, turn, slices, commands @ ..] = &args[..] else {
        return Err("usage: bench_turns ROUNDS MILLISECONDS SLICES COMMAND …".into());
    };
    let (rounds, slices): (usize, u32) = (rounds.parse()?, slices.parse()?);
    let turn = Duration::from_millis(turn.parse()?);
    let (mut running, mut once) = (Vec::new(), Vec::new());
    for command in commands {
        match command.strip_prefix("once ") {
            Some(command) => once.push(command),
            None => running.push(Program::start_and_stop(command)?),
        }
    }
    for round in 0..=rounds {
        let mut samples = Values::new();
        let mut add = |values: Values| {
            for (key, values) in values {
                samples.entry(key).or_default().push(median(&values));
            }
        };
        if !running.is_empty() {
            turns(&running, turn, slices)?.into_iter().for_each(&mut add);
            running.rotate_left(1);
        }
        for command in &once {
            add(Program::start(command)?.whole_run()?);
        }
        if round > 0 {
            let line = |(key, values): (&String, &Vec<f64>)| format!("{key} {}\n", values[0]);
            show(&samples.iter().map(line).collect::<String>());
        }
    }
    Ok(())
}

/// A round of the programs that are started: slice after slice of each. Their values.
fn turns(programs: &[Program<'_>], turn: Duration, slices: u32) -> Result<Vec<Values>> {
    let slice = turn.checked_div(slices).ok_or("no slices")?;
    let begin = Instant::now();
    let mut all = vec![Values::new(); programs.len()];
    for program in programs {
        program.forget();
    }
    let mut number = 0;
    while number < slices || !all.iter().all(enough) {
        for (program, values) in programs.iter().zip(&mut all) {
            program.signal(Signal::SIGCONT);
            std::thread::sleep(slice);
            program.signal(Signal::SIGSTOP);
            program.collect(values)?;
        }
        number += 1;
        if let Some(late) = all.iter().position(|values| !enough(values))
            && begin.elapsed() > PATIENCE
        {
            return Err(programs[late].failed(&format!("told too little in {PATIENCE:?}")));
        }
    }
    for values in all.iter_mut().flat_map(BTreeMap::values_mut) {
        values.remove(0);
    }
    Ok(all)
}

/// Whether there are two of each.
fn enough(values: &Values) -> bool {
    !values.is_empty() && values.values().all(|values| values.len() >= 2)
}

impl Lines {
    /// What lines look like, and the command.
    fn of(command: &str) -> Result<(Self, &str)> {
        let Some(rest) = command.strip_prefix("column ") else {
            return Ok((Self::KeyValue, command));
        };
        let mut words = rest.splitn(4, ' ');
        let mut next = || words.next().ok_or_else(|| format!("{command:?} lacks a word"));
        let key = next()?.to_owned();
        let (number, factor) = (next()?.parse()?, next()?.parse()?);
        Ok((Self::Column { key, number, factor }, next()?))
    }

    /// Key and value of a line; `None`: the line has none.
    fn read(&self, line: &str) -> Option<Result<(String, f64), String>> {
        match self {
            Self::KeyValue => {
                let words = line.split_once(' ');
                let value = words.and_then(|(key, value)| {
                    Some((key.to_owned(), value.trim().parse::<f64>().ok()?))
                });
                Some(value.ok_or_else(|| format!("printed {line:?}, not KEY VALUE")))
            }
            Self::Column { key, number, factor } => {
                let column = line.split(',').nth(number.checked_sub(1)?)?;
                let value: f64 = column.trim().parse().ok()?;
                (value > 0.0).then(|| Ok((key.clone(), value * factor)))
            }
        }
    }
}

impl<'a> Program<'a> {
    fn start(command: &'a str) -> Result<Self> {
        let (reader, command) = Lines::of(command)?;
        let mut bash = Command::new("bash");
        let mut child =
            bash.args(["-c", command]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or("no pipe")?;
        let mut err = BufReader::new(child.stderr.take().ok_or("no pipe")?);
        let said = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut line = String::new();
            while err.read_line(&mut line).is_ok_and(|read| read > 0) {
                into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
                line.clear();
            }
        });
        let (teller, values) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(value) = reader.read(&line)
                    && teller.send(value).is_err()
                {
                    return;
                }
            }
        });
        Ok(Self { command, child, values, processes: Vec::new(), said })
    }

    /// Starts a command and stops it when it has told a value.
    fn start_and_stop(command: &'a str) -> Result<Self> {
        let mut program = Self::start(command)?;
        let value = program.next(Instant::now() + PATIENCE)?;
        value.ok_or_else(|| program.failed("ended without a value"))?;
        let root = i32::try_from(program.child.id())?;
        let below = Process::descendants(root).into_iter().map(|process| process.pid);
        program.processes = std::iter::once(root).chain(below).collect();
        program.signal(Signal::SIGSTOP);
        Ok(program)
    }

    /// An error of this command.
    fn failed(&self, what: &str) -> Box<dyn std::error::Error> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{:?} {what}; it said: {:?}", self.command, said.trim_end()).into()
    }

    /// The next key and value, which have to come before `end`; `None`: it has ended.
    fn next(&self, end: Instant) -> Result<Option<(String, f64)>> {
        match self.values.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(value) => Ok(Some(value.map_err(|error| self.failed(&error))?)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                Err(self.failed(&format!("told too little in {PATIENCE:?}")))
            }
        }
    }

    /// Sends a signal to all its processes; stops parents first, as a parent that is stopped does
    /// not see that its children are.
    fn signal(&self, signal: Signal) {
        let send = |pid: &i32| {
            let _gone = send(*pid, signal);
        };
        if signal == Signal::SIGCONT {
            self.processes.iter().rev().for_each(send);
        } else {
            self.processes.iter().for_each(send);
        }
    }

    /// Forgets the values that it has told.
    fn forget(&self) {
        while self.values.try_recv().is_ok() {}
    }

    /// Takes the values that it has told; it must not have ended.
    fn collect(&self, into: &mut Values) -> Result<()> {
        loop {
            match self.values.try_recv() {
                Ok(value) => {
                    let (key, value) = value.map_err(|error| self.failed(&error))?;
                    into.entry(key).or_default().push(value);
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(self.failed("ended in its turn")),
            }
        }
    }

    /// All its values, when it has ended.
    fn whole_run(mut self) -> Result<Values> {
        let (end, mut values) = (Instant::now() + PATIENCE, Values::new());
        while let Some((key, value)) = self.next(end)? {
            values.entry(key).or_default().push(value);
        }
        let status = self.child.wait()?;
        if status.success() && !values.is_empty() {
            return Ok(values);
        }
        Err(self.failed(&format!("ended with {status} and {} keys", values.len())))
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let (root, begin) = (self.child.id().cast_signed(), Instant::now());
        let processes = Process::descendants(root);
        for pid in processes.iter().map(|process| process.pid).rev().chain([root]) {
            let _gone = send(pid, Signal::SIGCONT);
            let _gone = send(pid, Signal::SIGTERM);
        }
        let there = |process: &Process| {
            Process::read(process.pid)
                .is_some_and(|now| !now.is_zombie() && now.command == process.command)
        };
        while begin.elapsed() < GRACE && processes.iter().any(there) {
            std::thread::sleep(Duration::from_millis(20));
        }
        for process in processes.iter().filter(|process| there(process)) {
            let _gone = send(process.pid, Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
