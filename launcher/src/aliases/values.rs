//! Values that others write in another way than we do. Each function gets the values of an alias and
//! gives our words, or says what would be right.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

type Made = Result<Vec<OsString>, String>;

fn text(values: &[OsString]) -> Result<&str, String> {
    let value = values.first().map(OsString::as_os_str).unwrap_or_default();
    value.to_str().ok_or_else(|| "write it in plain text".to_owned())
}

fn word(option: &str, value: &str) -> OsString {
    format!("{option}={value}").into()
}

/// `-w LIST`: a name with a slash would be a file.
pub(super) fn nodelist(values: &[OsString]) -> Made {
    let list = values.first().cloned().unwrap_or_default();
    if list.as_bytes().contains(&b'/') {
        return Err("a file of hosts is named with --hostfile FILE".to_owned());
    }
    Ok(vec![OsString::from_vec([b"--hosts=", list.as_bytes()].concat())])
}

/// `-env NAME VALUE`.
pub(super) fn variable(values: &[OsString]) -> Made {
    assigned(b"--env=", values)
}

/// `-genv NAME VALUE`.
pub(super) fn variable_of_all(values: &[OsString]) -> Made {
    assigned(b"--env-all=", values)
}

fn assigned(option: &[u8], values: &[OsString]) -> Made {
    let [name, value] = values else { return Err("write NAME VALUE".to_owned()) };
    if name.as_bytes().contains(&b'=') {
        return Err("write a blank between NAME and VALUE, or use --env NAME=VALUE".to_owned());
    }
    Ok(vec![OsString::from_vec([option, name.as_bytes(), b"=", value.as_bytes()].concat())])
}

/// `--xterm RANKS`.
pub(super) fn xterm(values: &[OsString]) -> Made {
    let ranks = text(values)?;
    let (ranks, hold) = ranks.strip_suffix('!').map_or((ranks, ""), |ranks| (ranks, "-hold "));
    let debugger = word("--debugger", &format!("xterm {hold}-e"));
    Ok(match ranks {
        "-1" => vec![debugger],
        ranks => vec![debugger, word("--debugger-ranks", ranks)],
    })
}

const MAP_BY: &str = "write slot, node, socket, numa, core or ppr:N:node, ppr:N:socket ..., as in --map-by socket; \
                      any other order is --map FILE";

fn is_count(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The parts that ranks can be put on, by all their names.
fn part(text: &str) -> Option<&'static str> {
    match text {
        "socket" | "package" => Some("socket"),
        "numa" => Some("numa"),
        "core" => Some("core"),
        _ => None,
    }
}

/// `--map-by`, with the modifiers of Open MPI behind it.
pub(super) fn map_by(values: &[OsString]) -> Made {
    let lower = text(values)?.to_ascii_lowercase();
    let mut parts = lower.split([':', ',']);
    let mut made = Vec::new();
    match parts.next().unwrap_or_default() {
        "" if lower.len() > 1 => {}
        "slot" => made.push(word("--map", "slots")),
        "node" => made.push(word("--map", "cyclic")),
        "ppr" => {
            let (count, over) =
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            match (is_count(count), over, part(over)) {
                (true, "node", _) => made.push(word("--ranks-per-host", count)),
                (true, _, Some(part)) => made.push(word("--place", &format!("{count}:{part}"))),
                _ => return Err(MAP_BY.to_owned()),
            }
        }
        name => made.push(word("--place", part(name).ok_or(MAP_BY)?)),
    }
    for modifier in parts {
        match (modifier, modifier.strip_prefix("pe=")) {
            (_, Some(count)) if is_count(count) => {
                made.extend([word("-c", count), word("--bind-to", "core")]);
            }
            ("oversubscribe", _) => made.push("--oversubscribe".into()),
            ("nooversubscribe", _) => made.push("--no-oversubscribe".into()),
            _ => {
                return Err(format!(
                    "{modifier:?} means nothing here; behind the colon there may be PE=K, OVERSUBSCRIBE or NOOVERSUBSCRIBE"
                ));
            }
        }
    }
    Ok(made)
}

/// `-m` of srun.
pub(super) fn distribution(values: &[OsString]) -> Made {
    match text(values)? {
        rule @ ("block" | "cyclic") => Ok(vec![word("--map", rule)]),
        "block:cyclic" | "cyclic:cyclic" | "block:block" | "cyclic:block" => {
            Err("write block or cyclic alone, and say with --place socket that ranks are dealt over sockets"
                .to_owned())
        }
        _ => Err("write block or cyclic, as in --map cyclic; for blocks of K use --ranks-per-host K, for any other order \
                  --map FILE"
            .to_owned()),
    }
}

/// `-npersocket N`.
pub(super) fn per_socket(values: &[OsString]) -> Made {
    match text(values)? {
        count if is_count(count) => Ok(vec![word("--place", &format!("{count}:socket"))]),
        _ => Err("write a whole number, as in --place 2:socket".to_owned()),
    }
}

/// `-bind-to PART[:K]`.
pub(super) fn bind_to(values: &[OsString]) -> Made {
    let text = text(values)?;
    let (part, count) = text.split_once(':').map_or((text, "1"), |(part, count)| (part, count));
    match part {
        "core" if is_count(count) && count != "1" => {
            Ok(vec![word("-c", count), word("--bind-to", "core")])
        }
        "hwthread" if is_count(count) => Ok(vec![word("-c", count)]),
        _ if count != "1" => {
            Err("write core:K for K cores, or socket, numa or none alone, as in --bind-to socket"
                .to_owned())
        }
        part => Ok(vec![word("--bind-to", part)]),
    }
}

/// `--cpu-bind` of srun.
pub(super) fn cpu_bind(values: &[OsString]) -> Made {
    let mut made = Vec::new();
    for item in text(values)?.split(',') {
        made.push(match item {
            "q" | "quiet" => continue,
            "v" | "verbose" => "--report-bindings".into(),
            "no" | "none" => word("--bind-to", "none"),
            "cores" => word("--bind-to", "core"),
            "sockets" => word("--bind-to", "socket"),
            "ldoms" => word("--bind-to", "numa"),
            "threads" => word("-c", "1"),
            _ => {
                return Err("write none, cores, sockets, ldoms or threads, as in --bind-to core; for a mask or a list of \
                            cpus put taskset or numactl in front of the program"
                    .to_owned());
            }
        });
    }
    Ok(made)
}

/// `--export` of srun.
pub(super) fn export(values: &[OsString]) -> Made {
    let list = values.first().cloned().unwrap_or_default();
    if ["NONE", "NIL"].iter().any(|none| list.as_bytes().eq_ignore_ascii_case(none.as_bytes())) {
        return Err("ranks on this host always get the launcher's environment; put `env -i NAME=VALUE ...` in front of \
                    the launcher, or name with -E what other hosts get"
            .to_owned());
    }
    let mut made = Vec::new();
    let mut rest = Vec::new();
    for item in list.as_bytes().split(|b| *b == b',') {
        match item {
            b"ALL" => made.push(OsString::from("-E=ALL")),
            item => rest.push(item),
        }
    }
    if !rest.is_empty() {
        made.push(OsString::from_vec([b"-E=", rest.join(&b","[..]).as_slice()].concat()));
    }
    Ok(made)
}

/// `--output` of Open MPI and PRRTE; that of srun is a pattern for files.
pub(super) fn output(values: &[OsString]) -> Made {
    let mut made = Vec::new();
    for item in text(values)?.split(',') {
        made.push(match (item, item.strip_prefix("dir=")) {
            ("tag", _) => "--tag-output".into(),
            ("timestamp", _) => "--timestamp-output".into(),
            (_, Some(directory)) if !directory.is_empty() => word("--output-dir", directory),
            _ => {
                return Err("write tag, timestamp or dir=DIR, between commas; files for each rank are made by --output-dir \
                            DIR, one file for all by `> FILE`"
                    .to_owned());
            }
        });
    }
    Ok(made)
}

/// `-i` of srun.
pub(super) fn input(values: &[OsString]) -> Made {
    match text(values)? {
        who if who == "all" || who == "none" || is_count(who) => Ok(vec![word("--stdin", who)]),
        _ => Err(
            "write all, none or a rank, as in --stdin 0; a file is given to rank 0 with `< FILE`"
                .to_owned(),
        ),
    }
}

const TIME: &str = "write minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes or \
                    days-hours:minutes:seconds, or --timeout 90s";

/// `--time` of srun: minutes, or parts with colons.
pub(super) fn time(values: &[OsString]) -> Made {
    let text = text(values)?;
    let (days, clock) =
        text.split_once('-').map_or((None, text), |(days, rest)| (Some(days), rest));
    let number = |text: &str| -> Result<u64, String> {
        match is_count(text) && text.len() <= 9 {
            true => text.parse().map_err(|_| TIME.to_owned()),
            false => Err(TIME.to_owned()),
        }
    };
    let parts: Vec<u64> = clock.split(':').map(number).collect::<Result<_, _>>()?;
    let seconds = match (days, parts.as_slice()) {
        (None, [minutes]) => minutes * 60,
        (None, [minutes, seconds]) => minutes * 60 + seconds,
        (None, [hours, minutes, seconds]) => hours * 3600 + minutes * 60 + seconds,
        (Some(days), [hours, rest @ ..]) if rest.len() <= 2 => {
            let [minutes, seconds] =
                [rest.first(), rest.get(1)].map(|part| part.copied().unwrap_or(0));
            number(days)? * 86400 + hours * 3600 + minutes * 60 + seconds
        }
        _ => return Err(TIME.to_owned()),
    };
    Ok(vec![word("--timeout", &seconds.to_string())])
}
