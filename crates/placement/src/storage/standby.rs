//! Waiting for a volume on a cluster until it is this process's turn to take it over
//! (`docs/design/replicated.md`, "Takeover of a served volume").
//!
//! The cluster says that the owner is dead, or an administrator does; this process's own view says
//! nothing.

use siftfs_base::{Error, Result};
use siftfs_device_rbd::{Had, RbdPlace, RbdWait, Standing, Whom};
use std::path::Path;
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Between two looks at an image, and while its owner is giving it up in order.
const LOOK: Duration = Duration::from_millis(200);
const SOON: Duration = Duration::from_millis(20);
/// Between two looks whether waiting is over.
const POLL: Duration = Duration::from_millis(10);
/// Between two messages about a cluster that does not say who has the image.
const QUIET: Duration = Duration::from_secs(60);

/// What a process does whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// An administrator or the cluster says that this owner is to be fenced, also if it lives: for
    /// [`OpenOptions::take_over`](crate::OpenOptions::take_over).
    pub take_over: Option<Whom>,
}

/// A process that waits for a volume on a cluster.
pub struct Standby {
    /// `None` while a look is under way.
    wait: Option<RbdWait>,
    /// Who had the image at the last look.
    owner: Option<String>,
    complained: Option<Instant>,
}

/// What one look has found.
struct Look {
    standing: Standing,
    take_over: Option<String>,
    is_handed_over: bool,
}

/// The image that a volume lies on.
///
/// # Errors
/// Refused: it lies on no single image of a cluster, which is what can be waited for.
fn image_of(volume: &Path) -> Result<RbdPlace> {
    RbdPlace::parse(volume).unwrap_or_else(|| {
        Err(Error::Refused(
            "only a volume on an image of a cluster (rbd:POOL/IMAGE) can be taken over from \
             another machine"
                .into(),
        ))
    })
}

impl Standby {
    /// Begins to wait for a volume, which this process will serve at `serves_at`.
    ///
    /// # Errors
    /// Refused: it is on no cluster, or that does not let this process in.
    pub fn begin(volume: &Path, serves_at: &str) -> Result<Self> {
        let mut wait = RbdWait::open(&image_of(volume)?)?;
        wait.note(serves_at)?;
        Ok(Self { wait: Some(wait), owner: None, complained: None })
    }

    /// The owner at the last look, as it describes itself.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Waits until it is this process's turn; `None` if `over` comes before. A cluster that does
    /// not answer is waited for: that says nothing of the owner.
    pub fn wait(&mut self, over: &dyn Fn() -> bool) -> Option<Turn> {
        loop {
            let look = self.look(over)?;
            let mut pause = LOOK;
            match look {
                Ok(look) => {
                    self.complained = None;
                    if look.is_handed_over {
                        pause = SOON;
                    }
                    if let Some(turn) = self.note(look) {
                        return Some(turn);
                    }
                }
                Err(error) => self.complain(&error),
            }
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if over() {
                    return None;
                }
                thread::sleep(POLL);
            }
        }
    }

    /// Did another process take the image before this one, whose turn it was?
    pub fn was_late(&mut self, over: &dyn Fn() -> bool) -> bool {
        match self.look(over) {
            Some(Ok(look)) => matches!(look.standing, Standing::Had(_)),
            // A cluster that does not answer is waited for.
            Some(Err(_)) => true,
            None => false,
        }
    }

    /// Is it this process's turn?
    fn note(&mut self, look: Look) -> Option<Turn> {
        match look.standing {
            Standing::Free => Some(Turn { take_over: None }),
            // The cluster has given it up, so it is fenced although its process may live on this
            // machine, cut off.
            Standing::Dead(whose) => Some(Turn { take_over: Some(Whom::Described(whose)) }),
            Standing::Had(Had { whose, .. }) => {
                let is_meant = look.take_over.as_ref() == Some(&whose);
                self.owner = Some(whose.clone());
                is_meant.then_some(Turn { take_over: Some(Whom::Described(whose)) })
            }
        }
    }

    fn complain(&mut self, error: &Error) {
        if self.complained.is_none_or(|last| last.elapsed() > QUIET) {
            tracing::warn!(%error, "the cluster does not say who has the image: it is waited for");
            self.complained = Some(Instant::now());
        }
    }

    /// One look, by a thread of its own: a cluster may not answer for ever.
    fn look(&mut self, over: &dyn Fn() -> bool) -> Option<Result<Look>> {
        let wait = self.wait.take()?;
        let looks = Builder::new().name("siftfs-standby".into()).spawn(move || {
            let found = look(&wait);
            (wait, found)
        });
        let looks: JoinHandle<_> = match looks {
            Ok(thread) => thread,
            Err(error) => return Some(Err(Error::Refused(format!("no thread: {error}")))),
        };
        while !looks.is_finished() {
            if over() {
                return None;
            }
            thread::sleep(POLL / 5);
        }
        let (wait, found) = looks.join().ok()?;
        self.wait = Some(wait);
        Some(found)
    }

    /// The volume is this process's: what an administrator had said is done.
    pub fn end(self) {
        let Some(wait) = &self.wait else { return };
        if let Err(error) = wait.strike_out_words() {
            tracing::warn!(%error, "what an administrator has said stays beside the image");
        }
    }
}

fn look(wait: &RbdWait) -> Result<Look> {
    let words = wait.words()?;
    let standing = wait.standing()?;
    let is_handed_over = words.hand_over.is_some();
    Ok(Look { standing, take_over: words.take_over, is_handed_over })
}

/// The owner's ear for an administrator who wants it to give the volume up in order.
pub struct Ear(RbdWait);

impl Ear {
    /// Of the volume that this process has.
    ///
    /// # Errors
    /// As [`Standby::begin`].
    pub fn of(volume: &Path) -> Result<Self> {
        RbdWait::open(&image_of(volume)?).map(Self)
    }

    /// Is this process to give the volume up, and does another one wait for it? It has heard it
    /// then.
    ///
    /// # Errors
    /// The cluster does not say.
    pub fn hears(&self) -> Result<bool> {
        if self.0.words()?.hand_over != Some(RbdWait::own_description()) {
            return Ok(false);
        }
        Ok(!self.0.others_waiting()?.is_empty())
    }
}

/// What has become of a volume that an administrator has had passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOn {
    /// Who had it before, as it describes itself.
    pub from: String,
    /// Who has it now.
    pub to: String,
    /// From the word to the one that has it now.
    pub took: Duration,
}

/// How an administrator has a volume passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// The owner gives it up in order.
    HandOver,
    /// The owner is fenced, also if it lives.
    TakeOver,
}

/// Has the owner of a volume give way to a process that waits for it, and waits until that one has
/// it, for `patience` at most.
///
/// # Errors
/// Refused, with nothing changed: the volume is on no cluster, nobody has it, or nobody waits for
/// it. Refused: nobody has taken it in time; the word is taken back.
pub fn pass_on(volume: &Path, how: Passing, patience: Duration) -> Result<PassedOn> {
    let wait = RbdWait::open(&image_of(volume)?)?;
    let Standing::Had(from) = wait.standing()? else {
        return Err(Error::Refused("no process has it: a standby takes it by itself".into()));
    };
    if wait.others_waiting()?.is_empty() {
        let what =
            "no standby waits for it: start one on another machine (siftfs serve, --standby)";
        return Err(Error::Refused(what.into()));
    }
    let begun = Instant::now();
    match how {
        Passing::HandOver => wait.ask_to_hand_over(&from.whose)?,
        Passing::TakeOver => wait.say_take_over(&from.whose)?,
    }
    loop {
        if let Standing::Had(to) = wait.standing()?
            && to.address != from.address
        {
            return Ok(PassedOn { from: from.whose, to: to.whose, took: begun.elapsed() });
        }
        if begun.elapsed() > patience {
            wait.strike_out_words()?;
            let from = from.whose;
            let what = format!("no standby has taken it from {from} within {patience:?}");
            return Err(Error::Refused(what));
        }
        thread::sleep(SOON);
    }
}

#[cfg(test)]
#[path = "standby_tests.rs"]
mod tests;
