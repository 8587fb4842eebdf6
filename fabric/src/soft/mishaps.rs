//! A fault script at work on a device: what it takes down, cuts off and breaks, and when that ends.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::device::Dev;
use super::fault_script::FaultPlan;
use super::hold;
use super::progress::Progress;
use super::qp::Qp;
use super::ud::{Late, send_late};
use crate::{AsyncEvent, QpState, QpType};

/// The script's state on one device.
#[derive(Debug)]
pub(super) struct Mishaps {
    faults: Arc<FaultPlan>,
    late: Late,
    /// A port is down, somebody is cut off, or the device is dead.
    active: AtomicBool,
    dead: AtomicBool,
    /// Queue pairs that fail, and when.
    kills: Mutex<Vec<(Instant, u32)>>,
}

impl Mishaps {
    pub(super) fn new(faults: &Arc<FaultPlan>) -> Self {
        Self {
            faults: Arc::clone(faults),
            late: Late::default(),
            active: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            kills: Mutex::default(),
        }
    }

    pub(super) fn faults(&self) -> &FaultPlan {
        &self.faults
    }

    pub(super) const fn late(&self) -> &Late {
        &self.late
    }

    /// Whether anything may be cut off now. Cheap.
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// A reliable queue pair became ready to send.
    pub(super) fn queue_pair_ready(&self, number: u32) {
        if let Some(after) = self.faults.queue_pair_ready()
            && let Some(mut kills) = hold(&self.kills)
        {
            kills.push((Instant::now() + after, number));
        }
    }

    fn due(&self, now: Instant) -> (Vec<u32>, bool) {
        let Some(mut kills) = hold(&self.kills) else { return (Vec::new(), true) };
        let due = kills.iter().filter(|(when, _)| *when <= now).map(|&(_, qpn)| qpn).collect();
        kills.retain(|(when, _)| *when > now);
        (due, !kills.is_empty())
    }
}

impl Dev {
    /// Whether a fault script lets nothing through between here and `address`.
    pub(super) fn is_cut(&self, address: IpAddr) -> bool {
        let mishaps = self.mishaps();
        let age = || mishaps.faults.age(Instant::now());
        mishaps.is_active()
            && (mishaps.dead.load(Ordering::Relaxed) || mishaps.faults.is_cut(address, age()))
    }
}

impl Qp {
    /// Whether a fault script lets nothing through between this queue pair and its peer.
    pub(super) fn is_cut(&self) -> bool {
        self.dev().mishaps().is_active()
            && self.setup().is_some_and(|setup| {
                let peer = setup.peer.map(|peer| peer.address.gid.ip());
                !self.dev().is_up(setup.port) || peer.is_some_and(|peer| self.dev().is_cut(peer))
            })
    }
}

impl Progress {
    /// Lets happen what is due; whether something waits for its time.
    pub(super) fn suffer(&mut self, dev: &Arc<Dev>, now: Instant) -> bool {
        let mishaps = dev.mishaps();
        let late = send_late(dev, now);
        let (kills, later) = mishaps.due(now);
        for qp in kills.into_iter().filter_map(|number| dev.qp(number)) {
            self.drop_streams(&qp);
            qp.fail_here();
        }
        if !mishaps.faults.need_clock() {
            return late || later;
        }
        let age = mishaps.faults.age(now);
        let dies = mishaps.faults.is_dead(age) && !mishaps.dead.swap(true, Ordering::Relaxed);
        let dead = mishaps.dead.load(Ordering::Relaxed);
        let mut active = dead || mishaps.faults.is_any_cut(age);
        for port in 1..=dev.ports() {
            let up = !dead && !mishaps.faults.port_is_down(dev.name(), port, age);
            dev.set_up(port, up);
            active |= !up;
        }
        let was = mishaps.active.swap(active, Ordering::Relaxed);
        if dies {
            dev.report(AsyncEvent::DeviceFatal);
        }
        if active || was {
            self.cut(dev, dies);
        }
        true
    }

    /// Stops what is cut off and lets go on what no longer is.
    fn cut(&mut self, dev: &Arc<Dev>, dies: bool) {
        let Some(qps) = dev.all_qps() else { return };
        for qp in qps.iter().filter(|qp| qp.qp_type() == QpType::Rc) {
            if dies {
                self.drop_streams(qp);
                qp.fail_here();
            } else if qp.state() == QpState::Rts
                && qp.is_cut()
                && let Some(mut tx) = hold(&qp.tx)
            {
                tx.block(qp);
            }
        }
        // The streams that are cut off stay as they are; the others may have missed something.
        self.turn_all(dev);
    }
}
