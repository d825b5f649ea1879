//! How a program connects to a volume that another process serves, and what becomes of its session
//! when that process, or the way to it, is lost.

use crate::{Error, Result};
use siftfs_base::InodeNr;
use siftfs_proto::{Completion, Credentials, FileService, Owed, Reply, Request};
use siftfs_remote::{Addresses, Claim, Client, Lasting, Patience, Ways, served_by_hosts};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// How long calls of a `soft` session wait for the server, unless `timeo=` says otherwise.
const TIMEO: Duration = Duration::from_secs(60);
/// The longest time that `timeo=` may say.
const LONGEST: u64 = 86_400;

/// What becomes of a session when its server, or the connection, is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLost {
    /// Calls wait until the server is there again, and the session goes on.
    #[default]
    Hard,
    /// The same, but calls that have waited for this long, from the loss on, fail with `EIO`. The
    /// session goes on when the server is there again.
    Soft(Duration),
    /// The session ends, and all its calls are errors (`Link`, `EIO`).
    Ends,
}

/// How a program connects. As a string, options of a mount: `hard`, or `soft` and `timeo=SECONDS`;
/// and `once` for a session that ends with its connection.
///
/// ```
/// use siftfs::{ConnectOptions, WhenLost};
/// use std::time::Duration;
///
/// let options: ConnectOptions = "soft,timeo=30".parse()?;
/// assert_eq!(options.when_lost, WhenLost::Soft(Duration::from_secs(30)));
/// # Ok::<(), siftfs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// What becomes of the session when its server is lost.
    pub when_lost: WhenLost,
}

impl FromStr for ConnectOptions {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |why: String| Err(Error::Refused(why));
        let (mut soft, mut hard, mut once, mut timeo) = (false, false, false, None);
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match (word, word.strip_prefix("timeo=")) {
                ("soft", _) => soft = true,
                ("hard", _) => hard = true,
                ("once", _) => once = true,
                (_, Some(seconds)) => match seconds.parse() {
                    Ok(seconds) if (1..=LONGEST).contains(&seconds) => {
                        timeo = Some(Duration::from_secs(seconds));
                    }
                    _ => return refuse(format!("{word}: seconds, from 1 to {LONGEST}")),
                },
                _ => {
                    return refuse(format!(
                        "{word}: a connection has the options hard, soft, timeo=SECONDS and once"
                    ));
                }
            }
        }
        let when_lost = match (soft, hard, once, timeo) {
            (true, false, false, timeo) => WhenLost::Soft(timeo.unwrap_or(TIMEO)),
            (false, _, false, None) => WhenLost::Hard,
            (false, false, true, None) => WhenLost::Ends,
            (false, _, _, Some(_)) => {
                return refuse(
                    "timeo= says how long calls of a soft session wait: say soft".into(),
                );
            }
            _ => return refuse(format!("{text}: one of hard, soft and once")),
        };
        Ok(Self { when_lost })
    }
}

/// The port of a server that is named without one, as in `HOST:/VOLUME`.
const PORT: u16 = 7400;

/// Which addresses, and which volume, a program names: by addresses, and the volume beside them, or
/// by both in one, as `siftfs mount` takes it.
///
/// # Errors
/// `Refused`: what is named is neither of them, or names two volumes.
pub(crate) fn named(address: &str, volume: &str) -> Result<(Addresses, String)> {
    let Some((addresses, named)) = served_by_hosts(address, PORT)? else {
        return Ok((address.parse()?, volume.into()));
    };
    match volume.is_empty() || volume == named {
        true => Ok((addresses, named)),
        false => Err(Error::Refused(format!("{address} names another volume than {volume}"))),
    }
}

/// A session of a volume that another process serves.
pub(crate) enum Session {
    /// It comes back.
    Lasting(Lasting),
    /// It ends with its connection.
    Once(Client),
}

impl Session {
    /// Opens one, at the first address that answers for the volume.
    ///
    /// # Errors
    /// As [`Volume::connect`](crate::Volume::connect).
    pub fn connect(
        ways: Ways,
        (volume, claim): (&str, Claim),
        when_lost: WhenLost,
    ) -> Result<Arc<Self>> {
        let patience = match when_lost {
            WhenLost::Hard => Patience::Hard,
            WhenLost::Soft(limit) => Patience::Soft(limit),
            WhenLost::Ends => return Ok(Arc::new(Self::Once(ways.open(volume, claim)?))),
        };
        let lasting = Lasting::connect(ways, (volume, claim), None, patience)?;
        Ok(Arc::new(Self::Lasting(lasting)))
    }

    /// Ends it in order. What was answered is durable then, if it is a session that comes back.
    ///
    /// # Errors
    /// The server is lost, or does not make durable what is not: that may not be there any more.
    pub fn close(&self) -> Result<()> {
        match self {
            Self::Lasting(lasting) => lasting.close(),
            Self::Once(client) => client.call(&Credentials::default(), Request::EndSession)?.done(),
        }
    }

    /// Ends it as the death of this process would.
    pub fn abandon(&self) {
        if let Self::Lasting(lasting) = self {
            lasting.abandon();
        }
    }

    fn service(&self) -> &dyn FileService {
        match self {
            Self::Lasting(lasting) => lasting,
            Self::Once(client) => client,
        }
    }
}

impl FileService for Session {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply> {
        self.service().call(cred, req)
    }

    fn call_owing(&self, cred: &Credentials, req: Request) -> (Result<Reply>, Owed) {
        self.service().call_owing(cred, req)
    }

    fn has_looked_up(&self, ino: InodeNr) -> bool {
        self.service().has_looked_up(ino)
    }

    fn submit(&self, cred: &Credentials, req: Request, done: Completion) {
        self.service().submit(cred, req, done);
    }

    fn give_up(&self) {
        self.service().give_up();
    }
}

#[cfg(test)]
#[path = "connect_tests.rs"]
mod tests;
