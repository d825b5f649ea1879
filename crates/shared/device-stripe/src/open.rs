//! Putting a set together: which members are its own, in which order.

use crate::device::StripedDevice;
use crate::geometry::{DATA_BEGIN, Geometry};
use crate::label::Label;
use crate::member::Member;
use crate::place::StripePlace;
use siftfs_base::{Error, Result};
use siftfs_log::show_uuid;

impl StripedDevice {
    /// The set that these members are, all of them and in order. Nothing is written.
    ///
    /// # Errors
    /// Refused, naming a member and what to do, if one has no label, is of another set, in another
    /// place than it was made for, doubled or too short, or if one is missing. `Corrupt` for a
    /// damaged label, `Incompatible` for a newer one.
    pub fn open(members: Vec<Member>) -> Result<Self> {
        let mut labels = Vec::with_capacity(members.len());
        for member in &members {
            member.check()?;
            let label = member.label()?.ok_or_else(|| {
                member.refused(
                    "it has no label of a striped volume: siftfs mkfs did not make it as a member, \
                     or something has overwritten it",
                )
            })?;
            labels.push(label);
        }
        let first = labels.first().copied();
        let first = first.ok_or_else(|| Error::Refused("a set without members".into()))?;
        check_set(&members, &labels, &first)?;
        for member in &members {
            let least = DATA_BEGIN + first.geometry.member_len();
            if member.device.size() < least {
                return Err(member.refused(format_args!(
                    "truncated: it has {} bytes, its label says {least}; put its whole length back",
                    member.device.size()
                )));
            }
        }
        Ok(Self::over(members, first.geometry, Some(first.set)))
    }

    /// A new set of these members, with as much data on each as the shortest has room for, `most`
    /// bytes at most. Both roles are had on all of them: they are stamped, and then what they had
    /// as labels is taken away, durably: until [`StripedDevice::seal`] they are of no set.
    ///
    /// # Errors
    /// Refused as by [`Geometry::new`], or if a member has no room for a unit; I/O errors.
    pub fn make(members: Vec<Member>, unit: u64, most: u64) -> Result<Self> {
        members.iter().try_for_each(Member::check)?;
        let room = |member: &Member| member.device.size().saturating_sub(DATA_BEGIN).min(most);
        let shortest = members.iter().map(room).min().unwrap_or(0);
        let len = shortest.checked_div(unit).unwrap_or(0) * unit;
        let geometry = Geometry::new(members.len(), unit, len)?;
        let made = Self::over(members, geometry, None);
        made.taken()?;
        made.members().iter().try_for_each(|member| member.set_label(&Label::free()))?;
        Ok(made)
    }

    /// Makes the members the set `set`: writes their labels, durable when it returns. What lies on
    /// them is to be durable before.
    ///
    /// # Errors
    /// I/O errors: then they may be no set.
    pub fn seal(&self, set: [u8; 16]) -> Result<()> {
        for (index, member) in self.members().iter().enumerate() {
            let label = Label { set, index, geometry: *self.geometry() };
            member.set_label(&label.encode())?;
        }
        Ok(())
    }
}

/// All of one set, and each in its place?
fn check_set(members: &[Member], labels: &[Label], first: &Label) -> Result<()> {
    let first_name = members.first().map_or("", |member| &*member.name);
    for (member, label) in members.iter().zip(labels) {
        if label.set != first.set || label.geometry != first.geometry {
            return Err(member.refused(format_args!(
                "it is of the set {}, and member {first_name} is of the set {}: name members of one set",
                show_uuid(&label.set),
                show_uuid(&first.set)
            )));
        }
    }
    for (at, (member, label)) in members.iter().zip(labels).enumerate() {
        let same = |other: &&(&Member, &Label)| other.1.index == label.index;
        let before: Vec<_> = members.iter().zip(labels).take(at).collect();
        if let Some((other, _)) = before.iter().find(same) {
            return Err(member.refused(format_args!(
                "it is number {} of its set, as member {} is: one of them is a copy",
                label.index + 1,
                other.name
            )));
        }
    }
    let count = first.geometry.count();
    if members.len() != count {
        let number = |label: &Label| (label.index + 1).to_string();
        let there: Vec<_> = labels.iter().map(number).collect();
        return Err(Error::Refused(format!(
            "the set {} has {count} members, and {} are named, its numbers {}: name all of them in order",
            show_uuid(&first.set),
            members.len(),
            there.join(", ")
        )));
    }
    let mut placed: Vec<_> = members.iter().zip(labels).collect();
    placed.sort_by_key(|(_, label)| label.index);
    if placed.iter().zip(members).any(|((is, _), member)| is.name != member.name) {
        let right = placed.iter().map(|(member, _)| (&*member.name).into()).collect();
        return Err(Error::Refused(format!(
            "the members are named in the wrong order: name {}",
            StripePlace::new(right).name().display()
        )));
    }
    Ok(())
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
