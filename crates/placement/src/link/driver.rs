//! What runs the Service: a single thread that drives everything, a thread of its own, or another
//! process behind a connection.

use crate::link::remote::Remote;
use siftfs_base::{Error, Result};
use siftfs_runtime::{Runtime, ServiceLink};
use siftfs_service::Service;
use siftfs_status::Link;
use siftfs_wire::{FromService, ToService};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

/// Where the Service's answers go.
#[derive(Default)]
pub(crate) struct Sink {
    runtime: OnceLock<Weak<Runtime>>,
}

impl Sink {
    /// Delivers answers that have to be true, because they come from this process. A refused one
    /// latches a failure.
    pub fn deliver(&self, messages: Vec<FromService>) {
        let Some(runtime) = self.runtime.get().and_then(Weak::upgrade) else { return };
        for message in messages {
            if let Err(error) = runtime.on_service(message) {
                runtime.fail(&error);
            }
        }
    }

    /// Delivers one answer of another process.
    ///
    /// # Errors
    /// Refused if the answer cannot be true; it changed nothing.
    pub fn try_deliver(&self, message: FromService) -> Result<()> {
        let runtime = self.runtime.get().and_then(Weak::upgrade);
        runtime.map_or(Ok(()), |runtime| runtime.on_service(message))
    }

    /// Callers that wait for the Service look again.
    pub fn look_again(&self) {
        if let Some(runtime) = self.runtime.get().and_then(Weak::upgrade) {
            runtime.look_again();
        }
    }

    /// Has the Runtime latched a failure, or gone?
    pub fn has_failed(&self) -> bool {
        let runtime = self.runtime.get().and_then(Weak::upgrade);
        runtime.is_none_or(|runtime| runtime.check().is_err())
    }
}

/// Messages that wait for the Service's thread at most; beyond that, back-pressure makes the sender
/// wait. Direct data is the bulk of them, so this bounds the memory of a hand-off.
const QUEUE: usize = 8;

/// A Service and what runs it.
pub struct Driver {
    sink: Arc<Sink>,
    kind: Kind,
}

enum Kind {
    Inline(Box<Mutex<Service>>),
    Thread {
        queue: Mutex<Option<SyncSender<ToService>>>,
        thread: Mutex<Option<JoinHandle<Service>>>,
    },
    Remote(Arc<Remote>),
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// The sender's thread runs the Service to its end before `send` returns.
    pub fn inline(service: Service) -> Self {
        Self { sink: Arc::default(), kind: Kind::Inline(Box::new(Mutex::new(service))) }
    }

    /// A thread runs the Service. A transaction is served between two steps of a checkpoint.
    pub fn threaded(service: Service) -> Result<Self> {
        let sink = Arc::new(Sink::default());
        let (queue, messages) = sync_channel(QUEUE);
        let out = sink.clone();
        let thread = std::thread::Builder::new()
            .name("siftfs-service".into())
            .spawn(move || run(service, &messages, &out))
            .map_err(|e| Error::Refused(format!("cannot start the Service's thread: {e}")))?;
        let kind =
            Kind::Thread { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)) };
        Ok(Self { sink, kind })
    }

    /// Another process runs the Service, which `remote`, made with `sink`, reaches.
    pub fn remote(sink: Arc<Sink>, remote: Arc<Remote>) -> Self {
        Self { sink, kind: Kind::Remote(remote) }
    }

    /// Answers go to this Runtime from now on.
    pub fn attach(&self, runtime: &Arc<Runtime>) {
        assert!(self.sink.runtime.set(Arc::downgrade(runtime)).is_ok(), "attached once");
    }

    /// Greets the Service in another process; one in this process needs a Hello.
    pub fn greet(&self, hello: ToService) -> Result<()> {
        match &self.kind {
            Kind::Remote(remote) => remote.start(),
            Kind::Inline(_) | Kind::Thread { .. } => self.send(hello),
        }
    }

    /// Stops the Service; messages sent before are served first. The Service's role is the host's
    /// when this returns.
    ///
    /// # Errors
    /// Refused if another process keeps it.
    pub fn stop(&self) -> Result<()> {
        match &self.kind {
            Kind::Inline(_) => {}
            Kind::Thread { queue, thread } => {
                drop(lock(queue).take());
                let _ = lock(thread).take().map(JoinHandle::join);
            }
            Kind::Remote(remote) => remote.stop()?,
        }
        Ok(())
    }

    /// As [`Driver::stop`], leaving everything as it is: another process keeps its role.
    pub fn abandon(&self) {
        match &self.kind {
            Kind::Remote(remote) => remote.abandon(),
            Kind::Inline(_) | Kind::Thread { .. } => drop(self.stop()),
        }
    }

    /// Says that the volume is about to be closed: a Service that is away is waited for `patience`
    /// at most.
    pub fn close_within(&self, patience: std::time::Duration) {
        if let Kind::Remote(remote) = &self.kind {
            remote.fall_back_within(patience);
        }
    }

    /// See [`Remote::waiting`].
    pub fn waiting(&self) -> Option<String> {
        match &self.kind {
            Kind::Remote(remote) => remote.waiting(),
            Kind::Inline(_) | Kind::Thread { .. } => None,
        }
    }

    /// Something that only recovery does with the Service, between messages.
    pub fn with_inline<T>(&self, f: impl FnOnce(&mut Service) -> T) -> T {
        match &self.kind {
            Kind::Inline(service) => f(&mut lock(service)),
            Kind::Thread { .. } | Kind::Remote(_) => panic!("recovery runs its Service inline"),
        }
    }
}

impl ServiceLink for Driver {
    fn send(&self, message: ToService) -> Result<()> {
        match &self.kind {
            Kind::Inline(service) => {
                let answers = {
                    let mut service = lock(service);
                    service.handle(message);
                    while service.has_work() {
                        service.step();
                    }
                    service.drain()
                };
                self.sink.deliver(answers);
                Ok(())
            }
            Kind::Thread { queue, .. } => {
                // Not sent under the lock: a full queue blocks.
                let queue = lock(queue).clone();
                queue
                    .and_then(|q| q.send(message).ok())
                    .ok_or_else(|| Error::Latched("the Service has stopped".into()))
            }
            Kind::Remote(remote) => remote.send(message),
        }
    }

    fn expect_urgent(&self, now: u64) {
        match &self.kind {
            // Its bulk goes through the device that sees the small steps.
            Kind::Inline(_) | Kind::Thread { .. } => {}
            Kind::Remote(remote) => remote.expect_urgent(now),
        }
    }

    fn is_overdue(&self) -> bool {
        match &self.kind {
            Kind::Inline(_) | Kind::Thread { .. } => false,
            Kind::Remote(remote) => remote.is_overdue(),
        }
    }

    fn describe(&self) -> Link {
        let link = match &self.kind {
            Kind::Inline(_) | Kind::Thread { .. } => Link::host(),
            Kind::Remote(remote) => Link::device(remote.describe()),
        };
        Link { host_cpu_us: crate::device::counts::process_cpu_us(), ..link }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Its thread holds on to it.
        if let Kind::Remote(remote) = &self.kind {
            remote.abandon();
        }
    }
}

/// Tells the Runtime when the Service's thread ends by a failed assertion.
struct Alarm<'a>(&'a Sink);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = Error::Latched("the Service stopped at a failed assertion".into());
            self.0.deliver(vec![FromService::Failed { error }]);
        }
    }
}

fn run(mut service: Service, messages: &Receiver<ToService>, out: &Sink) -> Service {
    let _alarm = Alarm(out);
    loop {
        let message = if service.has_work() {
            match messages.try_recv() {
                Ok(message) => Some(message),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return service,
            }
        } else {
            match messages.recv() {
                Ok(message) => Some(message),
                Err(_) => return service,
            }
        };
        match message {
            Some(message) => service.handle(message),
            None => service.step(),
        }
        out.deliver(service.drain());
    }
}
