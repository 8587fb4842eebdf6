//! The bodies of the fuzz targets on their seeds and on changes of them, with every run of the
//! tests.

#[path = "../fuzz/bodies/datagram.rs"]
mod datagram;
#[path = "../fuzz/bodies/device.rs"]
mod device;
#[path = "../fuzz/bodies/faults.rs"]
mod faults;
#[path = "../fuzz/bodies/hello.rs"]
mod hello;
#[path = "../fuzz/bodies/peer.rs"]
mod peer;
#[path = "../fuzz/bodies/secure.rs"]
mod secure;
#[path = "../fuzz/seeds.rs"]
mod seeds;
#[path = "../fuzz/bodies/wire.rs"]
mod wire;

use std::path::Path;

fn each(target: &str, divide: u32, run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    seeds::each(&folder, divide, run);
}

#[test]
fn headers_of_streams() {
    each("wire", 1, wire::run);
}

#[test]
fn messages_of_the_handshake() {
    each("hello", 1, hello::run);
}

#[test]
fn datagrams() {
    each("datagram", 1, datagram::run);
}

#[test]
fn encrypted_records_and_datagrams() {
    each("secure", 1, secure::run);
}

#[test]
fn fault_scripts() {
    each("faults", 1, |bytes| faults::run(&String::from_utf8_lossy(bytes)));
}

#[test]
fn an_open_device() {
    // Each is a connection.
    each("device", 30, device::run);
}

#[test]
fn peers_with_the_key() {
    // Each is a connection, too.
    each("peer", 100, peer::run);
}
