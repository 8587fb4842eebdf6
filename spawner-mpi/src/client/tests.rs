//! The choice between all providers.

use bootstrap::conformance::choice;
use bootstrap::{Choice, connect_from};

use settings::Env;

use super::PROVIDERS;
use super::provider::{Launcher, mpi_launcher};

fn env(pairs: &[(&str, &str)]) -> Env {
    pairs.iter().copied().collect()
}

fn chosen(pairs: &[(&str, &str)]) -> Choice {
    choice::chosen(pairs, &PROVIDERS)
}

fn decision(pairs: &[(&str, &str)]) -> String {
    choice::decision(pairs, &PROVIDERS)
}

#[test]
fn the_agent_comes_before_process_managers_and_pmi_before_mpi() {
    let agent = [("GASNETRUN_AGENT_FD", "5"), ("GASNETRUN_RANK", "1"), ("GASNETRUN_SIZE", "3")];
    let hydra = [("PMI_FD", "6"), ("PMI_RANK", "1"), ("PMI_SIZE", "4")];
    let pmix = [("PMIX_RANK", "2"), ("PMIX_SERVER_URI41", "x;tcp4://127.0.0.1:1")];
    let mpi = [("OMPI_COMM_WORLD_SIZE", "2")];
    let all = [&agent[..], &hydra, &pmix, &mpi];
    let uses = ["agent on", "PMI-1 on", "PMIx through", "MPI through", "solo: "];
    for (from, begins) in uses.iter().enumerate() {
        let decision = decision(&all[from..].concat());
        assert!(decision.starts_with(&format!("use {begins}")), "{decision}");
    }
    // A spawner that is named: its own provider or none.
    let named = |spawner| [&hydra[..], &[("GASNET_IBV_SPAWNER", spawner)]].concat();
    assert!(decision(&named("PMI")).starts_with("use PMI-1 on"));
    assert!(decision(&named("mpi")).starts_with("use MPI through"));
    let error = chosen(&named("ssh")).provider.unwrap_err().to_string();
    // Process 0 alone says how many and by which variable.
    assert!(error.contains("as one of 4 processes; process 0 says why"), "{error}");
    assert!(chosen(&[&pmix[..], &[("GASNET_IBV_SPAWNER", "ssh")]].concat()).provider.is_err());
}

#[test]
fn foreign_launchers_of_several_are_refused_by_name() {
    choice::several_are_refused_by_name(&PROVIDERS);
}

#[test]
fn foreign_launchers_of_one_are_no_obstacle() {
    choice::one_is_no_obstacle(&PROVIDERS);
}

#[test]
fn mpi_launchers_are_used_when_asked_for_or_when_there_is_nothing_else() {
    let mpi = |variable, size| Launcher { variable, size };
    let server = ("PMIX_SERVER_URI2", "x");
    for (pairs, provider) in [
        (&[("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_RANK", "0")][..], mpi("OMPI_COMM_WORLD_SIZE", 2)),
        (
            &[
                ("OMPI_COMM_WORLD_SIZE", "2"),
                ("PMIX_RANK", "0"),
                server,
                ("GASNET_IBV_SPAWNER", "mpi"),
            ],
            mpi("OMPI_COMM_WORLD_SIZE", 2),
        ),
        (
            &[("PMI_SIZE", "3"), ("PMI_FD", "5"), ("PMI_RANK", "0"), ("GASNET_IBV_SPAWNER", "mpi")],
            mpi("PMI_SIZE", 3),
        ),
    ] {
        assert_eq!(mpi_launcher(&env(pairs), &mut Vec::new()).unwrap(), Some(provider));
        let use_of = format!("use MPI through its plugin: {} ranks", provider.size);
        assert_eq!(decision(pairs), use_of);
    }
}

#[test]
fn a_closed_descriptor_is_no_job_of_one_rank() {
    let closed = [("PMI_FD", "987"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")];
    let error = connect_from(&env(&closed), &PROVIDERS).err().unwrap().to_string();
    assert!(error.contains("PMI_FD=987"), "{error}");
}
