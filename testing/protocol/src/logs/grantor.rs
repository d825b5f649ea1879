//! The grantor: what it does for a session, one thing at a time, and in which steps.

use super::config::{Call, Config, Mutation, Who};
use super::state::{
    At, Client, Daemon, FILES, Job, Kind, Leased, Medium, Row, Said, Slot, Step, World,
};

/// The end of leases.
const END: &[Step] =
    &[Step::Recall, Step::Ingest, Step::Ended, Step::Sync, Step::Unlog, Step::GiveBack];

/// A log is given up, because the registry cannot be written.
fn giving_up(config: &Config) -> &'static [Step] {
    match config.mutation {
        Some(Mutation::GivenUpUntold) => &[Step::Ingest, Step::Sync, Step::Empty],
        Some(Mutation::GivenUpBeforeSync) => {
            &[Step::Uncover, Step::Ingest, Step::Empty, Step::Sync]
        }
        Some(Mutation::GivenUpFull) => &[Step::Uncover, Step::Ingest, Step::Sync],
        _ => &[Step::Uncover, Step::Ingest, Step::Sync, Step::Empty],
    }
}

/// The steps of a job.
fn steps(config: &Config, kind: Kind) -> Vec<Step> {
    use Step::{
        Answer, BeginWord, Cover, DropFile, DropRow, Ended, Forget, GiveBack, Ingest, MakeRow,
        Name, Pass, Recall, Register, Sync, Unlog,
    };
    let end = || match config.mutation {
        Some(Mutation::HeadBeforeWord) => vec![Ingest, Recall, Ended, Sync, Unlog, GiveBack],
        Some(Mutation::ReturnBeforeUnlogged) => {
            vec![Recall, Ingest, Ended, Sync, GiveBack, Unlog]
        }
        Some(Mutation::UnlogBeforeSync) => vec![Recall, Ingest, Ended, Unlog, Sync, GiveBack],
        Some(Mutation::NeverUnlogged) => vec![Recall, Ingest, Ended, Sync, GiveBack],
        _ => END.to_vec(),
    };
    match kind {
        Kind::Recall | Kind::Return => end(),
        Kind::Sync if config.has(Mutation::SyncKeepsLeases) => vec![Ingest, Answer],
        Kind::Sync => [end(), vec![Answer]].concat(),
        Kind::Finish if config.has(Mutation::FileBeforeRow) => {
            [end(), vec![DropFile, DropRow]].concat()
        }
        Kind::Finish => [end(), vec![DropRow, DropFile]].concat(),
        Kind::Promise => match config.mutation {
            Some(Mutation::NamedLate) => {
                vec![Ingest, Sync, Forget, BeginWord, Register, Cover, Answer, Name]
            }
            Some(Mutation::BeginBeforeSync) => {
                vec![Ingest, Forget, BeginWord, Sync, Register, Cover, Answer]
            }
            Some(Mutation::PromiseKeepsLog) => vec![Ingest, Sync, Register, Cover, Answer],
            Some(Mutation::RegisterAfterAnswer) => {
                vec![Ingest, Sync, Forget, BeginWord, Cover, Answer, Register]
            }
            Some(Mutation::RegisterBeforeForget) => {
                vec![Ingest, Sync, Register, Forget, BeginWord, Cover, Answer]
            }
            _ => vec![Ingest, Sync, Forget, BeginWord, Register, Cover, Answer],
        },
        Kind::Forget if config.has(Mutation::ForgotBeforeRow) => {
            vec![Ingest, Sync, BeginWord, Forget]
        }
        Kind::Forget if config.has(Mutation::BeginBeforeSync) => {
            vec![Ingest, Forget, BeginWord, Sync]
        }
        Kind::Forget => vec![Ingest, Sync, Forget, BeginWord],
        Kind::Age => vec![Ingest],
        Kind::Make if config.has(Mutation::NamedLate) => vec![MakeRow, Pass],
        Kind::Make => vec![MakeRow, Name, Pass],
        Kind::Lease => unreachable!("it is one step"),
    }
}

/// The files of a set.
fn files(set: u8) -> impl Iterator<Item = usize> {
    (0..FILES).filter(move |file| set & 1 << file != 0)
}

impl World {
    /// What the grantor may begin, and for whom.
    pub(crate) fn may_start(&self, config: &Config, out: &mut Vec<(Kind, Option<usize>)>) {
        if self.daemon != Daemon::Up || self.over || self.job.is_some() {
            return;
        }
        let unmounts = |c: usize| {
            let unmount = self.call(config, c) == Some(Call::Unmount);
            unmount && self.clients[c].at == At::Sent
        };
        if !self.program.alive || (0..self.clients.len()).any(unmounts) {
            out.push((Kind::Finish, None));
        }
        out.extend(self.leases.contains(&Leased::Recalled).then_some((Kind::Recall, None)));
        out.extend(self.program.forget.map(|_| (Kind::Forget, None)));
        let waiting = self.ring.tail < self.ring.head();
        out.extend((config.ages && waiting).then_some((Kind::Age, None)));
        for client in 0..self.clients.len() {
            let kind = match (self.call(config, client), self.clients[client].at) {
                (Some(Call::Lease(_)), At::Asked) => Kind::Lease,
                (Some(Call::Return(_)), At::Asked) => Kind::Return,
                (Some(Call::Fsync(_)), At::Asked) if self.program.medium == Medium::Unknown => {
                    Kind::Make
                }
                (Some(Call::Fsync(_)), At::Asked) => Kind::Promise,
                (Some(Call::Sync), At::Sent) => Kind::Sync,
                _ => continue,
            };
            out.push((kind, Some(client)));
        }
    }

    pub(crate) fn start(&mut self, config: &Config, kind: Kind, client: Option<usize>) {
        let file = client.and_then(|c| self.call(config, c)).and_then(Call::file);
        match (kind, client, file) {
            (Kind::Lease, Some(client), Some(file)) => return self.grant(client, file),
            (Kind::Promise, Some(client), Some(file)) if !self.lasts(client, file) => {
                return self.refuse(client, file);
            }
            (Kind::Return, Some(client), Some(file)) if !self.lasts(client, file) => {
                self.errors[file] = false;
                return self.returned(client, 1 << file);
            }
            _ => {}
        }
        let set = |is: &dyn Fn(usize) -> bool| {
            (0..FILES).filter(|f| is(*f)).fold(0, |set, f| set | 1 << f)
        };
        let lasting = |f: usize| self.words.slots[f].said == Said::Granted;
        let ends = match kind {
            Kind::Recall => set(&|f| lasting(f) && self.leases[f] == Leased::Recalled),
            Kind::Return => set(&|f| lasting(f) && Some(f) == file),
            Kind::Sync => set(&|f| lasting(f) && self.is_logged(f)),
            Kind::Finish => set(&lasting),
            _ => 0,
        };
        let end = match kind {
            Kind::Forget => self.program.forget.take().expect("seen before"),
            // What could not be written lies before the position, too.
            _ if self.program.medium == Medium::Daemon
                && config.has(Mutation::FailedBatchStays) =>
            {
                self.program.position - 1
            }
            _ => self.program.position,
        };
        let order = self.words.order;
        self.job = Some(Job { kind, done: 0, giving: 0, ends, order, end, client, file });
        self.pass(config);
    }

    /// Does the lease last that this client names?
    fn lasts(&self, client: usize, file: usize) -> bool {
        self.is_granted(file, self.clients[client].number)
    }

    /// Is the file's lease in the row?
    pub(crate) fn is_logged(&self, file: usize) -> bool {
        let number = self.words.slots[file].number;
        number != 0 && self.logged[file] == number
    }

    /// An fsync of a lease that has ended: an error that was not told, or the kernel's way.
    fn refuse(&mut self, client: usize, file: usize) {
        match std::mem::take(&mut self.errors[file]) {
            true => self.returns(client),
            false => self.clients[client].at = At::Sent,
        }
    }

    /// Grants the lease of a file that has no lease. The Runtime makes durable what it has of the
    /// file before that.
    fn grant(&mut self, client: usize, file: usize) {
        if self.leases[file] == Leased::No {
            self.leases[file] = Leased::Yes;
            self.begin_lease(file);
        }
        self.returns(client);
    }

    /// The lease's memory, on both sides.
    pub(crate) fn begin_lease(&mut self, file: usize) {
        self.drawn += 1;
        let number = self.drawn;
        self.files[file].sync();
        let said = Said::Granted;
        self.words.slots[file] = Slot { number, said, ..Slot::default() };
        self.program.held[file] = number;
        self.program.base[file] = self.files[file].now;
        self.ring.sizes[file] = self.files[file].now;
    }

    /// The job's next step.
    pub(crate) fn next(&self, config: &Config) -> Option<Step> {
        let job = self.job?;
        match job.giving {
            0 => steps(config, job.kind).get(job.done).copied(),
            giving => giving_up(config).get(giving - 1).copied(),
        }
    }

    /// The step is done.
    fn advance(&mut self, config: &Config) {
        let Some(job) = &mut self.job else { return };
        match job.giving {
            0 => job.done += 1,
            giving if giving == giving_up(config).len() => job.giving = 0,
            _ => job.giving += 1,
        }
    }

    /// Passes over steps that do nothing, and ends a job that has no more.
    fn pass(&mut self, config: &Config) {
        while self.job.is_some() {
            match self.next(config) {
                None => self.job = None,
                Some(step) if self.is_idle(config, step) => self.advance(config),
                Some(_) => return,
            }
        }
    }

    /// Would this step change nothing?
    fn is_idle(&self, config: &Config, step: Step) -> bool {
        let Some(Job { ends, kind, end, file, giving, .. }) = self.job else { return true };
        let logged = || files(ends).any(|f| self.is_logged(f));
        match step {
            Step::Recall | Step::Ended | Step::GiveBack => ends == 0,
            Step::Ingest => self.ring.tail == self.ring.head(),
            Step::Sync if giving > 0 => (0..FILES).all(|f| !self.is_logged(f)),
            Step::Sync if matches!(kind, Kind::Promise | Kind::Forget) => false,
            Step::Sync if config.has(Mutation::UnlogBeforeSync) => ends == 0,
            Step::Sync | Step::Unlog => !logged(),
            Step::Forget => self.failed || self.disk.row.is_none_or(|row| row.begin >= end),
            Step::BeginWord => self.words.begin >= end,
            Step::Register => {
                let there = file.is_some_and(|f| self.is_logged(f));
                there || self.failed || self.disk.row.is_none()
            }
            Step::Cover => {
                let early = config.has(Mutation::RegisterAfterAnswer);
                !early && file.is_none_or(|f| !self.is_logged(f))
            }
            Step::DropRow => self.disk.row.is_none(),
            Step::DropFile | Step::Answer | Step::Uncover | Step::Empty => false,
            Step::Name => self.disk.named,
            Step::MakeRow | Step::Pass => false,
        }
    }

    /// May the grantor take its next step? It never asks what the program does.
    pub(crate) fn may_step(&self, config: &Config) -> bool {
        let about = |c: &Client| matches!(c.at, At::Filled | At::Headed | At::Published);
        let asks = self.next(config) == Some(Step::Ended) && config.has(Mutation::AsksTheHolder);
        self.job.is_some() && !(asks && self.clients.iter().any(about))
    }

    /// The grantor takes its next step.
    pub(crate) fn step(&mut self, config: &Config) {
        let step = self.next(config).expect("asked before");
        let job = self.job.expect("asked before");
        let file = job.file;
        match step {
            Step::Recall => self.say(job.ends, Said::Recalled),
            Step::Ingest => self.ingest(config, job.kind, None),
            Step::Ended => {
                self.say(job.ends, Said::Ended);
                files(job.ends).for_each(|f| self.words.slots[f].ingested = self.ring.tail);
            }
            Step::Sync => self.sync_for(config, &job, file),
            Step::Unlog | Step::Forget | Step::Register => self.change_row(step, true),
            Step::GiveBack => self.give_back(&job),
            Step::BeginWord => self.words.begin = self.words.begin.max(job.end),
            Step::Cover => {
                let late = config.has(Mutation::OrderReadLate);
                let order = if late { self.words.order } else { job.order };
                self.words.slots[file.expect("an fsync has its file")].covered = order;
            }
            Step::Answer => self.answer_job(&job, file),
            Step::MakeRow => {
                self.disk.row = Some(Row::default());
                self.disk.log = Some(Default::default());
            }
            Step::Name => self.disk.named = true,
            Step::Pass => {
                // The fsync that asked for it is asked next.
                self.program.medium = Medium::File;
            }
            Step::Uncover => self.words.slots.iter_mut().for_each(|slot| slot.covered = 0),
            Step::Empty => self.empty(config),
            Step::DropRow => self.disk.row = None,
            Step::DropFile => {
                self.disk.log = None;
                self.over = true;
            }
        }
        self.advance(config);
        self.pass(config);
    }

    /// The registry's row is written, or not, and the grantor knows it by now.
    fn change_row(&mut self, step: Step, written: bool) {
        let job = self.job.expect("asked before");
        let file = job.file.unwrap_or_default();
        let number = self.words.slots[file].number;
        match step {
            Step::Unlog => files(job.ends).for_each(|f| self.logged[f] = 0),
            Step::Register if !self.failed => self.logged[file] = number,
            _ => {}
        }
        let Some(row) = self.disk.row.as_mut().filter(|_| written) else { return };
        match step {
            Step::Unlog => files(job.ends).for_each(|f| row.leases[f] = 0),
            Step::Register => row.leases[file] = number,
            _ => row.begin = row.begin.max(job.end),
        }
    }

    /// Is the grantor about to write the row?
    pub(crate) fn writes_row(&self, config: &Config) -> bool {
        matches!(self.next(config), Some(Step::Unlog | Step::Forget | Step::Register))
    }

    /// It cannot, and either row may lie there: the log is given up.
    pub(crate) fn row_fails(&mut self, config: &Config, written: bool) {
        let step = self.next(config).expect("asked before");
        self.failed = true;
        self.change_row(step, written);
        let job = self.job.as_mut().expect("asked before");
        (job.done, job.giving) = (job.done + 1, 1);
        self.pass(config);
    }

    /// The log has nothing any more, and its program writes elsewhere.
    fn empty(&mut self, config: &Config) {
        self.logged = [0; FILES];
        self.disk.log = Some(Default::default());
        self.program.detached = !config.has(Mutation::EmptiedInPlace);
    }

    fn say(&mut self, set: u8, said: Said) {
        files(set).for_each(|f| self.words.slots[f].said = said);
    }

    /// What is published becomes the files', of leases that last. The Runtime cannot write `fails`.
    pub(crate) fn ingest(&mut self, config: &Config, kind: Kind, fails: Option<usize>) {
        let durable = kind == Kind::Finish && config.has(Mutation::IngestTheDurable);
        let head = if durable { self.ring.logged } else { self.ring.head() };
        for record in self.ring.records[..usize::from(head)].iter().skip(self.ring.tail.into()) {
            let slot = self.words.slots[record.file];
            let lasts = slot.number == record.number && slot.said != Said::Ended;
            // The Runtime takes nothing of a lease that it has ended.
            let lasts = lasts && self.leases[record.file] != Leased::No;
            if lasts && fails != Some(record.file) {
                self.files[record.file].now = record.version;
            }
        }
        self.ring.tail = self.ring.tail.max(head);
    }

    /// May the Runtime be unable to write what is taken in of this file?
    pub(crate) fn may_fail(&self, config: &Config, file: usize) -> bool {
        let waits = self.ring.records.iter().skip(self.ring.tail.into());
        let number = self.words.slots[file].number;
        let mut own = waits.filter(|r| (r.file, r.number) == (file, number));
        let ends = self.job.is_some_and(|job| job.ends & 1 << file != 0);
        self.next(config) == Some(Step::Ingest) && ends && own.next().is_some()
    }

    /// It cannot: the next fsync is told, and till then nothing of it was promised.
    pub(crate) fn fail(&mut self, config: &Config, file: usize) {
        let job = self.job.expect("asked before");
        self.ingest(config, job.kind, Some(file));
        self.errors[file] = true;
        let there = self.files[file].now;
        let number = self.words.slots[file].number;
        let own = self.ring.records.iter().filter(|r| (r.file, r.number) == (file, number));
        let newest = own.map(|r| r.version).max().unwrap_or(0);
        let ghost = &mut self.ghost;
        ghost.lost[file] = newest;
        // What others are to see was never there; an fsync that is under way is told nonetheless.
        let others = (0..self.clients.len()).filter(|c| config.who(*c) == Who::Mount);
        others.for_each(|c| {
            let needs = &mut self.clients[c].needs[file];
            *needs = there.min(*needs);
        });
        for floor in [&mut ghost.returned, &mut ghost.wrote, &mut ghost.promised] {
            floor[file] = floor[file].min(there);
        }
        self.advance(config);
        self.pass(config);
    }

    /// The Runtime's fsync of files that the log counts for, and of the one that is asked for.
    fn sync_for(&mut self, config: &Config, job: &Job, file: Option<usize>) {
        let own = |f: &usize| job.kind == Kind::Promise && Some(*f) == file;
        let alone = config.has(Mutation::SyncOwnAlone) && job.kind == Kind::Promise;
        let of_job = |f: &usize| match job.kind {
            _ if job.giving > 0 => self.is_logged(*f),
            Kind::Promise | Kind::Forget => own(f) || self.is_logged(*f) && !alone,
            _ => job.ends & 1 << f != 0,
        };
        let synced: Vec<_> = (0..FILES).filter(of_job).collect();
        if !synced.is_empty() {
            self.sync(&synced);
        }
    }

    /// The Runtime's lease ends, and who waited for the file goes on.
    fn give_back(&mut self, job: &Job) {
        files(job.ends).for_each(|f| self.leases[f] = Leased::No);
        if let (Kind::Return, Some(client)) = (job.kind, self.waiting(job)) {
            self.returned(client, job.ends);
        }
    }

    /// The holder has given a lease back.
    fn returned(&mut self, client: usize, ends: u8) {
        files(ends).for_each(|f| self.program.held[f] = 0);
        self.returns(client);
    }

    /// The client that waits for the job, if its program still runs.
    fn waiting(&self, job: &Job) -> Option<usize> {
        job.client.filter(|c| self.clients[*c].at != At::Ended)
    }

    fn answer_job(&mut self, job: &Job, file: Option<usize>) {
        let Some(client) = self.waiting(job) else { return };
        match (job.kind, file) {
            (Kind::Promise, Some(file)) => {
                // It made all files durable that the log is a way for.
                self.ring.logged = self.ring.logged.max(self.clients[client].record);
                self.promised(client, file);
            }
            _ => self.clients[client].at = At::Applied,
        }
    }
}
