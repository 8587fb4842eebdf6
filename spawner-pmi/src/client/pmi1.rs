//! PMI-1: lines of `key=value` words over an inherited descriptor or a port.
//!
//! Two servers matter: Hydra and Slurm (`srun --mpi=pmi2` speaks it as well). They differ in the
//! order of fields, and agree in that puts are seen after the next barrier only.

use settings::deadlines::bootstrap::{ANNOUNCE, CALL};

use super::fields::Fields;
use super::process_manager::{
    Finalization, FinalizeCalls, JobInfo, ProcessManager, ProcessManagerError, mapping, unwatched,
    value,
};
use super::stream::Stream;
use super::text::{Text, farewell};
use bootstrap::service::{Error, HostId, Rank, send_best_effort};
use bootstrap::sys;
use bootstrap::wait::{Wait, Watch};

const NAME: &str = "PMI-1";
/// Least length of a key that is of use here.
const LEAST_KEY: usize = 32;

/// Bytes of a request that every server takes: Slurm reads 1024 and takes the rest for another
/// request.
const LINE: usize = 1024;

/// The connection of one rank.
pub(crate) struct Pmi1 {
    stream: Stream,
    info: JobInfo,
    space: String,
    finalization: &'static Finalization,
}

impl Pmi1 {
    /// Over a connection that is there already; `rank` and `size` are known.
    pub(crate) fn begin(mut stream: Stream, rank: u32, size: u32) -> Result<Self, Error> {
        stream.manager = NAME;
        let answer = ask(
            &mut stream,
            "init",
            "cmd=init pmi_version=1 pmi_subversion=1",
            "response_to_init",
        )?;
        version(&stream, &answer)?;
        let maxes = ask(&mut stream, "get_maxes", "cmd=get_maxes", "maxes")?;
        let limit = |name| number(&stream, "get_maxes", &maxes, name);
        let (key, value_limit) = (limit("keylen_max")?, limit("vallen_max")?);
        let during = "get_my_kvsname";
        let names = ask(&mut stream, during, "cmd=get_my_kvsname", "my_kvsname")?;
        let space = names
            .need("kvsname")
            .map_err(|problem| stream.nonsense(during, problem, ""))?
            .to_owned();
        if space.is_empty() || rank >= size {
            let seen = format!("rank {rank} of {size}, space {space:?}");
            return Err(stream.nonsense(during, "that cannot be".to_owned(), &seen));
        }
        // The server reads a request into so many bytes, whatever it says of values.
        let room =
            LINE.saturating_sub("cmd=put kvsname= key= value=\n".len() + space.len() + LEAST_KEY);
        let value_limit = value_limit.min(room);
        if key < LEAST_KEY || value::usable(value_limit).is_none() {
            return Err(
                ProcessManagerError::Limits { manager: NAME, key, value: value_limit }.into()
            );
        }
        let finalization = Finalization::new(Box::new(Pmi1Finalize { fd: stream.number() }));
        let info =
            JobInfo { manager: NAME, rank: Rank(rank), size, job: space.clone(), value_limit };
        Ok(Self { stream, info, space, finalization })
    }

    /// The value of a key, `None` when there is no such key.
    fn look_up(&mut self, key: &str) -> Result<Option<String>, Error> {
        let during = "get";
        let wait = self.stream.wait(during);
        let line = format!("cmd=get kvsname={} key={key}\n", self.space);
        self.stream.send(line.as_bytes(), &wait)?;
        let answer = receive(&mut self.stream, &wait, "get_result", &mut unwatched())?;
        let refusal = answer.refusal().map_err(|p| self.stream.nonsense(during, p, ""))?;
        if refusal.is_some() {
            return Ok(None);
        }
        let value = answer.need("value").map_err(|p| self.stream.nonsense(during, p, ""))?;
        Ok(Some(value.to_owned()))
    }
}

/// The first words on a port: the server says which rank this is.
pub(super) fn introduce(stream: &mut Stream, id: &str) -> Result<(u32, u32), Error> {
    let during = "initack";
    let wait = stream.wait(during);
    stream.send(format!("cmd=initack pmiid={id}\n").as_bytes(), &wait)?;
    receive(stream, &wait, "initack", &mut unwatched())?;
    let (mut rank, mut size, mut debug) = (None, None, false);
    while rank.is_none() || size.is_none() || !debug {
        let answer = receive(stream, &wait, "set", &mut unwatched())?;
        let word = |name| match answer.get(name) {
            Some(_) => answer.number(name).map(|n| u32::try_from(n).ok()),
            None => Ok(None),
        };
        let read = |name| word(name).map_err(|problem| stream.nonsense(during, problem, ""));
        (rank, size) = (read("rank")?.or(rank), read("size")?.or(size));
        debug |= answer.get("debug").is_some();
    }
    rank.zip(size).ok_or_else(|| stream.nonsense(during, "no rank or size".to_owned(), ""))
}

fn version(stream: &Stream, answer: &Fields) -> Result<(), Error> {
    let seen = answer.get("pmi_version").unwrap_or("none").to_owned();
    let refused = answer.refusal().map_err(|p| stream.nonsense("init", p, ""))?;
    if refused.is_some() || seen != "1" {
        return Err(stream.wrong_version(seen, "1"));
    }
    Ok(())
}

fn number(
    stream: &Stream,
    during: &'static str,
    from: &Fields,
    name: &str,
) -> Result<usize, Error> {
    let number = from.number(name).map_err(|problem| stream.nonsense(during, problem, ""))?;
    usize::try_from(number)
        .map_err(|_| stream.nonsense(during, format!("{name} is negative"), &number.to_string()))
}

fn receive(
    stream: &mut Stream,
    wait: &Wait,
    expected: &str,
    watch: &mut Watch<'_>,
) -> Result<Fields, Error> {
    let line = stream.line(wait, watch)?;
    stream.fields_of(wait.during(), &line, ' ', expected)
}

fn ask(
    stream: &mut Stream,
    during: &'static str,
    line: &str,
    expected: &str,
) -> Result<Fields, Error> {
    let wait = stream.wait(during);
    stream.send(format!("{line}\n").as_bytes(), &wait)?;
    receive(stream, &wait, expected, &mut unwatched())
}

impl ProcessManager for Pmi1 {
    fn job_info(&self) -> &JobInfo {
        &self.info
    }

    fn host_map(&mut self) -> Result<Option<Vec<HostId>>, Error> {
        let text = self.look_up("PMI_process_mapping")?;
        Ok(text.and_then(|text| mapping::hosts(&text, self.info.size)))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        let during = "put";
        let line = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        let answer = ask(&mut self.stream, during, &line, "put_result")?;
        self.stream.accepted(during, &answer, "")
    }

    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error> {
        let during = "barrier";
        let wait = self.stream.wait(during);
        self.stream.send(b"cmd=barrier_in\n", &wait)?;
        let answer = receive(&mut self.stream, &Wait::new(during, CALL), "barrier_out", watch)?;
        self.stream.accepted(during, &answer, "")
    }

    fn get(&mut self, from: Rank, key: &str) -> Result<String, Error> {
        self.look_up(key)?.ok_or_else(|| {
            let problem = "is not there after the barrier".to_owned();
            ProcessManagerError::Value { manager: NAME, key: key.to_owned(), from, problem }.into()
        })
    }

    fn finalization(&self) -> &'static Finalization {
        self.finalization
    }
}

impl Drop for Pmi1 {
    fn drop(&mut self) {
        self.finalization.close();
    }
}

/// The last lines.
#[derive(Debug)]
struct Pmi1Finalize {
    fd: i32,
}

impl FinalizeCalls for Pmi1Finalize {
    fn finalize(&self) {
        farewell(self.fd, b"cmd=finalize\n", b"finalize");
    }

    fn is_lost(&self) -> bool {
        sys::has_hung_up(self.fd)
    }

    fn abort(&self, code: i32) {
        let mut line = Text::new();
        line.put(b"cmd=abort exitcode=").number(code).put(b"\n");
        send_best_effort(self.fd, line.bytes(), ANNOUNCE.limit);
    }
}
