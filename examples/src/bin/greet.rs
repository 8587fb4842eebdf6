//! The program of the README.
#![expect(clippy::print_stdout, reason = "the output of the example")]

use gasnet_ibv::{BarrierFlags, Client, Error, Rank, Seq};

fn main() -> Result<(), Error> {
    let client = Client::<Seq>::init("greet")?;
    let segment = client.attach_segment(1 << 16)?;
    let next = Rank((client.rank().0 + 1) % client.size());
    client.put_value(next, 0, u64::from(client.rank().0), 8)?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    let mut left = [0; 8];
    segment.read(0, &mut left)?;
    println!("rank {} of {}: {} greets me", client.rank(), client.size(), u64::from_ne_bytes(left));
    client.exit(0)
}
