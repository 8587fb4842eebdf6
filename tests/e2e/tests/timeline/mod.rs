//! A timeline that `--trace` has written, as tests of several programs look at it.
//!
//! It is checked against the rules of the Trace Event format and those that Perfetto adds
//! when it reads it: slices of a thread lie inside each other or apart, and both ends of an arrow
//! lie in a slice. (Perfetto's own parser is a program that its packages fetch when they run.)

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// A timeline that follows the rules.
pub(crate) struct Timeline {
    pub(crate) events: Vec<Value>,
    pub(crate) whole: Value,
}

impl Timeline {
    pub(crate) fn read(path: &Path) -> Self {
        Self::of(&std::fs::read_to_string(path).expect("the file is there"))
    }

    /// Of the text of a file.
    pub(crate) fn of(text: &str) -> Self {
        let whole: Value = serde_json::from_str(text).expect("one JSON object");
        let events = whole["traceEvents"].as_array().expect("a list of events").clone();
        let timeline = Self { events, whole };
        timeline.check();
        timeline
    }

    /// Whether some event of a rank has this name, or one that begins so.
    pub(crate) fn has(&self, rank: u64, name: &str) -> bool {
        let named = |event: &&Value| event["name"].as_str().is_some_and(|n| n.starts_with(name));
        self.events.iter().filter(named).any(|event| event["pid"] == rank)
    }

    pub(crate) fn arrows(&self) -> usize {
        self.events.iter().filter(|event| event["ph"] == "s").count()
    }

    /// Clocks of all hosts are one: no handler begins before its message was sent, but for the error
    /// that the file states; and most messages have their arrows: those whose handler ended before
    /// they were sent, by that error, have none.
    pub(crate) fn assert_aligned(&self) {
        let stated = self.whole["otherData"]["clocks apart by at most (us)"].as_f64();
        let error = stated.expect("the error is stated");
        assert!(error < 1e6, "clocks are known to {error} us");
        // By thread and category: from when to when.
        type Slices<'a> = BTreeMap<((u64, u64), &'a str), Vec<(f64, f64)>>;
        let mut slices = Slices::new();
        for slice in self.events.iter().filter(|event| event["ph"] == "X") {
            let [begin, span] = ["ts", "dur"].map(|name| slice[name].as_f64().expect("a time"));
            let category = slice["cat"].as_str().unwrap_or_default();
            slices.entry((place(slice), category)).or_default().push((begin, begin + span));
        }
        // The slice of a category around an end of an arrow; the innermost has begun last.
        let begin = |end: &Value, category| {
            let at = end["ts"].as_f64().expect("a time");
            let all = slices.get(&(place(end), category)).into_iter().flatten();
            let around = all.filter(|(from, to)| *from <= at + 0.002 && at <= to + 0.002);
            around.map(|(from, _)| *from).fold(None, |most: Option<f64>, from| {
                Some(most.map_or(from, |most| most.max(from)))
            })
        };
        let mut sent: BTreeMap<u64, f64> = BTreeMap::new();
        let ends = |phase: &'static str| self.events.iter().filter(move |one| one["ph"] == phase);
        for end in ends("s") {
            let from = begin(end, "send");
            let from = from.unwrap_or_else(|| panic!("{end} is in no message: {}", self.near(end)));
            sent.insert(end["id"].as_u64().expect("an id"), from);
        }
        for end in ends("f") {
            let handled = begin(end, "handler");
            let handled =
                handled.unwrap_or_else(|| panic!("{end} is in no handler: {}", self.near(end)));
            let sent = sent[&end["id"].as_u64().expect("an id")];
            assert!(handled >= sent - error - 0.002, "{handled} < {sent} - {error}: {end}");
        }
        let loose = self.without_arrow();
        let arrows = self.arrows() as u64;
        // A busy machine answers late, so clocks are known worse, and more handlers seem to end too early.
        let part = if error < 300.0 { 4 } else { 1 };
        assert!(
            arrows > 100 && loose * part <= arrows,
            "{arrows} arrows, {loose} without, clocks are known to {error} us"
        );
        // With clocks that are apart the file would be as long.
        let last = self.events.iter().filter_map(|event| event["ts"].as_f64()).fold(0.0, f64::max);
        assert!(last < 120e6, "the job took {last} us");
    }

    /// Messages whose handler seems to have ended before they were sent.
    pub(crate) fn without_arrow(&self) -> u64 {
        self.whole["otherData"]["messages without arrow"].as_u64().expect("a number")
    }

    /// What the thread of an event does within a tenth of a millisecond of it.
    fn near(&self, event: &Value) -> String {
        let at = event["ts"].as_f64().unwrap_or_default();
        let near = |one: &&Value| {
            (&one["pid"], &one["tid"]) == (&event["pid"], &event["tid"])
                && one["ts"].as_f64().is_some_and(|ts| (ts - at).abs() < 1000.0)
        };
        let all: Vec<String> = self.events.iter().filter(near).map(Value::to_string).collect();
        all.join("\n")
    }

    fn check(&self) {
        let mut slices: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
        let mut arrows: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        for event in &self.events {
            let number =
                |name: &str| event[name].as_f64().unwrap_or_else(|| panic!("no {name} in {event}"));
            assert!(event["name"].is_string() && event["pid"].is_u64(), "{event}");
            let ph = event["ph"].as_str().expect("a phase");
            if ph == "M" {
                continue;
            }
            assert!(event["tid"].is_u64() && number("ts") >= 0.0, "{event}");
            match ph {
                "X" => {
                    assert!(number("dur") > 0.0, "{event}");
                    let thread = slices.entry(place(event)).or_default();
                    thread.push((number("ts"), number("ts") + number("dur")));
                }
                "i" => assert_eq!(event["s"], "t", "{event}"),
                "s" | "f" => {
                    assert!(ph == "s" || event["bp"] == "e", "{event}");
                    arrows.entry(event["id"].as_u64().expect("an id")).or_default().push(event);
                }
                other => panic!("phase {other}"),
            }
        }
        slices.values_mut().for_each(|thread| assert_nested(thread));
        for (id, ends) in arrows {
            let [from, to] = ends[..] else { panic!("arrow {id} has {} ends", ends.len()) };
            let (from, to) = if from["ph"] == "s" { (from, to) } else { (to, from) };
            assert!(from["ts"].as_f64() <= to["ts"].as_f64(), "{from} {to}");
            assert_eq!((&from["ph"], &to["ph"]), (&Value::from("s"), &Value::from("f")));
            for end in [from, to] {
                let at = end["ts"].as_f64().expect("a time");
                let around =
                    |(begin, over): &(f64, f64)| *begin <= at + 0.002 && at <= *over + 0.002;
                let near = || self.near(end);
                assert!(slices[&place(end)].iter().any(around), "{end} is in no slice: {}", near());
            }
        }
    }
}

fn place(event: &Value) -> (u64, u64) {
    let of = |name: &str| event[name].as_u64().expect("a number");
    (of("pid"), of("tid"))
}

/// Slices lie inside each other or apart; a nanosecond is a rounding error.
fn assert_nested(slices: &mut [(f64, f64)]) {
    slices.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.total_cmp(&one.1)));
    let mut open: Vec<f64> = Vec::new();
    for (begin, end) in slices {
        open.retain(|over| *over > *begin + 0.002);
        let fits = open.iter().all(|over| *end <= *over + 0.002);
        assert!(fits, "{begin} to {end} overlaps with what ends at {open:?}");
        open.push(*end);
    }
}
