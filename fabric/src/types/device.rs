//! Devices and ports: what they are, what they can do, what happens to them.

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

/// The link layer.
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

/// Largest packet of a path, payload bytes; the numbers are those of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mtu {
    /// 256 B.
    B256 = 1,
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
    const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Payload bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The MTU of so many bytes, if it is one.
    #[must_use]
    pub fn of_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The MTU that verbs calls `number`.
    pub(crate) fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| *mtu as i32 == number)
    }
}

/// A device, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name, as `mlx5_0`, `rxe0`, `soft0`.
    pub name: String,
    /// Physical ports; numbered from 1.
    pub ports: u8,
    /// Whether it speaks the InfiniBand transport (false: iWARP and others, which the conduit
    /// cannot use).
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
    /// The link layer.
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

/// To what else the atomics of a device are atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AtomicCap {
    /// It has none.
    #[default]
    None,
    /// To those that go through the same device.
    Device,
    /// Also to those of the processors.
    Global,
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
    /// Scatter entries of a read, at most as many.
    pub max_sge_rd: u32,
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
    /// Fetch-and-add and compare-and-swap on remote memory.
    pub atomics: AtomicCap,
    /// Extended reliable connections; without them [`crate::Device::xrc_domain`] says what is
    /// missing.
    pub xrc: bool,
    /// On-demand paging for reliable connections (send, receive, write, read), also of all memory at
    /// once.
    pub odp: bool,
    /// Inline bytes that cost less than a registered buffer on this device, whatever its limit; 0:
    /// no opinion.
    pub cheap_inline: u32,
    /// A poll of an empty completion queue makes no system call.
    pub cheap_poll: bool,
}

impl Caps {
    /// Whether there are atomics.
    #[must_use]
    pub fn has_atomics(&self) -> bool {
        self.atomics != AtomicCap::None
    }
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
