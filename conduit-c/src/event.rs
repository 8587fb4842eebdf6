//! Events, and operations without event. Inside a neighbourhood only collectives have something
//! to wait for.

use std::ffi::{c_int, c_uint};

use crate::arguments::{array_mut, no_flags};
use crate::collectives::needs_polls;
use crate::fail::{Fail, NOT_READY, OK, ensure, must, status, value};
use crate::transfer::order;
use crate::types::{EventValue, Flags};
use crate::{M, events, misuse, state};

fn tested(call: &str, test: impl FnOnce() -> Result<bool, Fail>) -> c_int {
    status(call, || {
        Ok(if test()? {
            order();
            OK
        } else {
            NOT_READY
        })
    })
}

/// Whether an event is complete; 0 is.
fn is_complete(event: EventValue) -> Result<bool, Fail> {
    if event == 0 {
        return Ok(true);
    }
    let collectives = &state::open()?.collectives;
    if collectives.is_complete(event)? {
        return Ok(true);
    }
    if needs_polls(event) {
        collectives.poll_once("gex_Event_Test")?;
        return collectives.is_complete(event);
    }
    Ok(false)
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_Event_Test(event: EventValue) -> c_int {
    tested("gex_Event_Test", || {
        misuse::fresh(&[event])?;
        let complete = is_complete(event)?;
        if complete {
            misuse::consume(event);
        }
        Ok(complete)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_Event_Wait(event: EventValue) {
    let call = "gex_Event_Wait";
    must(call, || {
        misuse::fresh(&[event])?;
        state::open()?.collectives.wait_for(call, event)?;
        misuse::consume(event);
        Ok(())
    });
}

/// Overwrites complete entries; how many there were, and how many are left.
fn sweep(events: &mut [EventValue]) -> Result<(usize, usize), Fail> {
    let (mut done, mut left) = (0, 0);
    for event in events.iter_mut().filter(|event| **event != 0) {
        if is_complete(*event)? {
            misuse::consume(*event);
            *event = 0;
            done += 1;
        } else {
            left += 1;
        }
    }
    Ok((done, left))
}

fn some(events: &mut [EventValue]) -> Result<bool, Fail> {
    sweep(events).map(|(done, left)| done > 0 || left == 0)
}

fn all(events: &mut [EventValue]) -> Result<bool, Fail> {
    sweep(events).map(|(_, left)| left == 0)
}

macro_rules! arrays {
    ($($test:ident, $wait:ident, $rule:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $test(first: *mut EventValue, count: usize, flags: Flags) -> c_int {
            tested(stringify!($test), || {
                no_flags(flags)?;
                let events = array_mut("the array of events", first, count)?;
                misuse::fresh(events)?;
                $rule(events)
            })
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $wait(first: *mut EventValue, count: usize, flags: Flags) {
            let call = stringify!($wait);
            must(call, || {
                no_flags(flags)?;
                let state = state::open()?;
                let events = array_mut("the array of events", first, count)?;
                misuse::fresh(events)?;
                // At least one poll, also when all are complete.
                state.inner.poll::<M>(call)?;
                state.collectives.wait_until(call, || $rule(events))
            });
            order();
        }
    )*};
}

arrays! {
    gex_Event_TestSome, gex_Event_WaitSome, some;
    gex_Event_TestAll, gex_Event_WaitAll, all;
}

/// Inside a neighbourhood operations are complete when they return: their roots and leaves are 0.
#[unsafe(no_mangle)]
pub extern "C" fn gex_Event_QueryLeaf(root: EventValue, category: c_uint) -> EventValue {
    value("gex_Event_QueryLeaf", 0, || {
        ensure!(matches!(category, 2 | 3 | 4 | 8), "{category:#x} is not one category of events");
        if root == 0 {
            return Ok(0);
        }
        state::open()?;
        ensure!(events::is_operation(root), "this event has no leaf of that category");
        events::leaf(root, category)
    })
}

/// What all calls about operations without event check.
fn outside_region(flags: Flags) -> Result<&'static state::State, Fail> {
    let state = state::open()?;
    no_flags(flags)?;
    ensure!(!events::in_region(), "inside an access region");
    Ok(state)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_NBI_Test(mask: c_uint, flags: Flags) -> c_int {
    let call = "gex_NBI_Test";
    tested(call, || {
        let state = outside_region(flags)?;
        if events::implicit_complete(mask) {
            return Ok(true);
        }
        state.collectives.poll_once(call)?;
        Ok(events::implicit_complete(mask))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_NBI_Wait(mask: c_uint, flags: Flags) {
    let call = "gex_NBI_Wait";
    must(call, || {
        let state = outside_region(flags)?;
        state.inner.poll::<M>(call)?;
        state.collectives.advance();
        if !events::implicit_complete(mask) {
            state.collectives.wait_until(call, || Ok(events::implicit_complete(mask)))?;
        }
        order();
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_NBI_BeginAccessRegion(flags: Flags) {
    must("gex_NBI_BeginAccessRegion", || outside_region(flags).map(|_| events::begin_region()));
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_NBI_EndAccessRegion(flags: Flags) -> EventValue {
    must("gex_NBI_EndAccessRegion", || {
        state::open()?;
        no_flags(flags)?;
        events::end_region().ok_or_else(|| Fail::bad("no access region was begun"))
    })
}
