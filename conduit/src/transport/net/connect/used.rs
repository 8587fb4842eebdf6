//! At the end of a job: which connections were used, as a connect file.

use std::path::Path;

use bootstrap::{Bootstrap, Rank};

use super::{Error, file};
use crate::transport::net::settings::is_per_rank;

/// Writes this rank's own file; every `%` of its name stands for the rank.
pub(crate) fn write_own(
    pattern: &Path,
    base: u32,
    me: Rank,
    size: u32,
    used: &[Rank],
) -> Result<(), Error> {
    let text = file::header(size, base) + &file::lines(me.0, used.iter().map(|rank| rank.0), base);
    Ok(file::write(&file::expand(pattern, me.0), &text)?)
}

/// Writes `GASNET_CONNECTFILE_OUT`. Collective over the job unless the name has a `%`: then every
/// rank writes its own file and none waits for another.
///
/// * `pattern`: name; every `%` stands for the rank.
/// * `base`: how ranks are written, 2..36.
/// * `used`: peers that messages went to or came from, ascending.
///
/// # Errors
/// The file cannot be written (without `%`: only rank 0 knows), or a service fails.
pub(crate) fn write(
    pattern: &Path,
    base: u32,
    me: Rank,
    size: u32,
    used: &[Rank],
    services: &mut dyn Bootstrap,
) -> Result<(), Error> {
    if is_per_rank(pattern) {
        return write_own(pattern, base, me, size, used);
    }
    let lines = file::lines(me.0, used.iter().map(|rank| rank.0), base);
    // Rows of an exchange have one length; shorter texts end with line ends, which a reader skips
    // and this writer drops.
    let mine = u64::try_from(lines.len()).unwrap_or(u64::MAX).to_le_bytes();
    let lengths = services.exchange(&mine)?;
    let most = lengths
        .chunks_exact(8)
        .filter_map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
        .max()
        .and_then(|most| usize::try_from(most).ok())
        .unwrap_or_default();
    if most == 0 {
        return first(pattern, me, &file::header(size, base));
    }
    let mut row = lines.into_bytes();
    row.resize(most, b'\n');
    let rows = services.exchange(&row)?;
    let mut text = file::header(size, base);
    for row in rows.chunks_exact(most) {
        let end = row.iter().rposition(|byte| *byte != b'\n').map_or(0, |last| last + 1);
        if end > 0 {
            text.push_str(&String::from_utf8_lossy(&row[..end]));
            text.push('\n');
        }
    }
    first(pattern, me, &text)
}

fn first(path: &Path, me: Rank, text: &str) -> Result<(), Error> {
    if me == Rank(0) {
        file::write(path, text)?;
    }
    Ok(())
}
