//! A volume whose storage another process has: `target:ADDRESS/VOLUME` wherever a volume is named.

use crate::options::keys::confirm;
use crate::show::failure::{Failure, USAGE};
use siftfs_placement::{Address, StripePlace, TargetPlace, TransportOptions};
use siftfs_transport::Trust;
use std::path::{Path, PathBuf};

/// The place that `given` names, by an address that holds everywhere; `None` for a volume at a path
/// of this machine. A path that looks like one is given with `./` before it.
///
/// # Errors
/// It names no address or no volume, or keys are missing.
pub fn target(given: &Path, trust: &Trust) -> Result<Option<TargetPlace>, Failure> {
    let Some((address, volume)) = parse(given)? else { return Ok(None) };
    let options = TransportOptions::default();
    let secured = trust.secure(&address, &options, confirm()).map_err(Failure::plain)?;
    Ok(Some(TargetPlace { address, volume, options, secured }))
}

/// The members at targets of the striped volume that `given` names, by addresses that hold
/// everywhere; none for any other volume.
///
/// # Errors
/// One of them names no address or no member, or keys are missing.
pub fn members(given: &Path, trust: &Trust) -> Result<Vec<TargetPlace>, Failure> {
    let Some(Ok(stripes)) = StripePlace::parse(given) else { return Ok(Vec::new()) };
    let places = stripes.members().iter().map(|member| target(member, trust));
    Ok(places.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// What a mount of the place that `given` names is called; `None` as [`target`].
///
/// # Errors
/// It names no address or no volume.
pub fn named(given: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some((address, volume)) = parse(given)? else { return Ok(None) };
    let options = TransportOptions::default();
    let place = TargetPlace { address, volume, options, secured: None };
    Ok(Some(place.to_string().into()))
}

/// Refuses a command that needs a file or a device of this machine.
///
/// # Errors
/// `given` names a target's volume: `why` it does not go.
pub fn refuse(given: &Path, why: &str) -> Result<(), Failure> {
    match parse(given)? {
        Some(_) => Err(Failure::about(given, why).with_code(USAGE)),
        None => Ok(()),
    }
}

fn parse(given: &Path) -> Result<Option<(Address, String)>, Failure> {
    let Some(parsed) = given.to_str().and_then(TargetPlace::parse) else { return Ok(None) };
    let (address, volume) = parsed.map_err(|e| Failure::plain(e).with_code(USAGE))?;
    let address = match address {
        Address::Unix(path) => {
            Address::Unix(std::path::absolute(&path).map_err(|e| Failure::about(&path, e))?)
        }
        network => network,
    };
    Ok(Some((address, volume)))
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
