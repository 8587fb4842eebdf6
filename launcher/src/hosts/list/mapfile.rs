//! The file of `--map FILE`: which rank runs on which host.
//!
//! ```text
//! # ranks     host
//! 0,4-7       n1
//! 1-3         me@n2
//! *           +0          all that are left; the first host of the list
//! ```

use std::collections::HashMap;

use super::{BRACKETS, Here, ListError, Token, lines, word, words};
use supervisor::plan::{HostEntry, Map};

/// Reads a map for a job of `ranks` ranks. Hosts are those of `list`, by name or as `+index` from
/// 0; without a list, the map's own in the order of their first lines, the launching host
/// recognised by `here`. Hosts that get no rank are left out. Slots are not looked at.
///
/// # Errors
/// The first thing that cannot be understood, a rank with no host or with two, a host that is not
/// in the list.
pub fn place(
    text: &str,
    ranks: u32,
    list: Option<&[HostEntry]>,
    here: &Here,
) -> Result<Map, ListError> {
    let mut names =
        Names { listed: list, hosts: list.unwrap_or_default().to_vec(), index: HashMap::new() };
    let mut host_of = vec![None; ranks as usize];
    let mut rest: Option<(Token<'_>, u32)> = None;
    let mut end = 1;
    for (number, line) in lines(text) {
        end = number;
        let mut words = words(line, number);
        let Some(which) = words.next() else { continue };
        let Some(name) = words.next() else {
            return Err(which.error("needs a host behind it, as in 0-3 n1"));
        };
        if let Some(more) = words.next() {
            return Err(more.error("is too much: a line is ranks and a host, as in 0-3 n1"));
        }
        let host = names.find(&name, here)?;
        if which.text == "*" {
            match rest {
                None => rest = Some((which, host)),
                Some(_) => return Err(bad_ranks(&which, which.text, ranks)),
            }
            continue;
        }
        for part in which.text.split(',') {
            for rank in range(&which, part, ranks)? {
                match host_of.get_mut(rank as usize) {
                    Some(place @ None) => *place = Some(host),
                    _ => {
                        let text = format!("rank {rank} has a host already; name each rank once");
                        return Err(which.at(text));
                    }
                }
            }
        }
    }
    if let Some(rank) = host_of.iter().position(Option::is_none).filter(|_| rest.is_none()) {
        let problem =
            format!("rank {rank} has no host; add a line for it, or one for * (all that are left)");
        return Err(ListError { line: end, column: 1, problem });
    }
    let rest = rest.map_or(0, |(_, host)| host);
    let host_of = host_of.into_iter().map(|host| host.unwrap_or(rest)).collect();
    Ok(Map { hosts: names.hosts, host_of }.without_idle_hosts())
}

fn bad_ranks(token: &Token<'_>, seen: &str, ranks: u32) -> ListError {
    let form = "write them as in 0,4-7, or * for all that are left";
    token.error_of(seen, format_args!("are no ranks of a job of {ranks}; {form}"))
}

fn range(
    token: &Token<'_>,
    part: &str,
    ranks: u32,
) -> Result<std::ops::RangeInclusive<u32>, ListError> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let value = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten().filter(|rank| *rank < ranks)
    };
    match (value(first), value(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(bad_ranks(token, part, ranks)),
    }
}

struct Names<'a> {
    listed: Option<&'a [HostEntry]>,
    hosts: Vec<HostEntry>,
    /// Hosts by the word that named them.
    index: HashMap<String, u32>,
}

impl Names<'_> {
    fn find(&mut self, token: &Token<'_>, here: &Here) -> Result<u32, ListError> {
        if let Some(known) = self.index.get(token.text) {
            return Ok(*known);
        }
        let index = match (self.listed, token.text.strip_prefix('+')) {
            (Some(listed), Some(index)) => index.parse().ok().filter(|i: &usize| *i < listed.len()),
            _ => self.named(token, here)?,
        };
        let not_listed = || {
            token.at(format!(
                "the host {:?} is not among the {} of the host list; name one of them, or its index as in +0",
                token.text,
                self.hosts.len()
            ))
        };
        let index = index.and_then(|i| u32::try_from(i).ok()).ok_or_else(not_listed)?;
        self.index.insert(token.text.to_owned(), index);
        Ok(index)
    }

    fn named(&mut self, token: &Token<'_>, here: &Here) -> Result<Option<usize>, ListError> {
        let mut made = Vec::new();
        word::host(token, &mut made)?;
        let mut made = made.into_iter();
        let (Some(mut host), None) = (made.next(), made.next()) else {
            return Err(token.error(BRACKETS));
        };
        if host.slots.is_some() {
            let text = "has slots, which do not belong into a map; write them into the host list";
            return Err(token.error(text));
        }
        host.here = here.is(&host);
        let exact = self.hosts.iter().position(|known| known.same_login(&host));
        if self.listed.is_none() {
            return Ok(exact.or_else(|| {
                self.hosts.push(host);
                Some(self.hosts.len() - 1)
            }));
        }
        // The name alone is enough when only one host of the list has it.
        let bare = host.user.is_none() && host.port.is_none();
        let mut alike =
            self.hosts.iter().enumerate().filter(|(_, known)| bare && known.name == host.name);
        Ok(exact.or_else(|| alike.next().filter(|_| alike.next().is_none()).map(|(i, _)| i)))
    }
}
