//! Transfers inside a neighbourhood: copies.

use super::describe::{Shape, bad};
use super::grid::Row;
use super::list::Pieces;
use super::memory;
use super::send::VisOp;
use crate::error::Error;
use crate::rank::RankContext;

impl RankContext {
    /// Makes a transfer that needs no network: nothing to move, or a neighbour. `None`: it needs
    /// one.
    pub(crate) fn vis_here(&self, op: &VisOp<'_>, put: bool) -> Result<Option<()>, Error> {
        if self.transport.is_remote(op.target) || self.settings.segment_mode.is_everything() {
            return Ok(None);
        }
        self.check_vis(op, put)?;
        let found = self.transport.segment(op.target);
        let found = found.and_then(|one| Some((one.here?, usize::try_from(one.len).ok()?)));
        let (base, len) = found.ok_or_else(|| bad(op.call, "no segment is attached"))?;
        let there = memory::segment(base, len);
        let copy = |row: &Row| {
            let copied = memory::copy(&op.local, &there, row, put);
            copied.map_err(|_| bad(op.call, "the transfer reaches outside its memory"))
        };
        match op.shape {
            Shape::Grid(grid) => grid.rows(0, usize::MAX).try_for_each(|row| copy(&row))?,
            Shape::Lists { local, remote } => {
                Pieces::new(&local, &remote).try_for_each(|piece| {
                    copy(&Row::contiguous(piece.local, piece.remote, piece.len))
                })?
            }
        }
        Ok(Some(()))
    }
}
