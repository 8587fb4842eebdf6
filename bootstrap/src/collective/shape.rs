//! What a rank says when it begins a call.

use crate::frame::{Frame, Kind, MAX_TOTAL};
use crate::rank::Rank;

/// Must agree between ranks (broadcasts inside a host or neighbourhood: inside the group).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// Bytes stated.
    pub(super) total: u64,
    /// Root of a broadcast, else 0.
    pub(super) root: u32,
}

impl Shape {
    pub(super) const NONE: Self = Self { kind: Kind::Barrier, total: 0, root: 0 };

    pub(super) fn of(frame: &Frame<'_>) -> Self {
        let (kind, total) = (frame.kind, u64::from(frame.total));
        match kind {
            Kind::Barrier => Self { kind, total: 0, root: 0 },
            Kind::HostMemory => Self { kind, total: total | u64::from(frame.extra) << 32, root: 0 },
            Kind::Broadcast | Kind::NbrhdBroadcast | Kind::HostBroadcast => {
                Self { kind, total, root: frame.arg }
            }
            _ => Self { kind, total, root: 0 },
        }
    }

    /// Bytes that `rank` has to send in this call.
    pub(super) fn gives(self, rank: Rank) -> usize {
        let gives = match self.kind {
            Kind::Exchange | Kind::Alltoall => true,
            Kind::Broadcast | Kind::NbrhdBroadcast | Kind::HostBroadcast => self.root == rank.0,
            _ => false,
        };
        // Below MAX_TOTAL for these kinds, see `Frame::decode`.
        if gives { self.len() } else { 0 }
    }

    /// Bytes stated, for kinds whose data fit into memory.
    pub(super) fn len(self) -> usize {
        usize::try_from(self.total).unwrap_or(usize::MAX)
    }

    /// Whether root and length are a matter of each host or neighbourhood.
    pub(super) const fn is_grouped(self) -> bool {
        matches!(self.kind, Kind::NbrhdBroadcast | Kind::HostBroadcast)
    }

    /// Whether the call needs no rank of another host.
    pub(super) const fn stays_on_host(self) -> bool {
        self.is_grouped() || matches!(self.kind, Kind::HostMemory)
    }

    /// Whether one call can be joined by the ranks that say `self` and `other`.
    pub(super) fn joins(self, other: Self) -> bool {
        if self.is_grouped() { self.kind == other.kind } else { self == other }
    }

    /// What can be said without looking at the other ranks of a job of `size`; `near` tells ranks
    /// of the caller's host.
    pub(super) fn check_alone(self, size: u32, near: impl Fn(u32) -> bool) -> Result<(), String> {
        let gathers = matches!(self.kind, Kind::Exchange | Kind::Alltoall);
        if gathers && self.total.saturating_mul(u64::from(size)) > MAX_TOTAL as u64 {
            return Err(format!("over {size} ranks that exceeds {MAX_TOTAL} bytes"));
        }
        if self.root >= size {
            return Err(format!("the job has {size} ranks"));
        }
        if self.is_grouped() && !near(self.root) {
            return Err("the root is on another host".to_owned());
        }
        Ok(())
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, total, root } = self;
        let name = crate::service::call_name(*kind);
        match kind {
            Kind::Barrier => write!(f, "{name}"),
            Kind::Broadcast | Kind::NbrhdBroadcast | Kind::HostBroadcast => {
                write!(f, "{name} of {total} bytes from root {root}")
            }
            _ => write!(f, "{name} of {total} bytes"),
        }
    }
}
