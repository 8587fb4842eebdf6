//! The user's ssh agent: what is wrong with it, in words. An agent that does not help is the usual
//! reason for a refused login, and ssh clients say nothing of it.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use settings::deadlines::tree::SSH_AGENT;

/// Length 1, `SSH_AGENTC_REQUEST_IDENTITIES`.
const QUESTION: [u8; 5] = [0, 0, 0, 1, 11];
/// `SSH_AGENT_IDENTITIES_ANSWER`.
const ANSWER: u8 = 12;

/// Why no key can come from the agent at this socket; `None` when some can.
#[must_use]
pub fn problem(socket: &Path) -> Option<String> {
    let found = match std::fs::metadata(socket) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Some("no such file".to_owned());
        }
        Err(error) => return Some(error.to_string()),
    };
    if !found.file_type().is_socket() {
        return Some("no socket".to_owned());
    }
    match keys(socket) {
        Ok(0) => Some("an agent without keys".to_owned()),
        Ok(_) => None,
        Err(error) => Some(match error.kind() {
            ErrorKind::ConnectionRefused => "no agent listens there any more".to_owned(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "the agent does not answer".to_owned(),
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => {
                "what listens there is no ssh agent".to_owned()
            }
            _ => error.to_string(),
        }),
    }
}

/// Number of its keys.
fn keys(socket: &Path) -> std::io::Result<u32> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(SSH_AGENT.limit))?;
    stream.set_write_timeout(Some(SSH_AGENT.limit))?;
    stream.write_all(&QUESTION)?;
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let [_, _, _, _, kind, count @ ..] = head;
    if kind != ANSWER {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(u32::from_be_bytes(count))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn what_is_wrong_with_an_agent_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let missing = problem(&path("missing"));
        assert_eq!(missing.as_deref(), Some("no such file"));
        std::fs::write(path("file"), "").unwrap();
        assert_eq!(problem(&path("file")).as_deref(), Some("no socket"));
        drop(UnixListener::bind(path("dead")).unwrap());
        assert_eq!(problem(&path("dead")).as_deref(), Some("no agent listens there any more"));
        let told = |name: &str, answer: &'static [u8]| {
            let listener = UnixListener::bind(path(name)).unwrap();
            let served = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = [0; 5];
                stream.read_exact(&mut question).unwrap();
                stream.write_all(answer).unwrap();
                question
            });
            let seen = problem(&path(name));
            assert_eq!(served.join().unwrap(), QUESTION);
            seen
        };
        let empty = told("empty", &[0, 0, 0, 5, ANSWER, 0, 0, 0, 0]);
        assert_eq!(empty.as_deref(), Some("an agent without keys"));
        assert_eq!(told("good", &[0, 0, 0, 99, ANSWER, 0, 0, 0, 1]), None);
        for (name, answer) in
            [("other", &b"HTTP/1.1 4"[..]), ("short", b""), ("refuses", &[0, 0, 0, 1, 5])]
        {
            let seen = told(name, answer);
            assert_eq!(seen.as_deref(), Some("what listens there is no ssh agent"), "{name}");
        }
    }
}
