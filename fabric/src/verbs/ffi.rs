//! The part of libibverbs' binary interface that is used: layouts and numbers of
//! `infiniband/verbs.h`, which rdma-core keeps stable. `tests/layout.rs` compares them with the
//! installed header.
//!
//! Enumerations of C are integers here: the library may know values that this file does not.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;

use libc::{pthread_cond_t, pthread_mutex_t};

/// Declares structures as a header of C does: a type, then the fields of it. All fields are
/// numbers, pointers, optional functions or structures of these, so that zeros are a value.
macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident { $($kind:ty: $($field:ident),+;)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $name { $($(pub(crate) $field: $kind,)+)* }

        impl $name {
            #[allow(dead_code, reason = "the library makes most of them")]
            // SAFETY: zeros are a value, see above; a mutex or a condition of zeros is a new one.
            pub(crate) const ZERO: Self = unsafe { MaybeUninit::zeroed().assume_init() };
        }
    )* };
}

structs! {
    /// `struct ibv_device`. Only read.
    Device {
        [*mut c_void; 2]: obsolete;
        c_int: node_type, transport_type;
        [c_char; 64]: name, dev_name;
        [c_char; 256]: dev_path, ibdev_path;
    }
    /// `struct ibv_context_ops`: what the header's inline functions call.
    ContextOps {
        [*mut c_void; 11]: compat_before_poll;
        Option<PollCq>: poll_cq;
        Option<ReqNotifyCq>: req_notify_cq;
        [*mut c_void; 7]: compat_before_srq;
        Option<PostSrqRecv>: post_srq_recv;
        [*mut c_void; 4]: compat_before_post;
        Option<PostSend>: post_send;
        Option<PostRecv>: post_recv;
        [*mut c_void; 5]: compat_after;
    }
    /// `struct ibv_context`.
    Context {
        *mut Device: device;
        ContextOps: ops;
        c_int: cmd_fd, async_fd, num_comp_vectors;
        pthread_mutex_t: mutex;
        *mut c_void: abi_compat;
    }
    /// What extended reliable connections need of `struct verbs_context`; the entries follow each
    /// other.
    XrcFunctions {
        Option<OpenQp>: open_qp;
        Option<CreateQpEx>: create_qp_ex;
        Option<GetSrqNum>: get_srq_num;
        Option<CreateSrqEx>: create_srq_ex;
        Option<OpenXrcd>: open_xrcd;
        Option<CloseXrcd>: close_xrcd;
    }
    /// The end of `struct verbs_context`, which grows at its beginning and is addressed from its
    /// end.
    VerbsContextTail {
        Option<QueryDeviceEx>: query_device_ex;
        [*mut c_void; 4]: between;
        XrcFunctions: xrc;
        u64: placeholder;
        usize: size;
        Context: context;
    }
    /// `struct ibv_xrcd_init_attr`.
    XrcdInitAttr {
        u32: comp_mask;
        c_int: fd, oflags;
    }
    /// `struct ibv_device_attr`.
    DeviceAttr {
        [c_char; 64]: fw_ver;
        u64: node_guid, sys_image_guid, max_mr_size, page_size_cap;
        u32: vendor_id, vendor_part_id, hw_ver;
        c_int: max_qp, max_qp_wr;
        c_uint: device_cap_flags;
        c_int: max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom,
            max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
            max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
            max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr,
            max_srq_sge;
        u16: max_pkeys;
        u8: local_ca_ack_delay, phys_port_cnt;
    }
    /// `struct ibv_odp_caps`.
    OdpCaps {
        u64: general_caps;
        u32: rc_odp_caps, uc_odp_caps, ud_odp_caps;
    }
    /// The beginning of `struct ibv_device_attr_ex`; the library is told how much of it there is.
    DeviceAttrEx {
        DeviceAttr: orig_attr;
        u32: comp_mask;
        OdpCaps: odp_caps;
    }
    /// `struct ibv_port_attr`.
    PortAttr {
        c_int: state, max_mtu, active_mtu, gid_tbl_len;
        u32: port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
        u16: pkey_tbl_len, lid, sm_lid;
        u8: lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed,
            phys_state, link_layer, flags;
        u16: port_cap_flags2;
    }
    /// `struct ibv_gid_entry`.
    GidEntry {
        Gid: gid;
        u32: gid_index, port_num, gid_type, ndev_ifindex;
    }
    /// `struct ibv_async_event`.
    AsyncEvent {
        EventElement: element;
        c_int: event_type;
    }
    /// `struct ibv_pd`.
    Pd {
        *mut Context: context;
        u32: handle;
    }
    /// `struct ibv_mr`.
    Mr {
        *mut Context: context;
        *mut Pd: pd;
        *mut c_void: addr;
        usize: length;
        u32: handle, lkey, rkey;
    }
    /// `struct ibv_comp_channel`.
    CompChannel {
        *mut Context: context;
        c_int: fd, refcnt;
    }
    /// `struct ibv_cq`.
    Cq {
        *mut Context: context;
        *mut CompChannel: channel;
        *mut c_void: cq_context;
        u32: handle;
        c_int: cqe;
        pthread_mutex_t: mutex;
        pthread_cond_t: cond;
        u32: comp_events_completed, async_events_completed;
    }
    /// `struct ibv_srq`.
    Srq {
        *mut Context: context;
        *mut c_void: srq_context;
        *mut Pd: pd;
        u32: handle;
        pthread_mutex_t: mutex;
        pthread_cond_t: cond;
        u32: events_completed;
    }
    /// `struct ibv_srq_init_attr` with its `struct ibv_srq_attr`.
    SrqInitAttr {
        *mut c_void: srq_context;
        u32: max_wr, max_sge, srq_limit;
    }
    /// `struct ibv_srq_init_attr_ex` with its `struct ibv_srq_attr`.
    SrqInitAttrEx {
        *mut c_void: srq_context;
        u32: max_wr, max_sge, srq_limit, comp_mask;
        c_int: srq_type;
        *mut Pd: pd;
        *mut c_void: xrcd;
        *mut Cq: cq;
        [u32; 2]: tag_matching;
    }
    /// `struct ibv_qp`.
    Qp {
        *mut Context: context;
        *mut c_void: qp_context;
        *mut Pd: pd;
        *mut Cq: send_cq, recv_cq;
        *mut Srq: srq;
        u32: handle, qp_num;
        c_int: state, qp_type;
        pthread_mutex_t: mutex;
        pthread_cond_t: cond;
        u32: events_completed;
    }
    /// `struct ibv_qp_cap`.
    QpCap {
        u32: max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
    }
    /// `struct ibv_qp_init_attr`.
    QpInitAttr {
        *mut c_void: qp_context;
        *mut Cq: send_cq, recv_cq;
        *mut Srq: srq;
        QpCap: cap;
        c_int: qp_type, sq_sig_all;
    }
    /// `struct ibv_qp_init_attr_ex`. `rest` is about raw packets and hashes.
    QpInitAttrEx {
        *mut c_void: qp_context;
        *mut Cq: send_cq, recv_cq;
        *mut Srq: srq;
        QpCap: cap;
        c_int: qp_type, sq_sig_all;
        u32: comp_mask;
        *mut Pd: pd;
        *mut c_void: xrcd;
        [u64; 7]: rest;
    }
    /// `struct ibv_qp_open_attr`.
    QpOpenAttr {
        u32: comp_mask, qp_num;
        *mut c_void: xrcd, qp_context;
        c_int: qp_type;
    }
    /// `struct ibv_global_route`.
    GlobalRoute {
        Gid: dgid;
        u32: flow_label;
        u8: sgid_index, hop_limit, traffic_class;
    }
    /// `struct ibv_ah_attr`.
    AhAttr {
        GlobalRoute: grh;
        u16: dlid;
        u8: sl, src_path_bits, static_rate, is_global, port_num;
    }
    /// `struct ibv_ah`.
    Ah {
        *mut Context: context;
        *mut Pd: pd;
        u32: handle;
    }
    /// `struct ibv_qp_attr`.
    QpAttr {
        c_int: qp_state, cur_qp_state, path_mtu, path_mig_state;
        u32: qkey, rq_psn, sq_psn, dest_qp_num;
        c_uint: qp_access_flags;
        QpCap: cap;
        AhAttr: ah_attr, alt_ah_attr;
        u16: pkey_index, alt_pkey_index;
        u8: en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
            port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
        u32: rate_limit;
    }
    /// `struct ibv_sge`.
    Sge {
        u64: addr;
        u32: length, lkey;
    }
    /// `wr.rdma` of `struct ibv_send_wr`.
    WrRdma {
        u64: remote_addr;
        u32: rkey;
    }
    /// `wr.atomic` of `struct ibv_send_wr`.
    WrAtomic {
        u64: remote_addr, compare_add, swap;
        u32: rkey;
    }
    /// `wr.ud` of `struct ibv_send_wr`.
    WrUd {
        *mut Ah: ah;
        u32: remote_qpn, remote_qkey;
    }
    /// `struct ibv_send_wr`. `rest` are memory windows and segmentation offload.
    SendWr {
        u64: wr_id;
        *mut SendWr: next;
        *mut Sge: sg_list;
        c_int: num_sge, opcode;
        c_uint: send_flags;
        u32: imm_data;
        WrTarget: wr;
        u32: remote_srqn;
        [u64; 6]: rest;
    }
    /// `struct ibv_recv_wr`.
    RecvWr {
        u64: wr_id;
        *mut RecvWr: next;
        *mut Sge: sg_list;
        c_int: num_sge;
    }
    /// `struct ibv_wc`.
    Wc {
        u64: wr_id;
        c_int: status, opcode;
        u32: vendor_err, byte_len, imm_data, qp_num, src_qp;
        c_uint: wc_flags;
        u16: pkey_index, slid;
        u8: sl, dlid_path_bits;
    }
}

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

/// `wr` of `struct ibv_send_wr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union WrTarget {
    pub(crate) rdma: WrRdma,
    pub(crate) atomic: WrAtomic,
    pub(crate) ud: WrUd,
}

/// Names the functions that tables of the library point at.
macro_rules! functions {
    ($($name:ident($($argument:ty),+) -> $result:ty;)*) => {
        $(pub(crate) type $name = unsafe extern "C" fn($($argument),+) -> $result;)*
    };
}

functions! {
    PollCq(*mut Cq, c_int, *mut Wc) -> c_int;
    ReqNotifyCq(*mut Cq, c_int) -> c_int;
    PostSrqRecv(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int;
    PostSend(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int;
    PostRecv(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int;
    QueryDeviceEx(*mut Context, *const c_void, *mut DeviceAttrEx, usize) -> c_int;
    OpenXrcd(*mut Context, *mut XrcdInitAttr) -> *mut c_void;
    CloseXrcd(*mut c_void) -> c_int;
    CreateSrqEx(*mut Context, *mut SrqInitAttrEx) -> *mut Srq;
    GetSrqNum(*mut Srq, *mut u32) -> c_int;
    CreateQpEx(*mut Context, *mut QpInitAttrEx) -> *mut Qp;
    OpenQp(*mut Context, *mut QpOpenAttr) -> *mut Qp;
}

/// Declares constants: the type of an enumeration, then its values that are used.
macro_rules! constants {
    ($($kind:ty: $($name:ident = $value:expr),+;)*) => {
        $($(pub(crate) const $name: $kind = $value;)+)*
    };
}

constants! {
    c_int: TRANSPORT_IB = 0;
    c_uint: DEVICE_XRC = 1 << 20;
    c_int: ATOMIC_NONE = 0, ATOMIC_GLOB = 2;
    // Of some memory, and of all memory at once.
    u32: ODP_SUPPORT = 3;
    c_int: ACCESS_LOCAL_WRITE = 1, ACCESS_ON_DEMAND = 1 << 6;
    u32: ODP_SEND_RECV_WRITE_READ = 15;
    c_int: PORT_NOP = 0, PORT_DOWN = 1, PORT_ACTIVE = 4;
    u8: LINK_LAYER_UNSPECIFIED = 0, LINK_LAYER_INFINIBAND = 1, LINK_LAYER_ETHERNET = 2;
    u32: GID_TYPE_ROCE_V2 = 2;
    c_int: EVENT_CQ_ERR = 0, EVENT_QP_FATAL = 1, EVENT_QP_REQ_ERR = 2, EVENT_QP_ACCESS_ERR = 3;
    c_int: EVENT_DEVICE_FATAL = 8, EVENT_PORT_ACTIVE = 9, EVENT_PORT_ERR = 10;
    c_int: SRQT_XRC = 1;
    c_int: QPT_RC = 2, QPT_UD = 4, QPT_XRC_SEND = 9, QPT_XRC_RECV = 10;
    c_int: WR_RDMA_WRITE = 0, WR_RDMA_WRITE_WITH_IMM = 1, WR_SEND = 2, WR_SEND_WITH_IMM = 3, WR_RDMA_READ = 4;
    c_int: WR_ATOMIC_CMP_AND_SWP = 5, WR_ATOMIC_FETCH_AND_ADD = 6;
    c_uint: SEND_SIGNALED = 2, SEND_INLINE = 8;
    c_uint: WC_WITH_IMM = 2;
    // Members of a structure that are there, as their names say.
    u32: XRCD_FD_AND_FLAGS = 3, QP_INIT_XRCD = 2, QP_OPEN_NUMBER_DOMAIN_AND_TYPE = 11;
    u32: SRQ_INIT_TYPE_PD_DOMAIN_AND_CQ = 15;
}

/// Bits of `enum ibv_qp_attr_mask`, and all of them with their names.
pub(crate) mod mask {
    use std::ffi::c_int;

    macro_rules! bits {
        ($($name:ident = $bit:literal,)*) => {
            $(pub(crate) const $name: c_int = 1 << $bit;)*
            pub(crate) const NAMES: &[(c_int, &str)] = &[$(($name, stringify!($name))),*];
        };
    }

    bits! {
        STATE = 0,
        ACCESS_FLAGS = 3,
        PKEY_INDEX = 4,
        PORT = 5,
        QKEY = 6,
        AV = 7,
        PATH_MTU = 8,
        TIMEOUT = 9,
        RETRY_CNT = 10,
        RNR_RETRY = 11,
        RQ_PSN = 12,
        MAX_QP_RD_ATOMIC = 13,
        MIN_RNR_TIMER = 15,
        SQ_PSN = 16,
        MAX_DEST_RD_ATOMIC = 17,
        DEST_QPN = 20,
    }
}
