//! The values of a line's options.

use super::line::{Role, Volumes};
use crate::ids::{IdMap, IdRange, Squash};
use crate::public::shortened;

/// Most maps of a list.
const MOST_MAPS: usize = 64;
/// Most volumes of a line.
const MOST_VOLUMES: usize = 64;
/// Longest name of a volume, in bytes.
const MOST_NAME: usize = 255;
/// Longest subtree, in bytes.
const MOST_PATH: usize = 4095;

pub(super) fn role(value: &str) -> Result<Role, String> {
    match value {
        "host" => Ok(Role::Host),
        "client" => Ok(Role::Client),
        "admin" => Ok(Role::Admin),
        other => Err(format!("role=`{}` is not host, client or admin", shortened(other))),
    }
}

pub(super) fn squash(value: &str) -> Result<Squash, String> {
    match value {
        "root" => Ok(Squash::Root),
        "all" => Ok(Squash::All),
        "none" => Ok(Squash::None),
        other => Err(format!("squash=`{}` is not root, all or none", shortened(other))),
    }
}

pub(super) fn volumes(value: &str) -> Result<Volumes, String> {
    if value == "*" {
        return Ok(Volumes::All);
    }
    let names: Vec<String> = value.split(',').take(MOST_VOLUMES + 1).map(str::to_string).collect();
    if names.len() > MOST_VOLUMES {
        return Err(format!("volumes= has more than {MOST_VOLUMES} names; `*` is all"));
    }
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() || name.len() > MOST_NAME || name.contains('*') {
            return Err(format!("volumes= has the name `{}`", shortened(name)));
        }
        if names.iter().take(at).any(|other| other == name) {
            return Err(format!("volumes= has `{}` twice", shortened(name)));
        }
    }
    Ok(Volumes::Named(names))
}

pub(super) fn subtree(value: &str) -> Result<String, String> {
    let wrong = |what| Err(format!("subtree=`{}` {what}", shortened(value)));
    if value.len() > MOST_PATH {
        return wrong("is too long");
    }
    let Some(rest) = value.strip_prefix('/') else { return wrong("does not begin with /") };
    let bad = |name: &str| name.is_empty() || name.len() > MOST_NAME || [".", ".."].contains(&name);
    match !rest.is_empty() && rest.split('/').any(bad) {
        true => wrong("has a name that is empty, too long, `.` or `..`"),
        false => Ok(value.to_string()),
    }
}

/// The maps of an option, which messages call `name`.
pub(super) fn maps(name: &str, value: &str) -> Result<IdMap, String> {
    if value == "*" {
        return Ok(IdMap::identity());
    }
    let texts: Vec<&str> = value.split(',').take(MOST_MAPS + 1).collect();
    if texts.len() > MOST_MAPS {
        return Err(format!("{name}= has more than {MOST_MAPS} maps"));
    }
    let ranges = texts.into_iter().map(|text| {
        range(text)
            .ok_or_else(|| format!("{name}=`{}` is not CLIENT:SERVER:COUNT", shortened(text)))
    });
    let ranges = ranges.collect::<Result<Vec<_>, _>>()?;
    IdMap::new(ranges).map_err(|what| format!("{name}=: {what}"))
}

fn range(text: &str) -> Option<IdRange> {
    let mut numbers = text.split(':').map(number);
    let [client, server, count] = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(IdRange { client, server, count })
}

/// The ids of callers that are squashed.
pub(super) fn anon(value: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("anon=`{}` is not UID:GID", shortened(value));
    let (uid, gid) = value.split_once(':').ok_or_else(wrong)?;
    let ids = (number(uid).ok_or_else(wrong)?, number(gid).ok_or_else(wrong)?);
    if [ids.0, ids.1].iter().any(|id| [0, u32::MAX].contains(id)) {
        return Err(format!("anon={}:{} has an id that is nobody's or root's", ids.0, ids.1));
    }
    Ok(ids)
}

/// A number in digits alone: no sign, no zeros before it.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
