//! Jobs that encrypt what leaves a host (`GASNET_IBV_SOFT_SECURE`): what stands on the wire, and ranks
//! that disagree. (The other tests of the network run such jobs, too.)

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use testkit::apart::neighbourhoods;
use testkit::{Tree, job, launcher};

const BOUND: Duration = Duration::from_secs(60);
/// How each word begins that must not be read.
const SECRET: &str = "xyzzyplughfrotz";

fn apart(tree: Tree) -> Tree {
    neighbourhoods(tree, 1).deadline("job over the network", BOUND)
}

/// Ends a capture, also when the job failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All packets that this host sees while `run` runs: how many there were, and whether one has the
/// secret.
fn captured(wire: &OwnedFd, run: impl FnOnce()) -> (usize, bool) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let capture = scope.spawn(|| {
            let (mut packet, mut count, mut found) = (vec![0; 1 << 17], 0, false);
            loop {
                match recv(wire.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
                    Ok(len) => {
                        count += 1;
                        let mut parts = packet[..len].windows(SECRET.len());
                        found |= parts.any(|part| part == SECRET.as_bytes());
                    }
                    Err(Errno::EAGAIN) if over.load(Ordering::Relaxed) => return (count, found),
                    Err(Errno::EAGAIN) => std::thread::sleep(Duration::from_millis(1)),
                    Err(Errno::EINTR) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let ends = Ends(&over);
        run();
        drop(ends);
        capture.join().unwrap()
    })
}

/// A job of 4 ranks sends words to each other. Whoever sees all packets reads them, or not.
#[test]
fn words_do_not_stand_on_the_wire() {
    let flags = SockFlag::SOCK_CLOEXEC;
    let protocol = SockProtocol::EthAll;
    let wire = match socket(AddressFamily::Packet, SockType::Raw, flags, protocol) {
        Ok(wire) => wire,
        Err(error) => {
            testkit::skip("capture of an encrypted job", &format!("no packet socket: {error}"));
            return;
        }
    };
    let _ = setsockopt(&wire, sockopt::RcvBufForce, &(32 << 20));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("words");
    let letters = |number: u8| format!("{SECRET}{}", char::from(b'a' + number));
    let words: Vec<String> = (0..26).map(letters).collect();
    std::fs::write(&file, words.join(" ")).unwrap();
    for secure in ["0", "1"] {
        let (packets, seen) = captured(&wire, || {
            let tree = apart(job(4, "wordcount")).env("GASNET_IBV_SOFT_SECURE", secure);
            let outcome = tree.args(["-k", "99"]).arg(&file).run();
            outcome.expect(0);
            let out = outcome.out();
            assert!(words.iter().all(|word| out.contains(word)), "{out}");
        });
        assert!(packets > 20, "{packets} packets were seen");
        assert_eq!(seen, secure == "0", "GASNET_IBV_SOFT_SECURE={secure}, {packets} packets");
    }
}

#[test]
fn ranks_that_disagree_are_told_both_values() {
    let program = testkit::binary("hello");
    let script =
        format!("GASNET_IBV_SOFT_SECURE=$((GASNETRUN_RANK % 2)) exec {}", program.display());
    let outcome = apart(launcher(["-n", "4", "/bin/sh", "-c"]).arg(script)).run();
    assert_eq!(outcome.fault(1), None, "{}", outcome.err());
    let err = outcome.err();
    let said = "setting GASNET_IBV_SOFT_SECURE: ";
    assert!(err.contains(said) && err.contains("; set it to the same on all ranks"), "{err}");
    // Each rank names the first that differs; the first to say so ends the job.
    let pairs = (0..4).map(|me| match me % 2 {
        0 => format!("1 on rank 1, 0 on rank {me};"),
        _ => format!("0 on rank 0, 1 on rank {me};"),
    });
    assert!(pairs.into_iter().any(|pair| err.contains(&pair)), "{err}");
}
