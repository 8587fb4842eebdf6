//! Any bytes sent to an open device by a program without the key, over a stream and as a datagram:
//! the device goes on working.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::sync::{Arc, OnceLock};

use fabric::soft::{SoftConfig, open};
use fabric::{Completion, CompletionQueue, Device, Mtu};

struct Target {
    device: Arc<dyn Device>,
    queue: Arc<dyn CompletionQueue>,
    datagrams: UdpSocket,
}

fn target() -> &'static Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let config = SoftConfig {
            devices: 1,
            ports: 1,
            bind: [127, 0, 0, 1].into(),
            key: *b"0123456789abcdef",
            secure: false,
            mtu: Mtu::B4096,
            faults: None,
        };
        let device = open(&config).and_then(|fabric| fabric.open(0)).expect("a device");
        let queue = device.completion_queue(16, None).expect("a queue");
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        Target { device, queue, datagrams }
    })
}

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let target = target();
    let service = target.device.port(1).expect("the port").service;
    let _ = target.datagrams.send_to(bytes, ("127.0.0.1", service));
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", service)) {
        let _ = stream.write_all(bytes);
    }
    let mut some = [Completion::EMPTY; 4];
    for _ in 0..4 {
        assert_eq!(target.queue.poll(&mut some).expect("a poll"), 0);
    }
}
