//! Kernels: what they forget when they are told, and what they send by themselves.

use super::config::{Call, Config, Mutation};
use super::state::{At, For, Kernel, Notice, Page, Scene, Thing};

impl Scene {
    /// Can a kernel forget what this notice names, with the locks that it has?
    pub(crate) fn may_forget(&self, config: &Config, place: usize) -> bool {
        !self.silent[self.notices[place].to] && self.could_forget(config, place)
    }

    fn could_forget(&self, config: &Config, place: usize) -> bool {
        let notice = self.notices[place];
        if notice.done {
            return false;
        }
        let kernel = &self.kernels[notice.to];
        match notice.thing {
            Thing::Attributes => {
                let asks = |c: &usize| config.session_of(*c) == notice.to;
                let mut clients = (0..self.clients.len()).filter(asks);
                // Without an inode the notice fails, and is sent again.
                kernel.has_inode
                    || config.has(Mutation::MissingIsAcknowledged)
                    || !clients.any(|c| self.asks_for_attributes(config, c))
            }
            Thing::Page(page) => matches!(kernel.pages[page], Page::Gone | Page::Clean(_)),
            Thing::Name => kernel.directory.is_none(),
            Thing::Size => true,
        }
    }

    /// What a kernel forgets it forgets for all notices that it has of it.
    pub(crate) fn forget(&mut self, config: &Config, place: usize) {
        let notice = self.notices[place];
        let same = |n: &&mut Notice| n.to == notice.to && n.thing == notice.thing;
        self.notices.iter_mut().filter(same).for_each(|n| n.done = true);
        self.notices.sort_unstable();
        self.notices.dedup();
        match notice.thing {
            Thing::Attributes if self.kernels[notice.to].has_inode => {
                self.forget_attributes(config, notice.to);
            }
            Thing::Attributes => {}
            Thing::Page(page) => {
                self.kernels[notice.to].pages[page] = Page::Gone;
                if !self.sweeps(notice.to) {
                    self.kernels[notice.to].swept = 0;
                }
            }
            Thing::Name => self.kernels[notice.to].name = None,
            Thing::Size if self.appends(config, notice.to) => {}
            Thing::Size => self.kernels[notice.to].size = self.truth.end,
        }
    }

    /// A kernel keeps the size that it has while a write of its own is on its way.
    fn appends(&self, config: &Config, kernel: usize) -> bool {
        let sent = |c: usize| matches!(self.clients[c].at, At::Sent | At::Held);
        let append = |c: usize| matches!(self.call(config, c), Some(Call::Append(_)));
        let mut clients = (0..self.clients.len()).filter(|c| config.session_of(*c) == kernel);
        clients.any(|c| sent(c) && append(c))
    }

    /// Has a kernel not done what it was asked for, when a term has passed? Names run out by
    /// themselves, and what waits for a request that waits for us is not the kernel's fault.
    pub(crate) fn is_late(&self, config: &Config, kernel: usize) -> bool {
        let open = |n: &usize| {
            let notice = &self.notices[*n];
            notice.to == kernel && !notice.done && notice.thing != Thing::Name
        };
        let mut open = (0..self.notices.len()).filter(open);
        match config.has(Mutation::AbortTheBlocked) {
            true => open.next().is_some(),
            false => {
                open.any(|n| self.could_forget(config, n)) || self.could_drop(kernel).is_some()
            }
        }
    }

    /// The page that a kernel drops next, when it is made to drop all of the file.
    pub(crate) fn drops_next(&self, kernel: usize) -> Option<usize> {
        self.could_drop(kernel).filter(|_| !self.silent[kernel])
    }

    /// In order, up to a page that is locked or on its way.
    fn could_drop(&self, kernel: usize) -> Option<usize> {
        let Kernel { pages, swept, .. } = &self.kernels[kernel];
        if !self.sweeps(kernel) {
            return None;
        }
        let next = (*swept..pages.len()).find(|page| pages[*page] != Page::Gone)?;
        let free = matches!(pages[next], Page::Clean(_) | Page::Mapped(_) | Page::Dirty(_));
        free.then_some(next)
    }

    /// Does a notice name a page, from where the drop is, that only the drop of the file takes?
    fn sweeps(&self, kernel: usize) -> bool {
        let Kernel { pages, swept, .. } = &self.kernels[kernel];
        let mapped = |page: usize| matches!(pages[page], Page::Mapped(_) | Page::Dirty(_));
        self.notices.iter().any(|n| {
            let named = |page| n.thing == Thing::Page(page) && mapped(page);
            n.to == kernel && !n.done && (*swept..pages.len()).any(named)
        })
    }

    pub(crate) fn drop_next(&mut self, kernel: usize) {
        let page = self.drops_next(kernel).expect("asked before");
        let pages = &mut self.kernels[kernel].pages;
        if let Page::Dirty(content) = pages[page] {
            pages[page] = Page::Sent(content);
            return;
        }
        pages[page] = Page::Gone;
        self.kernels[kernel].swept = page + 1;
        let same = |n: &&mut Notice| n.to == kernel && n.thing == Thing::Page(page);
        self.notices.iter_mut().filter(same).for_each(|n| n.done = true);
        self.notices.sort_unstable();
        self.notices.dedup();
        if !self.sweeps(kernel) {
            self.kernels[kernel].swept = 0;
        }
    }

    /// A kernel sends a page that a program stored to.
    pub(crate) fn flush(&mut self, kernel: usize, page: usize) {
        if let Page::Dirty(content) = self.kernels[kernel].pages[page] {
            self.kernels[kernel].pages[page] = Page::Sent(content);
        }
    }

    /// The Runtime takes it. It waits for no notice, but what the change owes is remembered.
    pub(crate) fn take(&mut self, config: &Config, kernel: usize, page: usize) {
        let Page::Sent(content) = self.kernels[kernel].pages[page] else { return };
        let thing = Thing::Page(page);
        let before = self.truth.of(thing);
        // What others wrote to the page since this kernel read it is overwritten.
        self.ghost.lost |= before & !content;
        self.truth.things[thing.place()] = content;
        self.truth.add(Thing::Attributes, content & !before);
        self.remember_page(kernel, page);
        self.collect(&[thing, Thing::Attributes], kernel, For::Debt(kernel));
        self.kernels[kernel].pages[page] = match config.has(Mutation::KernelsPagesWait) {
            true => Page::Waits(content),
            false => Page::Mapped(content),
        };
    }

    /// May the request of a page be answered that waits for its notices (planted fault only)?
    pub(crate) fn may_release(&self, kernel: usize, page: usize) -> bool {
        let waits = matches!(self.kernels[kernel].pages[page], Page::Waits(_));
        waits && !self.notices.iter().any(|n| n.by == For::Debt(kernel))
    }

    pub(crate) fn release(&mut self, kernel: usize, page: usize) {
        if let Page::Waits(content) = self.kernels[kernel].pages[page] {
            self.kernels[kernel].pages[page] = Page::Mapped(content);
        }
    }
}
