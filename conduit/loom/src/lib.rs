//! `loom` models of the conduit's lock-free structures: every interleaving of a few threads, with
//! the product's own files.
#![cfg(loom)]
#![allow(dead_code, reason = "models use a part of each file")]

// What the files import from the crate of this name is here.
extern crate self as bootstrap;

/// Doorbells have no part in the models.
pub mod node_shm {
    /// Stands for the rank's row in the node memory.
    #[derive(Debug)]
    pub struct RankSlot;

    impl RankSlot {
        pub(crate) fn ring_if_sleeping(&self) {}
    }
}

/// What the files import from their crate.
mod sys {
    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
    }

    pub(crate) use crate::tally;

    /// A hint to the processor: nothing to model.
    pub(crate) fn ask_to_write<T>(_: *const T) {}

    /// As [`ask_to_write`].
    pub(crate) fn ask_to_read<T>(_: *const T) {}
}

mod transport {
    pub(crate) mod message {
        pub(crate) const MAX_ARGS: usize = 16;

        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct Block {
            pub(crate) index: u32,
            pub(crate) generation: u32,
        }
    }

    pub(crate) mod shm {
        /// Zero bytes are no value of loom's atomics: rows are made here.
        #[derive(Debug)]
        pub(crate) struct Sparse<T>(Box<[T]>);

        impl<T: Default> Sparse<T> {
            pub(crate) fn new(count: usize) -> std::io::Result<Self> {
                Ok(Self((0..count).map(|_| T::default()).collect()))
            }
        }

        impl<T> std::ops::Deref for Sparse<T> {
            type Target = [T];

            fn deref(&self) -> &[T] {
                &self.0
            }
        }
    }
}

#[path = "../../src/transport/net/credits.rs"]
mod credits;
#[path = "../../src/transport/net/lockfree.rs"]
mod lockfree;
#[path = "../../src/sys/spin_lock.rs"]
mod spin_lock;
#[path = "../../src/sys/tally.rs"]
mod tally;
#[path = "../../src/transport/net/memory/uses.rs"]
mod uses;
#[path = "../../src/transport/net/flow/volume.rs"]
mod volume;

/// Structures in shared memory. What is not atomic in a slot is a cell of loom, which sees two
/// threads in it at once.
mod shm {
    #[path = "../../../src/transport/shm/arena.rs"]
    pub(crate) mod arena;
    #[path = "../../../src/transport/shm/board.rs"]
    pub(crate) mod board;
    pub(crate) mod map;
    #[path = "../../../src/transport/shm/mpsc_ring.rs"]
    pub(crate) mod mpsc_ring;
    #[path = "../../../src/transport/shm/packet.rs"]
    pub(crate) mod packet;
    pub(crate) mod slot;
    #[path = "../../../src/transport/shm/spsc_ring/mod.rs"]
    pub(crate) mod spsc_ring;

    #[cfg(test)]
    mod models;
}

#[cfg(test)]
mod models;
