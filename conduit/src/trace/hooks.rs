//! What the rest of the crate calls. All but the first test of a hook is out of the way.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bootstrap::Rank;
use bootstrap::trace::{Cause, Counter, Kind, Mark, REPLY, Record};

use fabric::Data;

use super::bursts;
use super::mask::{self, Category, HALF, MASK, counts, on, records};
use super::recorder::{Recorder, recorder};
use super::report;
use super::runs::{self, Message};

/// Whether messages that are alike become one record.
#[inline(always)]
fn merges(recorder: &Recorder) -> bool {
    recorder.trace.is_none() && !records(Category::Details)
}

/// A handler that runs.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    at: u64,
    message: Message,
    bytes: u64,
}

/// What a message is, as the record of it says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The other rank.
    pub(crate) peer: u32,
    pub(crate) handler: u8,
    pub(crate) reply: bool,
    /// Of [`bootstrap::trace::CATEGORIES`].
    pub(crate) category: u8,
    pub(crate) bytes: u64,
}

impl About {
    fn message(self, kind: Kind) -> Message {
        let Self { peer, handler, reply, category, .. } = self;
        let flavor = category << 1 | if reply { REPLY } else { 0 };
        Message { kind, peer, handler, flavor }
    }
}

/// The time of the rank's clock: a message is about to be sent. Its receiver may handle it before the
/// sender comes to [`sent`].
pub(crate) fn sends() -> u64 {
    now()
}

/// A message was sent, at a time of [`sends`].
pub(crate) fn sent(about: About, at: u64) {
    let Some(recorder) = recorder() else { return };
    bursts::settle(recorder, false);
    let bytes = about.bytes;
    if counts(Category::Messages) {
        recorder.count_messages(Counter::SentAm, 1, bytes);
    }
    let message = about.message(Kind::Sent);
    if records(Category::Messages) {
        record_sent(recorder, message, bytes, at);
    }
    if about.category == 0 && !about.reply && merges(recorder) {
        bursts::begin(recorder, message);
    }
}

fn record_sent(recorder: &Recorder, message: Message, bytes: u64, at: u64) {
    if runs::extend(recorder, message, 1, bytes) {
        return;
    }
    runs::end(recorder, Some(at));
    let end = (!merges(recorder)).then(|| recorder.now());
    runs::begin(recorder, message, (1, bytes), at, end);
}

/// Whether a Short request to a rank is like those before it, so that [`extend`] traces it.
#[inline(always)]
pub(crate) fn may_extend(peer: u32, handler: u8) -> bool {
    bursts::takes(Message { kind: Kind::Sent, peer, handler, flavor: 0 })
}

/// A message that [`may_extend`] was asked for was sent.
#[inline(always)]
pub(crate) fn extend() {
    if let Some(recorder) = recorder() {
        bursts::add(recorder);
    }
}

/// A handler begins.
pub(crate) fn handler_begins(about: About, name: &str) -> Option<Running> {
    let recorder = recorder()?;
    if counts(Category::Messages) {
        recorder.count_messages(Counter::HandledAm, 1, about.bytes);
    }
    if !records(Category::Messages) {
        return None;
    }
    let message = about.message(Kind::Handled);
    if about.category == 0 && runs::extend(recorder, message, 1, 0) {
        return None;
    }
    recorder.name(about.handler, name);
    let at = recorder.now();
    runs::end(recorder, Some(at));
    if about.category == 0 && merges(recorder) {
        runs::begin(recorder, message, (1, 0), at, None);
        return None;
    }
    Some(Running { at, message, bytes: about.bytes })
}

/// That handler has returned.
pub(crate) fn handler_ends(running: &Running) {
    let Some(recorder) = recorder() else { return };
    let now = recorder.now();
    runs::end(recorder, Some(now));
    runs::begin(recorder, running.message, (1, running.bytes), running.at, Some(now));
}

/// Handlers of Shorts that are alike ran, one after the other.
pub(crate) fn burst(about: About, name: &str, count: usize) {
    let Some(recorder) = recorder().filter(|_| count > 0) else { return };
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    if counts(Category::Messages) {
        recorder.count_messages(Counter::HandledAm, u64::from(count), 0);
    }
    let message = about.message(Kind::Handled);
    if !records(Category::Messages) || runs::extend(recorder, message, count, 0) {
        return;
    }
    recorder.name(about.handler, name);
    let now = recorder.now();
    runs::end(recorder, Some(now));
    let end = (!merges(recorder)).then_some(now);
    runs::begin(recorder, message, (count, 0), now, end);
}

/// Writes a record of this thread that is no message. Slices of a thread lie inside each other or
/// apart, so what was open ends `now`.
fn write(record: &Record, now: u64) {
    if let Some(recorder) = recorder() {
        runs::end(recorder, Some(now));
        recorder.write(record);
    }
}

/// Writes a record of this moment.
fn write_now(record: impl FnOnce(u64) -> Record) {
    let now = now();
    write(&record(now), now);
}

fn now() -> u64 {
    recorder().map_or(0, Recorder::now)
}

/// Something that takes time, recorded when it is dropped.
#[derive(Debug)]
pub struct Span {
    category: Category,
    record: Record,
}

impl Span {
    #[cold]
    fn begin(category: Category, kind: Kind, peer: u32, bytes: u64) -> Self {
        let now = now();
        if let Some(recorder) = recorder() {
            runs::end(recorder, Some(now));
        }
        Self { category, record: Record { peer, bytes, ..Record::new(kind, now) } }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if records(self.category) {
            let now = now();
            let span = now.saturating_sub(self.record.at);
            write(&Record { span, ..self.record }, now);
        }
    }
}

/// A put, get or atomic operation begins; it ends with the span.
#[inline(always)]
pub fn transfer(kind: TransferKind, rank: Rank, bytes: usize) -> Option<Span> {
    on(kind.category()).then(|| transfer_begins(kind, rank, bytes)).flatten()
}

#[cold]
#[inline(never)]
fn transfer_begins(kind: TransferKind, rank: Rank, bytes: usize) -> Option<Span> {
    let recorder = recorder()?;
    let own = rank.0 == recorder.rank;
    let [in_trace, counted] =
        recorder.local.each_ref().map(|local| !own || local.load(Ordering::Relaxed));
    let (category, bytes) = (kind.category(), bytes as u64);
    let (counter, kind) = match kind {
        TransferKind::Put => (Counter::Put, Kind::Put),
        TransferKind::Get => (Counter::Get, Kind::Get),
        TransferKind::Atomic => (Counter::Atomic, Kind::Atomic),
    };
    if counted && counts(category) {
        recorder.count(counter, 1, bytes);
    }
    (in_trace && records(category)).then(|| Span::begin(category, kind, rank.0, bytes))
}

/// What moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// To the other rank.
    Put,
    /// From it.
    Get,
    /// An operation on a word.
    Atomic,
}

impl TransferKind {
    #[inline(always)]
    const fn category(self) -> Category {
        match self {
            Self::Put => Category::Puts,
            Self::Get => Category::Gets,
            Self::Atomic => Category::Atomics,
        }
    }
}

/// Memory is being registered with an adapter.
#[inline]
pub(crate) fn registers(bytes: usize) -> Option<Span> {
    if !on(Category::Objects) {
        return None;
    }
    counted(Category::Objects, Counter::Registered, bytes);
    Some(Span::begin(Category::Objects, Kind::Registered, u32::MAX, bytes as u64))
}

#[cold]
fn counted(category: Category, counter: Counter, bytes: usize) {
    if let Some(recorder) = recorder().filter(|_| counts(category)) {
        recorder.count(counter, 1, bytes as u64);
    }
}

/// Counts something of the network.
#[inline(always)]
pub(crate) fn count(counter: Counter, bytes: usize) {
    if on(Category::Conduit) {
        counted(Category::Conduit, counter, bytes);
    }
}

/// Counts so many of something, each on its own.
#[inline(always)]
pub(crate) fn count_some(counter: Counter, many: usize) {
    if many > 0 && on(Category::Conduit) {
        counted_some(counter, many);
    }
}

#[cold]
fn counted_some(counter: Counter, many: usize) {
    if let Some(recorder) = recorder().filter(|_| counts(Category::Conduit)) {
        recorder.count(counter, many as u64, 0);
    }
}

/// Receive buffers were made, so many bytes in all.
pub(crate) fn makes_receives(count: u32, bytes: u64) {
    if let Some(recorder) = recorder().filter(|_| count > 0 && counts(Category::Conduit)) {
        recorder.count(Counter::ReceiveBuffer, u64::from(count), bytes);
    }
}

/// The time of something of the network, if that is of interest, until the result is dropped.
#[inline(always)]
pub(crate) fn timed(cause: Cause) -> Option<Timed> {
    on(Category::Conduit).then(|| Timed { cause, began: now() })
}

/// See [`timed`].
#[derive(Debug)]
pub(crate) struct Timed {
    cause: Cause,
    began: u64,
}

impl Drop for Timed {
    fn drop(&mut self) {
        if let Some(recorder) = recorder().filter(|_| counts(Category::Conduit)) {
            recorder.time(self.cause, recorder.now().saturating_sub(self.began));
        }
    }
}

/// Something of the network took a time that was measured elsewhere.
#[cold]
pub(crate) fn took(cause: Cause, time: Duration) {
    if let Some(recorder) = recorder().filter(|_| counts(Category::Conduit)) {
        recorder.settle_clock();
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        recorder.time(cause, recorder.clock().ticks(ns));
    }
}

/// Counts a request that is being posted.
#[inline(always)]
pub(crate) fn posts(data: &Data<'_>) {
    if on(Category::Conduit) {
        match data {
            Data::Inline(_) => counted(Category::Conduit, Counter::PostedInline, 0),
            _ => counted(Category::Conduit, Counter::Posted, 0),
        }
    }
}

/// A connection was made.
pub(crate) fn connected(rank: Rank, counter: Counter) {
    if on(Category::Conduit) {
        counted(Category::Conduit, counter, 0);
        if records(Category::Conduit) {
            write_now(|now| Record { peer: rank.0, ..Record::new(Kind::Connected, now) });
        }
    }
}

/// This rank has arrived at a barrier.
#[inline]
pub(crate) fn notified() {
    if on(Category::Barriers) {
        counted(Category::Barriers, Counter::Barrier, 0);
        if records(Category::Barriers) {
            write_now(|now| Record { detail: 1, ..Record::new(Kind::Barrier, now) });
        }
    }
}

/// A barrier is waited for.
#[inline]
pub(crate) fn reaches() -> Option<Span> {
    records(Category::Barriers).then(|| Span::begin(Category::Barriers, Kind::Barrier, u32::MAX, 0))
}

/// A collective was begun.
#[inline]
pub(crate) fn collective() {
    if on(Category::Collectives) {
        counted(Category::Collectives, Counter::Collective, 0);
        if records(Category::Collectives) {
            write_now(|now| Record::new(Kind::Collective, now));
        }
    }
}

/// What the last attempt to send lacked.
static LACK: AtomicU8 = AtomicU8::new(Cause::Room as u8);

/// An attempt to send found something missing: who waits next waits for this.
#[inline]
pub(crate) fn lacks(cause: Cause) {
    if on(Category::Waits) {
        LACK.store(cause as u8, Ordering::Relaxed);
    }
}

/// A wait begins: the time of it; 0 when waits are of no interest. A `turn` may be a part of the
/// wait before it.
#[inline]
pub(crate) fn wait_begins(turn: bool) -> u64 {
    if on(Category::Waits) { wait_begins_now(turn) } else { 0 }
}

#[cold]
fn wait_begins_now(turn: bool) -> u64 {
    let Some(recorder) = recorder() else { return 0 };
    let now = recorder.now();
    if !(turn && runs::is_waiting()) {
        runs::end(recorder, Some(now));
    }
    now
}

/// A wait that began at a time is over.
#[cold]
#[inline(never)]
pub(crate) fn waited(cause: Cause, turn: bool, began: u64) {
    if let Some(recorder) = recorder().filter(|_| turn) {
        return runs::turn(recorder, cause, (began, recorder.now()));
    }
    let cause = match cause {
        Cause::Room => {
            let lack = LACK.swap(Cause::Room as u8, Ordering::Relaxed);
            Cause::of(lack).unwrap_or(Cause::Room)
        }
        cause => cause,
    };
    waited_as(Category::Waits, cause, began);
}

fn waited_as(category: Category, cause: Cause, began: u64) {
    let Some(recorder) = recorder() else { return };
    let now = recorder.now();
    let span = now.saturating_sub(began);
    if counts(category) {
        recorder.time(cause, span);
    }
    if records(category) {
        runs::end(recorder, Some(now));
        recorder.write(&Record { detail: cause as u8, span, ..Record::new(Kind::Waited, began) });
    }
}

fn mark(mark: Mark, bytes: u64) {
    if on(Category::Information) && records(Category::Information) {
        write_now(|now| Record { detail: mark as u8, bytes, ..Record::new(Kind::Marked, now) });
    }
}

/// The rank begins to join the job.
pub(crate) fn begun() {
    mark(Mark::InitBegins, 0);
}

/// The rank has joined.
pub(crate) fn init_ends() {
    mark(Mark::InitEnds, 0);
}

/// The rank has its segment.
pub(crate) fn attached(bytes: u64) {
    mark(Mark::Attached, bytes);
}

/// The rank begins to exit. In a signal handler nothing is put into words: that takes memory, which
/// the interrupted code may be about to take, too.
pub(crate) fn exiting(code: i32, in_signal: bool) {
    let words = recorder().is_some_and(|recorder| recorder.trace.is_some());
    if records(Category::Exit) && !(words && in_signal) {
        let peer = code.cast_unsigned();
        write_now(|now| Record { peer, ..Record::new(Kind::Exiting, now) });
    }
}

/// Writes what is left. `whole`: the statistics, too.
pub(crate) fn finish(whole: bool) {
    let Some(recorder) = recorder() else { return };
    runs::end(recorder, None);
    recorder.settle_clock();
    report::finish(recorder, whole);
}

/// The rank is about to end: its slot goes where it has to.
pub(crate) fn leave() {
    if let Some(recorder) = recorder() {
        recorder.leave();
    }
}

// ---- what programs ask for ----

/// A wait for a lock of the program, until the result is dropped.
#[must_use]
pub fn lock_waited() -> Option<LockWait> {
    on(Category::Locks).then(|| LockWait(now()))
}

/// See [`lock_waited`].
#[derive(Debug)]
pub struct LockWait(u64);

impl Drop for LockWait {
    fn drop(&mut self) {
        waited_as(Category::Locks, Cause::Lock, self.0);
    }
}

/// Whether a text of the program would be kept, in the trace or the statistics. `force`: whatever
/// the mask says of such texts.
#[must_use]
pub fn takes_note(stats: bool, force: bool) -> bool {
    let category = if force { Category::Forced } else { Category::Client };
    if stats { counts(category) } else { records(category) }
}

/// Whether texts say where in its source the program is.
#[must_use]
pub fn traces_lines() -> bool {
    records(Category::SourceLines)
}

/// Whether puts, gets or atomics are recorded or counted, so that the library must see each.
#[must_use]
pub fn transfers() -> bool {
    on(Category::Puts) || on(Category::Gets) || on(Category::Atomics)
}

/// A text of the program. `force`: whatever the mask says.
pub fn note(text: &str, force: bool) {
    if let Some(recorder) = recorder().filter(|_| takes_note(false, force)) {
        runs::end(recorder, None);
        recorder.text(text);
    }
}

/// A text of the program for the statistics. `force`: whatever the mask says.
pub fn stats_note(text: &str, force: bool) {
    let recorder = recorder().filter(|_| takes_note(true, force));
    if let Some((recorder, lines)) = recorder.and_then(|one| Some((one, one.stats.as_ref()?))) {
        super::lines::with(lines, |lines| lines.plain(recorder.rank, text));
    }
}

/// A function of the program that is called before statistics are written.
pub fn stats_callback(callback: extern "C" fn()) {
    report::CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner).push(callback);
}

/// Writes the statistics now; `reset`: counts from nothing again.
pub fn dump_stats(reset: bool) {
    if let Some(recorder) = recorder() {
        finish(true);
        if reset {
            recorder.reset();
        }
    }
}

/// The letters of what is recorded, or counted.
#[must_use]
pub fn mask_text(stats: bool) -> String {
    let bits = MASK.0.load(Ordering::Relaxed);
    mask::text(if stats { bits >> HALF } else { bits })
}

/// Sets them, where something is open that takes it.
pub fn set_mask(stats: bool, letters: &str) {
    let Some(recorder) = recorder() else { return };
    let (bits, shift) = (mask::parse(letters), if stats { HALF } else { 0 });
    let half = ((1 << HALF) - 1) << shift;
    if recorder.takes[usize::from(stats)] {
        let set = |old: u32| Some(old & !half | bits << shift);
        let _old = MASK.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }
}

/// Whether transfers of the rank with itself are recorded.
#[must_use]
pub fn traces_local() -> bool {
    recorder().is_some_and(|recorder| recorder.local[0].load(Ordering::Relaxed))
}

/// Says so.
pub fn set_local(on: bool) {
    if let Some(recorder) = recorder() {
        recorder.local[0].store(on, Ordering::Relaxed);
    }
}
