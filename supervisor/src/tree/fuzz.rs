//! What is promised about any bytes that come over a link, for the fuzz targets and for the test
//! with their seeds.

use bootstrap::Rank;

use super::frames::Inbox;
use super::hosts::Hosts;
use super::message::{Common, Down, Up, decode, encode};
use super::told::Part;
use crate::local;

/// Bytes as a stream of messages from either side, cut into pieces by the first byte: no panic, no
/// more memory than came, and what is accepted is encoded to something that means the same.
///
/// # Panics
/// When that is not so.
pub fn messages(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let mut inbox = Inbox::default();
    let mut hosts = Hosts::new(["n1", "n2", "n3"].map(str::to_owned));
    let mut taken = 0;
    for piece in bytes.chunks(usize::from(*cut) + 1) {
        inbox.push(piece);
        loop {
            match inbox.take() {
                Ok(None) => break,
                Ok(Some(message)) => {
                    taken += message.len();
                    assert!(taken <= bytes.len(), "more than came");
                    message_of(&message, &mut hosts);
                }
                Err(_) => return,
            }
        }
    }
}

fn message_of(bytes: &[u8], hosts: &mut Hosts) {
    if let Ok(up) = decode::<Up>(bytes) {
        let again = encode(&up);
        let same = decode::<Up>(&again).map(|up| encode(&up));
        assert!(same.is_ok_and(|same| same == again), "{up:?}");
        match up {
            Up::Host { host, status } => {
                hosts.update(host, status);
                let _ = (hosts.table(), hosts.records());
            }
            Up::Told(told) => _ = Part::new(&[Rank(0), Rank(1)], [0]).take(&told),
            _ => {}
        }
    }
    if let Ok(down) = decode::<Down>(bytes) {
        let again = encode(&down);
        let same = decode::<Down>(&again).map(|down| encode(&down));
        assert!(same.is_ok_and(|same| same == again), "{down:?}");
        if let Down::Setup { common, .. } = down
            && let Ok((common, host_of)) = Common::decode(&common)
        {
            assert!(host_of.iter().all(|host| *host < common.hosts));
        }
    }
}

/// Bytes as what the launcher and its supervisor say to each other, cut into pieces by the first
/// byte: no panic, and what is accepted is accepted again when it is encoded.
///
/// # Panics
/// When that is not so.
pub fn launcher_link(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let mut inbox = local::Inbox::default();
    for piece in bytes.chunks(usize::from(*cut) + 1) {
        inbox.push(piece);
        loop {
            let message = match inbox.take() {
                Ok(None) => break,
                Ok(Some(message)) => message,
                Err(_) => return,
            };
            let Ok(again) = postcard::to_stdvec_cobs(&message) else { panic!("{message:?}") };
            let mut second = local::Inbox::default();
            second.push(&again);
            let Ok(Some(second)) = second.take() else { panic!("{message:?}") };
            // Compared as bytes, because a report may hold a number that is none.
            assert!(
                postcard::to_stdvec_cobs(&second).is_ok_and(|bytes| bytes == again),
                "{second:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::agent::machine::deed::Deed;
    use crate::agent::machine::{Command, RankEvent};
    use crate::event_loop::Which;
    use crate::plan::HostEntry;
    use crate::report::End;
    use crate::tree::frames::{Lane, Outbox};
    use crate::tree::hosts::HostStatus;
    use crate::tree::message::HostCommand;
    use crate::tree::told::{Kind, News, Told};
    use spawner_ssh::diagnosis::{Class, Failure, Step};

    fn play(target: &str, body: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
        testkit::seeds::each_changed(&folder, body);
    }

    #[test]
    fn seeds_of_the_target_messages() {
        play("messages", messages);
    }

    #[test]
    fn seeds_of_the_target_launcher_link() {
        play("launcher_link", launcher_link);
    }

    #[test]
    fn real_messages_in_any_pieces() {
        let failure = Failure::new(Class::Refused, "Connection refused");
        let ups = [
            Up::Host { host: 1, status: HostStatus::Failed(failure) },
            Up::Host { host: 2, status: HostStatus::Reached(Step::Ready) },
            Up::Unreached(vec![(1, HostEntry::new("n1"))]),
            Up::Events(vec![RankEvent::Ended { rank: 1, end: End::Signal(9), at: 0.5 }]),
            Up::Output { rank: 1, which: Which::Err, bytes: vec![1, 2].into() },
            Up::Told(Told::Some { news: News::Bare, runs: vec![(1, 2)] }),
            Up::Told(Told::Rest { news: News::Did(Deed::Fini { code: 3 }), count: 7 }),
            Up::Told(Told::Complete { kind: Kind::Exiting, count: 7 }),
            Up::Times(vec![(1, 0.5)]),
            Up::Standing,
            Up::Done { orphans: 3 },
        ];
        let downs = [
            Down::Setup { common: vec![1].into(), subtree: vec![(0, HostEntry::new("n"))] },
            Down::HostCommand(HostCommand::Ranks(Command::ExitDecision {
                code: 3,
                cause: Some(1),
            })),
            Down::Input(vec![7; 300].into()),
            Down::Ping,
        ];
        let mut outbox = Outbox::default();
        for up in &ups {
            outbox.push(Lane::Control, encode(&up));
        }
        for down in &downs {
            outbox.push(Lane::Bulk, encode(&down));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stream");
        outbox.write(std::fs::File::create(&path).unwrap()).unwrap();
        let stream = std::fs::read(path).unwrap();
        assert!(stream.len() > 300);
        for cut in [0, 1, 16, 255] {
            messages(&[&[cut], &stream[..]].concat());
        }
    }
}
