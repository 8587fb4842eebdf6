//! The launcher finds the identification strings in every program that links the conduit, this one
//! for example.

use gasnet_ibv::{Client, Error, Seq};

#[test]
fn this_program_carries_the_strings() {
    // Links `init`, as every client does; nothing is started.
    let init: fn(&str) -> Result<Client<Seq>, Error> = Client::init;
    std::hint::black_box(init);
    let program = std::fs::read(std::env::current_exe().expect("own path")).expect("own program");
    // Put together here, so that this test does not carry them itself.
    for (name, value) in [("ConduitName", "IBV"), ("SSHSpawner", "1")] {
        let wanted = ["$GASNet", name, ": ", value, " $"].concat();
        let found = program.windows(wanted.len()).any(|window| window == wanted.as_bytes());
        assert!(found, "{wanted}");
    }
}
