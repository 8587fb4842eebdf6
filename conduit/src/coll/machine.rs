//! One collective of one member: takes messages, says what to send next. Pure: memory and network
//! are behind [`Memory`] and [`Others`].
//!
//! The payload is cut into lanes, which go through the schedule beside each other. A payload of
//! more than [`EAGER`] bytes goes in *windows* of lanes: before a window its receivers tell their
//! senders that they are ready, so that nobody has to keep more than a window for a slow rank.

use std::ops::Range;

use super::aligned::Aligned;
use super::quick_hash::QuickMap;
use super::schedule::{self, Part, Step, Then};

/// Most payload bytes of one message.
pub(crate) const FRAGMENT: usize = 65_472;
/// Bytes of a lane, unless one element is larger.
const LANE: usize = 32 << 10;
/// Most bytes that are sent before the receiver has said that it is ready.
const EAGER: usize = 16 << 10;
/// Payloads of more than this go by the schedules for large ones.
pub(super) const LONG: usize = 64 << 10;
/// Bytes of the lanes that are under way beside each other; at least one lane.
const WINDOW: usize = 1 << 20;
/// Longest lane that neighbours copy from each other's memory: four of them are a window.
pub(crate) const LENT: usize = 256 << 10;

/// How a payload is cut into lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    len: usize,
    lane: usize,
    lanes: u32,
    windowed: bool,
    /// Lanes of a window.
    window: u32,
}

impl Layout {
    /// In one piece, which no rank is asked for before it is there: for what is small.
    pub(crate) const fn whole(len: usize) -> Self {
        Self { len, lane: len, lanes: 1, windowed: false, window: 1 }
    }

    /// Lanes of whole elements, each of `element` bytes. Where all members are neighbours
    /// (`together`: how many) many bytes have longer lanes: they are copied once. Of many members
    /// most wait for a processor, not for the next lane, so they have fewer lanes: 1 MB to 16 on two
    /// processors took 1.54 times a copy each with eight lanes and 1.45 with four, to 4 more.
    pub(crate) fn cut(len: usize, element: usize, together: Option<u32>) -> Self {
        let element = element.max(1);
        let about = match together {
            Some(members) => (len / if members > 8 { 4 } else { 8 }).clamp(LANE, LENT),
            None => LANE,
        };
        let lane = (about / element).max(1).saturating_mul(element);
        let lanes = u32::try_from(len.div_ceil(lane)).unwrap_or(u32::MAX).max(1);
        let window = u32::try_from(WINDOW / lane).unwrap_or(u32::MAX).max(1);
        Self { len, lane, lanes, windowed: len > EAGER, window }
    }

    /// Whether neighbours copy from each other's memory.
    pub(crate) const fn lends(self) -> bool {
        self.windowed && self.lane <= LENT
    }

    /// One block of `len` bytes of several, which are little data together: in one piece.
    pub(crate) const fn block(len: usize, total: usize) -> Self {
        Self { len, lane: len, lanes: 1, windowed: total > EAGER, window: 1 }
    }

    /// Whether there are so many lanes that the amount of data counts more than the rounds.
    pub(crate) const fn is_long(self) -> bool {
        self.len > LONG
    }

    const fn windows(self) -> u32 {
        self.lanes.div_ceil(self.window)
    }

    /// Bytes of a part of a lane.
    fn range(self, lane: u32, part: Part) -> Range<usize> {
        let start = (lane as usize).saturating_mul(self.lane).min(self.len);
        let block = self.lane.min(self.len - start);
        // Of several blocks that are in lanes, every block has a piece in each lane.
        let first = start + self.len * part.first as usize;
        let others = self.len * part.count.saturating_sub(1) as usize;
        first..first + if part.count > 0 { others + block } else { 0 }
    }
}

/// The memory of a collective.
pub(crate) trait Memory {
    /// What this rank contributes to a range takes its place there.
    fn begin(&mut self, range: Range<usize>);
    /// What this rank contributes, where it is; that of a range that was not begun.
    fn original(&self, range: Range<usize>) -> &[u8];
    fn read(&self, range: Range<usize>) -> &[u8];
    /// Where data is to be.
    fn room(&mut self, range: Range<usize>) -> &mut [u8];
    /// Puts data where it is to be, which may be in two places.
    fn store(&mut self, at: usize, bytes: &[u8]) {
        let room = self.room(at..at + bytes.len());
        if room.len() == bytes.len() {
            room.copy_from_slice(bytes);
        }
    }
    /// Combines what is in a range with `data`, which may be changed; `left`: `data` is the left
    /// operand.
    fn combine(&mut self, range: Range<usize>, data: &mut [u8], left: bool);
    /// Whether [`Memory::combine`] takes data that begins at any address, and takes little time.
    fn combines_anywhere(&self) -> bool;
}

/// Where the data of a lane is that a rank lends to its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent(pub(crate) u64);

const LENT_BYTES: usize = size_of::<u64>();

/// The other members. Ranks are those of the team.
pub(crate) trait Others {
    /// Whether a message went out.
    fn send(&mut self, packet: Packet<'_>) -> bool;
    /// Makes bytes reachable for neighbours; they do not change until they are given back. `None`:
    /// no room now.
    fn lend(&mut self, bytes: &[u8]) -> Option<Lent>;
    fn give_back(&mut self, lent: Lent, len: usize);
    /// Copies what a neighbour lends; `false` for what it does not have.
    fn take(&mut self, from: u32, lent: Lent, into: &mut [u8]) -> bool;
}

/// A message to send.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) to: u32,
    pub(crate) place: Mark,
    pub(crate) bytes: &'a [u8],
}

/// What of a collective a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) tag: u8,
    /// Number of the lane, or of the window that a rank is ready for.
    pub(crate) lane: u32,
    /// First byte, in the data of its step.
    pub(crate) at: u64,
}

/// What became of an attempt to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for messages.
    Waiting,
    /// A message found no room: try again.
    NoRoom,
    /// What this rank says that it lends is not there.
    NotThere(u32),
    Done,
}

/// A lane under way, or the steps before a window.
#[derive(Clone, Copy, Debug)]
struct Lane {
    number: u32,
    next: usize,
    /// Bytes of the next step that were sent.
    sent: usize,
    /// The memory knows of it.
    begun: bool,
    lent: Option<Lent>,
}

impl Lane {
    const fn new(number: u32) -> Self {
        Self { number, next: 0, sent: 0, begun: false, lent: None }
    }
}

/// Lane, step, and whether it is one of those before a window.
type Place = (u32, usize, bool);

/// Data of a step that receives.
#[derive(Debug, Default)]
struct Arrived {
    /// What is to be combined.
    data: Aligned,
    got: usize,
    complete: bool,
}

#[derive(Debug)]
pub(crate) struct Machine {
    steps: Vec<Step>,
    ready: Vec<Step>,
    layout: Layout,
    window: u32,
    /// The steps before this window, until they are done.
    opening: Option<Lane>,
    /// Of this window, those that are not done.
    lanes: Vec<Lane>,
    arrived: QuickMap<Place, Arrived>,
}

impl Machine {
    pub(crate) fn new(steps: Vec<Step>, layout: Layout) -> Self {
        let ready = if layout.windowed { schedule::ready(&steps) } else { Vec::new() };
        let mut machine = Self {
            steps,
            ready,
            layout,
            window: 0,
            opening: None,
            lanes: Vec::new(),
            arrived: QuickMap::default(),
        };
        machine.open_window();
        machine
    }

    fn open_window(&mut self) {
        self.opening = Some(Lane::new(self.window));
        let first = self.window * self.layout.window;
        let end = first.saturating_add(self.layout.window).min(self.layout.lanes);
        self.lanes = (first..end).map(Lane::new).collect();
    }

    const fn steps(&self, opening: bool) -> &Vec<Step> {
        if opening { &self.ready } else { &self.steps }
    }

    /// A message has come, before or after it is waited for; an error for what no member sends.
    pub(crate) fn arrive(
        &mut self,
        from: u32,
        mark: Mark,
        bytes: &mut [u8],
        memory: &mut impl Memory,
    ) -> Result<(), &'static str> {
        let Mark { tag, lane, at } = mark;
        let opening = tag == schedule::READY;
        let is_it = |step: &Step| matches!(*step, Step::Receive { from: f, tag: t, .. } if (f, t) == (from, tag));
        let step = self.steps(opening).iter().position(is_it);
        let step = step.ok_or("a message that its sender does not send here")?;
        let Some(&Step::Receive { part, then, .. }) = self.steps(opening).get(step) else {
            return Err("a message that its sender does not send here");
        };
        let most = if opening { self.layout.windows() } else { self.layout.lanes };
        if lane >= most {
            return Err("a piece that there is not");
        }
        let range = match then {
            _ if opening => 0..0,
            Then::Take => 0..LENT_BYTES,
            _ => self.layout.range(lane, part),
        };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        if at.saturating_add(bytes.len()) > range.len() || bytes.is_empty() != range.is_empty() {
            return Err("data outside its place");
        }
        let place = (lane, step, opening);
        let at_once = match then {
            Then::Nothing | Then::Store => true,
            Then::Left | Then::Right => memory.combines_anywhere(),
            Then::Take => false,
        };
        if at_once
            && bytes.len() == range.len()
            && !self.arrived.contains_key(&place)
            && let Some(lane) = self.waiting_at(place)
        {
            lane.next += 1;
            match then {
                Then::Store => memory.store(range.start, bytes),
                Then::Left | Then::Right => memory.combine(range, bytes, then == Then::Left),
                Then::Nothing | Then::Take => {}
            }
            return Ok(());
        }
        let row = self.arrived.entry(place).or_default();
        row.got += bytes.len();
        if row.complete || row.got > range.len() {
            return Err("a message twice");
        }
        match then {
            Then::Nothing => {}
            Then::Store => memory.store(range.start + at, bytes),
            Then::Left | Then::Right | Then::Take => row.data.fill(range.len(), at, bytes),
        }
        row.complete = row.got == range.len();
        Ok(())
    }

    /// The lane under way that waits at this step.
    fn waiting_at(&mut self, (lane, step, opening): Place) -> Option<&mut Lane> {
        if opening || self.opening.is_some() {
            return None;
        }
        let place = self.lanes.binary_search_by_key(&lane, |lane| lane.number).ok()?;
        self.lanes.get_mut(place).filter(|lane| lane.begun && lane.next == step)
    }

    /// Goes on as far as possible.
    pub(crate) fn advance(&mut self, memory: &mut impl Memory, others: &mut impl Others) -> State {
        loop {
            if let Some(mut lane) = self.opening {
                let state = self.run(&mut lane, true, memory, others);
                self.opening = (state != State::Done).then_some(lane);
                if state != State::Done {
                    return state;
                }
            }
            let mut state = State::Done;
            let mut lanes = std::mem::take(&mut self.lanes);
            lanes.retain_mut(|lane| {
                if !matches!(state, State::Done | State::Waiting) {
                    return true;
                }
                let after = self.run(lane, false, memory, others);
                if after != State::Done {
                    state = after;
                }
                after != State::Done
            });
            self.lanes = lanes;
            if state != State::Done {
                return state;
            }
            if self.window + 1 >= self.layout.windows() {
                return State::Done;
            }
            self.window += 1;
            self.open_window();
        }
    }

    /// Runs one lane.
    fn run(
        &mut self,
        lane: &mut Lane,
        opening: bool,
        memory: &mut impl Memory,
        others: &mut impl Others,
    ) -> State {
        let all = self.layout.range(lane.number, schedule::ALL);
        loop {
            let step = self.steps(opening).get(lane.next).copied();
            // Neighbours copy what is lent while this rank does.
            if !opening && !lane.begun && !matches!(step, Some(Step::Lend { .. })) {
                lane.begun = true;
                memory.begin(all.clone());
            }
            let state = match step {
                None => {
                    if let Some(lent) = lane.lent.take() {
                        others.give_back(lent, all.len());
                    }
                    return State::Done;
                }
                Some(Step::Send { to, tag, part }) => {
                    let range = if opening { 0..0 } else { self.layout.range(lane.number, part) };
                    send_all(memory.read(range), (to, tag), lane, others)
                }
                Some(Step::Lend { to, tag }) => lend((to, tag), lane, all.clone(), memory, others),
                Some(step @ Step::Receive { .. }) => {
                    self.receive(step, lane, opening, memory, others)
                }
            };
            if state != State::Done {
                return state;
            }
            lane.next += 1;
            lane.sent = 0;
        }
    }

    fn receive(
        &mut self,
        step: Step,
        lane: &Lane,
        opening: bool,
        memory: &mut impl Memory,
        others: &mut impl Others,
    ) -> State {
        let Step::Receive { part, from, then, .. } = step else { return State::Done };
        let place = (lane.number, lane.next, opening);
        if !self.arrived.get(&place).is_some_and(|row| row.complete) {
            return State::Waiting;
        }
        let Some(mut row) = self.arrived.remove(&place) else { return State::Waiting };
        let range = self.layout.range(lane.number, part);
        match then {
            Then::Left | Then::Right => {
                memory.combine(range, row.data.bytes(), then == Then::Left);
            }
            Then::Take => {
                let lent = row.data.bytes().first_chunk().copied().unwrap_or_default();
                if !others.take(from, Lent(u64::from_le_bytes(lent)), memory.room(range)) {
                    return State::NotThere(from);
                }
            }
            _ => {}
        }
        State::Done
    }
}

/// Tells a neighbour where the data of a lane is.
fn lend(
    (to, tag): (u32, u8),
    lane: &mut Lane,
    range: Range<usize>,
    memory: &impl Memory,
    others: &mut impl Others,
) -> State {
    if lane.lent.is_none() {
        let bytes = if lane.begun { memory.read(range) } else { memory.original(range) };
        lane.lent = others.lend(bytes);
    }
    let Some(Lent(word)) = lane.lent else { return State::NoRoom };
    send_all(&word.to_le_bytes(), (to, tag), lane, others)
}

/// Sends what is left of a step's data.
fn send_all(
    bytes: &[u8],
    (to, tag): (u32, u8),
    lane: &mut Lane,
    others: &mut impl Others,
) -> State {
    loop {
        let rest = bytes.get(lane.sent..).unwrap_or_default();
        let piece = rest.get(..FRAGMENT).unwrap_or(rest);
        let place = Mark { tag, lane: lane.number, at: lane.sent as u64 };
        if !others.send(Packet { to, place, bytes: piece }) {
            return State::NoRoom;
        }
        lane.sent += piece.len();
        if lane.sent >= bytes.len() {
            return State::Done;
        }
    }
}

#[cfg(test)]
mod tests;
