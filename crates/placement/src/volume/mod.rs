//! A volume on its devices: making it, finding its parts, its marker, giving up or mending what is
//! lost.

pub mod adopt;
pub mod child;
pub mod directory;
pub mod discard;
pub(crate) mod files;
pub mod find;
pub mod grow;
pub mod layout;
pub mod marker;
pub mod media;
pub mod members;
pub mod mend;
pub mod mkfs;
pub mod place;
pub mod record_area;
pub(crate) mod stripes;
