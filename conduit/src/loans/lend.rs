//! Requests for loans that have arrived, their answers, and loans that come back.

use super::ledger::LoanId;
use super::table::Answer;
use super::wire::{
    ASK, ASK_ARGS, Ask, LENT, LENT_ARGS, REFUSED, REFUSED_ARGS, RETURN, RETURN_ARGS, decode_parts,
    encode_parts, loan, of_loan,
};
use crate::handler::{Function, Registered, Role};
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::token::RawToken;
use crate::transport::message::AmPayload;
use crate::transport::net::LentParts;
use crate::vis::own::{Lack, OwnMemory};
use crate::vis::ticket::Ticket;

impl RankContext {
    /// Registers the handlers, before the first message can come.
    pub(crate) fn register_loans<M: Mode>(&self) {
        let register = |(index, nargs), role, what: &str, function| {
            let row = Registered::new(index, what.to_owned(), nargs, role, function);
            self.handlers.register_library(row);
        };
        let ask = Function::Medium(Box::new(|token, payload, args| {
            asked::<M>(token, payload, args).unwrap_or_else(|| malformed(token, "request for"));
        }));
        register((ASK, ASK_ARGS), Role::Request, "request for a loan", ask);
        let lent = Function::Medium(Box::new(|token, payload, args| {
            lent::<M>(token, payload, args).unwrap_or_else(|| malformed(token, "answer about"));
        }));
        register((LENT, LENT_ARGS), Role::Reply, "loan", lent);
        let refused = Function::Short(Box::new(|token, args| {
            refused::<M>(token, args).unwrap_or_else(|| malformed(token, "refusal of"));
        }));
        register((REFUSED, REFUSED_ARGS), Role::Reply, "refusal of a loan", refused);
        let returned = Function::Short(Box::new(|token, args| {
            returned(token, args).unwrap_or_else(|| malformed(token, "return of"));
        }));
        register((RETURN, RETURN_ARGS), Role::Request, "return of a loan", returned);
    }

    /// A loan comes back; `None`: its sender has none of that number.
    fn take_back(&self, holder: usize, loan: LoanId) -> Option<()> {
        let held = self.loans.ledger().give_back(holder, loan)?;
        drop(held);
        Some(())
    }

    /// Lends memory to a rank, if it is to be had.
    fn lend(&self, holder: usize, range: OwnRange, write: bool) -> Option<(LoanId, LentParts)> {
        let OwnRange { address, len, lasts } = range;
        let (held, parts) = self.transport.net()?.lend((address, len), write, lasts)?;
        let loan = self.loans.ledger().lend(holder, held).ok()?;
        Some((loan, parts))
    }
}

/// A range of this process.
#[derive(Clone, Copy)]
struct OwnRange {
    address: u64,
    len: u64,
    /// It stays mapped as long as the network is open.
    lasts: bool,
}

#[cold]
fn malformed(token: &RawToken<'_>, what: &str) -> ! {
    let (rank, source) = (token.context.rank_info.rank, token.source());
    token.context.fatal(&format!(
        "rank {rank} received a malformed {what} a loan of memory from rank {source}"
    ))
}

fn asked<M: Mode>(token: &RawToken<'_>, carried: &[u8], args: &[i32]) -> Option<()> {
    let (ask, context) = (Ask::of_wire(args)?, token.context);
    if let Some(loan) = ask.returns {
        context.take_back(token.source_target(), loan)?;
    }
    let (memory, bytes) = context.own_memory(0)?;
    let (at, len) = (usize::try_from(ask.place).ok()?, ask.len as usize);
    let inside = at.checked_add(len).is_some_and(|end| end <= bytes);
    if !inside || carried.len() >= len || !ask.put && !carried.is_empty() {
        return None;
    }
    let stored = match memory.write(at, carried) {
        Ok(()) => true,
        Err(Lack::Outside) => return None,
        // What goes by messages meets it again, and says so.
        Err(Lack::Unmapped(_)) => false,
    };
    let address = match memory {
        OwnMemory::Everything => 0,
        OwnMemory::Segment(_) => context.transport.net()?.own_segment(0)?.address(),
    };
    let range = OwnRange {
        address: address.checked_add((at + carried.len()) as u64)?,
        len: (len - carried.len()) as u64,
        lasts: matches!(memory, OwnMemory::Segment(_)),
    };
    let lent = stored.then(|| context.lend(token.source_target(), range, ask.put)).flatten();
    let [slot, generation] = ask.ticket.to_wire();
    match lent {
        Some((loan, parts)) => {
            let [of, number] = of_loan(loan);
            let parts = encode_parts(&parts);
            token.answer::<M>(
                "loan",
                LENT,
                &[slot, generation, of, number],
                AmPayload::Medium(&parts),
            )
        }
        None => {
            let args = [slot, generation, i32::from(stored)];
            token.answer::<M>("loan", REFUSED, &args, AmPayload::None)
        }
    }
}

fn lent<M: Mode>(token: &RawToken<'_>, payload: &[u8], args: &[i32]) -> Option<()> {
    let &[slot, generation, of, number] = args else { return None };
    let parts = Box::new(decode_parts(payload)?);
    told::<M>(token, Ticket::of(slot, generation), Answer::Lent(loan(of, number), parts))
}

fn refused<M: Mode>(token: &RawToken<'_>, args: &[i32]) -> Option<()> {
    let &[slot, generation, stored @ 0..=1] = args else { return None };
    told::<M>(token, Ticket::of(slot, generation), Answer::Refused(stored == 1))
}

/// The next poll goes on with an answer.
fn told<M: Mode>(token: &RawToken<'_>, ticket: Ticket, answer: Answer) -> Option<()> {
    let context = token.context;
    context.loans.lanes.answer(ticket, token.source_target(), answer)?;
    context.calls.stir_loans();
    if M::THREADED {
        // Another thread of this rank may sleep for it.
        context.shm().wake_own();
    }
    Some(())
}

fn returned(token: &RawToken<'_>, args: &[i32]) -> Option<()> {
    let &[of, number] = args else { return None };
    token.context.take_back(token.source_target(), loan(of, number))
}
