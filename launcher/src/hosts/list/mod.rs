//! Host lists, as users and batch systems write them (pure).
//!
//! ```text
//! n1                      me@n1            n1 slots=4        n1:4
//! n[1-4,08-11]-ib         me@n1:2222       n1 port=2222      [fe80::1%eth0]:22
//! ```
//!
//! * A list in one text ([`Grammar::Words`]) has commas, semicolons, slashes or blanks between
//!   hosts; in a file ([`Grammar::Lines`]) each line is one host, `#` begins a comment and blank
//!   lines do not count.
//! * Brackets stand for a range of numbers, as Slurm writes it; several in one word multiply.
//! * `host:N` is a number of slots, unless N is 22 or at least 1024: then it is a port. After
//!   `user@` or an address in brackets it always is a port. `slots=N`, `port=N` and `user=NAME`
//!   behind a host leave no doubt.

mod mapfile;
mod word;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;

pub use mapfile::place;

use bootstrap::rank::MAX_RANKS;
use supervisor::plan::HostEntry;

/// Most brackets in one word.
const MAX_RANGES: usize = 8;
/// Most slots that a host may have.
pub const MAX_SLOTS: u32 = MAX_RANKS;

/// How a list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// Hosts between separators, in a variable or an option.
    Words,
    /// One host per line.
    Lines,
    /// One host per line, its second word the number of slots: the file of Grid Engine.
    GridEngine,
}

/// A list that was understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Hosts in order, also those that are named again.
    pub hosts: Vec<HostEntry>,
    /// Words that were passed over, each as a sentence with its place.
    pub notes: Vec<String>,
}

/// What is wrong with a list, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct ListError {
    /// Line, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub problem: String,
}

const BRACKETS: &str =
    "has brackets that do not fit; write a range as in n[1-4,7] and an address as in [::1]:22";
const NO_HOST_BEFORE: &str = "belongs behind a host, as in n1 slots=4";

/// A word and where it stands.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    text: &'a str,
    line: usize,
    column: usize,
}

impl Token<'_> {
    /// Says of this word what is wrong with it.
    fn error(&self, problem: impl Display) -> ListError {
        self.error_of(self.text, problem)
    }

    /// Says of a part of this word what is wrong with it.
    fn error_of(&self, part: &str, problem: impl Display) -> ListError {
        self.at(format!("{part:?} {problem}"))
    }

    fn at(&self, problem: String) -> ListError {
        ListError { line: self.line, column: self.column, problem }
    }

    /// The first character of `name`, a part of this word, must be one that `fits`, as all others,
    /// and no dash.
    fn check_name(&self, name: &str, fits: impl Fn(char) -> bool) -> Result<(), ListError> {
        match name.chars().find(|c| !fits(*c)) {
            Some(']') => Err(self.error(BRACKETS)),
            Some(odd) => Err(self.odd_character(odd)),
            None if name.is_empty() => {
                Err(self.error("names no host; write one as in n1 or me@n1:2222"))
            }
            None if name.starts_with('-') => Err(self.error(
                "begins with -, so it would be an option of the remote shell; write the host's name",
            )),
            None => Ok(()),
        }
    }

    fn odd_character(&self, odd: char) -> ListError {
        let advice = match odd {
            ',' | ';' | '/' => "write one host per line",
            '\u{fffd}' => "write the file in UTF-8",
            _ => "write commas or blanks between hosts",
        };
        self.error(format_args!("has the character {odd:?}, which no host name has; {advice}"))
    }
}

/// Cuts `text` at characters that `separates` says, but not inside brackets.
fn tokens<'a>(
    text: &'a str,
    line: usize,
    separates: impl Fn(char) -> bool,
) -> impl Iterator<Item = Token<'a>> {
    let mut depth = 0_u32;
    let mut column = 1;
    let pieces = text.split(move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        // A blank ends a bracket that was never closed, so that the error shows one word and not
        // the whole list.
        if c.is_whitespace() {
            depth = 0;
        }
        depth == 0 && separates(c)
    });
    pieces.filter_map(move |text| {
        let token = Token { text, line, column };
        column += text.chars().count() + 1;
        (!text.is_empty()).then_some(token)
    })
}

/// Words of a line up to a comment.
fn words(text: &str, line: usize) -> impl Iterator<Item = Token<'_>> {
    tokens(text, line, char::is_whitespace).take_while(|token| !token.text.starts_with('#'))
}

/// Lines with their numbers, without the mark that some editors put at the beginning of a file.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines())
}

/// Reads a list.
///
/// # Errors
/// The first thing that cannot be understood.
pub fn parse(text: &str, grammar: Grammar) -> Result<List, ListError> {
    let mut list = List::default();
    for (number, line) in lines(text) {
        match grammar {
            Grammar::Words => one_text(&mut list, line, number)?,
            Grammar::Lines | Grammar::GridEngine => one_line(&mut list, line, number, grammar)?,
        }
    }
    Ok(list)
}

fn one_text(list: &mut List, line: &str, number: usize) -> Result<(), ListError> {
    let separates = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '/');
    let mut last = list.hosts.len();
    for token in tokens(line, number, separates) {
        if token.text.contains('=') {
            let hosts = list.hosts.get_mut(last..).unwrap_or_default();
            attribute(hosts, &token)?;
        } else {
            last = list.hosts.len();
            word::host(&token, &mut list.hosts)?;
        }
    }
    Ok(())
}

fn one_line(list: &mut List, line: &str, number: usize, grammar: Grammar) -> Result<(), ListError> {
    let mut words = words(line, number);
    let Some(first) = words.next() else { return Ok(()) };
    let last = list.hosts.len();
    if grammar == Grammar::Lines && first.text.contains('=') {
        return Err(first.error(NO_HOST_BEFORE));
    }
    word::host(&first, &mut list.hosts)?;
    let hosts = &mut list.hosts[last..];
    if grammar == Grammar::GridEngine {
        // `host slots queue processors`; only the first two words matter.
        let Some(token) = words.next() else { return Ok(()) };
        let slots = word::number(&token, token.text, "number of slots", MAX_SLOTS)?;
        hosts.iter_mut().for_each(|host| host.slots = Some(slots));
        return Ok(());
    }
    for token in words {
        if token.text.contains('=') {
            attribute(hosts, &token)?;
        } else if list.notes.is_empty() {
            // As GASNet does it. One note is enough: every line may have such words.
            list.notes.push(format!(
                "line {}, column {}: {:?} is passed over; only the first word of a line names a host",
                token.line, token.column, token.text
            ));
        }
    }
    Ok(())
}

/// `key=value` behind `hosts`, which one word made.
fn attribute(hosts: &mut [HostEntry], token: &Token<'_>) -> Result<(), ListError> {
    if hosts.is_empty() {
        return Err(token.error(NO_HOST_BEFORE));
    }
    match token.text.split_once('=') {
        Some(("slots", value)) => {
            let slots = word::number(token, value, "number of slots", MAX_SLOTS)?;
            hosts.iter_mut().for_each(|host| host.slots = Some(slots));
        }
        Some(("port", value)) => {
            let port = word::port(token, value)?;
            hosts.iter_mut().for_each(|host| host.port = Some(port));
        }
        Some(("user", value)) => {
            word::user(token, value)?;
            hosts.iter_mut().for_each(|host| host.user = Some(value.to_owned()));
        }
        _ => {
            return Err(
                token.error("is not known behind a host; write slots=4, port=2222 or user=me")
            );
        }
    }
    Ok(())
}

/// The hosts without repetitions: the first of several stays where it is, and their slots add up.
/// Names count as written: a short name, a full name and an address are different hosts.
#[must_use]
pub fn distinct(hosts: Vec<HostEntry>) -> Vec<HostEntry> {
    let mut first: HashMap<_, usize> = HashMap::new();
    let mut kept: Vec<HostEntry> = Vec::new();
    for host in hosts {
        match first.entry((host.name.clone(), host.user.clone(), host.port)) {
            Entry::Vacant(entry) => {
                entry.insert(kept.len());
                kept.push(host);
            }
            Entry::Occupied(entry) => {
                if let (Some(slots), Some(more)) = (&mut kept[*entry.get()].slots, host.slots) {
                    *slots = slots.saturating_add(more).min(MAX_SLOTS);
                }
            }
        }
    }
    kept
}

/// What is known about the launching host and user, to recognise it in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// Its name as its kernel says it.
    pub name: String,
    /// Name under which a batch system knows it, if that says so.
    pub batch_name: Option<String>,
    /// The launching user's name, if it is known.
    pub user: Option<String>,
}

impl Here {
    /// Whether `host` means this host and this user: its own name, short or qualified, a loopback
    /// name, or an address of this host. Nothing is looked up in the network. Who names a port
    /// wants a login, also to this host.
    #[must_use]
    pub fn is(&self, host: &HostEntry) -> bool {
        let user = host.user.is_none() || host.user == self.user;
        user && host.port.is_none() && self.has_name(&host.name)
    }

    fn has_name(&self, name: &str) -> bool {
        let short = |name: &str| name.split('.').next().unwrap_or(name).to_ascii_lowercase();
        if let Ok(address) = name.parse::<std::net::IpAddr>() {
            return address.is_loopback() || is_own(address);
        }
        name.eq_ignore_ascii_case("localhost")
            || name.eq_ignore_ascii_case("localhost.localdomain")
            || name.eq_ignore_ascii_case(&self.name)
            || self.batch_name.as_deref() == Some(name)
            || (short(name) == short(&self.name)
                && (!name.contains('.') || !self.name.contains('.')))
    }
}

/// Whether one of this host's interfaces has the address: then a socket can be bound to it.
fn is_own(address: std::net::IpAddr) -> bool {
    let whole = !address.is_unspecified() && !address.is_multicast();
    whole && std::net::UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests;
