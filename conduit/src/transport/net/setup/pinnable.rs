//! How much memory the ranks of this host may pin: asked before segments are announced, so that no
//! segment is announced that cannot be registered.
//!
//! One rank of each host looks: it takes what the user says, or tries how much can be registered,
//! or remembers what was found before. All ranks take the least of what the hosts say.

use std::sync::Arc;
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use fabric::Device;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use settings::log::RANK;
use settings::say;

use super::pinnable_file::{Circumstances, Kept};
use crate::sys;
use crate::transport::net::memory::pool::Trial;
use crate::transport::net::settings::PinnedMemory;

/// Less than this is not told apart.
const GRAIN: u64 = 2 << 20;
/// Most that is registered at once.
const AT_ONCE: u64 = 1 << 30;
/// A probe that looks for more is announced.
const ANNOUNCED: u64 = 2 << 30;
/// What the network itself registers, beside segments: message buffers, regions of transfers.
const OWN: u64 = 144 << 20;

/// Searches for the greatest amount that can be pinned, at most `most`: pieces of at most `at_once`
/// until one is refused, then halves of it. What `pin` has taken stays until the end.
fn search(most: u64, at_once: u64, mut pin: impl FnMut(u64) -> bool) -> u64 {
    let mut held = 0;
    let mut step = loop {
        let piece = (most - held).min(at_once) / GRAIN * GRAIN;
        if piece == 0 {
            return held;
        }
        if !pin(piece) {
            break (piece / GRAIN).next_power_of_two() / 2 * GRAIN;
        }
        held += piece;
    };
    while step >= GRAIN {
        if pin(step) {
            held += step;
        }
        step /= 2;
    }
    held
}

/// Bytes of its largest segment that a rank can register, when its host has so many ranks.
/// `locked`: what the process may lock, `host`: what all ranks may pin.
fn for_each(host: u64, locked: Option<u64>, locals: u32) -> u64 {
    let share = host / u64::from(locals.max(1));
    let share = locked.map_or(share, |locked| share.min(locked));
    (share - OWN.min(share / 2)) / sys::page_size() * sys::page_size()
}

/// The soft limit on locked memory, where this process is bound by it.
fn locked_memory() -> Option<u64> {
    const IPC_LOCK: u64 = 1 << 14;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    let (soft, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    (soft != RLIM_INFINITY && rights & IPC_LOCK == 0).then_some(soft)
}

/// Memory that is not in use now.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Who asks, and for whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    /// Ranks of this host.
    pub(super) locals: u32,
    /// It speaks for the job.
    pub(super) speaks: bool,
}

/// Bytes of the largest segment that a rank of this host can register with its devices.
pub(super) fn largest_segment(
    settings: &PinnedMemory,
    devices: &[Arc<dyn Device>],
    asker: Asker,
) -> u64 {
    let locked = locked_memory();
    // What one process cannot lock it need not try.
    let most = locked.map_or(settings.most, |locked| locked.min(settings.most));
    let one = largest_region(devices);
    let host = if settings.probe && one >= GRAIN {
        match remembered(settings, devices, locked, most, asker) {
            // No other limit was met.
            found if found + GRAIN > most => settings.most,
            found => found,
        }
    } else {
        settings.most
    };
    // A segment is one region.
    for_each(host, locked, asker.locals).min(one / sys::page_size() * sys::page_size())
}

/// Bytes of the largest region that all devices take.
fn largest_region(devices: &[Arc<dyn Device>]) -> u64 {
    devices.iter().map(|one| one.caps().max_mr_size).min().unwrap_or(u64::MAX)
}

/// What was found by an earlier job, or is found now.
fn remembered(
    settings: &PinnedMemory,
    devices: &[Arc<dyn Device>],
    locked: Option<u64>,
    most: u64,
    asker: Asker,
) -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut names: Vec<String> = devices.iter().map(|one| one.info().name.clone()).collect();
    names.dedup();
    let now = Circumstances { boot: boot.trim().to_owned(), locked, devices: names, most };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let kept = Kept::below(&settings.places, &host);
    match kept.as_ref().map_or(Ok(None), |kept| kept.found(&now)) {
        Ok(Some(found)) => return found,
        Ok(None) => {}
        Err(problem) => {
            let path = kept.as_ref().map(|kept| kept.path().display().to_string());
            let path = path.unwrap_or_default();
            say!(WARN, RANK, "{path} {problem}: how much memory can be pinned is found out anew");
        }
    }
    let (found, is_whole) = probe(settings, devices, most, asker);
    if let Some(kept) = kept.filter(|_| is_whole)
        && let Err(error) = kept.keep(&now, found)
    {
        say!(DEBUG, RANK, "what was found is not kept in {}: {error}", kept.path().display());
    }
    found
}

/// Tries how much can be pinned; also whether nothing else was in the way.
fn probe(
    settings: &PinnedMemory,
    devices: &[Arc<dyn Device>],
    most: u64,
    asker: Asker,
) -> (u64, bool) {
    let says = settings.warn && asker.speaks;
    if says && most > ANNOUNCED {
        say!(
            INFO,
            RANK,
            "finding out how much memory can be pinned, at most {} MB; GASNET_PHYSMEM_MAX with the result makes this step unnecessary",
            most >> 20
        );
    }
    let begin = Instant::now();
    let end = begin + deadlines::PINNABLE.limit;
    // Others need some of it.
    let free = available_memory().map_or(u64::MAX, |free| free - free / 8);
    let mut trials = Vec::new();
    let mut is_late = false;
    let found = search(most.min(free), AT_ONCE.min(largest_region(devices)), |len| {
        is_late |= Instant::now() > end;
        let trial = if is_late { None } else { Trial::pin(devices, len) };
        let is_pinned = trial.is_some();
        trials.extend(trial);
        is_pinned
    });
    drop(trials);
    if is_late {
        // Nothing but time was in the way.
        if says {
            say!(
                WARN,
                RANK,
                "{} MB of memory can be pinned and perhaps more: after {} s the search has ended, and {} MB are taken to be possible; set GASNET_PHYSMEM_MAX",
                found >> 20,
                deadlines::PINNABLE.limit.as_secs(),
                most >> 20
            );
        }
        return (most, false);
    }
    if says && most > ANNOUNCED {
        say!(
            INFO,
            RANK,
            "{} MB of memory can be pinned, found in {:.1} s",
            found >> 20,
            begin.elapsed().as_secs_f64()
        );
    }
    if found + GRAIN > most.min(free) && free < most {
        // Memory is in use now that will not always be.
        return (most, false);
    }
    (found, true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The search ends within a grain of the limit, never above it, in few steps.
        #[test]
        fn the_limit_is_found(
            limit in 0_u64..1 << 36,
            most in 0_u64..1 << 36,
            at_once in GRAIN..1 << 34,
        ) {
            let (mut held, mut steps) = (0, 0);
            let found = search(most, at_once, |len| {
                steps += 1;
                let fits = held + len <= limit;
                held += if fits { len } else { 0 };
                fits
            });
            prop_assert_eq!(found, held);
            let best = limit.min(most);
            prop_assert!(found <= best && best - found < GRAIN, "{} of {}", found, best);
            prop_assert!(steps <= most / (at_once / GRAIN * GRAIN) + 40);
        }
    }

    #[test]
    fn a_rank_keeps_room_for_the_network_itself() {
        assert_eq!(for_each(1 << 30, None, 1), (1 << 30) - OWN);
        assert_eq!(for_each(1 << 30, None, 4), 128 << 20);
        assert_eq!(for_each(1 << 30, Some(64 << 10), 4), 32 << 10);
        assert_eq!(for_each(u64::MAX, Some(8 << 20), 1), 4 << 20);
        assert_eq!(for_each(0, None, 0), 0);
    }

    /// Without devices nothing is refused, and only the file can say less.
    #[test]
    fn what_was_found_is_found_again() {
        let place = std::env::temp_dir().join(format!("pinnable-again-{}", std::process::id()));
        let places = vec![place.clone()];
        let settings = PinnedMemory { most: 64 << 20, probe: true, warn: false, places };
        let asker = Asker { locals: 2, speaks: false };
        let ask = || largest_segment(&settings, &[], asker);
        let whole = for_each(64 << 20, locked_memory(), 2);
        assert_eq!(ask(), whole);
        let file = std::fs::read_dir(&place).unwrap().next().expect("it was kept").unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let Some(found) = text.lines().find_map(|line| line.strip_prefix("found ")) else {
            panic!("{text}");
        };
        if locked_memory().is_none() {
            assert_eq!(found, (64 << 20).to_string());
            std::fs::write(&file, text.replace(&format!("found {found}"), "found 8388608"))
                .unwrap();
            assert_eq!(ask(), for_each(8 << 20, None, 2), "the file is believed");
        }
        std::fs::write(&file, "found 8388608").unwrap();
        assert_eq!(ask(), whole, "a damaged file is not");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "and is replaced");
        let trusting = PinnedMemory { probe: false, ..settings };
        assert_eq!(largest_segment(&trusting, &[], asker), whole);
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn this_host_says_what_is_free() {
        let free = available_memory().expect("the kernel says it");
        assert!(free > 0 && sys::physical_memory().is_none_or(|all| free <= all));
    }
}
