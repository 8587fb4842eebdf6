//! What a domain allows: the checks of every operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::offload::Offload;
use super::types::{AtomicOp, AtomicOps};
use crate::data_type::DataType;
use crate::error::Error;

/// Type and operations of an atomic domain, and how many of them are on their way from here.
#[derive(Debug)]
pub struct Domain {
    data_type: DataType,
    operations: AtomicOps,
    offload: Offload,
    in_flight: Arc<AtomicU32>,
}

impl Domain {
    /// A domain for these operations.
    ///
    /// # Errors
    /// One that does not exist for words of the type.
    pub fn new(
        call: &'static str,
        data_type: DataType,
        operations: AtomicOps,
    ) -> Result<Self, Error> {
        let missing = operations.difference(data_type.operations());
        if let Some(op) = AtomicOp::ALL.into_iter().find(|op| missing.contains(op.set())) {
            return Err(no_such(call, data_type, op));
        }
        Ok(Self { data_type, operations, offload: Offload::None, in_flight: Arc::default() })
    }

    /// The same, of whose operations adapters do some ([`RankContext::offload`]).
    ///
    /// [`RankContext::offload`]: crate::rank::RankContext::offload
    #[must_use]
    pub fn offloaded(self, offload: Offload) -> Self {
        Self { offload, ..self }
    }

    /// What adapters do of it.
    #[must_use]
    #[inline]
    pub const fn offload(&self) -> Offload {
        self.offload
    }

    /// Type of its words.
    #[must_use]
    pub const fn data_type(&self) -> DataType {
        self.data_type
    }

    /// What it was created for.
    #[must_use]
    pub const fn operations(&self) -> AtomicOps {
        self.operations
    }

    /// Checks an operation.
    ///
    /// # Errors
    /// The domain was not created for it.
    #[inline]
    pub fn check(&self, call: &'static str, op: AtomicOp) -> Result<(), Error> {
        if self.operations.contains(op.set()) { Ok(()) } else { Err(self.not_in(call, op)) }
    }

    #[cold]
    fn not_in(&self, call: &'static str, op: AtomicOp) -> Error {
        if !self.data_type.operations().contains(op.set()) {
            return no_such(call, self.data_type, op);
        }
        let mut had = String::new();
        for op in AtomicOp::ALL.into_iter().filter(|op| self.operations.contains(op.set())) {
            had.push_str(if had.is_empty() { "" } else { ", " });
            had.push_str(&op.to_string());
        }
        let problem = format!("the domain was created for {had}, not for {op}");
        Error::Atomic { call, problem }
    }

    /// Operations that this rank has started and not seen complete.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Acquire)
    }

    pub(super) const fn counter(&self) -> &Arc<AtomicU32> {
        &self.in_flight
    }
}

#[cold]
fn no_such(call: &'static str, data_type: DataType, op: AtomicOp) -> Error {
    let problem = format!("operation {op} does not exist for type {data_type}");
    Error::Atomic { call, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_does_what_it_was_created_for() {
        let domain = Domain::new("create", DataType::F64, AtomicOps::ADD | AtomicOps::FCAS);
        let domain = domain.expect("both exist");
        assert!(domain.check("op", AtomicOp::FCas).is_ok());
        let said = |op| domain.check("op", op).unwrap_err().to_string();
        let expected = "op: the domain was created for ADD, FCAS, not for GET";
        assert_eq!(said(AtomicOp::Get), expected);
        assert_eq!(said(AtomicOp::And), "op: operation AND does not exist for type DBL");
        let refused = Domain::new("create", DataType::F32, AtomicOps::all()).unwrap_err();
        assert_eq!(refused.to_string(), "create: operation AND does not exist for type FLT");
        assert!(Domain::new("create", DataType::I32, AtomicOps::all()).is_ok());
    }
}
