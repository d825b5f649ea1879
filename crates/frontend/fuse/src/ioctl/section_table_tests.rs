use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

const INO: InodeNr = 12;

/// The Runtime, as far as sections of one file go.
#[derive(Default)]
struct Runtime {
    section: Option<SectionId>,
    drawn: u64,
}

impl Runtime {
    fn start(&mut self) -> Option<SectionId> {
        if self.section.is_some() {
            return None;
        }
        self.drawn += 1;
        self.section = Some(SectionId(self.drawn));
        self.section
    }

    /// Ends the section, by a commit or without a trace; was it there?
    fn end(&mut self, id: SectionId) -> bool {
        let is = self.section == Some(id);
        if is {
            self.section = None;
        }
        is
    }
}

/// What a thread does next; each is one hold of one lock.
enum Next<'a> {
    KeepPlace,
    Start(Place<'a>),
    Started(Place<'a>, SectionId),
    GiveUp(Place<'a>),
    LookUp,
    Commit(SectionId),
    Committed(SectionId),
    End,
    Remove(SectionId),
    Abort(SectionId, Vec<Then>),
    Nothing,
}

/// A thread that calls by its own handle.
struct Thread<'a> {
    handle: Handle,
    /// It commits what it has started.
    commits: bool,
    next: Next<'a>,
}

/// One file's sections in table and Runtime, and how many answers are outstanding.
struct World<'a> {
    table: &'a Sections,
    runtime: Runtime,
    waiting: Arc<AtomicU32>,
}

impl<'a> World<'a> {
    fn step(&mut self, thread: &mut Thread<'a>) {
        let after_start = if thread.commits { Next::LookUp } else { Next::Nothing };
        thread.next = match std::mem::replace(&mut thread.next, Next::Nothing) {
            Next::KeepPlace => match self.table.keep_place(INO, thread.handle, 1) {
                Some(place) => Next::Start(place),
                None => Next::Nothing,
            },
            Next::Start(place) => {
                assert!(self.table.of(INO, thread.handle).is_none(), "it has not started");
                match self.runtime.start() {
                    Some(id) => Next::Started(place, id),
                    None => Next::GiveUp(place),
                }
            }
            Next::Started(place, id) => {
                place.started(id);
                assert_eq!(self.table.of(INO, thread.handle), Some(id), "it is open");
                after_start
            }
            Next::GiveUp(place) => {
                drop(place);
                Next::Nothing
            }
            Next::LookUp => match self.table.of(INO, thread.handle) {
                Some(id) => Next::Commit(id),
                None => Next::Nothing,
            },
            Next::Commit(id) => match self.runtime.end(id) {
                true => Next::Committed(id),
                false => Next::Nothing,
            },
            Next::Committed(id) => {
                self.table.remove_committed(INO, id);
                Next::Nothing
            }
            Next::End => self.end(thread.handle),
            Next::Remove(id) => {
                let ended = self.table.remove(INO, id);
                Next::Abort(id, ended.map(Section::waiting).unwrap_or_default())
            }
            Next::Abort(id, waiting) => {
                self.runtime.end(id);
                waiting.into_iter().for_each(|then| then());
                Next::Nothing
            }
            Next::Nothing => Next::Nothing,
        };
    }

    fn end(&mut self, handle: Handle) -> Next<'a> {
        let waiting = self.waiting.clone();
        waiting.fetch_add(1, Ordering::SeqCst);
        let then = Box::new(move || assert!(waiting.fetch_sub(1, Ordering::SeqCst) > 0));
        match self.table.end(INO, handle, then) {
            Ok(Some((id, _))) => Next::Remove(id),
            Ok(None) => Next::Nothing,
            Err(then) => {
                then();
                Next::Nothing
            }
        }
    }
}

/// What a thread begins with, by which handle, and whether it commits.
type Begins = (fn() -> Next<'static>, u64, bool);

/// Runs the threads in every order of their steps; returns how many orders there are. `order` says
/// at each step which of the threads that are not done goes on, and is counted up like a number.
fn in_every_order(threads: &[Begins]) -> u32 {
    let (mut order, mut count): (Vec<(usize, usize)>, _) = (Vec::new(), 0);
    loop {
        run(threads, &mut order);
        count += 1;
        while order.pop_if(|(chosen, of)| *chosen + 1 == *of).is_some() {}
        match order.last_mut() {
            Some((chosen, _)) => *chosen += 1,
            None => return count,
        }
    }
}

fn run(threads: &[Begins], order: &mut Vec<(usize, usize)>) {
    let table = Sections::default();
    let mut world = World { table: &table, runtime: Runtime::default(), waiting: Arc::default() };
    let begin = |(next, handle, commits): &Begins| Thread {
        handle: Handle(*handle),
        commits: *commits,
        next: next(),
    };
    let mut threads: Vec<Thread<'_>> = threads.iter().map(begin).collect();
    for depth in 0.. {
        let busy = |t: &&mut Thread<'_>| !matches!(t.next, Next::Nothing);
        let mut busy: Vec<_> = threads.iter_mut().filter(busy).collect();
        if busy.is_empty() {
            break;
        }
        if depth == order.len() {
            order.push((0, busy.len()));
        }
        let chosen = order[depth].0;
        world.step(busy[chosen]);
        let known = table.table().get(&INO).and_then(Section::id);
        let kept = table.table().contains_key(&INO);
        // One that is aborted leaves the table first; who starts another meanwhile is refused.
        let aborted = threads.iter().any(|t| matches!(t.next, Next::Abort(..)));
        let known_of = kept || aborted;
        assert!(world.runtime.section.is_none() || known_of, "a section that no table knows of");
        assert!(table.none() != kept, "counted");
        assert!(known.is_none_or(|id| id.0 <= world.runtime.drawn));
    }
    let left = table.table().get(&INO).and_then(Section::id);
    assert_eq!(left, world.runtime.section, "table and Runtime agree in the end");
    assert_eq!(world.waiting.load(Ordering::SeqCst), 0, "each end is answered once");
}

fn starts() -> Next<'static> {
    Next::KeepPlace
}

fn ends() -> Next<'static> {
    Next::End
}

/// A start may overtake the end of the commit before, or of an abort, in any order of the threads:
/// a file never has two sections, nor one that only the Runtime knows.
#[test]
fn starts_commits_and_ends_in_every_order() {
    let two: [Begins; 2] = [(starts, 1, true), (starts, 2, true)];
    assert_eq!(in_every_order(&two), 12);
    let one_handle: [Begins; 3] = [(starts, 1, true), (starts, 1, true), (starts, 1, false)];
    assert_eq!(in_every_order(&one_handle), 110);
    let aborted: [Begins; 3] = [(starts, 1, true), (ends, 1, false), (starts, 2, false)];
    assert_eq!(in_every_order(&aborted), 232);
    let twice: [Begins; 4] =
        [(starts, 1, true), (ends, 1, false), (ends, 1, false), (starts, 1, false)];
    assert_eq!(in_every_order(&twice), 4300);
}

/// A place that is kept is nobody's section yet.
#[test]
fn a_place_is_no_section() {
    let table = Sections::default();
    let place = table.keep_place(INO, Handle(1), 7).expect("the file has none");
    assert!(table.keep_place(INO, Handle(1), 7).is_none(), "it is kept");
    assert!(!table.has(INO, Handle(1)) && table.started_by(INO, 7).is_none());
    assert!(table.of_read(INO, Handle(1), false).is_none() && table.take(INO).is_none());
    assert!(table.ended_by(INO, std::process::id()).is_none());
    assert!(table.end(INO, Handle(1), Box::new(|| {})).is_err());
    drop(place);
    assert!(table.none());
    table.keep_place(INO, Handle(1), 7).expect("it was given back").started(SectionId(1));
    assert_eq!(
        (table.of(INO, Handle(1)), table.started_by(INO, 7)),
        (Some(SectionId(1)), Some(SectionId(1)))
    );
    assert!(table.remove_if(INO, SectionId(1), |_| false).is_none());
    assert!(table.remove_committed(INO, SectionId(1)).is_some() && table.none());
}
