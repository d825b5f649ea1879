//! The properties. Those of states read the state alone; those of steps are noted by the step.

use super::config::{Call, Config};
use super::model::Fronts;
use super::state::{ALL, At, Broken, EMBEDDED, For, Known, Page, Scene, Stage, THINGS, Thing};
use stateright::Property;

/// Names of properties.
pub mod names {
    /// P1 of the design.
    pub const OLDER: &str = "after a call has returned, nobody sees older state";
    /// Rule R51.
    pub const ANSWERED: &str = "every request is answered";
    /// Rule R51: the way out of a circle is none that costs somebody his mount.
    pub const ABORTED: &str = "no kernel is aborted that does what it is asked for";
    /// Rules R32 and R48, and the drain.
    pub const ALONE: &str = "a write lease is alone, and its holder lives";
    /// Rules R36 and R37.
    pub const INGESTED: &str = "what its holder was told is ingested is there";
    /// Rule R36.
    pub const AFTER_END: &str = "nothing of a lease appears after its end";
    /// R32: the count that an answer waits for.
    pub const COUNTED: &str = "an acknowledgement counts once, and while its own session lasts";
    /// Rule R49.
    pub const R49: &str = "R49: the number of a leased inode is not given away";
    /// Rule R50.
    pub const R50: &str = "R50: an append goes to the end";
}

/// All properties.
pub fn properties() -> Vec<Property<Fronts>> {
    use names::*;
    vec![
        Property::always(OLDER, |_, s: &Scene| s.ghost.holds(Broken::Older)),
        Property::always(ANSWERED, |m: &Fronts, s: &Scene| s.is_done(m.config()) || m.can_move(s)),
        Property::always(ABORTED, |_, s: &Scene| s.ghost.holds(Broken::Aborted)),
        Property::always(ALONE, |_, s: &Scene| s.lease_is_alone()),
        Property::always(INGESTED, |_, s: &Scene| {
            s.ghost.told & !s.ghost.lost & !s.truth.of(Thing::Page(0)) == 0
        }),
        Property::always(AFTER_END, |_, s: &Scene| s.ghost.holds(Broken::AfterEnd)),
        Property::always(COUNTED, |_, s: &Scene| {
            s.ghost.holds(Broken::Counted) && s.counts_are_right()
        }),
        Property::always(R49, |_, s: &Scene| s.ghost.holds(Broken::Reused)),
        Property::always(R50, |_, s: &Scene| s.ghost.holds(Broken::NotAtEnd)),
    ]
}

impl Scene {
    /// Has every program ended whose session can go on?
    fn is_done(&self, config: &Config) -> bool {
        self.clients.iter().enumerate().all(|(c, client)| {
            let session = config.session_of(c);
            let stopped = session == EMBEDDED && self.silent[EMBEDDED];
            let ended = client.at == At::Ready && self.call(config, c).is_none();
            !self.alive[session] || stopped || ended
        })
    }

    /// A lease that its holder may write under: nobody else has anything of the file, nothing of it
    /// is pending, and no section is open.
    fn lease_is_alone(&self) -> bool {
        if matches!(self.lease.stage, Stage::None | Stage::Draining) {
            return true;
        }
        let of_file = || THINGS.iter().filter(|thing| thing.is_of_file());
        let known =
            |known: &[Known; 4]| of_file().any(|thing| known[thing.place()] != Known::Nothing);
        let durable = of_file().all(|thing| self.truth.of(*thing) == self.durable.of(*thing));
        let has = |page: &Page| page.content().is_some_and(|content| content != ALL);
        let mut kernels = self.kernels.iter();
        self.alive[EMBEDDED]
            && self.section.is_none()
            && durable
            && !self.known.iter().any(known)
            && !kernels.any(|k| k.attributes.is_some() || k.pages.iter().any(has))
    }

    /// What each answer waits for, as it is counted, is what is not acknowledged.
    fn counts_are_right(&self) -> bool {
        self.clients.iter().enumerate().all(|(c, client)| {
            let open = self.notices.iter().filter(|n| n.by == For::Client(c)).count();
            client.at != At::Held || usize::from(client.owed) == open
        })
    }
}

/// Situations that a configuration must get into.
pub mod landmarks {
    /// Two writes wait for each other's pages.
    pub const CIRCLE: &str =
        "a write waits for the other one's page, and the other one for its page";
    /// A READ with older bytes is on its way while a write waits.
    pub const READING: &str = "a write waits for a page that is being read";
    /// Attributes on their way were taken back.
    pub const STALE: &str = "attributes on their way are not kept";
    /// A notice finds no inode.
    pub const STRANGER: &str = "a notice waits for the first answer of an inode";
    /// A name's notice waits for the directory's lock.
    pub const LOCKED: &str = "a name's notice waits for a directory's lock";
    /// Two creates wait for each other's directory.
    pub const DIRECTORIES: &str = "two kernels wait for each other's directory";
    /// A name is told with no validity.
    pub const NO_VALIDITY: &str = "a name changed before its answer";
    /// FSYNC waits for what the kernel's own pages owe.
    pub const DEBTS: &str = "an fsync waits for debts";
    /// A mapped page is dropped with all of the file.
    pub const MAPPED: &str = "a mapped page is dropped";
    /// A request waits for a lease.
    pub const RECALLED: &str = "a lease is recalled";
    /// A lease's drain waits.
    pub const DRAINING: &str = "a drain waits for a kernel";
    /// A lease may be ended by its term.
    pub const EXPIRED: &str = "the term of a recalled lease is over";
    /// Bytes that nobody else has seen.
    pub const PRIVATE: &str = "a lease has bytes that nobody has seen";
    /// They were published, and the word does not say valid any more.
    pub const LATE_LOOK: &str = "a holder looks too late";
    /// A lease is given back that is over.
    pub const LATE_RETURN: &str = "a lease is given back after its end";
    /// The file has no name and no handle, and a lease.
    pub const KEPT: &str = "only its lease keeps the file";
    /// An append took an older end.
    pub const OLD_END: &str = "an append took an older end";
    /// A kernel has been told a size after an append took its offset.
    pub const TOLD: &str = "a kernel is told the size between an append's offset and its request";
}

/// Is this state such a situation?
pub(crate) fn is_at(config: &Config, s: &Scene, landmark: &str) -> bool {
    use landmarks::*;
    let waits =
        |thing: fn(&Thing) -> bool| s.notices.iter().filter(move |n| !n.done && thing(&n.thing));
    let pages = || waits(|thing| matches!(thing, Thing::Page(_)));
    let page = |to: usize, thing: Thing| match thing {
        Thing::Page(page) => s.kernels[to].pages[page],
        _ => Page::Gone,
    };
    let client = |call: fn(Call) -> bool, at: At| {
        let is = move |c: &usize| s.call(config, *c).is_some_and(call) && s.clients[*c].at == at;
        (0..s.clients.len()).filter(is).collect::<Vec<_>>()
    };
    match landmark {
        CIRCLE => {
            let locked = |n: &&_| {
                let n: &super::state::Notice = n;
                matches!(page(n.to, n.thing), Page::Writing(_)) && matches!(n.by, For::Client(_))
            };
            let locked: Vec<_> = pages().filter(locked).collect();
            locked.iter().any(|n| n.to == 0) && locked.iter().any(|n| n.to == 1)
        }
        READING => pages().any(|n| matches!(page(n.to, n.thing), Page::Reading(_))),
        STALE => client(|c| c == Call::Stat, At::Answered).iter().any(|c| s.clients[*c].stale),
        STRANGER => waits(|thing| *thing == Thing::Attributes).any(|n| !s.kernels[n.to].has_inode),
        LOCKED => waits(|thing| *thing == Thing::Name).any(|n| s.kernels[n.to].directory.is_some()),
        DIRECTORIES => {
            let locked = |to: usize| {
                let mut names = waits(|thing| *thing == Thing::Name).filter(|n| n.to == to);
                names.any(|n| s.kernels[n.to].directory.is_some())
            };
            locked(0) && locked(1)
        }
        NO_VALIDITY => {
            client(|c| c == Call::Create, At::Answered).iter().any(|c| s.clients[*c].stale)
        }
        DEBTS => {
            let owes = s.notices.iter().any(|n| matches!(n.by, For::Debt(_)));
            owes && !client(|c| c == Call::Fsync, At::Held).is_empty()
        }
        MAPPED => pages().any(|n| matches!(page(n.to, n.thing), Page::Mapped(_))),
        RECALLED => s.lease.stage == Stage::Recalled,
        DRAINING => s.notices.iter().any(|n| n.by == For::Lease),
        EXPIRED => s.lease.stage == Stage::Recalled && !s.lease.fresh,
        PRIVATE => s.lease.is_valid() && s.lease.published & s.ghost.returned != 0,
        LATE_LOOK => !s.lease.is_valid() && !client(|_| true, At::Published).is_empty(),
        LATE_RETURN => {
            let returns = !client(|c| c == Call::Return, At::Sent).is_empty();
            s.lease.stage == Stage::None && returns
        }
        KEPT => s.lease.stage != Stage::None && !s.truth.linked && !s.open,
        OLD_END => {
            let old = |c: &usize| s.clients[*c].offset < s.truth.end;
            client(|c| matches!(c, Call::Append(_)), At::Sent).iter().any(old)
        }
        TOLD => {
            let told = |c: &usize| {
                let kernel = s.kernels.get(config.session_of(*c));
                kernel.is_some_and(|k| s.clients[*c].offset < k.size)
            };
            client(|c| matches!(c, Call::Append(_)), At::Sent).iter().any(told)
        }
        _ => unreachable!("no landmark has this name: {landmark}"),
    }
}
