//! What is done with a message of the kernel, however it arrives.

use super::counts::Counts;
use super::priority::Schedule;
use super::reply::{Token, Way};
use super::request::{Dialect, Message, header, parse};
use siftfs_base::errno;
use std::sync::Arc;

/// Carries requests out.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Carries one request out and answers it, now or later, by its token.
    fn handle(&self, message: Message<'_>, token: Token);

    /// The mount is gone: nothing is waited for any more. A ring's thread that has a request ends
    /// when that is answered.
    fn over(&self);
}

/// What is done with a message, however it arrives.
pub(super) struct Dispatch<H> {
    pub(super) dialect: Dialect,
    pub(super) counts: Arc<Counts>,
    pub(super) handler: Arc<H>,
    /// Of the threads that carry messages out.
    pub(super) schedule: Arc<Schedule>,
}

impl<H> Clone for Dispatch<H> {
    fn clone(&self) -> Self {
        let (counts, handler) = (self.counts.clone(), self.handler.clone());
        Self { dialect: self.dialect, counts, handler, schedule: self.schedule.clone() }
    }
}

impl<H: Handler> Dispatch<H> {
    /// Hands one message over, or refuses it. It is answered by `way`.
    pub(super) fn message(&self, bytes: &[u8], way: Way) {
        self.schedule.check();
        let head = header(bytes);
        self.counts.add(head.map_or(0, |h| h.opcode));
        match parse(bytes, self.dialect) {
            Ok(message) => {
                let token = Token::new(way, message.unique);
                self.handler.handle(message, token);
            }
            Err(_) => {
                tracing::error!(len = bytes.len(), "a request of the kernel that makes no sense");
                if let Ok(h) = head {
                    Token::new(way, h.unique).send(Err(errno(libc::EPROTO)));
                }
            }
        }
    }
}
