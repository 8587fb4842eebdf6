//! Which operations adapters do: the decision for a domain, and what an operation is to an adapter.
//! Pure.
//!
//! All operations of a domain are atomic to each other, so they go the same way. An adapter that is
//! atomic to the processors does those at remote ranks, and neighbours reach each other's words
//! directly. One that is atomic only to itself has to do all of them, or none.

use super::types::{AtomicOps, Update};
use super::word::AtomicCall;
use crate::data_type::DataType;
use crate::transport::net::{AtomicCap, WordOp};

/// Where most operations of a domain will go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Favor {
    /// Nothing is known.
    #[default]
    Any,
    /// Words of the own rank, or of neighbours.
    Near,
    /// Words of ranks that share no memory with this one.
    Remote,
}

/// Which operations of a domain adapters do; ordered by how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// None: the owner of a word, or a neighbour, does them.
    #[default]
    None,
    /// Those at ranks that share no memory with this one.
    Remote,
    /// All, those of neighbours and of the own rank too.
    All,
}

/// Operations that adapters can do on words of a type.
const fn possible(data_type: DataType) -> AtomicOps {
    let compare = AtomicOps::GET.union(AtomicOps::CAS).union(AtomicOps::FCAS);
    let add = AtomicOps::ADD.union(AtomicOps::SUB).union(AtomicOps::INC).union(AtomicOps::DEC);
    let fetch_add =
        AtomicOps::FADD.union(AtomicOps::FSUB).union(AtomicOps::FINC).union(AtomicOps::FDEC);
    match data_type {
        DataType::I64 | DataType::U64 => compare.union(add).union(fetch_add),
        DataType::F64 => compare,
        DataType::I32 | DataType::U32 | DataType::F32 => AtomicOps::empty(),
    }
}

/// What adapters do of a domain; the same on all members of its team. `cap`: what adapters of all
/// ranks of the job can. `together`: all members share memory.
pub(crate) fn offload(
    cap: AtomicCap,
    (data_type, operations): (DataType, AtomicOps),
    favor: Favor,
    together: bool,
) -> Offload {
    if together || operations.is_empty() || !possible(data_type).contains(operations) {
        return Offload::None;
    }
    match (cap, favor) {
        (AtomicCap::None, _) | (AtomicCap::Device, Favor::Near) => Offload::None,
        (AtomicCap::Device, _) => Offload::All,
        (AtomicCap::Global, _) => Offload::Remote,
    }
}

/// An operation that [`possible`] has, as adapters do it.
pub(super) fn word_op(call: AtomicCall) -> Option<WordOp> {
    let AtomicCall { data_type, op, operands: [first, second] } = call;
    if !possible(data_type).contains(op.set()) {
        return None;
    }
    Some(match op.update() {
        Update::Add => WordOp::Add(first),
        Update::Sub => WordOp::Add(first.wrapping_neg()),
        Update::Inc => WordOp::Add(1),
        Update::Dec => WordOp::Add(u64::MAX),
        // Reads are atomic only as atomics.
        Update::Get => WordOp::Add(0),
        Update::Cas => WordOp::CompareSwap { compare: first, swap: second },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::semantics::update_word;
    use super::super::types::AtomicOp;
    use super::*;

    fn decided(cap: AtomicCap, of: DataType, ops: AtomicOps, favor: Favor) -> Offload {
        offload(cap, (of, ops), favor, false)
    }

    #[test]
    fn a_domain_goes_one_way() {
        use AtomicCap::{Device, Global};
        let counters = AtomicOps::FADD | AtomicOps::GET | AtomicOps::CAS;
        for of in [DataType::I64, DataType::U64] {
            assert_eq!(decided(Global, of, counters, Favor::Any), Offload::Remote);
            assert_eq!(decided(Global, of, counters, Favor::Near), Offload::Remote);
            assert_eq!(decided(Device, of, counters, Favor::Any), Offload::All);
            assert_eq!(decided(Device, of, counters, Favor::Remote), Offload::All);
            assert_eq!(decided(Device, of, counters, Favor::Near), Offload::None);
            assert_eq!(decided(AtomicCap::None, of, counters, Favor::Remote), Offload::None);
            let together = offload(Device, (of, counters), Favor::Remote, true);
            assert_eq!(together, Offload::None);
            // One that adapters do not have takes the others with it.
            for other in [AtomicOps::SET, AtomicOps::SWAP, AtomicOps::FMAX, AtomicOps::XOR] {
                assert_eq!(decided(Global, of, counters | other, Favor::Remote), Offload::None);
            }
        }
        let compared = AtomicOps::GET | AtomicOps::FCAS;
        assert_eq!(decided(Device, DataType::F64, compared, Favor::Any), Offload::All);
        assert_eq!(decided(Device, DataType::F64, counters, Favor::Any), Offload::None);
        assert_eq!(decided(Global, DataType::U32, counters, Favor::Any), Offload::None);
        assert_eq!(decided(Global, DataType::U64, AtomicOps::empty(), Favor::Any), Offload::None);
    }

    proptest! {
        #[test]
        fn adapters_do_what_the_pure_functions_say(
            before: u64,
            operands: [u64; 2],
            equal: bool,
            data_type in proptest::sample::select(&DataType::ALL[..]),
            op in proptest::sample::select(&AtomicOp::ALL[..]),
        ) {
            let operands = if equal { [before, operands[1]] } else { operands };
            let call = AtomicCall { data_type, op, operands };
            let done = word_op(call);
            prop_assert_eq!(done.is_some(), possible(data_type).contains(op.set()));
            let after = match done {
                None => return Ok(()),
                Some(WordOp::Add(add)) => before.wrapping_add(add),
                Some(WordOp::CompareSwap { compare, swap }) if compare == before => swap,
                Some(WordOp::CompareSwap { .. }) => before,
            };
            // Of floating point the adapter compares bits.
            if data_type != DataType::F64 {
                let model = update_word(data_type, op.update(), before, operands);
                prop_assert_eq!(after, model.unwrap_or(before));
            }
        }
    }
}
