//! Values that both fabrics speak in. Names and meanings are those of InfiniBand verbs.

use std::sync::Arc;

use crate::device::{AddressHandle, CompletionQueue, SharedReceiveQueue};

/// A global identifier of a port: an IPv6 address, or an IPv4 one mapped into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The address as text.
    #[must_use]
    pub fn ip(self) -> std::net::IpAddr {
        let v6 = std::net::Ipv6Addr::from(self.0);
        v6.to_ipv4_mapped().map_or(std::net::IpAddr::V6(v6), std::net::IpAddr::V4)
    }

    /// The identifier of an address.
    #[must_use]
    pub fn of(ip: std::net::IpAddr) -> Self {
        match ip {
            std::net::IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            std::net::IpAddr::V6(v6) => Self(v6.octets()),
        }
    }

    /// All zero: an unused entry of the table.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == [0; 16]
    }
}

/// What a GID entry speaks on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand, or `RoCE` version 1.
    IbOrRoceV1,
    /// `RoCE` version 2: UDP over IP.
    RoceV2,
    /// The software adapter.
    Soft,
}

/// One used entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Position in the table.
    pub index: u8,
    /// The identifier.
    pub gid: Gid,
    /// Its protocol.
    pub kind: GidKind,
}

/// Below the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// Addressed by LID (and GID with a GRH).
    InfiniBand,
    /// `RoCE`: addressed by GID only.
    Ethernet,
}

/// State of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// Link, not configured yet (INIT, ARMED, ACTIVE_DEFER).
    Init,
    /// Usable.
    Active,
}

/// Largest packet of a path, payload bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mtu {
    /// 256 B.
    B256,
    /// 512 B.
    B512,
    /// 1 KiB.
    B1024,
    /// 2 KiB.
    B2048,
    /// 4 KiB.
    B4096,
}

impl Mtu {
    /// Payload bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B256 => 256,
            Self::B512 => 512,
            Self::B1024 => 1024,
            Self::B2048 => 2048,
            Self::B4096 => 4096,
        }
    }

    /// The MTU of so many bytes, if it is one.
    #[must_use]
    pub const fn of_bytes(bytes: u32) -> Option<Self> {
        Some(match bytes {
            256 => Self::B256,
            512 => Self::B512,
            1024 => Self::B1024,
            2048 => Self::B2048,
            4096 => Self::B4096,
            _ => return None,
        })
    }
}

/// A device, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name, as `mlx5_0`, `rxe0`, `soft0`.
    pub name: String,
    /// Physical ports; numbered from 1.
    pub ports: u8,
    /// Whether it speaks the InfiniBand transport (false: iWARP and others, which the conduit cannot use).
    pub ib_transport: bool,
    /// NUMA node, where known.
    pub numa: Option<u32>,
}

/// A port as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Number, from 1.
    pub number: u8,
    /// State.
    pub state: PortState,
    /// Below the transport.
    pub link: LinkLayer,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// MTU in use.
    pub active_mtu: Mtu,
    /// Greatest message, bytes.
    pub max_message: u32,
    /// Used GID entries, ascending index.
    pub gids: Vec<GidEntry>,
    /// Partition keys, position = index.
    pub pkeys: Vec<u16>,
    /// Where the software adapter listens (port number of TCP and UDP); 0 on real ports.
    pub service: u16,
}

/// What a device can do. What is `false` or 0 must not be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests in one direction of a queue pair.
    pub max_qp_wr: u32,
    /// Gather or scatter entries of a work request.
    pub max_sge: u32,
    /// Completion queue entries.
    pub max_cqe: u32,
    /// Registered regions.
    pub max_mr: u32,
    /// Bytes of one region.
    pub max_mr_size: u64,
    /// Reads and atomics in flight towards a queue pair of this device.
    pub max_rd_atom: u8,
    /// Reads and atomics in flight from a queue pair of this device.
    pub max_init_rd_atom: u8,
    /// Receive requests of a shared receive queue; 0: there are none.
    pub max_srq_wr: u32,
    /// Scatter entries in a shared receive queue.
    pub max_srq_sge: u32,
    /// Fetch-and-add on remote memory.
    pub atomics: bool,
    /// Extended reliable connections; without them [`crate::Device::xrc_domain`] says what is missing.
    pub xrc: bool,
    /// On-demand paging for reliable connections: send, receive, write, read.
    pub odp: bool,
    /// Inline bytes that cost less than a registered buffer on this device, whatever its limit; 0: no opinion.
    pub cheap_inline: u32,
    /// A look at an empty completion queue makes no system call.
    pub cheap_poll: bool,
}

/// What peers and the device may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u32);

impl Access {
    /// The device may only read it on behalf of local requests.
    pub const NONE: Self = Self(0);
    /// Receives and reads may write into it.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write. Needs `LOCAL_WRITE`.
    pub const REMOTE_WRITE: Self = Self(2);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(4);
    /// Peers may do atomics. Needs `LOCAL_WRITE`.
    pub const REMOTE_ATOMIC: Self = Self(8);
    /// All of the above.
    pub const ALL: Self = Self(15);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable datagrams.
    Ud,
    /// The sending half of an extended reliable connection: each request names a receive queue of the peer's host
    /// ([`crate::QueuePair::post_send_to`]). Its `recv_cq` is not used. Where [`Caps::xrc`].
    XrcSend,
    /// The receiving half: never in a [`QpSpec`], made by [`crate::XrcDomain::receiver`].
    XrcRecv,
}

/// State of a queue pair, as the InfiniBand specification names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Made.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Failed; posted work is flushed with errors.
    Error,
}

/// What to make a queue pair with. Completion queues and the shared receive queue must be of the same device.
#[derive(Clone)]
pub struct QpSpec<'a> {
    /// Reliable or datagram.
    pub qp_type: QpType,
    /// Where ends of sends are reported.
    pub send_cq: &'a Arc<dyn CompletionQueue>,
    /// Where ends of receives are reported.
    pub recv_cq: &'a Arc<dyn CompletionQueue>,
    /// Receives come from here; then `max_recv` is 0.
    pub srq: Option<&'a Arc<dyn SharedReceiveQueue>>,
    /// Send requests that may be posted at once.
    pub max_send: u32,
    /// Receive requests that may be posted at once.
    pub max_recv: u32,
    /// Gather entries of a send request.
    pub send_sge: u32,
    /// Scatter entries of a receive request.
    pub recv_sge: u32,
    /// Inline bytes wanted; what was got is [`crate::QueuePair::max_inline`], which may be less.
    pub inline: u32,
}

/// Where a port is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Address {
    /// Local identifier (InfiniBand).
    pub lid: u16,
    /// [`PortInfo::service`] of the peer (software adapter).
    pub service: u16,
    /// Global identifier; used when `global`.
    pub gid: Gid,
    /// Position of the *own* GID in the own port's table; sent in the GRH.
    pub sgid_index: u8,
    /// Address by GID with a GRH. Always so on Ethernet and on the software adapter.
    pub global: bool,
}

/// Retransmission on a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// 4.096 µs × 2^n until a packet is sent again; 0: for ever.
    pub timeout: u8,
    /// How often a packet is sent again, at most 7.
    pub count: u8,
    /// How often a send to a receiver without a posted buffer is tried again; 7: for ever.
    pub rnr: u8,
    /// Wait between such tries: index into the table of RNR timers.
    pub rnr_timer: u8,
}

impl Default for Retry {
    fn default() -> Self {
        Self { timeout: 18, count: 7, rnr: 7, rnr_timer: 6 }
    }
}

/// The other end of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcPeer {
    /// Its port.
    pub address: Address,
    /// Its queue pair number.
    pub qpn: u32,
    /// First packet sequence number that it sends, 24 bits.
    pub psn: u32,
    /// Path MTU.
    pub mtu: Mtu,
    /// Reads and atomics in flight that it may have towards this queue pair.
    pub rd_atom: u8,
}

/// A piece of local memory, by the key of the region that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address in this process.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// [`crate::Region::lkey`].
    pub lkey: u32,
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message into the peer's next receive buffer.
    Send {
        /// 32 bits beside it.
        imm: Option<u32>,
    },
    /// A write to remote memory.
    Write {
        /// Address at the peer.
        remote: u64,
        /// [`crate::Region::rkey`] at the peer.
        rkey: u32,
    },
    /// A read from remote memory into the (local, writable) data.
    Read {
        /// Address at the peer.
        remote: u64,
        /// Key at the peer.
        rkey: u32,
    },
    /// Adds to a remote 8-byte word; its old value goes to the (local, writable, 8 bytes) data.
    FetchAdd {
        /// Address at the peer, a multiple of 8.
        remote: u64,
        /// Key at the peer.
        rkey: u32,
        /// What to add.
        add: u64,
    },
}

/// Data of a send request.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Pieces of registered memory, not to be changed until completion.
    Gather(&'a [Sge]),
    /// Bytes that are taken during the post, in this order; together at most [`crate::QueuePair::max_inline`]. Not for reads
    /// and atomics.
    Inline(&'a [&'a [u8]]),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub struct UdTarget<'a> {
    /// Its port.
    pub handle: &'a dyn AddressHandle,
    /// Its queue pair.
    pub qpn: u32,
    /// Its key.
    pub qkey: u32,
}

/// A send request.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// With what.
    pub data: Data<'a>,
    /// Whether success makes a completion. Failure always does. (A send queue slot of an unsignalled request is free when a
    /// later signalled one completes.)
    pub signaled: bool,
    /// For datagrams only, and always for them.
    pub to: Option<UdTarget<'a>>,
}

/// A receive request. A datagram's first 40 bytes are a GRH (or undefined).
#[derive(Clone, Copy, Debug)]
pub struct RecvWr {
    /// Comes back in the completion.
    pub id: u64,
    /// Where to.
    pub buffer: Sge,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Well.
    Success,
    /// The message was longer than the buffer.
    LocalLength,
    /// The queue pair was in a wrong state, or an internal error.
    LocalQp,
    /// A local key did not cover the data.
    LocalProtection,
    /// The queue pair failed before; this request was not done.
    Flushed,
    /// A bad message at the peer.
    RemoteInvalid,
    /// A remote key did not cover the range, or did not allow it.
    RemoteAccess,
    /// The peer could not complete it.
    RemoteOperation,
    /// The peer did not answer.
    RetryExceeded,
    /// The peer had no receive buffer.
    RnrRetryExceeded,
    /// Anything else, by the number that verbs gives it.
    Other(u32),
}

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A send.
    Send,
    /// A write.
    Write,
    /// A read.
    Read,
    /// A fetch-and-add.
    FetchAdd,
    /// A receive.
    Receive,
}

/// The end of a work request. When `status` is not success only `id`, `status`, `qpn` and `vendor` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// As posted.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub opcode: Opcode,
    /// Bytes received (a datagram's with its 40 bytes of GRH).
    pub len: u32,
    /// Immediate data of a received message.
    pub imm: Option<u32>,
    /// The local queue pair.
    pub qpn: u32,
    /// A datagram's sender.
    pub source_qpn: u32,
    /// The vendor's detail of an error.
    pub vendor: u32,
}

impl Completion {
    /// Room to poll into.
    pub const EMPTY: Self = Self {
        id: 0,
        status: Status::Success,
        opcode: Opcode::Send,
        len: 0,
        imm: None,
        qpn: 0,
        source_qpn: 0,
        vendor: 0,
    };
}

/// Something that happened to a device by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// A port came up.
    PortActive {
        /// Which.
        port: u8,
    },
    /// A port went down.
    PortDown {
        /// Which.
        port: u8,
    },
    /// A queue pair failed.
    QpFatal {
        /// Which.
        qpn: u32,
    },
    /// A completion queue overflowed.
    CqError,
    /// The device is gone.
    DeviceFatal,
    /// Something else, by the number that verbs gives it.
    Other(u32),
}
