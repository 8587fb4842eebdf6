//! The debug library compares the order of collective calls: members of a team tell each other what
//! they begin.

use gasnet_ibv::inner::{Group, Inner};

use crate::M;
use crate::checks::ON;
use crate::fail::Fail;

/// A collective call begins; `alike` says what all members must give alike.
#[inline(always)]
pub fn compare(
    call: &'static str,
    inner: Inner,
    group: &Group,
    alike: impl FnOnce() -> String,
) -> Result<(), Fail> {
    if ON {
        let text = format!("{call}({})", alike());
        inner.compare_order::<M>(call, group, &text)?;
    }
    Ok(())
}
