//! Devices, contexts, ports and async events.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::qp::{Qp, QpInitAttrEx, QpOpenAttr};
use super::queues::{Cq, Srq, SrqInitAttrEx};
use super::work::{RecvWr, SendWr, Wc};

/// `struct ibv_device`. Only read.
#[repr(C)]
pub(crate) struct Device {
    pub(crate) obsolete: [*mut c_void; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
}

pub(crate) const TRANSPORT_IB: c_int = 0;

pub(crate) type PollCq = unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int;
pub(crate) type ReqNotifyCq = unsafe extern "C" fn(*mut Cq, c_int) -> c_int;
pub(crate) type PostSrqRecv =
    unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int;
pub(crate) type PostSend = unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
pub(crate) type PostRecv = unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;

/// `struct ibv_context_ops`: what the header's inline functions call.
#[repr(C)]
pub(crate) struct ContextOps {
    pub(crate) compat_before_poll: [*mut c_void; 11],
    pub(crate) poll_cq: Option<PollCq>,
    pub(crate) req_notify_cq: Option<ReqNotifyCq>,
    pub(crate) compat_before_srq: [*mut c_void; 7],
    pub(crate) post_srq_recv: Option<PostSrqRecv>,
    pub(crate) compat_before_post: [*mut c_void; 4],
    pub(crate) post_send: Option<PostSend>,
    pub(crate) post_recv: Option<PostRecv>,
    pub(crate) compat_after: [*mut c_void; 5],
}

/// `struct ibv_context`.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: libc::pthread_mutex_t,
    pub(crate) abi_compat: *mut c_void,
}

pub(crate) type QueryDeviceEx =
    unsafe extern "C" fn(*mut Context, *const c_void, *mut DeviceAttrEx, usize) -> c_int;
pub(crate) type OpenXrcd = unsafe extern "C" fn(*mut Context, *mut XrcdInitAttr) -> *mut c_void;
pub(crate) type CloseXrcd = unsafe extern "C" fn(*mut c_void) -> c_int;
pub(crate) type CreateSrqEx = unsafe extern "C" fn(*mut Context, *mut SrqInitAttrEx) -> *mut Srq;
pub(crate) type GetSrqNum = unsafe extern "C" fn(*mut Srq, *mut u32) -> c_int;
pub(crate) type CreateQpEx = unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp;
pub(crate) type OpenQp = unsafe extern "C" fn(*mut Context, *mut QpOpenAttr) -> *mut Qp;

/// What extended reliable connections need of `struct verbs_context`; the entries follow each
/// other.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct XrcFunctions {
    pub(crate) open_qp: Option<OpenQp>,
    pub(crate) create_qp_ex: Option<CreateQpEx>,
    pub(crate) get_srq_num: Option<GetSrqNum>,
    pub(crate) create_srq_ex: Option<CreateSrqEx>,
    pub(crate) open_xrcd: Option<OpenXrcd>,
    pub(crate) close_xrcd: Option<CloseXrcd>,
}

/// The end of `struct verbs_context`, which grows at its beginning and is addressed from its end.
#[repr(C)]
pub(crate) struct VerbsContextTail {
    pub(crate) query_device_ex: Option<QueryDeviceEx>,
    pub(crate) between: [*mut c_void; 4],
    pub(crate) xrc: XrcFunctions,
    pub(crate) placeholder: u64,
    pub(crate) size: usize,
    pub(crate) context: Context,
}

/// `struct ibv_xrcd_init_attr`.
#[repr(C)]
pub(crate) struct XrcdInitAttr {
    pub(crate) comp_mask: u32,
    pub(crate) fd: c_int,
    pub(crate) oflags: c_int,
}

/// Both members after `comp_mask` are there.
pub(crate) const XRCD_FD_AND_FLAGS: u32 = 3;

/// `struct ibv_device_attr`.
#[repr(C)]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_int,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub(crate) max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

pub(crate) const DEVICE_XRC: c_uint = 1 << 20;
pub(crate) const ATOMIC_NONE: c_int = 0;

/// `struct ibv_odp_caps`.
#[repr(C)]
pub(crate) struct OdpCaps {
    pub(crate) general_caps: u64,
    pub(crate) rc_odp_caps: u32,
    pub(crate) uc_odp_caps: u32,
    pub(crate) ud_odp_caps: u32,
}

pub(crate) const ODP_SUPPORT: u64 = 1;
pub(crate) const ODP_SEND_RECV_WRITE_READ: u32 = 15;

/// The beginning of `struct ibv_device_attr_ex`; the library is told how much of it there is.
#[repr(C)]
pub(crate) struct DeviceAttrEx {
    pub(crate) orig_attr: DeviceAttr,
    pub(crate) comp_mask: u32,
    pub(crate) odp_caps: OdpCaps,
}

/// `struct ibv_port_attr`.
#[repr(C)]
pub(crate) struct PortAttr {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
}

pub(crate) const PORT_NOP: c_int = 0;
pub(crate) const PORT_DOWN: c_int = 1;
pub(crate) const PORT_ACTIVE: c_int = 4;
pub(crate) const LINK_LAYER_UNSPECIFIED: u8 = 0;
pub(crate) const LINK_LAYER_INFINIBAND: u8 = 1;
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;

/// `struct ibv_gid_entry`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct GidEntry {
    pub(crate) gid: Gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

pub(crate) const GID_TYPE_ROCE_V2: u32 = 2;

/// `union ibv_gid`, with its alignment.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Gid(pub(crate) [u8; 16]);

/// `element` of `struct ibv_async_event`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union EventElement {
    pub(crate) qp: *mut Qp,
    pub(crate) object: *mut c_void,
    pub(crate) port_num: c_int,
}

/// `struct ibv_async_event`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AsyncEvent {
    pub(crate) element: EventElement,
    pub(crate) event_type: c_int,
}

pub(crate) const EVENT_CQ_ERR: c_int = 0;
pub(crate) const EVENT_QP_FATAL: c_int = 1;
pub(crate) const EVENT_QP_REQ_ERR: c_int = 2;
pub(crate) const EVENT_QP_ACCESS_ERR: c_int = 3;
pub(crate) const EVENT_DEVICE_FATAL: c_int = 8;
pub(crate) const EVENT_PORT_ACTIVE: c_int = 9;
pub(crate) const EVENT_PORT_ERR: c_int = 10;
