//! Figures of the network: the software adapter beside raw TCP, a real device (Soft-RoCE in a
//! virtual machine) beside perftest, memory of peers that nobody talks to.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bench::timing::median;

use crate::Repetitions;
use crate::row::{Findings, Row, Target, Verdict, quantity};
use crate::run::{Failure, Result, Samples, job, run, run_within, sibling};

/// Each rank on a host of its own, over the software adapter.
pub(crate) const SOFT: [(&str, &str); 2] =
    [("GASNET_SUPERNODE_MAXSIZE", "1"), ("GASNET_IBV_FABRIC", "soft")];

/// Runs `bench_net` on two ranks.
fn measure(args: &[&str]) -> Result<Samples> {
    let mut command = job(2, &["-c", "1"], &sibling("bench_net")?, args)?;
    command.envs(SOFT);
    Ok(run(command, true)?.samples())
}

/// Round trip of a Short over the software adapter.
pub(crate) fn short(repetitions: Repetitions) -> Result<Findings> {
    let samples = measure(&["short", &repetitions.pairs.to_string(), "5000", "tcp"])?;
    let row = |figure, reference, target| {
        Row::paired(figure, &samples, ["am_short_us", reference], "µs", target)
    };
    let rows = vec![
        row("AM Short round trip over soft, TCP ping-pong that sleeps", "tcp_us", Target::None)?,
        row(
            "AM Short round trip over soft, TCP ping-pong that spins",
            "tcp_spin_us",
            Target::AtMost(1.2),
        )?,
    ];
    let notes = vec![
        "net-short: two ranks with a processor each, medians of the trips; the ping-pong of 32 bytes runs in the same two \
         processes over loopback with TCP_NODELAY, once with reads that sleep in the system and once with reads that ask \
         again and again. Our ranks spin, so the second row is the like for like."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Floods of Mediums and of Shorts over the software adapter.
pub(crate) fn flood(repetitions: Repetitions) -> Result<Findings> {
    let pairs = repetitions.pairs.to_string();
    let mut samples = measure(&["medium", &pairs, "4000", "tcp"])?;
    samples.extend(measure(&["rate", &pairs, "200000", "tcp"])?);
    let rows = vec![
        Row::paired(
            "Medium 64 KB flood over soft, write and read of 64 KB over TCP",
            &samples,
            ["medium_mbps", "tcp_mbps"],
            "MB/s",
            Target::AtLeast(0.9),
        )?,
        Row::paired(
            "Short flood over soft, a send of 32 B for each over TCP",
            &samples,
            ["short_rate", "send_rate"],
            "k/s",
            Target::AtLeast(2.0),
        )?,
    ];
    let notes = vec![
        "net-flood: 200000 Shorts of one argument; those over TCP are read as they come. For Mediums: 4000 Mediums of 64 KB (or of the greatest size, if that is less) and one acknowledgement; both \
         receivers read a byte of each cache line."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Puts and gets over the software adapter, and what a round trip allocates.
pub(crate) fn put_and_quiet(repetitions: Repetitions) -> Result<Findings> {
    let pairs = repetitions.pairs.to_string();
    let small = measure(&["small", &pairs, "5000", "tcp"])?;
    let large = measure(&["large", &pairs, "200", "tcp"])?;
    let quiet = measure(&["quiet", "3"])?;
    let trip =
        |figure, key| Row::paired(figure, &small, [key, "tcp_spin_us"], "µs", Target::AtMost(1.2));
    let flood = |figure, keys| Row::paired(figure, &large, keys, "MB/s", Target::AtLeast(0.9));
    let rows = vec![
        trip("put of 8 B that is complete over soft, TCP ping-pong that spins", "put8_us")?,
        trip("get of 8 B over soft, TCP ping-pong that spins", "get8_us")?,
        flood(
            "put of 1 MB flood over soft, write and read of 1 MB over TCP",
            ["put_mbps", "tcp_mbps"],
        )?,
        flood(
            "get of 1 MB flood over soft, write and read of 1 MB over TCP, to as many places",
            ["get_mbps", "tcp_places_mbps"],
        )?,
        Row::alone(
            "allocations of both ranks in a round trip of a Short over soft",
            &quiet,
            "allocations_per_trip",
            "",
            Target::Bound(0.0),
        )?,
    ];
    let mut samples = small;
    samples.extend(large);
    samples.extend(quiet);
    let notes = vec![
        "net-put: puts and gets of 8 B: medians of 5000 that wait for their end, the target polls; the ping-pong of 32 bytes is \
         that of net-short, in the same two processes. 1 MB: 200 transfers, of gets 8 under way together, each to a \
         place of its own; nobody looks at what arrives."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Fetch-adds over the software adapter.
pub(crate) fn atomic(repetitions: Repetitions) -> Result<Findings> {
    let samples = measure(&["atomic", &repetitions.pairs.to_string(), "2000"])?;
    let row =
        |figure, key, target| Row::paired(figure, &samples, [key, "am_short_us"], "µs", target);
    let rows = vec![
        row("fetch-add over soft, AM Short round trip", "fetch_add_us", Target::AtMost(1.1))?,
        row(
            "fetch-add by messages over soft, AM Short round trip",
            "am_fetch_add_us",
            Target::None,
        )?,
    ];
    let notes = vec![
        "net-atomic: medians of 2000 calls that wait for their result while the target polls; the first row is done by the adapter, the second by \
         the owner of the word, as the domain has an operation that adapters do not have."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// How ranks of different neighbourhoods tell each other that they have come: by writes, and by
/// messages.
const BARRIERS: [&str; 2] = ["RDMADISSEM", "AMDISSEM"];

/// What `barrier` of `bench_net` found with each kind, by keys that begin with it.
fn barrier_rows(samples: &Samples, place: &str) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for kind in BARRIERS {
        let [barrier, to_all] =
            ["barrier", "to_all"].map(|key| format!("{}_{key}_us", kind.to_lowercase()));
        let figure = format!("barrier of 2 ranks over {place}, {kind}");
        rows.push(Row::alone(&figure, samples, &barrier, "µs", Target::None)?);
        let (figure, keys) =
            (format!("8 B to all over {place}, {kind} barrier"), [&to_all, &barrier]);
        let keys = keys.map(String::as_str);
        rows.push(Row::paired(&figure, samples, keys, "µs", Target::AtMost(1.3))?);
    }
    Ok(rows)
}

/// Ranks that share the processors of a small machine.
const CROWD: u32 = 4;

/// Barriers of both kinds and small reductions over the software adapter; one of more ranks beside a
/// hand-written dissemination.
pub(crate) fn barrier(repetitions: Repetitions) -> Result<Findings> {
    let mut samples = Samples::default();
    for kind in BARRIERS {
        let pairs = repetitions.pairs.to_string();
        let args = ["barrier", &pairs, "2000"];
        let mut command = job(2, &["-c", "1"], &sibling("bench_net")?, &args)?;
        command.envs(SOFT).env("GASNET_BARRIER", kind);
        for (key, values) in run(command, true)?.samples().0 {
            let key = format!("{}_{key}", kind.to_lowercase());
            values.into_iter().for_each(|value| samples.add(&key, value));
        }
    }
    let mut rows = barrier_rows(&samples, "soft")?;
    let args = [&repetitions.pairs.to_string(), "1000"];
    let mut command = job(CROWD, &[], &sibling("bench_net_barrier")?, &args)?;
    command.envs(SOFT);
    let crowd = run(command, true)?.samples();
    let figure = format!(
        "barrier of {CROWD} ranks over soft, one written by hand over the same connections"
    );
    let keys = ["net_barrier_us", "hand_written_us"];
    rows.push(Row::paired(&figure, &crowd, keys, "µs", Target::AtMost(1.2))?);
    samples.extend(crowd);
    let notes = vec![
        "net-barrier: medians of 2000 calls; barriers and reductions alternate in the same two processes. The kind of the \
         barrier changes nothing for reductions."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Ranks that the barriers of attach connect a rank to: those 1, 2, 4 … away in both directions.
fn connected_by_attach(ranks: u32) -> usize {
    let steps = (0..u32::BITS).map(|round| 1_u32 << round).take_while(|step| *step < ranks);
    let peers = steps.flat_map(|step| [step, ranks - step]);
    peers.collect::<std::collections::BTreeSet<_>>().len()
}

/// Polls of a device with 1,000 connections beside those of one with a single connection.
pub(crate) fn polls(repetitions: Repetitions) -> Result<Findings> {
    let mut command = Command::new(sibling("bench_polls")?);
    command.arg(repetitions.pairs.to_string());
    let samples = run(command, true)?.samples();
    let row = |what: &str, keys, unit| {
        let figure = format!("{what} of the software adapter with 1,000 connections, with one");
        Row::paired(&figure, &samples, keys, unit, Target::AtMost(1.2))
    };
    let rows = vec![
        row("poll that finds nothing", ["poll_1000_ns", "poll_1_ns"], "ns")?,
        row("message there and back over one connection", ["trip_1000_us", "trip_1_us"], "µs")?,
    ];
    let notes = vec![
        "net-polls: two devices of one process, whose queue pairs have all carried a message and rest; one thread polls both."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// Bytes per unconnected peer: what ranks of jobs of different sizes hold before they are connected
/// to anybody.
pub(crate) fn memory(_: Repetitions) -> Result<Findings> {
    const PEERS: [u32; 3] = [8, 64, 256];
    /// What one more unconnected peer may cost.
    const BOUND: f64 = 16.0;
    let program = sibling("bench_net_memory")?;
    let mut samples = Samples::default();
    let mut medians = Vec::new();
    let mut connected = Vec::new();
    for peers in PEERS {
        let mut command = job(peers + 1, &[], &program, &[])?;
        command.envs(SOFT).env("GASNET_CONNECT_STATIC", "0").env("GASNET_USE_SRQ", "1");
        let found = run(command, true)?.samples();
        let heap = median(found.of("heap_bytes")?);
        medians.push([heap, median(found.of("private_bytes")?)]);
        let count = connected_by_attach(peers + 1);
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        connected.push((median(found.of("attached_heap_bytes")?) - heap) / count as f64);
        for (key, values) in found.0 {
            values.iter().for_each(|value| samples.add(&format!("{key} {peers} peers"), *value));
        }
    }
    let mut rows = Vec::new();
    for (index, what) in ["allocated", "private"].into_iter().enumerate() {
        let [few, middle, many] = [0, 1, 2].map(|size: usize| medians[size][index]);
        let name = format!("{what} bytes of a rank with 8, 64 and 256 unconnected peers");
        rows.push(informative(name, format!("{few:.0} {middle:.0} {many:.0}")));
        let each = (many - few) / f64::from(PEERS[2] - PEERS[0]);
        // Pages are 16 bytes per peer here: only allocations are exact enough to be judged.
        let judged = index == 0;
        let target = if judged { format!("at most {BOUND} B") } else { String::new() };
        let name = format!("{what} bytes of a rank per unconnected peer, 8 to 256 peers");
        rows.push(Row::single(&name, quantity(each, "B"), target));
    }
    let name = "allocated bytes of a rank per connected peer, 8, 64 and 256 peers".to_owned();
    let values: Vec<String> = connected.iter().map(|bytes| format!("{bytes:.0}")).collect();
    rows.push(informative(name, values.join(" ")));
    let notes = vec![
        "net-memory: dynamic connections, SRQ. Unconnected: after init. Connected: what attach adds, whose barriers connect \
         6, 12 and 16 peers. Allocated bytes by a counting allocator; private bytes by smaps_rollup, in pages, so 248 peers \
         less one page are 16 bytes per peer. Medians of all ranks. Message buffers are mapped, not allocated."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

fn informative(name: String, value: String) -> Row {
    Row::single(&name, value, String::new())
}

/// Longest that the virtual machine may take.
const MACHINE: Duration = Duration::from_secs(1500);

/// A whole measurement has this many times the pairs of a quick one, which take 4 minutes.
const THOROUGH: usize = 3;

/// What runs inside the machine: it prints `KEY VALUE` lines.
const INSIDE: &str = include_str!("softroce.sh");

/// A Short there and back, and perftest's send there and back.
const SHORT_KEYS: [&str; 2] = ["am_short_us", "send_lat_twice_us"];

/// The one divided by the other, at most.
const MOST_SHORT: f64 = 1.2;

/// Boots of a series: each places pages, and so cache lines, differently.
const BOOTS: usize = 5;

/// Small operations on a real device, each complete before the next, beside those of perftest.
fn soft_roce_latencies(samples: &Samples) -> Result<Vec<Row>> {
    let row = |figure, keys, most| Row::paired(figure, samples, keys, "µs", Target::AtMost(most));
    Ok(vec![
        row(
            "AM Short round trip on Soft-RoCE, twice ib_send_lat of 8 bytes",
            SHORT_KEYS,
            MOST_SHORT,
        )?,
        row("fetch-add on Soft-RoCE, ib_atomic_lat", ["fetch_add_us", "atomic_lat_us"], 1.2)?,
        row(
            "put of 8 B that is complete on Soft-RoCE, write of 8 bytes and its completion by verbs",
            ["put8_us", "raw_write_us"],
            1.2,
        )?,
        row(
            "put of 8 B seen at the other rank on Soft-RoCE, ib_write_lat of 8 bytes",
            ["put8_seen_us", "write_lat_us"],
            1.2,
        )?,
        row(
            "get of 8 B on Soft-RoCE, read of 8 bytes and its completion by verbs",
            ["get8_us", "raw_read_us"],
            1.15,
        )?,
        row(
            "get of 8 B on Soft-RoCE, ib_read_lat of 8 bytes that takes turns",
            ["get8_turns_us", "read_lat_turns_us"],
            1.15,
        )?,
    ])
}

/// Floods of 1 MB: from and to the segment, memory that was transferred before, and such that never
/// was.
fn soft_roce_floods(samples: &Samples) -> Result<Vec<Row>> {
    const PLACES: [(&str, &str, f64); 3] = [
        ("in", "in the segment", 0.95),
        ("out", "outside the segment, after the first touch", 0.9),
        ("first", "outside the segment, at the first touch", 0.6),
    ];
    let mut rows = Vec::new();
    for (key, place, least) in &PLACES[..2] {
        let figure = format!(
            "put of 1 MB flood on Soft-RoCE, {place}, writes of 1 MB by verbs that take turns"
        );
        let keys = [format!("{key}_put_mbps"), format!("raw_{key}_mbps")];
        let keys = [keys[0].as_str(), keys[1].as_str()];
        rows.push(Row::paired(&figure, samples, keys, "MB/s", Target::AtLeast(*least))?);
    }
    rows.push(Row::paired(
        "get of 1 MB flood on Soft-RoCE, in the segment, reads of 1 MB by verbs that take turns",
        samples,
        ["in_get_mbps", "raw_get_mbps"],
        "MB/s",
        Target::AtLeast(PLACES[0].2),
    )?);
    for (operation, perftest) in [("put", "write"), ("get", "read")] {
        for (key, place, least) in PLACES {
            let figure = format!(
                "{operation} of 1 MB flood on Soft-RoCE, {place}, ib_{perftest}_bw of 1 MB"
            );
            let keys = [format!("{key}_{operation}_mbps"), format!("{perftest}_bw_mbps")];
            let keys = [keys[0].as_str(), keys[1].as_str()];
            rows.push(Row::paired(&figure, samples, keys, "MB/s", Target::AtLeast(least))?);
        }
    }
    Ok(rows)
}

/// Runs a script in a virtual machine with Soft-RoCE, with the directory of our programs and
/// `arguments`; what it printed, or why there is no such machine.
pub(crate) fn guest(
    script: &str,
    arguments: &[String],
) -> Result<std::result::Result<Samples, String>> {
    let launcher = sibling("gasnetrun_ibv")?;
    let programs = launcher.parent().ok_or_else(|| Failure("no build directory".into()))?;
    let machine = Path::new("scripts/softroce");
    let ready = Command::new(machine).arg("--prepare").output()?;
    if !ready.status.success() {
        return Ok(Err(String::from_utf8_lossy(&ready.stderr).trim().to_owned()));
    }
    let mut command = Command::new(machine);
    command.args(["--limit", &MACHINE.as_secs().to_string(), "--see"]).arg(programs);
    command.args(["--", "bash", "-c", script, "inside"]).arg(programs).args(arguments);
    Ok(Ok(run_within(MACHINE + Duration::from_secs(30), command)?.samples()))
}

/// A real device beside perftest, all in one boot.
pub(crate) fn soft_roce(repetitions: Repetitions) -> Result<Findings> {
    // The machine has two speeds and changes between them within seconds: few pairs say little.
    let counts = [6, 3].map(|times| (times * repetitions.exits.min(THOROUGH)).to_string());
    let samples = match guest(INSIDE, &counts)? {
        Ok(samples) => samples,
        Err(reason) => {
            let rows = vec![Row::without("Soft-RoCE beside perftest", Verdict::Skipped(reason))];
            return Ok(Findings { rows, ..Findings::default() });
        }
    };
    let row = |figure, keys, unit, target| Row::paired(figure, &samples, keys, unit, target);
    let mut rows = soft_roce_latencies(&samples)?;
    rows.extend(soft_roce_floods(&samples)?);
    rows.extend([
        row(
            "Medium 64 KB flood on Soft-RoCE, ib_send_bw of 64 KB",
            ["medium_mbps", "send_bw_mbps"],
            "MB/s",
            Target::AtLeast(0.9),
        )?,
        row(
            "strided put of 1024 x 64 B on Soft-RoCE, one put of 64 KB",
            ["strided_us", "contiguous_us"],
            "µs",
            Target::AtMost(1.67),
        )?,
        Row::alone(
            "allocations of both ranks in a round trip of a Short on Soft-RoCE",
            &samples,
            "allocations_per_trip",
            "",
            Target::Bound(0.0),
        )?,
    ]);
    for (what, key, target) in [
        ("posting (write, ioctl)", "post_calls_per_trip", Target::None),
        ("others but waiting", "other_calls_per_trip", Target::Bound(0.05)),
    ] {
        let name =
            format!("system calls of a rank in a round trip of a Short on Soft-RoCE: {what}");
        rows.push(if samples.0.contains_key(key) {
            Row::alone(&name, &samples, key, "", target)?
        } else {
            Row::without(&name, Verdict::Skipped("strace is not installed".to_owned()))
        });
    }
    rows.extend(barrier_rows(&samples, "Soft-RoCE")?);
    let notes = vec![
        "softroce: one boot of scripts/softroce, two processors by emulation; figure and reference alternate. Latencies are \
         medians of a series (`typical` of perftest), bandwidths averages of one. A put that is \
         complete is timed to its acknowledgement, as is the write by verbs, whose program is bench/src/raw_writes.rs and runs in \
         the same process and takes turns with ours, 50 operations or 8 MB each: the emulated machine has two speeds \
         and changes between them, so what another process takes seconds before (perftest) may be of the other one; gets and ib_read_lat take turns of 50 ms, one of both stopped; \
         a put that is seen is half of a round trip of two puts, each polled for in memory, as ib_write_lat \
         takes its writes. Floods have 8 transfers under way, and so has perftest."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}

/// The round trip of a Short beside perftest in a series of boots.
pub(crate) fn soft_roce_boots(repetitions: Repetitions) -> Result<Findings> {
    let arguments = [&(6 * repetitions.exits.min(THOROUGH)).to_string(), "0", "short"];
    let arguments = arguments.map(str::to_owned);
    let mut found = Findings::default();
    for boot in 1..=BOOTS {
        let figure =
            format!("AM Short round trip on Soft-RoCE, boot {boot}, twice ib_send_lat of 8 bytes");
        match guest(INSIDE, &arguments)? {
            Ok(samples) => {
                let target = Target::AtMost(MOST_SHORT);
                found.rows.push(Row::paired(&figure, &samples, SHORT_KEYS, "µs", target)?);
                found.samples.extend(samples);
            }
            Err(reason) => found.rows.push(Row::without(&figure, Verdict::Skipped(reason))),
        }
    }
    found.notes = vec![
        "softroce-boots: boots of scripts/softroce one after the other; in each, figure and reference alternate."
            .to_owned(),
    ];
    Ok(found)
}
