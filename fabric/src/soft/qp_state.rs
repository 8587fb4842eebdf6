//! The states of a queue pair and what each allows. The table in `docs/design/fabric.md` is this
//! one; a test compares them.

use crate::QpState;

/// Whether a queue pair may be brought to a state, or the rule that forbids it.
pub(super) const fn check(from: QpState, to: QpState) -> Result<(), &'static str> {
    match (from, to) {
        (_, QpState::Reset | QpState::Error) => Ok(()),
        // INIT again changes its attributes, as verbs allow.
        (QpState::Reset | QpState::Init, QpState::Init) => Ok(()),
        (QpState::Init, QpState::Rtr) | (QpState::Rtr, QpState::Rts) => Ok(()),
        (_, QpState::Init) => Err("INIT comes after RESET"),
        (_, QpState::Rtr) => Err("RTR comes after INIT"),
        (_, QpState::Rts) => Err("RTS comes after RTR"),
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

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [QpState; 5] =
        [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Error];

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
            let states =
                [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Error, QpState::Reset];
            for (cell, to) in row[1..].iter().zip(states) {
                let now = check(state, to).map_or("no".to_owned(), |()| format!("{to:?}"));
                assert_eq!(*cell, now, "{state:?} {to:?}");
            }
            assert_eq!(row[6], yes(may_send(state)), "{state:?} post_send");
            assert_eq!(row[7], yes(may_receive(state)), "{state:?} post_receive");
            assert_eq!(row[8], yes(answers(state)), "{state:?} answers the peer");
        }
    }
}
