//! What programs that watch a job ask of it, the look for progress, and the signal that may be a
//! request for a checkpoint: the same for a job on one host and on many.

use super::control::{Control, Supervise};
use super::machine::Event;
use super::sys;
use crate::event_loop::{Ready, Sender, Token, ms};
use crate::watch::questions::Subject;
use crate::watch::server::{OURSELVES, Wanted, job_view};
use crate::watch::{Answer, JobView};

impl Control<'_> {
    /// Names of the job's hosts, by number.
    fn host_names(&self) -> Vec<String> {
        if self.plan.map.is_here_only() {
            return vec![self.plan.host.clone()];
        }
        self.plan.map.hosts.iter().map(|host| host.name.clone()).collect()
    }

    fn view(&self) -> JobView {
        let (seconds, hosts) = (self.elapsed(), self.host_names());
        job_view(self.launcher, seconds, (&self.machine, &self.record), &hosts)
    }

    /// Answers those who watch the job, as far as that is possible now. What the hosts are to be asked for the job itself.
    fn step_watch(&mut self) -> Option<Subject> {
        if !self.watch.is_due() {
            return None;
        }
        self.record.settle();
        let hosts = self.host_names();
        let (said, more) = self.watch.step(&self.machine, &self.record, &hosts);
        for line in said {
            self.output.message(&line);
        }
        more.or_else(|| self.watch.own_question())
    }
}

/// See the module.
pub(crate) trait Watched<'a>: Supervise<'a> {
    /// The launcher got a signal. The first SIGTERM may be a request for a checkpoint.
    fn signalled(&mut self, signal: i32) {
        let control = self.control();
        match control.plan.checkpoint {
            Some(plan) if signal == libc::SIGTERM && control.checkpoint.is_none() => {
                control.checkpoint =
                    Some(Some(control.poller.now().saturating_add(ms(plan.grace))));
                let seconds = plan.grace.as_secs_f64();
                let name = sys::signal_name(plan.signal);
                let text =
                    format!("SIGTERM: the ranks get {name} and have {seconds} s, then SIGTERM");
                control.output.message(&text);
                self.event(Event::Signal(plan.signal));
            }
            _ => {
                if signal == libc::SIGTERM && control.checkpoint.is_some() {
                    control.checkpoint = Some(None);
                }
                self.event(Event::Signal(signal));
            }
        }
    }

    /// The time for a checkpoint is over.
    fn step_checkpoint(&mut self) {
        let control = self.control();
        let due = control.checkpoint.flatten().is_some_and(|at| control.poller.now() >= at);
        if due {
            self.signalled(libc::SIGTERM);
        }
    }

    /// Answers those who watch the job, and looks whether it makes progress.
    fn watch(&mut self) {
        self.step_checkpoint();
        if let Some(subject) = self.control().step_watch() {
            self.look(OURSELVES, subject);
        }
    }

    /// Something happened at the socket of those who watch the job.
    fn serve_watch(&mut self, ready: Ready) {
        let Token::Watcher(id) = ready.token else { return self.control().watch.accept() };
        match self.control().watch.serve(id, ready.readable) {
            None => {}
            Some(Wanted::Job { client }) => {
                let control = self.control();
                let view = control.view();
                control.watch.answer(client, &Answer::Job(view));
            }
            Some(Wanted::Signal { number, from }) => {
                let senders = &mut self.control().record.senders;
                senders.entry(number).or_insert_with(|| Sender::new(from));
                self.signalled(number);
            }
            Some(Wanted::Hosts { client, subject }) => self.look(client, subject),
        }
    }
}

impl<'a, T: Supervise<'a> + ?Sized> Watched<'a> for T {}
