//! What programs write into the trace and the statistics of their rank.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::sync::{Mutex, PoisonError};

use gasnet_ibv::inner::{
    dump_stats, mask_text, note, set_local, set_mask, stats_callback, stats_note, takes_note,
    traces_lines, traces_local,
};

const STATS: c_int = 1;
const FORCE: c_int = 2;

/// Where in its source the program is.
#[derive(Clone, Copy)]
struct Line {
    file: *const c_char,
    line: c_uint,
    frozen: bool,
}

thread_local! {
    static LINE: Cell<Line> =
        const { Cell::new(Line { file: std::ptr::null(), line: 0, frozen: false }) };
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_trace_takes(what: c_int) -> c_int {
    c_int::from(takes_note(what & STATS != 0, what & FORCE != 0))
}

/// A text of the program; empty for none.
fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null (above), and a string by the program's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_trace_text(what: c_int, text: *const c_char) {
    let text = text_of(text);
    if what & STATS != 0 {
        return stats_note(&text, what & FORCE != 0);
    }
    let Line { file, line, .. } = LINE.get();
    if file.is_null() || !traces_lines() {
        note(&text, what & FORCE != 0);
    } else {
        note(&format!("[{}:{line}] {text}", text_of(file)), what & FORCE != 0);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_trace_getmask(what: c_int) -> *const c_char {
    /// Every text that was ever returned: programs keep the pointers.
    static TEXTS: Mutex<Vec<CString>> = Mutex::new(Vec::new());
    let text = CString::new(mask_text(what & STATS != 0)).unwrap_or_default();
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = texts.iter().find(|known| **known == text) {
        return known.as_ptr();
    }
    let at = text.as_ptr();
    texts.push(text);
    at
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_trace_setmask(what: c_int, mask: *const c_char) {
    set_mask(what & STATS != 0, &text_of(mask));
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_trace_getlocal() -> c_int {
    c_int::from(traces_local())
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_trace_setlocal(on: c_int) {
    set_local(on != 0);
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_trace_setline(file: *const c_char, line: c_uint) {
    let old = LINE.get();
    if !old.frozen {
        LINE.set(Line { file, line, ..old });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_trace_getline(file_p: *mut *const c_char, line_p: *mut c_uint) {
    let Line { file, line, .. } = LINE.get();
    if !file_p.is_null() {
        // SAFETY: not null (above), and the program's to write.
        unsafe { file_p.write(file) };
    }
    if !line_p.is_null() {
        // SAFETY: as above.
        unsafe { line_p.write(line) };
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_trace_freezeline(freeze: c_int) {
    LINE.set(Line { frozen: freeze > 0, ..LINE.get() });
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_stats_init(callback: Option<extern "C" fn()>) {
    if let Some(callback) = callback {
        stats_callback(callback);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_stats_dump(reset: c_int) {
    dump_stats(reset != 0);
}
