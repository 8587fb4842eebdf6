//! The debug library compares the order of collective calls: members of a team tell each other what
//! they begin.

use crate::M;
use crate::checks::ON;
use crate::fail::Fail;
use crate::state::TeamRef;

/// A collective call begins; `alike` says what all members must give alike.
#[inline(always)]
pub fn compare(
    call: &'static str,
    team: &TeamRef,
    alike: impl FnOnce() -> String,
) -> Result<(), Fail> {
    if ON {
        let text = format!("{call}({})", alike());
        team.state.inner.compare_order::<M>(call, team.group(), &text)?;
    }
    Ok(())
}
