//! The least that the built-in client could do: one login to each host at the same time, and `true` there.
//! Usage: `logins USER KEY HOST…`. The reference of the bench; it checks no host keys.

use std::error::Error;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;

/// Logs in to `host`, and waits until `true` has ended there.
fn login(user: &str, key: &Path, host: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut session = ssh2::Session::new()?;
    session.set_tcp_stream(TcpStream::connect((host, 22))?);
    session.set_timeout(30_000);
    session.handshake()?;
    session.userauth_pubkey_file(user, None, key, None)?;
    let mut channel = session.channel_session()?;
    channel.exec("true")?;
    channel.read_to_end(&mut Vec::new())?;
    channel.wait_close()?;
    match channel.exit_status()? {
        0 => Ok(()),
        status => Err(format!("true ended with {status}").into()),
    }
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [user, key, hosts @ ..] = &words[..] else {
        return Err("usage: logins USER KEY HOST…".into());
    };
    std::thread::scope(|scope| {
        let each = hosts.iter().map(|host| {
            let named = move |error| format!("{host}: {error}");
            scope.spawn(move || login(user, Path::new(key), host).map_err(named))
        });
        // All begin before the first is waited for.
        let all: Vec<_> = each.collect();
        for one in all {
            one.join().map_err(|_| "a login panicked")??;
        }
        Ok(())
    })
}
