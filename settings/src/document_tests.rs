//! Every variable of the documents of the InfiniBand conduit, and what becomes of it here.

use std::path::{Path, PathBuf};

use super::*;

/// What setting a variable does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// What the documents say.
    Honoured,
    /// One warning that names it: what it controls does not exist in this version.
    Refused,
    /// One warning with what to set instead.
    Obsolete,
    /// It is no variable of this conduit: a family, a way to build, or another conduit's.
    Elsewhere,
}

use Fate::{Elsewhere, Honoured, Obsolete, Refused};

const DOCUMENTED: &[(Fate, &str)] = &[
    (Honoured, "GASNET_IBV_SPAWNER GASNET_QUIET GASNET_BACKTRACE GASNET_EXITTIMEOUT"),
    (Honoured, "GASNET_IBV_PORTS GASNET_IBV_PORTS_TYPE GASNET_IBV_PORTS_VERBOSE"),
    (Honoured, "GASNET_IBV_LIST_PORTS GASNET_IBV_LIST_PORTS_NODES GASNET_IBV_PKEY"),
    (Honoured, "GASNET_NUM_QPS GASNET_QP_TIMEOUT GASNET_QP_RETRY_COUNT GASNET_QP_RD_ATOM"),
    (Honoured, "GASNET_MAX_MTU GASNET_MAXIMIZE_MEMLOCK"),
    (Honoured, "GASNET_CONNECT_STATIC GASNET_CONNECT_DYNAMIC GASNET_CONNECTFILE_IN"),
    (Honoured, "GASNET_CONNECTFILE_OUT GASNET_CONNECTFILE_BASE GASNET_NONBULKPUT_BOUNCE_LIMIT"),
    (Honoured, "GASNET_CONNECT_SNDS GASNET_CONNECT_RCVS"),
    (Honoured, "GASNET_CONNECT_RETRANS_MIN GASNET_CONNECT_RETRANS_MAX"),
    (Honoured, "GASNET_RCV_THREAD GASNET_RCV_THREAD_RATE GASNET_RCV_THREAD_IDLE"),
    (Honoured, "GASNET_RCV_THREAD_POLL_MODE GASNET_SND_THREAD_POLL_MODE"),
    (Honoured, "GASNET_SND_THREAD GASNET_SND_THREAD_RATE GASNET_SND_THREAD_IDLE"),
    (Honoured, "GASNET_INLINESEND_LIMIT GASNET_PACKEDLONG_LIMIT GASNET_AM_GATHER_MIN"),
    (Honoured, "GASNET_USE_SRQ GASNET_USE_XRC GASNET_USE_ODP"),
    (Honoured, "GASNET_NETWORKDEPTH_PP GASNET_NETWORKDEPTH_TOTAL"),
    (Honoured, "GASNET_AM_CREDITS_PP GASNET_AM_CREDITS_TOTAL GASNET_AM_CREDITS_SLACK"),
    (Honoured, "GASNET_RBUF_COUNT GASNET_RBUF_SPARES GASNET_BBUF_COUNT"),
    (Honoured, "MLX4_SINGLE_THREADED MLX5_SINGLE_THREADED"),
    (Honoured, "GASNET_PHYSMEM_MAX GASNET_PHYSMEM_PROBE GASNET_PHYSMEM_WARN"),
    (Refused, "GASNET_DISABLE_MUNMAP"),
    (Honoured, "GASNET_USE_FIREHOSE GASNET_FIREHOSE_MAXVICTIM_R GASNET_FIREHOSE_MAXREGION_SIZE"),
    (Honoured, "GASNET_FIREHOSE_VERBOSE GASNET_PINNED_REGIONS_MAX GASNET_ODP_VERBOSE"),
    (Honoured, "GASNET_FIREHOSE_MAXVICTIM_M"),
    // No memory is pinned on behalf of others: segments are registered as a whole.
    (Obsolete, "GASNET_FIREHOSE_M GASNET_FIREHOSE_R GASNET_PUTINMOVE_LIMIT"),
    (Obsolete, "GASNET_FIREHOSE_TABLE_SCALE"),
    (Honoured, "GASNET_PUT_STRIPE_SZ GASNET_GET_STRIPE_SZ GASNET_USE_FENCED_PUTS"),
    (Obsolete, "GASNET_HCA_ID GASNET_PORT_NUM GASNET_RCV_THREAD_LOAD"),
    // Families, and segments, which are chosen when a program is built.
    (Elsewhere, "GASNET_SEGMENT_FAST GASNET_SEGMENT_LARGE GASNET_SEGMENT_EVERYTHING"),
    (Elsewhere, "GASNET_THREAD_STACK GASNET_CONN_"),
];

#[test]
fn each_documented_variable_is_honoured_or_refused_by_name() {
    let mut wrong = Vec::new();
    for (fate, name) in
        DOCUMENTED.iter().flat_map(|(fate, names)| names.split(' ').map(move |name| (*fate, name)))
    {
        let idle = without_effect().find(|(other, _)| *other == name).map(|(_, list)| list.status);
        let right = match fate {
            Honoured => find(name).is_some() && idle.is_none(),
            Refused => idle == Some(Status::Later),
            Obsolete => idle == Some(Status::Obsolete),
            Elsewhere => find(name).is_none() && idle.is_none(),
        };
        if !right {
            wrong.push(format!("{name} should be {fate:?} and is {idle:?}"));
        }
        let env: Env = [(name, "1")].into_iter().collect();
        let said = warnings(&env);
        let quiet = said.is_empty();
        if quiet != (fate == Honoured) || said.iter().any(|line| !line.contains(name)) {
            wrong.push(format!("{name} ({fate:?}) gives the warnings {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Sources outside the table.
fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    let crates = std::fs::read_dir(&root).into_iter().flatten().filter_map(Result::ok);
    let mut directories: Vec<PathBuf> = crates
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| entry.path().join("src"))
        .collect();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            match name.as_deref() {
                Some("rows" | "document_tests.rs" | "tests.rs") => {}
                _ if path.is_dir() => directories.push(path),
                _ => text.push_str(&std::fs::read_to_string(path).unwrap_or_default()),
            }
        }
    }
    text
}

/// Read under a name that is put together, by a library below, or true whatever the value is.
const READ_OTHERWISE: &[(&str, &str)] = &[
    ("GASNET_RCV_THREAD_", "settings.rs joins GASNET_RCV_THREAD and a part"),
    ("GASNET_SND_THREAD_", "settings.rs joins GASNET_SND_THREAD and a part"),
    ("MLX4_SINGLE_THREADED", "the driver reads it"),
    ("MLX5_SINGLE_THREADED", "the driver reads it"),
    ("GASNET_DISABLE_ENVDECODE", "what it asks for is always so"),
    ("GASNET_DISABLE_ARGDECODE", "what it asks for is always so"),
];

#[test]
fn each_active_variable_has_a_reader() {
    let text = sources();
    assert!(text.len() > 100_000, "only {} bytes of sources found", text.len());
    let unread: Vec<&str> = rows()
        .map(|row| row.name)
        .filter(|name| !READ_OTHERWISE.iter().any(|(known, _)| name.starts_with(known)))
        .filter(|name| !text.contains(&format!("\"{name}\"")))
        .collect();
    assert!(unread.is_empty(), "accepted and read by nobody: {unread:?}");
}
