//! What every fabric must do, as cases that two sides run together.
//!
//! The sides are two threads over one or two fabrics, or two processes of one or two hosts: a case
//! only sees its [`Side`]. It opens the side's device, exchanges addresses over the side's
//! [`Exchange`] and says [`Verdict::Pass`], [`Verdict::Skip`] with the capability that the device
//! lacks, or [`Verdict::Fail`] with what was seen. [`run`] runs the cases of [`CASES`] in order and
//! keeps the sides together also when one of them gives up in the middle.

mod datagrams;
mod devices;
mod failures;
mod link;
mod memory;
mod messages;
mod one_sided;
mod queues;
mod registration;
mod rig;
mod shared;
mod states;
mod xrc;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use link::{ChannelLink, Exchange, FdLink, channel_links};
pub use memory::Buffer;

use crate::Fabric;
use rig::{Stop, fail};

/// Longest wait for a message of the other side. Longer than anything that a side does between two
/// messages.
const ANSWER: Duration = Duration::from_secs(120);

/// Longest wait for completions that must come. Generous: an emulated machine is 30 times slower
/// than a real one.
const COMPLETION: Duration = Duration::from_secs(40);

/// How long nothing must come where nothing may come.
const SILENCE: Duration = Duration::from_millis(150);

/// One of the two sides of a case.
pub struct Side<'a> {
    /// 0 or 1; the sides have different ones.
    pub role: u8,
    /// What is tested. Both sides may hold the same one.
    pub fabric: Arc<dyn Fabric>,
    /// Position in [`Fabric::devices`].
    pub device: usize,
    /// Port of the device, from 1.
    pub port: u8,
    /// Carries bytes to the other side and back.
    pub link: &'a mut dyn Exchange,
    /// Takes the side's port down (`false`) and up (`true`) where the caller can do that.
    pub set_port: Option<&'a dyn Fn(bool) -> Result<(), String>>,
    /// The other side's verdict, if it came while a case waited for something else.
    early: Option<(String, Verdict)>,
}

impl fmt::Debug for Side<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fabric = self.fabric.name();
        write!(f, "side {} on {fabric}, device {}, port {}", self.role, self.device, self.port)
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it must be.
    Pass,
    /// The device lacks this.
    Skip(String),
    /// This was not as it must be.
    Fail(String),
}

/// A case on both sides.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Name in [`CASES`].
    pub case: &'static str,
    /// The worse of both sides' verdicts; a failure names the side.
    pub verdict: Verdict,
    /// On this side.
    pub took: Duration,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, took, .. } = self;
        match &self.verdict {
            Verdict::Pass => write!(f, "pass {case} ({} ms)", took.as_millis()),
            Verdict::Skip(reason) => write!(f, "skip {case}: {reason}"),
            Verdict::Fail(text) => write!(f, "FAIL {case}: {text}"),
        }
    }
}

/// A named case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Short name, unique.
    pub name: &'static str,
    run: fn(&mut Side<'_>) -> Result<(), Stop>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! cases {
    ($($name:literal $run:path,)*) => {
        /// All cases, in the order in which both sides run them.
        pub const CASES: &[Case] = &[$(Case { name: $name, run: $run }),*];
    };
}

cases! {
    "devices" devices::devices,
    "ports" devices::ports,
    "port-events" devices::port_events,
    "drop-order" devices::drop_order,
    "rails" devices::rails,
    "register" registration::register,
    "remote-bounds" registration::remote_bounds,
    "remote-permission" registration::remote_permission,
    "deregistered" registration::deregistered,
    "local-key" registration::local_key,
    "rc-states" states::rc_states,
    "ud-states" states::ud_states,
    "post-states" states::posts,
    "reset-and-again" states::again,
    "sizes" messages::sizes,
    "immediate" messages::immediate,
    "order" messages::order,
    "full-and-drain" messages::full_and_drain,
    "gather" messages::gather,
    "inline" messages::inline,
    "unsignalled" messages::unsignalled,
    "both-ways" messages::both_ways,
    "two-threads" messages::two_threads,
    "write" one_sided::write,
    "read" one_sided::read,
    "lists" one_sided::lists,
    "fetch-add" one_sided::fetch_add,
    "compare-swap" one_sided::compare_swap,
    "concurrent-adds" one_sided::concurrent_adds,
    "write-then-send" one_sided::write_then_send,
    "write-imm" one_sided::write_imm,
    "write-imm-waits" one_sided::write_imm_waits,
    "idle-target" one_sided::idle_target,
    "loop-back" one_sided::loop_back,
    "srq" shared::two_on_one,
    "srq-refill" shared::refill,
    "rnr-give-up" failures::rnr_give_up,
    "rnr-for-ever" failures::rnr_for_ever,
    "short-receive" failures::short_receive,
    "dead-peer" failures::dead_peer,
    "flush" failures::flush,
    "error-is-alone" failures::error_is_alone,
    "cq-depth" queues::depth,
    "cq-overflow" queues::overflow,
    "events" queues::events,
    "events-many" queues::events_many,
    "ud" datagrams::datagrams,
    "ud-key" datagrams::wrong_key,
    "ud-limit" datagrams::limit,
    "ud-no-buffer" datagrams::no_buffer,
    "ud-many" datagrams::many,
    "xrc" xrc::two_queues,
    "xrc-holders" xrc::two_holders,
    "xrc-not-ready" xrc::not_ready,
    "xrc-refused" xrc::refused,
}

/// Runs the cases whose name contains `only` (all when it is empty) together with the other side,
/// which must be called with the same `only`. `report` hears of each as it ends.
///
/// # Errors
/// The other side is gone, or is not at the same case.
pub fn run(
    side: &mut Side<'_>,
    only: &str,
    report: &mut dyn FnMut(&Outcome),
) -> Result<Vec<Outcome>, String> {
    let mut outcomes = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(only)) {
        let start = Instant::now();
        let own = match (case.run)(side) {
            Ok(()) => Verdict::Pass,
            Err(Stop::Skip(reason)) => Verdict::Skip(reason),
            Err(Stop::Fail(text)) => Verdict::Fail(text),
        };
        let took = start.elapsed();
        let other = side.settle(case.name, &own)?;
        let verdict = worse(side.role, own, other);
        let outcome = Outcome { case: case.name, verdict, took };
        report(&outcome);
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn worse(role: u8, own: Verdict, other: Verdict) -> Verdict {
    use Verdict::{Fail, Pass, Skip};
    match (own, other) {
        (Fail(own), Fail(other)) => {
            Fail(format!("side {role}: {own}; side {}: {other}", 1 - role.min(1)))
        }
        (Fail(text), _) => Fail(format!("side {role}: {text}")),
        (_, Fail(text)) => Fail(format!("side {}: {text}", 1 - role.min(1))),
        (Skip(reason), _) | (_, Skip(reason)) => Skip(reason),
        (Pass, Pass) => Pass,
    }
}

const DATA: u8 = b'd';
const VERDICT: u8 = b'v';

impl<'a> Side<'a> {
    /// A side.
    pub fn new(
        role: u8,
        fabric: Arc<dyn Fabric>,
        device: usize,
        port: u8,
        link: &'a mut dyn Exchange,
    ) -> Self {
        Self { role, fabric, device, port, link, set_port: None, early: None }
    }

    /// Sends words to the other side and waits for its words.
    fn swap(&mut self, words: &[u64]) -> Result<Vec<u64>, Stop> {
        let mut message = vec![DATA];
        message.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.link.send(&message)?;
        let got = self.link.receive(ANSWER)?;
        match got.split_first() {
            Some((&DATA, rest)) => {
                let words = rest.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok());
                Ok(words.map(u64::from_le_bytes).collect())
            }
            Some((&VERDICT, rest)) => {
                let (case, verdict) = parse_verdict(rest);
                let stop = match &verdict {
                    Verdict::Skip(reason) => Stop::Skip(reason.clone()),
                    other => fail(format!("the other side left the case: {other:?}")),
                };
                self.early = Some((case, verdict));
                Err(stop)
            }
            _ => Err(fail("the other side sent something else")),
        }
    }

    /// Both sides are here.
    fn sync(&mut self) -> Result<(), Stop> {
        self.swap(&[]).map(drop)
    }

    /// Tells the other side how the case ended here and hears the same from it.
    fn settle(&mut self, case: &str, own: &Verdict) -> Result<Verdict, String> {
        let (kind, text) = match own {
            Verdict::Pass => ("pass", ""),
            Verdict::Skip(text) => ("skip", text.as_str()),
            Verdict::Fail(text) => ("fail", text.as_str()),
        };
        let mut message = vec![VERDICT];
        message.extend_from_slice(format!("{case}\n{kind}\n{text}").as_bytes());
        self.link.send(&message)?;
        let other = match self.early.take() {
            Some(early) => early,
            // What the other side sent before it heard of an early end is of no use any more.
            None => loop {
                let got = self.link.receive(ANSWER)?;
                if let Some((&VERDICT, rest)) = got.split_first() {
                    break parse_verdict(rest);
                }
            },
        };
        if other.0 == case {
            Ok(other.1)
        } else {
            Err(format!("this side is at case {case}, the other one at {}", other.0))
        }
    }
}

fn parse_verdict(bytes: &[u8]) -> (String, Verdict) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(3, '\n');
    let mut next = || parts.next().unwrap_or_default().to_owned();
    let (case, kind, text) = (next(), next(), next());
    let verdict = match kind.as_str() {
        "pass" => Verdict::Pass,
        "skip" => Verdict::Skip(text),
        _ => Verdict::Fail(text),
    };
    (case, verdict)
}
