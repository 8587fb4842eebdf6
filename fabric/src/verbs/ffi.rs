//! The part of libibverbs' binary interface that is used: layouts and numbers of
//! `infiniband/verbs.h`, which rdma-core keeps stable. `tests/layout.rs` compares them with the
//! installed header.
//!
//! Enumerations of C are integers here: the library may know values that these files do not.

mod device;
mod qp;
mod queues;
mod work;

pub(crate) use self::device::*;
pub(crate) use self::qp::*;
pub(crate) use self::queues::*;
pub(crate) use self::work::*;
