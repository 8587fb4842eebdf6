//! The plugin that speaks to MPI (`spawner-mpi/plugin`): its interface, version 1.
#![allow(unsafe_code, reason = "the module that owns the calls into the plugin")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::{Duration, Instant};

use bootstrap::service::Error;
use bootstrap::sys;
use bootstrap::wait::Watch;
use settings::deadlines::bootstrap::{MPI_EAGER, MPI_WATCH};
use spawner_pmi::shared_library::Library;

/// Version of the interface; the plugin has the same number.
const VERSION: u32 = 1;

/// What the plugin found when it initialised MPI.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Job {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Thread level that MPI grants, 0 to 3.
    pub(crate) level: u32,
    before: u32,
}

/// As in the plugin, which documents the functions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Table {
    version: u32,
    length: u32,
    library: extern "C" fn(*mut c_char, usize),
    init: extern "C" fn(c_int, *mut Job) -> c_int,
    begin: unsafe extern "C" fn(
        *const c_void,
        c_int,
        *mut c_void,
        *const c_int,
        *const c_int,
    ) -> c_int,
    test: extern "C" fn(*mut c_int) -> c_int,
    finalize: extern "C" fn(c_int) -> c_int,
    abort: extern "C" fn(c_int),
    explain: extern "C" fn(c_int, *mut c_char, usize),
}

/// A plugin that was opened and has the right version. There is one in a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plugin(Table);

/// Whether a library of this name is in the process already.
pub(crate) fn is_loaded(name: &CStr) -> bool {
    // SAFETY: a text with a zero at its end; nothing is loaded.
    let found = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
    !found.is_null()
}

impl Plugin {
    /// Opens the plugin in a file.
    pub(crate) fn open(path: &str) -> Result<Self, String> {
        let library = Library::open(path)?;
        // SAFETY: the symbol's name stands for a function of this type in every version of the
        // interface.
        let entry: extern "C" fn() -> *const Table =
            unsafe { library.function(c"gasnetrun_mpi_plugin") }?;
        let table = entry();
        if table.is_null() {
            return Err("it has no table of functions".to_owned());
        }
        // SAFETY: not null, and every version begins with two words.
        let [version, length] = unsafe { table.cast::<[u32; 2]>().read() };
        if version != VERSION || (length as usize) < size_of::<Table>() {
            return Err(format!(
                "it has interface version {version} of {length} bytes, this build needs {VERSION} of {}",
                size_of::<Table>()
            ));
        }
        // SAFETY: at least as long as our table, which it begins with (both checked above).
        Ok(Self(unsafe { table.read() }))
    }

    fn words(give: impl FnOnce(*mut c_char, usize)) -> String {
        let mut text = [0u8; 512];
        give(text.as_mut_ptr().cast(), text.len());
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        String::from_utf8_lossy(&text[..end]).trim().replace('\n', " ")
    }

    /// What the MPI library says of itself.
    pub(crate) fn library(&self) -> String {
        Self::words(|text, length| (self.0.library)(text, length))
    }

    fn outcome(&self, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let words = Self::words(|text, length| (self.0.explain)(code, text, length));
        Err(format!("{words} (code {code})"))
    }

    /// Initialises MPI unless the program has.
    pub(crate) fn init(&self, level: i32) -> Result<Job, String> {
        let mut job = Job::default();
        self.outcome((self.0.init)(level, &raw mut job))?;
        Ok(job)
    }

    /// Collective: what each rank gives, `lengths[r]` bytes of rank `r`, one after the other.
    /// `watch` is asked now and then.
    pub(crate) fn gather(
        &self,
        mine: Vec<u8>,
        lengths: &[u32],
        failed: impl Fn(String) -> Error,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<u8>, Error> {
        let long = || failed("more than 2 GiB in one exchange".to_owned());
        let mut counts = Vec::with_capacity(lengths.len());
        let mut displacements = Vec::with_capacity(lengths.len());
        let mut end = 0i32;
        for length in lengths {
            let count = c_int::try_from(*length).map_err(|_| long())?;
            counts.push(count);
            displacements.push(end);
            end = end.checked_add(count).ok_or_else(long)?;
        }
        let count = c_int::try_from(mine.len()).map_err(|_| long())?;
        let mut all = vec![0u8; usize::try_from(end).unwrap_or(0)];
        // SAFETY: the counts and displacements stay inside `all` (summed above), and everything
        // lives until the answer; where this call ends before it, the memory is left to MPI for
        // ever (below).
        let code = unsafe {
            (self.0.begin)(
                mine.as_ptr().cast(),
                count,
                all.as_mut_ptr().cast(),
                counts.as_ptr(),
                displacements.as_ptr(),
            )
        };
        self.outcome(code).map_err(&failed)?;
        let (begin, mut looked) = (Instant::now(), Duration::ZERO);
        loop {
            let mut done = 0;
            let code = (self.0.test)(&raw mut done);
            let waited = begin.elapsed();
            let outcome = self.outcome(code).map_err(&failed).and_then(|()| {
                if waited < looked + MPI_WATCH.limit {
                    return Ok(());
                }
                looked = waited;
                watch()
            });
            if let Err(error) = outcome {
                // MPI may still read and write there; the job is ending.
                std::mem::forget((mine, all, counts, displacements));
                return Err(error);
            }
            if done != 0 {
                return Ok(all);
            }
            if waited > MPI_EAGER.limit {
                sys::nap(1);
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Frees what was made; finalises MPI if `end`, unless the program initialised it.
    pub(crate) fn finalize(&self, end: bool) {
        (self.0.finalize)(c_int::from(end));
    }

    /// Ends the job.
    pub(crate) fn abort(&self, code: i32) {
        (self.0.abort)(code);
    }
}
