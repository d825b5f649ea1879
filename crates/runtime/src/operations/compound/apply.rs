//! Makes what a plan has changed in its view the volume's. Everything was checked before under the
//! same hold of the state lock, so nothing fails here; what does is our own mistake, and the volume
//! stops rather than show a part.

use crate::namespace::entries::NewInode;
use crate::operations::compound::check::in_order;
use crate::operations::compound::file::File;
use crate::operations::compound::plan::{Change, Outcome, Plan, Use};
use crate::state::State;
use crate::state::Tree;
use crate::state::step::Step;
use siftfs_base::{BLOCK_BYTES, InodeNr, Timestamp};
use siftfs_proto::RenameMode;
use siftfs_proto::compound::Value;

impl State {
    /// Applies the plan.
    pub fn apply_compound(&mut self, plan: &mut Plan<'_>) -> Step<()> {
        let time = self.metadata.log.now();
        self.metadata.log.changes.ordered();
        for change in std::mem::take(&mut plan.changes) {
            self.apply_name(plan, &change, time)?;
            plan.changes.push(change);
        }
        for file in plan.files.iter().filter(|file| file.changed()) {
            self.apply_file(file, time)?;
        }
        Ok(())
    }

    fn apply_name(&mut self, plan: &mut Plan<'_>, change: &Change, time: Timestamp) -> Step<()> {
        match change {
            Change::Create(nr, (dir, name)) => {
                let file = &mut plan.files[*nr];
                let made = file.made.as_ref().expect("the steps made it");
                let cred = plan.caller.cred;
                let (mode, gid) = (made.mode, made.gid);
                let new = NewInode {
                    number: None,
                    mode,
                    uid: cred.uid,
                    gid,
                    rdev: 0,
                    target: &[],
                    xattrs: &made.xattrs,
                };
                file.ino = Some(self.metadata.create(*dir, name, &new, time)?);
            }
            Change::Link(nr, (dir, name)) => {
                let ino = plan.files[*nr].ino.expect("made before it is linked");
                self.metadata.link(ino, *dir, name, time)?;
            }
            Change::Unlink((dir, name)) => {
                self.unlink(*dir, name, time)?;
            }
            Change::Rename { from, to, .. } => {
                let (from, to) = ((from.0, &*from.1), (to.0, &*to.1));
                self.rename(from, to, RenameMode::Replace, time)?;
            }
        }
        Ok(())
    }

    fn apply_file(&mut self, file: &File, time: Timestamp) -> Step<()> {
        let ino = file.ino.expect("made by now");
        if file.resized && file.kept < self.metadata.tree.node(ino).size {
            self.set_size(ino, file.kept, time)?;
        }
        if !file.shadow.written().is_empty() {
            self.fill_new_edges(ino, file)?;
            self.apply_shadow(ino, &file.shadow, None);
        }
        if file.resized {
            self.set_size(ino, file.size, time)?;
        } else if file.written {
            let node = self.metadata.tree.node_mut(ino);
            (node.inode.mtime, node.inode.ctime) = (time, time);
            node.delta.running_mut().times = true;
            self.metadata.mark_delta(ino);
        }
        for set in in_order(&file.attributes) {
            self.set_attr(ino, set)?;
        }
        Ok(())
    }

    /// Pages behind what is left of the file, of which a part is written: they are zero.
    fn fill_new_edges(&mut self, ino: InodeNr, file: &File) -> Step<()> {
        for (start, end) in file.shadow.written().iter() {
            for edge in [start, end] {
                if edge % BLOCK_BYTES != 0 {
                    self.plan_edge(ino, edge / BLOCK_BYTES)?;
                }
            }
        }
        Ok(())
    }
}

impl Tree {
    /// Opens and closes what the steps opened and closed, and gives their results.
    pub fn answer_compound(&mut self, plan: Plan<'_>) -> Vec<Value> {
        for handle in &plan.closed {
            self.inodes.close(*handle, plan.session);
        }
        let mut values = Vec::with_capacity(plan.outcomes.len());
        for outcome in plan.outcomes {
            values.push(match outcome {
                Outcome::None => Value::None,
                Outcome::Number(value, width) => Value::Number { value, width },
                Outcome::Bytes(bytes) => Value::Bytes(unshared(bytes)),
                Outcome::File(nr, how) => {
                    let ino = plan.files[nr].ino.expect("all files are there");
                    let handle = match how {
                        Use::Open(access) => Some(self.open(ino, plan.session, access)),
                        _ => None,
                    };
                    let node = self.inodes.get(&ino);
                    let generation = node.map_or(0, |node| node.inode.generation);
                    Value::File { ino, generation, handle }
                }
            });
        }
        // What no name and no handle is left of.
        for file in &plan.files {
            if let Some(ino) = file.ino.filter(|_| file.nlink == 0) {
                self.inodes.queue_if_unreferenced(ino);
            }
        }
        values
    }
}

/// The bytes, copied only if a job that was done without the lock has them, too.
fn unshared(bytes: std::sync::Arc<Vec<u8>>) -> Vec<u8> {
    std::sync::Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec())
}
