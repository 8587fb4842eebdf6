//! What a whole program reaches over the network, beside the same ranks in shared memory.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::Repetitions;
use crate::network::SOFT;
use crate::row::{Findings, Row, Target};
use crate::run::{Failure, Result, Samples, job, run, sibling};

/// Text that is everywhere where the sources are.
const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const DIRECTORIES: [&str; 6] = ["docs", "conduit", "fabric", "launcher", "supervisor", "testkit"];
/// Bytes that are counted: each file as often as it takes.
const BYTES: u64 = 48 << 20;
const RANKS: u32 = 4;

/// Files below a directory whose names end so.
fn texts(directory: &Path, into: &mut Vec<(PathBuf, u64)>) -> Result<()> {
    let mut entries = std::fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    // So that each run counts the same in the same order.
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            texts(&path, into)?;
        } else if path.extension().is_some_and(|end| end == "rs" || end == "md") {
            into.push((path, entry.metadata()?.len()));
        }
    }
    Ok(())
}

/// Megabytes in a second, as the program says in its last line.
fn rate(out: &str) -> Option<f64> {
    out.trim_end().strip_suffix(" MB/s")?.rsplit(' ').next()?.parse().ok()
}

/// Words of text, counted by four ranks.
pub(crate) fn wordcount(repetitions: Repetitions) -> Result<Findings> {
    let mut files = Vec::new();
    for directory in DIRECTORIES {
        texts(&Path::new(TEXT).join(directory), &mut files)?;
    }
    let all: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    let times = usize::try_from(BYTES / all.max(1))?.max(1);
    for (file, _) in &files {
        // Whatever is on the disk alone is read before.
        std::io::copy(&mut File::open(file)?, &mut std::io::sink())?;
    }
    let mut samples = Samples::default();
    let places = [("wordcount_soft", &SOFT[..]), ("wordcount_shared_memory", &[])];
    for _ in 0..repetitions.pairs {
        for (key, variables) in places {
            let mut command = job(RANKS, &[], &sibling("wordcount")?, &["-k", "1"])?;
            command.args(files.iter().cycle().take(times * files.len()).map(|(file, _)| file));
            command.envs(variables.iter().copied());
            let found = run(command, true)?;
            let rate = rate(&found.out);
            samples.add(key, rate.ok_or_else(|| Failure("wordcount says no rate".to_owned()))?);
        }
    }
    let figure = format!("words of text on {RANKS} ranks, over soft, in shared memory");
    let keys = places.map(|(key, _)| key);
    let rows = vec![Row::paired(&figure, &samples, keys, "MB/s", Target::AtLeast(0.7))?];
    let notes = vec![
        "net-wordcount: the program wordcount on the sources and pages of this project, each many times, with and without shared \
         memory in turn; its own time, from its first read to its result."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_last_line() {
        assert_eq!(rate("5 the\n7 words, 3 distinct: 0.498 s, 137.1 MB/s\n"), Some(137.1));
        assert_eq!(rate("5 the\n"), None);
    }
}
