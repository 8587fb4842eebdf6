//! Requests and replies in both wires. The words of each stand here and nowhere else.

use crate::wire::{Fields, PmiVersion};

/// What a rank wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The first line; `None`: a version that is not spoken here.
    Init {
        version: Option<PmiVersion>,
    },
    /// Who am I? (PMI-2)
    Begin,
    Limits,
    /// The name of the space of keys.
    Space,
    Program,
    UniverseSize,
    JobAttribute {
        key: String,
    },
    Put {
        space: Option<String>,
        key: String,
        value: String,
    },
    Get {
        space: Option<String>,
        key: String,
    },
    Fence,
    PutNode {
        key: String,
        value: String,
    },
    GetNode {
        key: String,
        wait: bool,
    },
    Finalize,
    Abort {
        code: i32,
    },
    /// Known, but refused: the name of the reply.
    NotServed {
        reply: &'static str,
    },
}

/// What a rank is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply<'a> {
    Init { version: Option<PmiVersion> },
    Begin { rank: u32, size: usize, program: u32 },
    Limits { key: usize, value: usize },
    Space { name: &'a str },
    Program { number: u32 },
    UniverseSize { size: usize },
    JobAttribute { value: Option<&'a str> },
    Put,
    Value { key: &'a str, value: Option<&'a str> },
    Fence,
    PutNode,
    NodeAttribute { value: Option<&'a str> },
    Finalize,
    NotServed { reply: &'a str },
}

/// Commands of PMI-1 that need a process manager of its own kind, and their replies.
const REFUSED_1: [(&str, &str); 4] = [
    ("getbyidx", "getbyidx_results"),
    ("publish_name", "publish_result"),
    ("unpublish_name", "unpublish_result"),
    ("lookup_name", "lookup_result"),
];

/// The same of PMI-2.
const REFUSED_2: [(&str, &str); 6] = [
    ("spawn", "spawn-response"),
    ("name-publish", "name-publish-response"),
    ("name-unpublish", "name-unpublish-response"),
    ("name-lookup", "name-lookup-response"),
    ("job-connect", "job-connect-response"),
    ("job-disconnect", "job-disconnect-response"),
];

/// A message as it may be shown to people.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(80).collect();
    if shown.len() < text.len() {
        shown += "...";
    }
    format!("{shown:?}")
}

/// A request, and the thread of the rank that waits for the reply, where it has named one.
pub(super) fn read(version: PmiVersion, text: &str) -> Result<(Request, Option<String>), String> {
    if version == PmiVersion::One && text.starts_with("mcmd=spawn\n") {
        return Ok((Request::NotServed { reply: "spawn_result" }, None));
    }
    let fields = Fields::parse(text, version.separator())?;
    let request = match version {
        PmiVersion::One => read_one(&fields, text),
        PmiVersion::Two => read_two(&fields),
    }?;
    Ok((request, fields.get("thrid").map(str::to_owned)))
}

fn code(fields: &Fields) -> Result<i32, String> {
    if fields.get("exitcode").is_none() {
        // PMI-2 of some clients has none.
        return Ok(1);
    }
    let code = fields.number("exitcode")?;
    i32::try_from(code).map_err(|_| format!("exitcode={code} is out of range"))
}

fn read_one(fields: &Fields, text: &str) -> Result<Request, String> {
    let need = |name| fields.need(name).map(str::to_owned);
    let space = || need("kvsname").map(Some);
    Ok(match fields.need("cmd")? {
        "init" => Request::Init {
            version: match fields.number("pmi_version")? {
                1 => Some(PmiVersion::One),
                2 => Some(PmiVersion::Two),
                _ => None,
            },
        },
        "get_maxes" => Request::Limits,
        "get_my_kvsname" => Request::Space,
        "get_appnum" => Request::Program,
        "get_universe_size" => Request::UniverseSize,
        "put" => {
            // The value is the rest of the line.
            let value = text.split_once(" value=").map(|(_, value)| value.trim_end_matches('\r'));
            let value = value.ok_or("no value")?.to_owned();
            Request::Put { space: space()?, key: need("key")?, value }
        }
        "get" => Request::Get { space: space()?, key: need("key")? },
        "barrier_in" => Request::Fence,
        "finalize" => Request::Finalize,
        "abort" => Request::Abort { code: code(fields)? },
        other => refused(&REFUSED_1, other)?,
    })
}

fn read_two(fields: &Fields) -> Result<Request, String> {
    let need = |name| fields.need(name).map(str::to_owned);
    Ok(match fields.need("cmd")? {
        "fullinit" => Request::Begin,
        "job-getid" => Request::Space,
        "info-getjobattr" => Request::JobAttribute { key: need("key")? },
        "kvs-put" => Request::Put { space: None, key: need("key")?, value: need("value")? },
        "kvs-get" => {
            let job = fields.get("jobid").filter(|job| !job.is_empty()).map(str::to_owned);
            Request::Get { space: job, key: need("key")? }
        }
        "kvs-fence" => Request::Fence,
        "info-putnodeattr" => Request::PutNode { key: need("key")?, value: need("value")? },
        "info-getnodeattr" => {
            let wait = fields.get("wait").is_some_and(|wait| wait.eq_ignore_ascii_case("true"));
            Request::GetNode { key: need("key")?, wait }
        }
        "finalize" => Request::Finalize,
        "abort" => Request::Abort { code: code(fields)? },
        other => refused(&REFUSED_2, other)?,
    })
}

fn refused(table: &[(&str, &'static str)], command: &str) -> Result<Request, String> {
    let found = table.iter().find(|(known, _)| *known == command);
    let (_, reply) = found.ok_or_else(|| "a command that is not known here".to_owned())?;
    Ok(Request::NotServed { reply })
}

/// The reply as it is sent.
pub(super) fn write(version: PmiVersion, thread: Option<&str>, reply: &Reply<'_>) -> String {
    if let Reply::Init { version: agreed } = reply {
        return PmiVersion::One.message(&init(*agreed));
    }
    let body = match version {
        PmiVersion::One => body_one(reply),
        PmiVersion::Two => body_two(thread, reply),
    };
    version.message(&body)
}

fn init(agreed: Option<PmiVersion>) -> String {
    match agreed {
        Some(PmiVersion::One) => {
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".to_owned()
        }
        Some(PmiVersion::Two) => {
            "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0".to_owned()
        }
        None => "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1".to_owned(),
    }
}

fn body_one(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Limits { key, value } => {
            format!("cmd=maxes rc=0 kvsname_max=256 keylen_max={key} vallen_max={value}")
        }
        Reply::Space { name } => format!("cmd=my_kvsname rc=0 kvsname={name}"),
        Reply::Program { number } => format!("cmd=appnum rc=0 appnum={number}"),
        Reply::UniverseSize { size } => format!("cmd=universe_size rc=0 size={size}"),
        Reply::Put => "cmd=put_result rc=0 msg=success".to_owned(),
        Reply::Value { value: Some(value), .. } => {
            format!("cmd=get_result rc=0 msg=success value={value}")
        }
        Reply::Value { key, value: None } => {
            format!("cmd=get_result rc=-1 msg=key_{key}_not_found value=unknown")
        }
        Reply::Fence => "cmd=barrier_out rc=0".to_owned(),
        Reply::Finalize => "cmd=finalize_ack rc=0".to_owned(),
        Reply::NotServed { reply } => {
            format!(
                "cmd={reply} rc=-1 msg=not_served_by_gasnetrun_ibv reason=not_served_by_gasnetrun_ibv"
            )
        }
        // Nobody asks for these in this wire.
        Reply::Init { .. }
        | Reply::Begin { .. }
        | Reply::JobAttribute { .. }
        | Reply::PutNode
        | Reply::NodeAttribute { .. } => "cmd=error rc=-1".to_owned(),
    }
}

fn found(value: Option<&str>) -> String {
    value.map_or("found=FALSE;".to_owned(), |value| format!("found=TRUE;value={value};"))
}

fn body_two(thread: Option<&str>, reply: &Reply<'_>) -> String {
    let (name, fields) = match reply {
        Reply::Begin { rank, size, program } => (
            "fullinit-response",
            format!(
                "pmi-version=2;pmi-subversion=0;rank={rank};size={size};appnum={program};debugged=FALSE;pmiverbose=FALSE;"
            ),
        ),
        Reply::Space { name } => ("job-getid-response", format!("jobid={name};")),
        Reply::JobAttribute { value } => ("info-getjobattr-response", found(*value)),
        Reply::Put => ("kvs-put-response", String::new()),
        Reply::Value { value, .. } => ("kvs-get-response", found(*value)),
        Reply::Fence => ("kvs-fence-response", String::new()),
        Reply::PutNode => ("info-putnodeattr-response", String::new()),
        Reply::NodeAttribute { value } => ("info-getnodeattr-response", found(*value)),
        Reply::Finalize => ("finalize-response", String::new()),
        Reply::NotServed { reply } => {
            return format!("cmd={reply};rc=1;errmsg=not served by gasnetrun_ibv;");
        }
        // Nobody asks for these in this wire.
        Reply::Init { .. }
        | Reply::Limits { .. }
        | Reply::Program { .. }
        | Reply::UniverseSize { .. } => ("error", String::new()),
    };
    let thread = thread.map_or(String::new(), |thread| format!("thrid={thread};"));
    format!("cmd={name};{thread}rc=0;{fields}")
}
