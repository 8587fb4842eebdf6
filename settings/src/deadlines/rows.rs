//! The rows, by the part that waits.

use super::{Deadline, deadlines};

deadlines! {
    /// A rank and the providers of its services.
    bootstrap {
        HELLO = "bootstrap.hello", secs(60),
            "A rank waits for its agent's answer to its first frame. The agent answers at once; \
             the bound leaves room for an overloaded host that starts hundreds of ranks.";
        CALL = "bootstrap.call", bound(UNBOUNDED),
            "A rank waits in a collective call for the slowest rank, so only the end of the job \
             bounds it: a decided exit, or a closed socket.";
        FINI = "bootstrap.fini", secs(30),
            "A rank waits for the farewells of the others. It ends anyway; the bound keeps one \
             stuck rank from holding the others.";
        SLICE = "bootstrap.slice", ms(50),
            "Longest single sleep inside a wait; a rank reads the exit decision between sleeps. Each \
             256 ranks of a host add as much.";
        ANNOUNCE = "bootstrap.announce", secs(2),
            "A rank that exits waits for room in its agent's socket. When the agent is stopped, \
             the exit goes on without it.";
        FIRST_SPEAKS = "bootstrap.first-speaks", ms(500),
            "A process of another launcher's job that cannot be joined leaves time to the first one, \
             which says why: at the end of any of them launchers end the others.";
        PM_ANSWER = "bootstrap.process-manager.answer", secs(60),
            "A rank waits for any answer of a PMI server but a fence. Servers answer in \
             milliseconds; one that does not know a command may stay silent.";
        PM_MEET = "bootstrap.process-manager.meet", secs(60),
            "The ranks of a host wait for each other at the start. The bound ends the wait where \
             the server's map of hosts is wrong.";
        PM_REFUSAL = "bootstrap.process-manager.refusal", secs(5),
            "A rank waits in the fence that carries a refusal to the other hosts. When they do not \
             come, the ranks of this host hear the refusal all the same.";
        PM_WATCH = "bootstrap.process-manager.watch", ms(250),
            "Between two checks of a rank in a fence of a process manager whether the end of the job \
             is decided, or the fence has taken too long.";
        PM_LEAVE = "bootstrap.process-manager.leave", secs(2),
            "A rank that leaves waits for the last answer of a PMI server. It ends anyway.";
        PM_OTHERS = "bootstrap.process-manager.others", secs(10).set_by("GASNET_EXITTIMEOUT"),
            "The rank that decided the end of the job waits for the other ranks of its host to \
             follow; then the server ends them.";
        MEET_FIRST = "bootstrap.process-manager.meet-first", ms(1),
            "First pause before a rank knocks again at the first rank of its host; doubles.";
        MEET_MOST = "bootstrap.process-manager.meet-most", ms(20), "Longest such pause.";
        MPI_EAGER = "bootstrap.mpi.eager", ms(1),
            "A rank in a collective call of MPI polls without sleeping.";
        TRACE_CONNECT = "bootstrap.trace.connect", secs(2),
            "A rank of another launcher connects to ours, to leave what it has recorded.";
        TRACE_STEP = "bootstrap.trace.step", secs(5),
            "A step of that: the next bytes go, or come.";
        MPI_WATCH = "bootstrap.mpi.watch", ms(20),
            "Between two checks of a rank in a collective call of MPI whether the end of the job \
             is decided.";
    }

    /// Jobs that are started again.
    retry {
        PAUSE = "retry.pause", secs(1),
            "After a job whose host was lost, until it is started again (--retry).";
    }

    /// Jobs that are watched (`gasnetrun_ibv ps` and so on).
    watch {
        LOOK = "watch.look", secs(5),
            "A job that is asked what its ranks do waits for its hosts; those that did not answer \
             are named.";
        STACKS = "watch.stacks", secs(60),
            "The same for where its ranks are, which takes a debugger for each.";
        DEBUGGER = "watch.debugger", secs(15),
            "One debugger looks at one rank; then it is killed.";
        CLIENT = "watch.client", secs(30),
            "A job waits for the rest of a question, or for who asked to take the answer.";
        ANSWER = "watch.answer", secs(90),
            "Who asks a job waits for its answer.";
        CONNECT = "watch.connect", secs(2),
            "Who asks a job waits until it takes the question.";
    }

    /// The supervisor of a host's ranks.
    agent {
        HOST_MISSED = "host.missed", secs(4),
            "Silence of a host before a rank failed, until the loss of that host explains the \
             failure: two heartbeats.";
        QUIET_WINDOW = "exit.quiet-window", ms(20),
            "The agent waits for more ranks to begin their exit, until the exit counts as not \
             collective.";
        QUIET_BASE = "exit.quiet-base", ms(10),
            "After the last rank began its exit, until the agent notes the CPU times of those that \
             did not.";
        QUIET_RETRY = "exit.quiet-retry", ms(5),
            "Between two samples of ranks that are ready to run and were not given a CPU.";
        QUIET_LIMIT = "exit.quiet-limit", secs(1),
            "The agent waits for such ranks, until the exit counts as not collective.";
        DECISION_ACK = "exit.decision-ack", ms(20),
            "After a decided exit, until the agent sends SIGQUIT to ranks that have not read it.";
        EXEC = "agent.exec", secs(60),
            "From the start of a process until it runs its program; then it is killed. The program may \
             be read from a slow file system.";
        EXEC_LOOK = "agent.exec-look", ms(100),
            "Between two looks whether such a process is stopped, so that it must be continued.";
        PMIX_START = "agent.pmix-start", secs(60),
            "The helper process that serves PMIx starts libpmix and makes the job known to it; then \
             the start of the job fails.";
        PMIX_CALL = "agent.pmix-call", secs(50),
            "It waits for the answer to one call of libpmix.";
        PMIX_ASK = "agent.pmix-ask", secs(5),
            "Between two looks of an agent whether that process answers.";
        PMIX_ANSWER = "agent.pmix-answer", secs(30),
            "It says nothing, though it was asked, until the job ends: it hangs, or was stopped.";
        PMIX_LEAVE = "agent.pmix-leave", secs(10),
            "It removes the files of libpmix when its agent was killed; then the kernel ends it.";
        KILL_GRACE = "end.kill-grace", secs(2), "Between SIGTERM and SIGKILL of the ranks.";
        REAP = "end.reap", secs(5),
            "After SIGKILL, until the job is given up and names the processes that are left.";
        STRAY_GRACE = "end.stray-grace", ms(200),
            "Between SIGTERM and SIGKILL of processes that a successful job left behind.";
        STRAY_GRACE_FAILED = "end.stray-grace-failed", ms(40), "The same for a failed job.";
        DRAIN = "output.drain", secs(1),
            "After the last known process ended, until output pipes that unknown processes keep \
             open are given up.";
        UNREAD = "output.unread", secs(10),
            "Once a job has failed or was told to end, until what waits for a reader that takes \
             nothing is dropped. A job that ends well waits as long as its reader does.";
        PROMPT = "output.prompt", ms(100),
            "Until an unfinished line of the rank that reads the terminal is shown.";
        SIGNAL_EFFECT = "signal.effect", secs(10),
            "After a signal to the launcher, until the death of a rank counts as its own cause.";
        SIGNAL_REPEAT = "signal.repeat", ms(50),
            "A repetition within this time is the same signal (shells and timeout send twice); a \
             later one kills at once.";
        TERMINAL_RETRY = "stdin.terminal-retry", ms(500),
            "Between two checks of a terminal that another job is using.";
        AGENT_EXIT = "agent.exit", secs(2),
            "The launcher waits for its agent's end after the report, then kills it.";
        STUCK = "agent.stuck", secs(30),
            "After the job's time limit, or a second signal that asks for its end, the launcher \
             waits for the report; then it kills its agent and all that is left. Longer than the \
             waits of an agent that works, one after the other.";
        ORPHANED = "agent.orphaned", secs(30),
            "An agent whose launcher or parent has gone ends its ranks and cleans up; then the \
             kernel kills it. Longer than the waits of an agent that works, one after the other.";
        AFTER_LOSS = "agent.after-loss", secs(5),
            "The launcher waits for the end of everything that a lost agent left.";
        CLEANUP_SLICE = "agent.cleanup-slice", ms(20), "Longest single sleep in that wait.";
        CLEANUP_HOST = "agent.cleanup-host", ms(2),
            "The same on another host, where nothing else is to do.";
    }

    /// The hosts of a job among each other.
    tree {
        CONNECT = "tree.connect", secs(30), "From the start of ssh until the agent answers.";
        CONFIGURATION = "tree.configuration", secs(5),
            "Until the ssh program has said which configuration counts for a host (`ssh -G`); then \
             it makes the login itself.";
        SSH_AGENT = "tree.ssh-agent", ms(500),
            "After a refused login, until the user's ssh agent has said whether it has keys.";
        START = "tree.start", secs(120).set_by("--start-timeout"),
            "Until every host is ready to start its ranks.";
        START_SHOWN = "tree.start-shown", secs(2),
            "A start that takes longer shows which hosts it waits for.";
        START_AGAIN = "tree.start-again", secs(1), "Between two such pictures.";
        SETUP = "tree.setup", secs(30),
            "An agent waits from its first word until it is told its part.";
        GATHER = "tree.gather", secs(3),
            "After a host failed, until the job is given up: the others settle, and one table \
             shows all that is wrong.";
        RETRY = "tree.retry", ms(250),
            "First pause before a failed login is repeated; doubles, with jitter.";
        HEARTBEAT = "tree.heartbeat", secs(2), "Of silence, until a side sends a heartbeat.";
        CHILD_SILENT = "tree.child-silent", secs(12),
            "Of silence, until an agent and its hosts count as lost.";
        PARENT_SILENT = "tree.parent-silent", secs(30),
            "Of silence, until an agent ends its ranks by itself. Longer, because a stopped \
             launcher may come back.";
        LAST_WORDS = "tree.last-words", ms(200),
            "After a link's output ended, for the exit code of its process.";
        FAREWELL = "tree.farewell", secs(2),
            "After an agent's last message has left, until the process behind its link is killed.";
        CLOCK_FIRST = "tree.clock-first", ms(10),
            "Between two looks at the hosts' clocks, for a trace, at the start of the ranks.";
        CLOCK = "tree.clock", secs(1), "Between two such looks later on.";
        CHECKS = "tree.checks", secs(8), "Until the doctor's checks of a host are over.";
        FINISH = "tree.finish", secs(10),
            "Between two pieces of what is left of the output, until agents have said that this was \
             all, when nobody reads slowly.";
        HOLD = "tree.hold", ms(5),
            "After the orderly end of a rank, until an agent tells of it although others below it \
             have not ended.";
        BATCH = "tree.batch", ms(2),
            "After an agent told that ranks begin their exit, until it tells of more although \
             others below it have not begun.";
        LOADER = "tree.loader", secs(5),
            "Until the loader has listed the libraries of the program. A slower one is heard of \
             when the ranks start.";
        LOADER_POLL = "tree.loader-poll", us(100),
            "Between two checks whether the loader, which has closed its output, has ended.";
    }

    /// The launcher.
    launcher {
        GATHER_SLICE = "launcher.gather-slice", ms(50),
            "Between two checks whether the job is over, for who gathers traces of ranks that \
             another launcher starts.";
        START_TOLD = "launcher.start-told", secs(10),
            "Hosts that take longer to be ready are named once where no bar can be shown.";
        PROGRESS = "launcher.progress", ms(500), "A start that takes longer shows its progress.";
        ASK = "process-manager.ask", secs(5),
            "The launcher waits for another launcher (mpirun, srun) to say what it is.";
        ASK_POLL = "process-manager.ask-poll", ms(2), "Between two checks whether it has ended.";
    }

    /// The exit of a rank. T is the exit time-out.
    exit {
        REDUCE = "exit.reduce", ms(0).exit(ExitTerm::Plus),
            "A rank waits for the exit codes of all ranks.";
        ELECT = "exit.elect", ms(0).exit(ExitTerm::Plus), "A rank waits for the answer of rank 0.";
        COORDINATE = "exit.coordinate", ms(0).exit(ExitTerm::Plus),
            "The leader waits for the replies of all ranks, the others for its request.";
        DRAIN = "exit.drain", secs(30).exit(ExitTerm::AtLeast),
            "A rank flushes its streams and sends what is still queued.";
        STALL = "exit.stall", secs(2).exit(ExitTerm::AtMost),
            "A rank whose reduction is incomplete waits for the control tree before it decides \
             alone.";
        STALL_ALONE = "exit.stall-alone", ms(200),
            "The same where no agent decides and all ranks are on one host.";
        NON_COLLECTIVE = "exit.non-collective", secs(1),
            "Where no agent decides, a rank with a code other than 0 waits for the reduction. \
             Longer than a busy host keeps a rank from its processor.";
        FLUSH = "exit.flush", secs(5),
            "A rank flushes stdout and stderr, then leaves them: another thread may hold a \
             stream's lock for ever.";
        FLUSH_OTHERS = "exit.flush-others", ms(200),
            "A rank flushes its other C streams. A thread that reads from the terminal holds the \
             lock of stdin.";
        FLUSH_SLICE = "exit.flush-slice", ms(1), "Longest single sleep of a rank that flushes.";
        AGENT_QUIT = "exit.agent-quit", ms(20),
            "A rank waits for the SIGQUIT that its agent has announced.";
        SLICE = "exit.slice", ms(20),
            "Longest single sleep of a rank that exits; what it waits for wakes it earlier. Each 256 \
             ranks of a host add as much.";
        BACKTRACE = "exit.backtrace", secs(30),
            "A rank waits for one mechanism that prints a backtrace.";
        CRASH_FLUSH = "exit.crash-flush", secs(5),
            "A rank flushes its streams after a fatal signal.";
        ALARM_STEP = "exit.alarm-step", secs(5).exit(ExitTerm::Plus),
            "Alarm over one coordinating step: reduction, election, requests.";
        ALARM_TEARDOWN = "exit.alarm-teardown", secs(120).exit(ExitTerm::AtLeast),
            "Alarm over everything from the coordination to the farewell.";
        ALARM_FINI = "exit.alarm-fini", secs(30).exit(ExitTerm::AtLeast),
            "Alarm over the farewell.";
        ALARM_LAST = "exit.alarm-last", secs(5).exit(ExitTerm::AtLeast),
            "Alarm between the first signal that aborts a rank and its end.";
    }

    /// A rank that waits for others in the library.
    wait {
        SLEEP_FIRST = "wait.sleep-first", ms(1),
            "First sleep on the doorbell. Short, because a peer's put into this rank's segment \
             rings nothing.";
        SLEEP_MOST = "wait.sleep-most", ms(200),
            "Longest sleep on the doorbell: every wait polls at least this often.";
        ROOM_FIRST = "wait.room-first", us(100),
            "First sleep while waiting for room at a peer, which rings nothing when it has made \
             room.";
        ROOM_MOST = "wait.room-most", ms(10), "Longest such sleep.";
        CALM_FIRST = "wait.calm-first", ms(10),
            "After a sign that other processes want the processor of a rank, until its waits are \
             longer by a step, or yield again.";
        CALM_MOST = "wait.calm-most", secs(2),
            "Longest such time. It doubles when the next sign comes soon after the last step.";
        CONNECTION_LIST = "wait.connection-list", secs(5),
            "At the end of the job, a rank waits for the lists of used connections of all others \
             (GASNET_CONNECTFILE_OUT without %).";
        LOST_PEER = "wait.lost-peer", secs(2),
            "After a connection failed, a rank waits for who knows the cause before it names the \
             connection as what ends the job.";
    }

    /// A rank's network. Connections have their bounds in variables; queue pairs have the device's.
    net {
        THREADS = "net.threads", ms(500), "Closing waits for the network's own threads.";
        DRAIN = "net.drain", ms(200),
            "Closing waits for completions of what was posted: peers that are stopped or gone \
             never send them.";
        CLOSE_SLICE = "net.close-slice", us(50), "Longest single sleep while closing waits.";
        PINNABLE = "net.pinnable", secs(20),
            "A rank of a host tries how much memory can be pinned; after it the rest is taken to be \
             possible.";
        MEMORY_LOCK = "net.memory-lock", secs(1),
            "The thread that hears of unmapped memory waits for the table of registered memory, \
             which is held for microseconds. After it, transfers are copied: the holder was \
             interrupted by a signal for good.";
        STALL = "net.stall", ms(20),
            "The payload of an unpacked Long may stand still before the sender goes back to \
             polling.";
        SHARED = "net.shared", secs(10),
            "A rank waits for another one of its host to make or connect what both share.";
        SHARED_POLL = "net.shared-poll", us(50), "Between two checks of that.";
        REPOST = "net.repost", secs(2),
            "A receive buffer is offered again and again to a device that says it is full.";
        NAP = "net.nap", ms(1),
            "Longest sleep of a rank on its adapters, which no doorbell ends.";
        ACK_RETRY = "net.ack-retry", ms(1),
            "Between two tries to send an ack that has no room yet, where the client need not \
             poll.";
    }

    /// Adapters through libibverbs.
    verbs {
        BUSY_FIRST = "verbs.busy-first", ms(1),
            "First pause before a driver that was short of resources is asked again; doubles, \
             which makes 127 ms in all.";
        FAILED_POLL = "verbs.failed-poll", us(200),
            "Between two checks whether a queue pair failed whose request did.";
    }

    /// The software adapter.
    soft {
        HELLO = "soft.hello", secs(5), "A connection must prove the job key.";
        PARKED = "soft.parked", secs(120),
            "A known peer's stream waits for its queue pair to be ready to receive.";
        LINGER = "soft.linger", secs(2), "A failed stream stays, so that the peer can read why.";
        RECONNECT_FIRST = "soft.reconnect-first", ms(5),
            "First pause before a refused connection is tried again; doubles.";
        RECONNECT_MOST = "soft.reconnect-most", ms(500), "Longest such pause.";
        NAP = "soft.nap", ms(1), "Longest sleep of the progress thread while somebody polls.";
        TICK = "soft.tick", ms(5), "Between two checks of the timers.";
        WATCH_BUSY = "soft.watch-busy", ms(10),
            "Longest sleep of the progress thread while a request or a timer is out.";
        WATCH_IDLE = "soft.watch-idle", ms(250), "Longest sleep of the progress thread.";
        CONTROL_LOCK = "soft.control-lock", secs(5),
            "A control call (never a post or a poll) waits for another thread of this process.";
        POST_LOCK = "soft.post-lock", ms(20),
            "A post waits for a lock whose holder lost its processor.";
    }
}
