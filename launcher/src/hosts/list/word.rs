//! One word of a host list: `user@host:number`, with ranges in brackets.

use std::net::Ipv6Addr;

use super::{ListError, MAX_HOSTS, MAX_RANGES, Problem, Token};
use supervisor::plan::HostEntry;

/// The one number below 1024 that is taken for a port.
const SSH_PORT: u32 = 22;
/// From here on a number behind a host is taken for a port: nobody gives a host so many ranks.
const FIRST_PORT: u32 = 1024;

/// Appends the hosts that a word stands for.
pub(super) fn host(token: &Token<'_>, hosts: &mut Vec<HostEntry>) -> Result<(), ListError> {
    let (user, rest) = match token.text.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, token.text),
    };
    if let Some(name) = user {
        self::user(token, name)?;
    }
    let mut entry = HostEntry { user: user.map(str::to_owned), ..HostEntry::default() };
    if let Some(rest) = rest.strip_prefix('[') {
        let brackets = || token.error(Problem::Brackets { seen: token.text.to_owned() });
        let (address, rest) = rest.split_once(']').ok_or_else(brackets)?;
        if !is_ipv6(address) {
            return Err(brackets());
        }
        address.clone_into(&mut entry.name);
        if !rest.is_empty() {
            entry.port = Some(port(token, rest.strip_prefix(':').ok_or_else(brackets)?)?);
        }
    } else if is_ipv6(rest) {
        rest.clone_into(&mut entry.name);
    } else {
        let (name, behind) = rest.split_once(':').map_or((rest, None), |(n, b)| (n, Some(b)));
        match behind {
            Some(text) if user.is_some() => entry.port = Some(port(token, text)?),
            Some(text) => slots_or_port(token, text, &mut entry)?,
            None => {}
        }
        if name.matches('[').count() > MAX_RANGES {
            return Err(token.error(Problem::Brackets { seen: token.text.to_owned() }));
        }
        return expand(token, name, &entry, hosts);
    }
    push(token, entry, hosts)
}

fn slots_or_port(token: &Token<'_>, text: &str, entry: &mut HostEntry) -> Result<(), ListError> {
    let most = u32::from(u16::MAX);
    match number(token, text, "number of slots or port", most)? {
        count if count == SSH_PORT || count >= FIRST_PORT => entry.port = u16::try_from(count).ok(),
        count => entry.slots = Some(count),
    }
    Ok(())
}

/// Whether it is an IPv6 address, with or without a zone.
fn is_ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').unwrap_or((text, "eth0"));
    let zone_fits =
        !zone.is_empty() && zone.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    zone_fits && address.parse::<Ipv6Addr>().is_ok()
}

/// A whole number from 1 to `most`.
pub(super) fn number(
    token: &Token<'_>,
    text: &str,
    what: &'static str,
    most: u32,
) -> Result<u32, ListError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = digits.then(|| text.parse().ok()).flatten();
    value
        .filter(|value| (1..=most).contains(value))
        .ok_or_else(|| token.error(Problem::Number { seen: token.text.to_owned(), what, most }))
}

pub(super) fn port(token: &Token<'_>, text: &str) -> Result<u16, ListError> {
    let most = u32::from(u16::MAX);
    Ok(u16::try_from(number(token, text, "port", most)?).unwrap_or(u16::MAX))
}

/// Checks a login name: nothing that the remote shell would take for something else.
pub(super) fn user(token: &Token<'_>, name: &str) -> Result<(), ListError> {
    let seen = || token.text.to_owned();
    let fits = |c: char| c.is_alphanumeric() || "-._+@\\$".contains(c);
    if let Some(character) = name.chars().find(|c| !fits(*c)) {
        return Err(token.error(Problem::Character { seen: seen(), character }));
    }
    match name.chars().next() {
        Some('-') => Err(token.error(Problem::Option { seen: seen() })),
        None => Err(token.error(Problem::NoName { seen: seen() })),
        Some(_) if name.ends_with('\\') => {
            Err(token.error(Problem::Character { seen: seen(), character: '\\' }))
        }
        Some(_) => Ok(()),
    }
}

/// Appends `entry` under each name that `pattern` stands for.
fn expand(
    token: &Token<'_>,
    pattern: &str,
    entry: &HostEntry,
    hosts: &mut Vec<HostEntry>,
) -> Result<(), ListError> {
    let Some((before, rest)) = pattern.split_once('[') else {
        return push(token, HostEntry { name: pattern.to_owned(), ..entry.clone() }, hosts);
    };
    let brackets = || token.error(Problem::Brackets { seen: token.text.to_owned() });
    let (inside, after) = rest.split_once(']').ok_or_else(brackets)?;
    for part in inside.split(',') {
        let bad = || token.error(Problem::Range { seen: part.to_owned() });
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let value = |text: &str| {
            let digits = (1..=18).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse::<u64>().ok()).flatten().ok_or_else(bad)
        };
        let (low, high, width) = (value(first)?, value(last)?, first.len());
        if high < low {
            return Err(bad());
        }
        for number in low..=high {
            let name = format!("{before}{number:0width$}{after}");
            expand(token, &name, entry, hosts)?;
        }
    }
    Ok(())
}

fn push(token: &Token<'_>, entry: HostEntry, hosts: &mut Vec<HostEntry>) -> Result<(), ListError> {
    let seen = || token.text.to_owned();
    if !entry.name.contains(':') {
        let fits = |c: char| c.is_alphanumeric() || "-._+".contains(c);
        if let Some(character) = entry.name.chars().find(|c| !fits(*c)) {
            let problem = if character == ']' {
                Problem::Brackets { seen: seen() }
            } else {
                Problem::Character { seen: seen(), character }
            };
            return Err(token.error(problem));
        }
        match entry.name.chars().next() {
            None => return Err(token.error(Problem::NoName { seen: seen() })),
            Some('-') => return Err(token.error(Problem::Option { seen: seen() })),
            Some(_) => {}
        }
    }
    if hosts.len() >= MAX_HOSTS {
        return Err(token.error(Problem::TooMany { seen: seen() }));
    }
    hosts.push(entry);
    Ok(())
}
