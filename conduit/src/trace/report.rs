//! The statistics of a rank in words, and the end of both files.

use std::sync::Mutex;

use bootstrap::trace::{Cause, Counter};

use super::lines::{self, Lines};
use super::recorder::Recorder;

/// What programs want to be called before statistics are written.
pub(super) static CALLBACKS: Mutex<Vec<extern "C" fn()>> = Mutex::new(Vec::new());

/// Writes what is left of both files; the statistics are made now, if `whole`.
pub(super) fn finish(recorder: &Recorder, whole: bool) {
    if let Some(lines) = &recorder.trace {
        lines::with(lines, Lines::flush);
    }
    if let Some(lines) = recorder.stats.as_ref().filter(|_| whole) {
        let callbacks = CALLBACKS.try_lock().map(|callbacks| callbacks.clone()).unwrap_or_default();
        callbacks.iter().for_each(|callback| callback());
        lines::with(lines, |lines| {
            for line in summary(recorder) {
                lines.plain(recorder.rank, &line);
            }
            lines.flush();
        });
    }
}

/// The statistics of a rank: what was counted, how long it waited.
fn summary(recorder: &Recorder) -> Vec<String> {
    let clock = recorder.clock();
    let counter = |counter: &Counter| {
        let (count, bytes) = recorder.counted(*counter);
        let (letter, name) = (char::from(counter.letter()), counter.name());
        (count > 0).then(|| format!("({letter}) {name} {count} times, {bytes} bytes"))
    };
    let timer = |cause: &Cause| {
        let [count, sum, least, most] = recorder.timed(*cause);
        let [sum, least, most] = [sum, least, most].map(|ticks| clock.span(ticks) / 1000);
        (count > 0).then(|| {
            let (letter, name) = (char::from(cause.letter()), cause.name());
            format!("({letter}) {name} {count} times, {sum} us, least {least}, most {most}")
        })
    };
    let counters = Counter::ALL.iter().filter_map(counter);
    counters.chain(Cause::ALL.iter().filter_map(timer)).collect()
}
