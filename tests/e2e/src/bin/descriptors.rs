//! Connects with every other rank and prints the limit on descriptors that a child sees, and how
//! many connections have a number below it: `limit 1024, connections below 0`.

use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gasnet_ibv::{BarrierFlags, Client, Entry, Flags, HandlerIndex, Par, Rank, Role};

const HELLO: HandlerIndex = HandlerIndex(200);

/// Sockets with a number below `limit`.
fn sockets_below(limit: u64) -> std::io::Result<usize> {
    let mut found = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let number: Option<u64> = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let socket = std::fs::metadata(entry.path()).is_ok_and(|file| file.file_type().is_socket());
        found += usize::from(socket && number.is_some_and(|number| number < limit));
    }
    Ok(found)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::<Par>::init("descriptors")?;
    let got = Arc::<AtomicU32>::default();
    let seen = Arc::clone(&got);
    let hello = Entry::short("hello", 0, move |_, _| {
        seen.fetch_add(1, Ordering::Relaxed);
    });
    client.endpoint().register(&mut [hello.at(HELLO.0).role(Role::Request)])?;
    client.attach_segment(1 << 20)?;
    let before = sockets_below(u64::MAX)?;
    for to in (0..client.size()).map(Rank).filter(|to| *to != client.rank()) {
        let _sent = client.team().request_short(to, HELLO, &[], Flags::NONE)?;
    }
    client.block_until(|| got.load(Ordering::Relaxed) == client.size() - 1)?;
    let child = Command::new("/bin/sh").args(["-c", "ulimit -n"]).output()?;
    let limit = String::from_utf8(child.stdout)?.trim().to_owned();
    let below = sockets_below(limit.parse().unwrap_or(u64::MAX))?;
    let (all, more) = (sockets_below(u64::MAX)?, below.saturating_sub(before));
    writeln!(std::io::stdout(), "limit {limit}, of {all} sockets {below} below, {more} new")?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    client.exit(0)
}
