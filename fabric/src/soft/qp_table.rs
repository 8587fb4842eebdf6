//! The queue pairs of a device, by number.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::context::Context;
use super::limits::MAX_QP;
use super::lock::{Wait, try_lock_for};
use super::qp::Qp;
use super::qp_shared::Queues;
use super::random::random_u32;
use crate::{Error, QpSpec};

/// All queue pairs that their users hold.
#[derive(Debug, Default)]
pub(super) struct QpTable(Mutex<BTreeMap<u32, Weak<Qp>>>);

impl QpTable {
    pub(super) fn make(
        &self,
        ctx: &Arc<Context>,
        spec: &QpSpec<'_>,
        queues: Queues,
    ) -> Result<Arc<Qp>, Error> {
        let mut qps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if qps.len() >= MAX_QP as usize - 1 {
            let problem = format!("all {} are in use", MAX_QP - 1);
            return Err(ctx.invalid("make a queue pair", problem));
        }
        // The high bits are random: the number of a queue pair that is gone is hardly ever used
        // again.
        let number = loop {
            let number = random_u32() & 0x00ff_ffff;
            let low = number & (MAX_QP - 1);
            let taken = qps.keys().any(|one| one & (MAX_QP - 1) == low);
            if low != 0 && number >= MAX_QP && !taken {
                break number;
            }
        };
        ctx.slots.enter(number);
        let qp = Arc::new(Qp::new(ctx, number, spec, queues));
        qps.insert(number, Arc::downgrade(&qp));
        Ok(qp)
    }

    pub(super) fn find(&self, number: u32) -> Option<Arc<Qp>> {
        try_lock_for(&self.0, Wait::Control)?.get(&number)?.upgrade()
    }

    /// As [`QpTable::find`], for one that waits for nobody.
    pub(super) fn try_find(&self, number: u32) -> Option<Arc<Qp>> {
        try_lock_for(&self.0, Wait::No)?.get(&number)?.upgrade()
    }

    /// Adds all to a list that is there already. False: not now.
    pub(super) fn list(&self, into: &mut Vec<Arc<Qp>>) -> bool {
        let Some(qps) = try_lock_for(&self.0, Wait::Post) else { return false };
        into.extend(qps.values().filter_map(Weak::upgrade));
        true
    }

    pub(super) fn remove(&self, ctx: &Context, number: u32) {
        ctx.slots.remove(number);
        if let Some(mut qps) = try_lock_for(&self.0, Wait::Control) {
            qps.remove(&number);
        }
    }
}
