//! Programs and their kernels: a call begins, and returns.

use super::config::{Call, Config, Mutation};
use super::state::{ALL, At, Broken, Changes, Client, EMBEDDED, Page, Scene, Thing};

impl Scene {
    /// Does nothing keep a client's next call from its beginning?
    pub(crate) fn may_begin(&self, config: &Config, client: usize) -> bool {
        let Some(call) = self.call(config, client) else { return false };
        let session = config.session_of(client);
        if self.clients[client].at != At::Ready || self.silent[EMBEDDED] && session == EMBEDDED {
            return false;
        }
        let Some(kernel) = self.kernels.get(session) else { return true };
        let unlocked =
            |page: usize| !matches!(kernel.pages[page], Page::Reading(_) | Page::Writing(_));
        let sent = |page: &Page| matches!(page, Page::Sent(_) | Page::Waits(_));
        match call {
            Call::Read(page) => unlocked(page),
            Call::Write(page) | Call::Fill(page) => {
                kernel.inode.is_none() && unlocked(page) && !sent(&kernel.pages[page])
            }
            Call::Store(page) => {
                let whole = kernel.pages[page].content() == Some(ALL);
                unlocked(page) && !sent(&kernel.pages[page]) && !whole
            }
            Call::Fsync => {
                let dirty = |page: &Page| matches!(page, Page::Dirty(_));
                kernel.inode.is_none() && !kernel.pages.iter().any(|p| dirty(p) || sent(p))
            }
            Call::Append(_) => kernel.inode.is_none(),
            Call::Lookup => kernel.name.is_some() || kernel.directory.is_none(),
            Call::Create | Call::Unlink | Call::Hold => kernel.directory.is_none(),
            _ => true,
        }
    }

    pub(crate) fn begin(&mut self, config: &Config, client: usize) {
        let of = match self.call(config, client) {
            Some(Call::Stat) => config.changes_of(Thing::Attributes),
            Some(Call::Read(page)) => config.changes_of(Thing::Page(page)),
            Some(Call::Lookup) => config.changes_of(Thing::Name),
            _ => 0,
        };
        self.clients[client].needs = self.ghost.returned & of;
        match config.session_of(client) {
            EMBEDDED => self.begin_embedded(config, client),
            kernel => self.begin_in_kernel(config, client, kernel),
        }
    }

    fn begin_embedded(&mut self, config: &Config, client: usize) {
        let change = self.change(config, client);
        let own_clock = config.has(Mutation::HoldersClock) && self.lease.believed;
        let valid = self.lease.is_valid() || own_clock;
        self.clients[client].at = At::Sent;
        match self.call(config, client) {
            Some(Call::Put) if valid => {
                self.lease.published |= change;
                (self.lease.fresh, self.lease.believed) = (true, true);
                self.clients[client].at = At::Published;
            }
            Some(Call::Return) if valid => {
                self.clients[client].says = self.lease.base | self.lease.published;
            }
            Some(Call::Return) => self.returns(client),
            Some(Call::Close) => {
                self.open = false;
                self.returns(client);
            }
            _ => {}
        }
    }

    fn begin_in_kernel(&mut self, config: &Config, client: usize, session: usize) {
        let change = self.change(config, client);
        let kernel = &mut self.kernels[session];
        let mut at = At::Sent;
        let mut seen = None;
        match self.clients[client].call_in(config, client) {
            Call::Stat => seen = kernel.attributes,
            Call::Read(page) => match kernel.pages[page].content() {
                Some(content) => seen = Some(content),
                None => kernel.pages[page] = Page::Reading(client),
            },
            call @ (Call::Write(page) | Call::Fill(page)) => {
                kernel.inode = Some(client);
                kernel.pages[page] = match (kernel.pages[page], call) {
                    (Page::Gone, Call::Fill(_)) => Page::Clean(ALL),
                    (Page::Gone, _) => Page::Writing(client),
                    (there, _) => there.with(|c| c | change),
                };
            }
            Call::Store(page) => match kernel.pages[page].content() {
                Some(content) => {
                    kernel.pages[page] = Page::Dirty(content | change);
                    return self.returns(client);
                }
                None => kernel.pages[page] = Page::Reading(client),
            },
            Call::Fsync => kernel.inode = Some(client),
            Call::Append(_) => {
                kernel.inode = Some(client);
                self.clients[client].offset = kernel.size;
                at = At::Offset;
            }
            Call::Lookup => match kernel.name {
                Some(content) => seen = Some(content),
                None => kernel.directory = Some(client),
            },
            Call::Create | Call::Unlink => kernel.directory = Some(client),
            Call::Hold => {
                kernel.directory = Some(client);
                return self.returns(client);
            }
            _ => {}
        }
        self.clients[client].at = at;
        if let Some(content) = seen {
            self.see(client, content);
            self.returns(client);
        }
    }

    /// A call sees this. It must reflect whatever had returned when the call began.
    fn see(&mut self, client: usize, content: Changes) {
        let needs = self.clients[client].needs & !self.ghost.lost;
        if needs & !content != 0 {
            self.ghost.note(Broken::Older);
        }
    }

    /// A call is over, without saying that it changed anything.
    pub(crate) fn returns(&mut self, client: usize) {
        let call = self.clients[client].call + 1;
        self.clients[client] = Client { call, ..Client::default() };
    }

    /// An answer arrives, and the call returns.
    pub(crate) fn arrive(&mut self, config: &Config, client: usize) {
        let session = config.session_of(client);
        let call = self.call(config, client).expect("is answered");
        let Client { says, call: number, .. } = self.clients[client];
        match call {
            Call::Stat | Call::Read(_) | Call::Lookup => self.see(client, says),
            Call::Fsync => {
                let stores = (0..number).filter(|n| self.is_store(config, client, *n));
                let stores = stores.fold(0, |all, n| all | config.change(client, n));
                self.ghost.returned |= stores;
            }
            Call::Store(_) => {}
            _ => self.ghost.returned |= self.change(config, client),
        }
        if session != EMBEDDED {
            self.arrive_in_kernel(config, client, session);
        }
        match call {
            Call::Store(_) => self.clients[client].at = At::Ready,
            _ => self.returns(client),
        }
    }

    fn is_store(&self, config: &Config, client: usize, call: usize) -> bool {
        matches!(config.programs[client].1[call], Call::Store(_))
    }

    fn arrive_in_kernel(&mut self, config: &Config, client: usize, session: usize) {
        let Client { says, stale, offset, .. } = self.clients[client];
        let kernel = &mut self.kernels[session];
        match self.clients[client].call_in(config, client) {
            Call::Stat => {
                // A kernel that had no inode has no version of its attributes to compare with.
                if !(kernel.has_inode && stale) {
                    kernel.attributes = Some(says);
                }
                kernel.has_inode = true;
            }
            Call::Read(page) => kernel.pages[page] = Page::Clean(says),
            Call::Store(page) => kernel.pages[page] = Page::Mapped(says),
            Call::Lookup => {
                kernel.directory = None;
                kernel.name = Some(says);
            }
            Call::Create => {
                kernel.directory = None;
                kernel.name = if stale { None } else { Some(says) };
            }
            Call::Unlink => {
                kernel.directory = None;
                kernel.name = None;
                self.forget_attributes(config, session);
            }
            Call::Write(page) | Call::Fill(page) => {
                kernel.inode = None;
                if kernel.pages[page] == Page::Writing(client) {
                    kernel.pages[page] = Page::Gone;
                }
                self.forget_attributes(config, session);
            }
            Call::Append(len) => {
                kernel.inode = None;
                kernel.size = kernel.size.max(offset + len);
                self.forget_attributes(config, session);
            }
            Call::Fsync => kernel.inode = None,
            _ => {}
        }
    }

    /// A kernel no longer trusts attributes, those on their way neither.
    pub(crate) fn forget_attributes(&mut self, config: &Config, kernel: usize) {
        self.kernels[kernel].attributes = None;
        for client in 0..self.clients.len() {
            if config.session_of(client) == kernel && self.asks_for_attributes(config, client) {
                self.clients[client].stale = true;
            }
        }
    }

    /// Is an answer with attributes on its way to this client, or being computed?
    pub(crate) fn asks_for_attributes(&self, config: &Config, client: usize) -> bool {
        let under_way = matches!(self.clients[client].at, At::Sent | At::Read | At::Answered);
        under_way && self.call(config, client) == Some(Call::Stat)
    }

    /// The holder of a lease has published, and looks at its word: an answer is given only if it is
    /// valid still (rule R37). Else the bytes go the common way.
    pub(crate) fn look(&mut self, config: &Config, client: usize) {
        let valid = match config.has(Mutation::HoldersClock) {
            true => self.lease.believed,
            false => self.lease.is_valid(),
        };
        match valid {
            true => self.arrive(config, client),
            false => self.clients[client].at = At::Sent,
        }
    }
}

impl Client {
    fn call_in(&self, config: &Config, client: usize) -> Call {
        config.programs[client].1[self.call]
    }
}
