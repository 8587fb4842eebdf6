//! Memory shared by the ranks of a host: layout, queues, payload arenas, segments. All unsafe code of the data path is
//! in here.
#![allow(unsafe_code, reason = "the module that owns shared memory")]

mod arena;
mod host;
mod lane;
mod layout;
mod map;
mod ring;
mod segments;
mod words;

pub(crate) use arena::Arena;
pub(crate) use host::{HostMemory, HostWords};
pub(crate) use lane::{LANE_ARGS, Row};
pub(crate) use lane::{LANES, Lane, Tail, lanes_of};
pub(crate) use layout::{CPU_WORDS, Control, Gate, Layout, Member, SegmentRow};
pub(crate) use map::SharedMemory;
pub(crate) use ring::{Kind, Packet, Post, Ring};
pub(crate) use segments::{Landed, Segments};
pub(crate) use words::SharedWords;
