//! PMI-1 and PMI-2 for the ranks of one host: the pure half of the server that an agent offers to MPI
//! programs. [`pmix`] is the same for PMIx.
//!
//! # Primer
//!
//! Each agent of a job owns one [`Server`]. A driver gives it the bytes that ranks send
//! ([`Server::receive`]), the ends of ranks ([`Server::ended`]) and the messages of the agents below
//! and above ([`Server::hear_child`], [`Server::hear_parent`]), and carries out the [`Action`]s that
//! [`Server::poll_action`] hands out. The machine does no I/O and knows no time.
//!
//! * Which wire a rank speaks is what its first line asks for. All ranks of the job are one space of
//!   keys, whichever they speak.
//! * A *put* is seen after the next *fence* (`barrier_in`, `kvs-fence`) of all ranks of the job. Only
//!   what was put since the last one travels, once up and once down each link of the tree of agents.
//! * A rank that is *gone* (it has ended or finalized) makes every further fence impossible: a rank
//!   that enters one is named as the cause of the job's end, with the one that is gone. Agents tell
//!   each other of it only once any rank of the job has begun to speak PMI.
//! * What no correct client sends ends the job: one text with the command and what is wrong.
//!
//! `dialect`: requests and replies in both wires. `input`: bytes to messages. `fence`: what is known of
//! the fence under way. `mapping`: the map of hosts as MPI programs read it.

mod dialect;
mod fence;
mod input;
mod mapping;
pub mod pmix;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};

use bootstrap::{HostId, Rank};

use crate::wire::PmiVersion;
use dialect::{Reply, Request};
use fence::Fence;
use input::Input;

pub use fence::{Message, StrayMessage};

/// Longest key, with the zero that C programs put behind it.
const KEY_LIMIT: usize = 64;
/// Longest value, with the zero; what the usual headers and the line of a PMI-1 client allow.
const VALUE_LIMIT: usize = 1024;
/// Bytes that one rank may put between two fences.
const PUT_LIMIT: usize = 4 << 20;

/// The place of a [`Server`] in its job.
#[derive(Clone, Debug, Default)]
pub struct Site {
    /// Unique text of the job: the name of its space of keys.
    pub job: String,
    /// Ranks of this host, ascending, by local number.
    pub ranks: Vec<Rank>,
    /// Host of every rank of the job.
    pub host_of: Vec<HostId>,
    /// Number of the program of each local rank (`appnum`); 0 where there is none.
    pub programs: Vec<u32>,
    /// Agents below this one, each with the first rank of its subtree.
    pub branches: Vec<Rank>,
    /// Whether there is an agent above.
    pub parent: bool,
}

/// What a rank did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It has begun to speak PMI.
    Init,
    /// It has finalized: it may end at any time.
    Finalize,
    /// It wants the job to end with this code.
    Abort(i32),
    /// It sent what no correct client sends, or waits for what cannot come.
    Broken(String),
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send bytes to a local rank.
    Send {
        /// Its local number.
        local: u32,
        /// As they are.
        bytes: Vec<u8>,
    },
    /// Close the connection to a local rank once everything is sent.
    Close {
        /// Its local number.
        local: u32,
    },
    /// Tell what a rank did.
    Tell {
        /// The rank, by its number in the job.
        rank: Rank,
        /// What.
        event: Event,
    },
    /// Send a message to the agent above.
    Up(Message),
    /// Send a message to every agent below.
    Down(Message),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Has never said anything.
    #[default]
    Silent,
    /// The version is agreed on.
    Open,
    /// Nothing is read of it any more.
    Over,
}

#[derive(Debug, Default)]
struct Client {
    input: Input,
    phase: Phase,
    /// Is inside a fence.
    fencing: bool,
    /// Attribute of the node that it waits for, and the number of its thread.
    awaits: Option<(String, Option<String>)>,
    /// Number of the thread that waits in a fence, as the client named it.
    thread: Option<String>,
    /// Bytes put since the last fence.
    put: usize,
}

impl Client {
    /// Nothing is read of it any more, and nothing that it waits for is sent to it.
    fn end(&mut self) {
        self.phase = Phase::Over;
        self.awaits = None;
        self.input.clear();
    }
}

/// The machine. See the module.
#[derive(Debug)]
pub struct Server {
    site: Site,
    clients: Vec<Client>,
    store: HashMap<String, String>,
    /// Attributes that ranks of this host have set for each other (PMI-2).
    node: BTreeMap<String, String>,
    fence: Fence,
    actions: VecDeque<Action>,
}

impl Server {
    /// A server to which nobody has spoken.
    #[must_use]
    pub fn new(site: Site) -> Self {
        let mut store = HashMap::new();
        if let Some(map) = mapping::text(&site.host_of).filter(|map| map.len() < VALUE_LIMIT) {
            store.insert(crate::wire::PROCESS_MAPPING.to_owned(), map);
        }
        let mut clients = Vec::new();
        clients.resize_with(site.ranks.len(), Client::default);
        let fence = Fence::new(site.ranks.len(), site.branches.len());
        Self { site, clients, store, node: BTreeMap::new(), fence, actions: VecDeque::new() }
    }

    /// The next thing to do; to be called after every other call until there is none.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn rank(&self, local: u32) -> Rank {
        self.site.ranks.get(local as usize).copied().unwrap_or(Rank(u32::MAX))
    }

    fn tell(&mut self, local: u32, event: Event) {
        let rank = self.rank(local);
        self.actions.push_back(Action::Tell { rank, event });
    }

    /// Takes bytes that a local rank has sent.
    pub fn receive(&mut self, local: u32, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(local as usize) else { return };
        client.input.push(bytes);
        loop {
            let Some(client) = self.clients.get_mut(local as usize) else { return };
            if client.phase == Phase::Over {
                return client.input.clear();
            }
            let version = client.input.version;
            let served = match client.input.take() {
                Ok(None) => return,
                Ok(Some(text)) => {
                    let read = dialect::read(version, &text);
                    let shown = dialect::shown(&text);
                    read.and_then(|(request, thread)| self.serve(local, request, thread))
                        .map_err(|problem| format!("{problem}, in {shown}"))
                }
                Err(problem) => Err(problem),
            };
            if let Err(problem) = served {
                return self.broken(local, version, &problem);
            }
        }
    }

    fn broken(&mut self, local: u32, version: PmiVersion, problem: &str) {
        if let Some(client) = self.clients.get_mut(local as usize) {
            client.end();
        }
        let text = format!("{}: {problem}", version.name());
        self.tell(local, Event::Broken(text));
        self.actions.push_back(Action::Close { local });
    }

    fn reply(&mut self, local: u32, thread: Option<&str>, reply: &Reply<'_>) {
        let Some(client) = self.clients.get(local as usize) else { return };
        let bytes = dialect::write(client.input.version, thread, reply).into_bytes();
        self.actions.push_back(Action::Send { local, bytes });
    }

    /// Carries out one request.
    fn serve(
        &mut self,
        local: u32,
        request: Request,
        thread: Option<String>,
    ) -> Result<(), String> {
        let Some(client) = self.clients.get_mut(local as usize) else { return Ok(()) };
        let begun = client.phase == Phase::Open;
        if begun == matches!(request, Request::Init { .. }) {
            return Err(if begun { "a second init" } else { "a request before init" }.to_owned());
        }
        if client.fencing && !matches!(request, Request::Abort { .. }) {
            return Err("a request of a rank that is inside a fence".to_owned());
        }
        match request {
            Request::Init { version } => self.init(local, version),
            Request::Put { space, key, value } => {
                self.check_space(space.as_deref())?;
                self.put(local, key, value)?;
                self.reply(local, thread.as_deref(), &Reply::Put);
            }
            Request::Get { space, key } => {
                self.check_space(space.as_deref())?;
                let value = self.store.get(&key).cloned();
                self.reply(
                    local,
                    thread.as_deref(),
                    &Reply::Value { key: &key, value: value.as_deref() },
                );
            }
            Request::Fence => self.enter(local, thread),
            Request::PutNode { key, value } => {
                self.put_node(key, value)?;
                self.reply(local, thread.as_deref(), &Reply::PutNode);
            }
            Request::GetNode { key, wait } => self.get_node(local, key, wait, thread),
            Request::Finalize => {
                self.reply(local, thread.as_deref(), &Reply::Finalize);
                self.over(local);
                self.tell(local, Event::Finalize);
                self.gone(local);
            }
            Request::Abort { code } => {
                self.over(local);
                self.tell(local, Event::Abort(code));
            }
            request => self.answer(local, &request, thread.as_deref()),
        }
        Ok(())
    }

    /// Questions whose answer is known.
    fn answer(&mut self, local: u32, request: &Request, thread: Option<&str>) {
        let size = self.site.host_of.len();
        let job = self.site.job.clone();
        let program = self.site.programs.get(local as usize).copied().unwrap_or(0);
        let rank = self.rank(local).0;
        let reply = match request {
            Request::Limits => Reply::Limits { key: KEY_LIMIT, value: VALUE_LIMIT },
            Request::Begin => Reply::Begin { rank, size, program },
            Request::Space => Reply::Space { name: &job },
            Request::Program => Reply::Program { number: program },
            Request::UniverseSize => Reply::UniverseSize { size },
            Request::JobAttribute { key } if key == "universeSize" => {
                return self.reply(
                    local,
                    thread,
                    &Reply::JobAttribute { value: Some(&size.to_string()) },
                );
            }
            Request::JobAttribute { key } => {
                let map =
                    (key == crate::wire::PROCESS_MAPPING).then(|| self.store.get(key).cloned());
                let value = map.flatten();
                return self.reply(local, thread, &Reply::JobAttribute { value: value.as_deref() });
            }
            Request::NotServed { reply } => Reply::NotServed { reply },
            _ => return,
        };
        self.reply(local, thread, &reply);
    }

    fn init(&mut self, local: u32, version: Option<PmiVersion>) {
        // The answer to the first line is a line, whichever version follows.
        self.reply(local, None, &Reply::Init { version });
        let Some(version) = version else { return };
        if let Some(client) = self.clients.get_mut(local as usize) {
            client.phase = Phase::Open;
            client.input.version = version;
        }
        self.tell(local, Event::Init);
        self.in_use();
    }

    fn check_space(&self, space: Option<&str>) -> Result<(), String> {
        match space {
            Some(space) if space != self.site.job => {
                Err(format!("the space of keys {space:?} instead of {:?}", self.site.job))
            }
            _ => Ok(()),
        }
    }

    fn put(&mut self, local: u32, key: String, value: String) -> Result<(), String> {
        check_sizes(&key, &value)?;
        let Some(client) = self.clients.get_mut(local as usize) else { return Ok(()) };
        client.put += key.len() + value.len();
        if client.put > PUT_LIMIT {
            return Err(format!("more than {PUT_LIMIT} bytes put before a fence"));
        }
        self.fence.put(key, value);
        Ok(())
    }

    fn put_node(&mut self, key: String, value: String) -> Result<(), String> {
        check_sizes(&key, &value)?;
        let sizes = self.node.iter().map(|(key, value)| key.len() + value.len());
        if sizes.sum::<usize>() > PUT_LIMIT {
            return Err(format!("more than {PUT_LIMIT} bytes of attributes of this node"));
        }
        for local in (0u32..).take(self.clients.len()) {
            let client = &mut self.clients[local as usize];
            if let Some((_, thread)) = client.awaits.take_if(|(awaited, _)| *awaited == key) {
                self.reply(local, thread.as_deref(), &Reply::NodeAttribute { value: Some(&value) });
            }
        }
        self.node.insert(key, value);
        Ok(())
    }

    fn get_node(&mut self, local: u32, key: String, wait: bool, thread: Option<String>) {
        let value = self.node.get(&key).cloned();
        match self.clients.get_mut(local as usize) {
            Some(client) if value.is_none() && wait => client.awaits = Some((key, thread)),
            _ => {
                let reply = Reply::NodeAttribute { value: value.as_deref() };
                self.reply(local, thread.as_deref(), &reply);
            }
        }
    }

    fn over(&mut self, local: u32) {
        if let Some(client) = self.clients.get_mut(local as usize) {
            client.end();
        }
        self.actions.push_back(Action::Close { local });
    }

    /// An agent below has left: all ranks of its subtree have ended.
    pub fn left(&mut self, index: usize) {
        if let Some(rank) = self.site.branches.get(index) {
            self.rank_gone(*rank);
        }
    }

    /// A local rank has ended.
    pub fn ended(&mut self, local: u32) {
        let Some(client) = self.clients.get_mut(local as usize) else { return };
        // Who had finalized is gone already.
        client.end();
        self.gone(local);
    }
}

fn check_sizes(key: &str, value: &str) -> Result<(), String> {
    match (key.len(), value.len()) {
        (0, _) => Err("an empty key".to_owned()),
        (length, _) if length >= KEY_LIMIT => {
            Err(format!("a key of {length} bytes, {} are the most", KEY_LIMIT - 1))
        }
        (_, length) if length >= VALUE_LIMIT => {
            Err(format!("a value of {length} bytes, {} are the most", VALUE_LIMIT - 1))
        }
        _ => Ok(()),
    }
}
