//! Waits of the services: what a wait in progress knows, and the bounds of one provider.

use std::time::{Duration, Instant};

use settings::deadlines::bootstrap::{CALL, FINI, HELLO, SLICE};
use settings::deadlines::{Deadline, UNBOUNDED};

use crate::node_shm::NodeShm;
use crate::service::Error;

/// So many ranks of one host look once in each slice at most.
const CROWD: u32 = 256;
/// Sleep of a wait that has nothing to look at: as long as poll(2) here takes.
const BLIND: Duration = Duration::from_secs(60);

/// How long a rank that waits sleeps at a time, on a host with so many: the `slice`, and as much
/// more for each further 256 of them. 4096 that look every 50 ms leave no time on two processors to
/// those that they wait for.
#[must_use]
pub fn slice_among(ranks: u32, slice: Deadline) -> Duration {
    slice.limit * (1 + ranks / CROWD)
}

/// The bounds of one provider; tests shorten them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// [`HELLO`].
    pub hello: Deadline,
    /// [`CALL`].
    pub call: Deadline,
    /// [`FINI`].
    pub fini: Deadline,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { hello: HELLO, call: CALL, fini: FINI }
    }
}

/// Called in every slice of a wait; fails when the wait has become pointless.
pub type Watch<'a> = dyn FnMut() -> Result<(), Error> + 'a;

/// A wait in progress.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    during: &'static str,
    deadline: Deadline,
    /// Where the end of the job is decided, once it is there.
    page: Option<&'a NodeShm>,
    /// Not looked at for a wait without a bound: a rank in a short call does not read the clock.
    since: Option<Instant>,
}

impl<'a> Wait<'a> {
    /// Begins now; `during` names the call that waits.
    #[must_use]
    pub fn new(during: &'static str, deadline: Deadline) -> Self {
        let since = (deadline.limit != UNBOUNDED).then(Instant::now);
        Self { during, deadline, page: None, since }
    }

    /// The same, which also ends with the job.
    #[must_use]
    pub const fn with(self, page: &'a NodeShm) -> Self {
        Self { page: Some(page), ..self }
    }

    /// The call that waits.
    #[must_use]
    pub const fn during(&self) -> &'static str {
        self.during
    }

    /// How long to sleep before the next look at the end of the job, or what is left of the bound
    /// where there is nothing to look at. Ranks of a crowded host look less often ([`slice_among`]).
    ///
    /// # Errors
    /// The job's end is decided, or the bound has passed.
    pub fn slice(&self) -> Result<Duration, Error> {
        self.check()?;
        let slice = match self.page {
            Some(page) => slice_among(page.locals(), SLICE),
            None => BLIND,
        };
        let Some(since) = self.since else { return Ok(slice) };
        let waited = since.elapsed();
        match self.deadline.limit.checked_sub(waited) {
            Some(left) if !left.is_zero() => Ok(left.min(slice)),
            _ => Err(Error::Deadline {
                during: self.during,
                deadline: self.deadline.name,
                waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    /// Fails when the end of the job is decided.
    ///
    /// # Errors
    /// It is.
    pub fn check(&self) -> Result<(), Error> {
        let during = self.during;
        let decision = self.page.and_then(NodeShm::exit_decision);
        decision.map_or(Ok(()), |decision| Err(Error::Ending { during, decision }))
    }

    /// The connection broke. When the end of the job is decided, that is the reason to tell.
    #[must_use]
    pub fn lost(&self) -> Error {
        self.check().err().unwrap_or(Error::Lost { during: self.during })
    }

    /// A legal frame at the wrong time, or with the wrong contents.
    #[must_use]
    pub fn protocol(&self, seen: impl ToString) -> Error {
        Error::Protocol { during: self.during, seen: seen.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_shm::NodeShmSpec;
    use crate::rank::{HostId, Rank};

    fn page_of(ranks: u32) -> NodeShm {
        let local_ranks: Vec<Rank> = (0..ranks).map(Rank).collect();
        let host_of = vec![HostId(0); local_ranks.len()];
        let (local_ranks, host_of) = (&local_ranks, &host_of);
        NodeShm::create(&NodeShmSpec { host: HostId(0), hosts: 1, local_ranks, host_of })
            .expect("a page")
    }

    #[test]
    fn a_wait_ends_with_its_bound_or_with_the_job() {
        let over = CALL.within(Duration::ZERO);
        let error = Wait::new("barrier", over).slice().unwrap_err();
        assert!(matches!(
            error,
            Error::Deadline { during: "barrier", deadline: "bootstrap.call", .. }
        ));
        assert_eq!(Wait::new("barrier", CALL).slice().ok(), Some(BLIND));
        let bounded = Wait::new("fini", FINI);
        assert!(bounded.slice().is_ok_and(|slice| slice > SLICE.limit && slice <= FINI.limit));
        let page = page_of(1);
        assert!(bounded.with(&page).slice().is_ok_and(|slice| slice == SLICE.limit));
    }

    #[test]
    fn ranks_of_a_crowded_host_look_less_often() {
        for (ranks, times) in [(1, 1), (255, 1), (256, 2), (4096, 17)] {
            let page = page_of(ranks);
            let slice = Wait::new("barrier", CALL).with(&page).slice();
            assert_eq!(slice.ok(), Some(SLICE.limit * times), "{ranks} ranks");
        }
    }
}
