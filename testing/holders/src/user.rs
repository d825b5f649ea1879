//! Another program, by a session of the file protocol.

use siftfs_base::{InodeNr, Result};
use siftfs_proto::compound::Access;
use siftfs_proto::{
    Attr, Credentials, FileService, Handle, ROOT_INO, RenameMode, Reply, Request, SetAttr,
};
use std::sync::Arc;

/// Its session.
#[derive(Clone)]
pub struct User(Arc<dyn FileService>);

impl User {
    /// By this session.
    pub fn new(service: Arc<dyn FileService>) -> Self {
        Self(service)
    }

    /// Asks for anything.
    pub fn ask(&self, request: Request) -> Result<Reply> {
        self.0.call(&Credentials::default(), request)
    }

    /// A new file with these bytes, which nobody has open.
    pub fn make(&self, name: &str, bytes: &[u8]) -> InodeNr {
        let create = Request::Create { parent: ROOT_INO, name: name.into(), perm: 0o644 };
        let (attr, handle) = self.ask(create).and_then(Reply::created).expect("create");
        if !bytes.is_empty() {
            self.ask(Request::write(handle, 0, bytes.to_vec())).expect("write");
        }
        self.close(handle);
        attr.ino
    }

    /// Opens a file.
    pub fn open(&self, ino: InodeNr, access: Access) -> Handle {
        self.ask(Request::open(ino, access)).and_then(Reply::opened).expect("open")
    }

    /// Closes it.
    pub fn close(&self, handle: Handle) {
        self.ask(Request::Release { handle }).expect("close");
    }

    /// All bytes of a file.
    pub fn read(&self, ino: InodeNr) -> Vec<u8> {
        let handle = self.open(ino, Access::Read);
        let mut all = Vec::new();
        loop {
            let read =
                Request::Read { file: handle.into(), offset: all.len() as u64, len: 1 << 20 };
            let piece = self.ask(read).and_then(Reply::data).expect("read");
            if piece.is_empty() {
                break;
            }
            all.extend_from_slice(&piece);
        }
        self.close(handle);
        all
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// Those of write(2).
    pub fn write(&self, ino: InodeNr, offset: u64, bytes: &[u8]) -> Result<()> {
        self.ask(Request::write(ino, offset, bytes.to_vec())).map(drop)
    }

    /// Attributes.
    pub fn stat(&self, ino: InodeNr) -> Attr {
        self.ask(Request::GetAttr { file: ino.into() }).and_then(Reply::attr).expect("stat")
    }

    /// Gives a file another size.
    pub fn truncate(&self, ino: InodeNr, size: u64) {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.ask(Request::SetAttr { file: ino.into(), set, times: true }).expect("truncate");
    }

    /// Gives a file another name.
    pub fn rename(&self, from: &str, to: &str) {
        let (parent, new_parent, mode) = (ROOT_INO, ROOT_INO, RenameMode::Replace);
        let (name, new_name) = (from.into(), to.into());
        self.ask(Request::Rename { parent, name, new_parent, new_name, mode }).expect("rename");
    }

    /// The file of a name.
    pub fn find(&self, name: &str) -> Option<InodeNr> {
        let lookup = Request::Lookup { parent: ROOT_INO, name: name.into() };
        self.ask(lookup).and_then(Reply::attr).ok().map(|attr| attr.ino)
    }
}
