//! Compounds in lockstep: the handles that they name and open, the files that they make, and the
//! results of every step.

use crate::lockstep::Lockstep;
use crate::model::Model;
use crate::model_compute::decompress;
use crate::tree::Caller;
use siftfs_base::InodeNr;
use siftfs_proto::compound::{Compounded, FileArg, Step, Value};
use siftfs_proto::{Reply, Request};

/// The file that a step is about, if an argument says it.
fn file_of(step: &mut Step) -> Option<&mut FileArg> {
    match step {
        Step::Read { file, .. }
        | Step::Write { file, .. }
        | Step::Append { file, .. }
        | Step::Patch { file, .. }
        | Step::Add { file, .. }
        | Step::CompareAndSet { file, .. }
        | Step::Link { file, .. }
        | Step::SetSize { file, .. }
        | Step::SetAttributes { file, .. }
        | Step::Close { file } => Some(file),
        Step::Lookup { .. }
        | Step::Open { .. }
        | Step::Create { .. }
        | Step::Checksum { .. }
        | Step::Compress { .. }
        | Step::Decompress { .. }
        | Step::Join { .. }
        | Step::Rename { .. }
        | Step::Unlink { .. } => None,
    }
}

impl Lockstep<'_> {
    /// The steps with the service's handles; `None` if one is unknown.
    pub(crate) fn translate_steps(&self, steps: &mut [Step]) -> Option<()> {
        for file in steps.iter_mut().filter_map(file_of) {
            if let FileArg::Open(handle) = file {
                *handle = *self.handles.get(&handle.0)?;
            }
        }
        Some(())
    }

    pub(crate) fn judge_compound(
        &mut self,
        req: &Request,
        before: &Model,
        want: &Compounded,
        found: &Compounded,
    ) -> Result<(), String> {
        let Request::Compound(compound) = req else { return Err("no compound was sent".into()) };
        let (
            // What was written is for the kernel's cache, which tests of the mount look at.
            Compounded::Done { values, names, files, .. },
            Compounded::Done { values: theirs, names: their_names, files: their_files, .. },
        ) = (want, found)
        else {
            return if want == found { Ok(()) } else { Err(differs("outcome", want, found)) };
        };
        if values.len() != theirs.len() || values.len() != compound.steps.len() {
            return Err(differs("results", values, theirs));
        }
        for (nr, (ours, theirs)) in values.iter().zip(theirs).enumerate() {
            let same = self.same_value(&compound.steps[nr], ours, theirs);
            same.map_err(|e| format!("step {nr}: {e}"))?;
        }
        self.learn_made()?;
        let ours: Option<Vec<_>> = names
            .iter()
            .map(|(dir, name)| Some((self.ids.service_of(*dir)?, name.clone())))
            .collect();
        if ours.is_none_or(|ours| !same_members(ours, their_names.clone())) {
            return Err(differs("names that changed", names, their_names));
        }
        // What was made and removed at once has no number here.
        let known =
            |ino: &&InodeNr| before.node(**ino).is_some() || self.model.node(**ino).is_some();
        let ours: Vec<_> = files.iter().filter(known).map(|i| self.ids.service_of(*i)).collect();
        let all_there = ours.iter().all(|i| i.is_some_and(|i| their_files.contains(&i)));
        if !all_there || files.len() != their_files.len() {
            return Err(differs("files that changed", files, their_files));
        }
        Ok(())
    }

    fn same_value(&mut self, step: &Step, ours: &Value, theirs: &Value) -> Result<(), String> {
        match (step, ours, theirs) {
            (
                _,
                Value::File { ino, handle, .. },
                Value::File { ino: their_ino, handle: their, .. },
            ) => {
                if handle.is_some() != their.is_some() {
                    return Err(differs("handle", handle, their));
                }
                if let (Some(handle), Some(their)) = (handle, their) {
                    self.handles.insert(handle.0, *their);
                }
                if self.model.node(*ino).is_none() {
                    return Ok(());
                }
                let caller = Caller::root(self.service);
                let attr = caller.attr(*their_ino).map_err(|e| format!("getattr: {e}"))?;
                self.same_inode(*ino, &attr)
            }
            // Frames differ by who made them.
            (Step::Compress { codec, .. }, Value::Bytes(a), Value::Bytes(b)) => {
                let [a, b] = [a, b].map(|frame| decompress(*codec, frame, u32::MAX));
                if a.is_ok() && a == b { Ok(()) } else { Err(differs("compressed", &a, &b)) }
            }
            _ if ours == theirs => Ok(()),
            _ => Err(differs("result", ours, theirs)),
        }
    }

    /// Learns the numbers of what was made and has a name, though no result said them.
    fn learn_made(&mut self) -> Result<(), String> {
        let known = |ino: &InodeNr| self.ids.service_of(*ino).is_some();
        let new: Vec<InodeNr> =
            self.model.nodes().map(|(ino, _)| ino).filter(|ino| !known(ino)).collect();
        for ino in new {
            let Some((dir, name)) = self.model.names_of(ino).into_iter().next() else { continue };
            let parent = self.ids.service_of(dir).ok_or("a directory that nobody knows")?;
            let caller = Caller::root(self.service);
            match caller.call(Request::Lookup { parent, name }) {
                Ok(Reply::Entry(attr)) => {
                    self.same_inode(ino, &attr)?;
                    let forget = Request::Forget { ino: attr.ino, count: 1 };
                    caller.call(forget).map_err(|e| format!("forget: {e}"))?;
                }
                other => return Err(format!("inode {ino} was made, and found: {other:?}")),
            }
        }
        Ok(())
    }
}

fn same_members<T: Ord>(mut a: Vec<T>, mut b: Vec<T>) -> bool {
    a.sort();
    b.sort();
    a == b
}

fn differs(what: &str, want: &dyn std::fmt::Debug, found: &dyn std::fmt::Debug) -> String {
    let brief = |r: &dyn std::fmt::Debug| format!("{r:?}").chars().take(300).collect::<String>();
    format!("{what}: expected {}, found {}", brief(want), brief(found))
}
