//! Every rank says who and where it is.

use gasnet_ibv::{BarrierFlags, Client, Error, Seq};

/// Room for other ranks to put something; hello itself needs none, but attaching shows that it
/// works.
const SEGMENT: u64 = 1 << 16;

fn main() -> Result<(), Error> {
    let client = Client::<Seq>::init("hello")?;
    let _segment = client.attach_segment(SEGMENT)?;
    say(&client);
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    client.exit(0)
}

#[expect(clippy::print_stdout, reason = "the output of the example")]
fn say(client: &Client<Seq>) {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let (rank, size, pid) = (client.rank(), client.size(), std::process::id());
    println!("rank {rank} of {size} on {}, process {pid}", host.display());
}
