//! Faults on order: what a script says happens to one opened fabric, so that tests see what a
//! network does on bad days.
//!
//! A script is a list of words, and sections for some members of a job:
//!
//! ```text
//! seed=7 drop-ud=10% dup-ud=5% delay-ud=2ms; 1,3: port-down=soft0:1@100ms+50ms register-fail=3rd
//! ```
//!
//! | word | what happens |
//! |---|---|
//! | `seed=N` | start of the random numbers; the same seed, the same faults |
//! | `drop-ud=P%` | of the datagrams that are sent, so many are lost |
//! | `dup-ud=P%` | so many arrive twice |
//! | `delay-ud=T` or `T@P%` | all, or so many, arrive later by T, so that others overtake them |
//! | `delay-write=T` or `T@P%` | the data of all, or so many, remote writes is in memory later by T, unless a message, read or atomic comes through the same device |
//! | `port-down=DEVICE:PORT@T+D` | the port is down from T after opening, for D (without `+D` for ever) |
//! | `kill-qp=Nth@T` | the Nth reliable queue pair that becomes ready to send fails T after that |
//! | `register-fail=Nth` or `Nth+` | the Nth registration is refused, or all from it on |
//! | `register-max=N` | of more than N bytes (`K`, `M` behind it) no memory is registered, as under a limit of pinned memory |
//! | `partition=WHOM@T+D` | from T, for D, nothing goes to or comes from `all`, an address, or a prefix `a.b.c.d/n` |
//! | `atomics=none` or `device` | the devices have no atomics, or such that are atomic only to each other |
//! | `death=T` | at T everything is closed as if the process had died; the device reports that it is gone |
//!
//! T and D are a number with `us`, `ms` or `s`. A section that begins with names and a colon counts
//! only for a fabric of one of these names (the conduit gives its rank); a section without counts
//! for all.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::AtomicCap;

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fault script, column {column}: {problem}")]
pub struct ScriptError {
    /// Where the word or value begins, from 1.
    pub column: usize,
    /// What is wrong, with the text seen.
    pub problem: String,
}

/// From when and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    from: Duration,
    length: Option<Duration>,
}

impl Window {
    fn has(self, age: Duration) -> bool {
        age >= self.from && self.length.is_none_or(|length| age - self.from < length)
    }
}

/// Some of the datagrams: this many of a million.
type Share = u32;
const ALL: Share = 1_000_000;

/// A parsed script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultScript {
    seed: u64,
    drop_ud: Share,
    dup_ud: Share,
    delay_ud: Option<(Duration, Share)>,
    delay_write: Option<(Duration, Share)>,
    port_down: Vec<(String, u8, Window)>,
    kill_qp: Vec<(u32, Duration)>,
    register_fail: Vec<(u32, bool)>,
    register_max: Option<u64>,
    /// Whom it cuts off; `None`: everybody.
    partition: Vec<(Option<IpNet>, Window)>,
    /// At most; `None`: what they have.
    atomics: Option<AtomicCap>,
    death: Option<Duration>,
}

impl FaultScript {
    /// Reads a script for a fabric without a name.
    ///
    /// # Errors
    /// The first thing that is not understood, anywhere in the text.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        Self::parse_for(text, "")
    }

    /// Reads a script for the fabric called `name`. Sections of others are checked and left out.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_for(text: &str, name: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        let mut start = 0;
        for section in text.split(';') {
            let (mine, words, at) = select(section, name, start)?;
            let mut others = Self::default();
            let into = if mine { &mut script } else { &mut others };
            let mut rest = words;
            while let Some(begin) = rest.find(|c: char| !c.is_whitespace()) {
                let tail = rest.get(begin..).unwrap_or_default();
                let end = tail.find(char::is_whitespace).unwrap_or(tail.len());
                let (word, after) = tail.split_at(end);
                into.word(word, at + (words.len() - tail.len()))?;
                rest = after;
            }
            start += section.len() + 1;
        }
        Ok(script)
    }

    fn word(&mut self, word: &str, at: usize) -> Result<(), ScriptError> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let value = Text { text: value, at: at + key.len() + 1 };
        match key {
            "seed" => self.seed = value.number("a number")?,
            "drop-ud" => self.drop_ud = value.share()?,
            "dup-ud" => self.dup_ud = value.share()?,
            "delay-ud" => self.delay_ud = Some(value.delay()?),
            "delay-write" => self.delay_write = Some(value.delay()?),
            "port-down" => {
                let (place, when) = value.split('@');
                let (device, port) = place.split(':');
                let needs = "DEVICE:PORT@TIME, as soft0:1@100ms+50ms";
                let port = port.ok_or_else(|| place.problem(needs))?.number("a port")?;
                let when = when.ok_or_else(|| value.problem(needs))?.window()?;
                if device.text.is_empty() {
                    return Err(value.problem(needs));
                }
                self.port_down.push((device.text.to_owned(), port, when));
            }
            "kill-qp" => {
                let (which, when) = value.split('@');
                let when = when.map_or(Ok(Duration::ZERO), Text::duration)?;
                self.kill_qp.push((which.ordinal()?, when));
            }
            "register-fail" => {
                let onward = value.text.ends_with('+');
                let text = value.text.trim_end_matches('+');
                self.register_fail.push((Text { text, ..value }.ordinal()?, onward));
            }
            "register-max" => self.register_max = Some(value.bytes()?),
            "partition" => {
                let (whom, when) = value.split('@');
                let needs = "WHOM@TIME, as all@1s or 10.0.0.0/8@1s+200ms";
                let when = when.ok_or_else(|| value.problem(needs))?.window()?;
                self.partition.push((whom.whom()?, when));
            }
            "atomics" => {
                self.atomics = Some(match value.text {
                    "none" => AtomicCap::None,
                    "device" => AtomicCap::Device,
                    _ => return Err(value.problem("none or device")),
                });
            }
            "death" => self.death = Some(value.duration()?),
            _ => {
                let known = "seed, drop-ud, dup-ud, delay-ud, delay-write, port-down, kill-qp, \
                             register-fail, register-max, partition, atomics, death";
                return Err(Text { text: key, at }.problem(&format!("one of {known}")));
            }
        }
        Ok(())
    }
}

/// Whether a section is for `name`, its words, and where they begin.
fn select<'a>(
    section: &'a str,
    name: &str,
    at: usize,
) -> Result<(bool, &'a str, usize), ScriptError> {
    // A colon inside a word (`soft0:1`) stands behind an equals sign.
    let first = section.char_indices().find(|(_, c)| matches!(c, ':' | '='));
    let Some((end, ':')) = first else { return Ok((true, section, at)) };
    let (names, words) = section.split_at(end);
    let mut mine = false;
    for one in names.split(',') {
        let trimmed = one.trim();
        if trimmed.is_empty() || trimmed.contains(char::is_whitespace) {
            return Err(Text { text: names, at }.problem("names separated by commas, then a colon"));
        }
        mine |= trimmed == name;
    }
    Ok((mine, words.get(1..).unwrap_or_default(), at + end + 1))
}

/// A part of the script and where it stands.
#[derive(Clone, Copy)]
struct Text<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Text<'a> {
    fn problem(self, needs: &str) -> ScriptError {
        ScriptError { column: self.at + 1, problem: format!("{:?} is not {needs}", self.text) }
    }

    fn split(self, mark: char) -> (Self, Option<Self>) {
        match self.text.split_once(mark) {
            Some((text, rest)) => {
                let at = self.at + text.len() + mark.len_utf8();
                (Text { text, at: self.at }, Some(Text { text: rest, at }))
            }
            None => (self, None),
        }
    }

    fn number<T: std::str::FromStr>(self, what: &str) -> Result<T, ScriptError> {
        let digits = !self.text.is_empty() && self.text.bytes().all(|byte| byte.is_ascii_digit());
        self.text.parse().ok().filter(|_| digits).ok_or_else(|| self.problem(what))
    }

    fn bytes(self) -> Result<u64, ScriptError> {
        let digits = self.text.trim_end_matches(['K', 'M']);
        let unit = match self.text.get(digits.len()..) {
            Some("") => Some(1),
            Some("K") => Some(1 << 10),
            Some("M") => Some(1 << 20),
            _ => None,
        };
        let needs = "a number of bytes, as 4096, 64K or 1M";
        let number: u64 = Text { text: digits, ..self }.number(needs)?;
        unit.and_then(|unit| number.checked_mul(unit)).ok_or_else(|| self.problem(needs))
    }

    /// At most four digits after the point, so that nothing is lost.
    fn share(self) -> Result<Share, ScriptError> {
        let needs = "a share from 0% to 100%, as 2.5%";
        let percent = self.text.strip_suffix('%').ok_or_else(|| self.problem(needs))?;
        let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 4 {
            return Err(self.problem(needs));
        }
        let scaled: Option<u32> = format!("{whole}{part:0<4}").parse().ok();
        scaled.filter(|&share| share <= ALL).ok_or_else(|| self.problem(needs))
    }

    fn duration(self) -> Result<Duration, ScriptError> {
        let needs = "a time with its unit, as 250us, 10ms or 2s";
        let end = self.text.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.text.len());
        let (number, unit) = self.text.split_at(end);
        let number: u32 = number.parse().map_err(|_| self.problem(needs))?;
        match unit {
            "us" => Ok(Duration::from_micros(number.into())),
            "ms" => Ok(Duration::from_millis(number.into())),
            "s" => Ok(Duration::from_secs(number.into())),
            _ => Err(self.problem(needs)),
        }
    }

    fn delay(self) -> Result<(Duration, Share), ScriptError> {
        let (time, share) = self.split('@');
        let share = share.map_or(Ok(ALL), Text::share)?;
        Ok((time.duration()?, share))
    }

    fn window(self) -> Result<Window, ScriptError> {
        let (from, length) = self.split('+');
        Ok(Window { from: from.duration()?, length: length.map(Text::duration).transpose()? })
    }

    fn ordinal(self) -> Result<u32, ScriptError> {
        let digits = self.text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let suffix = self.text.get(digits.len()..).unwrap_or_default();
        let known = matches!(suffix, "" | "st" | "nd" | "rd" | "th");
        let number = Text { text: digits, ..self }.number("").ok();
        let right = number.filter(|&number: &u32| known && number > 0);
        right.ok_or_else(|| self.problem("a position, as 1st or 3rd"))
    }

    fn whom(self) -> Result<Option<IpNet>, ScriptError> {
        if self.text == "all" {
            return Ok(None);
        }
        let address = || self.text.parse::<IpAddr>().map(IpNet::from);
        let network = self.text.parse().or_else(|_| address()).map(Some);
        network.map_err(|_| self.problem("all, an address, or a prefix as 10.0.0.0/8"))
    }
}

/// What becomes of a datagram that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramFault {
    /// How often it is sent: 0, 1 or 2.
    pub copies: u8,
    /// How much later.
    pub delay: Duration,
}

impl DatagramFault {
    /// As without a script.
    pub const PLAIN: Self = Self { copies: 1, delay: Duration::ZERO };
}

/// A script at work on one fabric. Ages are counted from its opening.
#[derive(Debug)]
pub struct FaultPlan {
    script: FaultScript,
    opened: Instant,
    random: AtomicU64,
    registrations: AtomicU32,
    ready: AtomicU32,
}

impl FaultPlan {
    /// Begins.
    pub fn new(script: FaultScript) -> Self {
        Self {
            random: AtomicU64::new(script.seed),
            script,
            opened: Instant::now(),
            registrations: AtomicU32::new(0),
            ready: AtomicU32::new(0),
        }
    }

    /// Since the opening.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.opened)
    }

    /// Less than a million, the next of the sequence (splitmix64).
    fn roll(&self) -> Share {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.random.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ mixed >> 31) % u64::from(ALL)).unwrap_or(0)
    }

    /// The fate of the next datagram that is sent.
    pub fn datagram(&self) -> DatagramFault {
        let script = &self.script;
        if script.drop_ud == 0 && script.dup_ud == 0 && script.delay_ud.is_none() {
            return DatagramFault::PLAIN;
        }
        // Always three numbers, so that one share does not change what another one hits.
        let (lost, twice, late) = (self.roll(), self.roll(), self.roll());
        let copies = match () {
            () if lost < script.drop_ud => 0,
            () if twice < script.dup_ud => 2,
            () => 1,
        };
        let delay = script.delay_ud.filter(|&(_, share)| late < share);
        DatagramFault { copies, delay: delay.map_or(Duration::ZERO, |(delay, _)| delay) }
    }

    /// Whether the data of any write is late.
    pub fn delays_writes(&self) -> bool {
        self.script.delay_write.is_some()
    }

    /// How much later the data of the next remote write is in memory; `None`: at once.
    pub fn write_delay(&self) -> Option<Duration> {
        let (delay, share) = self.script.delay_write?;
        (self.roll() < share).then_some(delay)
    }

    /// Whether the next registration, of `len` bytes, is refused.
    pub fn refuse_registration(&self, len: u64) -> bool {
        let number = self.registrations.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let hit = |&(which, onward): &(u32, bool)| number == which || onward && number > which;
        self.script.register_fail.iter().any(hit)
            || self.script.register_max.is_some_and(|most| len > most)
    }

    /// What the atomics of the devices are atomic to.
    pub fn atomics(&self) -> AtomicCap {
        self.script.atomics.unwrap_or(AtomicCap::Global)
    }

    /// How long after now the reliable queue pair that just became ready to send fails, if it does.
    pub fn queue_pair_ready(&self) -> Option<Duration> {
        let number = self.ready.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        self.script.kill_qp.iter().find(|(which, _)| *which == number).map(|&(_, after)| after)
    }

    /// Whether a port is down at `age`.
    pub fn port_is_down(&self, device: &str, port: u8, age: Duration) -> bool {
        let hit = |(name, number, window): &(String, u8, Window)| {
            name == device && *number == port && window.has(age)
        };
        self.script.port_down.iter().any(hit)
    }

    /// Whether nothing goes to or comes from `address` at `age`.
    pub fn is_unreachable(&self, address: IpAddr, age: Duration) -> bool {
        let reaches = |whom: &Option<IpNet>| whom.is_none_or(|whom| whom.contains(&address));
        self.script.partition.iter().any(|(whom, window)| window.has(age) && reaches(whom))
    }

    /// Whether anybody is cut off at `age`.
    pub fn is_any_unreachable(&self, age: Duration) -> bool {
        self.script.partition.iter().any(|(_, window)| window.has(age))
    }

    /// Whether the fabric is dead at `age`.
    pub fn is_dead(&self, age: Duration) -> bool {
        self.script.death.is_some_and(|death| age >= death)
    }

    /// Whether the clock must be read for [`Self::port_is_down`], [`Self::is_unreachable`] and
    /// [`Self::is_dead`].
    pub fn need_clock(&self) -> bool {
        let script = &self.script;
        !script.port_down.is_empty() || !script.partition.is_empty() || script.death.is_some()
    }
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::new(FaultScript::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn every_word_is_understood() {
        let text = "seed=7 drop-ud=10% dup-ud=2.5% delay-ud=2ms@50% port-down=soft0:1@100ms+50ms \
            delay-write=3ms \
            kill-qp=2nd@10ms register-fail=3rd partition=10.0.0.0/8@1s+1s atomics=device \
            death=9s";
        let script = FaultScript::parse(text).unwrap();
        assert_eq!((script.seed, script.drop_ud, script.dup_ud), (7, 100_000, 25_000));
        let faults = FaultPlan::new(script);
        let down = |age| faults.port_is_down("soft0", 1, age * MS);
        assert_eq!([99, 100, 149, 150].map(down), [false, true, true, false]);
        assert!(!faults.port_is_down("soft1", 1, 120 * MS));
        assert!(!faults.port_is_down("soft0", 2, 120 * MS));
        assert_eq!([(); 4].map(|()| faults.refuse_registration(1)), [false, false, true, false]);
        let limited = FaultPlan::new(FaultScript::parse("register-max=4K").unwrap());
        assert!(limited.refuse_registration(4097) && !limited.refuse_registration(4096));
        assert_eq!([(); 3].map(|()| faults.queue_pair_ready()), [None, Some(10 * MS), None]);
        let cut = |ip: &str, age| faults.is_unreachable(ip.parse().unwrap(), age * MS);
        assert!(cut("10.9.9.9", 1000) && !cut("11.0.0.1", 1000) && !cut("10.9.9.9", 2000));
        assert!(!cut("::1", 1500));
        assert_eq!(faults.write_delay(), Some(3 * MS));
        assert!(!FaultPlan::default().delays_writes());
        assert_eq!(faults.atomics(), AtomicCap::Device);
        assert_eq!(FaultPlan::default().atomics(), AtomicCap::Global);
        assert!(faults.is_dead(9000 * MS) && !faults.is_dead(8999 * MS));
        assert!(faults.need_clock() && !FaultPlan::default().need_clock());
    }

    #[test]
    fn the_column_of_what_is_wrong_is_named() {
        for (text, column, part) in [
            ("drop-ud=10", 9, "\"10\""),
            ("seed=1 dup-ud=101%", 15, "101%"),
            ("seed=1  frob=2", 9, "\"frob\""),
            ("seed=x", 6, "\"x\""),
            ("seed=", 6, "\"\""),
            ("delay-ud=2", 10, "unit"),
            ("delay-ud=2ms@5", 14, "\"5\""),
            ("delay-write=2ms@x", 17, "\"x\""),
            ("port-down=soft0@1ms", 11, "DEVICE:PORT"),
            ("port-down=soft0:x@1ms", 17, "\"x\""),
            ("port-down=soft0:1", 11, "DEVICE:PORT"),
            ("kill-qp=0th", 9, "position"),
            ("register-fail=3zz", 15, "3zz"),
            ("register-max=3G", 14, "3G"),
            ("partition=me@1s", 11, "\"me\""),
            ("partition=1.2.3.4/33@1s", 11, "1.2.3.4/33"),
            ("partition=all@1s+x", 18, "\"x\""),
            ("atomics=some", 9, "\"some\" is not none or device"),
            ("death", 7, "unit"),
            ("1,: seed=2", 1, "names"),
            ("1: seed=2; 2: seed=q", 20, "\"q\""),
        ] {
            let problem = FaultScript::parse(text).unwrap_err();
            assert_eq!(problem.column, column, "{text}: {problem}");
            assert!(problem.to_string().contains(part), "{text}: {problem}");
        }
    }

    #[test]
    fn sections_are_for_their_names() {
        let text = "seed=1 drop-ud=1%; 1,3: death=1s ; 2: seed=9 port-down=soft0:1@1s";
        let [none, one, two, three] =
            ["", "1", "2", "3"].map(|name| FaultScript::parse_for(text, name).unwrap());
        assert_eq!((none.seed, none.death, none.drop_ud), (1, None, 10_000));
        assert_eq!(one.death, Some(1000 * MS));
        assert_eq!(three, one);
        assert_eq!((two.seed, two.death, two.port_down.len()), (9, None, 1));
    }

    #[test]
    fn shares_are_met() {
        let script = FaultScript::parse("seed=3 drop-ud=20% dup-ud=10% delay-ud=1ms@30%").unwrap();
        let faults = FaultPlan::new(script.clone());
        let fates: Vec<DatagramFault> = (0..100_000).map(|_| faults.datagram()).collect();
        let share =
            |want: fn(&DatagramFault) -> bool| fates.iter().filter(|fate| want(fate)).count();
        assert!((19_000..21_000).contains(&share(|fate| fate.copies == 0)));
        assert!((7_000..9_000).contains(&share(|fate| fate.copies == 2)));
        assert!((29_000..31_000).contains(&share(|fate| fate.delay == MS)));
        let again = FaultPlan::new(script);
        assert!(fates.iter().all(|fate| *fate == again.datagram()), "the same seed");
        assert_eq!(FaultPlan::default().datagram(), DatagramFault::PLAIN);
    }

    proptest! {
        #[test]
        fn any_text_is_judged(text in "[a-z0-9=@%+:;,./ -]{0,60}|\\PC{0,30}") {
            if let Err(problem) = FaultScript::parse(&text) {
                prop_assert!(problem.column <= text.len() + 1, "{}", problem);
            }
        }

        #[test]
        fn any_words_are_judged(words in prop::collection::vec(
            ("seed|drop-ud|dup-ud|delay-ud|port-down|kill-qp|register-fail|register-max|partition|death",
             "[0-9]{1,10}(ms|s|%|th|\\.[0-9]%)?([@+:/][0-9a-z.]{1,6}){0,3}"), 0..6))
        {
            let text: Vec<String> = words.iter().map(|(k, v)| format!("{k}={v}")).collect();
            if let Ok(script) = FaultScript::parse(&text.join(" ")) {
                let faults = FaultPlan::new(script);
                let age = Duration::from_secs(5);
                let _ = (faults.datagram(), faults.refuse_registration(4096), faults.is_dead(age));
                let _ = faults.is_unreachable("10.0.0.1".parse().unwrap(), age);
            }
        }
    }
}
