//! Work requests and completions.

use std::ffi::{c_int, c_uint};

use super::qp::Ah;

/// `struct ibv_sge`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `wr.rdma` of `struct ibv_send_wr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct WrRdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

/// `wr.atomic` of `struct ibv_send_wr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct WrAtomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

impl WrAtomic {
    /// All zero, so that the whole union is written.
    pub(crate) const NONE: Self = Self { remote_addr: 0, compare_add: 0, swap: 0, rkey: 0 };
}

/// `wr.ud` of `struct ibv_send_wr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct WrUd {
    pub(crate) ah: *mut Ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

/// `wr` of `struct ibv_send_wr`.
#[repr(C)]
pub(crate) union WrTarget {
    pub(crate) rdma: WrRdma,
    pub(crate) atomic: WrAtomic,
    pub(crate) ud: WrUd,
}

/// `struct ibv_send_wr`. `rest` are memory windows and segmentation offload.
#[repr(C)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    pub(crate) imm_data: u32,
    pub(crate) wr: WrTarget,
    pub(crate) remote_srqn: u32,
    pub(crate) rest: [u64; 6],
}

pub(crate) const WR_RDMA_WRITE: c_int = 0;
pub(crate) const WR_SEND: c_int = 2;
pub(crate) const WR_SEND_WITH_IMM: c_int = 3;
pub(crate) const WR_RDMA_READ: c_int = 4;
pub(crate) const WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
pub(crate) const SEND_SIGNALED: c_uint = 2;
pub(crate) const SEND_INLINE: c_uint = 8;

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
}

/// `struct ibv_wc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

impl Wc {
    pub(crate) const EMPTY: Self = Self {
        wr_id: 0,
        status: 0,
        opcode: 0,
        vendor_err: 0,
        byte_len: 0,
        imm_data: 0,
        qp_num: 0,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    };
}

pub(crate) const WC_WITH_IMM: c_uint = 2;
