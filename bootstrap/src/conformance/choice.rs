//! What a choice between providers must do with launchers that none of them knows.

use crate::provider::{Choice, Provider, choose};

/// The choice in an environment of these variables alone.
#[must_use]
pub fn chosen(pairs: &[(&str, &str)], providers: &[Provider]) -> Choice {
    choose(&pairs.iter().copied().collect(), providers)
}

/// The decision, as the trace has it.
#[must_use]
pub fn decision(pairs: &[(&str, &str)], providers: &[Provider]) -> String {
    chosen(pairs, providers).trace.pop().unwrap_or_default()
}

/// Checks that a launcher of several ranks is refused, with the variable that gave it away.
///
/// # Panics
/// It is not.
pub fn several_are_refused_by_name(providers: &[Provider]) {
    for (pairs, variable) in [
        (&[("PMI_SIZE", "4"), ("PMI_RANK", "0")][..], "PMI_SIZE=\"4\""),
        (
            &[("OMPI_COMM_WORLD_SIZE", "2"), ("GASNET_IBV_SPAWNER", "pmi")],
            "OMPI_COMM_WORLD_SIZE=\"2\"",
        ),
        (&[("PMIX_RANK", "0")], "PMIX_RANK=\"0\""),
        (&[("PMIX_RANK", "0"), ("SLURM_NTASKS", "16")], "SLURM_NTASKS=\"16\""),
        (
            &[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_NTASKS", "16")],
            "SLURM_STEP_NUM_TASKS",
        ),
    ] {
        let Choice { provider, trace } = chosen(pairs, providers);
        let error = provider.map_or_else(|error| error.to_string(), |_| "none".to_owned());
        assert!(error.contains(variable) && error.contains("gasnetrun_ibv -n"), "{error}");
        assert!(!variable.starts_with("SLURM") || error.contains("srun --mpi=pmi2"), "{error}");
        let last = trace.last().map_or("", String::as_str);
        assert!(last.starts_with("refuse: ") && last.contains(variable), "{last}");
    }
}

/// Checks that a launcher of one rank is no obstacle to a job of one rank.
///
/// # Panics
/// It is.
pub fn one_is_no_obstacle(providers: &[Provider]) {
    for pairs in [
        &[("PMI_SIZE", "1")][..],
        &[("OMPI_COMM_WORLD_SIZE", "1")],
        &[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_NTASKS", "1")],
        // A batch script: it is task 0, but no step.
        &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "16")],
        &[("SLURM_NTASKS", "16")],
        &[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")],
        &[("PMIX_RANK", "0"), ("SLURM_NTASKS", "1"), ("SLURM_PROCID", "0")],
    ] {
        assert!(decision(pairs, providers).starts_with("use solo: "), "{pairs:?}");
    }
    assert!(chosen(&[("PMI_SIZE", "four")], providers).provider.is_err());
}
