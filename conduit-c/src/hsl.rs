//! Handler-safe locks of the debug library: as those of the headers, with the rules of the
//! specification checked.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::checks;
use crate::fail::{Fail, NOT_READY, OK, ensure, must};
use crate::tools::{gexi_HSL_LockSlow, gexi_HSL_Wake};

/// `gex_HSL_t`.
#[repr(C)]
pub struct Lock {
    state: AtomicU32,
    /// [`DESTROYED`], else 0.
    life: AtomicU32,
    reserved: [u32; 2],
}

const DESTROYED: u32 = 0xdead_105c;

/// The program's lock, and whether this thread holds it.
fn look<'a>(lock: *const Lock) -> Result<(&'a Lock, bool), Fail> {
    ensure!(!lock.is_null(), "hsl is null");
    // SAFETY: a lock of the program, which lives as long as it is used.
    let found = unsafe { &*lock };
    let dead = found.life.load(Ordering::Relaxed) == DESTROYED;
    ensure!(!dead, "hsl {lock:p} was destroyed");
    let held = checks::with(|context| context.held.contains(&lock.addr()));
    Ok((found, held.unwrap_or(false)))
}

fn taken(lock: *const Lock) {
    checks::with(|context| context.held.push(lock.addr()));
}

fn try_take(lock: &Lock) -> bool {
    lock.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_HSL_CheckedInit(lock: *mut Lock) {
    must("gex_HSL_Init", || {
        ensure!(!lock.is_null(), "hsl is null");
        let fresh = Lock { state: AtomicU32::new(0), life: AtomicU32::new(0), reserved: [0; 2] };
        // SAFETY: room for a lock, by the program's promise.
        unsafe { lock.write(fresh) };
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_HSL_CheckedDestroy(lock: *mut Lock) {
    must("gex_HSL_Destroy", || {
        let (found, _) = look(lock)?;
        ensure!(found.state.load(Ordering::Relaxed) == 0, "hsl {lock:p} is held");
        found.life.store(DESTROYED, Ordering::Relaxed);
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_HSL_CheckedLock(lock: *mut Lock) {
    must("gex_HSL_Lock", || {
        let (found, held) = look(lock)?;
        ensure!(!held, "hsl {lock:p} is held by this thread: it would wait for itself");
        if !try_take(found) {
            // SAFETY: the word of a lock of the program.
            unsafe { gexi_HSL_LockSlow(found.state.as_ptr()) };
        }
        taken(lock);
        Ok(())
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_HSL_CheckedTrylock(lock: *mut Lock) -> c_int {
    must("gex_HSL_Trylock", || {
        let (found, held) = look(lock)?;
        // Asked for once more it is not ready, whoever holds it.
        if held || !try_take(found) {
            return Ok(NOT_READY);
        }
        taken(lock);
        Ok(OK)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_HSL_CheckedUnlock(lock: *mut Lock) {
    must("gex_HSL_Unlock", || {
        let (found, held) = look(lock)?;
        ensure!(held, "hsl {lock:p} is not held by this thread");
        let last = checks::with(|context| context.held.pop()).flatten();
        let last = last.unwrap_or_default();
        ensure!(
            last == lock.addr(),
            "hsl {lock:p} is not the one that was locked last, {last:#x}: the last is unlocked first"
        );
        if found.state.swap(0, Ordering::Release) == 2 {
            // SAFETY: the word of a lock of the program.
            unsafe { gexi_HSL_Wake(found.state.as_ptr()) };
        }
        Ok(())
    });
}
