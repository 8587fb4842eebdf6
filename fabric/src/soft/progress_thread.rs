//! The thread that moves data when nobody polls.
//!
//! While a device is polled, the thread wakes every 1 ms for its timers only: it must not take
//! packets or processor time from the polling thread. When polls stop, or a completion queue is
//! armed, it watches the device's sockets.

use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use settings::deadlines::soft::{NAP, WATCH_IDLE};

use super::device::SoftDevice;
use super::waker::{Signals, Waker};
use crate::Error;

type Devices = Mutex<Vec<Weak<SoftDevice>>>;

/// The thread of a fabric, which lives as long as the fabric or one of its devices.
#[derive(Debug)]
pub(super) struct ProgressThread {
    pub(super) waker: Arc<Waker>,
    devices: Arc<Devices>,
}

impl ProgressThread {
    pub(super) fn start() -> Result<Self, Error> {
        let devices = Arc::new(Devices::default());
        let inside = Arc::clone(&devices);
        let waker = Waker::start(move |signals| run(signals, &inside));
        let waker =
            waker.map_err(|source| Error::os("soft", "start the progress thread", source))?;
        Ok(Self { waker: Arc::new(waker), devices })
    }

    /// The thread drives this device, too.
    pub(super) fn add(&self, device: &Arc<SoftDevice>) {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|one| one.strong_count() != 0);
        devices.push(Arc::downgrade(device));
        drop(devices);
        self.waker.wake();
    }
}

fn run(signals: &Signals, known: &Devices) {
    // Kept: who counts the allocations of messages would count those of each nap, too.
    let (mut devices, mut watched) = (Vec::<Arc<SoftDevice>>::new(), Vec::new());
    while !signals.stop.is_set() {
        let list = known.lock().unwrap_or_else(PoisonError::into_inner);
        devices.extend(list.iter().filter_map(Weak::upgrade));
        drop(list);
        let mut wait = WATCH_IDLE.limit;
        let mut napping = false;
        for (number, device) in devices.iter().enumerate() {
            if device.ctx.activity.is_polled() {
                device.tick();
                wait = wait.min(NAP.limit);
                napping = true;
            } else if let Some(rest) = device.run_pass() {
                wait = wait.min(rest);
                watched.push(number);
            } else {
                // Not on its streams: what the other thread has not read would end each sleep.
                wait = wait.min(NAP.limit);
            }
        }
        signals.napping.store(napping);
        if napping && devices.iter().any(|device| device.ctx.activity.is_armed()) {
            // A completion queue was armed after the check.
            wait = Duration::ZERO;
        }
        sleep(signals, &devices, &watched, wait);
        signals.napping.store(false);
        devices.clear();
        watched.clear();
    }
}

fn sleep(signals: &Signals, devices: &[Arc<SoftDevice>], watched: &[usize], wait: Duration) {
    let wait = PollTimeout::try_from(wait.min(WATCH_IDLE.limit)).unwrap_or(PollTimeout::ZERO);
    let wakeup = PollFd::new(signals.fd(), PollFlags::POLLIN);
    let polled = if watched.is_empty() {
        poll(&mut [wakeup], wait)
    } else {
        let watched = watched.iter().filter_map(|number| devices.get(*number));
        let fds = watched.map(|device| PollFd::new(device.ctx.as_fd(), PollFlags::POLLIN));
        poll(&mut std::iter::once(wakeup).chain(fds).collect::<Vec<_>>(), wait)
    };
    if polled.is_err() {
        std::thread::sleep(NAP.limit);
    }
    signals.clear();
}
