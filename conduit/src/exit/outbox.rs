//! What a machine has asked for and the driver has not done yet. Fixed places, because it is filled
//! in signal handlers too; only a broadcast allocates.

use super::machine::{Action, Actions, MAX_ACTIONS, Message};

/// A queue in place.
#[derive(Debug)]
struct Queue<T, const N: usize> {
    items: [Option<T>; N],
    head: usize,
    len: usize,
}

impl<T: Copy, const N: usize> Queue<T, N> {
    const fn new() -> Self {
        Self { items: [None; N], head: 0, len: 0 }
    }

    /// False when it is full.
    fn push(&mut self, item: T) -> bool {
        let fits = self.len < N;
        if fits {
            self.items[(self.head + self.len) % N] = Some(item);
            self.len += 1;
        }
        fits
    }

    fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let item = self.items[self.head].take();
        self.head = (self.head + 1) % N;
        self.len -= 1;
        item
    }
}

/// Messages that wait for room at their receiver.
const SENDS: usize = 256;

/// Ranks that a broadcast has not reached.
#[derive(Debug)]
struct Broadcast {
    message: Message,
    left: Vec<u32>,
}

/// Things to do, in order, and messages to send.
#[derive(Debug)]
pub(super) struct Outbox {
    todo: Queue<Action, MAX_ACTIONS>,
    sends: Queue<(u32, Message), SENDS>,
    broadcast: Option<Broadcast>,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self { todo: Queue::new(), sends: Queue::new(), broadcast: None }
    }

    /// Takes over what the machine of `rank` in a job of `size` asked for.
    pub(super) fn take(&mut self, actions: &Actions, rank: u32, size: u32) {
        for &action in actions.as_slice() {
            match action {
                // With so many messages stuck the receivers are stuck; what is dropped here costs
                // them a time-out.
                Action::Send { to, message } => drop(self.sends.push((to, message))),
                Action::SendAll { message } => {
                    let left = (0..size).filter(|to| *to != rank).collect();
                    self.broadcast = Some(Broadcast { message, left });
                }
                // Each other action comes at most once or twice in a machine's life.
                _ => drop(self.todo.push(action)),
            }
        }
    }

    /// The next thing to do that is not a message.
    pub(super) fn next(&mut self) -> Option<Action> {
        self.todo.pop()
    }

    /// Whether nothing but messages is left.
    pub(super) const fn is_quiet(&self) -> bool {
        self.todo.len == 0
    }

    /// Whether all messages are out.
    pub(super) const fn is_sent(&self) -> bool {
        self.sends.len == 0 && self.broadcast.is_none()
    }

    /// Tries to send every waiting message once; those that `send` refuses stay.
    pub(super) fn send(&mut self, mut send: impl FnMut(u32, Message) -> bool) {
        for _ in 0..self.sends.len {
            if let Some((to, message)) = self.sends.pop()
                && !send(to, message)
            {
                self.sends.push((to, message));
            }
        }
        if let Some(Broadcast { message, left }) = &mut self.broadcast {
            left.retain(|to| !send(*to, *message));
            if left.is_empty() {
                self.broadcast = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bootstrap::ExitPath;

    use super::super::machine::{Code, Config, Event, Machine, Millis, Timeouts};
    use super::*;

    #[test]
    fn a_refused_message_is_kept_and_a_broadcast_goes_round_stuck_ranks() {
        let config =
            Config { rank: 2, size: 5, control: false, timeouts: Timeouts::new(Millis(1)) };
        let mut machine = Machine::new(config);
        let mut out = Actions::new();
        let exit = Event::LocalExit { code: Code(1), path: ExitPath::Explicit, in_signal: false };
        machine.handle(Millis(0), exit, &mut out);
        machine.handle(Millis(9), Event::Timer, &mut out);
        let lead = Event::Message { from: 0, message: Message::RoleReply { leader: true } };
        machine.handle(Millis(9), lead, &mut out);
        let mut outbox = Outbox::new();
        outbox.take(&out, 2, 5);
        assert!(matches!(outbox.next(), Some(Action::Announce { .. })));
        assert!(matches!(outbox.next(), Some(Action::StopClientHandlers)));
        assert!(outbox.is_quiet() && !outbox.is_sent());
        let mut sent = Vec::new();
        for stuck in [vec![0, 3, 1], vec![3], vec![]] {
            outbox.send(|to, _| {
                let free = !stuck.contains(&to);
                if free {
                    sent.push(to);
                }
                free
            });
        }
        assert!(outbox.is_sent());
        assert_eq!(sent, [4, 0, 0, 1, 3, 3]);
    }
}
