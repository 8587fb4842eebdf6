//! The network of a program that has one thread and needs no other. Over adapters it has no threads
//! either: polls do now and then what the service thread does, and a wait sleeps on the descriptors of
//! the adapters. Over the software adapter, which has a thread of its own, a short wait sleeps on the
//! streams: the thread would have to be woken first, and then wake the rank.

use std::ffi::CStr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::settings::Env;
use ::settings::deadlines::net as deadlines;
use fabric::Device;

use super::error::Error;
use super::settings::{FabricChoice, NetSettings};
use super::threads::Threads;
use super::transport::NetTransport;
use crate::sys;
use crate::sys::tally::Sharing;

/// Polls between two looks for connections that others ask for.
const SELDOM: u32 = 64;
/// Polls between two looks at what adapters report, which takes a system call.
const HARDLY: u32 = 1 << 14;

/// Lets drivers of adapters leave out locks where there is one thread. What the user says stays.
pub(super) fn tell_drivers(settings: &NetSettings, env: &Env) {
    const DRIVERS: [&CStr; 2] = [c"MLX4_SINGLE_THREADED", c"MLX5_SINGLE_THREADED"];
    if !settings.single || settings.fabric == FabricChoice::Soft {
        return;
    }
    for name in DRIVERS {
        if name.to_str().is_ok_and(|name| env.get(name).is_none()) {
            sys::set_variable(name, c"1");
        }
    }
}

impl Threads {
    /// Where there is no service thread, some polls do its work: counts one, and tells whether it is such a one,
    /// which calls [`Threads::serve`].
    #[inline(always)]
    pub(super) fn is_turn_to_serve(&self) -> bool {
        let Some(service) = &self.inline else { return false };
        let turn = Sharing::OneThread.add(&service.turns, 1);
        turn.is_multiple_of(SELDOM) || self.links.context.connect_queue.is_waiting()
    }

    /// What the service thread does, in a poll.
    #[cold]
    pub(super) fn serve(&self) -> Result<(), Error> {
        let Some(service) = &self.inline else { return Ok(()) };
        let turn = service.turns.load(Ordering::Relaxed).wrapping_sub(1);
        if turn.is_multiple_of(HARDLY) { service.serve() } else { service.connect() }
    }
}

impl NetTransport {
    /// Whether nobody rings the doorbell for what comes from the network.
    pub(crate) const fn is_single(&self) -> bool {
        self.threads.inline.is_some()
    }

    /// The adapter on whose streams a short wait may sleep.
    pub(crate) fn sleeper(&self) -> Option<&dyn Device> {
        let context = &self.context;
        let [rail] = &context.rails[..] else { return None };
        (context.settings.single && rail.device.has_sleep()).then_some(&*rail.device)
    }

    /// Sleeps until a stream of the adapter may have something, for a short while that no doorbell
    /// ends. False: it did not sleep, there was something.
    #[cold]
    pub(crate) fn sleep_on_streams(&self) -> bool {
        let Some(device) = self.sleeper() else { return false };
        let Some(sleep) = self.enter(|_| device.begin_sleep()).flatten() else { return false };
        // Outside the network: a signal that comes now may end the job over it.
        let _ = sleep.wait(deadlines::NAP.limit);
        device.end_sleep();
        true
    }

    /// Sleeps until an armed completion queue has something, at most `slice` and so short that
    /// neighbours, who ring a doorbell that is not heard here, do not wait long.
    #[cold]
    pub(crate) fn nap(&self, slice: Duration) {
        let Some(service) = &self.threads.inline else { return };
        let context = &self.context;
        let failed = |result: Result<(), Error>| {
            if let Err(error) = result {
                context.fail(error);
            }
        };
        self.enter(|_| failed(service.serve_and_arm()));
        // Outside the network: a signal that comes now may end the job over it.
        let _ = service.wait(slice.min(deadlines::NAP.limit));
        self.enter(|_| failed(service.consume()));
    }
}
