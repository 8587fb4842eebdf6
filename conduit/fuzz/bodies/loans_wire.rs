//! Any bytes as the messages of loans: no panic; a request that is accepted is written again as the
//! same words; parts lie one behind the other and none is empty; what was lent comes back once, from
//! who has it.
//!
//! An input is a kind (1 byte) and: for 0 the words of a request; for 1 the payload of an answer; for
//! 2 any number of steps of the owner's ledger, 10 bytes each: what (even: a loan, odd: one comes
//! back), which rank, slot and generation (4 bytes each).

use super::ledger::{Ledger, LoanId};
use super::wire::{Ask, decode_parts, encode_parts};

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => request(rest),
        1 => answer(rest),
        _ => steps(rest),
    }
}

fn request(bytes: &[u8]) {
    let (words, _) = bytes.as_chunks();
    let words: Vec<i32> = words.iter().map(|word| i32::from_le_bytes(*word)).collect();
    let Some(ask) = Ask::of_wire(&words) else { return };
    let again = ask.to_wire();
    // The number of a loan means nothing where none comes back.
    let told = if ask.returns.is_some() { 8 } else { 6 };
    assert_eq!(again.get(..told), words.get(..told));
}

fn answer(bytes: &[u8]) {
    let Some(parts) = decode_parts(bytes) else { return };
    assert!(parts.iter().all(|part| part.len > 0 && !part.keys.is_empty()));
    let ends = parts.iter().map(|part| part.at + u64::from(part.len));
    assert!(ends.zip(parts.iter().skip(1)).all(|(end, next)| end == next.at));
    assert_eq!(encode_parts(&parts), bytes);
}

fn steps(bytes: &[u8]) {
    let mut ledger = Ledger::default();
    // Holder and number of each loan that is not back.
    let mut out: Vec<(usize, LoanId)> = Vec::new();
    let (steps, _) = bytes.as_chunks();
    for &[what, rank, a, b, c, d, e, f, g, h] in steps {
        let holder = usize::from(rank);
        if what % 2 == 0 {
            if let Ok(loan) = ledger.lend(holder, (holder, out.len())) {
                assert!(out.iter().all(|(_, one)| *one != loan));
                out.push((holder, loan));
            }
            continue;
        }
        let slot = u32::from_le_bytes([a, b, c, d]);
        let loan = LoanId { slot, generation: u32::from_le_bytes([e, f, g, h]) };
        let place = out.iter().position(|one| *one == (holder, loan));
        let back = ledger.give_back(holder, loan);
        assert_eq!(back.is_some(), place.is_some());
        assert!(back.is_none_or(|(of, _)| of == holder));
        if let Some(place) = place {
            out.swap_remove(place);
        }
    }
}
