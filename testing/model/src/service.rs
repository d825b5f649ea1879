//! The model as a file service: what the harness is tried on, and the twin of itself.

use crate::model::{Fresh, Model};
use siftfs_base::{Error, InodeNr};
use siftfs_proto::{Credentials, FileService, Reply, Request};
use std::sync::Mutex;

/// A [`Model`] behind the file protocol.
pub struct ModelService {
    state: Mutex<(Model, InodeNr)>,
}

impl Default for ModelService {
    fn default() -> Self {
        Self { state: Mutex::new((Model::default(), 11)) }
    }
}

impl ModelService {
    /// Starts from a file system that is there; what is made gets numbers of its own.
    pub fn with(model: Model) -> Self {
        Self { state: Mutex::new((model, 1 << 30)) }
    }
}

impl FileService for ModelService {
    fn call(&self, cred: &Credentials, req: Request) -> Result<Reply, Error> {
        let mut state = self.state.lock().map_err(|_| Error::Latched("a test panicked".into()))?;
        state.1 += 1;
        let fresh = Fresh { ino: state.1, handle: u64::from(state.1) };
        state.0.exec(cred, &req, fresh).0.map_err(Error::Posix)
    }
}
