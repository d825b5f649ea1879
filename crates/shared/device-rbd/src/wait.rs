//! Waiting for an image that another process has, beside others that wait for it, too.

use crate::cluster::Cluster;
use crate::image::Image;
use crate::notes::{About, Notes};
use crate::owner::{describe, standing};
use crate::{RbdPlace, Standing, Words};
use siftfs_base::Result;
use std::sync::Arc;

/// The notes that an administrator writes. No address of a client is called so.
const HAND_OVER: &str = "hand-over";
const TAKE_OVER: &str = "take-over";

/// An image that another process has, seen by one that never writes it by this. Its connection to
/// the cluster is its own, and in no note of owners: so no other that takes the image fences it.
pub struct RbdWait {
    place: RbdPlace,
    owners: Notes,
    waiting: Notes,
    address: String,
    /// A note says that this process waits.
    is_noted: bool,
    image: Image,
}

impl RbdWait {
    /// Looks at the image, which is to be there. It is watched from now on, so the cluster says of
    /// this process, too, whether it lives.
    ///
    /// # Errors
    /// Refused, saying what is wrong: the name, the key, the cluster.
    pub fn open(place: &RbdPlace) -> Result<Self> {
        let image = Image::open(Arc::new(Cluster::connect(place)?), place, true)?;
        let id = image.id()?;
        let owners = Notes::of(image.cluster.clone(), About::Owners, &id)?;
        let waiting = Notes::of(image.cluster.clone(), About::Waiting, &id)?;
        let (address, place) = (image.cluster.own_address()?, place.clone());
        Ok(Self { place, owners, waiting, address, is_noted: false, image })
    }

    /// Who has the image. The cluster is asked.
    ///
    /// # Errors
    /// The cluster does not say.
    pub fn standing(&self) -> Result<Standing> {
        standing(&self.image, &self.owners, &self.place)
    }

    /// Says that this process waits for the image, and where it will serve it.
    ///
    /// # Errors
    /// The cluster does not take it.
    pub fn note(&mut self, serves_at: &str) -> Result<()> {
        self.waiting.add(&self.address, &format!("{}, at {serves_at}", describe()))?;
        self.is_noted = true;
        Ok(())
    }

    /// Who waits for the image and lives, as each describes itself; this process not among them.
    ///
    /// # Errors
    /// The cluster does not say.
    pub fn others_waiting(&self) -> Result<Vec<String>> {
        let live = self.image.watchers()?;
        let noted = self.waiting.all()?.into_iter();
        let others = noted.filter(|(name, _)| *name != self.address && live.contains(name));
        Ok(others.map(|(_, whose)| whose).collect())
    }

    /// What an administrator has said.
    ///
    /// # Errors
    /// The cluster does not say.
    pub fn words(&self) -> Result<Words> {
        let mut words = Words::default();
        for (name, said) in self.waiting.all()? {
            match name.as_str() {
                HAND_OVER => words.hand_over = Some(said),
                TAKE_OVER => words.take_over = Some(said),
                _ => {}
            }
        }
        Ok(words)
    }

    /// Says, for an administrator, that this owner is to give the image up in order.
    ///
    /// # Errors
    /// The cluster does not take it.
    pub fn ask_to_hand_over(&self, owner: &str) -> Result<()> {
        self.waiting.add(HAND_OVER, owner)
    }

    /// Says, for an administrator, that this owner is to be taken for dead by those that wait.
    ///
    /// # Errors
    /// The cluster does not take it.
    pub fn say_take_over(&self, owner: &str) -> Result<()> {
        self.waiting.add(TAKE_OVER, owner)
    }

    /// What was said has come to its end.
    ///
    /// # Errors
    /// The cluster does not take it.
    pub fn strike_out_words(&self) -> Result<()> {
        self.waiting.remove(HAND_OVER)?;
        self.waiting.remove(TAKE_OVER)
    }

    /// This process, as it describes itself to others.
    pub fn own_description() -> String {
        describe()
    }
}

impl Drop for RbdWait {
    fn drop(&mut self) {
        if self.is_noted
            && let Err(error) = self.waiting.remove(&self.address)
        {
            tracing::debug!(place = %self.place, %error, "a note of this process stays");
        }
    }
}
