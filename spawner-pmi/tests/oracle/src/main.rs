//! What the crate `pmix-sys` reads from the headers of libpmix: a name and a number on each line.

use std::io::Write as _;
use std::mem::{offset_of, size_of};

use pmix_sys::*;

fn main() -> std::io::Result<()> {
    let sizes = [
        ("sizeof(pmix_proc_t)", size_of::<pmix_proc_t>()),
        ("offsetof(pmix_proc_t, rank)", offset_of!(pmix_proc_t, rank)),
        ("sizeof(pmix_value_t)", size_of::<pmix_value_t>()),
        ("offsetof(pmix_value_t, data)", offset_of!(pmix_value_t, data)),
        ("sizeof(pmix_info_t)", size_of::<pmix_info_t>()),
        ("offsetof(pmix_info_t, flags)", offset_of!(pmix_info_t, flags)),
        ("offsetof(pmix_info_t, value)", offset_of!(pmix_info_t, value)),
        ("sizeof(pmix_scope_t)", size_of::<pmix_scope_t>()),
        ("sizeof(pmix_data_type_t)", size_of::<pmix_data_type_t>()),
    ];
    let constants = [
        ("PMIX_RANK_WILDCARD", i64::from(PMIX_RANK_WILDCARD)),
        ("PMIX_SUCCESS", i64::from(PMIX_SUCCESS)),
        ("PMIX_BOOL", i64::from(PMIX_BOOL)),
        ("PMIX_STRING", i64::from(PMIX_STRING)),
        ("PMIX_INT", i64::from(PMIX_INT)),
        ("PMIX_UINT32", i64::from(PMIX_UINT32)),
        ("PMIX_GLOBAL", i64::from(PMIX_GLOBAL)),
        ("PMIX_ERR_LOST_CONNECTION_TO_SERVER", i64::from(PMIX_ERR_LOST_CONNECTION_TO_SERVER)),
    ];
    let mut out = std::io::stdout().lock();
    for (name, number) in sizes {
        writeln!(out, "{name} {number}")?;
    }
    for (name, number) in constants {
        writeln!(out, "{name} {number}")?;
    }
    Ok(())
}
