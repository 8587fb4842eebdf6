//! From the table's values to [`NetSettings`], with the documented floors and caps. The table
//! refuses a value below a floor; a value above a cap is cut with a warning.

use std::time::Duration;

use fabric::{Mtu, Retry};
use settings::{Env, Values};

use super::depths::{MOST_CREDITS, USUAL_CREDITS};
use super::port_family::Family;
use super::sizes::LONGEST;
use super::{
    ConnectSettings, DepthSettings, Error, FabricChoice, FlowControl, NetSettings, Paging,
    PinnedMemory, PollMode, PortSettings, Registration, SOFT_SECURE, SharedReceive, SoftAddress,
    SoftSettings, Stripes, ThreadSettings, Timing, Total,
};
use crate::settings::huge_pages;
use crate::transport::net::flow::volume::{LEAST_LONGEST, MOST_LONGEST};

/// Greatest ACK timeout exponent of a queue pair.
const MOST_TIMEOUT: i64 = 31;
/// Most transport retries of a queue pair.
const MOST_RETRIES: i64 = 7;
/// Stack of a thread of the library: what the standard library gives threads too.
const USUAL_STACK: u64 = 2 << 20;
/// Requests without a reply to a peer where they are written into rings, and at most there.
const USUAL_IN_RING: u32 = 64;
const MOST_IN_RING: i64 = 1024;
/// Banked credits travel in 8 bits.
const MOST_SLACK: i64 = 255;
/// Bits of a partition key that tell partitions apart; the top bit tells members from guests.
const PKEY_MASK: i64 = 0x7fff;
/// Least stripe of a transfer, in bytes.
const LEAST_STRIPE: u64 = 4096;
/// Most queue pairs that a peer may have; far above what any adapter gains from.
const MOST_QPS: i64 = 64;

impl NetSettings {
    /// Reads the table's values; `env` gives the members of the port family, which have no rows.
    pub(crate) fn of(table: &Values, env: &Env) -> Result<Self, Error> {
        let mut builder = SettingsBuilder { table, warnings: Vec::new() };
        let (inline, xrc) = ("GASNET_INLINESEND_LIMIT", "GASNET_USE_XRC");
        let settings = Self {
            fabric: match table.word("GASNET_IBV_FABRIC") {
                "verbs" => FabricChoice::Verbs,
                "soft" => FabricChoice::Soft,
                _ => FabricChoice::Auto,
            },
            soft: soft(table)?,
            ports: builder.ports(env)?,
            retry: builder.retry(),
            connect: builder.connect(),
            receive_thread: builder.thread("GASNET_RCV_THREAD"),
            send_thread: builder.thread("GASNET_SND_THREAD"),
            single: false,
            stack: stack(table),
            inline: u32::try_from(table.int(inline)).ok(),
            inline_is_set: table.is_set(inline),
            packed_long: narrow(table.size_or_code("GASNET_PACKEDLONG_LIMIT")),
            put_bounce: table.size("GASNET_NONBULKPUT_BOUNCE_LIMIT"),
            gather_min: u32::try_from(table.size_or_code("GASNET_AM_GATHER_MIN")).ok(),
            stripes: builder.stripes(),
            fenced_puts: table.bool("GASNET_USE_FENCED_PUTS"),
            depths: builder.depths(),
            registration: Registration::of(table),
            odp: Paging::of(table),
            pinned: PinnedMemory::of(table, env),
            xrc: table.bool(xrc),
            xrc_is_set: table.is_set(xrc),
            huge_pages: huge_pages(table),
            quiet: table.bool("GASNET_QUIET"),
            warnings: Vec::new(),
        };
        Ok(Self { warnings: builder.warnings, ..settings })
    }
}

fn soft(table: &Values) -> Result<SoftSettings, Error> {
    let address = table.text("GASNET_IBV_SOFT_ADDRESS").map(|text| SoftAddress::parse(&text));
    let wrong = |problem| Error::Variable { name: "GASNET_IBV_SOFT_ADDRESS", problem };
    Ok(SoftSettings {
        devices: u8::try_from(table.int("GASNET_IBV_SOFT_DEVICES")).unwrap_or(1),
        address: address.transpose().map_err(wrong)?,
        // The agent's own word; if it is none, the address is not known.
        reached: table.text("GASNETRUN_ADDRESS").and_then(|text| text.parse().ok()),
        secure: table.bool(SOFT_SECURE),
        faults: table.text("GASNET_IBV_SOFT_FAULTS"),
    })
}

/// A number that is not negative, cut to 32 bits.
fn narrow(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

/// Bytes of stack of the library's threads.
fn stack(table: &Values) -> usize {
    let padded = table.size("GASNET_THREAD_STACK_PAD").saturating_add(USUAL_STACK);
    let least = table.size("GASNET_THREAD_STACK_MIN");
    usize::try_from(padded.max(least)).unwrap_or(usize::MAX)
}

/// The table, and what was cut.
struct SettingsBuilder<'a> {
    table: &'a Values,
    warnings: Vec<String>,
}

impl SettingsBuilder<'_> {
    /// A count, cut to 32 bits.
    fn count(&self, name: &str) -> u32 {
        narrow(self.table.int(name))
    }

    /// A count with a documented cap.
    fn capped(&mut self, name: &str, most: i64, why: &str) -> u32 {
        let value = self.table.int(name);
        if value > most {
            self.warnings.push(format!("{name}={value} is above {most}{why}: {most} is used"));
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

    fn stripes(&mut self) -> Stripes {
        let mut stripe = |name: &str| match self.table.size(name) {
            bytes @ 1..LEAST_STRIPE => {
                self.warnings.push(format!(
                    "{name}: {bytes} bytes are below {LEAST_STRIPE}: {LEAST_STRIPE} are used"
                ));
                LEAST_STRIPE
            }
            bytes => bytes,
        };
        Stripes { put: stripe("GASNET_PUT_STRIPE_SZ"), get: stripe("GASNET_GET_STRIPE_SZ") }
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
            max_hcas: self.count("GASNET_IBV_MAX_HCAS"),
            max_mtu: self.mtu()?,
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

    /// `None`: what the port has, which both -1 and the library's own choice, 0, mean.
    fn mtu(&self) -> Result<Option<Mtu>, Error> {
        let name = "GASNET_MAX_MTU";
        let bytes = self.table.size_or_code(name);
        if bytes <= 0 {
            return Ok(None);
        }
        let wrong = || {
            let problem = format!(
                "{bytes} is no size of packets: use 256, 512, 1024, 2048 or 4096, -1 for what the port has, or 0"
            );
            Error::Variable { name, problem }
        };
        Mtu::of_bytes(narrow(bytes)).map(Some).ok_or_else(wrong)
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
            self.warnings.push(format!(
                "{MIN}={min} is not below {MAX}={max}: {} and {} µs are used",
                preset.0, preset.1
            ));
            (min, max) = preset;
        }
        let mut dynamic = table.bool("GASNET_CONNECT_DYNAMIC");
        let at_start = table.bool("GASNET_CONNECT_STATIC");
        if !dynamic && !at_start {
            self.warnings.push("GASNET_CONNECT_STATIC and GASNET_CONNECT_DYNAMIC are both off: connections are dynamic".to_owned());
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
            timing: Timing { min: micros(min), max: micros(max) },
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
        let flow = self.flow();
        let credits_per_peer = self.credits_per_peer(flow);
        let usual_credits = flow == FlowControl::Static
            && !["GASNET_AM_CREDITS_PP", "GASNET_RBUF_COUNT"]
                .iter()
                .any(|name| self.table.is_set(name));
        // How many are usual is known with the number of ranks.
        let credits = if usual_credits { MOST_CREDITS } else { credits_per_peer };
        let slack = i64::from(credits.saturating_sub(1)).min(MOST_SLACK);
        let name = "GASNET_AM_CREDITS_SLACK";
        let why = " (less than GASNET_AM_CREDITS_PP and at most 255)";
        let slack = self.table.is_set(name).then(|| self.capped(name, slack, why));
        DepthSettings {
            ops_per_peer: self.count("GASNET_NETWORKDEPTH_PP"),
            ops: self.total("GASNET_NETWORKDEPTH_TOTAL"),
            credits_per_peer,
            credits: self.total("GASNET_AM_CREDITS_TOTAL"),
            slack,
            usual_credits,
            receive_buffers: self.count("GASNET_RBUF_COUNT"),
            bounce_buffers: self.count("GASNET_BBUF_COUNT"),
            spares: self.table.int_opt("GASNET_RBUF_SPARES").map(narrow),
            srq: match self.table.int("GASNET_USE_SRQ") {
                ..0 => SharedReceive::Automatic,
                0 => SharedReceive::Never,
                ranks => SharedReceive::From(narrow(ranks)),
            },
            flow,
        }
    }

    fn flow(&mut self) -> FlowControl {
        match self.table.word("GASNET_AM_FLOW_CONTROL") {
            "dynamic" => FlowControl::Dynamic {
                least: self.count("GASNET_AM_CREDITS_MIN"),
                most: self.count("GASNET_AM_CREDITS_MAX"),
                banked: self.count("GASNET_AM_CREDITS_BANK"),
                epoch: self.count("GASNET_AM_CREDITS_EPOCH"),
            },
            "volume" => FlowControl::Volume { space: self.space() },
            _ => FlowControl::Static,
        }
    }

    /// Bytes of requests for each peer.
    fn space(&mut self) -> u64 {
        let name = "GASNET_NETWORKDEPTH_SPACE";
        let space = self.table.size(name);
        let used = space.clamp(LEAST_LONGEST * LONGEST, MOST_LONGEST * LONGEST);
        if used != space {
            self.warnings.push(format!(
                "{name}: {space} bytes are not from {LEAST_LONGEST} to {MOST_LONGEST} of the longest requests: {used} are used"
            ));
        }
        used
    }

    /// Requests without a reply to each peer: more of them where what they hold is counted in bytes.
    fn credits_per_peer(&mut self, flow: FlowControl) -> u32 {
        let name = "GASNET_AM_CREDITS_PP";
        match (flow, self.table.int_opt(name)) {
            (FlowControl::Volume { .. }, Some(_)) => {
                self.capped(name, MOST_IN_RING, " (with GASNET_AM_FLOW_CONTROL=volume)")
            }
            (FlowControl::Volume { .. }, None) => USUAL_IN_RING,
            (_, number) => number.map_or(USUAL_CREDITS, narrow),
        }
    }
}
