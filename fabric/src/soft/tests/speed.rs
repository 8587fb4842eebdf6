//! What the adapter costs beside raw TCP. Prints, asserts nothing:
//! `cargo test --release -p fabric soft::tests::speed -- --ignored --nocapture`

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{End, Memory, config};
use crate::soft::{SoftConfig, open};
use crate::{
    Access, Completion, Data, Opcode, Operation, PostError, RecvWr, Retry, SendWr, Status,
};

const ROUNDS: u32 = 20_000;
const SMALL: usize = 32;
const LARGE: usize = 64 << 10;
const FLOOD: u32 = 2_000;

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (two, _) = listener.accept().unwrap();
    for stream in [&one, &two] {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    (one, two)
}

fn spin<T>(mut what: impl FnMut() -> std::io::Result<T>) -> T {
    loop {
        match what() {
            Ok(value) => return value,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn read_all(mut stream: &TcpStream, buffer: &mut [u8]) {
    let mut have = 0;
    while have < buffer.len() {
        have += spin(|| stream.read(&mut buffer[have..]));
    }
}

fn write_all(mut stream: &TcpStream, buffer: &[u8]) {
    let mut have = 0;
    while have < buffer.len() {
        have += spin(|| stream.write(&buffer[have..]));
    }
}

fn raw_round_trip() -> Duration {
    let (one, two) = streams();
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; SMALL];
        for _ in 0..ROUNDS {
            read_all(&two, &mut buffer);
            write_all(&two, &buffer);
        }
    });
    let mut buffer = [0; SMALL];
    let start = Instant::now();
    for _ in 0..ROUNDS {
        write_all(&one, &buffer);
        read_all(&one, &mut buffer);
    }
    let took = start.elapsed();
    echo.join().unwrap();
    took
}

fn raw_flood() -> Duration {
    let (one, two) = streams();
    let sink = std::thread::spawn(move || {
        let mut buffer = vec![0; LARGE];
        for _ in 0..FLOOD {
            read_all(&two, &mut buffer);
        }
        write_all(&two, b"!");
    });
    let buffer = vec![1; LARGE];
    let start = Instant::now();
    for _ in 0..FLOOD {
        write_all(&one, &buffer);
    }
    read_all(&one, &mut [0]);
    let took = start.elapsed();
    sink.join().unwrap();
    took
}

const DEPTH: u32 = 32;

struct Player {
    end: End,
    memory: Memory,
    free: u32,
}

impl Player {
    fn new(end: End) -> Self {
        let memory = Memory::new(&end.device, LARGE * 2 * DEPTH as usize, Access::ALL);
        let player = Self { end, memory, free: DEPTH };
        for id in 0..DEPTH {
            player.post(u64::from(id));
        }
        player
    }

    fn post(&self, id: u64) {
        let buffer = self.memory.sge(id * LARGE as u64, super::super::wire::narrow(LARGE));
        self.end.qp.post_receive(&RecvWr { id, buffer }).unwrap();
    }

    /// Takes completions; how many messages came.
    fn poll(&mut self) -> u32 {
        let mut some = [Completion::EMPTY; 16];
        let mut came = 0;
        let count = self.end.cq.poll(&mut some).unwrap();
        for one in &some[..count] {
            assert_eq!(one.status, Status::Success);
            if one.opcode == Opcode::Receive {
                came += 1;
                self.post(one.id);
            } else {
                self.free += 1;
            }
        }
        came
    }

    fn send(&mut self, data: Data<'_>) {
        let send = SendWr {
            id: 0,
            operation: Operation::Send { imm: None },
            data,
            signaled: true,
            to: None,
        };
        loop {
            match self.end.qp.post_send(&send) {
                Ok(()) => break,
                Err(PostError::Full) => drop(self.poll()),
                Err(error) => panic!("{error}"),
            }
        }
        self.free = self.free.saturating_sub(1);
    }

    fn wait(&mut self) -> u32 {
        loop {
            let came = self.poll();
            if came != 0 {
                return came;
            }
        }
    }
}

fn players(secure: bool) -> (Player, Player) {
    let retry = Retry::default();
    let fabric = || open(&SoftConfig { secure, ..config() }).unwrap();
    let (a, b) = (End::with(fabric(), DEPTH), End::with(fabric(), DEPTH));
    a.connect(b.address(), b.qp.number(), &retry);
    b.connect(a.address(), a.qp.number(), &retry);
    (Player::new(a), Player::new(b))
}

fn soft_round_trip(secure: bool) -> Duration {
    let (mut one, mut two) = players(secure);
    let echo = std::thread::spawn(move || {
        let bytes = [0; SMALL];
        for _ in 0..ROUNDS {
            two.wait();
            two.send(Data::Inline(&[&bytes]));
        }
        for _ in 0..1000 {
            two.poll();
        }
    });
    let bytes = [0; SMALL];
    let start = Instant::now();
    for _ in 0..ROUNDS {
        one.send(Data::Inline(&[&bytes]));
        one.wait();
    }
    let took = start.elapsed();
    echo.join().unwrap();
    took
}

fn soft_flood(inline: bool, secure: bool) -> Duration {
    let (mut one, mut two) = players(secure);
    let sink = std::thread::spawn(move || {
        let mut came = 0;
        while came < FLOOD {
            came += two.poll();
        }
        two.send(Data::Inline(&[b"!"]));
        for _ in 0..1000 {
            two.poll();
        }
    });
    let bytes = vec![1_u8; LARGE];
    let piece =
        [one.memory.sge(u64::from(DEPTH) * LARGE as u64, super::super::wire::narrow(LARGE))];
    let start = Instant::now();
    for _ in 0..FLOOD {
        if inline {
            one.send(Data::Inline(&[&bytes]));
        } else {
            one.send(Data::Gather(&piece));
        }
    }
    one.wait();
    let took = start.elapsed();
    sink.join().unwrap();
    took
}

fn small_flood(secure: bool) -> Duration {
    let (mut one, mut two) = players(secure);
    let count = FLOOD * 20;
    let sink = std::thread::spawn(move || {
        let mut came = 0;
        while came < count {
            came += two.poll();
        }
        two.send(Data::Inline(&[b"!"]));
        for _ in 0..1000 {
            two.poll();
        }
    });
    let bytes = [0; SMALL];
    let start = Instant::now();
    for _ in 0..count {
        one.send(Data::Inline(&[&bytes]));
        one.poll();
    }
    one.wait();
    let took = start.elapsed();
    sink.join().unwrap();
    took / count
}

#[test]
#[ignore = "measures"]
fn prints_ratios_to_raw_tcp() {
    let per = |took: Duration| took.as_secs_f64() * 1e6 / f64::from(ROUNDS);
    let rate = |took: Duration| f64::from(FLOOD) * LARGE as f64 / took.as_secs_f64() / 1e9;
    for _ in 0..5 {
        let (raw, soft) = (per(raw_round_trip()), per(soft_round_trip(false)));
        println!("round trip: raw {raw:.2} us, soft {soft:.2} us, ratio {:.2}", soft / raw);
        let raw = rate(raw_flood());
        let [gather, inline] = [false, true].map(|inline| rate(soft_flood(inline, false)));
        println!(
            "64 KiB: raw {raw:.2} GB/s, gather {gather:.2} ({:.2}), inline {inline:.2} ({:.2})",
            gather / raw,
            inline / raw
        );
        println!("small flood: {:?} per message", small_flood(false));
        let trip = per(soft_round_trip(true));
        println!("encrypted, round trip: {trip:.2} us, ratio to plain {:.2}", trip / soft);
        let rates = [false, true].map(|inline| rate(soft_flood(inline, true)));
        println!(
            "encrypted, 64 KiB: gather {:.2} GB/s ({:.2} of plain), inline {:.2} ({:.2})",
            rates[0],
            rates[0] / gather,
            rates[1],
            rates[1] / inline
        );
        println!("encrypted, small flood: {:?} per message", small_flood(true));
    }
}
