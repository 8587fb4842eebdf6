//! Ranks that end in one way, for the figure of exits. Usage:
//! `bench_exit collective|lone|lone-compute|hold|hold-compute|compute`
//!
//! Prints `ready RANK PID` after a barrier, and `call NANOSECONDS` right before a call of exit.

use std::time::Duration;

use bench::sys::now_ns;
use gasnet_ibv::{BarrierFlags, Client, Error, Seq};
use testkit::report::show;

fn main() -> Result<(), Error> {
    let mode = std::env::args().nth(1).unwrap_or_default();
    let client = Client::<Seq>::init("bench_exit")?;
    client.attach_segment(1 << 16)?;
    client.barrier(0, BarrierFlags::ANONYMOUS)?;
    show(&format!("ready {} {}\n", client.rank(), std::process::id()));
    let last = client.rank().0 + 1 == client.size();
    match mode.as_str() {
        "collective" => end(&client, 0),
        "lone" | "lone-compute" if last => {
            // Long enough for the others to be where the case wants them.
            std::thread::sleep(Duration::from_millis(500));
            end(&client, 3)
        }
        // The rank that is killed does not enter the barrier either, so that nobody leaves it.
        "hold" | "hold-compute" if last => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
        "lone" | "hold" => client.barrier(0, BarrierFlags::ANONYMOUS)?,
        "lone-compute" | "hold-compute" | "compute" => compute(),
        _ => {}
    }
    client.exit(2)
}

fn end(client: &Client<Seq>, code: i32) -> ! {
    show(&format!("call {}\n", now_ns()));
    client.exit(code)
}

/// Never calls the library and never returns.
fn compute() -> ! {
    let mut number = 1_u64;
    loop {
        number =
            std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
