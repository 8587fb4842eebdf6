//! The state table of queue pairs.

use super::Side;
use super::devices::ping;
use super::rig::{Done, End, Plan, Rig, ensure, one, silent, skip};
use crate::{
    Access, Data, Error, Operation, PostError, QpState, QpType, RcPeer, RecvWr, Retry, Status,
};

const STATES: [QpState; 5] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Error];

/// The table: whether a queue pair may go from one state to another; `None`: some devices take it,
/// others do not.
fn legal(from: QpState, to: QpState) -> Option<bool> {
    use QpState::{Error, Init, Reset, Rtr, Rts};
    match (from, to) {
        // Linux refuses the first; the second changes attributes where it is known.
        (Reset, Error) | (Init, Init) => None,
        _ => {
            let order = matches!((from, to), (Reset, Init) | (Init, Rtr) | (Rtr, Rts));
            Some(order || matches!(to, Reset | Error))
        }
    }
}

fn step(rig: &Rig, end: &End, to: QpState, peer: Option<&RcPeer>) -> Result<(), Error> {
    let retry = Retry::default();
    match to {
        QpState::Reset => end.qp.to_reset(),
        QpState::Init => end.qp.to_init(rig.port.number, 0, 0x1234, Access::LOCAL_WRITE),
        QpState::Rtr => end.qp.to_rtr(peer, &retry),
        QpState::Rts => end.qp.to_rts(1, 1, &retry),
        QpState::Error => end.qp.to_error(),
    }
}

/// A queue pair that was taken to a state on the shortest legal way.
fn at(rig: &Rig, plan: &Plan, state: QpState, peer: Option<&RcPeer>) -> Done<End> {
    let end = rig.end(plan)?;
    let way: &[QpState] = match state {
        QpState::Reset => &[],
        QpState::Init => &[QpState::Init],
        QpState::Rtr => &[QpState::Init, QpState::Rtr],
        QpState::Rts => &[QpState::Init, QpState::Rtr, QpState::Rts],
        QpState::Error => &[QpState::Init, QpState::Error],
    };
    for &state in way {
        step(rig, &end, state, peer)?;
        ensure!(end.qp.state() == state, "in {:?} after going to {state:?}", end.qp.state());
    }
    Ok(end)
}

fn table(side: &mut Side<'_>, plan: &Plan) -> Done {
    let rig = Rig::open(side)?;
    // Where the other side's connections go; nobody sends.
    let target = rig.end(plan)?;
    let theirs = side.swap(&rig.words(&target))?;
    let peer = rig.peer(&theirs)?;
    let peer = (plan.qp_type == QpType::Rc).then_some(&peer);
    if plan.qp_type == QpType::Rc {
        target.qp.to_init(rig.port.number, 0, 0, Access::LOCAL_WRITE)?;
    }
    for from in STATES {
        for to in STATES {
            let end = at(&rig, plan, from, peer)?;
            match step(&rig, &end, to, peer) {
                Ok(()) => {
                    ensure!(legal(from, to) != Some(false), "{from:?} to {to:?} is not refused");
                    ensure!(end.qp.state() == to, "{from:?} to {to:?} is {:?}", end.qp.state());
                }
                Err(error) => {
                    ensure!(legal(from, to) != Some(true), "{error}");
                    let state = end.qp.state();
                    ensure!(state == from, "{from:?} to {to:?}, refused, is {state:?}");
                    let transition = matches!(error, Error::Transition { .. });
                    ensure!(transition, "{from:?} to {to:?}: another error: {error}");
                }
            }
        }
    }
    side.sync()
}

pub(super) fn rc_states(side: &mut Side<'_>) -> Done {
    table(side, &Plan::default())?;
    let rig = Rig::open(side)?;
    let end = rig.end(&Plan::default())?;
    for port in [0, rig.device.info().ports + 1] {
        let refused = end.qp.to_init(port, 0, 0, Access::NONE);
        ensure!(refused.is_err(), "port {port} is taken");
    }
    let keys = u16::try_from(rig.port.pkeys.len()).unwrap_or(u16::MAX);
    let refused = end.qp.to_init(rig.port.number, keys, 0, Access::NONE);
    ensure!(refused.is_err(), "partition key {keys} of {keys} is taken");
    end.qp.to_init(rig.port.number, 0, 0, Access::NONE)?;
    let refused = end.qp.to_rtr(None, &Retry::default());
    ensure!(refused.is_err(), "a reliable connection without a peer is taken");
    Ok(())
}

pub(super) fn ud_states(side: &mut Side<'_>) -> Done {
    table(side, &Plan { qp_type: QpType::Ud, ..Plan::default() })
}

pub(super) fn posts(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let buffer = rig.buffer(64)?;
    let plan = Plan::default();
    let target = rig.end(&plan)?;
    let theirs = side.swap(&rig.words(&target))?;
    let peer = rig.peer(&theirs)?;
    target.qp.to_init(rig.port.number, 0, 0, Access::LOCAL_WRITE)?;
    for state in STATES {
        let end = at(&rig, &plan, state, Some(&peer))?;
        let receive = end.qp.post_receive(&RecvWr { id: 1, buffer: buffer.sge(0, 8) });
        let legal = state != QpState::Reset;
        ensure!(receive.is_ok() == legal, "receive in {state:?}: {receive:?}");
        if state != QpState::Rts {
            let data = Data::Gather(&[buffer.sge(0, 8)]);
            let send = end.try_post(2, Operation::Send { imm: None }, data);
            let legal = state == QpState::Error;
            ensure!(send.is_ok() == legal, "send in {state:?}: {send:?}");
            if let Err(error) = send {
                let full = matches!(error, PostError::Full);
                ensure!(!full, "send in {state:?} says that the queue is full");
            }
        }
        if state == QpState::Error {
            for queue in [&end.got, &end.sent] {
                let status = one(queue)?.status;
                ensure!(status == Status::Flushed, "{status:?} in {state:?}");
            }
        }
        silent(&end.got)?;
    }
    side.sync()
}

pub(super) fn again(side: &mut Side<'_>) -> Done {
    let rig = Rig::open(side)?;
    let end = rig.connected(side, &Plan::default())?;
    let number = end.qp.number();
    let buffer = rig.buffer(64)?;
    for round in 0..4 {
        ping(side, &rig, &end, round)?;
        end.receive(1, &buffer, 0, 64)?;
        if round % 2 == 1 {
            end.qp.to_error()?;
            let status = one(&end.got)?.status;
            ensure!(status == Status::Flushed, "{status:?} instead of a flush");
        }
        end.qp.to_reset()?;
        ensure!(end.qp.number() == number, "the number changed");
        side.sync()?;
        silent(&end.got)?;
        rig.connect(side, &end)?;
    }
    ping(side, &rig, &end, 9)?;
    if rig.device.caps().max_qp < 200 {
        return Err(skip("fewer than 200 queue pairs"));
    }
    let plan = Plan { sends: 1, receives: 1, depth: 1, ..Plan::default() };
    let many: Vec<End> = (0..64).map(|_| rig.end(&plan)).collect::<Done<_>>()?;
    for one in &many {
        let twins = many.iter().filter(|end| end.qp.number() == one.qp.number()).count();
        ensure!(twins == 1, "queue pair number {:#x} is given {twins} times", one.qp.number());
    }
    side.sync()
}
