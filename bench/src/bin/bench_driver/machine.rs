//! The machine that is measured on.

use crate::Repetitions;

/// First value of `key` in a file of `key: value` lines.
fn field(file: &str, key: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let value =
        text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == key);
    value.map_or_else(|| "unknown".into(), |(_, value)| value.trim().to_owned())
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_owned())
}

/// Load average of the last minute, as text.
pub(crate) fn load() -> String {
    file("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// This process's niceness, which everything measured inherits.
fn niceness() -> String {
    let stat = file("/proc/self/stat");
    // Field 19; the name before may hold spaces and ends with the last parenthesis.
    let fields = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(16));
    fields.unwrap_or("unknown").to_owned()
}

/// What was measured on.
pub(crate) fn described(repetitions: Repetitions) -> Vec<(&'static str, String)> {
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let governor = file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let hypervisor =
        if field("/proc/cpuinfo", "flags").contains(" hypervisor") { "yes" } else { "no" };
    vec![
        ("processor", field("/proc/cpuinfo", "model name")),
        ("processors", cpus.to_string()),
        ("virtual machine", hypervisor.to_owned()),
        ("frequency governor", governor),
        ("kernel", file("/proc/sys/kernel/osrelease")),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("niceness", niceness()),
        (
            "ranks with a processor each",
            if repetitions.realtime { "SCHED_FIFO" } else { "normal" }.into(),
        ),
        ("load before", load()),
    ]
}
