//! What ranks are bound to (`-c`, `--bind-to`, `--place`), on this host and as a plan for others.

use supervisor::binding::{BindingError, Topology, picture};
use supervisor::plan::{Binding, Part};

use crate::flags::{BindTo, Flags};

/// Why ranks cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum CpusError {
    /// This host has not what is asked for: the options, why not, what to try.
    #[error("{0}: {1}. Try {2}")]
    Here(String, BindingError, String),
    /// Options that contradict each other: both, what to do.
    #[error("{0} and {1} contradict each other; {2}")]
    Contradiction(String, String, &'static str),
}

/// What the options ask of every host's cpus.
///
/// # Errors
/// Options that contradict each other.
pub fn wanted(flags: &Flags) -> Result<Binding, CpusError> {
    let contradiction = |a: String, b: String, advice| Err(CpusError::Contradiction(a, b, advice));
    let cpus = flags.cpus.map(|cpus| (cpus, format!("-c {cpus}")));
    let spread = flags.place;
    let (part, each) = match (flags.bind_to, cpus, spread) {
        (None, Some((0, c)), Some(_)) => {
            return contradiction(
                c,
                "--place".to_owned(),
                "-c 0 leaves binding alone; leave one out",
            );
        }
        (None, Some((each, _)), _) => (Part::Cpu, each),
        (None, None, Some(spread)) => (spread.over, 1),
        (None, None, None) => (Part::Cpu, 0),
        (Some(BindTo::None), Some((1.., c)), _) => {
            let advice = "-c K binds each rank to K cpus; leave one out";
            return contradiction("--bind-to none".to_owned(), c, advice);
        }
        (Some(BindTo::None), _, Some(_)) => {
            let advice = "--place says where ranks are bound; leave one out";
            return contradiction("--bind-to none".to_owned(), "--place".to_owned(), advice);
        }
        (Some(BindTo::None), _, None) => (Part::Cpu, 0),
        (Some(to), Some((0, c)), _) => {
            return contradiction(bind_to(to), c, "-c 0 leaves binding alone; leave one out");
        }
        (Some(BindTo::Core), Some((each, _)), _) => (Part::Core, each),
        (Some(BindTo::Core), None, _) => (Part::Core, 1),
        (Some(to), Some((_, c)), _) => {
            let advice = "-c counts cpus, or cores with --bind-to core; leave one out";
            return contradiction(bind_to(to), c, advice);
        }
        (Some(BindTo::Socket), None, _) => (Part::Socket, 1),
        (Some(BindTo::Numa), None, _) => (Part::Numa, 1),
    };
    Ok(Binding {
        part,
        each,
        spread,
        no_oversubscribe: flags.no_oversubscribe,
        report: flags.report_bindings,
    })
}

fn bind_to(to: BindTo) -> String {
    let name = match to {
        BindTo::Core => "core",
        BindTo::Socket => "socket",
        BindTo::Numa => "numa",
        BindTo::None => "none",
    };
    format!("--bind-to {name}")
}

/// The options as a user would write them.
fn options(flags: &Flags) -> String {
    let cpus = flags.cpus.map(|cpus| format!("-c {cpus}"));
    let place = flags.place.map(|spread| {
        let part = if spread.over == Part::Numa { "numa" } else { spread.over.name() };
        spread.each.map_or(format!("--place {part}"), |each| format!("--place {each}:{part}"))
    });
    let strict = flags.no_oversubscribe.then(|| "--no-oversubscribe".to_owned());
    let all = [cpus, flags.bind_to.map(bind_to), place, strict];
    all.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Ranks of this host, bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// The cpu set of each rank; empty when binding is left alone.
    pub sets: Vec<Vec<usize>>,
    /// Which rank is bound to which cores, one line for each socket; empty likewise.
    pub picture: Vec<String>,
}

/// Binds the ranks of a job on this host alone.
///
/// # Errors
/// This host has not what is asked for.
pub fn bind(binding: &Binding, flags: &Flags, ranks: u32) -> Result<Bound, CpusError> {
    if binding.is_idle() {
        return Ok(Bound::default());
    }
    let refused = |error: BindingError| {
        let advice = advice(&error, flags, ranks);
        CpusError::Here(options(flags), error, advice)
    };
    let host = Topology::of_this_host().map_err(refused)?;
    let sets = binding.sets(&host, ranks).map_err(refused)?;
    let ranks: Vec<_> = (0..).zip(sets.iter().map(Vec::as_slice)).collect();
    let picture = picture(&host, &ranks);
    Ok(Bound { sets, picture })
}

fn advice(error: &BindingError, flags: &Flags, ranks: u32) -> String {
    let none = if flags.bind_to.is_some() { "--bind-to none" } else { "-c 0" };
    match error {
        BindingError::TooFew { have, .. } => match have / u64::from(ranks.max(1)) {
            0 => format!("-n {have} or less, or {none} to leave binding alone"),
            most => format!("-c {most}, or {none} to leave binding alone"),
        },
        BindingError::Full { each, have, .. } => {
            format!("-n {} or less, or another --place", u64::from(*each) * have)
        }
        BindingError::Crowded { rank, .. } => format!("-n {rank} or less, or another --place"),
        BindingError::Oversubscribed { have, .. } => {
            format!("-n {have} or less, or leave --no-oversubscribe out")
        }
        BindingError::Unknown(_) => format!("{none} to leave binding alone"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use supervisor::plan::Spread;

    use super::*;

    fn of(words: &[&str]) -> (Flags, Result<Binding, CpusError>) {
        let flags = Flags::try_parse_from([&["x"], words].concat()).expect("known options");
        let wanted = wanted(&flags);
        (flags, wanted)
    }

    #[test]
    fn options_become_a_binding() {
        let spread = |over, each| Some(Spread { over, each });
        for (words, part, each, place) in [
            (&[][..], Part::Cpu, 0, None),
            (&["-c=2"], Part::Cpu, 2, None),
            (&["--bind-to=none"], Part::Cpu, 0, None),
            (&["--bind-to=none", "-c=0"], Part::Cpu, 0, None),
            (&["--bind-to=core"], Part::Core, 1, None),
            (&["--bind-to=core", "-c=3"], Part::Core, 3, None),
            (&["--bind-to=numa"], Part::Numa, 1, None),
            (&["--place=socket"], Part::Socket, 1, spread(Part::Socket, None)),
            (&["--place=2:numa", "--bind-to=core"], Part::Core, 1, spread(Part::Numa, Some(2))),
            (&["--place=socket", "-c=2"], Part::Cpu, 2, spread(Part::Socket, None)),
        ] {
            let seen = of(words).1.expect("no contradiction");
            assert_eq!((seen.part, seen.each, seen.spread), (part, each, place), "{words:?}");
        }
        for words in [
            &["--bind-to=none", "-c=1"][..],
            &["--bind-to=core", "-c=0"],
            &["--bind-to=socket", "-c=2"],
            &["--bind-to=none", "--place=socket"],
            &["-c=0", "--place=socket"],
        ] {
            assert!(matches!(of(words).1, Err(CpusError::Contradiction(..))), "{words:?}");
        }
    }

    #[test]
    fn what_this_host_has_not_is_refused_with_what_it_has() {
        for (words, parts) in [
            (&["-c=1000"][..], &["-c 1000: 2 ranks need 2000 cpus", "-c 0"][..]),
            (&["--bind-to=core", "-c=1000"], &["-c 1000 --bind-to core: 2 ranks need 2000 cores"]),
        ] {
            let (flags, wanted) = of(words);
            let error =
                bind(&wanted.expect("wanted"), &flags, 2).expect_err("too much").to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        assert_eq!(bind(&Binding::default(), &of(&[]).0, 1000).expect("idle"), Bound::default());
    }
}
