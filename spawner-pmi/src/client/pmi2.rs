//! PMI-2: messages with their length in front, fields between `;`.
//!
//! The first line is that of PMI-1; the server's answer to it says which version it goes on with.

use settings::deadlines::bootstrap::{ANNOUNCE, CALL};

use super::fields::{Fields, frame};
use super::pmi1::Pmi1;
use super::process_manager::{
    Finalization, FinalizeCalls, JobInfo, ProcessManager, ProcessManagerError, mapping, unwatched,
    value,
};
use super::stream::Stream;
use super::text::{Text, farewell};
use bootstrap::service::{Error, HostId, Rank, send_best_effort};
use bootstrap::sys;
use bootstrap::wait::{Wait, Watch};

const NAME: &str = "PMI-2";
/// Bytes of a value: the protocol has no question for it, the standard header says 1024.
const VALUE_LIMIT: usize = 1024;

/// The connection of one rank.
pub(super) struct Pmi2 {
    stream: Stream,
    info: JobInfo,
    finalization: &'static Finalization,
}

/// Connects with PMI-2, or with PMI-1 where the server knows no better.
pub(super) fn begin(
    mut stream: Stream,
    rank: u32,
    size: u32,
    job: &str,
) -> Result<Box<dyn ProcessManager>, Error> {
    stream.manager = NAME;
    let during = "init";
    let wait = stream.wait(during);
    stream.send(b"cmd=init pmi_version=2 pmi_subversion=0\n", &wait)?;
    let line = stream.line(&wait, &mut unwatched())?;
    let answer = stream.fields_of(during, &line, ' ', "response_to_init")?;
    let refused = answer.refusal().map_err(|problem| stream.nonsense(during, problem, &line))?;
    let seen = answer.get("pmi_version").unwrap_or("none").to_owned();
    match (refused, seen.as_str()) {
        (None, "2") => Ok(Box::new(Pmi2::full_init(stream, rank, size, job)?)),
        // Asked for again in the version that the server named.
        (_, "1") => Ok(Box::new(Pmi1::begin(stream, rank, size)?)),
        _ => Err(stream.wrong_version(seen, "2")),
    }
}

impl Pmi2 {
    fn full_init(mut stream: Stream, rank: u32, size: u32, job: &str) -> Result<Self, Error> {
        let during = "fullinit";
        let body = format!("cmd=fullinit;pmijobid={job};pmirank={rank};threaded=FALSE;");
        let answer = ask(&mut stream, during, &body, "fullinit-response")?;
        for (name, ours) in [("rank", rank), ("size", size)] {
            let theirs =
                answer.number(name).map_err(|problem| stream.nonsense(during, problem, ""))?;
            if theirs != i64::from(ours) {
                let problem = format!("{name} {theirs}, the environment says {ours}");
                return Err(stream.nonsense(during, problem, ""));
            }
        }
        let during = "job-getid";
        let answer = ask(&mut stream, during, "cmd=job-getid;", "job-getid-response")?;
        let job = answer
            .need("jobid")
            .map_err(|problem| stream.nonsense(during, problem, ""))?
            .to_owned();
        let finalization = Finalization::new(Box::new(Pmi2Finalize { fd: stream.number() }));
        let value_limit = VALUE_LIMIT;
        let info = JobInfo { manager: NAME, rank: Rank(rank), size, job, value_limit };
        debug_assert!(value::usable(value_limit).is_some());
        Ok(Self { stream, info, finalization })
    }

    /// The `value` of an answer, `None` when nothing was found.
    fn found(&self, during: &'static str, answer: &Fields) -> Result<Option<String>, Error> {
        let nonsense = |problem| self.stream.nonsense(during, problem, "");
        if answer.need("found").map_err(nonsense)? != "TRUE" {
            return Ok(None);
        }
        Ok(Some(answer.need("value").map_err(nonsense)?.to_owned()))
    }
}

fn receive(
    stream: &mut Stream,
    wait: &Wait,
    expected: &str,
    watch: &mut Watch<'_>,
) -> Result<Fields, Error> {
    let body = stream.frame(wait, watch)?;
    let during = wait.during();
    let fields = stream.fields_of(during, &body, ';', expected)?;
    stream.accepted(during, &fields, &body)?;
    Ok(fields)
}

fn ask(
    stream: &mut Stream,
    during: &'static str,
    body: &str,
    expected: &str,
) -> Result<Fields, Error> {
    let wait = stream.wait(during);
    stream.send(frame(body).as_bytes(), &wait)?;
    receive(stream, &wait, expected, &mut unwatched())
}

impl ProcessManager for Pmi2 {
    fn job_info(&self) -> &JobInfo {
        &self.info
    }

    fn host_map(&mut self) -> Result<Option<Vec<HostId>>, Error> {
        let during = "info-getjobattr";
        let body = "cmd=info-getjobattr;key=PMI_process_mapping;";
        let answer = ask(&mut self.stream, during, body, "info-getjobattr-response")?;
        // A server that does not know the attribute may answer with another one's value.
        let text = self.found(during, &answer)?;
        Ok(text.and_then(|text| mapping::hosts(&text, self.info.size)))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let body = format!("cmd=kvs-put;key={key};value={value};");
        ask(&mut self.stream, "kvs-put", &body, "kvs-put-response").map(drop)
    }

    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error> {
        let during = "kvs-fence";
        let wait = self.stream.wait(during);
        self.stream.send(frame("cmd=kvs-fence;").as_bytes(), &wait)?;
        let wait = Wait::new(during, CALL);
        receive(&mut self.stream, &wait, "kvs-fence-response", watch).map(drop)
    }

    fn get(&mut self, from: Rank, key: &str) -> Result<String, Error> {
        let during = "kvs-get";
        let body = format!("cmd=kvs-get;jobid={};srcid=-1;key={key};", self.info.job);
        let answer = ask(&mut self.stream, during, &body, "kvs-get-response")?;
        self.found(during, &answer)?.ok_or_else(|| {
            let problem = "is not there after the fence".to_owned();
            ProcessManagerError::Value { manager: NAME, key: key.to_owned(), from, problem }.into()
        })
    }

    fn finalization(&self) -> &'static Finalization {
        self.finalization
    }
}

impl Drop for Pmi2 {
    fn drop(&mut self) {
        self.finalization.close();
    }
}

/// The last messages.
#[derive(Debug)]
struct Pmi2Finalize {
    fd: i32,
}

impl FinalizeCalls for Pmi2Finalize {
    fn finalize(&self) {
        farewell(self.fd, b"    13cmd=finalize;", b"finalize");
    }

    fn is_lost(&self) -> bool {
        sys::has_hung_up(self.fd)
    }

    fn abort(&self, code: i32) {
        let mut body = Text::new();
        body.put(b"cmd=abort;isworld=TRUE;msg=gasnet exit with code ").number(code);
        body.put(b";exitcode=").number(code).put(b";");
        let mut message = Text::new();
        let length = i32::try_from(body.bytes().len()).unwrap_or_default();
        // Six columns: the body has 60 to 99 bytes.
        message.put(b"    ").number(length).put(body.bytes());
        send_best_effort(self.fd, message.bytes(), ANNOUNCE.limit);
    }
}
