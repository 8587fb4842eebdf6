//! Types and constants of the headers, as Rust sees them. Layouts are checked from C by the header
//! tests.

use std::ffi::{c_char, c_int, c_uint, c_void};

use gasnet_ibv::inner::Foreign;

pub type Flags = u32;
pub type EventValue = usize;
/// What a program names a team, client, endpoint or segment by; never followed.
pub type Handle = *const c_void;
pub type Token = *mut c_void;

pub const IMMEDIATE: Flags = 1;
/// Of vectors: `GEX_FLAG_ENABLE_LEAF_LC`.
pub const ENABLE_LEAF_LC: Flags = 1 << 11;
pub const LEAST_CLIENT: Flags = 1 << 11;
pub const LEAST_ALLOC: Flags = 1 << 12;
/// `GEXI_COMMIT_MUST`: a commit without `_v2`, which has no result.
pub const COMMIT_MUST: Flags = 1 << 31;
/// Flags that make an address an offset.
pub const SEG_OFFSET: Flags = 1 << 6 | 1 << 10;

pub const USES_GASNET1: Flags = 1;
pub const DEFER_THREADS: Flags = 2;
/// `GEX_THREAD_ROLE_RCV`, `GEX_THREAD_ROLE_SND`.
pub const THREAD_ROLES: [c_uint; 2] = [1, 2];

/// Categories of handlers, as bits that the conduit has too.
pub const AM_SHORT: u8 = Foreign::SHORT;
pub const AM_MEDIUM: u8 = Foreign::MEDIUM;
pub const AM_LONG: u8 = Foreign::LONG;
pub const AM_CATEGORIES: u8 = AM_SHORT | AM_MEDIUM | AM_LONG;
pub const AM_REQUEST: Flags = 8;
pub const AM_REPLY: Flags = 16;

/// Special values of a pointer to an event.
pub const EVENT_NOW: usize = 1;
pub const EVENT_DEFER: usize = 2;
pub const EVENT_GROUP: usize = 3;

pub const RANK_INVALID: u32 = u32::MAX;
pub const MAX_EPS: usize = 33;
pub const CAPABILITY_RMA: u32 = 1;
pub const CAPABILITY_ALL: u32 = 31;

/// `GEX_MK_HOST`.
pub const MK_HOST: usize = 1;

pub const TI_ALL: c_uint = 31;

/// `gex_AM_Entry_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    pub index: u8,
    pub function: Option<unsafe extern "C" fn()>,
    pub flags: Flags,
    pub nargs: c_uint,
    pub cdata: *const c_void,
    pub name: *const c_char,
}

impl Entry {
    /// What categories of messages the handler takes.
    pub const fn categories(&self) -> u8 {
        self.flags.to_le_bytes()[0] & AM_CATEGORIES
    }
}

/// `gasnet_handlerentry_t`.
#[repr(C)]
pub struct OldEntry {
    pub index: u8,
    pub function: Option<unsafe extern "C" fn()>,
}

/// `gex_Token_Info_t`.
#[repr(C)]
pub struct TokenInfo {
    pub srcrank: u32,
    pub ep: Handle,
    pub entry: *const Entry,
    pub is_req: c_int,
    pub is_long: c_int,
}

/// `gex_EP_Location_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub rank: u32,
    pub index: u16,
}

/// `gex_Memvec_t`.
#[repr(C)]
pub struct MemVec {
    pub address: *mut c_void,
    pub len: usize,
}

/// `gasnet_seginfo_t`.
#[repr(C)]
pub struct SegInfo {
    pub addr: usize,
    pub size: usize,
}

/// `gasnet_nodeinfo_t`.
#[repr(C)]
pub struct NodeInfo {
    pub host: u32,
    pub supernode: u32,
    pub offset: usize,
    pub reserved: usize,
}
