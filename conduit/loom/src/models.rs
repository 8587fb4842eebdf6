//! What must hold whatever the order of steps.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::credits::{Account, Carried, Permits};
use crate::lockfree::{AppendTable, IndexStack, Mailbox};
use crate::spin_lock::RawLock;
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::tally::Sharing;
use crate::uses::{Ends, OWN, Use, Uses};
use crate::volume::{Geometry, Owner, Writer};

/// Every order with at most four preemptions: more take minutes.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(model);
}

#[test]
fn permits_are_taken_once() {
    check(|| {
        let permits = Arc::new(Permits::new(1));
        let take = |reserve| {
            let permits = Arc::clone(&permits);
            thread::spawn(move || u32::from(permits.take(reserve)))
        };
        let (one, reserved) = (take(0), take(1));
        permits.give(1);
        let taken = one.join().unwrap() + reserved.join().unwrap();
        assert!(taken >= 1, "one permit was there");
        assert_eq!(permits.left(), 2 - taken);
    });
}

#[test]
fn credits_stay_what_they_were() {
    check(|| {
        let account = Arc::new(Account::new(2, 1));
        assert!(account.take());
        let back = {
            let account = Arc::clone(&account);
            thread::spawn(move || account.returned(1))
        };
        let failed = {
            let account = Arc::clone(&account);
            thread::spawn(move || {
                if account.take() {
                    account.untake();
                }
            })
        };
        // More than were given out is never believed.
        assert!(account.returned(2).is_err());
        back.join().unwrap().unwrap();
        failed.join().unwrap();
        assert!(account.take() && account.take() && !account.take());
    });
}

/// One thread adds credits and takes one while another books what came back.
#[test]
fn credits_are_added_while_others_come_back() {
    check(|| {
        let account = Arc::new(Account::growing((1, 2), 1, Sharing::Threads));
        assert!(account.take());
        let grows = {
            let account = Arc::clone(&account);
            thread::spawn(move || account.add(account.supply.more()))
        };
        account.returned(1).unwrap();
        grows.join().unwrap();
        assert!(account.returned(1).is_err());
        assert!(account.take() && account.take() && !account.take());
    });
}

#[test]
fn banked_credits_are_carried_once() {
    check(|| {
        let account = Arc::new(Account::new(4, 3));
        account.bank();
        let carry = || {
            let account = Arc::clone(&account);
            thread::spawn(move || account.carry())
        };
        let (one, other) = (carry(), carry());
        account.bank();
        let carried = [one.join().unwrap(), other.join().unwrap(), account.carry()];
        assert_eq!(carried.map(Carried::returned).iter().sum::<u32>(), 2);
    });
}

#[test]
fn what_is_lent_is_carried_once() {
    check(|| {
        let account = Arc::new(Account::new(4, 3));
        account.lend(3);
        let carries = {
            let account = Arc::clone(&account);
            thread::spawn(move || account.carry())
        };
        account.lend(5);
        account.bank();
        let carried = [carries.join().unwrap(), account.carry(), account.carry()];
        assert_eq!(carried.map(Carried::granted).iter().sum::<u32>(), 8);
        assert_eq!(carried.map(Carried::returned).iter().sum::<u32>(), 1);
    });
}

#[test]
fn credits_in_use_are_never_given_up() {
    check(|| {
        let account = Arc::new(Account::new(3, 1));
        let uses = {
            let account = Arc::clone(&account);
            thread::spawn(move || u32::from(account.take()) + u32::from(account.take()))
        };
        let given = account.give_up(1, 2);
        let used = uses.join().unwrap();
        assert_eq!(account.available() + used + given, 3);
        assert_eq!(account.supply.made() + given, 3);
    });
}

/// A stack of two indices, who holds each, and the links.
struct Indices {
    stack: IndexStack,
    links: [AtomicU32; 2],
    held: [AtomicU32; 2],
}

impl Indices {
    fn push(&self, index: u32) {
        self.stack.push(index, |index| &self.links[index as usize]);
    }

    fn take(&self) -> Option<u32> {
        let index = self.stack.pop(|index| &self.links[index as usize])?;
        let before = self.held[index as usize].fetch_add(1, Ordering::SeqCst);
        assert_eq!(before, 0, "index {index} was given twice");
        Some(index)
    }

    fn put(&self, index: u32) {
        self.held[index as usize].fetch_sub(1, Ordering::SeqCst);
        self.push(index);
    }
}

/// One thread takes both and puts the first back while it holds the second: the other must not take
/// the stack's top for what it was.
#[test]
fn a_stack_gives_each_index_to_one() {
    check(|| {
        let zeros = || [AtomicU32::new(0), AtomicU32::new(0)];
        let indices = Indices { stack: IndexStack::new(), links: zeros(), held: zeros() };
        let indices = Arc::new(indices);
        (0..2).for_each(|index| indices.push(index));
        let other = {
            let indices = Arc::clone(&indices);
            thread::spawn(move || {
                let first = indices.take();
                let second = indices.take();
                first.into_iter().for_each(|index| indices.put(index));
                second.into_iter().for_each(|index| indices.put(index));
            })
        };
        if let Some(index) = indices.take() {
            indices.put(index);
        }
        other.join().unwrap();
        assert!(indices.take().is_some() && indices.take().is_some() && indices.take().is_none());
    });
}

#[test]
fn a_table_has_what_was_pushed() {
    check(|| {
        let table: Arc<AppendTable<_>> = Arc::new(AppendTable::new());
        let push = |value: u32| {
            let table = Arc::clone(&table);
            thread::spawn(move || (table.push(value), value))
        };
        let (one, other) = (push(7), push(8));
        assert!(table.iter().all(|value| [7, 8].contains(value)));
        for (index, value) in [one.join().unwrap(), other.join().unwrap()] {
            assert_eq!(*table.at(index), value);
        }
        assert_eq!(table.iter().count(), 2);
    });
}

/// Each reason reaches whoever serves, and each put that must wake says so.
#[test]
fn a_mailbox_loses_no_reason() {
    check(|| {
        let mailbox = Arc::new(Mailbox::new(2).expect("memory"));
        let put = |reason| {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || u32::from(mailbox.put(1, reason)))
        };
        let (one, other) = (put(1), put(2));
        let mut seen = 0;
        let mut served = 0;
        let mut serve = || {
            while let Some((index, reasons)) = mailbox.take() {
                assert_eq!(index, 1);
                seen |= reasons;
                served += 1;
            }
        };
        serve();
        let woken = one.join().unwrap() + other.join().unwrap();
        serve();
        assert_eq!((seen, served), (3, woken), "a caller is in the mailbox once for each wake-up");
        assert!(!mailbox.put(1, 1), "given before");
    });
}

/// What one at a time may look at; loom sees two of them.
#[derive(Default)]
struct Guarded(UnsafeCell<u32>);

impl Guarded {
    fn change(&self) {
        self.0.with_mut(|_| ());
    }
}

#[test]
fn a_lock_lets_one_in_at_a_time() {
    check(|| {
        let shared = Arc::new((RawLock::new(), Guarded::default()));
        let enter = |shared: &(RawLock, Guarded)| {
            while !shared.0.try_take() {
                thread::yield_now();
            }
            shared.1.change();
            shared.0.give();
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || (0..2).for_each(|_| enter(&shared)))
        };
        enter(&shared);
        other.join().unwrap();
    });
}

/// What a use touches is free when nobody uses it. `crowd` others take words before; `again`: one
/// more begins and ends after it.
fn ends_are_seen(crowd: usize, again: bool) {
    check(move || {
        let ends: &'static Ends = Box::leak(Box::new(Ends::new()));
        let mut uses = Uses::new(ends);
        let crowd: Vec<Use> = (0..crowd).map(|_| uses.begin()).collect();
        let memory = Arc::new(Guarded::default());
        let other = {
            let (one, memory) = (uses.begin(), Arc::clone(&memory));
            thread::spawn(move || {
                memory.change();
                drop(one);
            })
        };
        drop(crowd);
        if again {
            // In the word that may have become free meanwhile.
            drop(uses.begin());
        }
        while uses.is_used() {
            thread::yield_now();
        }
        memory.change();
        other.join().unwrap();
    });
}

#[test]
fn the_ends_of_uses_are_seen() {
    ends_are_seen(0, false);
    ends_are_seen(0, true);
}

#[test]
fn the_ends_of_uses_that_share_a_word_are_seen() {
    ends_are_seen(OWN, false);
    ends_are_seen(OWN, true);
}
/// Two threads end requests that follow each other: both places are given back, each once.
#[test]
fn places_are_given_back_whoever_ends_first() {
    check(|| {
        let ring = Geometry::of(1 << 17, 65_544);
        let owner = Arc::new(Owner::new(ring, 2));
        let mut writer = Writer::new(ring, 2);
        let places = [writer.take(10).unwrap(), writer.take(5000).unwrap()];
        let [one, other] = places.map(|place| {
            let owner = Arc::clone(&owner);
            thread::spawn(move || owner.ended(place).unwrap())
        });
        assert_eq!(one.join().unwrap() + other.join().unwrap(), 2);
    });
}
