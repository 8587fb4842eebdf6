//! Any bytes as what two ranks say to the PMI server of their agent: it answers, or ends the job with a
//! reason, without panic; a rank that broke the rules hears nothing more.

use bootstrap::{HostId, Rank};
use spawner_pmi::server::{Action, Event, Server, Site};

/// Between what one rank says and what the other one says.
const TURN: u8 = 0;

pub(crate) fn run(said: &[u8]) {
    let mut server = Server::new(Site {
        job: "job.0".to_owned(),
        ranks: vec![Rank(0), Rank(1)],
        host_of: vec![HostId(0); 2],
        programs: vec![0; 2],
        ..Site::default()
    });
    let mut broken = [false; 2];
    for (turn, piece) in said.split(|byte| *byte == TURN).enumerate() {
        server.receive(u32::from(turn % 2 == 1), piece);
        while let Some(action) = server.poll_action() {
            match action {
                Action::Tell { rank, event: Event::Broken(text) } => {
                    assert!(text.starts_with("PMI-"), "{text}");
                    broken[rank.0 as usize] = true;
                }
                Action::Send { local, bytes } => {
                    assert!(!broken[local as usize] && !bytes.is_empty());
                }
                Action::Up(_) | Action::Down(_) => unreachable!("the agent is alone"),
                Action::Tell { .. } | Action::Close { .. } => {}
            }
        }
    }
}
