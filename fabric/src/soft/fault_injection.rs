//! A fault script at work on a device: what is down, cut off, delayed or about to fail.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::fault_script::FaultPlan;
use super::limits::MAX_DELAYED;
use super::lock::{Wait, try_lock_for};
use super::memory::Table;
use crate::Access;
use crate::sync::Flag;

/// The script's state on one device.
#[derive(Debug, Default)]
pub(super) struct FaultInjection {
    pub(super) plan: Arc<FaultPlan>,
    pub(super) delayed: DelayedDatagrams,
    pub(super) writes: HeldWrites,
    /// A port is down, an address is cut off, or the device is dead.
    active: AtomicBool,
    pub(super) dead: Flag,
    /// Queue pairs that fail, and when.
    kills: Mutex<Vec<(Instant, u32)>>,
}

impl FaultInjection {
    pub(super) fn new(plan: &Arc<FaultPlan>) -> Self {
        Self { plan: Arc::clone(plan), ..Self::default() }
    }

    /// Whether anything may be cut off now. Cheap.
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Returns what it was before.
    pub(super) fn set_active(&self, active: bool) -> bool {
        self.active.swap(active, Ordering::Relaxed)
    }

    /// Whether nothing goes to or comes from `address`.
    pub(super) fn is_unreachable(&self, address: IpAddr, now: Instant) -> bool {
        self.dead.is_set() || self.plan.is_unreachable(address, self.plan.age(now))
    }

    /// A reliable queue pair became ready to send.
    pub(super) fn queue_pair_ready(&self, qpn: u32) {
        if let Some(after) = self.plan.queue_pair_ready()
            && let Some(mut kills) = try_lock_for(&self.kills, Wait::Post)
        {
            kills.push((Instant::now() + after, qpn));
        }
    }

    /// Queue pairs that fail now, and whether others will later.
    pub(super) fn due_kills(&self, now: Instant) -> (Vec<u32>, bool) {
        let Some(mut kills) = try_lock_for(&self.kills, Wait::Post) else {
            return (Vec::new(), true);
        };
        let due = kills.iter().filter(|(when, _)| *when <= now).map(|&(_, qpn)| qpn).collect();
        kills.retain(|(when, _)| *when > now);
        (due, !kills.is_empty())
    }
}

/// A datagram that a fault script holds back.
#[derive(Debug)]
pub(super) struct DelayedDatagram {
    pub(super) when: Instant,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct DelayedDatagrams(Mutex<Vec<DelayedDatagram>>);

impl DelayedDatagrams {
    pub(super) fn push(&self, datagram: DelayedDatagram) {
        if let Some(mut list) = try_lock_for(&self.0, Wait::Post)
            && list.len() < MAX_DELAYED
        {
            list.push(datagram);
        }
    }

    /// Hands over what is due; whether more waits.
    pub(super) fn send_due(&self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8])) -> bool {
        let Some(mut list) = try_lock_for(&self.0, Wait::Post) else { return true };
        list.retain(|one| {
            if one.when <= now {
                send(one.to, &one.bytes);
            }
            one.when > now
        });
        !list.is_empty()
    }
}

/// The data of a remote write that a fault script holds back. The write itself is complete.
#[derive(Debug)]
struct HeldWrite {
    when: Instant,
    remote: u64,
    rkey: u32,
    bytes: Vec<u8>,
}

impl HeldWrite {
    /// A region that is gone takes nothing.
    fn place(&self, regions: &Table) {
        let span = regions.remote(self.rkey, self.remote, self.bytes.len(), Access::REMOTE_WRITE);
        span.iter().for_each(|span| {
            span.fill(&self.bytes);
        });
    }
}

/// Writes on their way from a device to memory, in their order.
#[derive(Debug, Default)]
pub(super) struct HeldWrites {
    list: Mutex<VecDeque<HeldWrite>>,
    any: AtomicBool,
}

impl HeldWrites {
    /// Whether some wait; what comes then waits behind them.
    pub(super) fn wait(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(super) fn push(&self, when: Instant, (remote, rkey): (u64, u32), bytes: Vec<u8>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let when = list.back().map_or(when, |last| last.when.max(when));
        list.push_back(HeldWrite { when, remote, rkey, bytes });
        self.any.store(true, Ordering::Release);
    }

    /// Puts what is due into its place (`now`: everything that is due then; `None`: all); whether
    /// more waits.
    pub(super) fn place(&self, regions: &Table, now: Option<Instant>) -> bool {
        if !self.wait() {
            return false;
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(one) = list.pop_front_if(|one| now.is_none_or(|now| one.when <= now)) {
            one.place(regions);
        }
        self.any.store(!list.is_empty(), Ordering::Release);
        !list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_writes_reach_memory_in_their_order() {
        let (writes, now) = (HeldWrites::default(), Instant::now());
        let regions = Table::new();
        let after = |ms| now + std::time::Duration::from_millis(ms);
        assert!(!writes.place(&regions, None) && !writes.wait());
        // The second is due earlier, but behind the first.
        writes.push(after(20), (0, 0), vec![1]);
        writes.push(after(10), (0, 0), vec![2]);
        assert!(writes.wait() && writes.place(&regions, Some(after(19))));
        assert!(!writes.place(&regions, Some(after(20))) && !writes.wait());
        writes.push(after(99), (0, 0), vec![3]);
        assert!(!writes.place(&regions, None), "all that wait");
    }

    #[test]
    fn delayed_datagrams_are_sent_when_they_are_due() {
        let (delayed, now) = (DelayedDatagrams::default(), Instant::now());
        let after = |ms| now + std::time::Duration::from_millis(ms);
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        for ms in [30, 10, 20] {
            let bytes = vec![u8::try_from(ms).unwrap()];
            delayed.push(DelayedDatagram { when: after(ms), to, bytes });
        }
        let mut seen = Vec::new();
        assert!(delayed.send_due(after(9), |_, _| panic!("too early")));
        assert!(delayed.send_due(after(20), |_, bytes| seen.extend_from_slice(bytes)));
        assert!(!delayed.send_due(after(99), |_, bytes| seen.extend_from_slice(bytes)));
        assert_eq!(seen, [10, 20, 30]);
        assert!(!delayed.send_due(after(99), |_, _| panic!("twice")));
    }
}
