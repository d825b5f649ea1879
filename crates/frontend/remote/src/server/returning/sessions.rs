//! Sessions of connections that end: what is kept of them, for how long, and what may still be
//! carried out of theirs.

use super::client::Client;
use super::{ANEW, Clients, Connection, Leaving, Over};
use siftfs_base::{Error, Result};
use siftfs_proto::FileService;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Clients {
    /// A connection ends, which `service` was the session of.
    #[must_use]
    pub fn leaves(
        &self,
        connection: Connection,
        service: Arc<dyn FileService>,
        how: Leaving,
    ) -> Over {
        let mut state = self.lock();
        let is_last = state.of(connection).is_some();
        let Some(client) = state.clients.get_mut(&connection.client) else { return vec![service] };
        let mut over = Over::new();
        match how {
            // A later connection may still want what this one's session has.
            Leaving::Lost if is_last || client.returning.is_some() => {
                over.extend(client.keeps_session(service));
            }
            _ => {
                let wanted = is_last || client.returning.is_some();
                client.forfeits |= matches!(how, Leaving::Ended) && wanted;
                over.push(service);
            }
        }
        if !is_last {
            return over;
        }
        client.connection = None;
        let returned = client.returning.take().is_none();
        client.since = Instant::now();
        if matches!(how, Leaving::ForGood) {
            over.extend(client.take_earlier());
            state.clients.remove(&connection.client);
            state.strike_out(connection.client);
        } else if !returned && !state.open {
            // It has not repeated all, and the others wait for it as before: it dials at once.
            state.expected.insert(connection.client);
            let soon = (Instant::now() + ANEW).min(state.latest);
            state.until = state.until.max(soon);
        }
        state.returned();
        self.changed.notify_all();
        over
    }

    /// What a session changes that lends for this client's programs is the client's. Such a
    /// connection has no say in how the client comes back.
    ///
    /// # Errors
    /// The client is not there.
    pub fn beside(&self, client: u64) -> Result<Connection> {
        match self.lock().clients.contains_key(&client) {
            true => Ok(Connection { client, number: 0 }),
            false => Err(Error::Refused("it lends for a mount that is not there".into())),
        }
    }

    /// Has the client not brought back yet all that it wants to?
    pub fn is_returning(&self, connection: Connection) -> bool {
        self.lock().of(connection).is_some_and(|client| client.returning.is_some())
    }

    /// May a client have its locks again? Not if its session was ended: they may have been another
    /// one's since, also if nobody has them now.
    pub fn may_lock_again(&self, connection: Connection) -> bool {
        self.lock().of(connection).is_some_and(|client| !client.forfeits)
    }

    /// No call that came by this connection is carried out any more.
    pub fn is_quiet(&self, connection: Connection) {
        if let Some(client) = self.lock().clients.get_mut(&connection.client) {
            client.is_quiet(connection.number);
        }
        self.changed.notify_all();
    }

    /// For this time the server took nobody, and answered nobody.
    pub fn excuse(&self, time: Duration) {
        self.lock().clients.values_mut().for_each(|client| client.excuse(time));
    }

    /// Sessions of lost connections whose clients have not come back within the term.
    #[must_use]
    pub fn take_late(&self) -> Over {
        let now = Instant::now();
        self.lock().clients.values_mut().flat_map(|client| client.take_late(now)).collect()
    }

    /// All sessions of lost connections.
    #[must_use]
    pub fn take_earlier(&self) -> Over {
        self.lock().clients.values_mut().flat_map(Client::take_earlier).collect()
    }

    /// Waits until no call of an older connection is carried out; false if the session is over
    /// before.
    pub(super) fn wait_quiet(&self, connection: Connection, over: &impl Fn() -> bool) -> bool {
        let mut state = self.lock();
        loop {
            let Some(client) = state.of(connection) else { return false };
            if !client.has_older_calls(connection.number) {
                return true;
            }
            if over() {
                return false;
            }
            state = self.wait(state);
        }
    }
}
