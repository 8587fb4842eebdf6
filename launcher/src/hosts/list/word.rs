//! One word of a host list: `user@host:number`, with ranges in brackets.

use std::net::Ipv6Addr;

use bootstrap::rank::MAX_HOSTS;

use super::{BRACKETS, ListError, MAX_RANGES, Token};
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
        let brackets = || token.error(BRACKETS);
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
            return Err(token.error(BRACKETS));
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
    value.filter(|value| (1..=most).contains(value)).ok_or_else(|| {
        token.error(format_args!("is no {what}; write a whole number from 1 to {most}"))
    })
}

pub(super) fn port(token: &Token<'_>, text: &str) -> Result<u16, ListError> {
    let most = u32::from(u16::MAX);
    Ok(u16::try_from(number(token, text, "port", most)?).unwrap_or(u16::MAX))
}

/// Checks a login name: nothing that the remote shell would take for something else.
pub(super) fn user(token: &Token<'_>, name: &str) -> Result<(), ListError> {
    token.check_name(name, |c| c.is_alphanumeric() || "-._+@\\$".contains(c))?;
    if name.ends_with('\\') { Err(token.odd_character('\\')) } else { Ok(()) }
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
    let brackets = || token.error(BRACKETS);
    let (inside, after) = rest.split_once(']').ok_or_else(brackets)?;
    for part in inside.split(',') {
        let bad = || {
            let form = "write one as in 1-4 or 08-11, the smaller number first";
            token.error_of(part, format_args!("is no range of numbers; {form}"))
        };
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
    if !entry.name.contains(':') {
        token.check_name(&entry.name, |c| c.is_alphanumeric() || "-._+".contains(c))?;
    }
    if hosts.len() >= MAX_HOSTS as usize {
        let text = format_args!("makes more than {MAX_HOSTS} hosts; shorten the ranges");
        return Err(token.error(text));
    }
    hosts.push(entry);
    Ok(())
}
