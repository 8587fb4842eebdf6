//! The one table of time-outs of the exit.
//!
//! Every wait of the protocol ([`Timeouts`], used by the machine) and every alarm of the body ([`Alarms`], used by
//! the driver) is a row with a name. All derive from the exit time-out T.

/// A point or a length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Sum; stays at the largest value.
    #[must_use]
    pub const fn plus(self, length: Self) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

/// Least value of T: the floor of `GASNET_EXITTIMEOUT`.
pub const FLOOR: Millis = Millis(2_000);

/// How long each phase of the machine may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// `exit.reduce`: the reduction of the codes. T.
    pub reduce: Millis,
    /// `exit.lone`: the same of a code that is not 0. T; shorter where no agent watches, see [`Timeouts::deciding`].
    pub lone: Millis,
    /// `exit.elect`: the answer of rank 0. T.
    pub elect: Millis,
    /// `exit.coordinate`: replies of all ranks (leader), the leader's request (member). T.
    pub coordinate: Millis,
    /// `exit.drain`: flushing the streams and sending what is still queued. max(30 s, T).
    pub drain: Millis,
    /// `exit.quiet_signal`: a rank that may not send waits this long for the control tree before it decides alone.
    pub quiet_signal: Millis,
    /// `exit.stall`: an incomplete reduction waits this long for the control tree before the rank decides alone.
    pub stall: Millis,
}

impl Timeouts {
    /// The table for the exit time-out `t`.
    #[must_use]
    pub fn new(t: Millis) -> Self {
        Self {
            reduce: t,
            lone: t,
            elect: t,
            coordinate: t,
            drain: t.max(Millis(30_000)),
            quiet_signal: Millis(100),
            stall: Millis(2_000).min(t),
        }
    }

    /// The table where no agent decides. On one host what a rank decides in the host page reaches the whole job, so a reduction that
    /// stays incomplete for `exit.stall_alone` is a lone exit; on several hosts one with a failure that does for `exit.lone`. An end
    /// with code 0 has the whole T: nobody failed, and the others may be at work.
    #[must_use]
    pub fn deciding(self) -> Self {
        Self { stall: STALL_ALONE.min(self.stall), lone: LONE.min(self.reduce), ..self }
    }

    /// The rows with their names.
    #[must_use]
    pub const fn rows(&self) -> [(&'static str, Millis); 7] {
        [
            ("exit.reduce", self.reduce),
            ("exit.lone", self.lone),
            ("exit.elect", self.elect),
            ("exit.coordinate", self.coordinate),
            ("exit.drain", self.drain),
            ("exit.quiet_signal", self.quiet_signal),
            ("exit.stall", self.stall),
        ]
    }

    /// Bound on the time from a rank's first step to its last action: the phases follow each other and none is
    /// entered twice. (`lone`, `quiet_signal` and `stall` run inside `reduce`.)
    #[must_use]
    pub const fn total(&self) -> Millis {
        self.reduce.plus(self.elect).plus(self.coordinate).plus(self.drain)
    }
}

/// Bounds in whole seconds that the driver gives to `alarm`, in case a step blocks where no deadline is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarms {
    /// `exit.alarm_step`: one coordinating step (reduction, election, requests). 2 + T.
    pub step: u32,
    /// `exit.alarm_teardown`: everything after the coordination up to the farewell. max(120, T).
    pub teardown: u32,
    /// `exit.alarm_fini`: the farewell. max(30, T).
    pub fini: u32,
    /// `exit.alarm_last`: between the first abort signal and the end. max(5, T).
    pub last: u32,
}

/// `exit.stall_alone`: see [`Timeouts::deciding`].
pub const STALL_ALONE: Millis = Millis(200);

/// `exit.lone` without an agent: see [`Timeouts::deciding`]. Longer than what a busy host keeps a rank from its processor.
pub const LONE: Millis = Millis(1_000);

/// `exit.flush`: the streams; after that they are left as they are. (Another thread may hold a stream's lock for ever.)
pub const FLUSH: Millis = Millis(5_000);

/// `exit.flush_others`: C streams other than stdout and stderr, once those are flushed. (A thread that reads from the
/// terminal holds the lock of stdin.)
pub const FLUSH_OTHERS: Millis = Millis(200);

/// `exit.agent_quit`: the agent took on the SIGQUIT for this rank; its signal has this long to arrive.
pub const AGENT_QUIT: Millis = Millis(20);

/// `exit.slice`: longest single sleep of the body.
pub const SLICE: Millis = Millis(20);

/// `exit.backtrace`: one mechanism of printing a backtrace.
pub const BACKTRACE: Millis = Millis(30_000);

/// `exit.crash_flush`, seconds: flushing the streams after a fatal signal.
pub const CRASH_FLUSH_SECONDS: u32 = 5;

impl Alarms {
    /// The table for the exit time-out `t`.
    #[must_use]
    pub fn new(t: Millis) -> Self {
        let t = u32::try_from(t.0.div_ceil(1000)).unwrap_or(u32::MAX);
        Self { step: t.saturating_add(2), teardown: t.max(120), fini: t.max(30), last: t.max(5) }
    }
}
