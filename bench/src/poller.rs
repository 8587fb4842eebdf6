//! One rank works while the other one polls.

use gasnet_ibv::{BarrierFlags, Client, Rank, Seq};

use crate::arena::Result;

/// Place of the word of rank 1's segment that ends its polls.
const DONE: u64 = 128;

/// Rank 0 runs `work`; rank 1 polls all the time, as one that sleeps does not help the software
/// adapter. Collective over two ranks; uses a line of 128 bytes of rank 1's segment, from
/// 128 on.
///
/// # Errors
/// Those of `work` and of the library.
pub fn against_poller<T: Default>(
    client: &Client<Seq>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    let mut value = T::default();
    if client.rank() == Rank(0) {
        value = work()?;
        client.put_value(Rank(1), DONE, 1, 8)?;
    } else {
        while client.get_value(Rank(1), DONE, 8)? == 0 {
            client.poll()?;
        }
        client.put_value(Rank(1), DONE, 0, 8)?;
    }
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    Ok(value)
}
