//! A timeline as a file in the Trace Event format, as Perfetto and chrome://tracing read it.
//!
//! The file is one JSON object. When there is no room for all of it, it ends with the last event
//! that fits and says so itself: what is there can be opened.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::merge::{Arrow, Slice, Timeline};

/// Room that is kept for the end.
const TAIL: usize = 4096;

/// What is in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) events: u64,
    /// Why the rest is not there.
    pub(super) cut: Option<String>,
}

impl Written {
    /// In words.
    pub(super) fn text(&self, timeline: &Timeline) -> String {
        let all = (timeline.slices.len() + 2 * timeline.arrows.len()) as u64;
        let mut text = match &self.cut {
            Some(why) => format!("{why}: cut after {} of {all} events", self.events),
            None => format!("{} events, {} arrows", timeline.slices.len(), timeline.arrows.len()),
        };
        if timeline.lost > 0 {
            text += &format!(
                "; ranks have overwritten {} older ones (GASNET_TRACE_MEMORY)",
                timeline.lost
            );
        }
        text
    }
}

/// An event of the format. Times are microseconds.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    cat: &'a str,
    ph: &'static str,
    ts: f64,
    pid: u32,
    tid: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    /// Of an arrow's end: it belongs to the slice around it. Of a moment: its thread's.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    args: Map<String, Value>,
}

/// Nanoseconds as microseconds. Readers multiply by 1000 and may cut off what is behind the point: a
/// number just below the right one would be a nanosecond less to them, so it is not below it.
#[expect(clippy::cast_precision_loss, reason = "microseconds since the start of the job")]
fn us(ns: u64) -> f64 {
    let us = ns as f64 / 1000.0;
    if us * 1000.0 < ns as f64 { us.next_up() } else { us }
}

fn of_slice(slice: &Slice) -> Event<'_> {
    let value = |text: &str| match text.parse::<u64>() {
        Ok(number) => json!(number),
        Err(_) => json!(text),
    };
    let args = slice.about.iter().map(|(name, text)| ((*name).to_owned(), value(text))).collect();
    Event {
        name: &slice.name,
        cat: slice.category,
        ph: if slice.instant { "i" } else { "X" },
        ts: us(slice.at),
        pid: slice.rank,
        tid: slice.thread,
        dur: (!slice.instant).then(|| us(slice.span)),
        id: None,
        bp: None,
        s: slice.instant.then_some("t"),
        args,
    }
}

fn of_arrow(id: usize, arrow: &Arrow) -> [Event<'static>; 2] {
    let end = |ph, (pid, tid, at): (u32, u8, u64), bp| Event {
        name: if arrow.reply { "reply" } else { "request" },
        cat: "message",
        ph,
        ts: us(at),
        pid,
        tid,
        dur: None,
        id: Some(id),
        bp,
        s: None,
        args: Map::new(),
    };
    [end("s", arrow.from, None), end("f", arrow.to, Some("e"))]
}

/// The file, event by event.
struct Out {
    file: BufWriter<File>,
    events: u64,
}

impl Out {
    fn put(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut bytes = if self.events == 0 { Vec::new() } else { b",\n".to_vec() };
        serde_json::to_writer(&mut bytes, value)?;
        self.file.write_all(&bytes)?;
        self.events += 1;
        Ok(())
    }
}

const HEAD: &[u8] = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";

/// Writes all that fits. `names`: of the ranks.
pub(super) fn write(file: File, names: &[String], timeline: &Timeline) -> io::Result<Written> {
    let spare = file.try_clone()?;
    let mut out = Out { file: BufWriter::new(file), events: 0 };
    let result = events(&mut out, names, timeline);
    let Err(error) = result else {
        return Ok(Written { events: out.events, cut: None });
    };
    // What the buffer still has must not follow.
    let (_, _unwritten) = out.file.into_parts();
    // What cannot be cut, as a device, has failed for the first reason.
    cut(&spare, &error, timeline).map_err(|_| error)
}

fn events(out: &mut Out, names: &[String], timeline: &Timeline) -> io::Result<()> {
    out.file.write_all(HEAD)?;
    for (rank, name) in names.iter().enumerate() {
        let of =
            |what: &str, args: Value| json!({"name": what, "ph": "M", "pid": rank, "args": args});
        out.put(&of("process_name", json!({"name": name})))?;
        out.put(&of("process_sort_index", json!({"sort_index": rank})))?;
    }
    for slice in &timeline.slices {
        out.put(&of_slice(slice))?;
    }
    for (id, arrow) in timeline.arrows.iter().enumerate() {
        for event in of_arrow(id, arrow) {
            out.put(&event)?;
        }
    }
    out.file.write_all(&tail(timeline, None))?;
    out.file.flush()
}

/// The end of the file. `cut`: why it comes early.
fn tail(timeline: &Timeline, cut: Option<&str>) -> Vec<u8> {
    let about = json!({
        "overwritten": timeline.lost,
        "messages without arrow": timeline.loose,
        "ranks without records": timeline.silent,
        "clocks apart by at most (us)": us(timeline.clock_error),
        "cut": cut,
    });
    format!("\n],\"otherData\":{about}}}\n").into_bytes()
}

/// Ends a file that is full behind its last whole event.
fn cut(file: &File, error: &io::Error, timeline: &Timeline) -> io::Result<Written> {
    let why = error.to_string();
    let tail = tail(timeline, Some(&why));
    let len = file.metadata()?.len();
    // Room for the end comes from the last events.
    let (end, events) = last_line(file, len.saturating_sub(tail.len().max(TAIL) as u64))?;
    // Without a whole event there is still an empty list.
    let (end, mut text) = if end < HEAD.len() as u64 {
        (0, HEAD[..HEAD.len() - 1].to_vec())
    } else {
        // The line before ends with a comma.
        (end - 1, Vec::new())
    };
    file.set_len(end)?;
    text.extend(&tail);
    file.write_all_at(&text, end)?;
    Ok(Written { events, cut: Some(why) })
}

/// Where the last line that ends before `limit` ends, and how many events end so: those lines are
/// events, but the first.
fn last_line(file: &File, limit: u64) -> io::Result<(u64, u64)> {
    let (mut at, mut end, mut lines) = (0, 0, 0_u64);
    let mut buffer = [0; 64 * 1024];
    while at < limit {
        let want = usize::try_from(limit - at).unwrap_or(usize::MAX).min(buffer.len());
        let count = file.read_at(&mut buffer[..want], at)?;
        if count == 0 {
            break;
        }
        let bytes = &buffer[..count];
        lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
            end = at + last as u64;
        }
        at += count as u64;
    }
    Ok((end, lines.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "as a reader of the file does it"
        )]
        fn a_reader_that_cuts_off_finds_the_nanosecond(ns in 0_u64..1 << 50) {
            let text = serde_json::to_string(&us(ns)).unwrap();
            let read: f64 = text.parse().unwrap();
            prop_assert_eq!((read * 1000.0) as u64, ns);
        }
    }

    fn some(slices: usize) -> Timeline {
        let slice = |number: usize| Slice {
            rank: u32::try_from(number % 2).unwrap(),
            thread: 0,
            at: number as u64 * 10,
            span: if number.is_multiple_of(3) { 1 } else { 7 },
            instant: number % 5 == 4,
            category: "send",
            name: format!("a \"name\" {number}\n"),
            about: vec![("bytes", "12".to_owned()), ("handler", "200 ping".to_owned())],
        };
        let arrow = |number: u64| Arrow {
            from: (0, 0, number * 20),
            to: (1, 0, number * 20 + 10),
            reply: number % 2 == 1,
        };
        Timeline {
            slices: (0..slices).map(slice).collect(),
            arrows: (0..slices as u64 / 2).map(arrow).collect(),
            loose: 3,
            lost: 4,
            silent: 1,
            clock_error: 1500,
        }
    }

    fn read_back(file: &std::path::Path) -> Value {
        let text = std::fs::read_to_string(file).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    #[test]
    fn the_file_follows_the_format() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.json");
        let timeline = some(20);
        let names = ["rank 0 (n0)".to_owned(), "rank 1 (n1)".to_owned()];
        let written = write(File::create(&path).unwrap(), &names, &timeline).unwrap();
        assert_eq!(written, Written { events: 4 + 20 + 20, cut: None });
        let value = read_back(&path);
        let events = value["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 44);
        for event in events {
            let ph = event["ph"].as_str().unwrap();
            assert!(event["pid"].is_u64() && event["name"].is_string(), "{event}");
            match ph {
                "X" => assert!(event["dur"].as_f64().unwrap() > 0.0 && event["ts"].is_f64()),
                "i" => assert_eq!(event["s"], "t"),
                "s" => assert!(event["id"].is_u64() && event["bp"].is_null()),
                "f" => assert!(event["id"].is_u64() && event["bp"] == "e"),
                "M" => assert!(event["args"].is_object()),
                other => panic!("{other}"),
            }
        }
        assert_eq!(value["otherData"]["overwritten"], 4);
        assert_eq!(value["otherData"]["clocks apart by at most (us)"], 1.5);
        assert_eq!(value["otherData"]["cut"], Value::Null);
    }

    #[test]
    fn a_full_disk_leaves_a_file_that_can_be_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.json");
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true);
            options.open(&path).unwrap()
        };
        let file = open();
        let timeline = some(400);
        write(file.try_clone().unwrap(), &[], &timeline).unwrap();
        let whole = file.metadata().unwrap().len();
        for len in [whole / 2, whole / 2 + 1, whole / 2 + 57, 5_000, 4_200, 4_096, 100, 0] {
            write(open(), &[], &timeline).unwrap();
            file.set_len(len).unwrap();
            let error = io::Error::from_raw_os_error(libc::ENOSPC);
            let written = cut(&file, &error, &timeline).unwrap();
            let value = read_back(&path);
            let events = value["traceEvents"].as_array().unwrap().len() as u64;
            assert!(events == written.events || events == 0, "{events} {written:?} at {len}");
            assert!(value["otherData"]["cut"].as_str().unwrap().contains("space"), "{value}");
            assert!(file.metadata().unwrap().len() <= len.max(500), "it did not grow");
            assert!(written.text(&timeline).contains("cut after"));
        }
    }
}
