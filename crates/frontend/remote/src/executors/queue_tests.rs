use super::*;
use std::collections::HashMap;

/// A queue with a clock of its own. Commands take what the test says.
struct Model {
    queue: Queue,
    now: Duration,
    /// Those at work: when they end, and what they take.
    at_work: BTreeMap<Ticket, (SessionNr, Duration, Duration)>,
    cost: HashMap<Ticket, (SessionNr, Duration)>,
    /// All that have started, in order.
    order: Vec<(SessionNr, Ticket)>,
}

impl Model {
    fn new(schedule: Schedule, executors: usize) -> Self {
        let (at_work, cost, order) = Default::default();
        Self { queue: Queue::new(schedule, executors), now: Duration::ZERO, at_work, cost, order }
    }

    /// Some commands of the same length.
    fn flood(&mut self, session: SessionNr, count: u64, micros: u64) {
        for _ in 0..count {
            self.arrive(session, micros);
        }
    }

    fn arrive(&mut self, session: SessionNr, micros: u64) -> Ticket {
        self.arrive_of(session, micros, false)
    }

    fn arrive_of(&mut self, session: SessionNr, micros: u64, brief: bool) -> Ticket {
        let ticket = self.queue.arrive(session, (Touches::Nothing, brief), self.now).unwrap();
        self.cost.insert(ticket, (session, Duration::from_micros(micros)));
        self.start();
        ticket
    }

    fn start(&mut self) {
        while let Some(ticket) = self.queue.start(self.now) {
            let (session, cost) = self.cost[&ticket];
            self.at_work.insert(ticket, (session, self.now + cost, cost));
            self.order.push((session, ticket));
        }
    }

    /// The clock goes to the end of the command that ends first; which session's was it?
    fn step(&mut self) -> Option<SessionNr> {
        let (ticket, (session, end, cost)) =
            self.at_work.iter().min_by_key(|(_, (_, end, _))| *end).map(|(t, all)| (*t, *all))?;
        self.at_work.remove(&ticket);
        self.now = self.now.max(end);
        self.queue.end(session, ticket, self.now, cost);
        self.start();
        Some(session)
    }

    /// Commands of others that started since `from` and before this one; it has to start.
    fn before(&mut self, from: usize, ticket: Ticket) -> usize {
        loop {
            let started = self.order[from..].iter().position(|(_, one)| *one == ticket);
            if let Some(at) = started {
                return at;
            }
            self.step().expect("it starts at last");
        }
    }
}

#[test]
fn no_more_are_at_work_than_there_are_executors() {
    for schedule in [Schedule::Fcfs, Schedule::Fair] {
        let mut model = Model::new(schedule, 3);
        let sessions = [(); 4].map(|()| model.queue.open());
        for n in 0..400 {
            model.arrive(sessions[n % 4], 10 + n as u64 % 7);
            assert!(model.at_work.len() <= 3);
        }
        assert_eq!(model.at_work.len(), 3);
        while model.step().is_some() {
            assert!(model.at_work.len() <= 3);
        }
        assert_eq!(model.order.len(), 400);
        assert!(!model.queue.waits());
    }
}

#[test]
fn fcfs_is_the_order_of_arrival() {
    let mut model = Model::new(Schedule::Fcfs, 1);
    let (long, short) = (model.queue.open(), model.queue.open());
    model.flood(long, 64, 10_000);
    let from = model.order.len();
    let read = model.arrive(short, 10);
    assert_eq!(model.before(from, read), 63, "it waits for all that came before");
}

/// A read beside a session that floods with long commands: what is at work ends, and no more.
#[test]
fn fair_lets_a_read_past_a_queue_of_long_commands() {
    for executors in [1, 2, 4] {
        let mut model = Model::new(Schedule::Fair, executors);
        let (long, short) = (model.queue.open(), model.queue.open());
        model.flood(long, 64, 10_000);
        for n in 0..100 {
            let from = model.order.len();
            let read = model.arrive(short, 10);
            let before = model.before(from, read);
            assert!(before <= usize::from(n == 0), "{before} before read {n}");
            // It ends, and the flood goes on.
            while model.at_work.contains_key(&read) {
                if model.step() == Some(long) {
                    model.arrive(long, 10_000);
                }
            }
        }
    }
}

/// The same beside many sessions with a long command each: a read waits for none of their turns,
/// also with one executor.
#[test]
fn fair_lets_a_read_past_many_sessions_with_long_commands() {
    let mut model = Model::new(Schedule::Fair, 1);
    let longs = [(); 8].map(|()| model.queue.open());
    let short = model.queue.open();
    longs.iter().for_each(|long| model.flood(*long, 1, 10_000));
    let go_on = |model: &mut Model| {
        let ended = model.step().unwrap();
        if longs.contains(&ended) {
            model.arrive(ended, 10_000);
        }
    };
    (0..20).for_each(|_| go_on(&mut model));
    for n in 0..100 {
        let from = model.order.len();
        let read = model.arrive(short, 10);
        while !model.at_work.contains_key(&read) {
            go_on(&mut model);
        }
        assert_eq!(model.order.len() - from, 1, "others before read {n}");
        while model.at_work.contains_key(&read) {
            go_on(&mut model);
        }
    }
    // Nor do sessions of short commands keep a long one back for ever.
    let from = model.order.len();
    let shorts = [(); 10].map(|()| model.queue.open());
    shorts.iter().for_each(|short| model.flood(*short, 2, 20));
    for _ in 0..20_000 {
        let ended = model.step().unwrap();
        let micros = if longs.contains(&ended) { 10_000 } else { 20 };
        model.arrive(ended, micros);
    }
    let of_longs = model.order[from..].iter().filter(|(session, _)| longs.contains(session));
    assert!(of_longs.count() > 10);
}

/// With two executors a read does not even wait for what is at work.
#[test]
fn long_sessions_leave_an_executor_free() {
    let mut model = Model::new(Schedule::Fair, 3);
    let longs = [(); 4].map(|()| model.queue.open());
    longs.iter().for_each(|long| model.flood(*long, 1, 10_000));
    assert_eq!(model.at_work.len(), 3, "nobody knows yet");
    for _ in 0..4 {
        model.step();
    }
    // From here on it is known of all of them.
    for long in longs.into_iter().cycle().take(64) {
        model.arrive(long, 10_000);
        assert!(model.at_work.len() <= 2);
    }
    let short = model.queue.open();
    let read = model.arrive(short, 10);
    assert!(model.at_work.contains_key(&read), "it starts at once");
    // Of a single session nothing is kept.
    for session in longs.into_iter().skip(1).chain([short]) {
        model.queue.close(session);
    }
    while model.at_work.values().any(|(session, ..)| *session != longs[0]) {
        model.step();
    }
    model.flood(longs[0], 3, 10_000);
    assert_eq!(model.at_work.len(), 3);
}

/// The executor that is kept is for brief commands of long sessions, too: one that has written
/// much, and reads a little then, and one whose brief commands stand behind its own long ones.
#[test]
fn brief_commands_of_long_sessions_have_the_last_executor() {
    let mut model = Model::new(Schedule::Fair, 2);
    let (long, other) = (model.queue.open(), model.queue.open());
    model.arrive(other, 5_000);
    model.step();
    model.arrive(long, 5_000);
    model.step();
    model.flood(long, 10, 5_000);
    assert_eq!(model.at_work.len(), 1);
    for session in [other, long] {
        let read = model.arrive_of(session, 10, true);
        assert!(model.at_work.contains_key(&read), "it starts at once");
        model.step();
    }
    let longer = model.arrive(other, 10);
    assert!(!model.at_work.contains_key(&longer), "it was long a moment ago");
}

/// What is at work counts before it has ended.
#[test]
fn a_command_at_work_is_counted() {
    let mut model = Model::new(Schedule::Fair, 2);
    let (a, b) = (model.queue.open(), model.queue.open());
    model.arrive(a, 100_000);
    model.now += Duration::from_millis(2);
    model.arrive(a, 10);
    assert_eq!(model.at_work.len(), 1, "it has been at work for long, and the last one is kept");
    model.arrive(b, 10);
    assert_eq!(model.order.last().unwrap().0, b);
    // Accounts as well: of two sessions the one comes first that has nothing at work.
    let mut model = Model::new(Schedule::Fair, 2);
    let sessions = [(); 3].map(|()| model.queue.open());
    model.arrive(sessions[0], 900);
    model.arrive(sessions[2], 500);
    model.arrive(sessions[0], 10);
    model.now += Duration::from_micros(450);
    model.arrive(sessions[1], 10);
    model.step();
    assert_eq!(model.order[2].0, sessions[1]);
}

/// Sessions with any lengths of commands have the same processor time while all of them want more.
#[test]
fn fair_shares_processor_time() {
    let mut model = Model::new(Schedule::Fair, 1);
    let lengths = [30, 70, 450, 900];
    let sessions = lengths.map(|_| model.queue.open());
    (0..lengths.len()).for_each(|at| model.flood(sessions[at], 3, lengths[at]));
    let mut used = [0; 4];
    while model.now < Duration::from_secs(1) {
        let ended = model.step().unwrap();
        let at = sessions.iter().position(|session| *session == ended).unwrap();
        used[at] += lengths[at];
        model.arrive(sessions[at], lengths[at]);
    }
    let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    assert!(most - least < 4 * 900, "{used:?}");
}

/// A debt is paid by rounds of others' turns, or by time without work.
#[test]
fn a_debt_stays_while_a_session_goes_on() {
    let others_before = |idle| {
        let mut model = Model::new(Schedule::Fair, 1);
        let (a, b) = (model.queue.open(), model.queue.open());
        model.arrive(a, 800);
        model.step();
        model.now += idle;
        let from = model.order.len();
        model.flood(b, 200, 10);
        let late = model.arrive(a, 10);
        model.before(from, late)
    };
    // Of 800 it had 100 of its first round: ten commands of the other pay for each further 100.
    assert!((70..=90).contains(&others_before(Duration::ZERO)));
    assert!(others_before(Duration::from_micros(400)) <= 50);
    assert!(others_before(Duration::from_millis(1)) <= 20);
}

#[test]
fn a_command_that_waits_lends_its_executor() {
    let mut model = Model::new(Schedule::Fair, 1);
    let (a, b) = (model.queue.open(), model.queue.open());
    let waits = model.arrive(a, 10);
    let other = model.arrive(b, 10);
    assert!(!model.at_work.contains_key(&other));
    assert!(model.queue.lend(a, waits, true) && !model.queue.lend(a, waits, true));
    model.start();
    assert!(model.at_work.contains_key(&other));
    // It works again: two are at work, and nothing is started before both have ended.
    assert!(model.queue.lend(a, waits, false));
    let third = model.arrive(b, 10);
    model.step();
    assert!(!model.at_work.contains_key(&third));
    model.step();
    assert!(model.at_work.contains_key(&third));
    assert!(!model.queue.lend(a, waits, true), "it has ended");
}

/// One that ends while it lends gives nothing back that it has not.
#[test]
fn the_end_of_a_command_that_lends_frees_no_executor() {
    let mut model = Model::new(Schedule::Fcfs, 1);
    let session = model.queue.open();
    let waits = model.arrive(session, 10);
    assert!(model.queue.lend(session, waits, true));
    model.flood(session, 3, 20);
    assert_eq!(model.at_work.len(), 2);
    model.step();
    assert_eq!(model.at_work.len(), 1);
    while model.step().is_some() {}
    assert_eq!(model.order.len(), 4);
}

/// A session's end takes what waits out of the queue, and its executors when they are done.
#[test]
fn a_session_that_ends_leaves_the_queue() {
    let mut model = Model::new(Schedule::Fair, 1);
    let (a, b) = (model.queue.open(), model.queue.open());
    let first = model.arrive(a, 50);
    let waits = [model.arrive(a, 10), model.arrive(a, 10)];
    let other = model.arrive(b, 10);
    assert_eq!(model.queue.close(a), waits);
    assert_eq!(model.queue.arrive(a, (Touches::Nothing, false), model.now), None);
    assert!(model.at_work.contains_key(&first));
    model.step();
    assert!(model.at_work.contains_key(&other));
    assert_eq!(model.queue.sessions.len(), 1, "the other one is left");
    assert!(!model.queue.waits());
    assert!(model.queue.close(b).is_empty());
    model.step();
    assert!(model.queue.sessions.is_empty());
}
