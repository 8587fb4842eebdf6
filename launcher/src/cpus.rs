//! Cpus per rank (`-c`).

use supervisor::plan::cpu_sets;

/// Why ranks cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum CpusError {
    /// Not enough cpus.
    #[error(
        "-c {per_rank}: {ranks} ranks need {needed} cpus, but the launcher may use {allowed} here ({list}). \
         Try {advice}-c 0 to leave binding alone"
    )]
    TooFew {
        /// Value of -c.
        per_rank: u32,
        /// Ranks.
        ranks: u32,
        /// Their product.
        needed: u64,
        /// Cpus that may be used.
        allowed: usize,
        /// The same as ranges.
        list: String,
        /// Another value that fits, if there is one.
        advice: String,
    },
    /// The set of allowed cpus cannot be read: value of -c, why not.
    #[error("-c {0}: cannot read which cpus the launcher may use: {1}; try -c 0")]
    Unknown(u32, std::io::Error),
}

/// The cpu set of each rank; empty when binding is left alone.
///
/// # Errors
/// Too few cpus for disjoint sets, or they cannot be read.
pub fn bind(per_rank: u32, ranks: u32) -> Result<Vec<Vec<usize>>, CpusError> {
    if per_rank == 0 {
        return Ok(Vec::new());
    }
    let allowed =
        supervisor::allowed_cpus().map_err(|error| CpusError::Unknown(per_rank, error))?;
    share(&allowed, per_rank, ranks)
}

fn share(allowed: &[usize], per_rank: u32, ranks: u32) -> Result<Vec<Vec<usize>>, CpusError> {
    cpu_sets(allowed, per_rank, ranks).ok_or_else(|| {
        let most = allowed.len() as u64 / u64::from(ranks);
        CpusError::TooFew {
            per_rank,
            ranks,
            needed: u64::from(per_rank) * u64::from(ranks),
            allowed: allowed.len(),
            list: ranges(allowed),
            advice: if most > 0 { format!("-c {most}, or ") } else { String::new() },
        }
    })
}

/// `[0, 1, 2, 5]` as `0-2,5`.
#[must_use]
pub fn ranges(cpus: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let text = |(a, b): (usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_disjoint_and_in_order() {
        assert_eq!(share(&[1, 2, 5, 7, 9], 2, 2).expect("fits"), [[1, 2], [5, 7]]);
        assert_eq!(bind(0, 1000).expect("no binding"), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn too_few_cpus() {
        let text = share(&[0, 1, 2, 3, 8], 3, 2).expect_err("6 > 5").to_string();
        assert!(
            text.contains("need 6 cpus")
                && text.contains("5 here (0-3,8)")
                && text.contains("Try -c 2, or -c 0"),
            "{text}"
        );
        let text = share(&[0], u32::MAX, u32::MAX).expect_err("much").to_string();
        assert!(text.contains("Try -c 0"), "{text}");
    }
}
