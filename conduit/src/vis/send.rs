//! Transfers on their way out: checked once, then run by run or in packets.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use super::cost::{Short, share};
use super::describe::{Shape, bad, outside_local};
use super::flights::{Flight, Landing};
use super::grid::{Grid, Row};
use super::group::Group;
use super::list::{Extent, List, Piece, Pieces, push};
use super::memory::{Region, gather};
use super::peer::PeerCompletion;
use super::state::{GET, GET_ARGS, PEER, PUT, ROOM};
use super::ticket::Ticket;
use super::wire::{self, Form};
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::rma::operations::OpCounters;
use crate::rma::remote::RemoteOp;
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass, Outcome};
use crate::transport::net::{MOST_TOGETHER, OwnPart, PartLimits, SendBuffer};
use crate::transport::place::Place;
use crate::transport::{OutsideSegment, Reserved};

/// A transfer at a rank that shares no memory with this one.
#[derive(Clone, Copy, Debug)]
pub struct VisOp<'a> {
    /// What the program called.
    pub call: &'static str,
    /// A remote target.
    pub target: usize,
    /// Give up instead of waiting for room, as long as nothing was sent.
    pub immediate: bool,
    /// Which bytes.
    pub shape: Shape<'a>,
    /// Where the local ones are.
    pub local: Region,
    /// What runs at the target when a put is complete there.
    pub peer: Option<PeerCompletion<'a>>,
}

impl RankContext {
    /// Starts a transfer, a put or a get, that `row` counts. What it names of this rank's memory is
    /// left alone until it is complete; sources that were packed may be used again at once.
    ///
    /// # Errors
    /// A range outside the segment or the local region, the end of the job.
    pub fn start_vis<M: Mode>(
        &self,
        op: &VisOp<'_>,
        put: bool,
        row: &OpCounters,
    ) -> Result<Outcome, Error> {
        let short = self.check_vis(op, put)?;
        let counted = if op.peer.is_some() { self.vis.next_counted() } else { 0 };
        let mut sending: Sending<'_, M> = Sending {
            context: self,
            op,
            put,
            row,
            counted,
            endpoint: op.endpoint(),
            packs: op.peer.is_some() || self.goes_by_message(op.target, op.first_place()),
            packets: 0,
            began: false,
            group: Group::new(self.part_limits(op, put)),
            held: Vec::new(),
            rows: Vec::new(),
            mode: PhantomData,
        };
        let sent = match op.shape {
            Shape::Grid(grid) => sending.grid(grid),
            Shape::Lists { local, remote } => sending.lists(&local, &remote, short),
        };
        let sent = match (sent, op.peer) {
            (Ok(Outcome::Sent), None) => sending.finish(),
            (Ok(Outcome::Sent), Some(peer)) => {
                let packets = sending.packets;
                self.announce::<M>((op.call, op.target), peer, counted, packets)
                    .map(|()| Outcome::Sent)
            }
            (sent, _) => sent,
        };
        let counter = if put { &row.puts } else { &row.gets };
        sent.map_err(|error| self.abandon(counter, error))
    }

    /// As [`RankContext::start_vis`], complete on return.
    ///
    /// # Errors
    /// As [`RankContext::start_vis`].
    pub fn vis_blocking<M: Mode>(&self, op: &VisOp<'_>, put: bool) -> Result<(), Error> {
        let (number, row) = self.begin(op.call)?;
        let op = VisOp { immediate: false, ..*op };
        let done = self.start_vis::<M>(&op, put, &row).and_then(|_sent| {
            let counter = if put { &row.puts } else { &row.gets };
            self.wait_remote::<M>(op.call, counter)
        });
        self.operations.forget(number);
        done
    }

    /// Runs a handler at a target, a neighbour or not, when `packets` of the put of that number
    /// have been unpacked there; at once when there are none.
    ///
    /// # Errors
    /// The end of the job.
    pub fn announce<M: Mode>(
        &self,
        (call, target): (&'static str, usize),
        peer: PeerCompletion<'_>,
        counted: i32,
        packets: u32,
    ) -> Result<(), Error> {
        let args = [i32::from(peer.handler), counted, packets.cast_signed()];
        let (class, handler) = (MessageClass::Request, PEER);
        let payload = AmPayload::Medium(peer.payload);
        let message = AmMessage { class, target, handler, args: &args, payload };
        self.request::<M>(call, &message, Flags::NONE).map(|_sent| ())
    }

    /// Checks both sides of a transfer; the pieces of lists that are short enough to be packed.
    pub(super) fn check_vis(&self, op: &VisOp<'_>, put: bool) -> Result<Short, Error> {
        let remote = |Extent { at, len }: Extent| {
            let (target, offset) = (op.target, at as u64);
            let checked = match self.transport.is_remote(target) {
                _ if self.transport.is_any_memory(offset) => {
                    let inside = offset.checked_add(len as u64);
                    let inside = inside.is_some_and(|end| end <= Place::MAX_LEN);
                    inside.then_some(()).ok_or(OutsideSegment { target, offset, len })
                }
                true => self.transport.check_remote(self.rank_of(target), offset, len),
                false => {
                    let segment = self.transport.segment(target).map_or(0, |segment| segment.len);
                    let inside = offset.checked_add(len as u64).is_some_and(|end| end <= segment);
                    inside.then_some(()).ok_or(OutsideSegment { target, offset, len })
                }
            };
            checked.map_err(|outside| self.outside(op.call, outside))
        };
        let local = |range: Extent| match op.local.holds(range) {
            true => Ok(()),
            false => Err(outside_local(op.call, range)),
        };
        let most = self.vis.rule.most(put);
        let (mut short, mut group) = (Short::default(), Group::new(self.part_limits(op, put)));
        match op.shape {
            Shape::Grid(grid) => {
                let outside = || bad(op.call, "elements reach beyond the address space");
                remote(grid.extent(true).ok_or_else(outside)?)?;
                local(grid.extent(false).ok_or_else(outside)?)?;
            }
            Shape::Lists { local: here, remote: there } => {
                for piece in Pieces::new(&here, &there) {
                    let Piece { local: at, remote: offset, len } = piece;
                    remote(Extent { at: offset, len })?;
                    local(Extent { at, len })?;
                    let begins = group.take(piece, self.reaches(op, Extent { at, len }));
                    if len <= most {
                        short.runs += 1;
                        short.bytes = short.bytes.saturating_add(len);
                        short.requests += usize::from(begins);
                    }
                }
            }
        }
        Ok(short)
    }

    /// What requests of a transfer can have.
    fn part_limits(&self, op: &VisOp<'_>, put: bool) -> PartLimits {
        let net = self.transport.net().filter(|_| self.transport.is_remote(op.target));
        net.map_or_else(PartLimits::default, |net| net.part_limits(self.rank_of(op.target), put))
    }

    /// Whether devices reach a local range.
    fn reaches(&self, op: &VisOp<'_>, range: Extent) -> bool {
        let net = self.transport.net().zip(op.local.part(range));
        net.is_some_and(|(net, part)| net.covers(part))
    }
}

/// Runs of a grid that are looked at to know how many requests all take.
const SEEN: usize = 256;

/// How far into its segment a place is.
fn offset_of(place: usize) -> usize {
    usize::try_from(Place::of(place as u64).offset).unwrap_or(usize::MAX)
}

impl VisOp<'_> {
    /// Where some byte of the other side is.
    fn first_place(&self) -> u64 {
        let place = match self.shape {
            Shape::Grid(grid) => Some(grid.remote),
            Shape::Lists { remote, .. } => remote.runs().next().map(|run| run.at),
        };
        place.map_or(0, |place| place as u64)
    }

    fn endpoint(&self) -> u16 {
        Place::of(self.first_place()).endpoint
    }
}

/// A transfer under way.
struct Sending<'a, M: Mode> {
    context: &'a RankContext,
    op: &'a VisOp<'a>,
    put: bool,
    row: &'a OpCounters,
    /// Number under which the target counts its packets, or 0.
    counted: i32,
    /// Of the target's endpoints the one whose segment it is.
    endpoint: u16,
    /// Every byte travels in a packet.
    packs: bool,
    packets: u32,
    /// Something was sent, so that it can no longer be declined.
    began: bool,
    /// Runs that one request will take, and what decides which.
    group: Group,
    held: Vec<Piece>,
    /// Requests of one run each that adapters are told of together.
    rows: Vec<Piece>,
    mode: PhantomData<M>,
}

/// Goes on unless nothing was sent.
macro_rules! sent {
    ($outcome:expr) => {
        if $outcome? == Outcome::NotSent {
            return Ok(Outcome::NotSent);
        }
    };
}

impl<M: Mode> Sending<'_, M> {
    const fn immediate(&self) -> bool {
        self.op.immediate && !self.began
    }

    /// A strided transfer.
    fn grid(&mut self, grid: &Arc<Grid>) -> Result<Outcome, Error> {
        let (total, rule) = (grid.total(), self.context.vis.rule);
        let room = ROOM.saturating_sub(wire::grid_len(grid));
        let short = self.short(grid);
        let alone = !self.packs;
        let there = grid.extent(true).filter(|there| there.len == total);
        let one = there.filter(|_| self.put && rule.gathers && alone);
        let fits = grid.element <= rule.most(self.put);
        match one {
            Some(there) if fits && short.gathers(ROOM) => return self.gathered(grid, there.at),
            _ if alone && (one.is_some() || !fits || !short.packs(room)) => return self.rows(grid),
            _ => {}
        }
        let (mut about, mut from) = (Vec::new(), 0);
        let each = share(total, room, grid.element);
        while from < total {
            let rest = total - from;
            let len = if rest <= room { rest } else { each };
            about.clear();
            wire::encode_grid(grid, (offset_of(grid.remote), from), &mut about);
            let landing = match self.put {
                true => Landing::Nowhere,
                false => Landing::Grid(self.op.local, Arc::clone(grid), from, len),
            };
            let local = self.op.local;
            let rows = || grid.rows(from, len);
            sent!(self.packet((Form::Grid, &about), len, landing, |bytes| fill(
                bytes,
                &local,
                rows()
            )));
            from += len;
        }
        Ok(Outcome::Sent)
    }

    /// The runs of a grid, as if all were short.
    fn short(&self, grid: &Grid) -> Short {
        let (runs, bytes) = (grid.elements(), grid.total());
        let own = grid.extent(false).is_some_and(|all| self.context.reaches(self.op, all));
        let mut group = self.group;
        // One row shows it: the others are like it.
        let row = grid.rows(0, usize::MAX).next();
        let (mut requests, mut seen) = (0_usize, 0_usize);
        for piece in row.iter().flat_map(Row::pieces).take(SEEN) {
            seen += 1;
            requests += usize::from(group.take(piece, own));
        }
        Short { runs, bytes, requests: (runs / seen.max(1)).saturating_mul(requests) }
    }

    /// Each run of a grid by itself, or with others.
    fn rows(&mut self, grid: &Grid) -> Result<Outcome, Error> {
        for row in grid.rows(0, usize::MAX) {
            for piece in row.pieces() {
                sent!(self.run(piece));
            }
        }
        Ok(Outcome::Sent)
    }

    /// The runs of a put that are one range at the target, from `offset` on.
    fn gathered(&mut self, grid: &Grid, offset: usize) -> Result<Outcome, Error> {
        let total = grid.total();
        let mut bytes = vec![0; ROOM.min(total)];
        for from in (0..total).step_by(ROOM) {
            let bytes = bytes.get_mut(..ROOM.min(total - from)).unwrap_or_default();
            self.filled(fill(bytes, &self.op.local, grid.rows(from, bytes.len())))?;
            let remote = self.remote_op(offset + from);
            sent!(self.context.put_counted::<M>(remote, (self.row, false), bytes, true));
            self.began = true;
        }
        Ok(Outcome::Sent)
    }

    const fn remote_op(&self, offset: usize) -> RemoteOp {
        let VisOp { call, target, .. } = *self.op;
        RemoteOp { call, target, offset: offset as u64, immediate: self.immediate() }
    }

    /// A vector or indexed transfer, of which so many pieces and bytes are short.
    fn lists(
        &mut self,
        local: &List<'_>,
        remote: &List<'_>,
        short: Short,
    ) -> Result<Outcome, Error> {
        let most = match (self.packs, short.packs(ROOM)) {
            (true, _) => usize::MAX,
            (false, true) => self.context.vis.rule.most(self.put),
            (false, false) => 0,
        };
        let segment = self.context.transport.segment(self.op.target).map_or(0, |one| one.len);
        let attached = self.endpoint == 0 && segment > 0;
        let form = Form::of_lists(if attached { segment } else { u64::MAX });
        let mut packet = Packet::new(form);
        for mut piece in Pieces::new(local, remote) {
            if piece.len > most {
                sent!(self.run(piece));
                continue;
            }
            while piece.len > 0 {
                if packet.take(&mut piece) == 0 {
                    sent!(self.list_packet(&mut packet));
                }
            }
        }
        self.list_packet(&mut packet)
    }

    /// Sends a packet of runs and empties it.
    fn list_packet(&mut self, packet: &mut Packet) -> Result<Outcome, Error> {
        if packet.len == 0 {
            return Ok(Outcome::Sent);
        }
        let (here, local, len) = (std::mem::take(&mut packet.here), self.op.local, packet.len);
        let mut about = Vec::with_capacity(packet.there.len() * packet.form.entry());
        packet.there.iter().for_each(|run| wire::encode_run(packet.form, *run, &mut about));
        let about = (packet.form, &*about);
        let sent = if self.put {
            let rows = || here.iter().map(|run| Row::contiguous(run.at, 0, run.len));
            self.packet(about, len, Landing::Nowhere, |bytes| fill(bytes, &local, rows()))
        } else {
            self.packet(about, len, Landing::List(local, here, len), |_| Some(()))
        };
        *packet = Packet::new(packet.form);
        sent
    }

    /// Takes a run: it leaves when one comes that does not fit in the same request, or at the end.
    fn run(&mut self, piece: Piece) -> Result<Outcome, Error> {
        let own = self.context.reaches(self.op, Extent { at: piece.local, len: piece.len });
        if self.group.take(piece, own) {
            sent!(self.release());
        }
        self.held.push(piece);
        Ok(Outcome::Sent)
    }

    /// Sends the runs that are held.
    fn release(&mut self) -> Result<Outcome, Error> {
        let held = std::mem::take(&mut self.held);
        let outcome = match held[..] {
            [] => return Ok(Outcome::Sent),
            [piece] => self.one(piece),
            [first, ..] => self.several(first, &held),
        };
        self.held = held;
        self.held.clear();
        outcome
    }

    /// Sends what is left.
    fn finish(&mut self) -> Result<Outcome, Error> {
        sent!(self.release());
        self.post_rows()
    }

    /// Runs that are one range at the target.
    fn several(&mut self, first: Piece, held: &[Piece]) -> Result<Outcome, Error> {
        let (remote, context, local) = (self.remote_op(first.remote), self.context, self.op.local);
        let ranges = held.iter().map(|piece| Extent { at: piece.local, len: piece.len });
        let outside = || outside_local(self.op.call, Extent { at: first.local, len: first.len });
        let outcome = if self.put {
            let parts: Option<Vec<_>> = ranges.map(|range| local.bytes(range)).collect();
            context.put_parts::<M>(remote, self.row, &parts.ok_or_else(outside)?)
        } else {
            let parts: Option<Vec<OwnPart>> = ranges.map(|range| local.part(range)).collect();
            context.get_parts::<M>(remote, self.row, &parts.ok_or_else(outside)?)
        };
        self.began |= matches!(outcome, Ok(Outcome::Sent));
        outcome
    }

    /// A put or get of its own.
    fn one(&mut self, piece: Piece) -> Result<Outcome, Error> {
        self.rows.push(piece);
        if self.rows.len() < MOST_TOGETHER { Ok(Outcome::Sent) } else { self.post_rows() }
    }

    /// Sends the puts or gets that are to be posted together.
    fn post_rows(&mut self) -> Result<Outcome, Error> {
        let rows = std::mem::take(&mut self.rows);
        let Some(first) = rows.first() else { return Ok(Outcome::Sent) };
        let (remote, context, local) = (self.remote_op(first.remote), self.context, self.op.local);
        let range = |piece: &Piece| Extent { at: piece.local, len: piece.len };
        let outside = |piece: &Piece| outside_local(self.op.call, range(piece));
        let outcome = if self.put {
            let source = |piece: &Piece| {
                let bytes = local.bytes(range(piece)).ok_or_else(|| outside(piece))?;
                Ok((piece.remote as u64, bytes))
            };
            let sources = rows.iter().map(source).collect::<Result<Vec<_>, Error>>()?;
            context.put_rows::<M>(remote, self.row, sources)
        } else {
            let target = |piece: &Piece| {
                let bytes = local.bytes_mut(range(piece)).ok_or_else(|| outside(piece))?;
                Ok((piece.remote as u64, bytes))
            };
            let targets = rows.iter().map(target).collect::<Result<Vec<_>, Error>>()?;
            context.get_rows::<M>(remote, self.row, targets)
        };
        self.began |= matches!(outcome, Ok(Outcome::Sent));
        outcome
    }

    fn filled(&self, filled: Option<()>) -> Result<(), Error> {
        let call = self.op.call;
        filled.ok_or_else(|| bad(call, "the local side is outside its memory"))
    }

    /// Sends one packet of `len` bytes: those of a put are written by `fill`.
    fn packet(
        &mut self,
        (form, about): (Form, &[u8]),
        len: usize,
        landing: Landing,
        fill: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Result<Outcome, Error> {
        let (context, VisOp { call, target, .. }) = (self.context, *self.op);
        let carried = if self.put { len } else { 0 };
        let size = carried + about.len();
        let mut room = Room::of::<M>(context, target, MessageClass::Request, size);
        let write = |bytes: &mut [u8]| {
            let (data, tail) = bytes.split_at_mut_checked(carried)?;
            tail.get_mut(..about.len())?.copy_from_slice(about);
            if carried > 0 { fill(data) } else { Some(()) }
        };
        self.filled(room.with(size, write))?;
        let counter = Arc::clone(if self.put { &self.row.puts } else { &self.row.gets });
        let ticket = context.vis.flights.launch(Flight { call, target, counter, landing });
        let ticket = ticket.ok_or(Error::TooManyOperations { call })?;
        let outcome = self.send(ticket, form, len, room.payload(size));
        match outcome {
            Ok(Outcome::Sent) => {
                self.began = true;
                self.packets = self.packets.saturating_add(1);
            }
            _ => drop(context.vis.flights.end(ticket, target, |_| ())),
        }
        outcome
    }

    fn send(
        &self,
        ticket: Ticket,
        form: Form,
        len: usize,
        payload: AmPayload<'_>,
    ) -> Result<Outcome, Error> {
        let VisOp { call, target, .. } = *self.op;
        let [slot, generation] = ticket.to_wire();
        let len = i32::try_from(len).unwrap_or(i32::MAX);
        let args = [slot, generation, len, form.number(), self.endpoint.into(), self.counted];
        let (handler, args) = match self.put {
            true => (PUT, &args[..]),
            false => (GET, &args[..GET_ARGS]),
        };
        let flags = if self.immediate() { Flags::IMMEDIATE } else { Flags::NONE };
        let message = AmMessage { class: MessageClass::Request, target, handler, args, payload };
        self.context.request::<M>(call, &message, flags)
    }
}

/// Writes the local bytes of rows one after the other; `None` when they are not as many.
fn fill(bytes: &mut [u8], local: &Region, rows: impl Iterator<Item = Row>) -> Option<()> {
    let mut rest = bytes;
    for row in rows {
        rest = gather(rest, local, (row.local, row.local_stride), &row).ok()?;
    }
    rest.is_empty().then_some(())
}

/// Runs that are collected until a packet is full.
struct Packet {
    form: Form,
    here: Vec<Extent>,
    there: Vec<Extent>,
    len: usize,
}

impl Packet {
    const fn new(form: Form) -> Self {
        Self { form, here: Vec::new(), there: Vec::new(), len: 0 }
    }

    /// Takes what there is room for from the front of a piece; how many bytes.
    fn take(&mut self, piece: &mut Piece) -> usize {
        let used = self.len + (self.there.len() + 1) * self.form.entry();
        let len = piece.len.min(ROOM.saturating_sub(used));
        if len > 0 {
            push(&mut self.here, Extent { at: piece.local, len });
            push(&mut self.there, Extent { at: offset_of(piece.remote), len });
            self.len += len;
            let [local, remote] = [piece.local, piece.remote].map(|at| at.wrapping_add(len));
            *piece = Piece { local, remote, len: piece.len - len };
        }
        len
    }
}

/// Where a payload is written: a buffer of the network, from which nothing is copied, or memory
/// when there is none now.
pub(super) enum Room {
    Network(Cell<Option<SendBuffer>>),
    Memory(Vec<u8>),
}

impl Room {
    /// Room for `size` bytes to a remote target.
    pub(super) fn of<M: Mode>(
        context: &RankContext,
        target: usize,
        class: MessageClass,
        size: usize,
    ) -> Self {
        if context.transport.is_remote(target)
            && let Some(Reserved::SendBuffer(buffer)) =
                context.transport.reserve::<M>(target, class, size, false)
        {
            return Self::Network(Cell::new(Some(buffer)));
        }
        Self::Memory(vec![0; size])
    }

    /// Lets `write` fill the first `size` bytes.
    pub(super) fn with(
        &mut self,
        size: usize,
        write: impl FnOnce(&mut [u8]) -> Option<()>,
    ) -> Option<()> {
        match self {
            Self::Network(buffer) => write(buffer.get_mut().as_mut()?.bytes().get_mut(..size)?),
            Self::Memory(bytes) => write(bytes.get_mut(..size)?),
        }
    }

    pub(super) fn payload(&self, size: usize) -> AmPayload<'_> {
        match self {
            Self::Network(buffer) => {
                let len = u32::try_from(size).unwrap_or(u32::MAX);
                AmPayload::SendBuffer { buffer, len, dest: None }
            }
            Self::Memory(bytes) => AmPayload::Medium(bytes),
        }
    }
}
