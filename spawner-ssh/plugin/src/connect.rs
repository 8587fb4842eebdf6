//! From a name to a connection, and what it is that answers there.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use settings::deadlines::tree::FAREWELL;
use spawner_ssh::builtin::Family;

/// Most that is read of somebody who speaks something else.
const FIRST_WORDS: usize = 256;

/// A connection, each address with this limit.
pub(crate) fn connect(
    name: &str,
    port: u16,
    (family, keep_alive): (Family, bool),
    limit: Duration,
) -> Result<(TcpStream, SocketAddr), String> {
    let found = (name, port).to_socket_addrs();
    let found = found.map_err(|error| format!("Could not resolve hostname {name}: {error}"))?;
    let fits = |address: &SocketAddr| match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    };
    let mut problem = "No address associated with hostname".to_owned();
    for address in found.filter(fits) {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(socket) => {
                // Frames are short and awaited.
                let _ = socket.set_nodelay(true);
                let _ = setsockopt(&socket, sockopt::KeepAlive, &keep_alive);
                return Ok((socket, address));
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                problem = "Connection timed out".to_owned();
            }
            Err(error) => {
                let errno = error.raw_os_error().map(|errno| Errno::from_raw(errno).desc());
                problem = errno.map_or_else(|| error.to_string(), str::to_owned);
            }
        }
    }
    Err(format!("connect to host {name} port {port}: {problem}"))
}

/// What somebody says at this address who does not speak ssh; `None` when nothing else was heard.
pub(crate) fn other_words(address: SocketAddr) -> Option<String> {
    let begin = Instant::now();
    let mut socket = TcpStream::connect_timeout(&address, FAREWELL.limit).ok()?;
    socket.set_write_timeout(Some(FAREWELL.limit)).ok()?;
    socket.write_all(b"SSH-2.0-gasnetrun_ibv\r\n\r\n").ok()?;
    let (mut heard, mut bytes) = (0, [0; FIRST_WORDS]);
    while heard < bytes.len() && !bytes[..heard].contains(&b'\n') {
        let left = FAREWELL.limit.checked_sub(begin.elapsed()).filter(|left| !left.is_zero())?;
        socket.set_read_timeout(Some(left)).ok()?;
        match socket.read(&mut bytes[heard..]) {
            Ok(0) | Err(_) => break,
            Ok(count) => heard += count,
        }
    }
    first_line(&bytes[..heard])
}

/// Whether these are words of an OpenSSH server that takes no login for a while (sshd.c says them in
/// place of its version).
pub(crate) fn drops_logins(said: &str) -> bool {
    ["Exceeded MaxStartups", "Not allowed at this time"].iter().any(|words| said.starts_with(words))
}

fn first_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes.split(|byte| *byte == b'\n').next()?).into_owned();
    let text: String = text.chars().filter(|letter| !letter.is_control()).take(60).collect();
    (!text.trim().is_empty() && !text.starts_with("SSH-")).then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_speaks_something_else_is_quoted() {
        assert_eq!(first_line(b"HTTP/1.1 400 Bad\r\nx").as_deref(), Some("HTTP/1.1 400 Bad"));
        assert_eq!(first_line(b"SSH-2.0-x\r\n"), None);
        assert!(drops_logins(&first_line(b"Exceeded MaxStartups\r\n").unwrap()));
        assert!(!drops_logins("HTTP/1.1 400 Bad Request"));
        assert_eq!(first_line(b""), None);
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let life = std::thread::spawn(move || {
            let (mut socket, _) = server.accept().unwrap();
            let mut bytes = [0; 8];
            socket.read_exact(&mut bytes).unwrap();
            socket.write_all(b"HTTP/1.0 501 what\r\n\r\n").unwrap();
            bytes
        });
        assert_eq!(other_words(address).as_deref(), Some("HTTP/1.0 501 what"));
        assert_eq!(&life.join().unwrap(), b"SSH-2.0-");
    }
}
