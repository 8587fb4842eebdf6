//! The states of a queue pair and what each allows. The table in `docs/design/fabric.md` is this
//! one; a test compares them.

use crate::QpState;

/// A change that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Init,
    Rtr,
    Rts,
    Error,
    Reset,
}

/// The state after a step, or the rule that forbids it.
pub(super) const fn after(from: QpState, step: Step) -> Result<QpState, &'static str> {
    match (from, step) {
        (_, Step::Reset) => Ok(QpState::Reset),
        (_, Step::Error) => Ok(QpState::Error),
        // INIT again changes its attributes, as verbs allow.
        (QpState::Reset | QpState::Init, Step::Init) => Ok(QpState::Init),
        (QpState::Init, Step::Rtr) => Ok(QpState::Rtr),
        (QpState::Rtr, Step::Rts) => Ok(QpState::Rts),
        (_, Step::Init) => Err("INIT comes after RESET"),
        (_, Step::Rtr) => Err("RTR comes after INIT"),
        (_, Step::Rts) => Err("RTS comes after RTR"),
    }
}

/// Whether sends may be posted (in ERROR they end as flushed).
pub(super) const fn may_send(state: QpState) -> bool {
    matches!(state, QpState::Rts | QpState::Error)
}

/// Whether receives may be posted (in ERROR they end as flushed).
pub(super) const fn may_receive(state: QpState) -> bool {
    !matches!(state, QpState::Reset)
}

/// Whether requests of the peer are taken.
pub(super) const fn answers(state: QpState) -> bool {
    matches!(state, QpState::Rtr | QpState::Rts)
}

/// As a number, and back.
pub(super) const ALL: [QpState; 5] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Error];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_design_page_is_true() {
        let page = include_str!("../../../docs/design/fabric.md");
        let rows: Vec<Vec<&str>> = page
            .lines()
            .skip_while(|line| !line.starts_with("| state |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows.len(), ALL.len(), "the page has a row for each state");
        let yes = |flag: bool| if flag { "yes" } else { "no" };
        for (row, state) in rows.iter().zip(ALL) {
            assert_eq!(row[0], format!("{state:?}"));
            let steps = [Step::Init, Step::Rtr, Step::Rts, Step::Error, Step::Reset];
            for (cell, step) in row[1..].iter().zip(steps) {
                let now = after(state, step).map_or("no".to_owned(), |to| format!("{to:?}"));
                assert_eq!(*cell, now, "{state:?} {step:?}");
            }
            assert_eq!(row[6], yes(may_send(state)), "{state:?} post_send");
            assert_eq!(row[7], yes(may_receive(state)), "{state:?} post_receive");
            assert_eq!(row[8], yes(answers(state)), "{state:?} answers the peer");
        }
    }
}
