//! The server half of libpmix, opened at run time: the functions that are needed, with the layouts that
//! PMIx 3, 4 and 5 have in common.
#![allow(unsafe_code, reason = "the module that owns the calls into libpmix's server half")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use bootstrap::collective::Bytes;
use settings::deadlines::agent::PMIX_CALL;

use super::frames::FromHelper;
use super::infos::{Infos, kind};
use super::locals::Locals;
use super::members::Members;
use crate::pmix::{Info, NAME, Proc, RANK_WILDCARD, SUCCESS, terminated};
use crate::shared_library::calls;

/// Generations whose layouts are known.
const GENERATIONS: std::ops::RangeInclusive<u32> = 3..=5;

const NOT_SUPPORTED: c_int = -47;
/// Done within the call: no function is called later.
const SUCCEEDED: c_int = -157;

type Done = extern "C" fn(c_int, *mut c_void);
type Release = extern "C" fn(*mut c_void);
type ModexDone =
    unsafe extern "C" fn(c_int, *const c_char, usize, *mut c_void, Release, *mut c_void);
type Answered = unsafe extern "C" fn(c_int, *mut c_char, usize, *mut c_void);

/// What libpmix asks its owner. It copies as much as its own table has, so there are more places than
/// any generation has functions; an empty one is what it refuses to clients by itself.
#[repr(C)]
struct Module {
    client_connected:
        unsafe extern "C" fn(*const Proc, *mut c_void, Option<Done>, *mut c_void) -> c_int,
    client_finalized:
        unsafe extern "C" fn(*const Proc, *mut c_void, Option<Done>, *mut c_void) -> c_int,
    abort: unsafe extern "C" fn(
        *const Proc,
        *mut c_void,
        c_int,
        *const c_char,
        *mut Proc,
        usize,
        Option<Done>,
        *mut c_void,
    ) -> c_int,
    fence_nb: unsafe extern "C" fn(
        *const Proc,
        usize,
        *const Info,
        usize,
        *mut c_char,
        usize,
        Option<ModexDone>,
        *mut c_void,
    ) -> c_int,
    direct_modex: unsafe extern "C" fn(
        *const Proc,
        *const Info,
        usize,
        Option<ModexDone>,
        *mut c_void,
    ) -> c_int,
    others: [usize; 59],
}

// The signatures of the PMIx standard since version 2.
calls! {
    NAME;
    version = c"PMIx_Get_version": unsafe extern "C" fn() -> *const c_char;
    error_string = c"PMIx_Error_string": unsafe extern "C" fn(c_int) -> *const c_char;
    init = c"PMIx_server_init": unsafe extern "C" fn(*mut Module, *mut Info, usize) -> c_int;
    finalize = c"PMIx_server_finalize": unsafe extern "C" fn() -> c_int;
    regex = c"PMIx_generate_regex": unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int;
    ppn = c"PMIx_generate_ppn": unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int;
    register_nspace = c"PMIx_server_register_nspace": unsafe extern "C" fn(
        *const u8, c_int, *mut Info, usize, Done, *mut c_void) -> c_int;
    deregister_nspace = c"PMIx_server_deregister_nspace":
        unsafe extern "C" fn(*const u8, Done, *mut c_void);
    register_client = c"PMIx_server_register_client": unsafe extern "C" fn(
        *const Proc, libc::uid_t, libc::gid_t, *mut c_void, Done, *mut c_void) -> c_int;
    deregister_client = c"PMIx_server_deregister_client":
        unsafe extern "C" fn(*const Proc, Done, *mut c_void);
    setup_fork = c"PMIx_server_setup_fork":
        unsafe extern "C" fn(*const Proc, *mut *mut *mut c_char) -> c_int;
    dmodex_request = c"PMIx_server_dmodex_request":
        unsafe extern "C" fn(*const Proc, Answered, *mut c_void) -> c_int;
}

impl Calls {
    /// Opens the library, if it is one that is served; what it says of itself, too.
    fn served() -> Result<(Self, String), String> {
        let calls = Self::load()?;
        // SAFETY: no arguments.
        let version = constant(unsafe { (calls.version)() });
        match generation(&version).is_some_and(|number| GENERATIONS.contains(&number)) {
            true => Ok((calls, version)),
            false => Err(format!("{NAME} is {version:?}, and PMIx 3 to 5 are served")),
        }
    }
}

/// A function of libpmix that waits for an answer, and its argument as a number.
#[derive(Clone, Copy)]
struct Waiting(ModexDone, usize);

/// What the functions below need, which libpmix calls on a thread of its own.
struct Shared {
    job: String,
    size: u32,
    waiting: Mutex<(u32, HashMap<u32, Waiting>)>,
    send: Box<dyn Fn(&FromHelper) + Send + Sync>,
    calls: Calls,
    /// Ranks of this host; none before they are registered, and once libpmix is about to end.
    locals: Mutex<Option<Locals>>,
    /// That a registration has a number of ranks and nothing else.
    no_data: &'static [Info],
}

static SHARED: OnceLock<Shared> = OnceLock::new();

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn wait(&self, function: ModexDone, argument: *mut c_void) -> u32 {
        let mut waiting = locked(&self.waiting);
        waiting.0 = waiting.0.wrapping_add(1);
        let number = waiting.0;
        waiting.1.insert(number, Waiting(function, argument.expose_provenance()));
        number
    }

    /// A rank of this host comes or goes: libpmix is told for how many it has to wait. The lock is kept,
    /// because libpmix must not end meanwhile.
    fn change<T>(&self, how: impl FnOnce(&mut Locals) -> T) -> Option<T> {
        let mut locals = locked(&self.locals);
        let locals = locals.as_mut()?;
        let answer = how(locals);
        if let Some(count) = locals.news() {
            let count = c_int::try_from(count).unwrap_or(c_int::MAX);
            let space: [u8; 256] = terminated(&self.job);
            let (list, length) = (self.no_data.as_ptr().cast_mut(), self.no_data.len());
            let none = std::ptr::null_mut();
            // SAFETY: a text with a zero at its end, of which libpmix makes a copy; infos that it only
            // reads, and that live for ever. With a function to call it does not wait.
            unsafe {
                (self.calls.register_nspace)(space.as_ptr(), count, list, length, ignored, none)
            };
        }
        Some(answer)
    }

    /// Number of a rank of this job, or the wildcard.
    fn rank(&self, proc: &Proc) -> Option<u32> {
        let space = CStr::from_bytes_until_nul(&proc.nspace).ok()?;
        let known = proc.rank < self.size || proc.rank == RANK_WILDCARD;
        (space.to_bytes() == self.job.as_bytes() && known).then_some(proc.rank)
    }

    fn members(&self, procs: &[Proc]) -> Option<Members> {
        let ranks: Vec<u32> =
            procs.iter().map(|proc| self.rank(proc)).collect::<Option<Vec<_>>>()?;
        Some(match ranks.contains(&RANK_WILDCARD) {
            true => Members::all(self.size),
            false => Members::of(ranks),
        })
    }
}

/// What a rank did; done within the call.
fn told(proc: *const Proc, event: impl FnOnce(&Shared, u32) -> FromHelper) -> c_int {
    // SAFETY: libpmix passes the process that the call is about, alive during it, or null.
    let proc = unsafe { proc.as_ref() };
    let rank = SHARED.get().zip(proc).and_then(|(shared, proc)| shared.rank(proc));
    if let (Some(shared), Some(rank)) = (SHARED.get(), rank) {
        (shared.send)(&event(shared, rank));
    }
    SUCCEEDED
}

unsafe extern "C" fn connected(
    proc: *const Proc,
    _: *mut c_void,
    _: Option<Done>,
    _: *mut c_void,
) -> c_int {
    told(proc, |shared, rank| {
        shared.change(|locals| locals.connected(rank));
        FromHelper::Init { rank }
    })
}

unsafe extern "C" fn finalized(
    proc: *const Proc,
    _: *mut c_void,
    _: Option<Done>,
    _: *mut c_void,
) -> c_int {
    told(proc, |shared, rank| {
        let open = shared.change(|locals| {
            locals.finalized(rank);
            locals.is_open(rank)
        });
        FromHelper::Finalize { rank, open: open.unwrap_or(false) }
    })
}

/// Whichever processes are to end: a job ends as a whole.
unsafe extern "C" fn abort(
    proc: *const Proc,
    _: *mut c_void,
    status: c_int,
    _: *const c_char,
    _: *mut Proc,
    _: usize,
    _: Option<Done>,
    _: *mut c_void,
) -> c_int {
    told(proc, |_, rank| FromHelper::Abort { rank, status })
}

/// A copy of bytes; none where they are nowhere.
///
/// # Safety
/// `data` is null, or there are `length` bytes.
unsafe fn copied(data: *const c_char, length: usize) -> Bytes {
    if data.is_null() || length == 0 {
        return Bytes::default();
    }
    // SAFETY: promised by the caller.
    Bytes::from(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec())
}

/// All ranks of this host that belong to a fence, and for which it waits, are inside. What it has collected
/// stays with libpmix's allocator: no generation says that it is ours to free, and fences are few.
unsafe extern "C" fn fence_nb(
    procs: *const Proc,
    count: usize,
    _: *const Info,
    _: usize,
    data: *mut c_char,
    length: usize,
    done: Option<ModexDone>,
    argument: *mut c_void,
) -> c_int {
    let (Some(shared), Some(done)) = (SHARED.get(), done) else { return NOT_SUPPORTED };
    if procs.is_null() || count == 0 {
        return NOT_SUPPORTED;
    }
    // SAFETY: an array of that many processes, alive during the call.
    let procs = unsafe { std::slice::from_raw_parts(procs, count) };
    // Ranks of other jobs are none of ours.
    let Some(members) = shared.members(procs) else { return NOT_SUPPORTED };
    // SAFETY: so many bytes, alive during the call.
    let data = unsafe { copied(data, length) };
    let number = shared.wait(done, argument);
    let absent = locked(&shared.locals).as_ref().map(Locals::absent).unwrap_or_default();
    (shared.send)(&FromHelper::Fence { number, members, data, absent });
    SUCCESS
}

unsafe extern "C" fn direct_modex(
    proc: *const Proc,
    _: *const Info,
    _: usize,
    done: Option<ModexDone>,
    argument: *mut c_void,
) -> c_int {
    let (Some(shared), Some(done)) = (SHARED.get(), done) else { return NOT_SUPPORTED };
    // SAFETY: the process that is asked about, alive during the call, or null.
    let rank = unsafe { proc.as_ref() }.and_then(|proc| shared.rank(proc));
    let Some(rank) = rank.filter(|rank| *rank != RANK_WILDCARD) else { return NOT_SUPPORTED };
    let number = shared.wait(done, argument);
    (shared.send)(&FromHelper::Want { number, rank });
    SUCCESS
}

/// What a rank of this host has put, for another host.
unsafe extern "C" fn answered(
    status: c_int,
    data: *mut c_char,
    length: usize,
    argument: *mut c_void,
) {
    let Some(shared) = SHARED.get() else { return };
    // Without success there is nothing.
    let length = if status == SUCCESS { length } else { 0 };
    // SAFETY: so many bytes, alive during the call.
    let data = unsafe { copied(data, length) };
    let number = u32::try_from(argument.addr()).unwrap_or(u32::MAX);
    (shared.send)(&FromHelper::Answer { number, status, data });
}

/// libpmix has read the bytes of an answer.
extern "C" fn release(bytes: *mut c_void) {
    // SAFETY: what `Server::answer` gave away, once.
    drop(unsafe { Box::from_raw(bytes.cast::<Bytes>()) });
}

/// The end of one call, for who waits.
#[derive(Default)]
struct Call {
    status: Mutex<Option<c_int>>,
    bell: Condvar,
}

extern "C" fn called(status: c_int, call: *mut c_void) {
    // SAFETY: the call that `Server::complete` leaked.
    let call = unsafe { &*call.cast_const().cast::<Call>() };
    *locked(&call.status) = Some(status);
    call.bell.notify_all();
}

extern "C" fn ignored(_: c_int, _: *mut c_void) {}

/// What the libpmix of this host says of itself.
///
/// # Errors
/// There is none, or none that is served.
pub fn version() -> Result<String, String> {
    Calls::served().map(|(_, version)| version)
}

/// libpmix as the server of one job on this host. There is one in a process.
pub(super) struct Server {
    calls: Calls,
    space: [u8; 256],
}

impl Server {
    /// Opens the library and starts it; `send` takes what it says from then on.
    pub(super) fn start(
        job: &str,
        size: u32,
        mut infos: Infos,
        send: Box<dyn Fn(&FromHelper) + Send + Sync>,
    ) -> Result<Self, String> {
        let (calls, _) = Calls::served()?;
        let mut nothing = Infos::default();
        nothing.number("pmix.reg.nodata", kind::BOOL, 1);
        SHARED.get_or_init(|| Shared {
            job: job.to_owned(),
            size,
            waiting: Mutex::default(),
            send,
            calls,
            locals: Mutex::default(),
            no_data: nothing.list.leak(),
        });
        let server = Self { calls, space: terminated(job) };
        let module = Module {
            client_connected: connected,
            client_finalized: finalized,
            abort,
            fence_nb,
            direct_modex,
            others: [0; 59],
        };
        // libpmix may keep the address.
        let module = Box::leak(Box::new(module));
        // SAFETY: a table longer than that of any generation, and infos that live during the call.
        let code = unsafe { (calls.init)(module, infos.list.as_mut_ptr(), infos.list.len()) };
        server.status("start", code)?;
        Ok(server)
    }

    /// What libpmix said no with.
    fn status(&self, what: &str, code: c_int) -> Result<(), String> {
        if code == SUCCESS || code == SUCCEEDED {
            return Ok(());
        }
        // SAFETY: any number is allowed.
        let text = constant(unsafe { (self.calls.error_string)(code) });
        Err(format!("libpmix cannot {what}: {text} (status {code})"))
    }

    /// Waits for the end of a call that `begin` makes. What the call refers to is given away when it
    /// does not end in time.
    fn complete<T>(
        &self,
        what: &str,
        kept: T,
        begin: impl FnOnce(*mut c_void) -> c_int,
    ) -> Result<(), String> {
        // libpmix may come back to it whenever it wants.
        let call: &'static Call = Box::leak(Box::default());
        let code = begin((&raw const *call).cast_mut().cast());
        if code != SUCCESS {
            return self.status(what, code);
        }
        let status = locked(&call.status);
        let wait = call.bell.wait_timeout_while(status, PMIX_CALL.limit, |code| code.is_none());
        let (status, _) = wait.unwrap_or_else(PoisonError::into_inner);
        match *status {
            Some(code) => self.status(what, code),
            None => {
                std::mem::forget(kept);
                let seconds = PMIX_CALL.limit.as_secs();
                Err(format!("libpmix cannot {what}: no answer for {seconds} s"))
            }
        }
    }

    /// A short form of a list, as libpmix makes it: of names of hosts, or of ranks by host.
    fn short(
        &self,
        what: &str,
        call: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> c_int,
        list: &str,
    ) -> Result<String, String> {
        let list = CString::new(list).unwrap_or_default();
        let mut made: *mut c_char = std::ptr::null_mut();
        // SAFETY: a text with a zero at its end, and a place for the answer.
        self.status(what, unsafe { call(list.as_ptr(), &raw mut made) })?;
        if made.is_null() {
            return Err(format!("libpmix cannot {what}: nothing came"));
        }
        // SAFETY: not null, with a zero at its end. It is kept: a short form may go on behind the zero,
        // so it must be passed on where it is, but the forms that are asked for here do not.
        Ok(unsafe { CStr::from_ptr(made) }.to_string_lossy().into_owned())
    }

    /// The short form of names of hosts.
    pub(super) fn regex(&self, list: &str) -> Result<String, String> {
        self.short("name the hosts", self.calls.regex, list)
    }

    /// The short form of ranks by host.
    pub(super) fn ppn(&self, list: &str) -> Result<String, String> {
        self.short("map the ranks", self.calls.ppn, list)
    }

    /// Makes the job known, with the ranks of this host.
    pub(super) fn register_job(&self, ranks: &[u32], mut infos: Infos) -> Result<(), String> {
        if let Some(shared) = SHARED.get() {
            *locked(&shared.locals) = Some(Locals::new(ranks));
        }
        let locals = c_int::try_from(ranks.len()).unwrap_or(c_int::MAX);
        let (list, count) = (infos.list.as_mut_ptr(), infos.list.len());
        self.complete("register the job", infos, |call| {
            // SAFETY: a text with a zero at its end and infos, all of which `complete` keeps until the
            // call is over.
            unsafe {
                (self.calls.register_nspace)(self.space.as_ptr(), locals, list, count, called, call)
            }
        })
    }

    /// Makes a rank of this host known, and gives the variables by which it finds us.
    pub(super) fn register_rank(&self, rank: u32) -> Result<Vec<(String, String)>, String> {
        let proc = Box::new(self.proc(rank));
        let place = &raw const *proc;
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        self.complete("register a rank", proc, |call| {
            let none = std::ptr::null_mut();
            // SAFETY: a process that `complete` keeps until the call is over; no object of ours.
            unsafe { (self.calls.register_client)(place, uid, gid, none, called, call) }
        })?;
        self.variables(rank)
    }

    fn variables(&self, rank: u32) -> Result<Vec<(String, String)>, String> {
        let proc = self.proc(rank);
        let mut all: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: a process, and the place of a list that libpmix allocates.
        let code = unsafe { (self.calls.setup_fork)(&raw const proc, &raw mut all) };
        self.status("prepare a rank", code)?;
        let mut found = Vec::new();
        let mut at = all;
        // SAFETY: a list of texts that ends with a null, or null itself. It stays, as it is small.
        while let Some(text) = unsafe { at.as_ref() }.filter(|text| !text.is_null()) {
            // SAFETY: not null, with a zero at its end.
            let text = unsafe { CStr::from_ptr(*text) }.to_string_lossy();
            let pair = text.split_once('=').unwrap_or((&text, ""));
            found.push((pair.0.to_owned(), pair.1.to_owned()));
            // SAFETY: not behind the null.
            at = unsafe { at.add(1) };
        }
        Ok(found)
    }

    fn proc(&self, rank: u32) -> Proc {
        Proc { nspace: self.space, rank }
    }

    /// Answers a fence or a request by its number.
    pub(super) fn answer(number: u32, status: i32, data: Bytes) {
        let Some(shared) = SHARED.get() else { return };
        let Some(Waiting(function, argument)) = locked(&shared.waiting).1.remove(&number) else {
            return;
        };
        let length = data.len();
        let data = Box::into_raw(Box::new(data));
        // SAFETY: made in the line above.
        let bytes = unsafe { &*data }.as_ptr();
        let argument = std::ptr::with_exposed_provenance_mut(argument);
        // SAFETY: the function and its argument as libpmix gave them, called once; the bytes live until
        // `release`.
        unsafe { function(status, bytes.cast(), length, argument, release, data.cast()) };
    }

    /// Asks what a rank of this host has put; the answer comes by [`FromHelper::Answer`].
    pub(super) fn ask(&self, number: u32, rank: u32) -> Result<(), i32> {
        let proc = self.proc(rank);
        let argument = std::ptr::without_provenance_mut(number as usize);
        // SAFETY: a process, of which libpmix makes a copy; the argument is only a number.
        let code = unsafe { (self.calls.dmodex_request)(&raw const proc, answered, argument) };
        if code == SUCCESS { Ok(()) } else { Err(code) }
    }

    /// The process of a rank has ended.
    pub(super) fn forget_rank(&self, rank: u32) {
        let proc = self.proc(rank);
        // SAFETY: a process, of which libpmix makes a copy.
        unsafe { (self.calls.deregister_client)(&raw const proc, ignored, std::ptr::null_mut()) };
        SHARED.get().and_then(|shared| shared.change(|locals| locals.ended(rank)));
    }

    /// Orderly end.
    pub(super) fn finish(self) {
        // Whoever still calls libpmix on its own thread would wait for it, and it for that thread.
        SHARED.get().and_then(|shared| locked(&shared.locals).take());
        let ended = self.complete("forget the job", (), |call| {
            // SAFETY: a text with a zero at its end, of which libpmix makes a copy.
            unsafe { (self.calls.deregister_nspace)(self.space.as_ptr(), called, call) };
            SUCCESS
        });
        if ended.is_ok() {
            // SAFETY: no arguments; nothing is called after it.
            unsafe { (self.calls.finalize)() };
        }
    }
}

/// A constant text of the library; empty where it has none.
fn constant(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, with a zero at its end, and never changed.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The generation in what `PMIx_Get_version` says, as "OpenPMIx 4.2.2, repo rev: …".
fn generation(text: &str) -> Option<u32> {
    let number = text.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty())?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_is_read_from_what_the_library_says() {
        for (text, number) in [
            ("OpenPMIx 4.2.2, repo rev: v4.2.2 (PMIx Standard: 4.1)", Some(4)),
            ("PMIx 3.1.5", Some(3)),
            ("OpenPMIx 5.0.3rc1", Some(5)),
            ("", None),
        ] {
            assert_eq!(generation(text), number, "{text}");
        }
    }
}
