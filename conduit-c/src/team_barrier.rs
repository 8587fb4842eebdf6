//! Barriers of the GASNet-1 kind on any team: `gasnet_coll_barrier_*`. On the team of all ranks they
//! are `gasnet_barrier_*`; other teams agree by a reduction.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gasnet_ibv::BarrierFlags;
use gasnet_ibv::inner::{Buffers, Combine, DataType, Part, ReduceOp, Reduction, Task};

use crate::arguments::answer;
use crate::coll::{self, bits, open_team};
use crate::fail::{BARRIER_MISMATCH, Fail, NOT_READY, OK, ensure, must, status};
use crate::state::{self, TeamRef};
use crate::teams::Team;
use crate::types::{EventValue, Handle};
use crate::{M, events};

/// The least name, the least of the negated names, and 0 where a member says that it does not match.
type Words = [i64; 3];
/// Of who gives no name.
const NAMELESS: i64 = i64::MAX;

const fn words(id: c_int, flags: BarrierFlags) -> Words {
    if flags.contains(BarrierFlags::MISMATCH) {
        return [NAMELESS, NAMELESS, 0];
    }
    if flags.contains(BarrierFlags::ANONYMOUS) {
        return [NAMELESS, NAMELESS, 1];
    }
    [id as i64, -(id as i64), 1]
}

/// What a team agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreed {
    Mismatch,
    Anonymous,
    Name(c_int),
}

fn agreed([least, negated, matches]: Words) -> Agreed {
    match c_int::try_from(least) {
        _ if matches == 0 => Agreed::Mismatch,
        Ok(_) if least != -negated => Agreed::Mismatch,
        Ok(name) => Agreed::Name(name),
        Err(_) => Agreed::Anonymous,
    }
}

/// The barrier of a team, and what the last one agreed on.
#[derive(Default)]
pub struct TeamBarrier(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    under_way: Option<EventValue>,
    last: Option<Agreed>,
    words: Box<UnsafeCell<Words>>,
}

impl TeamBarrier {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.under_way.is_some() {
            // A program that destroyed the team in a barrier: its reduction may still write here.
            std::mem::forget(std::mem::take(&mut self.words));
        }
    }
}

/// The team of a handle, and what the program made, `None` for the team of all ranks.
fn team(call: &'static str, team: Handle) -> Result<Option<(TeamRef, Arc<Team>)>, Fail> {
    let team = open_team(call, team)?;
    Ok(team.object.clone().map(|object| (team, object)))
}

fn begin(
    call: &'static str,
    team: &TeamRef,
    object: &Team,
    (id, flags): (c_int, c_int),
) -> Result<(), Fail> {
    let mut inside = object.barrier.lock();
    ensure!(inside.under_way.is_none(), "a notify of this team was not waited for");
    let min = Combine::builtin(DataType::I64, ReduceOp::Min);
    let combine = min.ok_or_else(|| Fail::bad("no least of integers"))?;
    let place = inside.words.get();
    // SAFETY: no reduction of an earlier barrier is under way.
    unsafe { place.write(words(id, bits(flags))) };
    let len = size_of::<Words>();
    let reduction = Reduction { combine, ordered: false, element: 8, len, check: 1 << 40 };
    let buffers = Buffers { source: place.cast(), result: place.cast(), contributes: len, len };
    let inner = team.state.inner;
    let task = Task::reduce_to_all(team.group(), reduction, buffers);
    let op = inner.start_collective::<M>(call, team.group(), task)?;
    inside.under_way = Some(events::of(inner, op, Part::ALL));
    inside.last = None;
    Ok(())
}

/// The outcome of a barrier that may have passed; `wait`: waits for it.
fn end(
    call: &'static str,
    (team, object): (&TeamRef, &Team),
    (id, flags): (c_int, c_int),
    wait: bool,
) -> Result<c_int, Fail> {
    let collectives = &team.state.collectives;
    let under_way = object.barrier.lock().under_way;
    let event = under_way.ok_or_else(|| Fail::bad("there was no notify of this team before it"))?;
    if wait {
        collectives.wait_for(call, event)?;
    } else if event != 0 {
        collectives.poll_once(call)?;
        if !collectives.is_complete(event)? {
            return Ok(NOT_READY);
        }
    }
    let mut inside = object.barrier.lock();
    // SAFETY: the reduction is complete.
    let agreed = agreed(unsafe { inside.words.get().read() });
    (inside.under_way, inside.last) = (None, Some(agreed));
    let named = bits(flags).is_empty();
    let matches = match agreed {
        Agreed::Mismatch => false,
        Agreed::Name(name) => !named || name == id,
        Agreed::Anonymous => true,
    };
    Ok(if matches { OK } else { BARRIER_MISMATCH })
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_barrier_notify(tm: Handle, id: c_int, flags: c_int) {
    let call = "gasnet_coll_barrier_notify";
    match must(call, || team(call, tm)) {
        None => coll::gasnet_barrier_notify(id, flags),
        Some((team, object)) => must(call, || begin(call, &team, &object, (id, flags))),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_barrier_try(tm: Handle, id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_coll_barrier_try";
    status(call, || match team(call, tm)? {
        None => Ok(coll::gasnet_barrier_try(id, flags)),
        Some((team, object)) => end(call, (&team, &object), (id, flags), false),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_barrier_wait(tm: Handle, id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_coll_barrier_wait";
    status(call, || match team(call, tm)? {
        None => Ok(coll::gasnet_barrier_wait(id, flags)),
        Some((team, object)) => end(call, (&team, &object), (id, flags), true),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_coll_barrier(tm: Handle, id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_coll_barrier";
    status(call, || match team(call, tm)? {
        None => Ok(coll::gasnet_barrier(id, flags)),
        Some((team, object)) => {
            begin(call, &team, &object, (id, flags))?;
            end(call, (&team, &object), (id, flags), true)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_coll_barrier_result(tm: Handle, id: *mut c_int) -> c_int {
    let call = "gasnet_coll_barrier_result";
    status(call, || match state::team(tm)?.object {
        // SAFETY: as the caller promises.
        None => Ok(unsafe { coll::gasnet_barrier_result(id) }),
        Some(object) => {
            let inside = object.barrier.lock();
            ensure!(inside.under_way.is_none(), "a barrier of this team is under way");
            match inside.last {
                None => Err(Fail::bad("there was no barrier of this team before it")),
                Some(Agreed::Anonymous) => Ok(1),
                Some(Agreed::Mismatch) => Ok(OK),
                Some(Agreed::Name(name)) => {
                    answer(id, name);
                    Ok(OK)
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(all: &[(c_int, c_int)]) -> Agreed {
        let least = |a: Words, b: Words| std::array::from_fn(|at| a[at].min(b[at]));
        agreed(
            all.iter().map(|(id, flags)| words(*id, bits(*flags))).reduce(least).expect("members"),
        )
    }

    #[test]
    fn members_agree_on_the_one_name_that_was_given() {
        assert_eq!(together(&[(7, 0), (9, 1), (7, 0)]), Agreed::Name(7));
        assert_eq!(together(&[(c_int::MIN, 0), (c_int::MIN, 0)]), Agreed::Name(c_int::MIN));
        assert_eq!(together(&[(7, 0), (8, 0), (0, 1)]), Agreed::Mismatch);
        assert_eq!(together(&[(3, 1), (8, 9)]), Agreed::Anonymous);
        assert_eq!(together(&[(7, 0), (7, 2)]), Agreed::Mismatch);
    }
}
