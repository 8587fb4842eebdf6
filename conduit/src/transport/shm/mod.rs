//! Memory shared by the ranks of a host: layout, queues, payload arenas, segments. All unsafe code
//! of the data path is in here.
#![allow(unsafe_code, reason = "the module that owns shared memory")]

mod arena;
mod board;
mod consumer;
mod doorbell;
mod endpoint;
mod host;
mod layout;
mod map;
mod mpsc_ring;
mod packet;
mod poll;
mod poll_budget;
mod segments;
mod send;
mod shm_barrier;
mod slot;
mod sparse;
mod spsc_ring;
mod words;

pub(crate) use board::{AHEAD, Board, Differs, MOST, OPERAND, Operand, Seat, TURNS, WORDS};
pub(crate) use endpoint::ShmTransport;
pub(crate) use layout::{STAGE, SegmentRow};
pub(crate) use map::SharedMemory;
pub(crate) use poll::ShmSink;
pub(crate) use segments::Segments;
pub(crate) use shm_barrier::{BarrierName, Which};
pub(crate) use sparse::Sparse;
pub(crate) use spsc_ring::{BURST_ARGS, BurstReader};
pub(crate) use words::SharedWords;
