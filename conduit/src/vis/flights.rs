//! Packets that were sent and not answered, by number.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::grid::Grid;
use super::list::Extent;
use super::memory::Region;
use super::ticket::Ticket;
use crate::transport::op_counter::OpCounter;

/// Where the bytes of an answer go.
#[derive(Debug)]
pub(crate) enum Landing {
    /// A put: the answer has none.
    Nowhere,
    /// Ranges of a region, and their bytes.
    List(Region, Vec<Extent>, usize),
    /// Bytes of the local side of a grid, from one on.
    Grid(Region, Arc<Grid>, usize, usize),
}

/// A packet on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    /// What the program called.
    pub(crate) call: &'static str,
    /// Who answers.
    pub(crate) target: usize,
    /// Counts it.
    pub(crate) counter: Arc<OpCounter>,
    pub(crate) landing: Landing,
}

#[derive(Default)]
struct Slots {
    all: Vec<(u32, Option<Flight>)>,
    free: Vec<u32>,
    /// The network is shut: answers are of no consequence.
    closed: bool,
}

/// All packets of a rank that are in flight.
#[derive(Default)]
pub(crate) struct Flights {
    slots: Mutex<Slots>,
    /// Threads that write what an answer brought.
    landing: AtomicUsize,
}

impl Flights {
    fn open(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether answers are of no consequence any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.open().closed
    }

    /// A number for a packet that is about to be sent; its operation counts it. `None`: there are
    /// 2^32.
    pub(crate) fn launch(&self, flight: Flight) -> Option<Ticket> {
        let mut slots = self.open();
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(slots.all.len()).ok()?;
                slots.all.push((0, None));
                slot
            }
        };
        let (generation, place) = slots.all.get_mut(slot as usize)?;
        flight.counter.begin(false);
        *place = Some(flight);
        Some(Ticket { slot, generation: *generation })
    }

    /// Ends a flight: `land` does what its answer asks for, or it was not sent after all. `None`:
    /// `source` was asked for no such answer.
    pub(crate) fn end<T>(
        &self,
        ticket: Ticket,
        source: usize,
        land: impl FnOnce(&Flight) -> T,
    ) -> Option<T> {
        let flight = {
            let mut slots = self.open();
            let (generation, place) = slots.all.get_mut(ticket.slot as usize)?;
            if *generation != ticket.generation {
                return None;
            }
            let flight = place.take_if(|flight| flight.target == source)?;
            *generation = generation.wrapping_add(1);
            slots.free.push(ticket.slot);
            self.landing.fetch_add(1, Ordering::Relaxed);
            flight
        };
        let landed = land(&flight);
        self.landing.fetch_sub(1, Ordering::Release);
        flight.counter.end(false);
        Some(landed)
    }

    /// From now on nothing is written for the packets that are in flight.
    #[cold]
    pub(crate) fn forget(&self) {
        {
            let mut slots = self.open();
            slots.closed = true;
            slots.all.iter_mut().for_each(|(_, place)| *place = None);
        }
        while self.landing.load(Ordering::Acquire) > 0 {
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(target: usize, counter: &Arc<OpCounter>) -> Flight {
        Flight { call: "test", target, counter: Arc::clone(counter), landing: Landing::Nowhere }
    }

    #[test]
    fn an_answer_ends_one_flight() {
        let (flights, counter) = (Flights::default(), Arc::default());
        let first = flights.launch(flight(3, &counter)).expect("room");
        let second = flights.launch(flight(4, &counter)).expect("room");
        assert_eq!(flights.end(first, 4, |_| ()), None, "another rank's");
        assert_eq!(flights.end(Ticket { slot: 9, generation: 0 }, 3, |_| ()), None);
        assert_eq!(flights.end(first, 3, |_| 7), Some(7));
        assert_eq!(flights.end(first, 3, |_| ()), None, "twice");
        assert!(!counter.is_complete());
        let third = flights.launch(flight(3, &counter)).expect("room");
        assert_eq!((third.slot, third.generation), (first.slot, first.generation + 1));
        assert_eq!(flights.end(second, 4, |_| ()), Some(()));
        assert_eq!(flights.end(third, 3, |_| ()), Some(()));
        assert!(counter.is_complete());
    }

    #[test]
    fn what_is_forgotten_is_answered_by_nobody() {
        let (flights, counter) = (Flights::default(), Arc::default());
        let ticket = flights.launch(flight(3, &counter)).expect("room");
        flights.forget();
        assert_eq!(flights.end(ticket, 3, |_| ()), None);
        assert!(flights.is_closed() && !counter.is_complete());
    }
}
