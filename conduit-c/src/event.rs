//! Events, and operations without event. Inside a neighbourhood only barriers and broadcasts have
//! something to wait for.

use crate::fail::{Fail, NOT_READY, OK, must, value};
use crate::transfer::order;
use crate::types::{EventValue, Flags};
use crate::{M, events, state};
use std::ffi::{c_int, c_uint};

fn no_flags(flags: Flags) -> Result<(), Fail> {
    if flags == 0 { Ok(()) } else { Err(Fail::bad(format!("flags {flags:#x} must be 0"))) }
}

fn tested(call: &str, complete: Result<bool, Fail>) -> c_int {
    match complete {
        Ok(true) => {
            order();
            OK
        }
        Ok(false) => NOT_READY,
        Err(fail) => fail.report(call),
    }
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
    if events::is_operation(event) {
        collectives.look("gex_Event_Test")?;
        return collectives.is_complete(event);
    }
    Ok(false)
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_Event_Test(event: EventValue) -> c_int {
    tested("gex_Event_Test", is_complete(event))
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_Event_Wait(event: EventValue) {
    let call = "gex_Event_Wait";
    must(call, state::open().and_then(|state| state.collectives.wait_for(call, event)));
}

/// The program's array.
fn events<'a>(events: *mut EventValue, count: usize) -> Result<&'a mut [EventValue], Fail> {
    if count == 0 {
        return Ok(&mut []);
    }
    if events.is_null() {
        return Err(Fail::bad("the array of events is null"));
    }
    // SAFETY: `count` events that only this call uses while it runs.
    Ok(unsafe { std::slice::from_raw_parts_mut(events, count) })
}

/// Overwrites complete entries; how many there were, and how many are left.
fn sweep(events: &mut [EventValue]) -> Result<(usize, usize), Fail> {
    let (mut done, mut left) = (0, 0);
    for event in events.iter_mut().filter(|event| **event != 0) {
        if is_complete(*event)? {
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

type Rule = fn(&mut [EventValue]) -> Result<bool, Fail>;

fn test_array(call: &str, at: *mut EventValue, count: usize, flags: Flags, rule: Rule) -> c_int {
    tested(call, no_flags(flags).and_then(|()| rule(events(at, count)?)))
}

fn wait_array(call: &'static str, at: *mut EventValue, count: usize, flags: Flags, rule: Rule) {
    let wait = || {
        no_flags(flags)?;
        let (state, events) = (state::open()?, events(at, count)?);
        // At least one poll, also when all are complete.
        state.inner.poll::<M>(call)?;
        state.collectives.wait_until(call, || rule(events))
    };
    must(call, wait());
    order();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Event_TestSome(
    events: *mut EventValue,
    count: usize,
    flags: Flags,
) -> c_int {
    test_array("gex_Event_TestSome", events, count, flags, some)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Event_TestAll(
    events: *mut EventValue,
    count: usize,
    flags: Flags,
) -> c_int {
    test_array("gex_Event_TestAll", events, count, flags, all)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Event_WaitSome(events: *mut EventValue, count: usize, flags: Flags) {
    wait_array("gex_Event_WaitSome", events, count, flags, some);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Event_WaitAll(events: *mut EventValue, count: usize, flags: Flags) {
    wait_array("gex_Event_WaitAll", events, count, flags, all);
}

/// Inside a neighbourhood operations are complete when they return: their roots and leaves are 0.
#[unsafe(no_mangle)]
pub extern "C" fn gex_Event_QueryLeaf(root: EventValue, category: c_uint) -> EventValue {
    let leaf = || {
        if !matches!(category, 2 | 3 | 4 | 8) {
            return Err(Fail::bad(format!("{category:#x} is not one category of events")));
        }
        if root == 0 {
            return Ok(0);
        }
        state::open()?;
        if events::is_operation(root) {
            return events::leaf(root, category);
        }
        Err(Fail::bad("this event has no leaf of that category"))
    };
    value("gex_Event_QueryLeaf", 0, leaf())
}

fn outside_region() -> Result<(), Fail> {
    if events::in_region() { Err(Fail::bad("inside an access region")) } else { Ok(()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_NBI_Test(mask: c_uint, flags: Flags) -> c_int {
    let call = "gex_NBI_Test";
    let test = || {
        let state = state::open()?;
        no_flags(flags)?;
        outside_region()?;
        if events::implicit_complete(mask) {
            return Ok(true);
        }
        state.collectives.look(call)?;
        Ok(events::implicit_complete(mask))
    };
    tested(call, test())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_NBI_Wait(mask: c_uint, flags: Flags) {
    let call = "gex_NBI_Wait";
    let wait = || {
        let state = state::open()?;
        no_flags(flags)?;
        outside_region()?;
        state.inner.poll::<M>(call)?;
        state.collectives.advance();
        if !events::implicit_complete(mask) {
            state.collectives.wait_until(call, || Ok(events::implicit_complete(mask)))?;
        }
        order();
        Ok(())
    };
    must(call, wait());
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_NBI_BeginAccessRegion(flags: Flags) {
    let begin = || {
        state::open()?;
        no_flags(flags)?;
        outside_region()?;
        events::begin_region();
        Ok(())
    };
    must("gex_NBI_BeginAccessRegion", begin());
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_NBI_EndAccessRegion(flags: Flags) -> EventValue {
    let end = || {
        state::open()?;
        no_flags(flags)?;
        events::end_region().ok_or_else(|| Fail::bad("no access region was begun"))
    };
    must("gex_NBI_EndAccessRegion", end())
}
