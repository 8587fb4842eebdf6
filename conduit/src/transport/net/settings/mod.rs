//! What of the environment the network looks at, folded out of the table of variables, with the documented floors and
//! caps. A value below a floor is refused by the table, one above a cap is cut with a warning.

use std::path::PathBuf;
use std::time::Duration;

use bootstrap::Rank;
use fabric::{Mtu, Retry};
use settings::{Env, Nodes, Values};

use super::ports::family::{self, Family};
pub(crate) mod sizes;

pub(crate) use super::xrc::XrcMode;

/// Greatest ACK timeout exponent of a queue pair.
const MOST_TIMEOUT: i64 = 31;
/// Most transport retries of a queue pair.
const MOST_RETRIES: i64 = 7;
/// Banked credits travel in 8 bits.
const MOST_SLACK: i64 = 255;
/// Bits of a partition key that tell partitions apart; the top bit tells members from guests.
const PKEY_MASK: i64 = 0x7fff;
/// Most queue pairs that a peer may have; far above what any adapter gains from.
const MOST_QPS: i64 = 64;

/// A value that the network cannot use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// One variable.
    #[error("environment variable {name}: {problem}")]
    Variable {
        /// Name.
        name: &'static str,
        /// What was seen and what is legal.
        problem: String,
    },
    /// The variables that choose ports by topology.
    #[error(transparent)]
    Family(#[from] family::Error),
}

/// `GASNET_IBV_FABRIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FabricChoice {
    /// Adapters if every rank has a usable port, else software.
    Auto,
    /// Adapters through libibverbs.
    Verbs,
    /// The software adapter.
    Soft,
}

impl FabricChoice {
    const ALL: [Self; 3] = [Self::Auto, Self::Verbs, Self::Soft];

    /// Of a value that the table of variables has taken.
    fn of(word: &str) -> Self {
        Self::ALL.into_iter().find(|one| one.name() == word).unwrap_or(Self::Auto)
    }

    /// The variable's value.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Verbs => "verbs",
            Self::Soft => "soft",
        }
    }

    /// For the exchange between ranks.
    pub(crate) const fn to_byte(self) -> u8 {
        self as u8
    }

    /// From the exchange between ranks.
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.to_byte() == byte)
    }
}

/// The software adapter: `GASNET_IBV_SOFT_*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SoftSettings {
    /// Devices, 1 to 8.
    pub devices: u8,
    /// Where it listens; `None` chooses.
    pub address: Option<SoftAddress>,
    /// `GASNETRUN_ADDRESS`: what the launcher's login came to.
    pub reached: Option<std::net::IpAddr>,
    /// Script of faults, for tests.
    pub faults: Option<String>,
}

/// `GASNET_IBV_SOFT_ADDRESS`: an address, or a network as `address/bits`. A single address is a network of all its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SoftAddress {
    /// Address.
    pub ip: std::net::IpAddr,
    /// Leading bits that count.
    pub bits: u8,
}

impl SoftAddress {
    /// Understands `10.1.2.3`, `10.1.2.0/24`, `fd00::/8`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (ip, bits) = match text.trim().split_once('/') {
            Some((ip, bits)) => (ip, Some(bits)),
            None => (text.trim(), None),
        };
        let wrong = |what: &str| {
            format!(
                "{what:?} in {text:?}; expected an address such as 10.1.2.3 or fd00::1, or a network such as 10.1.2.0/24"
            )
        };
        let ip: std::net::IpAddr = ip.parse().map_err(|_| wrong(ip))?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(text) => {
                text.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| wrong(text))?
            }
        };
        Ok(Self { ip, bits })
    }

    /// Whether an address of this host is meant.
    pub(crate) fn covers(self, other: std::net::IpAddr) -> bool {
        let number = |ip| match ip {
            std::net::IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
            std::net::IpAddr::V6(v6) => u128::from(v6),
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
        self.ip.is_ipv4() == other.is_ipv4() && (number(self.ip) ^ number(other)) & mask == 0
    }
}

/// Which ports are used and how: inputs of `net::ports`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortSettings {
    /// `GASNET_IBV_PORTS` and its family.
    pub family: Family,
    /// `GASNET_HWLOC_QUERY=process`: the binding of all threads counts, not that of the one that starts the network.
    pub whole_process: bool,
    /// `GASNET_MAXIMIZE_MEMLOCK`: the limit on locked memory is raised before devices are used.
    pub raise_locked_memory: bool,
    /// `GASNET_IBV_PORTS_VERBOSE`: 0 is silent, 1 warns, 2 says what is used, 3 says why.
    pub verbose: u32,
    /// `GASNET_IBV_LIST_PORTS`.
    pub list: bool,
    /// `GASNET_IBV_LIST_PORTS_NODES`.
    pub list_ranks: Nodes,
    /// `GASNET_IBV_PKEY` without the membership bit; `None` takes the first of the table.
    pub pkey: Option<u16>,
    /// `GASNET_IBV_GID_INDEX`; `None` chooses.
    pub gid_index: Option<u8>,
    /// `GASNET_IBV_MODEL_WARN`.
    pub model_warn: bool,
    /// `GASNET_NUM_QPS`: queue pairs for each peer, and most ports; 0 means one on each port.
    pub num_qps: u32,
    /// `GASNET_MAX_MTU`; `None` takes the port's.
    pub max_mtu: Option<Mtu>,
    /// `GASNET_QP_RD_ATOM`; 0 takes what the device can do.
    pub rd_atom: u32,
}

/// `GASNET_CONNECT*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectSettings {
    /// Connect to a peer when it is needed first.
    pub dynamic: bool,
    /// Connect at the start, to all or those in `file_in`.
    pub at_start: bool,
    /// List of peers to connect to, `%` stands for the rank.
    pub file_in: Option<PathBuf>,
    /// Where to write which peers were used, `%` stands for the rank.
    pub file_out: Option<PathBuf>,
    /// Base of the numbers in `file_out`, 2 to 36.
    pub file_base: u32,
    /// Send buffers.
    pub sends: u32,
    /// Receive buffers; `None`: see [`ConnectSettings::receives`].
    pub receives: Option<u32>,
    /// First wait before a request is sent again.
    pub retransmit_min: Duration,
    /// Longest wait.
    pub retransmit_max: Duration,
    /// About one received packet in `drop + 1` is lost for tests; 0 loses none.
    pub drop: u32,
}

impl ConnectSettings {
    /// What all ranks must have alike, because collective calls depend on it.
    pub(crate) fn ways(&self) -> ConnectWays {
        ConnectWays {
            at_start: self.at_start,
            dynamic: self.dynamic,
            one_list: self.lists_together(),
            listed: self.file_in.is_some(),
        }
    }

    /// Whether all ranks write one list at the end, which takes a collective call.
    pub(crate) fn lists_together(&self) -> bool {
        self.file_out.as_deref().is_some_and(|name| !super::connect::file::is_per_rank(name))
    }

    /// Receive buffers in a job of so many ranks: as set, else 4 + 2 * max(1, log2 of the ranks, rounded up).
    pub(crate) fn receives(&self, ranks: u32) -> u32 {
        let bits = u32::BITS - ranks.saturating_sub(1).leading_zeros();
        self.receives.unwrap_or(4 + 2 * bits.max(1))
    }
}

/// Which steps of connecting a rank takes part in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectWays {
    /// `GASNET_CONNECT_STATIC`.
    pub at_start: bool,
    /// `GASNET_CONNECT_DYNAMIC`.
    pub dynamic: bool,
    /// `GASNET_CONNECTFILE_OUT` without `%`.
    pub one_list: bool,
    /// `GASNET_CONNECTFILE_IN`.
    pub listed: bool,
}

impl ConnectWays {
    /// For the exchange between ranks.
    pub(crate) fn to_byte(self) -> u8 {
        let bits = [self.at_start, self.dynamic, self.one_list, self.listed];
        bits.into_iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(bit))
    }

    /// From the exchange between ranks.
    pub(crate) const fn from_byte(byte: u8) -> Self {
        let [at_start, dynamic] = [byte & 1 != 0, byte & 2 != 0];
        Self { at_start, dynamic, one_list: byte & 4 != 0, listed: byte & 8 != 0 }
    }

    /// In what another rank differs from this one, `me`, and what to set. `None`: they fit.
    pub(crate) fn differs(self, me: Rank, other: Self) -> Option<String> {
        let pairs = [
            (self.at_start, other.at_start, "GASNET_CONNECT_STATIC", "connections at the start"),
            (self.dynamic, other.dynamic, "GASNET_CONNECT_DYNAMIC", "connections on demand"),
            (
                self.one_list,
                other.one_list,
                "GASNET_CONNECTFILE_OUT (where a % means one file for each rank)",
                "one list of connections to write with all others",
            ),
            (self.listed, other.listed, "GASNET_CONNECTFILE_IN", "a list of whom to connect to"),
        ];
        let (_, theirs, name, what) =
            pairs.into_iter().find(|(mine, theirs, ..)| mine != theirs)?;
        let (they, mine) = if theirs { ("has", "has not") } else { ("has not", "has") };
        Some(format!("{they} {what}, rank {me} {mine}: set {name} to the same on all ranks"))
    }
}

/// How a progress thread shares a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollMode {
    /// Under the lock that all pollers take.
    Serialized,
    /// Without it.
    Unserialized,
    /// Nobody else polls.
    Exclusive,
}

/// `GASNET_RCV_THREAD*` or `GASNET_SND_THREAD*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadSettings {
    /// Whether there is one for each device.
    pub on: bool,
    /// Most wake-ups per second; 0 means any number.
    pub rate: u32,
    /// How long it polls without an event before it sleeps.
    pub idle: Duration,
    /// How it shares the queue.
    pub mode: PollMode,
}

/// `GASNET_USE_SRQ`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedReceive {
    /// If it saves memory.
    Automatic,
    /// Never.
    Never,
    /// In jobs of at least so many ranks.
    From(u32),
}

/// A total that may be left to the formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    /// Not set: the documented default.
    Default,
    /// 0: as much as the queues allow.
    Most,
    /// So many.
    Is(u32),
}

/// Depths of queues and numbers of buffers: inputs of `net::sizes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DepthSettings {
    /// `GASNET_NETWORKDEPTH_PP`.
    pub ops_per_peer: u32,
    /// `GASNET_NETWORKDEPTH_TOTAL`.
    pub ops: Total,
    /// `GASNET_AM_CREDITS_PP`.
    pub credits_per_peer: u32,
    /// `GASNET_AM_CREDITS_TOTAL`.
    pub credits: Total,
    /// `GASNET_AM_CREDITS_SLACK`.
    pub slack: u32,
    /// `GASNET_RBUF_COUNT`; 0 means what the device allows.
    pub receive_buffers: u32,
    /// `GASNET_BBUF_COUNT`; 0 means the limit of operations.
    pub bounce_buffers: u32,
    /// `GASNET_RBUF_SPARES`; `None` means one for each thread.
    pub spares: Option<u32>,
    /// `GASNET_USE_SRQ`.
    pub srq: SharedReceive,
}

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetSettings {
    /// `GASNET_IBV_FABRIC`.
    pub fabric: FabricChoice,
    /// The software adapter.
    pub soft: SoftSettings,
    /// Choice of ports.
    pub ports: PortSettings,
    /// `GASNET_QP_TIMEOUT`, `GASNET_QP_RETRY_COUNT`; receivers that are not ready are tried for ever.
    pub retry: Retry,
    /// Connections.
    pub connect: ConnectSettings,
    /// Threads for receives.
    pub receive_thread: ThreadSettings,
    /// Threads for ends of sends.
    pub send_thread: ThreadSettings,
    /// `GASNET_INLINESEND_LIMIT` in bytes; `None` takes what the device can do.
    pub inline: Option<u32>,
    /// Whether the user set the limit, so that a device's lower one is worth a warning.
    pub inline_is_set: bool,
    /// `GASNET_PACKEDLONG_LIMIT` in bytes.
    pub packed_long: u32,
    /// `GASNET_NONBULKPUT_BOUNCE_LIMIT` in bytes.
    pub put_bounce: u64,
    /// `GASNET_AM_GATHER_MIN` in bytes; `None` never gathers.
    pub gather_min: Option<u32>,
    /// Queues and buffers.
    pub depths: DepthSettings,
    /// `GASNET_USE_XRC`.
    pub xrc: XrcMode,
    /// What was cut, for rank 0 to print.
    pub warnings: Vec<String>,
}

impl NetSettings {
    /// Folds the table's values; `env` gives the members of the port family, which have no rows.
    ///
    /// # Errors
    /// A value that cannot be used, or a feature that this version does not have, by name.
    pub(crate) fn of(table: &Values, env: &Env) -> Result<Self, Error> {
        refuse(table)?;
        let mut fold = SettingsBuilder { table, warnings: Vec::new() };
        let mut settings = Self {
            fabric: FabricChoice::of(table.word("GASNET_IBV_FABRIC")),
            soft: soft(table)?,
            ports: fold.ports(env)?,
            retry: fold.retry(),
            connect: fold.connect(),
            receive_thread: fold.thread("GASNET_RCV_THREAD"),
            send_thread: fold.thread("GASNET_SND_THREAD"),
            inline: u32::try_from(table.int("GASNET_INLINESEND_LIMIT")).ok(),
            inline_is_set: table.is_set("GASNET_INLINESEND_LIMIT"),
            packed_long: narrow(table.size_or_code("GASNET_PACKEDLONG_LIMIT")),
            put_bounce: table.size("GASNET_NONBULKPUT_BOUNCE_LIMIT"),
            gather_min: u32::try_from(table.size_or_code("GASNET_AM_GATHER_MIN")).ok(),
            depths: fold.depths(),
            xrc: XrcMode {
                on: table.bool("GASNET_USE_XRC"),
                asked: table.is_set("GASNET_USE_XRC"),
            },
            warnings: Vec::new(),
        };
        settings.warnings = fold.warnings;
        Ok(settings)
    }
}

impl Default for NetSettings {
    /// What an empty environment gives.
    fn default() -> Self {
        match Self::of(&Values::default(), &Env::default()) {
            Ok(settings) => settings,
            Err(error) => unreachable!("defaults (checked by a test): {error}"),
        }
    }
}

/// What this version cannot do and must not pretend to.
fn refuse(table: &Values) -> Result<(), Error> {
    if table.bool("GASNET_USE_ODP") {
        let problem = "this version registers segments as a whole and has no paging on demand; unset it or set it to 0".to_owned();
        return Err(Error::Variable { name: "GASNET_USE_ODP", problem });
    }
    Ok(())
}

fn soft(table: &Values) -> Result<SoftSettings, Error> {
    let address = table.text("GASNET_IBV_SOFT_ADDRESS").map(|text| SoftAddress::parse(&text));
    let wrong = |problem| Error::Variable { name: "GASNET_IBV_SOFT_ADDRESS", problem };
    Ok(SoftSettings {
        devices: u8::try_from(table.int("GASNET_IBV_SOFT_DEVICES")).unwrap_or(1),
        address: address.transpose().map_err(wrong)?,
        // The agent's own word; if it is none, the address is not known.
        reached: table.text("GASNETRUN_ADDRESS").and_then(|text| text.parse().ok()),
        faults: table.text("GASNET_IBV_SOFT_FAULTS"),
    })
}

/// A number that is not negative, cut to 32 bits.
fn narrow(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// The table, and what was cut.
struct SettingsBuilder<'a> {
    table: &'a Values,
    warnings: Vec<String>,
}

impl SettingsBuilder<'_> {
    fn warn(&mut self, line: String) {
        self.warnings.push(line);
    }

    /// A count, cut to 32 bits.
    fn count(&self, name: &str) -> u32 {
        narrow(self.table.int(name))
    }

    /// A count with a documented cap.
    fn capped(&mut self, name: &str, most: i64, why: &str) -> u32 {
        let value = self.table.int(name);
        if value > most {
            self.warn(format!("{name}={value} is above {most}{why}: {most} is used"));
        }
        narrow(value.min(most))
    }

    fn total(&self, name: &str) -> Total {
        match self.count(name) {
            0 if self.table.int_opt(name).is_some() => Total::Most,
            0 => Total::Default,
            number => Total::Is(number),
        }
    }

    fn retry(&mut self) -> Retry {
        let timeout = self.capped("GASNET_QP_TIMEOUT", MOST_TIMEOUT, ", the greatest exponent");
        let count = self.capped("GASNET_QP_RETRY_COUNT", MOST_RETRIES, ", what adapters can count");
        let small = |number| u8::try_from(number).unwrap_or(u8::MAX);
        Retry { timeout: small(timeout), count: small(count), ..Retry::default() }
    }

    fn ports(&mut self, env: &Env) -> Result<PortSettings, Error> {
        let table = self.table;
        Ok(PortSettings {
            family: Family::from_env(env)?,
            whole_process: table.word("GASNET_HWLOC_QUERY") == "process",
            raise_locked_memory: table.bool("GASNET_MAXIMIZE_MEMLOCK"),
            verbose: self.count("GASNET_IBV_PORTS_VERBOSE"),
            list: table.bool("GASNET_IBV_LIST_PORTS"),
            list_ranks: table.nodes("GASNET_IBV_LIST_PORTS_NODES"),
            pkey: self.pkey()?,
            gid_index: table
                .int_opt("GASNET_IBV_GID_INDEX")
                .and_then(|index| u8::try_from(index).ok()),
            model_warn: table.bool("GASNET_IBV_MODEL_WARN"),
            num_qps: self.capped("GASNET_NUM_QPS", MOST_QPS, ""),
            max_mtu: self.mtu(),
            rd_atom: self.count("GASNET_QP_RD_ATOM"),
        })
    }

    fn pkey(&self) -> Result<Option<u16>, Error> {
        let Some(value) = self.table.int_opt("GASNET_IBV_PKEY") else { return Ok(None) };
        match u16::try_from(value & PKEY_MASK) {
            Ok(key) if key >= 2 => Ok(Some(key)),
            _ => {
                let problem = format!(
                    "{value:#x} is no partition key: without the membership bit 0x8000 it must be from 2 to {PKEY_MASK:#x}"
                );
                Err(Error::Variable { name: "GASNET_IBV_PKEY", problem })
            }
        }
    }

    fn mtu(&mut self) -> Option<Mtu> {
        let bytes = self.table.size_or_code("GASNET_MAX_MTU");
        if bytes <= 0 {
            return None;
        }
        let mtu = Mtu::of_bytes(narrow(bytes));
        if mtu.is_none() {
            self.warn(format!("GASNET_MAX_MTU={bytes} is none of 256, 512, 1024, 2048, 4096: ports keep their own MTU"));
        }
        mtu
    }

    fn connect(&mut self) -> ConnectSettings {
        const MIN: &str = "GASNET_CONNECT_RETRANS_MIN";
        const MAX: &str = "GASNET_CONNECT_RETRANS_MAX";
        let table = self.table;
        let micros = |number: i64| Duration::from_micros(u64::from(narrow(number)));
        let (mut min, mut max) = (table.int(MIN), table.int(MAX));
        if min >= max {
            let empty = Values::default();
            let preset = (empty.int(MIN), empty.int(MAX));
            self.warn(format!(
                "{MIN}={min} is not below {MAX}={max}: {} and {} µs are used",
                preset.0, preset.1
            ));
            (min, max) = preset;
        }
        let mut dynamic = table.bool("GASNET_CONNECT_DYNAMIC");
        let at_start = table.bool("GASNET_CONNECT_STATIC");
        if !dynamic && !at_start {
            self.warn("GASNET_CONNECT_STATIC and GASNET_CONNECT_DYNAMIC are both off: connections are dynamic".to_owned());
            dynamic = true;
        }
        ConnectSettings {
            dynamic,
            at_start,
            file_in: table.path("GASNET_CONNECTFILE_IN"),
            file_out: table.path("GASNET_CONNECTFILE_OUT"),
            file_base: self.count("GASNET_CONNECTFILE_BASE"),
            sends: self.count("GASNET_CONNECT_SNDS"),
            receives: table.int_opt("GASNET_CONNECT_RCVS").map(narrow),
            retransmit_min: micros(min),
            retransmit_max: micros(max),
            drop: self.count("GASNET_CONNECT_DROP_DENOM"),
        }
    }

    fn thread(&self, name: &str) -> ThreadSettings {
        let part = |suffix: &str| format!("{name}_{suffix}");
        let idle = u64::try_from(self.table.int(&part("IDLE"))).unwrap_or(0);
        ThreadSettings {
            on: self.table.bool(name),
            rate: self.count(&part("RATE")),
            idle: Duration::from_nanos(idle),
            mode: match self.table.word(&part("POLL_MODE")) {
                "unserialized" => PollMode::Unserialized,
                "exclusive" => PollMode::Exclusive,
                _ => PollMode::Serialized,
            },
        }
    }

    fn depths(&mut self) -> DepthSettings {
        let credits_per_peer = self.count("GASNET_AM_CREDITS_PP");
        let slack = i64::from(credits_per_peer.saturating_sub(1)).min(MOST_SLACK);
        let name = "GASNET_AM_CREDITS_SLACK";
        let why = " (less than GASNET_AM_CREDITS_PP and at most 255)";
        let slack = if self.table.is_set(name) {
            self.capped(name, slack, why)
        } else {
            narrow(self.table.int(name).min(slack))
        };
        DepthSettings {
            ops_per_peer: self.count("GASNET_NETWORKDEPTH_PP"),
            ops: self.total("GASNET_NETWORKDEPTH_TOTAL"),
            credits_per_peer,
            credits: self.total("GASNET_AM_CREDITS_TOTAL"),
            slack,
            receive_buffers: self.count("GASNET_RBUF_COUNT"),
            bounce_buffers: self.count("GASNET_BBUF_COUNT"),
            spares: self.table.int_opt("GASNET_RBUF_SPARES").map(narrow),
            srq: match self.table.int("GASNET_USE_SRQ") {
                ..0 => SharedReceive::Automatic,
                0 => SharedReceive::Never,
                ranks => SharedReceive::From(narrow(ranks)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<NetSettings, Error> {
        let env: Env = pairs.iter().copied().collect();
        NetSettings::of(&Values::from_env(&env).unwrap(), &env)
    }

    #[test]
    fn defaults_are_those_of_the_documents() {
        let settings = NetSettings::default();
        assert_eq!(settings.fabric, FabricChoice::Auto);
        assert_eq!(
            settings.soft,
            SoftSettings { devices: 1, address: None, reached: None, faults: None }
        );
        assert_eq!(settings.retry, Retry::default());
        assert_eq!((settings.inline, settings.packed_long), (Some(72), 4012));
        assert_eq!((settings.put_bounce, settings.gather_min), (65_536, Some(1500)));
        let connect = &settings.connect;
        assert!(connect.dynamic && connect.at_start);
        assert_eq!(connect.retransmit_min, Duration::from_millis(1));
        assert_eq!(connect.retransmit_max, Duration::from_micros(1 << 26));
        assert_eq!(
            [1, 2, 3, 4, 5, 256, 257].map(|n| connect.receives(n)),
            [6, 6, 8, 8, 10, 20, 22]
        );
        let depths = settings.depths;
        assert_eq!((depths.ops_per_peer, depths.ops), (24, Total::Is(255)));
        assert_eq!(
            (depths.credits_per_peer, depths.credits, depths.slack),
            (12, Total::Default, 1)
        );
        assert_eq!((depths.receive_buffers, depths.bounce_buffers), (1024, 1024));
        assert_eq!((depths.spares, depths.srq), (None, SharedReceive::Automatic));
        assert_eq!((settings.ports.max_mtu, settings.ports.pkey), (None, None));
        assert!(settings.warnings.is_empty());
    }

    #[test]
    fn old_names_of_the_resources_count() {
        let settings = read(&[
            ("GASNET_OP_OUST_PP", "64"),
            ("GASNET_OP_OUST_LIMIT", "1024"),
            ("GASNET_AM_OUST_PP", "32"),
            ("GASNET_AM_OUST_LIMIT", "0"),
            ("GASNET_AM_SPARES", "2"),
            ("GASNET_BBUF_LIMIT", "7"),
        ]);
        let depths = settings.unwrap().depths;
        assert_eq!((depths.ops_per_peer, depths.ops), (64, Total::Is(1024)));
        assert_eq!((depths.credits_per_peer, depths.credits), (32, Total::Most));
        assert_eq!((depths.spares, depths.bounce_buffers), (Some(2), 7));
    }

    #[test]
    fn what_is_above_a_cap_is_cut_with_a_warning() {
        for (name, value, used) in [
            ("GASNET_QP_TIMEOUT", "32", "31 is used"),
            ("GASNET_QP_RETRY_COUNT", "8", "7 is used"),
            ("GASNET_AM_CREDITS_SLACK", "12", "11 is used"),
            ("GASNET_MAX_MTU", "3000", "their own MTU"),
            ("GASNET_CONNECT_RETRANS_MIN", "67108864", "1000 and 67108864 µs are used"),
        ] {
            let settings = read(&[(name, value)]).unwrap();
            let [line] = &settings.warnings[..] else { panic!("{:?}", settings.warnings) };
            assert!(line.contains(name) && line.contains(used), "{line}");
        }
        assert_eq!(read(&[("GASNET_QP_TIMEOUT", "99")]).unwrap().retry.timeout, 31);
        assert_eq!(read(&[("GASNET_QP_RETRY_COUNT", "99")]).unwrap().retry.count, 7);
        let one = read(&[("GASNET_AM_CREDITS_PP", "1")]).unwrap();
        assert_eq!((one.depths.slack, one.warnings.len()), (0, 0));
        let many = [("GASNET_AM_CREDITS_PP", "999"), ("GASNET_AM_CREDITS_SLACK", "300")];
        assert_eq!(read(&many).unwrap().depths.slack, 255);
    }

    #[test]
    fn both_ways_to_connect_off_means_dynamic() {
        let pairs = [("GASNET_CONNECT_STATIC", "n"), ("GASNET_CONNECT_DYNAMIC", "n")];
        let settings = read(&pairs).unwrap();
        assert!(settings.connect.dynamic && !settings.connect.at_start);
        assert_eq!(settings.warnings.len(), 1);
    }

    #[test]
    fn codes_mean_what_the_documents_say() {
        for (mtu, used) in
            [("-1", None), ("0", None), ("2K", Some(Mtu::B2048)), ("256", Some(Mtu::B256))]
        {
            assert_eq!(read(&[("GASNET_MAX_MTU", mtu)]).unwrap().ports.max_mtu, used);
        }
        let settings = read(&[
            ("GASNET_INLINESEND_LIMIT", "-1"),
            ("GASNET_AM_GATHER_MIN", "-1"),
            ("GASNET_USE_SRQ", "64"),
            ("GASNET_IBV_PKEY", "0x8003"),
            ("GASNET_RCV_THREAD", "1"),
            ("GASNET_RCV_THREAD_POLL_MODE", "EXCLUSIVE"),
            ("GASNET_RCV_THREAD_IDLE", "500"),
        ]);
        let settings = settings.unwrap();
        assert_eq!((settings.inline, settings.gather_min), (None, None));
        assert_eq!(settings.depths.srq, SharedReceive::From(64));
        assert_eq!(settings.ports.pkey, Some(3));
        let idle = Duration::from_nanos(500);
        let thread = ThreadSettings { on: true, rate: 0, idle, mode: PollMode::Exclusive };
        assert_eq!(settings.receive_thread, thread);
        assert!(!settings.send_thread.on);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (name, value, problem) in [
            ("GASNET_USE_ODP", "1", "no paging on demand"),
            ("GASNET_IBV_PKEY", "0x8001", "membership bit"),
            ("GASNET_IBV_SOFT_ADDRESS", "10.0.0.1/33", "\"33\""),
            ("GASNET_IBV_SOFT_ADDRESS", "somewhere", "such as 10.1.2.3"),
            ("GASNET_IBV_PORTS_TYPE", "Socket/0", "GASNET_IBV_PORTS_TYPE"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(problem), "{error}");
        }
    }

    #[test]
    fn networks_cover_their_addresses() {
        let covers =
            |net: &str, ip: &str| SoftAddress::parse(net).unwrap().covers(ip.parse().unwrap());
        assert!(covers("10.1.2.0/24", "10.1.2.255") && !covers("10.1.2.0/24", "10.1.3.0"));
        assert!(covers("10.1.2.3", "10.1.2.3") && !covers("10.1.2.3", "10.1.2.2"));
        assert!(covers("0.0.0.0/0", "10.1.2.3") && !covers("::/0", "10.1.2.3"));
        assert!(covers("fd00::/8", "fd12::1") && !covers("fd00::/8", "fe80::1"));
    }

    proptest! {
        #[test]
        fn any_numbers_give_settings_within_their_caps(values in proptest::collection::vec(1i64..=i64::MAX, 8)) {
            let names = ["GASNET_QP_TIMEOUT", "GASNET_QP_RETRY_COUNT", "GASNET_AM_CREDITS_PP", "GASNET_AM_CREDITS_SLACK",
                "GASNET_NUM_QPS", "GASNET_NETWORKDEPTH_PP", "GASNET_CONNECT_RETRANS_MIN", "GASNET_CONNECT_RETRANS_MAX"];
            let env: Env = names.iter().zip(&values).map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
            let settings = NetSettings::of(&Values::from_env(&env).unwrap(), &env).unwrap();
            prop_assert!(settings.retry.timeout <= 31 && (1..=7).contains(&settings.retry.count));
            prop_assert!(settings.depths.slack < settings.depths.credits_per_peer && settings.depths.slack <= 255);
            prop_assert!(settings.connect.retransmit_min <= settings.connect.retransmit_max);
        }
    }
}
