//! Packets and answers that have arrived: the library's handlers of transfers.

use super::fill::{Fill, halves, whole};
use super::flights::{Flight, Landing};
use super::grid::Row;
use super::list::Extent;
use super::memory::{Region, scatter};
use super::own::{Lack, OwnMemory};
use super::peer::{Announced, MAX_PEER_COMPLETION};
use super::send::Room;
use super::state::{
    ANSWER_ARGS, DATA, DONE, FILL, FILL_ARGS, GET, GET_ARGS, PEER, PEER_ARGS, PUT, PUT_ARGS,
    REFUSED, REFUSED_ARGS, ROOM,
};
use super::ticket::Ticket;
use super::wire::{self, Described, Form};
use crate::handler::{Function, Registered, Role};
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::sys::own_memory::Unmapped;
use crate::token::RawToken;
use crate::transport::message::{AmPayload, MessageClass};

/// What answers belong to, in errors.
const CALL: &str = "vector transfer";

/// A handler for Mediums; `None` from it: the message was none of ours.
type Medium = fn(&RawToken<'_>, &mut [u8], &[i32]) -> Option<()>;

impl RankContext {
    /// Registers the handlers, before the first message can come.
    pub(crate) fn register_vis<M: Mode>(&self) {
        let register = |(index, nargs), role, what: &'static str, function| {
            let row = Registered::new(index, format!("{what} of vectors"), nargs, role, function);
            self.handlers.register_library(row);
        };
        let medium = |what: &'static str, handler: Medium| {
            Function::Medium(Box::new(move |token, payload, args| {
                handler(token, payload, args).unwrap_or_else(|| malformed(token, what));
            }))
        };
        let short = Function::Short(Box::new(|token, args| {
            done_arrived::<M>(token, args).unwrap_or_else(|| malformed(token, "end"));
        }));
        let (request, reply) = (Role::Request, Role::Reply);
        register((PUT, PUT_ARGS), request, "packet", medium("packet", put_arrived::<M>));
        register((GET, GET_ARGS), request, "request", medium("request", get_arrived::<M>));
        register((DONE, ANSWER_ARGS), reply, "end", short);
        register((DATA, ANSWER_ARGS), reply, "answer", medium("answer", data_arrived::<M>));
        let announced = medium("announcement", peer_arrived);
        register((PEER, PEER_ARGS), request, "announcement", announced);
        let fill = Function::Short(Box::new(|token, args| {
            fill_arrived::<M>(token, args).unwrap_or_else(|| malformed(token, "fill"));
        }));
        register((FILL, FILL_ARGS), request, "fill", fill);
        let refused = Function::Short(Box::new(|token, args| {
            refused_arrived(token, args).unwrap_or_else(|| malformed(token, "refusal"));
        }));
        register((REFUSED, REFUSED_ARGS), reply, "refusal", refused);
    }
}

#[cold]
fn malformed(token: &RawToken<'_>, what: &str) -> ! {
    let (rank, source) = (token.context.rank_info.rank, token.source());
    token.context.fatal(&format!(
        "rank {rank} received a malformed {what} of a vector transfer from rank {source}"
    ))
}

/// The own memory and what a description says of it.
fn described(
    token: &RawToken<'_>,
    (endpoint, form): (i32, i32),
    about: &[u8],
    len: usize,
) -> Option<(OwnMemory, Described)> {
    let (memory, bytes) = token.context.own_memory(u16::try_from(endpoint).ok()?)?;
    Some((memory, wire::decode(Form::of(form)?, about, len, bytes)?))
}

fn put_arrived<M: Mode>(token: &RawToken<'_>, payload: &mut [u8], args: &[i32]) -> Option<()> {
    let &[slot, generation, len, form, endpoint, counted] = args else { return None };
    let len = usize::try_from(len).ok()?;
    let (data, about) = payload.split_at_checked(len)?;
    let (memory, described) = described(token, (endpoint, form), about, len)?;
    if let Err(lack) = memory.scatter(&described, data) {
        return refuse::<M>(token, [slot, generation], &lack);
    }
    token.answer::<M>(CALL, DONE, &[slot, generation], AmPayload::None)?;
    if counted != 0 {
        let ready = token.context.vis.peers.packet((token.source_target(), counted));
        run_ready(token, ready);
    }
    Some(())
}

fn get_arrived<M: Mode>(token: &RawToken<'_>, payload: &mut [u8], args: &[i32]) -> Option<()> {
    let &[slot, generation, len, form, endpoint] = args else { return None };
    let len = usize::try_from(len).ok().filter(|len| *len <= ROOM)?;
    let (memory, described) = described(token, (endpoint, form), payload, len)?;
    let mut room = Room::of::<M>(token.context, token.source_target(), MessageClass::Reply, len);
    let mut gathered = Ok(());
    room.with(len, |bytes| {
        gathered = memory.gather(&described, bytes);
        Some(())
    })?;
    match gathered {
        Ok(()) => token.answer::<M>(CALL, DATA, &[slot, generation], room.payload(len)),
        Err(lack) => refuse::<M>(token, [slot, generation], &lack),
    }
}

/// A range of the own memory is set to one byte.
fn fill_arrived<M: Mode>(token: &RawToken<'_>, args: &[i32]) -> Option<()> {
    let (ticket, words) = args.split_first_chunk()?;
    let Fill { endpoint, range, value } = Fill::of_wire(words)?;
    let (memory, _) = token.context.own_memory(endpoint)?;
    match memory.fill(range, value) {
        Ok(()) => token.answer::<M>(CALL, DONE, ticket, AmPayload::None),
        Err(lack) => refuse::<M>(token, *ticket, &lack),
    }
}

/// Tells who asked that there is no such memory here.
#[cold]
fn refuse<M: Mode>(token: &RawToken<'_>, [slot, generation]: [i32; 2], lack: &Lack) -> Option<()> {
    let Lack::Unmapped(Unmapped { range, errno }) = lack else { return None };
    let ([at, high], [len, more]) = (halves(range.at), halves(range.len));
    let args = [slot, generation, at, high, len, more, *errno];
    token.answer::<M>(CALL, REFUSED, &args, AmPayload::None)
}

/// The answer to a transfer of memory that its owner does not have.
fn refused_arrived(token: &RawToken<'_>, args: &[i32]) -> Option<()> {
    let &[slot, generation, at, high, len, more, errno] = args else { return None };
    let (flights, ticket) = (&token.context.vis.flights, Ticket::of(slot, generation));
    let Some(call) = flights.end(ticket, token.source_target(), |flight| flight.call) else {
        return flights.is_closed().then_some(());
    };
    let range = Extent { at: whole([at, high])?, len: whole([len, more])? };
    token.context.fatal(&unmapped_text(call, token, range, errno))
}

/// What a program reads that names memory which the other rank does not have.
fn unmapped_text(call: &str, token: &RawToken<'_>, range: Extent, errno: i32) -> String {
    let (rank, peer) = (token.context.rank_info.rank, token.source());
    let (at, end) = (range.at, range.at.saturating_add(range.len));
    let why = std::io::Error::from_raw_os_error(errno);
    format!(
        "{call} of rank {rank} names bytes {at:#x}..{end:#x} of rank {peer}, which has not mapped all of them so: {why}"
    )
}

fn done_arrived<M: Mode>(token: &RawToken<'_>, args: &[i32]) -> Option<()> {
    let &[slot, generation] = args else { return None };
    ended::<M>(token, Ticket::of(slot, generation), |flight| {
        matches!(flight.landing, Landing::Nowhere).then_some(())
    })
}

fn data_arrived<M: Mode>(token: &RawToken<'_>, payload: &mut [u8], args: &[i32]) -> Option<()> {
    let &[slot, generation] = args else { return None };
    ended::<M>(token, Ticket::of(slot, generation), |flight| land(&flight.landing, payload))
}

/// Ends the flight that an answer is for.
fn ended<M: Mode>(
    token: &RawToken<'_>,
    ticket: Ticket,
    land: impl FnOnce(&Flight) -> Option<()>,
) -> Option<()> {
    let flights = &token.context.vis.flights;
    match flights.end(ticket, token.source_target(), land) {
        Some(landed) => {
            if M::THREADED {
                // Another thread of this rank may sleep for it.
                token.context.shm().wake_own();
            }
            landed
        }
        None => flights.is_closed().then_some(()),
    }
}

/// Writes the bytes of an answer where they were asked for.
fn land(landing: &Landing, payload: &[u8]) -> Option<()> {
    let local = |region: Region| {
        move |rest, row: Row| scatter(rest, &region, (row.local, row.local_stride), &row).ok()
    };
    let rest = match landing {
        Landing::Nowhere => return None,
        Landing::List(region, runs, len) if *len == payload.len() => runs
            .iter()
            .map(|run| Row::contiguous(run.at, 0, run.len))
            .try_fold(payload, local(*region))?,
        Landing::Grid(region, grid, from, len) if *len == payload.len() => {
            grid.rows(*from, *len).try_fold(payload, local(*region))?
        }
        _ => return None,
    };
    rest.is_empty().then_some(())
}

fn peer_arrived(token: &RawToken<'_>, payload: &mut [u8], args: &[i32]) -> Option<()> {
    let &[handler, counted, packets] = args else { return None };
    let handler = u8::try_from(handler).ok()?;
    if payload.len() > MAX_PEER_COMPLETION {
        return None;
    }
    let announced =
        Announced { handler, payload: payload.to_vec(), packets: packets.cast_unsigned() };
    let put = (token.source_target(), counted);
    run_ready(token, token.context.vis.peers.announce(put, announced));
    Some(())
}

fn run_ready(token: &RawToken<'_>, ready: Option<Announced>) {
    if let Some(Announced { handler, mut payload, .. }) = ready {
        token.context.deliver_inside(token.source_target(), handler, &mut payload);
    }
}
