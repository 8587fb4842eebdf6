//! Doorbells have no part in the models.

pub(super) struct RankSlot;

impl RankSlot {
    pub(super) fn ring_if_sleeping(&self) {}
}
